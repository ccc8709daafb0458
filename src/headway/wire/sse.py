"""Server-sent events, read incrementally beside the relay: counts, usage, errors, boundaries. Bytes are never changed.

WHATWG HTML "Server-sent events": lines end with LF, CRLF or CR, `data:` takes one optional space, a blank line ends an
event.
"""

from headway.wire.answers import Usage


class Scanner:
    """Feed it every byte of a stream, in any pieces.

    `events` complete events with data; `tokens` content tokens so far; `first_content` whether any content was seen;
    `done` `[DONE]` was seen; `finished` a finish reason was seen; `aborted` it was "abort"; `hit_limit` it was "length";
    `error` message of an in-band error event or None; `usage` the last usage report.
    """

    events: int
    tokens: int
    first_content: bool
    done: bool
    finished: bool
    aborted: bool
    hit_limit: bool
    error: str | None
    usage: Usage | None

    def feed(self, data: bytes) -> None:
        """Read the next piece of the stream."""
        raise NotImplementedError

    def end(self) -> None:
        """The stream ended: an unterminated last event counts."""
        raise NotImplementedError

    @property
    def at_boundary(self) -> bool:
        """Whether an event or comment may be inserted here."""
        raise NotImplementedError

    @property
    def complete(self) -> bool:
        """Whether an end of the stream now is a proper end: `[DONE]` or a finish reason was seen."""
        raise NotImplementedError


class UsageStripper:
    """Drops exactly the usage-only event (`"choices":[]` with usage) that our splice made the engine send."""

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on now; holds back at most one unfinished event."""
        raise NotImplementedError

    def end(self) -> bytes:
        """The bytes still held back."""
        raise NotImplementedError
