import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from headway.telemetry.logs import Logs, configure
from tests.telemetry.values import access

SECRET = "zq9-planted-4711"


class Written:
    """Logs into memory; `lines` closes them first."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.logs: Logs | None = None

    def start(self, level: str = "info", json: bool = True, secrets: tuple[str, ...] = ()) -> Logs:
        self.logs = configure(level, json=json, secrets=secrets, stream=self.stream)
        return self.logs

    def lines(self) -> list[str]:
        assert self.logs is not None
        self.logs.close()
        return self.stream.getvalue().splitlines()


@pytest.fixture
def written() -> Iterator[Written]:
    root = logging.getLogger()
    level = root.level
    memory = Written()
    yield memory
    if memory.logs is not None:
        memory.logs.close()
    root.setLevel(level)
    structlog.reset_defaults()


def test_library_and_own_loggers_write_json(written: Written) -> None:
    written.start()
    logging.getLogger("some.library").warning("disk %s", "full")
    structlog.get_logger("headway.x").info("joined", replica="a", count=3)
    first, second = map(json.loads, written.lines())
    assert (first["event"], first["level"], first["logger"]) == ("disk full", "warning", "some.library")
    assert (second["event"], second["replica"], second["count"]) == ("joined", "a", 3)


def test_level_is_kept(written: Written) -> None:
    written.start("warning")
    structlog.get_logger("headway.x").info("quiet")
    structlog.get_logger("headway.x").error("loud")
    assert [json.loads(line)["event"] for line in written.lines()] == ["loud"]


@pytest.mark.parametrize("as_json", [True, False])
def test_no_secret_at_any_level_in_any_format(written: Written, as_json: bool) -> None:
    written.start("debug", json=as_json, secrets=(SECRET,))
    log = structlog.get_logger("headway.x")
    log.debug("head", headers={"authorization": f"Bearer {SECRET}"}, url=f"http://u:{SECRET}@h")
    log.error(f"plain {SECRET}")
    logging.getLogger("lib").debug("key=%s", SECRET)
    try:
        raise ValueError(f"wrong key {SECRET}")
    except ValueError:
        log.exception("failed")
        logging.getLogger("lib").exception("failed too")
    text = "\n".join(written.lines())
    assert "failed too" in text
    assert SECRET not in text


def test_a_line_cannot_be_forged_on_a_terminal(written: Written) -> None:
    written.start(json=False)
    structlog.get_logger("headway.x").info("evil\n12:00:00 forged \x1b[31m")
    logging.getLogger("lib").info("evil\nforged")
    assert len(written.lines()) == 2


def test_a_line_that_cannot_be_made_is_dropped(written: Written) -> None:
    logs = written.start()
    logs.handle(logging.LogRecord("lib", logging.INFO, "", 0, "%d", ("no number",), None))
    logging.getLogger("lib").info("fine")
    assert [json.loads(line)["event"] for line in written.lines()] == ["fine"]
    assert logs.sink.dropped == 1


def test_access_line_for_machines(written: Written) -> None:
    written.start().access(access(client_request_id="x\ny"))
    (line,) = written.lines()
    entry = json.loads(line)
    assert entry["event"] == "access"
    assert entry["timestamp"] == "2023-11-14T22:13:20.250Z"
    assert entry["client_request_id"] == "x\ny"
    assert entry["prompt_tokens"] == 100


def test_closed_stream_is_survived(written: Written) -> None:
    written.stream.close()
    logs = configure(stream=written.stream)
    logging.getLogger("lib").warning("nobody hears")
    logs.close()
    assert logs.sink.dropped == 1
