"""Counting: what one of several GPUs reads and multiplies."""

import pytest

from headway.perfmodel import catalogue, quantisation
from headway.perfmodel.work import Work, count


def work(name: str, precision: str = "bfloat16", tp: int = 1, kv_width: float = 2) -> Work:
    scheme = quantisation.scheme(precision)
    assert scheme is not None
    return count(catalogue.model(name), scheme, tp, kv_width)


def test_a_dense_model_by_hand() -> None:
    """Llama-3.1-8B: 6.98 G matrix parameters in layers, 128 KiB of cache per token, 0.525 G in the head."""
    w = work("llama-3.1-8b")
    assert w.narrow_bytes == pytest.approx(2 * 6.98e9, rel=0.001)
    assert w.narrow_flops == w.narrow_bytes
    assert w.kv_bytes == 2 * 8 * 128 * 32 * 2
    assert w.head_bytes == 2 * 128256 * 4096
    assert w.kernels == 4 * 32
    assert w.pair_flops == 4 * 32 * 32 * 128
    assert w.experts == w.sequence_bytes == w.window_flops == 0


def test_cards_share_the_work_but_not_below_one_kv_head() -> None:
    one, eight, sixteen = (work("llama-3.1-70b", tp=tp) for tp in (1, 8, 16))
    assert eight.narrow_bytes == pytest.approx(one.narrow_bytes / 8)
    assert eight.kv_bytes == one.kv_bytes / 8 == sixteen.kv_bytes


def test_experts_are_counted_apart() -> None:
    w = work("qwen3-30b-a3b")
    assert (w.experts, w.chosen, w.expert_layers) == (128, 8, 48)
    assert w.expert_bytes == 3 * 2048 * 768 * 2
    assert w.expert_flops == 2 * 8 * 3 * 2048 * 768
    assert w.weights_bytes == pytest.approx(2 * (30.5e9 - 2 * 151936 * 2048), rel=0.01)


def test_routers_in_32_bits_are_counted_where_engines_keep_them_so() -> None:
    one, eight = (work("MiniMaxAI/MiniMax-M2.5", "fp8_block", tp=tp) for tp in (1, 8))
    assert one.router_flops == eight.router_flops == 2 * 62 * 256 * 3072
    assert work("qwen3-30b-a3b").router_flops == work("llama-3.1-8b").router_flops == 0


def test_formats_for_experts_leave_the_rest_wide() -> None:
    w = work("openai/gpt-oss-120b", "mxfp4")
    assert w.narrow_bytes == 0
    assert w.wide_bytes > 1e9
    assert w.expert_bytes == pytest.approx(3 * 2880 * 2880 * 4.25 / 8)


def test_small_windows_are_read_in_full_and_large_ones_as_if_there_were_none() -> None:
    oss, gemma = work("openai/gpt-oss-120b"), work("google/gemma-2-9b-it")
    assert oss.sequence_bytes == 18 * 128 * 2 * 8 * 64 * 2
    assert oss.kv_bytes == 18 * 2 * 8 * 64 * 2
    assert gemma.sequence_bytes == 0


def test_latent_attention_reads_one_row_whatever_the_heads_and_cards() -> None:
    one, eight = (work("moonshotai/kimi-k2-thinking", tp=tp) for tp in (1, 8))
    assert one.kv_bytes == eight.kv_bytes == 61 * 576 * 2
    assert one.pair_flops == 8 * eight.pair_flops


def test_a_fixed_state_is_read_per_sequence() -> None:
    w = work("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert w.sequence_bytes > 1e6
    assert w.kv_bytes == 12 * 2 * 2 * 256 * 2
