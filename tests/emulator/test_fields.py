"""Types are checked in the validation layer's words; what it would convert is converted."""

from typing import Any

import pytest

from headway.emulator import fields
from headway.emulator.errors import Refusal


def complaint(**given: Any) -> Refusal:
    refusal = fields.check(given, fields.COMPLETION)
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"n": "x"}, "int_parsing", "unable to parse string as an integer"),
        ({"n": 1.5}, "int_from_float", "got a number with a fractional part"),
        ({"n": [1]}, "int_type", "'input': '<list of 1 items>'"),
        ({"top_p": {}}, "float_type", "'input': '<dict of 0 items>'"),
        ({"stream": "maybe"}, "bool_parsing", "unable to interpret input"),
        ({"stream": []}, "bool_type", "Input should be a valid boolean"),
        ({"model": 5}, "string_type", "Input should be a valid string"),
        ({"stop_token_ids": 5}, "list_type", "Input should be a valid list"),
        ({"stream_options": 5}, "dict_type", "Input should be a valid dictionary"),
        ({"stop_token_ids": [1, {}]}, "int_type", "'loc': 'body.stop_token_ids.1'"),
        ({"stop_token_ids": ["x"]}, "int_parsing", "'loc': 'body.stop_token_ids.0'"),
    ],
)
def test_wrong_types(given: dict[str, Any], kind: str, text: str) -> None:
    refusal = complaint(**given)
    assert f"'type': '{kind}', 'loc': 'body.{next(iter(given))}" in refusal.message
    assert text in refusal.message
    assert (refusal.status, refusal.kind) == (400, "Bad Request")


def test_numbers_in_strings_become_numbers() -> None:
    given: dict[str, Any] = {
        "n": "2",
        "top_p": "0.5",
        "stream": "true",
        "max_tokens": 3.0,
        "seed": True,
        "zzz": object(),
    }
    assert fields.check(given, fields.COMPLETION) is None
    assert (given["n"], given["top_p"], given["stream"], given["max_tokens"], given["seed"]) == (2, 0.5, True, 3, 1)


def test_null_is_absent() -> None:
    assert fields.check({"n": None, "stop": None}, fields.COMPLETION) is None


def test_bodies_that_are_no_objects() -> None:
    deep, endless = b'{"a":' + b"[" * 100_000, b'{"a":' + b"9" * 5_000 + b"}"
    for body in (b"", b"[1]", b"\xff{}", b'{"a":1}x', b'"x"', deep, deep + b"]" * 100_000 + b"}", endless):
        refusal = fields.decode(body)
        assert isinstance(refusal, Refusal)
        assert refusal.status == 400
        assert refusal.body().startswith(b'{"error":{"message":"')


def test_numbers_that_only_the_strict_decoder_refuses() -> None:
    """JSON that the standard library accepts, but ours does not, is still refused in one way."""
    refusal = fields.decode(b'{"n": NaN}')
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
