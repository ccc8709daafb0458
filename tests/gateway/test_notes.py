"""What follows from a head alone."""

import pytest

from headway.gateway.config import Cors, GatewayConfig
from headway.gateway.head import HeadReader, RequestHead
from headway.gateway.headers import CorsLines
from headway.gateway.notes import Notes
from headway.gateway.routes import Routes

CONFIG = GatewayConfig(session_headers=("X-Session-Id", "x-user"))
READER = HeadReader(read=CONFIG.session_headers, dropped=(CONFIG.deadline_header,))


def notes(*lines: str, first: str = "POST /v1/completions HTTP/1.1") -> Notes:
    head, _ = READER.request("\r\n".join((first, "host: h", *lines, "", "")).encode())
    assert isinstance(head, RequestHead)
    return Notes(head, Routes(CONFIG.paths).find(head.path), CONFIG, CorsLines(Cors()))


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ((), ""),
        (("x-session-id: s1",), "s1"),
        (("x-session-id: ", "x-user: u"), "u"),
        (("x-session-id: a", "x-session-id: b"), ""),
        (("x-session-id: " + "k" * 10_000,), ""),
    ],
)
def test_sessions(lines: tuple[str, ...], key: str) -> None:
    assert notes(*lines).session_key == key


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "x", "1e9", ""])
def test_odd_deadlines_are_none(value: str) -> None:
    assert notes(f"x-request-deadline-s: {value}").patience_s == 0.0


def test_deadlines() -> None:
    assert notes("x-request-deadline-s: 2.5").patience_s == 2.5


@pytest.mark.parametrize(("value", "kept"), [("abc-1", "abc-1"), ("a" * 129, ""), ("a b", ""), ("", "")])
def test_ids_that_are_not_fit_to_be_repeated_are_not(value: str, kept: str) -> None:
    assert notes(f"x-request-id: {value}").client_request_id == kept


def test_forms_and_expectations() -> None:
    assert notes("content-type: Multipart/Form-Data; boundary=x").form == "Multipart/Form-Data; boundary=x"
    assert notes("content-type: application/json").form == ""
    assert notes("expect: 100-Continue").continues
    assert not notes("expect: 100-continue", first="POST /v1/completions HTTP/1.0").continues
    assert notes("expect: else").expects_oddly


def test_what_is_served() -> None:
    assert notes().inference
    wrong = notes(first="GET /v1/completions HTTP/1.1")
    assert (wrong.inference, wrong.wrong and wrong.wrong.status) == (False, 405)
    missing = notes(first="POST /x HTTP/1.1")
    assert (missing.template, missing.wrong and missing.wrong.status) == ("unmatched", 404)
    options = notes(first="OPTIONS /v1/completions HTTP/1.1")
    assert (options.inference, options.wrong) == (False, None)
    assert not notes(first="GET /health HTTP/1.1").inference
