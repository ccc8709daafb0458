import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from headway.admin import AdminServer


async def hello(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_serves_until_stopped_and_leaves_signals_alone(run: Run) -> None:
    async def scenario() -> None:
        before = signal.getsignal(signal.SIGTERM)
        server = AdminServer(hello, "127.0.0.1", 0)
        port = server.bind()
        serving = asyncio.create_task(server.serve())
        answer = await ask(port)
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"ok")
        assert signal.getsignal(signal.SIGTERM) is before
        server.stop()
        await asyncio.wait_for(serving, 3)

    run(scenario())


def test_a_taken_port_is_an_error_and_no_exit(run: Run) -> None:
    async def scenario() -> None:
        first = AdminServer(hello, "127.0.0.1", 0)
        port = first.bind()
        with pytest.raises(OSError):
            AdminServer(hello, "127.0.0.1", port).bind()
        first.close()

    run(scenario())
