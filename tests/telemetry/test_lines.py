import json

from headway.telemetry.lines import AccessJson, AccessText
from headway.telemetry.redact import Redactor
from tests.telemetry.values import access

SECRET = "zq9-planted-4711"


def test_access_line_for_people_is_one_line() -> None:
    text = AccessText(Redactor())(access(replica="a", attempts=2, client_request_id="x\n\x1b[31my"))
    assert "\n" not in text
    assert "\x1b" not in text
    for part in ("200 ok", "POST /v1/chat/completions", "-> a", "attempt 2", "ttft 20 ms", "100+10 tokens"):
        assert part in text


def test_access_lines_mask_what_clients_send() -> None:
    sent = access(client_request_id=f"Bearer {SECRET}")
    assert SECRET not in AccessJson(Redactor())(sent)
    assert SECRET not in AccessText(Redactor())(sent)


def test_colours_follow_the_account() -> None:
    text = AccessText(Redactor(), colours=True)
    assert "\x1b[32m200 ok\x1b[0m" in text(access())
    assert "\x1b[31m503 queue_full\x1b[0m" in text(access(status=503, account="shed", code="queue_full", attempts=0))


def test_refusals_say_no_tokens() -> None:
    text = AccessText(Redactor())(access(status=503, account="shed", code="queue_full", attempts=0, ttft_s=None))
    assert "tokens" not in text
    assert "->" not in text


def test_the_second_is_that_of_each_line() -> None:
    line = AccessJson(Redactor())
    stamps = [json.loads(line(access(at=at)))["timestamp"] for at in (1.0, 1.5, 2.25, 1.0, 61.999)]
    assert stamps == [
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:00:01.500Z",
        "1970-01-01T00:00:02.250Z",
        "1970-01-01T00:00:01.000Z",
        "1970-01-01T00:01:01.999Z",
    ]
