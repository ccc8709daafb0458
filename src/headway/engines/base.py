"""The contract of an engine dialect: where its load report is, how to read it, what the data plane must know.

Pure: answers come in as bytes, samples go out as values. One file per engine, each ends in `PLUGIN`. A dialect never
guesses: a gauge that is missing or not a finite number is `None` in the sample and named in `Reading.missing`.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines.continuation import Continuation

TOLD = ("kv_capacity_tokens", "kv_used_tokens", "kv_usage", "running", "waiting")
"""What load reports are read for; a report with none of it may as well be another program's page."""

NOWHERE = Continuation()
"""An engine that says nothing of how to continue: its requests stay where they are."""


class Poll(msgspec.Struct, frozen=True):
    """One GET of a load report.

    `optional` polls may fail without an alarm and are then asked seldom; what they say alone is no report.
    `unless` names another poll: this one is asked only while the other gives no answer, or one that lacks the words
    `says`. `patience_s`: how long an answer may take, where this engine is known to need longer than others.
    """

    path: str
    optional: bool = False
    unless: str = ""
    says: bytes = b""
    patience_s: float = 0.0


class Reading(msgspec.Struct, frozen=True):
    """A sample and what was missing from it. `missing` names gauges this engine ought to have reported.

    `started_at` is the engine's own boot time (seconds since 1970), where it tells: another value is another boot.
    `rejections_total` counts requests the engine turned away because its own queue was full.
    """

    sample: LoadSample
    missing: tuple[str, ...] = ()
    started_at: float | None = None
    rejections_total: int | None = None

    @property
    def mute(self) -> bool:
        """Whether it should have told the load, and told none of it."""
        return bool(self.missing) and all(getattr(self.sample, field) is None for field in TOLD)


class Facts(msgspec.Struct, frozen=True):
    """What detection learned about an engine at a URL. Empty or 0 where it did not say.

    `models` are the names it answers to, the first one being its own. `metrics` is False where this engine says that it
    has no load report; a report that says nothing, or cannot be had at the moment, is none of the dialect's business.
    """

    engine: str
    version: str = ""
    models: tuple[str, ...] = ()
    max_model_tokens: int = 0
    kv_capacity_tokens: int = 0
    max_num_seqs: int = 0
    precision: str = ""
    metrics: bool = True


class Dialect(Protocol):
    """One engine's words. Subclass it and override what differs; the defaults are those of an engine that says little.

    `ports`: where it usually listens on localhost. `health_path`: 200 means alive. `polls`: the load report.
    `detect_paths`: what to ask to find out whether this engine is there.
    `request_headers`: added to each upstream request (a free sample in the response); `sample_header`: the response
    header that carries one, lower case, empty if none.
    `heartbeat`: words found in this engine's reports whose value differs from report to report, so that a report
    which has them and does not change is frozen; empty if the engine has no such value.
    `endless`: /v1/completions generates without end where no limit is stated, not the 16 tokens of OpenAI's.
    """

    name: str
    ports: tuple[int, ...] = ()
    health_path: str = "/health"
    polls: tuple[Poll, ...] = ()
    detect_paths: tuple[str, ...]
    request_headers: tuple[tuple[str, str], ...] = ()
    sample_header: str = ""
    heartbeat: bytes = b""
    endless: bool = False
    continuation: Continuation = NOWHERE

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Facts if these answers (path -> body of a 200; asked: `detect_paths`) come from this engine, else None."""
        ...

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """Turn the polled bodies (path -> body of a 200) into a sample. Never raises, whatever the bodies hold.

        `model` is the name the engine knows; it selects series when several models are served by one process.
        """
        return Reading(LoadSample(replica_id, taken_at, epoch))

    def read_header(self, value: str, replica_id: ReplicaId, taken_at: float) -> LoadSample | None:
        """A partial sample from a response header's value, None if it cannot be read."""
        return None
