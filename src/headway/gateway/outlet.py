"""The client's side of one response: whatever framing it has there, and nothing about what the bytes mean."""

import asyncio
from typing import Final

from headway.gateway.framing import SIZE_LINES

LAST_CHUNK: Final = b"0\r\n\r\n"


class Outlet:
    """Writes one response. Framing is chosen once, in `begin`; `body_sent` tells whether a payload byte went out.

    `fixed`: the length was promised, so the response cannot be mended by appending to it.
    """

    __slots__ = ("_chunked", "_transport", "begun", "body_sent", "fixed", "sent_bytes", "status")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._chunked = False
        self.begun = False
        self.fixed = False
        self.body_sent = False
        self.sent_bytes = 0
        self.status = 0

    def begin(self, head: bytes, status: int, chunked: bool, fixed: bool, first: bytes) -> None:
        """Write the head, and the first piece of the body with it if there is one already."""
        self.begun = True
        self.status = status
        self._chunked = chunked
        self.fixed = fixed
        if first:
            self.body_sent = True
            self.sent_bytes += len(first)
            head = b"%b%x\r\n%b\r\n" % (head, len(first), first) if chunked else head + first
        self._transport.write(head)

    def write(self, data: bytes) -> None:
        """Write a piece of the body; not empty, that would end it."""
        self.body_sent = True
        self.sent_bytes += len(data)
        if self._chunked:
            size = len(data)
            line = SIZE_LINES[size] if size < len(SIZE_LINES) else b"%x\r\n" % size
            self._transport.write(b"".join((line, data, b"\r\n")))
        else:
            self._transport.write(data)

    def say(self, data: bytes) -> None:
        """Write words of our own."""
        self.write(data)

    def finish(self) -> None:
        """End the body cleanly."""
        if self._chunked:
            self._transport.write(LAST_CHUNK)
