"""Vision towers: parameters against the published ones, tokens of an image."""

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.hf_vision import vision


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("gemma-3-4b", 417),  # SigLIP so400m
        ("qwen2.5-vl-7b", 676),
        ("mistral-small-3.1-24b", 439),
        ("granite-vision-3.3-2b", 430),
        ("kimi-vl-a3b", 447),
        ("qwen3-vl-8b", 576),
    ],
)
def test_parameters(name: str, millions: float) -> None:
    assert catalogue.model(name).vision_parameters / 1e6 == pytest.approx(millions, rel=0.03)


def test_tokens_and_pixels_of_an_image() -> None:
    gemma = catalogue.model("gemma-3-4b").vision
    qwen = catalogue.model("qwen2.5-vl-7b").vision
    assert gemma
    assert qwen
    assert (gemma.tokens, gemma.token_pixels) == (256, 56 * 56)
    assert (qwen.tokens, qwen.token_pixels, qwen.token_patches) == (16384, 28 * 28 * 2, 4)


def test_blocks_of_glm_are_as_wide_inside_as_their_output() -> None:
    """Parameters of GLM-4.1V's tower as transformers builds it."""
    sizes = {"hidden_size": 1536, "depth": 24, "num_heads": 12, "intermediate_size": 13696, "out_hidden_size": 4096}
    sizes |= {"patch_size": 14, "image_size": 336, "spatial_merge_size": 2, "temporal_patch_size": 2}
    found = vision({"model_type": "glm4v", "vision_config": sizes | {"hidden_act": "silu"}}, 4096)
    assert found
    assert found == vision({"model_type": "glm4v", "vision_config": sizes}, 4096)  # all of its MLPs have gates
    assert found.parameters == pytest.approx(892_498_432, rel=0.001)


def test_towers_with_fewer_heads_of_keys() -> None:
    sizes = {"hidden_size": 64, "depth": 1, "num_heads": 16, "patch_size": 2}
    all_heads, half = (vision({"vision_config": sizes | more}, 8) for more in ({}, {"num_key_value_heads": 8}))
    assert all_heads
    assert half
    assert all_heads.parameters - half.parameters == 64 * 64


def test_text_models_have_none() -> None:
    assert vision({}, 4096) is None
    nested = {"thinker_config": {"vision_config": {"hidden_size": 8, "depth": 1, "patch_size": 2}}}
    assert vision(nested, 16) is not None


def test_gemma_4_averages_patches_of_a_gated_tower() -> None:
    model = catalogue.model("gemma-4-26b-a4b")
    assert model.vision
    assert model.vision.parameters / 1e6 == pytest.approx(573, rel=0.01)  # 15.67 GiB of weights in NVFP4, as logged
    assert model.vision.token_pixels == 9 * 16 * 16
    assert model.vision.copied  # by transformers' own class, which is not split
