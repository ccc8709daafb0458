"""Offsets of top-level values, against a parser that keeps pairs."""

import json

import pytest

from headway.wire import spans


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"a":1}',
        b' {\n"a" : [1,{"b":"}"}] ,\t"a":"x\\"}" , "__class__":null,"c":-1.5e3}\n',
        b'{"messages":[1],"messages":[1,2],"messages":"[1"}',
        b'{"a":{"messages":[9]},"messages":[],"input":"\\u007d","x":true}',
    ],
)
def test_every_value_is_found_with_duplicates(body: bytes) -> None:
    pairs: list[tuple[str, object]] = json.loads(body, object_pairs_hook=list)
    plain = [(key, json.loads(body[start:end])) for key, start, end in spans.top_level(body)]
    assert len(plain) == len(pairs)
    for (key, value), (wanted, _) in zip(plain, pairs, strict=True):
        assert key == wanted
        assert body.find(json.dumps(value).encode()[:1]) >= 0
    assert dict(plain) == json.loads(body)


def test_too_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_KEYS", 3)
    assert len(spans.top_level(b'{"a":1,"b":1,"c":1}')) == 3
    with pytest.raises(spans.TooManyKeys):
        spans.top_level(b'{"a":1,"b":1,"c":1,"c":2}')
