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


@pytest.mark.parametrize("text", ["", "nineteen", "sglang 0.4.9"])
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
    assert rules("0.24.0").sampler(catalogue.model("deepseek-v3"), True) == "plain"
    assert rules("0.29.0").sampler(MIXTRAL, True) == "plain"
