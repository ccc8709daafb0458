"""The view of a memory plan says every part, the pool and the verdict; the bar is as wide as the card."""

import io

import pytest
from rich.console import Console

from headway.perfmodel import catalogue, memory
from headway.report.memory import WIDTH, Question, memory_bar, memory_view, portions

H100 = catalogue.gpu("h100")


def shown(plan: memory.MemoryPlan, *answers: tuple[str, str]) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(memory_view(plan, Question("llama on an h100", answers)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_part_is_said() -> None:
    text = shown(memory.plan(catalogue.model("llama-3.1-8b"), H100), ("gpus needed", "1"))
    for word in ("llama on an h100", "weights", "KV cache", "activations", "CUDA graphs", "14.99", "131,072 tokens"):
        assert word in text
    assert "gpus needed" in text
    assert "fits: " in text
    assert "groups" not in text
    assert " 18.9 %" in text  # one digit in the whole column
    assert "  0.3 %" in text


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("phi-4", "0.32.0", "204,800  "),
        ("gpt-oss-120b", "0.32.0", "36,864, and 36,864 for each of the last 128 tokens"),
        ("gemma-2-9b", "0.9.0", "344,064  "),  # no pools by kind of layer yet: windows cost as much
        ("qwen3-next-80b-a3b", "0.32.0", "24,576, and 37.7 MiB of state per sequence"),
    ],
)
def test_a_token_takes_its_share_and_what_is_bounded_is_told_apart(name: str, version: str, words: str) -> None:
    assert words in shown(memory.plan(catalogue.model(name), H100, version=version))


def test_a_line_of_a_terminal_is_enough() -> None:
    plan = memory.plan(catalogue.model("deepseek-r1"), H100)
    assert len(memory_bar(portions(plan), plan.total_bytes).plain) <= 80


def test_what_a_version_does_not_count_is_said() -> None:
    plan = memory.plan(catalogue.model("gemma-2-9b"), H100, version="0.19.0")
    text = shown(plan)
    assert "not counted by this version" in text
    assert "in 2 groups of layers" in text


def test_what_does_not_fit_is_said() -> None:
    text = shown(memory.plan(catalogue.model("llama-3.1-70b"), H100))
    assert "does not fit: the weights alone" in text
    assert "GiB over" in text
    assert "concurrency" not in text


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-0.6b", "gpt-oss-20b"])
def test_the_bar_is_the_card(name: str) -> None:
    plan = memory.plan(catalogue.model(name), H100, max_model_len=8192)
    parts = portions(plan)
    assert sum(parts.values()) == plan.total_bytes
    assert len(memory_bar(parts, plan.total_bytes).plain) == WIDTH
