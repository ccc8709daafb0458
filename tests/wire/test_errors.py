"""Errors in OpenAI's shape."""

import json

import pytest

from headway.wire.errors import error_body, error_type, sse_error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "invalid_request_error"),
        (404, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (502, "upstream_error"),
        (503, "server_error"),
        (504, "upstream_error"),
    ],
)
def test_types_by_status(status: int, kind: str) -> None:
    assert error_type(status) == kind


def test_a_body_has_all_four_fields() -> None:
    error = json.loads(error_body(404, 'no "m"\n', code="model_not_found", param="model"))["error"]
    assert error == {
        "message": 'no "m"\n',
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


def test_an_event_is_one_line_with_a_retryable_number() -> None:
    event = sse_error("lost\nit", "upstream_reset")
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    error = json.loads(event[6:])["error"]
    assert (error["code"], error["type"], error["reason"]) == (502, "upstream_error", "upstream_reset")
