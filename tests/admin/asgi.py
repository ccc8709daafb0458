"""Calling an ASGI app without a server: what a request would be after uvicorn has parsed it."""

import asyncio
import contextlib
import json
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message


class Reply(msgspec.Struct):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def call(
    app: ASGIApp,
    method: str,
    path: str,
    headers: list[tuple[str, str]] | None = None,
    body: bytes = b"",
    host: str | None = "127.0.0.1:8801",
    raises: tuple[type[Exception], ...] = (),
) -> Reply:
    """One request; like uvicorn, percent signs in the path are decoded once. `raises`: what the app raises behind its
    answer, for the server to log."""
    lines = [("host", host)] if host is not None else []
    lines += headers or []
    messages: list[Message] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in lines],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8801),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        messages.append(message)

    with contextlib.suppress(*raises):
        asyncio.run(app(scope, receive, send))
    start = messages[0]
    return Reply(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(message.get("body", b"") for message in messages[1:]),
    )
