"""What follows from a head alone."""

import pytest

from headway.gateway.config import Cors, GatewayConfig
from headway.gateway.head import HeadReader, Refusal, RequestHead
from headway.gateway.headers import CorsLines
from headway.gateway.identity import ANYBODY, MISSING, Identity, session_of
from headway.gateway.notes import Notes
from headway.gateway.routes import Routes

CONFIG = GatewayConfig(session_headers=("X-Session-Id", "x-user"))
ASKED = (CONFIG.deadline_header, CONFIG.priority_header, CONFIG.policy_header, CONFIG.precision_header)
READER = HeadReader(read=CONFIG.session_headers, dropped=ASKED)


def notes(
    *lines: str,
    first: str = "POST /v1/completions HTTP/1.1",
    who: Identity | Refusal = ANYBODY,
    cors: Cors | None = None,
) -> Notes:
    head, _ = READER.request("\r\n".join((first, "host: h", *lines, "", "")).encode())
    assert isinstance(head, RequestHead)
    return Notes(head, Routes(CONFIG.paths).find(head.path), CONFIG, CorsLines(cors or Cors()), who)


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
    assert notes(*lines).session_key == session_of("", key)


@pytest.mark.parametrize("value", ["-1", "0", "-0.0", "nan", "-inf", "x", "1, 2", "5s"])
def test_a_deadline_that_is_none_is_refused_by_name(value: str) -> None:
    found = notes(f"x-request-deadline-s: {value}")
    assert not found.inference
    assert found.wrong is not None
    assert (found.wrong.status, found.wrong.code) == (400, "invalid_header")
    assert "x-request-deadline-s" in found.wrong.message


def test_only_those_who_are_served_have_deadlines() -> None:
    assert notes("x-request-deadline-s: x", first="GET /v1/models HTTP/1.1").wrong is None
    assert notes("x-request-deadline-s: x", who=MISSING).wrong is MISSING


@pytest.mark.parametrize(("value", "seconds"), [("2.5", 2.5), ("", 0.0), ("1e9", 86_400.0), ("inf", 86_400.0)])
def test_deadlines(value: str, seconds: float) -> None:
    found = notes(f"x-request-deadline-s: {value}")
    assert (found.wrong, found.patience_s) == (None, seconds)


@pytest.mark.parametrize(("value", "kept"), [("abc-1", "abc-1"), ("a" * 129, ""), ("a b", ""), ("", "")])
def test_ids_that_are_not_fit_to_be_repeated_are_not(value: str, kept: str) -> None:
    assert notes(f"x-request-id: {value}").client_request_id == kept


def test_forms_and_expectations() -> None:
    assert notes("content-type: Multipart/Form-Data; boundary=x").form == "Multipart/Form-Data; boundary=x"
    assert notes("content-type: application/json").form == ""
    assert notes("expect: 100-Continue").continues
    assert not notes("expect: 100-continue", first="POST /v1/completions HTTP/1.0").continues
    assert notes("expect: else").expects_oddly


def test_an_invented_method_is_not_repeated_in_logs() -> None:
    assert [notes(first=f"{method} /x HTTP/1.1").method for method in ("TRACE", "HW-KEY", "get")] == [
        "TRACE",
        "OTHER",
        "OTHER",
    ]


def test_what_is_served() -> None:
    assert notes().inference
    wrong = notes(first="GET /v1/completions HTTP/1.1")
    assert (wrong.inference, wrong.wrong and wrong.wrong.status) == (False, 405)
    missing = notes(first="POST /x HTTP/1.1")
    assert (missing.template, missing.wrong and missing.wrong.status) == ("unmatched", 404)
    options = notes(first="OPTIONS /v1/completions HTTP/1.1")
    assert (options.inference, options.wrong) == (False, None)
    assert not notes(first="GET /health HTTP/1.1").inference


def test_whoever_left_out_v1_is_told() -> None:
    """The most common slip with a base URL."""
    inside, outside = (notes(first=f"POST {path} HTTP/1.1").wrong for path in ("/v1/.", "/chat/completions"))
    assert inside is not None
    assert outside is not None
    assert "/v1" in outside.message
    assert "/v1" not in inside.message


def test_a_compressed_body_is_told_to_be_sent_as_it_is() -> None:
    """Not that its JSON is malformed: neither we nor engines unpack bodies."""
    packed = notes("content-encoding: gzip").wrong
    assert packed is not None
    assert (packed.status, packed.code) == (415, "unsupported_content_encoding")
    assert notes("content-encoding: Identity").inference


ANN = Identity("ann", tier=1, models=("m",))


def test_a_request_has_its_tenant() -> None:
    known = notes("x-session-id: s1", who=ANN)
    assert (known.tenant, known.tier, known.models) == ("ann", 1, {"m"})
    assert known.session_key not in ("", "s1", notes("x-session-id: s1").session_key)
    assert known.inference
    assert not known.lines


@pytest.mark.parametrize(("said", "tier"), [("low", -1), ("Critical", 2), ("standard", 0), ("urgent", 1), ("", 1)])
def test_a_tier_may_be_asked_for_or_is_the_tenants(said: str, tier: int) -> None:
    assert notes(f"x-priority: {said}", who=ANN).tier == tier


def test_policy_and_precision_may_be_asked_for() -> None:
    asking = notes("X-Policy: p2c", "x-min-precision: BF16")
    assert (asking.policy, asking.precision_floor, asking.tier) == ("p2c", "bf16", 0)
    assert "x-policy" not in asking.lines.decode()


@pytest.mark.parametrize("line", ["x-policy: " + "p" * 65, "x-min-precision: " + "p" * 65])
def test_an_endless_name_is_refused_where_it_matters(line: str) -> None:
    wrong = notes(line).wrong
    assert wrong is not None
    assert (wrong.status, wrong.code) == (400, "invalid_header")
    assert notes(line, first="GET /health HTTP/1.1").wrong is None
    assert notes(line[:-1]).wrong is None


@pytest.mark.parametrize("first", ["POST /v1/completions", "GET /v1/models", "GET /v1/models/m", "GET /x", "PUT /v1/x"])
def test_a_stranger_is_refused_before_anything_else_is_looked_at(first: str) -> None:
    stranger = notes("origin: https://a", first=f"{first} HTTP/1.1", who=MISSING, cors=Cors(("https://a",)))
    assert stranger.wrong is stranger.stranger is MISSING
    assert not stranger.inference
    assert (stranger.tenant, stranger.tier, stranger.models) == ("", 0, frozenset())
    assert b"www-authenticate: Bearer" in stranger.lines
    assert b"access-control-allow-origin: https://a" in stranger.lines


@pytest.mark.parametrize("first", ["GET /health", "HEAD /health", "OPTIONS /v1/completions", "OPTIONS /x"])
def test_health_and_preflights_are_open(first: str) -> None:
    stranger = notes(first=f"{first} HTTP/1.1", who=MISSING)
    assert stranger.wrong is stranger.stranger is None
    assert not stranger.lines
