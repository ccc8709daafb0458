"""Log lines: readable on a terminal, one JSON object per line elsewhere, credentials masked in both.

Everything goes through here: Headway's own loggers and those of libraries (standard logging), and one access line per
request. Lines are made and written on the sink's thread.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TextIO

import msgspec
import structlog

from headway.telemetry.access import Access
from headway.telemetry.redact import Redactor
from headway.telemetry.sink import LineSink, to_descriptor, to_nowhere

QUIET = {"uvicorn.access": logging.WARNING, "asyncio": logging.WARNING, "aiohttp": logging.WARNING}
"""Libraries that say at INFO what is no news to an operator."""

COLOURS = {"ok": "\x1b[32m", "client_error": "\x1b[33m", "client_closed": "\x1b[33m"}
PLAIN, RED = "\x1b[0m", "\x1b[31m"


class Logs(logging.Handler):
    """The root handler, and the access log. Make it with `configure`."""

    def __init__(self, sink: LineSink, redactor: Redactor, json: bool, colours: bool) -> None:
        super().__init__()
        self.sink = sink
        self.redactor = redactor
        self._access: Callable[[Access, Redactor], str] = access_json if json else partial(access_text, colours=colours)
        self.setFormatter(_formatter(redactor, json, colours))

    def emit(self, record: logging.LogRecord) -> None:
        """Format now, because arguments may change later; write on the sink's thread."""
        try:
            line = self.redactor.scrub(self.format(record))
        except Exception:  # noqa: BLE001 - a log line that cannot be made must never break what it speaks about
            self.sink.dropped += 1
            return
        self.sink.put(lambda: line)

    def access(self, access: Access) -> None:
        """One access line."""
        self.sink.put(partial(self._access, access, self.redactor))

    def close(self) -> None:
        """Write what waits (a second at most) and let go of the root logger."""
        logging.getLogger().removeHandler(self)
        self.sink.close()
        super().close()


def configure(
    level: str = "info", json: bool | None = None, secrets: Iterable[str] = (), stream: TextIO | None = None
) -> Logs:
    """Set up logging for the process. `json` defaults to True when `stream` (stderr) is not a terminal."""
    stream = stream if stream is not None else sys.stderr
    terminal = stream is not None and not stream.closed and stream.isatty()
    json = not terminal if json is None else json
    logs = Logs(LineSink(_writer(stream)), Redactor(secrets), json, colours=terminal)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, Logs)]:
        old.close()
    root.addHandler(logs)
    root.setLevel(level.upper())
    for name, quiet in QUIET.items():
        logging.getLogger(name).setLevel(max(quiet, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(json),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return logs


def access_json(access: Access, redactor: Redactor) -> str:
    """The access line for machines: every field of `Access`, with an ISO time."""
    safe = msgspec.structs.replace(access, client_request_id=redactor.scrub(access.client_request_id))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(access.at))
    milliseconds = int(access.at % 1 * 1000)
    head = f'{{"timestamp":"{stamp}.{milliseconds:03d}Z","level":"info","event":"access",'
    return head + msgspec.json.encode(safe).decode()[1:]


def access_text(access: Access, redactor: Redactor, colours: bool = False) -> str:
    """The access line for people. Text that a client chose is quoted, so that it cannot forge a line or a colour."""
    colour = COLOURS.get(access.account, RED) if colours else ""
    ttft = "" if access.ttft_s is None else f" ttft {access.ttft_s * 1e3:.0f} ms"
    tokens = f" {access.prompt_tokens}+{access.output_tokens} tokens" if access.attempts else ""
    where = f" -> {access.replica}" if access.replica else ""
    again = f" attempt {access.attempts}" if access.attempts > 1 else ""
    theirs = f" client {redactor.scrub(access.client_request_id)!a}" if access.client_request_id else ""
    return (
        f"{time.strftime('%H:%M:%S', time.localtime(access.at))}"
        f" {colour}{access.status} {access.code or access.account}"
        f"{PLAIN if colours else ''} {access.method} {access.path} {access.model!a}{where}{again}"
        f" {access.duration_s * 1e3:.0f} ms{ttft}{tokens} {access.request_id}{theirs}"
    )


def _writer(stream: TextIO | None) -> Callable[[bytes], None]:
    if stream is None or stream.closed:
        return to_nowhere
    try:
        return to_descriptor(stream.fileno())
    except OSError:  # not backed by a descriptor, as under a test's capture
        return lambda data: _print(stream, data)


def _print(stream: TextIO, data: bytes) -> None:
    stream.write(data.decode())
    stream.flush()


def _shared(json: bool) -> list[Any]:
    stamp = structlog.processors.TimeStamper(fmt="iso" if json else "%H:%M:%S", utc=json)
    return [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        stamp,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _printable(name: str, value: Any) -> Any:
    if name in {"exception", "stack"} or not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value)


def _formatter(redactor: Redactor, json: bool, colours: bool) -> logging.Formatter:
    def mask(_logger: Any, _method: str, event: Any) -> Any:
        masked = redactor.event(event)
        return masked if json else {name: _printable(name, value) for name, value in masked.items()}

    renderer: Any = (
        structlog.processors.JSONRenderer(serializer=lambda value, **_: msgspec.json.encode(value).decode())
        if json
        else structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=0)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(json),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, mask, renderer],
    )
