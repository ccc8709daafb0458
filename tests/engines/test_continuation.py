"""How each engine goes on elsewhere, and what keeps a request where it is."""

import json
from typing import Any

import msgspec
import pytest

from headway.engines import llamacpp, openai, sglang, vllm
from headway.engines.continuation import Continuation, Given, Way, Words
from headway.wire.body import Body
from headway.wire.openai import scan
from headway.wire.resume import Tape
from headway.wire.resume_body import CHAT, COMPLETIONS, LimitReached, Stops, Unresumable
from headway.wire.resume_cut import Cut
from headway.wire.resume_splice import Manner

VLLM, SGLANG, LLAMA = vllm.CONTINUATION, sglang.CONTINUATION, llamacpp.CONTINUATION
NOWHERE = openai.PLUGIN.factory(None).continuation
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}).encode()


def once(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "x", **fields}).encode()


def pinned(manner: Continuation, body: bytes, path: str = CHAT) -> str:
    parsed = scan(body, path)
    assert isinstance(parsed, Body)
    return manner.pinned(body, parsed, path)


def said(text: str, ids: tuple[int, ...] = (), prompt: list[int] | None = None) -> Tape:
    tape = Tape()
    tape.say(text, ids)
    tape.prompt_ids = prompt
    return tape


@pytest.mark.parametrize(
    ("manner", "ways"),
    [
        (VLLM, (Way.IDS, Way.IDS, Way.MESSAGE)),
        (SGLANG, (Way.MESSAGE, Way.TEXT, Way.MESSAGE)),
        (LLAMA, (Way.TEXT, Way.TEXT, Way.NONE)),
        (NOWHERE, (Way.NONE, Way.NONE, Way.NONE)),
    ],
)
def test_ways(manner: Continuation, ways: tuple[Way, Way, Way]) -> None:
    assert (manner.way(CHAT), manner.way(COMPLETIONS), manner.way(CHAT, media=True)) == ways
    assert manner.way("/v1/responses") is Way.NONE


def test_what_pins() -> None:
    assert [pinned(one, chat()) for one in (VLLM, SGLANG, LLAMA, NOWHERE)] == ["", "", "", "engine"]
    assert pinned(VLLM, chat(seed=1)) == "seed"
    assert pinned(SGLANG, chat(repetition_penalty=1.2)) == "repetition_penalty"
    assert pinned(SGLANG, chat(repetition_penalty=1.0)) == ""
    assert pinned(VLLM, chat(repetition_penalty=1.2)) == ""
    images = chat(messages=[{"role": "user", "content": [IMAGE]}])
    assert [pinned(one, images) for one in (VLLM, LLAMA)] == ["", "media"]


def test_vllm_by_ids() -> None:
    tape = said("ab", (5, 6), [1, 2])
    ask = VLLM.ask(Way.IDS, chat(), tape, Cut(1, "a", surplus="b"), Given(context_tokens=50))
    made = json.loads(ask.body)
    assert (ask.path, made["prompt"], made["max_tokens"]) == (COMPLETIONS, [1, 2, 5], 47)
    assert made["return_token_ids"] is True
    assert "stream_options" not in made
    assert json.loads(VLLM.ask(Way.IDS, once(), tape, Cut(1, "a"), Given(50)).body)["max_tokens"] == 15
    with pytest.raises(Unresumable):
        VLLM.ask(Way.IDS, chat(), said("a", (5,)), Cut(1, "a"), Given(50))
    with pytest.raises(LimitReached):
        VLLM.ask(Way.IDS, chat(max_tokens=1), tape, Cut(1, "a"))


def test_sglang_by_message() -> None:
    ask = SGLANG.ask(Way.MESSAGE, chat(max_tokens=9), said("ab"), Cut(2, "ab"), Given(usage=True))
    made = json.loads(ask.body)
    assert (ask.path, made["messages"][-1]["content"], made["max_tokens"]) == (CHAT, "ab", 7)
    assert made["stream_options"] == {"include_usage": True}


