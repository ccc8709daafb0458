"""Log lines: readable on a terminal, one JSON object per line elsewhere, credentials masked in both.

Everything goes through here: Headway's own loggers and those of libraries (standard logging), and one access line per
request. Lines are made and written on the sink's thread.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TextIO

import msgspec
import structlog

from headway.telemetry.access import Access
from headway.telemetry.lines import AccessJson, AccessText
from headway.telemetry.redact import Redactor
from headway.telemetry.sink import LineSink, to_descriptor, to_nowhere

QUIET = {"uvicorn.access": logging.WARNING, "asyncio": logging.WARNING, "aiohttp": logging.WARNING}
"""Libraries that say at INFO what is no news to an operator."""


class Logs(logging.Handler):
    """The root handler, and the access log. Make it with `configure`."""

    def __init__(self, sink: LineSink, redactor: Redactor, json: bool, colours: bool) -> None:
        super().__init__()
        self.sink = sink
        self.redactor = redactor
        self._line: Callable[[Access], str] = AccessJson(redactor) if json else AccessText(redactor, colours)
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
        self.sink.put(partial(self._line, access))

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
