"""A request of a workload: when it arrives, how long it is, and which parts of its prompt it shares with others.

No text lives here (that is `text`), only keys: two prompts that begin with equal segments begin with equal text.
"""

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
    request was drawn from, for reports.
    """

    arrival_s: float
    segments: tuple[Segment, ...]
    output_tokens: int
    session: str = ""
    turn: int = 0
    shape: str = ""

    @property
    def prompt_tokens(self) -> int:
        """Length of the whole prompt."""
        return sum(segment.tokens for segment in self.segments)
