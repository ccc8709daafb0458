"""Versions are read, and defaults follow them."""

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.versions import BadVersion, rules

LLAMA, QWEN3, MIXTRAL = (catalogue.model(name) for name in ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b"))
H100, A100, L40S, B200 = (catalogue.gpu(name) for name in ("h100", "a100", "l40s", "b200"))


@pytest.mark.parametrize(
    ("text", "minor", "first"),
    [("0.19.0", 19, False), ("v0.11", 11, False), ("0.7.3", 7, True), ("V0 0.8.5", 8, True), ("V1 ~0.7.0", 7, False)],
)
def test_reading(text: str, minor: int, first: bool) -> None:
    found = rules(text)
    assert (found.minor, found.first) == (minor, first)


@pytest.mark.parametrize("text", ["", "nineteen", "sglang 0.4.9", "1.0.0", "10.2", "20.0.5", "1.19"])
def test_what_is_no_version_of_vllm(text: str) -> None:
    with pytest.raises(BadVersion, match=r"write it like 0\.19\.0"):
        rules(text)


def test_batches() -> None:
    assert rules("0.19").batch(H100, 8192) == (1024, 8192)
    assert rules("0.19").batch(A100, 8192) == (256, 2048)
    assert rules("0.19").batch(B200, 8192) == (1024, 8192)
    assert rules("0.28").batch(B200, 8192) == (1024, 16384)
    assert rules("V0 0.7.3").batch(H100, 8192) == (256, 8192)
    assert rules("V0 0.7.3").batch(H100, 131072) == (256, 2048)
    assert rules("V1 0.7.0").batch(L40S, 8192) == (1024, 2048)


def test_samplers() -> None:
    kinds = {v: rules(v).sampler(LLAMA, False) for v in ("0.7.3", "V1 0.7.0", "0.16.0", "0.17.0", "0.21.0", "0.23.0")}
    assert list(kinds.values()) == ["sort", "none", "sort", "pivot", "flashinfer", "plain"]
    assert rules("0.23.0").sampler(LLAMA, True) == "flashinfer"
    assert rules("0.22.0").sampler(QWEN3, False) == "plain"
    assert rules("0.25.0").sampler(MIXTRAL, False) == "flashinfer"
    assert rules("0.24.0").sampler(catalogue.model("deepseek-v2-lite"), True) == "plain"
    assert rules("0.24.0").sampler(catalogue.model("deepseek-v3"), True) == "flashinfer"  # not in the list
    assert rules("0.25.0").sampler(catalogue.model("qwen3.5-9b"), False) == "flashinfer"  # linear layers stay behind
    assert rules("0.29.0").sampler(MIXTRAL, True) == "plain"


def test_graphs_are_counted_where_the_runner_estimates_them() -> None:
    counted = {v: rules(v).graphs_counted(QWEN3, False) for v in ("0.19.0", "0.20.0", "0.22.0", "0.28.0", "0.29.0")}
    assert list(counted.values()) == [False, True, False, False, True]
    assert rules("0.22.0").graphs_counted(QWEN3, True)  # quantised models stay on the first runner
    assert rules("0.27.0").graphs_counted(catalogue.model("qwen3-next-80b-a3b"), False)


@pytest.mark.parametrize(
    ("text", "counted"),
    [("0.4.3", True), ("0.6.3", False), ("0.6.4", True), ("0.6.5", False), ("V1 0.8.5", True), ("0.9.0", True)]
    + [("0.9.1", False), ("0.19.0", False)],
)
def test_where_the_context_counts(text: str, counted: bool) -> None:
    assert rules(text).context_counted is counted


def test_what_changed_with_a_version() -> None:
    assert [rules(v).tokens_by_length for v in ("0.20.0", "0.20.1", "0.21.0")] == [False, True, True]
    assert [rules(v).graphs_profiled(QWEN3, False) for v in ("0.17.0", "0.18.0", "0.26.0", "0.29.0")] == [
        False,
        True,
        False,
        True,
    ]
    assert [rules(v).videos_profiled for v in ("0.9.2", "0.10.0")] == [False, True]
    assert [rules(v).video_rows > 0 for v in ("0.10.2", "0.11.0", "0.12.0", "0.13.0")] == [False, True, True, False]
    assert [rules(v).mistral_format for v in ("0.11.0", "0.12.0")] == [False, True]


def test_workspaces_of_latent_backends() -> None:
    assert [rules(v).latent_workspaces(H100) for v in ("0.11.0", "0.12.0", "0.24.0", "0.25.0")] == [0, 1, 1, 0]
    assert [rules(v).latent_workspaces(B200) for v in ("0.11.0", "0.12.0", "0.25.0")] == [0, 2, 1]
    assert rules("V0 0.7.3").latent_workspaces(H100) == 0
