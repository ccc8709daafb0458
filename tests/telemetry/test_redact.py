import pytest

from headway.telemetry.redact import MASK, Redactor

SECRET = "zq9-planted-4711"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization='bearer {SECRET}'",
        f"AUTHORIZATION: {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"{{'X-Api-Key': '{SECRET}'}}",
        f"api-key={SECRET} next",
        f"password = {SECRET}",
        f"GET http://user:{SECRET}@host:8000/v1",
        f"Authorization: Basic {SECRET}",
        f"key sk-{SECRET} is wrong",
        f"key hw-{SECRET} is wrong",
        f"cookie: {SECRET}",
    ],
)
def test_shapes_of_credentials_are_masked(text: str) -> None:
    scrubbed = Redactor().scrub(text)
    assert SECRET not in scrubbed
    assert MASK in scrubbed


@pytest.mark.parametrize(
    "text",
    ["output_tokens=96", "token 5 of 9", "a basic idea", "max_tokens: 12", "http://host:8000/v1", "secretary of state"],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().scrub(text) == text


def test_configured_values_are_masked_anywhere() -> None:
    redactor = Redactor([SECRET, SECRET + "-longer"])
    assert redactor.scrub(f"xx{SECRET}-longeryy {SECRET}") == f"xx{MASK}yy {MASK}"
    redactor.learn(["another-secret"])
    assert "another-secret" not in redactor.scrub("boom: another-secret")
    assert SECRET not in redactor.scrub(SECRET)


def test_too_short_values_do_not_blank_out_words() -> None:
    assert Redactor(["a", ""]).scrub("a cat") == "a cat"


def test_events_are_masked_by_name_in_depth() -> None:
    event = {
        "event": f"bad Bearer {SECRET}",
        "api_key": SECRET,
        "token": SECRET,
        "headers": {"Authorization": SECRET, "accept": "x"},
        "list": [{"password": SECRET}, f"http://u:{SECRET}@h"],
        "error": ValueError(f"Bearer {SECRET}"),
        "output_tokens": 5,
        "flag": True,
        "none": None,
    }
    masked = Redactor().event(event)
    assert SECRET not in repr(masked)
    assert masked["output_tokens"] == 5
    assert masked["headers"]["accept"] == "x"
    assert masked["flag"] is True
    assert masked["none"] is None
