"""Bodies that become one, and the reply that becomes several: nothing is lost, nothing is anybody else's."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire import spans
from headway.wire.batches import Part, merged, part_of, split

EMBED = "/v1/embeddings"
TEXT = "/v1/completions"


def part(body: Any, path: str = EMBED) -> Part:
    found = part_of(body if isinstance(body, bytes) else json.dumps(body).encode(), path)
    assert found is not None
    return found


def embeddings(vectors: list[Any], **more: Any) -> bytes:
    data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
    return json.dumps({"object": "list", "data": data, "model": "e", **more}).encode()


def completions(choices: list[dict[str, Any]], **more: Any) -> bytes:
    made = [{"index": i, "finish_reason": "stop", "logprobs": None, **choice} for i, choice in enumerate(choices)]
    return json.dumps({"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": made, **more}).encode()


def taken_apart(reply: bytes, path: str, *parts: Part) -> list[Any]:
    found = split(reply, path, parts)
    assert found is not None
    return [json.loads(one) for one in found]


@pytest.mark.parametrize(
    ("body", "items", "weights", "ids"),
    [
        (b'{"input":"ab"}', (b'"ab"',), (4,), False),
        (b'{"input": ["a", "bc" ]}', (b'"a"', b'"bc"'), (3, 4), False),
        (b'{"input":[1, 2,3]}', (b"[1, 2,3]",), (3,), True),
        (b'{"input":[[1],[2,3]]}', (b"[1]", b"[2,3]"), (1, 2), True),
    ],
)
def test_inputs(body: bytes, items: tuple[bytes, ...], weights: tuple[int, ...], ids: bool) -> None:
    found = part(body)
    assert (found.items, found.weights, found.ids) == (items, weights, ids)
    assert found.before + found.after == body[: body.find(b":") + 1] + b" " * body.count(b": [") + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"input":null}',
        b'{"input":7}',
        b'{"input":[]}',
        b'{"input":[[]]}',
        b'{"input":["a",1]}',
        b'{"input":["a",[1]]}',
        b'{"input":[1.5]}',
        b'{"input":[{"text":"a"}]}',
        b'{"input":"a","input":"b"}',
    ],
)
def test_what_cannot_ride_with_others(body: bytes) -> None:
    assert part_of(body, EMBED) is None


def test_completions_bring_one_prompt_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert part_of(b'{"prompt":["a","b"]}', TEXT) is None
    assert part(b'{"prompt":["a"]}', TEXT).items == (b'"a"',)
    monkeypatch.setattr(spans, "MAX_KEYS", 1)
    assert part_of(b'{"prompt":"a","n":1}', TEXT) is None


def test_one_body_of_several() -> None:
    one, two = part(b'{"model":"e", "input" :"a","x":1}'), part(b'{"model":"e", "input" :["b","c"],"x":1}')
    assert merged([one, two]) == b'{"model":"e", "input" :["a","b","c"],"x":1}'


def test_embeddings_are_given_back_in_place() -> None:
    usage = {"prompt_tokens": 10, "total_tokens": 10, "completion_tokens": 0, "prompt_tokens_details": None}
    one, two = part({"input": "a" * 2}), part({"input": ["b" * 8, "c" * 2]})
    first, second = taken_apart(embeddings([[0.5], [1.5], [2.5]], usage=usage, id="embd-1"), EMBED, one, two)
    assert [(d["index"], d["embedding"]) for d in first["data"]] == [(0, [0.5])]
    assert [(d["index"], d["embedding"]) for d in second["data"]] == [(0, [1.5]), (1, [2.5])]
    assert (first["id"], first["model"], first["object"]) == ("embd-1-0", "e", "list")
    assert first["usage"] == {**usage, "prompt_tokens": 2, "total_tokens": 2}
    assert second["usage"] == {**usage, "prompt_tokens": 8, "total_tokens": 8}


def test_values_keep_their_bytes() -> None:
    reply = (
        b'{"id" : "\\u0041", "data":[{"embedding":[1.0e+2, 1234567890123456789012],"index":1},{"index":0}], "x":{ }}'
    )
    first, second = split(reply, EMBED, [part({"input": "a"}), part({"input": "b"})]) or [b"", b""]
    assert second == b'{"id":"\\u0041-1","data":[{"embedding":[1.0e+2, 1234567890123456789012],"index":0}],"x":{ }}'
    assert first == b'{"id":"\\u0041-0","data":[{"index":0}],"x":{ }}'


def test_token_ids_make_prompt_tokens_exact() -> None:
    one, two = part({"prompt": [1, 2, 3, 4, 5, 6, 7]}, TEXT), part({"prompt": [1]}, TEXT)
    usage = {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12}
    reply = completions([{"text": "a" * 10}, {"text": "b", "logprobs": None}], usage=usage)
    first, second = taken_apart(reply, TEXT, one, two)
    assert (first["usage"]["prompt_tokens"], second["usage"]["prompt_tokens"]) == (7, 1)
    assert first["usage"]["completion_tokens"] + second["usage"]["completion_tokens"] == 4
    assert [c["text"] for c in first["choices"] + second["choices"]] == ["a" * 10, "b"]
    assert [c["index"] for c in first["choices"] + second["choices"]] == [0, 0]


@pytest.mark.parametrize(
    "said", [{"token_ids": [5, 6, 7]}, {"logprobs": {"tokens": list("abc")}}, {"logprobs": {"content": [{}, {}, {}]}}]
)
def test_choices_that_list_their_tokens_make_output_exact(said: dict[str, Any]) -> None:
    other = {
        key: (value[:1] if isinstance(value, list) else {k: v[:1] for k, v in value.items()})
        for key, value in said.items()
    }
    usage = {"prompt_tokens": 2, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 4, "x": "y"}}
    reply = completions([{"text": "", **said}, {"text": "long" * 9, **other}], usage=usage)
    first, second = taken_apart(reply, TEXT, part({"prompt": "a"}, TEXT), part({"prompt": "b"}, TEXT))
    assert (first["usage"]["completion_tokens"], second["usage"]["completion_tokens"]) == (3, 1)
    assert first["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3, "x": "y"}


def test_odd_logprobs_tell_nothing() -> None:
    reply = completions([{"text": "a", "logprobs": [1]}, {"text": "b"}], usage={"completion_tokens": 2})
    first, _ = taken_apart(reply, TEXT, part({"prompt": "a"}, TEXT), part({"prompt": "b"}, TEXT))
    assert first["usage"] == {"completion_tokens": 1}


@pytest.mark.parametrize("usage", [None, "absent"])
def test_no_usage_is_no_usage(usage: Any) -> None:
    reply = embeddings([[1], [2]], **({} if usage == "absent" else {"usage": usage}))
    first, second = taken_apart(reply, EMBED, part({"input": "a"}), part({"input": "b"}))
    assert first.get("usage", "absent") == second.get("usage", "absent") == usage


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"data":null}',
        embeddings([[1]]),
        embeddings([[1], [2], [3]]),
        embeddings([[1], [2]]).replace(b'"index": 1', b'"index": 0'),
        embeddings([[1], [2]]).replace(b'"index": 1', b'"index": "1"'),
        embeddings([[1], [2]]).replace(b'"index": 1', b'"place": 1'),
        embeddings([[1], [2]]).replace(b"2", b"NaN"),
        embeddings([[1], [2]], usage=7),
        b'{"data":' + b"[" * 100_000,
    ],
)
def test_what_is_not_such_a_reply_is_not_taken_apart(reply: bytes) -> None:
    assert split(reply, EMBED, [part({"input": "a"}), part({"input": "b"})]) is None


def test_ids_are_asked_for_and_taken_out_again() -> None:
    one, two = (part({"model": "m", "prompt": text, "max_tokens": 9}, TEXT) for text in ("a", "bb"))
    assert json.loads(merged([one, two], True))["return_token_ids"] is True
    usage = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    choices = [
        {"text": "long" * 9, "token_ids": [1], "prompt_token_ids": [7, 8, 9, 10]},
        {"text": "", "token_ids": [1, 2, 3], "prompt_token_ids": [7]},
    ]
    found = split(completions(choices, usage=usage), TEXT, [one, two], True)
    assert found is not None
    first, second = map(json.loads, found)
    assert first["usage"] == {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
    assert second["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    for told in (first, second):
        assert told["choices"][0]["token_ids"] is told["choices"][0]["prompt_token_ids"] is None
    assert (first["id"], second["id"]) == ("cmpl-1-0", "cmpl-1-1")


@pytest.mark.parametrize("said", [True, False])
def test_whoever_speaks_of_ids_gets_what_it_said(said: bool) -> None:
    one, two = (part({"prompt": text, "return_token_ids": said}, TEXT) for text in ("a", "b"))
    assert merged([one, two], True) == merged([one, two])
    reply = completions([{"token_ids": [1]}, {"token_ids": [2]}], usage={"completion_tokens": 2})
    found = split(reply, TEXT, [one, two], True)
    assert found is not None
    assert json.loads(found[0])["choices"][0]["token_ids"] == [1]


def test_an_engine_that_lists_no_ids_is_shown_none() -> None:
    found = split(completions([{"text": "a"}, {"text": "b"}]), TEXT, [part({"prompt": "a"}, TEXT)] * 2, True)
    assert found is not None
    assert "token_ids" not in json.loads(found[0])["choices"][0]


@pytest.mark.parametrize(
    ("fields", "unstated", "counts"),
    [
        ({"max_tokens": 12}, 0, [12, 12, 5]),
        ({}, 12, [12, 12, 5]),
        ({"max_tokens": None}, 12, [12, 12, 5]),
        ({"max_tokens": 12, "n_predict": 12}, 0, [12, 12, 5]),
        ({}, 0, [0, 22, 7]),
        ({"max_tokens": "12"}, 12, [0, 22, 7]),
        ({"max_tokens": 12, "n_predict": 13}, 12, [0, 22, 7]),
        ({"max_tokens": 20}, 0, [1, 20, 8]),  # two of them would be more than all: it was the context that ended
        ({"max_tokens": 9}, 0, [0, 22, 7]),  # three of them could not be so many
    ],
)
def test_whoever_ended_at_the_limit_has_as_many(fields: dict[str, Any], unstated: int, counts: list[int]) -> None:
    parts = [part({"prompt": "abc", **fields}, TEXT)] * 3
    ends = [("", "length"), ("x" * 70, "length"), ("y" * 20, "stop")]
    reply = completions([{"text": t, "finish_reason": f} for t, f in ends], usage={"completion_tokens": 29})
    found = split(reply, TEXT, parts, False, unstated)
    assert found is not None
    assert [json.loads(one)["usage"]["completion_tokens"] for one in found] == counts


def test_what_repeats_its_prompt_goes_alone() -> None:
    assert part_of(b'{"prompt":"a","echo":true}', TEXT) is None
    assert part_of(b'{"prompt":"a","echo":false}', TEXT) is not None


@pytest.mark.parametrize("id", [7, None])
def test_an_id_that_is_no_text_stays(id: Any) -> None:
    first, _ = taken_apart(embeddings([[1], [2]], id=id), EMBED, part({"input": "a"}), part({"input": "b"}))
    assert first["id"] == id


WORDS = st.text(max_size=8)
IDS = st.lists(st.integers(0, 99), min_size=1, max_size=5)


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_what_was_merged_comes_apart_again(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([WORDS, IDS]))
    inputs = data.draw(st.lists(kind | st.lists(kind, min_size=1, max_size=3), min_size=1, max_size=5))
    parts = [part({"model": "e", "input": given, "dimensions": 3}) for given in inputs]
    flat = json.loads(merged(parts))["input"]
    assert [json.loads(item) for one in parts for item in one.items] == flat
    total = data.draw(st.integers(0, 10_000))
    usage = {"prompt_tokens": total, "total_tokens": total, "prompt_tokens_details": {"cached_tokens": total // 3}}
    order = data.draw(st.permutations(range(len(flat))))
    reply = json.loads(embeddings([[flat[i]] for i in range(len(flat))], usage=usage))
    reply["data"] = [reply["data"][i] for i in order]
    told = taken_apart(json.dumps(reply).encode(), EMBED, *parts)
    assert [d["embedding"][0] for one in told for d in one["data"]] == flat
    assert all([d["index"] for d in one["data"]] == list(range(len(one["data"]))) for one in told)
    for field in ("prompt_tokens", "total_tokens"):
        assert sum(one["usage"][field] for one in told) == total
    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in told]
    assert sum(cached) == total // 3
    assert all(c <= one["usage"]["prompt_tokens"] for c, one in zip(cached, told, strict=True))
