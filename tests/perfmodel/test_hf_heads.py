"""Shapes of heads, by kind of layer."""

from typing import Any

import pytest

from headway.perfmodel.hf_config import ConfigError, read
from headway.perfmodel.hf_heads import Shape, shapes, value_dim
from headway.perfmodel.kv import kv_bytes_per_token
from headway.perfmodel.memory_limits import whole_parts

PLAIN: dict[str, Any] = {"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128}
OTHER = {"attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}
STEP = {"model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45} | {
    "max_seq_len": 262144,
    "vocab_size": 128896,
    "num_attention_heads": 64,
    "num_attention_groups": 8,
    "head_dim": 128,
    "moe_num_experts": 288,
    "moe_top_k": 8,
    "moe_intermediate_size": 1280,
    "share_expert_dim": 1280,
    "moe_layers_enum": ",".join(str(n) for n in range(3, 45)),
    "sliding_window": 512,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 12,
    "attention_other_setting": OTHER,
}
"""Step-3.5-Flash, of 196 billion parameters."""

MIMO = {"model_type": "mimo_v2_flash", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48} | {
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_attention_heads": 64,
    "swa_num_key_value_heads": 8,
    "swa_head_dim": 192,
    "swa_v_head_dim": 128,
    "hybrid_layer_pattern": [0] + ([1] * 5 + [0]) * 7 + [1] * 4 + [0],
    "sliding_window": 128,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": [0] + [1] * 47,
    "vocab_size": 152576,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": False,
}
"""MiMo-V2-Flash, of 309 billion parameters."""


@pytest.mark.parametrize(
    ("kind", "text", "letters", "full", "window"),
    [
        ("llama", PLAIN, "fff", Shape(64, 8, 128), Shape(64, 8, 128)),
        ("chatglm", PLAIN | {"multi_query_attention": False}, "ff", Shape(64, 64, 128), Shape(64, 64, 128)),
        ("step1", {"num_attention_heads": 64, "num_attention_groups": 4}, "f", Shape(64, 4, 64), Shape(64, 4, 64)),
        ("step3p5", PLAIN | {"attention_other_setting": OTHER}, "fwww", Shape(64, 8, 128), Shape(96, 8, 128)),
        ("step3p5", PLAIN | {"num_sliding_attention_heads": 96}, "fwww", Shape(64, 8, 128), Shape(96, 8, 128)),
        ("laguna", PLAIN | {"num_attention_heads_per_layer": [48, 72]}, "fw", Shape(48, 8, 128), Shape(72, 8, 128)),
        ("gemma4_text", PLAIN, "wf", Shape(64, 8, 512), Shape(64, 8, 128)),
        (
            "gemma4_text",
            PLAIN | {"num_global_key_value_heads": 4, "attention_k_eq_v": False},
            "wf",
            Shape(64, 8, 512),
            Shape(64, 8, 128),
        ),
        ("x", PLAIN | {"per_layer_config": {"01": {"head_dim": 512}}}, "wf", Shape(64, 8, 512), Shape(64, 8, 128)),
        ("gemma4_text", PLAIN, "www", Shape(64, 8, 128), Shape(64, 8, 128)),
    ],
)
def test_shapes(kind: str, text: dict[str, Any], letters: str, full: Shape, window: Shape) -> None:
    assert shapes(kind, text, 4096, letters) == (full, window)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("laguna", {"num_attention_heads_per_layer": [48, 72, 72]}, "heads differ between layers of a kind"),
        ("x", {"per_layer_config": {"0": {"sliding_window": 512}}}, "sliding_window differs from layer to layer"),
        ("x", {"per_layer_config": {"first": {"head_dim": 512}}}, "per_layer_config is 'first', not a whole number"),
        (
            "step3p5",
            {"attention_other_setting": OTHER | {"attention_type": "full_attention"}},
            "is not that of sliding",
        ),
        ("mimo_v2_flash", {}, "config.json has no swa_num_key_value_heads"),
    ],
)
def test_what_is_not_modelled(kind: str, text: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shapes(kind, PLAIN | text, 4096, "fwf")


@pytest.mark.parametrize(
    ("config", "billions", "kv_bytes"), [(STEP, 196, 45 * 2 * 8 * 128 * 2), (MIMO, 309, (9 * 4 + 39 * 8) * 320 * 2)]
)
def test_windows_with_heads_of_their_own(config: dict[str, Any], billions: float, kv_bytes: int) -> None:
    model = read("x", config)
    assert kv_bytes_per_token(model) == kv_bytes
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_all_heads_must_come_out_even() -> None:
    model = read("x", STEP | {"attention_other_setting": OTHER | {"num_attention_heads": 72}})
    assert whole_parts(model, 16) == "72 attention heads cannot be split over 16 GPUs (tensor parallel size)"


def test_values_narrower_than_keys() -> None:
    assert value_dim("mimo_v2_flash", MIMO) == 128
    assert value_dim("deepseek_v3", {"v_head_dim": 128}) == 0  # of latent attention
    with pytest.raises(ConfigError, match="v_head_dim and swa_v_head_dim differ"):
        value_dim("mimo_v2_flash", MIMO | {"swa_v_head_dim": 192})


@pytest.mark.parametrize("named", [None, "3,four"])
def test_layers_with_experts_are_not_guessed(named: str | None) -> None:
    with pytest.raises(ConfigError, match="moe_layers_enum"):
        read("x", STEP | {"moe_layers_enum": named})
