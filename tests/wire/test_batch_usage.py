"""Usage that is divided: in sum what was reported, and exact where the engine tells."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire.batch_usage import Values, bounded, shares, usages


def entry(**fields: Any) -> Values:
    return {key: msgspec.json.encode(value) for key, value in fields.items()}


def outputs(spoken: int, entries: list[Values], limit: int = 0) -> list[int]:
    told = usages(b'{"completion_tokens":%d}' % spoken, [(1,)] * len(entries), entries, limit)
    return [json.loads(one)["completion_tokens"] for one in told]


def test_shares() -> None:
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    assert shares(2, [0, 0, 0]) == [1, 1, 0]
    assert shares(0, [5, 5]) == [0, 0]
    assert shares(-1, [5, 5]) == [-1, -1]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_shares_add_up_and_are_proportional(total: int, weights: list[int]) -> None:
    parts = shares(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    if whole:
        assert all(abs(own - total * weight / whole) < 1 for own, weight in zip(parts, weights, strict=True))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12), st.integers(0, 300), st.integers(1, 40))
def test_bounded_shares_add_up_and_keep_the_bound(weights: list[int], total: int, most: int) -> None:
    parts = bounded(total, weights, most)
    assert sum(parts) == total
    assert min(parts) >= 0
    assert total > most * len(weights) or max(parts) <= most


def test_what_is_cut_off_goes_to_the_others() -> None:
    assert bounded(20, [100, 1, 1], 12) == [12, 4, 4]
    assert bounded(20, [100, 50, 1], 9) == [9, 9, 2]
    assert bounded(0, [], 9) == []


def test_what_stopped_is_never_above_the_limit() -> None:
    made = [entry(text="a" * 90, finish_reason="stop"), entry(text="b", finish_reason="stop")]
    assert outputs(14, made, limit=10) == [10, 4]


def test_a_list_that_does_not_add_up_is_not_believed() -> None:
    made = [entry(text="aaaaaaaa", token_ids=[1]), entry(text="", token_ids=[2])]
    assert outputs(2, made) == [1, 1]
    assert outputs(12, made) == [10, 2]


@pytest.mark.parametrize("odd", [{"token_ids": "x"}, {"logprobs": [1]}, {"logprobs": {}}, {"logprobs": None}])
def test_an_odd_list_tells_nothing(odd: dict[str, Any]) -> None:
    assert outputs(12, [entry(text="aaaaaaaa", **odd), entry(text="", token_ids=[1])]) == [10, 2]


def test_inputs_of_one_count_together() -> None:
    told = usages(b'{"prompt_tokens":12}', [(1, 2), (3,)], [entry(), entry(), entry()], 0)
    assert [json.loads(one)["prompt_tokens"] for one in told] == [6, 6]
