"""Caps and logprobs: only what must change changes, and every other byte is the client's."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire import spans
from headway.wire.body import BodyError
from headway.wire.fields import PATHS
from headway.wire.rewrites import LIMITS, LOGPROBS, cap_edits, logprobs_edits
from headway.wire.splice import splice

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def capped(body: bytes, path: str = CHAT, cap: int = 256, endless: bool = False) -> bytes:
    edits = cap_edits(body, path, cap, endless)
    assert isinstance(edits, list)
    return splice(body, edits)


def quiet(body: bytes, path: str = CHAT) -> bytes:
    edits = logprobs_edits(body, path)
    assert isinstance(edits, list)
    return splice(body, edits)


def test_every_path_that_generates_is_known() -> None:
    assert set(LIMITS) == set(PATHS)


@pytest.mark.parametrize(
    ("path", "body", "after"),
    [
        (CHAT, b'{"max_tokens":1000}', b'{"max_tokens":256}'),
        (CHAT, b'{ "max_tokens" : 1000 , "n":1}', b'{ "max_tokens" : 256 , "n":1}'),
        (CHAT, b'{"max_tokens":256}', b'{"max_tokens":256}'),
        (CHAT, b'{"max_completion_tokens":999,"max_tokens":10}', b'{"max_completion_tokens":256,"max_tokens":10}'),
        (CHAT, b'{"max_completion_tokens":999}', b'{"max_completion_tokens":256}'),
        (CHAT, b'{"max_completion_tokens":null}', b'{"max_tokens":256,"max_completion_tokens":null}'),
        (CHAT, b'{"max_tokens":null,"max_completion_tokens":7}', b'{"max_tokens":null,"max_completion_tokens":7}'),
        (CHAT, b'{"max_tokens":null}', b'{"max_tokens":256}'),
        (CHAT, b"{}", b'{"max_tokens":256}'),
        (CHAT, b' {"a":1}', b' {"max_tokens":256,"a":1}'),
        (CHAT, b'{"max_tokens":9,"max_tokens":1e9}', b'{"max_tokens":9,"max_tokens":256}'),
        (CHAT, b'{"max_tokens":900,"max_tokens":900}', b'{"max_tokens":256,"max_tokens":256}'),
        (CHAT, b'{"max_t\\u006fkens":900}', b'{"max_t\\u006fkens":256}'),
        (CHAT, b'{"max_tokens":-1}', b'{"max_tokens":256}'),
        (CHAT, b'{"max_tokens":1e999}', b'{"max_tokens":256}'),
        (CHAT, b'{"max_tokens":"900"}', b'{"max_tokens":256}'),
        (CHAT, b'{"max_tokens":true}', b'{"max_tokens":true}'),
        (CHAT, b'{"max_tokens":"many"}', b'{"max_tokens":"many"}'),
        (CHAT, b'{"max_tokens":900,"min_tokens":500}', b'{"max_tokens":256,"min_tokens":256}'),
        (CHAT, b'{"messages":[{"max_tokens":900}]}', b'{"max_tokens":256,"messages":[{"max_tokens":900}]}'),
        (COMPLETIONS, b'{"prompt":"x"}', b'{"prompt":"x"}'),
        (COMPLETIONS, b'{"n_predict":999}', b'{"n_predict":256}'),
        ("/completion", b'{"n_predict":-1}', b'{"n_predict":256}'),
        ("/completion", b'{"prompt":"x"}', b'{"n_predict":256,"prompt":"x"}'),
        ("/v1/responses", b'{"max_output_tokens":999}', b'{"max_output_tokens":256}'),
        ("/v1/responses", b'{"input":"x"}', b'{"max_output_tokens":256,"input":"x"}'),
        ("/v1/messages", b'{"messages":[]}', b'{"messages":[]}'),
        ("/v1/messages", b'{"max_tokens":999}', b'{"max_tokens":256}'),
        ("/generate", b'{"text":"x"}', b'{"text":"x"}'),
        (
            "/generate",
            b'{"sampling_params":{"max_new_tokens":999,"n":1}}',
            b'{"sampling_params":{"max_new_tokens":256,"n":1}}',
        ),
        ("/generate", b'{"sampling_params":[{"max_new_tokens":999}]}', b'{"sampling_params":[{"max_new_tokens":999}]}'),
        ("/api/chat", b'{"options":{"num_predict":-2}}', b'{"options":{"num_predict":256}}'),
        ("/api/chat", b'{"options":{ "seed":1}}', b'{"options":{"num_predict":256, "seed":1}}'),
        ("/api/chat", b'{"options":{}}', b'{"options":{"num_predict":256}}'),
        ("/api/chat", b'{"options":null}', b'{"options":{"num_predict":256}}'),
        ("/api/chat", b'{"a":1}', b'{"options":{"num_predict":256},"a":1}'),
        ("/v1/embeddings", b'{"max_tokens":999}', b'{"max_tokens":999}'),
    ],
)
def test_caps(path: str, body: bytes, after: bytes) -> None:
    assert capped(body, path) == after


def test_a_limit_that_the_api_has_of_itself_is_never_raised() -> None:
    body = b'{"prompt":"x"}'
    assert capped(body, COMPLETIONS, 16) == body
    assert capped(body, COMPLETIONS, 15) == b'{"max_tokens":15,"prompt":"x"}'
    assert capped(body, COMPLETIONS, 256, endless=True) == b'{"max_tokens":256,"prompt":"x"}'
    assert capped(b'{"sampling_params":{}}', "/generate", 100) == b'{"sampling_params":{"max_new_tokens":100}}'
    assert capped(b"{}", "/generate", 100) == b'{"sampling_params":{"max_new_tokens":100}}'


@pytest.mark.parametrize(
    ("path", "body", "after"),
    [
        (CHAT, b'{"logprobs":true,"top_logprobs":5}', b'{"logprobs":false,"top_logprobs":null}'),
        (CHAT, b'{"logprobs":false,"n":2}', b'{"logprobs":false,"n":2}'),
        (CHAT, b'{"logprobs":true,"logprobs":true}', b'{"logprobs":false,"logprobs":false}'),
        (CHAT, b'{"messages":[{"logprobs":true}]}', b'{"messages":[{"logprobs":true}]}'),
        (COMPLETIONS, b'{"logprobs":5,"prompt_logprobs":1}', b'{"logprobs":null,"prompt_logprobs":null}'),
        ("/completion", b'{"n_probs":10}', b'{"n_probs":0}'),
        ("/v1/responses", b'{"top_logprobs":3}', b'{"top_logprobs":null}'),
        ("/generate", b'{"return_logprob":[true,false]}', b'{"return_logprob":false}'),
        ("/v1/messages", b'{"logprobs":true}', b'{"logprobs":true}'),
    ],
)
def test_logprobs(path: str, body: bytes, after: bytes) -> None:
    assert quiet(body, path) == after


def test_a_body_of_endless_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_KEYS", 1)
    body = b'{"max_tokens":1,"n":1}'
    assert isinstance(cap_edits(body, CHAT, 1), BodyError)
    assert isinstance(cap_edits(b'{"options":{"a":1,"b":2}}', "/api/chat", 1), BodyError)
    assert isinstance(logprobs_edits(body, CHAT), BodyError)


BLANK = st.sampled_from(["", " ", "\n\t"])
NUMBER = st.one_of(st.integers(-3, 600), st.floats(0, 1e4)).map(json.dumps)
OTHER = st.one_of(
    st.sampled_from(["null", "true", "false", '"max_tokens\\":9"', "1e999", "123456789012345678901234567890"]),
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["max_tokens", "n", "}"]), inner),
        max_leaves=5,
    ).map(json.dumps),
)
KEYS = sorted({name for limit in LIMITS.values() for name in (*limit.names, *limit.floors)} | {"n", "x", "logprobs"})
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), NUMBER | OTHER, BLANK), max_size=8)


def written(pairs: list[tuple[str, str, str]]) -> bytes:
    return ("{" + ",".join(f'{blank}"{key}"{blank}:{blank}{raw}{blank}' for key, raw, blank in pairs) + "}").encode()


def number(raw: str) -> float | None:
    value: Any = json.loads(raw)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


@settings(deadline=None, max_examples=400)
@given(PAIRS, st.sampled_from([CHAT, COMPLETIONS, "/completion", "/v1/responses", "/v1/messages"]), st.integers(1, 500))
def test_every_byte_but_limits_is_the_clients(pairs: list[tuple[str, str, str]], path: str, cap: int) -> None:
    limit = LIMITS[path]
    last = {key: raw for key, raw, _ in pairs if key in limit.names}
    unstated = all(raw == "null" for raw in last.values())
    must = unstated and bool(limit.insert) and (not limit.unstated or cap < limit.unstated)
    wanted = []
    for key, raw, blank in pairs:
        value = number(raw) if key in (*limit.names, *limit.floors) else None
        above = value is not None and (value > cap or value < 0)
        filled = must and key == limit.insert and raw == "null"
        wanted.append((key, str(cap) if above or filled else raw, blank))
    expected = written(wanted)
    if must and not any(key == limit.insert and raw == "null" for key, raw, _ in pairs):
        expected = b'{"%b":%d%b' % (limit.insert.encode(), cap, b"," if pairs else b"") + expected[1:]
    assert capped(written(pairs), path, cap) == expected


@settings(deadline=None, max_examples=200)
@given(PAIRS, st.sampled_from(sorted(LOGPROBS)))
def test_every_byte_but_logprobs_is_the_clients(pairs: list[tuple[str, str, str]], path: str) -> None:
    off = LOGPROBS[path]
    wanted = [
        (key, off[key].decode() if key in off and raw not in ("null", "false", "0") else raw, blank)
        for key, raw, blank in pairs
    ]
    assert quiet(written(pairs), path) == written(wanted)
