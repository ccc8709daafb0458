"""What tokens cost, and how pools are cut into groups of layers."""

import pytest

from headway.perfmodel import catalogue, kv
from headway.perfmodel.versions import rules

NEW, OLD = rules("0.19.0"), rules("0.9.0")


@pytest.mark.parametrize(
    ("model", "kv_dtype", "tp", "size"),
    [
        ("llama-3.1-8b", "auto", 1, 2 * 32 * 8 * 128 * 2),
        ("llama-3.1-8b", "fp8", 1, 2 * 32 * 8 * 128),
        ("llama-3.1-8b", "auto", 4, 2 * 32 * 2 * 128 * 2),
        ("llama-3.1-8b", "auto", 16, 2 * 32 * 1 * 128 * 2),  # heads are copied, not split further
        ("gemma-2b", "auto", 1, 2 * 18 * 256 * 2),  # multi-query
        ("deepseek-v3", "auto", 8, 61 * 576 * 2),  # latent rows are not divided
        ("deepseek-v3.2", "auto", 8, 61 * (576 * 2 + 132)),
        ("deepseek-v3.2", "fp8", 8, 61 * (656 + 132)),
        ("qwen3-next-80b-a3b", "auto", 1, 2 * 12 * 2 * 256 * 2),  # only every fourth layer caches
        ("gemma-4-31b", "auto", 1, 2 * (50 * 16 * 256 + 10 * 4 * 512) * 2),
    ],
)
def test_bytes_per_token(model: str, kv_dtype: str, tp: int, size: int) -> None:
    assert kv.kv_bytes_per_token(catalogue.model(model), kv_dtype, tp) == size


def test_one_kind_of_layer_is_one_group() -> None:
    cut = kv.layout(catalogue.model("llama-3.1-8b"), NEW)
    assert (len(cut.groups), cut.block_size, cut.block_bytes) == (1, 16, 16 * 131072)
    assert cut.blocks_of(17) == 2
    assert cut.bytes_of(16) == 16 * 131072


def test_rare_full_layers_set_the_size_of_groups() -> None:
    cut = kv.layout(catalogue.model("gemma-3-27b"), NEW, max_num_batched_tokens=8192)
    assert [group.letter for group in cut.groups] == ["f"] + ["w"] * 6  # 10 full layers, 52 windows in tens, one padded
    assert cut.block_bytes == 10 * 16 * 2 * 16 * 128 * 2
    assert cut.blocks_of(131072) == 8192 + 6 * (-(-(1023 + 8192) // 16) + 1)


def test_windows_cost_like_full_attention_before_hybrid_pools() -> None:
    cut = kv.layout(catalogue.model("gemma-3-27b"), OLD)
    assert [group.letter for group in cut.groups] == ["f"]
    assert cut.block_bytes == 62 * 16 * 2 * 16 * 128 * 2


def test_nearly_equal_kinds_are_padded_to_the_larger() -> None:
    assert len(kv.layout(catalogue.model("gpt-oss-120b"), NEW).groups) == 2
    uneven = kv.layout(catalogue.model("gpt-oss-120b"), NEW, letters="ffffwwwww")
    assert uneven.block_bytes == 5 * 16 * 2 * 8 * 64 * 2


def test_smaller_rows_get_more_tokens_a_block() -> None:
    cut = kv.layout(catalogue.model("gemma-4-31b"), NEW)
    sizes = {group.letter: group.block_size for group in cut.groups}
    assert sizes == {"f": 32, "w": 16}


def test_blocks_beside_linear_layers_hold_a_whole_state() -> None:
    model = catalogue.model("qwen3-next-80b-a3b")
    cut = kv.layout(model, NEW)
    assert [group.letter for group in cut.groups] == ["f", "l", "l", "l"]
    full = next(group for group in cut.groups if group.letter == "f")
    row = 2 * 2 * 256 * 2
    assert full.block_size % 16 == 0
    assert (full.block_size - 16) * row < kv.state_bytes(model) <= full.block_size * row
    assert cut.blocks_of(full.block_size + 1) == 2 + 3


def test_groups_of_a_state_are_copied_beyond_their_number() -> None:
    model = catalogue.model("nemotron-nano-12b-v2")
    assert kv.state_bytes(model, 16) > kv.state_bytes(model) / 16


def test_reported_tokens_by_version() -> None:
    cut = kv.layout(catalogue.model("gemma-2-9b"), NEW, max_num_batched_tokens=8192)
    assert cut.reported_tokens(21110, 8192, NEW) == 168880  # a log of 0.19
    assert cut.reported_tokens(21110, 8192, rules("0.21.0")) == 21110 * 8192 // 1025


def test_chunked_attention_keeps_a_chunk() -> None:
    cut = kv.layout(catalogue.model("llama-4-scout"), NEW, max_num_batched_tokens=1024)
    windows = sum(1 for group in cut.groups if group.letter == "w")
    assert cut.blocks_of(100_000) == 6250 + windows * ((8192 + 1024) // 16)


def test_a_model_without_attention_still_has_a_layout() -> None:
    cut = kv.layout(catalogue.model("jamba-1.5-mini"), NEW, letters="llll")
    assert cut.blocks_of(1_000_000) == 1
    assert cut.block_size == 1
    assert kv.layout(catalogue.model("nemotron-nano-9b-v2"), NEW, letters="----").blocks_of(16) == 1


def test_widths() -> None:
    assert [kv.width(name) for name in ("auto", "fp8_e4m3", "float32")] == [2, 1, 4]
    assert kv.width("auto", "float32") == 4
