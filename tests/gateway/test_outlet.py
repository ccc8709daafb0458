"""Framing towards the client."""

import asyncio
from typing import cast

from headway.gateway.outlet import Outlet


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def outlet() -> tuple[Outlet, Transport]:
    transport = Transport()
    return Outlet(cast(asyncio.Transport, transport)), transport


def test_chunked() -> None:
    out, transport = outlet()
    out.begin(b"HEAD", 200, True, False, b"first")
    out.write(b"x" * 16)
    out.finish()
    assert transport.written == [b"HEAD5\r\nfirst\r\n", b"10\r\n" + b"x" * 16 + b"\r\n", b"0\r\n\r\n"]
    assert (out.begun, out.body_sent, out.sent_bytes, out.status, out.fixed) == (True, True, 21, 200, False)


def test_plain() -> None:
    out, transport = outlet()
    out.begin(b"HEAD", 200, False, True, b"")
    assert not out.body_sent
    out.write(b"ab")
    out.finish()
    assert transport.written == [b"HEAD", b"ab"]
    assert out.fixed
