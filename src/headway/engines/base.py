"""The contract of an engine dialect: where its load report is, how to read it, what the data plane must know.

Pure: answers come in as bytes, samples go out as values. One file per engine, each ends in `PLUGIN`. A dialect never
guesses: a gauge that is missing or not a finite number is `None` in the sample and named in `Reading.missing`.
"""

import enum
from collections.abc import Mapping
from typing import Protocol

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample


class Poll(msgspec.Struct, frozen=True):
    """One GET of a load report. `optional` polls may fail without an alarm; `once` polls run at detection only."""

    path: str
    optional: bool = False
    once: bool = False


class Reading(msgspec.Struct, frozen=True):
    """A sample and what was missing from it. `missing` names gauges this engine ought to have reported."""

    sample: LoadSample
    missing: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True):
    """What detection learned about an engine at a URL. Empty or 0 where it did not say."""

    engine: str
    version: str = ""
    models: tuple[str, ...] = ()
    max_model_tokens: int = 0
    kv_capacity_tokens: int = 0
    max_num_seqs: int = 0
    precision: str = ""


class Resume(enum.StrEnum):
    """How a running request can be continued on this engine (used by migration later)."""

    TOKENS = "tokens"
    TEXT = "text"
    NONE = "none"


class Dialect(Protocol):
    """One engine's words.

    `ports`: where it usually listens on localhost. `health_path`: 200 means alive. `polls`: the load report.
    `request_headers`: added to each upstream request (a free sample in the response); `sample_header`: the response
    header that carries one, lower case, empty if none.
    """

    name: str
    ports: tuple[int, ...]
    health_path: str
    polls: tuple[Poll, ...]
    request_headers: tuple[tuple[str, str], ...]
    sample_header: str
    resume: Resume

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Facts if these answers (path -> body of a 200; asked: `detect_paths`) come from this engine, else None."""
        ...

    detect_paths: tuple[str, ...]

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """Turn the polled bodies (path -> body) into a sample. `model` selects series when several are served."""
        ...

    def read_header(self, value: str, replica_id: ReplicaId, taken_at: float) -> LoadSample | None:
        """A partial sample from a response header's value, None if it cannot be read."""
        ...
