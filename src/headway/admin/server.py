"""uvicorn inside a loop that belongs to somebody else: no signal handlers, no exit, a socket that is bound by us."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

STOP_WAIT_S = 1
"""Admin connections may not hold up the exit for longer."""

REQUEST_WAIT_S = 10.0
"""A connection that has not brought a whole request by then is closed. There is no cap on their number instead: those
who hold connections open must not make /healthz say 503."""


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, less its endless patience with those who never finish a request."""

    _patience: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._patience = self.loop.call_later(REQUEST_WAIT_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._patience.cancel()
        self._patience = self.loop.call_later(REQUEST_WAIT_S, self.transport.close)
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._patience.cancel()
        super().on_message_complete()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, not to its admin port."""
        yield


class AdminServer:
    """The admin port. `bind` raises OSError at once when the address is taken; `serve` runs until `stop`."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            lifespan="off",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            http=_Protocol,
            timeout_graceful_shutdown=STOP_WAIT_S,
        )
        self._host = host
        self._port = port
        self._server = _Server(config)
        self._socket: socket.socket | None = None

    def bind(self) -> int:
        """Open the port; returns its number, which matters when 0 was asked for."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server((self._host.strip("[]"), self._port), family=family, backlog=128)
        self._socket.setblocking(False)
        port: int = self._socket.getsockname()[1]
        return port

    async def serve(self) -> None:
        """Answer until `stop`."""
        assert self._socket is not None, "bind first"
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Ask `serve` to end."""
        self._server.should_exit = True

    def close(self) -> None:
        """Give the port back when `serve` was never called."""
        if self._socket is not None:
            self._socket.close()
