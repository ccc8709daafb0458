"""One engine process: two listeners on one loop, signals, faults that concern the process, and an orderly end.

On SIGTERM or SIGINT the port closes, what runs is finished, and the process ends with 0. vLLM without a shutdown
timeout behaves worse: its streams fall silent for as long as their clients wait; the fault `sigterm_hang` imitates
that. A second signal ends at once.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from headway.emulator.api import Api
from headway.emulator.config import EmulatorConfig, Machine, machine
from headway.emulator.control import Control
from headway.emulator.faults import Fault, FaultKind
from headway.emulator.service import Service
from headway.runtime.parent import parent_gone
from headway.runtime.tasks import TaskSet

log = structlog.get_logger(__name__)

KEEP_ALIVE_S = 5  # uvicorn's and vLLM's default: idle connections are closed after it
LAST_WORDS_S = 0.2  # a dead engine's API server lives on long enough to answer what was running


class CannotListen(OSError):
    """A port cannot be had. `where` it was to be and by which `flag` another one is chosen."""

    def __init__(self, error: OSError, where: str, flag: str) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.where = where
        self.flag = flag


class _Listener(uvicorn.Server):
    """uvicorn without its signal handlers: signals are this process's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class Process:
    """The parts of a running emulator."""

    def __init__(self, config: EmulatorConfig, built: Machine) -> None:
        self.config = config
        self.service = Service(config, built)
        self.exit_code = 0
        self._sockets = [_bind(config.host, config.port, "--port")]
        self._listeners = [_listener(Api(self.service).app())]
        if config.control_port >= 0:
            try:
                self._sockets.append(_bind("127.0.0.1", config.control_port, "--control-port"))
            except CannotListen:
                self._sockets[0].close()
                raise
            self._listeners.append(_listener(Control(self.service).app()))
        self._stopping = False

    async def run(self) -> int:
        """Until told to stop, or dead. Returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with TaskSet() as work:
            work.spawn(self.service.run(), "engine")
            work.spawn(self._obey(), "faults")
            if self.config.exit_with_parent:
                work.spawn(self._leave_with_parent(), "parent")
            servers = [
                work.spawn(listener.serve([socket]), "listener")
                for listener, socket in zip(self._listeners, self._sockets, strict=True)
            ]
            self._announce()
            await servers[0]
            for listener in self._listeners[1:]:
                listener.should_exit = listener.force_exit = True
            await asyncio.wait(servers)
        return self.exit_code

    def _announce(self) -> None:
        host, port = self._sockets[0].getsockname()[:2]
        control = self._sockets[1].getsockname()[1] if len(self._sockets) > 1 else 0
        built = self.service.machine
        if self.config.ready_file:
            target = Path(self.config.ready_file)
            partial = target.with_suffix(".partial")
            partial.write_bytes(msgspec.json.encode({"port": port, "control_port": control, "pid": os.getpid()}))
            partial.rename(target)
        tokens = built.sizes.kv_blocks * built.sizes.block_size
        sys.stdout.write(
            f"{self.config.name} on {self.config.tensor_parallel_size} x {built.gpu.name} ({built.precision}) "
            f"at http://{_where(host, port)}, {tokens:,} KV tokens, time x{self.config.time_scale:g}"
            f"{f', control port {control}' if control else ''}\n"
        )
        sys.stdout.flush()

    def _stop(self) -> None:
        if self._stopping:
            os._exit(1)
        self._stopping = True
        if FaultKind.SIGTERM_HANG in self.service.active:
            self.service.set_fault(Fault(FaultKind.HANG))
        self.service.pause(False)
        self.service.wake()
        self._listeners[0].should_exit = True

    async def _obey(self) -> None:
        """Faults that strike the whole process."""
        while True:
            fault = await self.service.struck.get()
            if fault.kind is FaultKind.CRASH:
                os._exit(1)
            if fault.kind is FaultKind.DROP_CONNECTIONS:
                self._drop()
            if fault.kind is FaultKind.OOM:
                self.exit_code = 1
                await asyncio.sleep(LAST_WORDS_S)
                self._listeners[0].should_exit = self._listeners[0].force_exit = True

    def _drop(self) -> None:
        for connection in list(self._listeners[0].server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()

    async def _leave_with_parent(self) -> None:
        await parent_gone()
        os._exit(1)


def serve(config: EmulatorConfig) -> None:
    """Run one engine until it is stopped. Raises UnknownName, DoesNotFit or ValueError before it listens,
    CannotListen if it cannot, OSError if the ready file cannot be written; exits with 1 after the engine died."""
    built = machine(config)
    length, own = built.sizes.max_model_len, built.model.max_position
    if not config.max_model_len and length < own:
        log.warning("the context is cut to what the KV pool holds", max_model_len=length, model_has=own)
    process = Process(config, built)
    code = uvloop.run(process.run())
    if code:
        raise SystemExit(code)


def _listener(app: ASGIApp) -> _Listener:
    return _Listener(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="warning",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )


def _where(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind(host: str, port: int, flag: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(1024)
    except OSError as error:
        bound.close()
        raise CannotListen(error, _where(host, port), flag) from error
    return bound