def test_llamacpp_by_text_and_into_a_slot() -> None:
    given = Given(prompt="<user>x<assistant>", fields={"id_slot": 3})
    made = json.loads(LLAMA.ask(Way.TEXT, chat(), said("ab"), Cut(2, "ab"), given).body)
    assert (made["prompt"], made["cache_prompt"], made["id_slot"]) == ("<user>x<assistant>ab", True, 3)
    assert "max_tokens" not in made
    ids = Given(prompt=[5], said_ids=[6])
    assert json.loads(LLAMA.ask(Way.TEXT, once(prompt=[5]), said("a"), Cut(1, "a"), ids).body)["prompt"] == [5, 6]
    ask = LLAMA.render_ask(chat(max_tokens=4))
    assert (ask.path, json.loads(ask.body).keys()) == ("/apply-template", {"model", "messages"})
    with pytest.raises(Unresumable):
        VLLM.render_ask(chat())


def test_manners() -> None:
    parsed = scan(chat(stream=True, stream_options={"include_usage": True}), CHAT)
    assert isinstance(parsed, Body)
    stops = Stops(("x",), shown=True)
    assert VLLM.manner(Way.IDS, parsed, stops, ids=True) == Manner(True, False, True, False, ("x",), True)
    assert LLAMA.manner(Way.TEXT, parsed, stops).stops == ()
    assert LLAMA.manner(Way.TEXT, parsed, stops).bare_finish


class TestWords:
    def test_questions_and_answers(self) -> None:
        words = Words("/tokenize", "prompt", "tokens", {"add_special_tokens": False})
        ask = words.ask("x", "m")
        assert json.loads(ask.body) == {"model": "m", "prompt": "x", "add_special_tokens": False}
        assert words.ids(b'{"count":2,"tokens":[5,6]}') == [5, 6]
        assert Words("/detokenize", "tokens", "content").text(b'{"content":"x"}') == "x"

    @pytest.mark.parametrize("answer", [b"", b"{}", b'{"tokens":"x"}', b'{"tokens":[1.5]}', b"[]", b'{"tokens":null}'])
    def test_no_ids(self, answer: bytes) -> None:
        with pytest.raises(Unresumable):
            Words("/tokenize", "prompt", "tokens").ids(answer)

    def test_no_text(self) -> None:
        with pytest.raises(Unresumable):
            Words("/detokenize", "tokens", "prompt").text(b'{"prompt":[5]}')


LEG = (
    b'{"id":"cmpl-9","object":"text_completion","created":1796036844,"model":"tiny","choices":[{"index":0,"text":"",'
    b'"finish_reason":"length"}],"usage":{"prompt_tokens":66,"total_tokens":67,"completion_tokens":1},'
    b'"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,4]],'
    b'"remote_engine_id":"553e7219-3530-4929-b306-c1dffeac801a","remote_request_id":"cmpl-9-0-9a5e8643",'
    b'"remote_host":"127.0.0.1","remote_port":51887,"tp_size":1,"remote_num_tokens":66,"transfer_mode":"pull"}}'
)
"""What vLLM 0.32 with a NixlConnector answered on a CPU to one more token of a prompt it had cached (shortened)."""


class TestKvPull:
    def test_the_ticket_is_passed_on_as_it_is(self) -> None:
        assert VLLM.pull is not None
        ticket = VLLM.pull.ticket(LEG)
        assert ticket == msgspec.json.decode(LEG)["kv_transfer_params"]
        assert ticket["remote_block_ids"] == [[1, 2, 4]]

    @pytest.mark.parametrize("answer", [b'{"kv_transfer_params":null}', b"{}", b'{"kv_transfer_params":[]}', b"x"])
    def test_an_engine_without_a_connector(self, answer: bytes) -> None:
        assert VLLM.pull is not None
        with pytest.raises(Unresumable):
            VLLM.pull.ticket(answer)


def test_more_fields_than_are_read_pin_a_request() -> None:
    body = b'{"model":"m","prompt":"x",' + b",".join(b'"k%d":1' % n for n in range(5000)) + b"}"
    parsed = scan(body, COMPLETIONS)
    assert isinstance(parsed, Body)
    assert LLAMA.pinned(body, parsed, COMPLETIONS) == "fields"
