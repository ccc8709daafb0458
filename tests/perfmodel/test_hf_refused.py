"""Families that are refused by name rather than answered wrongly."""

from typing import Any

import pytest

from headway.perfmodel.hf_config import ConfigError, read
from headway.perfmodel.hf_refused import KINDS

LLAMA: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128} | {
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"loop_num": 2}, "has loop_num: layers that run more than once"),
        ({"num_layers_per_stack": 16}, "has num_layers_per_stack: layers that run more than once"),
        ({"share_q_dim": 2048}, r"has share_q_dim: queries through a shared projection \(Step-3\) are not modelled"),
        ({"v_channels": 128}, "has v_channels"),
        ({"mova_num_experts": 8}, "has mova_num_experts"),
        ({"qformer_config": {"hidden_size": 8}}, "has qformer_config"),
        ({"layer_group_size": 8}, "has layer_group_size: linear layers in groups"),
        ({"word_embed_proj_dim": 32}, "has word_embed_proj_dim: embeddings narrower than the layers"),
        (
            {"model_type": "minicpm3"},
            "model_type minicpm3: latent weights with a cache of whole heads are not modelled",
        ),
        ({"model_type": "vlm", "text_config": LLAMA | {"model_type": "inkling_text"}}, "Inkling's experts"),
    ],
)
def test_what_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read("x", LLAMA | more)


@pytest.mark.parametrize(
    "more", [{"loop_num": 0, "use_cla": False}, {"layer_group_size": 1}, {"word_embed_proj_dim": 64}]
)
def test_fields_that_change_nothing_are_none(more: dict[str, Any]) -> None:
    assert read("x", LLAMA | more).parameters == read("x", LLAMA).parameters


@pytest.mark.parametrize("kind", KINDS)
def test_a_reason_is_a_noun(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"model_type {kind}: .* are not modelled"):
        read("x", LLAMA | {"model_type": kind})
