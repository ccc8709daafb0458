"""Micro-batching as a user sets it: `headway serve` before an emulated vLLM, clients that are none the wiser."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.served import process_case, serving
from tests.emulator.process import emulator
from tests.harness.client import Answer, RawClient

TEXT = "/v1/completions"
PROMPTS = [f"{'word ' * n}and number {n}" for n in range(1, 13)]


def asked(prompt: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more}


async def each(port: int, bodies: list[dict[str, Any]]) -> list[Answer]:
    """All at once, each on a connection of its own."""

    async def one(body: dict[str, Any]) -> Answer:
        async with RawClient(port) as client:
            return await client.ask(TEXT, body)

    return list(await asyncio.gather(*map(one, bodies)))


def said(answer: Answer) -> dict[str, Any]:
    """All but what is another one each time."""
    return {key: value for key, value in answer.json.items() if key not in ("id", "created", "choices")} | {
        "choices": [choice | {"text": ""} for choice in answer.json["choices"]]
    }


@pytest.mark.slow
@process_case
async def test_completions_before_an_emulated_engine(folder: Path) -> None:
    """Merged or not: one choice each, the same tokens, the same fields; a prompt that is refused costs the others
    nothing."""
    merging = {"batching": {"m": {"window_ms": 80, "max": 8}}}
    with emulator(served_model_name="m", max_model_len=2048, time_scale=20.0) as engine:
        alone = await each(engine.port, [asked(prompt) for prompt in PROMPTS])
        async with serving(folder, (), merging, (engine.url,)) as served:
            merged = await each(served.port, [asked(prompt) for prompt in PROMPTS])
            assert [answer.status for answer in merged] == [200] * len(PROMPTS)
            assert [[choice["index"] for choice in answer.json["choices"]] for answer in merged] == [[0]] * len(PROMPTS)
            assert [said(answer) for answer in merged] == [said(answer) for answer in alone]
            assert len({answer.json["id"] for answer in merged}) == len(PROMPTS)
            assert all(answer.json["choices"][0]["finish_reason"] == "length" for answer in merged)
            calls = _metric(await served.page(), "headway_merged_calls_total")
            assert 2 <= calls < len(PROMPTS)
            mixed = await each(served.port, [asked("fine"), asked("far too long " * 4000), asked("fine too")])
            assert [answer.status for answer in mixed] == [200, 400, 200]
            assert _metric(await served.page(), "headway_unanswered_requests_total") == 0
            fleet = json.loads((await served.admin("/fleet")).body)["fleet"]
            assert (fleet["in_flight"], fleet["queued"]) == (0, 0)


def _metric(page: bytes, name: str) -> float:
    line = next(line for line in page.decode().splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])
