"""What a connection keeps of an answer, and for how long. (`test_http` has the rest, over sockets.)"""

import asyncio
from collections.abc import Callable
from typing import Any

from headway.runtime.answers import Answer
from headway.runtime.connection import Connection

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


class Wire:
    """A transport that only notes that it was aborted."""

    aborted = 0

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        self.aborted += 1


def test_a_peer_that_is_faster_than_the_loop_fills_no_memory(run: Callable[[Any], Any]) -> None:
    """All that comes between the cap and the moment at which whoever asked gets to run is thrown away, and the
    connection is cut at once, not only then."""

    async def story() -> tuple[Answer, Wire, int]:
        connection, wire = Connection(), Wire()
        connection.connection_made(wire)
        asked = asyncio.ensure_future(connection.ask(b"GET / HTTP/1.1\r\n\r\n", cap_bytes=1500))
        await asyncio.sleep(0)
        connection.data_received(HEAD + b"a" * 1000)
        connection.data_received(b"b" * 1000)
        assert wire.aborted == 1
        for _ in range(100):
            connection.data_received(b"c" * 1000)
        kept = sum(map(len, connection._body))
        answer = await asked
        assert isinstance(answer, Answer)
        return answer, wire, kept

    answer, wire, kept = run(story())
    assert answer.body == b"a" * 1000 + b"b" * 500
    assert answer.cut
    assert kept == 0
    assert wire.aborted
