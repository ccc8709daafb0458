"""Prompts counted by a tokenizer, through a whole gateway: what the brain hears, and what is refused."""

from headway.core.events import RequestArrived
from headway.core.request import RequestInfo
from headway.gateway.counting import PER_MESSAGE, Counter
from tests.cases.house import House, case
from tests.harness import scripts
from tests.harness.client import chat


def by_bytes(text: str, special: bool) -> int:
    """A token per byte, and one for the beginning."""
    return len(text) + special


def heard(house: House) -> list[RequestInfo]:
    return [event.request for event, _ in house.journal if isinstance(event, RequestArrived)]


@case(scripts.answer(), max_model_tokens=100)
async def test_only_an_exact_count_refuses(house: House) -> None:
    """A completion prompt of 100 tokens does not fit 100 with its answer; a chat of 300 may, for all we know."""
    house.gateway.plane.counters = {"m": Counter(by_bytes)}
    fits = await house.ask({"model": "m", "prompt": "x" * 98}, "/v1/completions")
    refused = await house.ask({"model": "m", "prompt": "x" * 99}, "/v1/completions")
    assert (fits.status, refused.status) == (200, 400)
    assert refused.json["error"]["code"] == "context_length_exceeded"
    assert "at least 100 tokens" in refused.json["error"]["message"]
    assert (await house.ask(chat(content="x" * 300))).status == 200
    counts = [(request.prompt_tokens, request.counted_tokens) for request in heard(house)]
    assert counts == [(99, 0), (100, 0), (0, 300 + PER_MESSAGE)]
