"""JSON answers are decoded without trust."""

import pytest

from headway.engines import cards
from tests.engines import pages

NOT_CARDS = [b"", b"null", b"[]", b"{}", b'{"data":1}', b'{"data":[1,null,{}]}', b"Internal Server Error", b"\xff{"]


@pytest.mark.parametrize("body", NOT_CARDS)
def test_what_is_no_list_of_models_has_no_cards(body: bytes) -> None:
    assert cards.models({cards.MODELS_PATH: body}) == []


def test_nesting_beyond_measure_is_no_json() -> None:
    assert cards.decode(b"[" * 100_000) is None


def test_cards_keep_unknown_fields() -> None:
    (card,) = cards.models({cards.MODELS_PATH: pages.cards("vllm", "tiny", odd={"x": [1]})})
    assert card["odd"] == {"x": [1]}
    assert cards.owned_by([card], "vllm")
    assert not cards.owned_by([card], "sglang")


def test_an_owner_that_is_no_text_is_nobody() -> None:
    assert not cards.owned_by([{"id": "x", "owned_by": 3}], "vllm")
    assert cards.text(3) == ""
