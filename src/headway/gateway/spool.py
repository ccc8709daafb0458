"""The client's side of a response that may go on elsewhere: whole events only, read by a tape, and held back for a cut.

What lives here: which bytes the client has. What must not: when to cut and who takes over (`mover`). Whatever an
attempt writes goes through a filter: the source's through one that reads it and takes out what the client did not ask
for, a continuation's through one that makes it look like the same run. While `holding`, bytes wait unread: they are
the source's word until the cut, and nothing after it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from headway.gateway.head import ResponseHead
from headway.gateway.outlet import Outlet
from headway.wire.resume_whole import Whole


class Filter(Protocol):
    """Bytes of an attempt in, bytes of the client's stream out."""

    def feed(self, data: bytes) -> bytes:
        """The next piece."""
        ...

    def end(self) -> bytes:
        """The attempt's stream ended: what is left."""
        ...


class Watcher(Protocol):
    """Who minds the spool."""

    def held(self, size: int) -> None:
        """So many bytes are held back by now."""
        ...

    def spoke(self) -> None:
        """A continuation's piece passed its filter."""
        ...

    def gathered(self, size: int) -> None:
        """So many bytes are kept of an answer that is given at once."""
        ...

    def give(self, whole: Whole) -> None:
        """It is all there: give it to the client."""
        ...


class Unconcerned:
    """A watcher of what has ended."""

    def held(self, size: int) -> None:
        """Nothing follows."""

    def spoke(self) -> None:
        """Nothing follows."""

    def gathered(self, size: int) -> None:
        """Nothing follows."""

    def give(self, whole: Whole) -> None:
        """Nobody waits for it."""


UNCONCERNED: Final = Unconcerned()


class Spool(Outlet):
    """An outlet with a filter in front. Without one it is any other outlet. `holding`: nothing passes."""

    __slots__ = ("_filter", "_held", "_held_bytes", "_joined", "_watcher", "holding")

    def __init__(self, transport: asyncio.Transport, watcher: Watcher) -> None:
        super().__init__(transport)
        self._watcher: Watcher = watcher
        self._filter: Filter | None = None
        self._joined = False
        self._held: list[bytes] = []
        self._held_bytes = 0
        self.holding = False

    def through(self, kind: Filter | None, joined: bool) -> None:
        """From now on, what is written passes this filter. `joined`: it is a continuation's."""
        self._filter = kind
        self._joined = joined
        self._forget()

    def opens(self, head: ResponseHead) -> bool:
        """An attempt's response begins: what is no stream of events passes unread. Whether its length may change."""
        if head.media != b"text/event-stream":
            self._filter = None
        return self._filter is not None

    def begin(self, head: bytes, status: int, chunked: bool, fixed: bool, first: bytes) -> None:
        """Write the head, and what may pass of the first piece."""
        if first and self._filter is not None:
            first = self._filter.feed(first)
        super().begin(head, status, chunked, fixed, first)

    def write(self, data: bytes) -> None:
        """A piece of an attempt's stream."""
        if self.holding:
            self._held.append(data)
            self._held_bytes += len(data)
            self._watcher.held(self._held_bytes)
            return
        if self._filter is not None:
            data = self._filter.feed(data)
        if data:
            super().write(data)
        if self._joined:
            self._watcher.spoke()

    def say(self, data: bytes) -> None:
        """Words of our own, between two events of the stream."""
        super().write(data)

    def unwatched(self) -> None:
        """The request has ended."""
        self._watcher = UNCONCERNED

    def hold(self) -> None:
        """Let nothing pass until the cut, or until it is given up."""
        self.holding = True

    def release(self) -> None:
        """There is no cut: what was held passes."""
        if self.holding:
            self.holding = False
            data, self._held, self._held_bytes = b"".join(self._held), [], 0
            if data:
                self.write(data)

    def flush(self) -> None:
        """The attempt's stream ended: an event without its blank line counts."""
        self.release()
        if self._filter is not None:
            data = self._filter.end()
            if data:
                super().write(data)

    def finish(self) -> None:
        """End the body cleanly."""
        self.flush()
        super().finish()

    def _forget(self) -> None:
        self.holding = False
        self._held, self._held_bytes = [], 0


class Basin:
    """In place of a client's transport: what is written is put together."""

    def __init__(self) -> None:
        self.whole = Whole()

    def write(self, data: bytes) -> None:
        """The next piece of the stream."""
        self.whole.feed(data)


class Gathering(Spool):
    """A spool whose client gets one answer at the end. To relays, the response has begun but has said nothing."""

    __slots__ = ("_basin",)

    def __init__(self, watcher: Watcher) -> None:
        self._basin = Basin()
        super().__init__(cast(asyncio.Transport, self._basin), watcher)
        self.begun = True

    @property
    def whole(self) -> Whole:
        """What there is so far."""
        return self._basin.whole

    def clear(self) -> None:
        """An answer begins: what there was of an earlier one has not been given to anybody."""
        self._basin.whole = Whole()
        self.body_sent = False
        self.sent_bytes = 0

    def write(self, data: bytes) -> None:
        """A piece of an attempt's stream."""
        super().write(data)
        if not self.holding:
            self._watcher.gathered(self._basin.whole.size)

    def finish(self) -> None:
        """The stream ended cleanly."""
        super().finish()
        self._watcher.give(self._basin.whole)


class Anteroom(Outlet):
    """Where a continuation speaks before it counts. To its relay, the response has begun but has said nothing."""

    __slots__ = ("_say",)

    def __init__(self, transport: asyncio.Transport, say: Callable[[bytes], None]) -> None:
        super().__init__(transport)
        self.begun = True
        self._say = say

    def write(self, data: bytes) -> None:
        """A piece of the continuation."""
        self._say(data)

    def shut(self) -> None:
        """Nobody will speak here any more."""
        self._say = unheard

    def finish(self) -> None:
        """The client's body does not end here."""


def unheard(data: bytes) -> None:
    """What is said after the end."""
