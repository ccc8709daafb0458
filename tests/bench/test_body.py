"""Bodies of requests."""

import json

from headway.bench.body import encode, path
from headway.bench.plan import BenchPlan
from headway.workload.request import Request, Segment

REQUEST = Request(0.0, (Segment(1, 20, "system"), Segment(2, 30)), 7, session="s-1")


def body(**fields: object) -> dict:
    return json.loads(encode(BenchPlan(url="http://x", requests=[], **fields), "tiny", REQUEST))  # type: ignore[arg-type]


def test_chat_with_exact_output() -> None:
    sent = body()
    assert sent["model"] == "tiny"
    assert [len(m["content"]) for m in sent["messages"]] == [80, 120]
    assert (sent["max_tokens"], sent["ignore_eos"], sent["user"]) == (7, True, "s-1")
    assert (sent["stream"], sent["stream_options"]) == (True, {"include_usage": True})


def test_the_server_may_choose_the_length_without_being_told_it() -> None:
    sent = body(exact_output=False, max_tokens=512)
    assert sent["max_tokens"] == 512
    assert "ignore_eos" not in sent
    assert "max_tokens" not in body(exact_output=False)


def test_completions_without_streaming() -> None:
    sent = body(endpoint="completions", stream=False)
    assert len(sent["prompt"]) == 200
    assert not {"messages", "stream", "stream_options"} & sent.keys()
    assert "stream_options" not in body(usage=False)


def test_paths() -> None:
    assert path(BenchPlan(url="http://x", requests=[])) == "/v1/chat/completions"
    assert path(BenchPlan(url="http://x", requests=[], endpoint="completions")) == "/v1/completions"
