"""uvicorn inside a loop that belongs to somebody else: no signal handlers, no exit, a socket that is bound by us."""

import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

STOP_WAIT_S = 1
"""Admin connections may not hold up the exit for longer."""

CONNECTIONS = 256
"""Concurrent admin requests; more are answered 503."""


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
            limit_concurrency=CONNECTIONS,
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
