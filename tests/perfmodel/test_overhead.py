"""What an engine takes beside tensors: by card, version, communication and CUDA graphs."""

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.gpus import GIB
from headway.perfmodel.overhead import cuda_graph_bytes, loading_bytes, non_torch_bytes
from headway.perfmodel.versions import rules

H100, A100, L40S, B200, RTX3090 = (catalogue.gpu(name) for name in ("h100", "a100", "l40s", "b200", "rtx3090-24gb"))
LLAMA, DEEPSEEK, NEXT = (catalogue.model(name) for name in ("llama-3.1-8b", "deepseek-v2-lite", "qwen3-next-80b-a3b"))


@pytest.mark.parametrize(
    ("hidden", "tp", "pp", "logged"),
    [(4096, 1, 1, 0.25), (4096, 2, 1, 2.07), (4096, 4, 1, 2.13), (8192, 2, 1, 2.10), (8192, 4, 1, 2.21)]
    + [(5120, 4, 1, 2.17)],
)
def test_outside_of_pytorch_on_hopper(hidden: int, tp: int, pp: int, logged: float) -> None:
    told = non_torch_bytes(H100, rules("0.19.0"), hidden, tp, pp, profiled=True)
    assert told / GIB == pytest.approx(logged, abs=0.04)


def test_the_context_counts_in_some_versions() -> None:
    with_it, without = (non_torch_bytes(RTX3090, rules(v), 4096, 1, 1) / GIB for v in ("0.6.4", "0.6.5"))
    assert with_it == pytest.approx(0.35, abs=0.03)  # as the log says
    assert without < 0.1


def test_all_reduces_are_fused_on_cards_that_can() -> None:
    version = rules("0.19.0")
    fused = [non_torch_bytes(gpu, version, 4096, 2, 1) > GIB for gpu in (H100, B200, A100, L40S)]
    assert fused == [True, True, False, False]
    assert non_torch_bytes(H100, version, 4096, 2, 1, eager=True) < GIB
    assert non_torch_bytes(H100, rules("0.16.0"), 4096, 2, 1) < GIB


def test_more_than_two_gpus_without_nvlink_have_no_peer_buffers() -> None:
    two, four = (non_torch_bytes(RTX3090, rules("0.11.0"), 4096, tp, 1) for tp in (2, 4))
    assert two == four
    assert non_torch_bytes(A100, rules("0.11.0"), 4096, 4, 1) > non_torch_bytes(A100, rules("0.11.0"), 4096, 2, 1)


def test_graphs_estimated_and_captured() -> None:
    old, new = (cuda_graph_bytes(LLAMA, 32, rules(v), 1024, v > "0.2") for v in ("0.19.0", "0.20.0"))
    assert old / GIB == pytest.approx(0.91, rel=0.05)
    assert new / GIB == pytest.approx(0.76, abs=0.1)
    few = cuda_graph_bytes(LLAMA, 32, rules("0.20.0"), 8, True)
    assert few < new / 2
    next_ = cuda_graph_bytes(NEXT, 32, rules("0.20.0"), 1024, True)
    assert next_ - new > 0.1 * GIB  # experts, and two kinds of layers


def test_what_is_allocated_while_loading() -> None:
    assert loading_bytes(DEEPSEEK, rules("0.19.0"), H100, 8192) == 128 << 20
    assert loading_bytes(DEEPSEEK, rules("0.25.0"), H100, 8192) == 0
    assert loading_bytes(LLAMA, rules("0.19.0"), H100, 8192) == 0
    stacks = catalogue.model("qwen3-vl-8b")
    assert loading_bytes(stacks, rules("0.19.0"), H100, 8192) == 3 * 2 * 8192 * 4096
