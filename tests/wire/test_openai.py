"""Bodies: what is read, what is refused, and that an edit changes nothing but its span."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire.openai import Body, BodyError, model_edits, scan, splice

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def read(body: bytes, path: str = CHAT) -> Body:
    info = scan(body, path)
    assert isinstance(info, Body), info
    return info


def refuse(body: bytes, path: str = CHAT) -> BodyError:
    error = scan(body, path)
    assert isinstance(error, BodyError), error
    assert error.status == 400
    return error


def rename(body: bytes, name: str = "renamed") -> bytes:
    edits = model_edits(body, read(body), name)
    assert isinstance(edits, list)
    return splice(body, edits)


def test_recorded_requests_are_read(shared: Path) -> None:
    paths = {"chat": CHAT, "completion": COMPLETIONS, "messages": "/v1/messages", "responses": "/v1/responses"}
    requests = sorted((shared / "fixtures").rglob("*.req"))
    seen = 0
    for file in requests:
        kind = next((path for word, path in paths.items() if file.name.startswith(word)), "")
        if not kind or file.parent.name == "scale-out":
            continue
        body = file.read_bytes()
        said = json.loads(body)
        info = scan(body, "/completion" if "model" not in said else kind)
        assert isinstance(info, Body), (file, info)
        assert info.model == said.get("model", "")
        assert info.stream == bool(said.get("stream"))
        assert info.prompt_bytes > 0
        seen += 1
    assert seen > 30


def test_a_chat_body_tells_all_that_routing_needs() -> None:
    info = read(chat(stream=True, max_tokens=7, max_completion_tokens=9, n=3, user="u", priority=-2))
    assert (info.model, info.stream, info.max_output_tokens, info.sequences) == ("m", True, 9, 3)
    assert (info.session_key, info.priority, info.generates, info.resumable) == ("u", -2, True, False)
    assert info.prompt_bytes == len('[{"role": "user", "content": "hi"}]')
    assert info.fingerprint != read(chat(stream=True)).fingerprint


@pytest.mark.parametrize(
    ("prompt", "tokens", "sequences"),
    [
        ("text, with, commas", 0, 1),
        ([1, 2, 3], 3, 1),
        (["a", "b"], 0, 2),
        ([[1, 2], [3]], 3, 2),
        ([[]], 0, 1),
        ([], 0, 1),
        (None, 0, 1),
        ({"odd": 1}, 0, 1),
    ],
)
def test_prompts_of_completions(prompt: object, tokens: int, sequences: int) -> None:
    info = read(json.dumps({"model": "m", "prompt": prompt, "n": 1}).encode(), COMPLETIONS)
    assert (info.prompt_tokens, info.sequences) == (tokens, sequences)


def test_best_of_counts_and_multiplies_with_prompts() -> None:
    body = json.dumps({"model": "m", "prompt": ["a", "b"], "n": 1, "best_of": 4}).encode()
    assert read(body, COMPLETIONS).sequences == 8


@pytest.mark.parametrize(
    ("path", "fields", "limit", "stream", "generates"),
    [
        ("/v1/responses", {"input": "x", "max_output_tokens": 5, "stream": True}, 5, True, True),
        ("/v1/messages", {"messages": [], "max_tokens": 6}, 6, False, True),
        ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 7}}, 7, False, True),
        ("/generate", {"text": ["x"], "sampling_params": [{"max_new_tokens": 7}]}, 0, False, True),
        ("/inference/v1/generate", {"token_ids": [1, 2], "sampling_params": {"max_tokens": 8}}, 8, False, True),
        ("/completion", {"prompt": "x", "n_predict": 9}, 9, False, True),
        ("/api/chat", {"messages": [], "options": {"num_predict": 10}}, 10, True, True),
        ("/api/chat", {"messages": [], "options": {"num_predict": -1}, "stream": False}, 0, False, True),
        ("/v1/embeddings", {"input": "x"}, 0, False, False),
        ("/rerank", {"query": "x", "documents": ["a", "b"]}, 0, False, False),
        ("/tokenize", {"prompt": "x"}, 0, False, False),
    ],
)
def test_other_paths(path: str, fields: dict[str, object], limit: int, stream: bool, generates: bool) -> None:
    info = read(json.dumps({"model": "m", **fields}).encode(), path)
    assert (info.max_output_tokens, info.stream, info.generates) == (limit, stream, generates)
    assert info.prompt_bytes > 0


@pytest.mark.parametrize(
    ("path", "fields", "least"),
    [
        ("/v1/chat/completions", {"messages": [], "max_tokens": 9, "ignore_eos": True}, 9),
        ("/v1/completions", {"prompt": "x", "max_tokens": 9, "min_tokens": 4}, 4),
        ("/v1/completions", {"prompt": "x", "max_tokens": 9, "min_tokens": 40}, 9),
        ("/v1/completions", {"prompt": "x", "min_tokens": 40, "ignore_eos": False}, 40),
        ("/v1/completions", {"prompt": "x", "ignore_eos": True}, 0),
        ("/completion", {"prompt": "x", "n_predict": 7, "ignore_eos": True}, 7),
        ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 7, "ignore_eos": True}}, 7),
        ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 7, "min_new_tokens": 3}}, 3),
        ("/v1/completions", {"prompt": "x", "max_tokens": 9, "min_tokens": "many", "ignore_eos": 1}, 0),
        ("/v1/responses", {"input": "x", "max_output_tokens": 9, "ignore_eos": True}, 0),
    ],
)
def test_outputs_that_cannot_end_early(path: str, fields: dict[str, object], least: int) -> None:
    assert read(json.dumps({"model": "m", **fields}).encode(), path).min_output_tokens == least


def test_limits_that_lax_validators_take_are_taken() -> None:
    assert read(chat(max_tokens="12")).max_output_tokens == 12
    assert read(chat(max_tokens=12.0)).max_output_tokens == 12
    assert read(chat(max_tokens=12.0).replace(b"12.0", b"1.2e1")).max_output_tokens == 12
    for odd in (-1, None, "x", [1], 1e30, 10**30):
        assert read(chat(max_tokens=odd)).max_output_tokens == 0


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"user": "u"}, "u"),
        ({"user": "u", "prompt_cache_key": "k"}, "k"),
        ({"user": 5}, ""),
        ({"user": None}, ""),
        ({"user": 'a"b\u00e9'}, 'a"b\u00e9'),
    ],
)
def test_session_keys(fields: dict[str, object], key: str) -> None:
    assert read(chat(**fields)).session_key == key


def test_session_keys_of_other_apis() -> None:
    responses = {"model": "m", "input": "x", "prompt_cache_key": "k", "conversation": {"id": "c"}}
    assert read(json.dumps(responses).encode(), "/v1/responses").session_key == "c"
    turn = {"model": "m", "input": "x", "previous_response_id": "r1", "user": "u"}
    assert read(json.dumps(turn).encode(), "/v1/responses").session_key == "u", "the next turn names another response"
    messages = {"model": "m", "messages": [], "metadata": {"user_id": "u"}}
    assert read(json.dumps(messages).encode(), "/v1/messages").session_key == "u"


def test_a_long_session_key_is_bounded_and_still_one_key() -> None:
    long = read(chat(user="x" * 10_000)).session_key
    assert len(long) == 32
    assert long == read(chat(user="x" * 10_000)).session_key != read(chat(user="x" * 9_999)).session_key


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"seed": None, "tools": [], "presence_penalty": 0, "logprobs": False, "frequency_penalty": 0.0}, ""),
        ({"min_tokens": 3, "repetition_penalty": 1.1, "stop": ["x"], "temperature": 0.7}, ""),
        ({"response_format": {"type": "text"}, "mirostat": 0}, ""),
        ({"response_format": {"type": "json_object"}}, "grammar"),
        ({"seed": 0.5}, "seed"),
        ({"seed": 0}, "seed"),
        ({"n": 2}, "choices"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"presence_penalty": 0.1}, "penalty"),
        ({"logprobs": True}, "logprobs"),
        ({"guided_regex": "a*"}, "grammar"),
        ({"mirostat": 2}, "sampler_state"),
    ],
)
def test_what_forbids_going_on_elsewhere(fields: dict[str, object], reason: str) -> None:
    body = read(chat(**fields))
    assert (body.pinned, body.resumable) == (reason, not reason)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prompt": "x"}, ""),
        ({"prompt": [5, 6]}, ""),
        ({"prompt": ["x", "y"]}, "choices"),
        ({"prompt": "x", "best_of": 2}, "choices"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "logprobs": 0}, "logprobs"),
    ],
)
def test_what_forbids_it_in_completions(fields: dict[str, object], reason: str) -> None:
    assert read(json.dumps({"model": "m", **fields}).encode(), "/v1/completions").pinned == reason


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/completion", "/infill"])
def test_apis_without_a_way_to_continue_are_pinned(path: str) -> None:
    assert read(b'{"model":"m","input":"x","prompt":"x"}', path).pinned == "api"


class TestPrefixes:
    def test_a_longer_conversation_shares_the_blocks_of_the_shorter(self) -> None:
        turns = [{"role": "user", "content": "word " * 400}]
        first = read(chat(messages=turns)).prefix_hashes
        second = read(chat(messages=[*turns, {"role": "assistant", "content": "more " * 400}])).prefix_hashes
        assert len(first) == 3
        assert first == second[:3]
        assert len(second) > 6

    @pytest.mark.parametrize("other", [{"model": "n"}, {"tools": [{"a": 1}]}, {"cache_salt": "s"}])
    def test_what_comes_before_the_prompt_separates_all_blocks(self, other: dict[str, object]) -> None:
        long = [{"role": "user", "content": "word " * 400}]
        plain = read(chat(messages=long)).prefix_hashes
        assert plain
        assert not set(plain) & set(read(chat(messages=long, **other)).prefix_hashes)

    def test_only_full_blocks_and_not_without_end(self) -> None:
        assert read(chat()).prefix_hashes == ()
        assert len(read(chat(messages=[{"content": "x" * 3_000_000}])).prefix_hashes) == 2048

    def test_the_block_size_is_a_parameter(self) -> None:
        info = scan(chat(), CHAT, block_bytes=8)
        assert isinstance(info, Body)
        assert len(info.prefix_hashes) == info.prompt_bytes // 8

    def test_requests_that_do_not_generate_have_none(self) -> None:
        body = json.dumps({"model": "m", "input": "x" * 5000}).encode()
        assert read(body, "/v1/embeddings").prefix_hashes == ()


class TestMedia:
    def test_inline_pictures_do_not_look_like_text(self) -> None:
        url = {"url": "data:image/png;base64," + "iVBORw0KGgo" * 50_000}
        for part in (
            {"type": "image_url", "image_url": url},
            {"image_url": url, "type": "image_url"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 90_000}},
            {"type": "input_audio", "input_audio": {"data": "QUJD" * 90_000, "format": "wav"}},
        ):
            info = read(chat(messages=[{"role": "user", "content": [{"type": "text", "text": "what?"}, part]}]))
            assert info.media_tokens == 1_000
            assert 50 < info.prompt_bytes < 250

    def test_linked_pictures_count_and_text_about_pictures_does_not(self) -> None:
        link = {"type": "image_url", "image_url": {"url": "http://example/cat.png"}}
        info = read(chat(messages=[{"role": "user", "content": [link, link]}]))
        assert info.media_tokens == 2_000
        talk = [{"role": "user", "content": 'say {"type":"image_url"} and ;base64,' + "A" * 999 + "[]"}]
        assert read(chat(messages=talk)).media_tokens == 0
        short = {"type": "image", "source": {"type": "base64", "data": "QUJD"}}
        assert read(chat(messages=[{"content": [short]}])).prompt_bytes == len(json.dumps([{"content": [short]}]))
        assert read(chat(messages=talk)).prompt_bytes == len(json.dumps(talk))


class TestUsage:
    def test_silence_offers_an_edit_that_turns_usage_on(self) -> None:
        body = b' {"model":"m","messages":[],"stream":true}'
        info = read(body)
        assert info.include_usage is None
        assert info.usage_edit is not None
        changed = splice(body, [info.usage_edit])
        assert json.loads(changed) == {**json.loads(body), "stream_options": {"include_usage": True}}
        assert changed.replace(b'"stream_options":{"include_usage":true},', b"") == body

    @pytest.mark.parametrize(
        ("options", "after"),
        [
            ("null", {"include_usage": True}),
            ("{}", {"include_usage": True}),
            (' { "a" : 1 }', {"include_usage": True, "a": 1}),
        ],
    )
    def test_options_that_say_nothing_of_usage_are_extended(self, options: str, after: object) -> None:
        body = b'{"model":"m","stream":true,"stream_options":' + options.encode() + b',"messages":[]}'
        edit = read(body).usage_edit
        assert edit is not None
        assert json.loads(splice(body, [edit]))["stream_options"] == after

    @pytest.mark.parametrize(("said", "heard"), [(True, True), (False, False)])
    def test_a_client_that_spoke_is_left_alone(self, said: bool, heard: bool) -> None:
        info = read(chat(stream=True, stream_options={"include_usage": said}))
        assert (info.include_usage, info.usage_edit) == (heard, None)

    def test_odd_options_are_left_to_the_engine(self) -> None:
        assert read(chat(stream=True, stream_options=[1])).usage_edit is None
        assert read(chat(stream=True, stream_options={"include_usage": None, "b": 1})).usage_edit is None

    def test_options_among_too_many_keys_are_left_alone(self) -> None:
        keys = b",".join(b'"k":0' for _ in range(30_000))
        body = b'{"model":"m","stream":true,"stream_options":{},' + keys + b"}"
        assert read(body).usage_edit is None

    def test_no_edit_without_a_stream_or_where_the_api_has_no_such_option(self) -> None:
        assert read(chat()).usage_edit is None
        assert read(b'{"model":"m","input":"x","stream":true}', "/v1/responses").usage_edit is None


# Cases 068, 071, 136
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[]", None),
        (b"null", None),
        (b'"x"', None),
        (b"{", None),
        (b'{"model":"m"} {}', None),
        (b'{"model":"m",}', None),
        (b'{"model":"m" "a":1}', None),
        (b'{"model":1}', "model"),
        (b'{"model":null}', "model"),
        (b'{"model":""}', "model"),
        (b'{"messages":[]}', "model"),
        (b'{"model":"' + b"m" * 1_000_000 + b'"}', "model"),
        (b'{"model":"m","temperature":NaN}', None),
        (b'{"model":"m","temperature":-Infinity}', None),
        (b'{"model":"m","x":"\\ud800"}', None),
        (b'{"model":"m","x":"\\ud800 text"}', None),
        (b'{"model":"m","x":"\\udc00"}', None),
        (b'{"model":"m","x":"\xff\xfe"}', None),
        (b'{"model":"\xff\xfe"}', None),
        (b'{"model":"m","x":"\xed\xa0\x80"}', None),
        (b'\xef\xbb\xbf{"model":"m"}', None),
        ('{"model":"m"}'.encode("utf-16"), None),
        (b'{"model":"m","x":"\x00"}', None),
        (b'{"model":"m","x":"a\nb"}', None),
        (b'{"model":"m","x":01}', None),
        (b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
        (b'{"model":"m","messages":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", None),
        (b'{"model":"m","messages":' + b"[" * 100_000, None),
        (b'{"model":"m","stream":"true"}', "stream"),
        (b'{"model":"m","stream":1}', "stream"),
        (b'{"model":"m","stream":[]}', "stream"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refusals_are_quick_and_name_the_field(body: bytes, param: str | None) -> None:
    began = time.process_time()
    assert refuse(body).param == param
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","stream":null,"tools":null,"stop":null,"logprobs":null}',
        b'{"model":"m","a":1e400,"seed":9007199254740993,"max_tokens":1e400}',
        b'{"model":"m","a":-0,"b":0.1000000000000000055,"c":12345678901234567890123}',
        b'{"model":"m","emoji":"\\ud83d\\ude00"}',
        b'{"model":"m","deep":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"model":" m ","x":"\\/"}',
        b'{"model":"m",' + b",".join(b'"k%d":0' % i for i in range(100_000)) + b"}",
    ],
    ids=lambda body: repr(body)[:40],
)
def test_odd_but_valid_bodies_pass(body: bytes) -> None:
    assert read(body).stream is False


def test_a_model_may_be_missing_where_the_engine_needs_none() -> None:
    for path in ("/tokenize", "/generate", "/completion", "/v1/embeddings"):
        assert read(b'{"model":null}', path).model == ""
    assert refuse(b'{"model":5}', "/tokenize").param == "model"


# Case 065, 070
def test_renaming_changes_the_model_string_only() -> None:
    body = (
        b'\t{ "z" : 9007199254740993 , "messages":[{"model":"m","content":"\\/ \\u00e9 \\"model\\":\\"m\\""}],\r\n'
        b'"tools":[{"model":"m"}], "model" :\t"m" ,"a":1e400,"b":-0,"c":12345678901234567890123}\n'
    )
    assert rename(body) == body.replace(b'"model" :\t"m"', b'"model" :\t"renamed"')


def test_the_last_of_two_models_is_routed_and_both_are_renamed() -> None:
    body = b'{"model":"first","messages":[{"a":[1]}],"messages":[2,"}"],"model":"last"}'
    assert read(body).model == "last"
    renamed = rename(body, "x")
    assert renamed == body.replace(b'"first"', b'"x"').replace(b'"last"', b'"x"')


def test_escaped_keys_are_keys() -> None:
    body = b'{"model":"m","mod\\u0065l":"n"}'
    assert read(body).model == "n"
    assert json.loads(rename(body))["model"] == "renamed"


def test_a_new_name_is_escaped() -> None:
    assert json.loads(rename(chat(), 'a"b\\c\u00e9'))["model"] == 'a"b\\c\u00e9'


def test_a_million_keys_do_not_take_long() -> None:
    body = b'{"model":"m",' + b",".join(b'"k":0' for _ in range(1_000_000)) + b"}"
    began = time.process_time()
    edits = model_edits(body, read(body), "x")
    assert isinstance(edits, BodyError)
    assert edits.status == 400
    assert time.process_time() - began < 1.0


KEYS = st.sampled_from(["model", "messages", "tools", "prompt", "__class__", "mod\u0065l", "x", "é", 'q"', "\\"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\n", "\t\r\n"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects with duplicate keys, odd spacing and either way of escaping; the model is last, first or between."""
    pairs = draw(st.lists(st.tuples(KEYS.filter(lambda key: key != "model"), VALUES), max_size=6))
    pairs.insert(draw(st.integers(0, len(pairs))), ("model", "m"))
    ascii_only = draw(st.booleans())
    parts = [
        f"{draw(SPACE)}{json.dumps(key, ensure_ascii=ascii_only)}{draw(SPACE)}:{draw(SPACE)}"
        f"{json.dumps(value, ensure_ascii=ascii_only)}{draw(SPACE)}"
        for key, value in pairs
    ]
    return (draw(SPACE) + "{" + ",".join(parts) + "}").encode("utf-8", "replace")


