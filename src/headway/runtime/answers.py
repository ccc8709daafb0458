"""What a question to another process comes to: an answer, or why there is none. Values, never exceptions."""

import enum

import msgspec


class FailureKind(enum.StrEnum):
    """Why there was no answer."""

    REFUSED = "refused"  # nobody listens there any more
    UNREACHABLE = "unreachable"  # no route, no such name, TLS
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection died, or what came was not HTTP
    OURS = "ours"  # nobody was asked: this process has no descriptor, port or memory left


class Failure(msgspec.Struct, frozen=True):
    """No answer. `detail` is for people."""

    kind: FailureKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


class Answer(msgspec.Struct, frozen=True):
    """An answer of any status. `cut`: the body was longer than the cap and ends there."""

    status: int
    body: bytes
    cut: bool = False
