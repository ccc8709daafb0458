"""A request of a workload: when it arrives, how long it is, and which parts of its prompt it shares with others.

No text lives here (that is `text`), only keys: two prompts that begin with equal segments begin with equal text.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

Role = Literal["system", "user", "assistant"]


class Segment(msgspec.Struct, frozen=True, gc=False):
    """A piece of a prompt, `tokens` long. Its text is a function of `key` and of the workload's seed.

    A shorter segment of the same key is the beginning of a longer one.
    """

    key: int
    tokens: int
    role: Role = "user"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request. `arrival_s` counts from the workload's start; `output_tokens` is the length to be generated.

    `session` is empty for a request of no conversation; `turn` counts from 0 within it. `shape` names the mix that the
    request was drawn from, for reports. `tenant` is who sent it, where a gateway would know (by API key).
    """

    arrival_s: float
    segments: tuple[Segment, ...]
    output_tokens: int
    session: str = ""
    turn: int = 0
    shape: str = ""
    tenant: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Length of the whole prompt."""
        return sum(segment.tokens for segment in self.segments)


class Workload(msgspec.Struct, frozen=True):
    """Requests by arrival, all in [0, span_s), and `how` they came to be: one sentence per step, for reports.

    `span_s` is a period: the workload may be read as a ring, its first second following its last.
    """

    name: str
    requests: Sequence[Request]
    span_s: float
    how: tuple[str, ...] = ()

    @property
    def rate_rps(self) -> float:
        """Requests per second on average."""
        return len(self.requests) / self.span_s if self.span_s > 0 else 0.0


def as_workload(name: str, requests: Sequence[Request], how: str = "") -> Workload:
    """A workload of requests by arrival whose span is not known: their range and one mean gap more."""
    last = requests[-1].arrival_s if requests else 0.0
    span_s = last * len(requests) / (len(requests) - 1) if last else float(len(requests) > 0)
    return Workload(name, requests, span_s, (how,) if how else ())
