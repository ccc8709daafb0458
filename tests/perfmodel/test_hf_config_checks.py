"""Sizes that no model has are refused by the name of their field."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel import memory
from headway.perfmodel.gpus import custom
from headway.perfmodel.hf_config import ConfigError, read
from tests.perfmodel.test_hf_config import LLAMA


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hidden_size": 0}, "hidden_size is 0, it must be 1 to 1,000,000"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0, it must be 1"),
        ({"num_key_value_heads": -8}, "num_key_value_heads is -8"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"max_position_embeddings": 1e30}, "max_position_embeddings is 1,000,"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1,000,000,000, it must be 1 to 10,000"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, not a whole number"),
        ({"num_hidden_layers": 32.7}, "num_hidden_layers is 32.7, not a whole number"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers is '32', not a whole number"),
        ({"num_hidden_layers": [32]}, "not a whole number"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"sliding_window": -5}, "sliding_window is -5, it must be 0"),
        ({"num_local_experts": -8}, "num_local_experts is -8"),
        ({"num_local_experts": 8, "num_experts_per_tok": 99}, "99 experts per token are chosen of 8"),
        ({"num_attention_heads": 33}, "hidden_size 4096 is not a multiple of num_attention_heads 33"),
        ({"num_key_value_heads": 5}, "num_attention_heads 32 is not a multiple of num_key_value_heads 5"),
        ({"num_key_value_heads": [8, 0]}, "num_key_value_heads is 0"),
        ({"kv_lora_rank": "abc"}, "kv_lora_rank is 'abc'"),
        ({"vision_config": {"num_hidden_layers": -4}}, "num_hidden_layers is -4"),
    ],
)
def test_fields_out_of_range(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read("x", LLAMA | more)


def test_what_is_allowed() -> None:
    assert read("x", LLAMA | {"num_hidden_layers": 32.0}).layers == 32
    assert read("x", LLAMA | {"head_dim": 0}).head_dim == 128  # as newer versions write what is not said
    assert read("x", LLAMA | {"num_attention_heads": 24, "head_dim": 128}).head_dim == 128
    assert read("x", LLAMA | {"sliding_window": None}).window == 0


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers()),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LLAMA) + ["head_dim", "sliding_window", "num_experts", "rope_scaling"]), VALUES)
def test_any_value_is_read_or_refused(field: str, value: Any) -> None:
    try:
        model = read("x", LLAMA | {field: value})
        memory.plan(model, custom(80))
    except ValueError:
        return
    assert model.kv_heads > 0


def test_sizes_that_come_to_nonsense_are_refused() -> None:
    """Fields without a range of their own are caught by what they come to."""
    for more in (
        {"rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": -(10**9), "factor": 2}},
        {"partial_rotary_factor": -1e30},
        {"attn_layer_period": 8, "mamba_d_state": 16, "mamba_dt_rank": -(10**12)},
        {"vision_config": {"temporal_patch_size": -(10**9), "hidden_size": 64, "patch_size": 14}},
    ):
        with pytest.raises(ConfigError, match="makes no sense"):
            read("x", LLAMA | more)
