"""A server that plays a script: pieces of bytes, pauses, a clean end or a cut. One request a connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

CUT = object()
"""Reset the connection here."""

Step = bytes | float | object
Script = Callable[[int, dict], list[Step]]


def head(status: int = 200, kind: str = "text/event-stream", length: int | None = None) -> bytes:
    framing = f"content-length: {length}" if length is not None else "connection: close"
    return f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{framing}\r\n\r\n".encode()


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"
USAGE = event(
    choices=[],
    usage={"prompt_tokens": 40, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}},
)
GOOD = [
    head(),
    event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
    piece("a"),
    piece("b"),
    piece("c", "stop"),
    USAGE,
    DONE,
]


def whole(status: int, body: dict) -> list[Step]:
    data = json.dumps(body).encode()
    return [head(status, "application/json", len(data)), data]


def error(status: int, code: object, message: str = "no") -> list[Step]:
    return whole(status, {"error": {"message": message, "type": "x_error", "code": code}})


class Server:
    """Counts what it got: `seen` holds method, path, headers and JSON of each request in order."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[tuple[str, str, dict[str, str], dict]] = []
        self.closed_early = 0
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = lines[0].split()
            request = json.loads(body) if body else {}
            number = sum(one[0] == "POST" for one in self.seen)
            self.seen.append((method, path, headers, request))
            steps = self.script(number, request) if method == "POST" else MODELS
            await self._play(steps, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_early += 1
        finally:
            writer.close()

    async def _play(self, steps: list[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for step in steps:
            if step is CUT:
                writer.transport.abort()
                return
            if isinstance(step, float):
                await self._pause(step, reader)
            elif isinstance(step, bytes):
                writer.write(step)
                await writer.drain()

    async def _pause(self, seconds: float, reader: asyncio.StreamReader) -> None:
        """Sleep, but notice a client that leaves."""
        try:
            async with asyncio.timeout(seconds):
                if not await reader.read(1):
                    raise ConnectionResetError
        except TimeoutError:
            pass


MODELS = whole(200, {"object": "list", "data": [{"id": "tiny"}]})


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[Server]:
    """The scripted server on a port of its own."""
    fake = Server(script)
    server = await asyncio.start_server(fake._serve, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield fake
        server.close()
    await asyncio.sleep(0.01)