@pytest.mark.slow
@settings(deadline=None)
@given(bodies(), st.text(min_size=1, max_size=12).filter(lambda name: name.isprintable()))
def test_any_body_keeps_all_but_its_model(body: bytes, name: str) -> None:
    info = scan(body, "/v1/embeddings")
    assert isinstance(info, Body), (body, info)
    edits = model_edits(body, info, name)
    assert isinstance(edits, list)
    changed = splice(body, edits)
    said = json.loads(body)
    said["model"] = name
    assert json.loads(changed) == said
    [(start, end, _)] = edits
    assert changed.startswith(body[:start])
    assert changed.endswith(body[end:])


def at_depth(frames: int, look: Callable[[], object]) -> object:
    """What `look` finds that many calls further down."""
    return look() if frames == 0 else at_depth(frames - 1, look)


INSIDE = (
    b'{"model":"m","messages":[],"x":%b}',
    b'{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":null,"x":%b}}',
    b'{"model":"m","messages":[],"user":{"id":"u","x":%b}}',
    b'{"model":"m","sampling_params":{"n":2,"x":%b}}',
)


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("path", [CHAT, "/generate", "/v1/embeddings"])
def test_what_is_accepted_is_not_too_deep_further_down(inside: bytes, path: str) -> None:
    """Later looks at a body come from deeper in the call stack, which the nesting of JSON is counted with."""
    accepted = 0
    for depth in range(500, 1_050, 3):
        body = inside % (b"[" * depth + b"]" * depth)
        info = scan(body, path)
        if isinstance(info, BodyError):
            assert info.message == "the body is nested too deeply"
            continue
        accepted = depth
        edits = at_depth(60, lambda body=body, info=info: model_edits(body, info, "other"))  # type: ignore[misc]
        assert isinstance(edits, list), (depth, edits)
    assert accepted >= 500


def test_many_brackets_are_not_depth() -> None:
    body = chat(x=[[]] * 5_000, messages=[{"role": "user", "content": "[{" * 5_000}])
    assert read(body).model == "m"
