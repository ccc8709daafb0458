"""Names resolve in every spelling, unknown ones are refused with what they may have meant."""

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.gpus import GPUS
from headway.perfmodel.kv import kv_bytes_per_token
from headway.perfmodel.models import ARCHITECTURES

BILLIONS = {
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6,
    "llama-3.2-1b": 1.24,
    "llama-2-13b": 13.0,
    "qwen2.5-7b": 7.62,
    "qwen2.5-72b": 72.7,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.8,
    "mistral-7b": 7.25,
    "gemma-2-27b": 27.2,
    "phi-4": 14.7,
    "yi-34b": 34.4,
    "llama-3.1-405b": 405.9,
    "llama-4-scout": 108.6,
    "llama-4-maverick": 401.6,
    "mixtral-8x7b": 46.7,
    "mixtral-8x22b": 140.6,
    "deepseek-v2-lite": 15.7,
    "deepseek-r1": 671.0,
    "kimi-k2": 1026.0,
    "kimi-linear-48b-a3b": 49.1,
    "gpt-oss-20b": 20.9,
    "gpt-oss-120b": 116.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.1,
    "qwen3-coder-480b-a35b": 480.2,
    "qwen3-next-80b-a3b": 80.0,
    "qwen3.5-397b-a17b": 396.8,
    "qwen2.5-vl-7b": 8.29,
    "glm-4.5-air": 106.9,
    "minimax-m2": 228.7,
    "minimax-m1": 456.0,
    "jamba-1.5-mini": 51.6,
    "nemotron-h-8b": 8.10,
    "nemotron-nano-9b-v2": 8.89,
    "nemotron-nano-12b-v2": 12.3,
    "nemotron-3-nano-30b-a3b": 31.6,
    "granite-4.0-h-small": 32.2,
    "granite-4.0-h-tiny": 6.94,
    "gemma-3-27b": 27.4,
    "gemma-4-31b": 31.1,
    "mistral-large-2": 122.6,
    "command-a": 111.0,
    "starcoder2-15b": 16.0,
    "dbrx": 131.6,
    "ernie-4.5-300b-a47b": 299.5,
    "jamba-1.5-large": 398.6,
    "glm-4-9b": 9.40,
    "glm-4-32b": 32.57,
    "qwen3-vl-2b": 2.13,
    "qwen3-vl-4b": 4.44,
    "qwen3.5-4b": 4.54,  # 4.66 with them
    "qwen3.5-9b": 9.41,
    "qwen3.5-122b-a10b": 122.6,
}
"""Published on the models' pages, of the checkpoint less its multi-token-prediction layers."""


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b-instruct"]
)
def test_a_model_is_found_by_id_and_alias_in_any_case(name: str) -> None:
    assert catalogue.model(name).id == "meta-llama/Llama-3.1-8B-Instruct"


BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "qwen3-32b": 262_144,
    "mixtral-8x7b": 131_072,
    "phi-4": 204_800,
    "deepseek-r1": 576 * 2 * 61,
    "gpt-oss-20b": 49_152,
    "gemma-3-27b": 507_904,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "jamba-1.5-large": 9 * 2 * 8 * 128 * 2,
    "nemotron-nano-9b-v2": 4 * 2 * 8 * 128 * 2,
    "glm-4-9b": 40_960,
}
"""By hand from the published config.json: layers with a cache x 2 x KV heads x head dimension x 2 bytes."""


@pytest.mark.parametrize(("name", "size"), BYTES_PER_TOKEN.items())
def test_a_token_takes_what_its_config_says(name: str, size: int) -> None:
    assert kv_bytes_per_token(catalogue.model(name)) == size


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("qwen2.5-7b", 32_768),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("Qwen/Qwen2.5-7B", 131_072),
        ("RedHatAI/Qwen2.5-7B-FP8-dynamic", 131_072),
        ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic", 32_768),
        ("Qwen/Qwen2.5-Coder-7B", 32_768),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131_072),
        ("moonshotai/Kimi-K2-Instruct-0905", 262_144),
        ("moonshotai/Kimi-K2.5", 262_144),
    ],
)
def test_models_of_one_shape_keep_their_own_context(name: str, tokens: int) -> None:
    assert catalogue.model(name).max_position == tokens


def test_starcoder2_looks_back_4096_tokens() -> None:
    assert catalogue.model("starcoder2-15b").window == 4096


def test_a_name_like_no_other_does_not_list_every_model() -> None:
    with pytest.raises(catalogue.UnknownName, match=r"names are known, nothing like it$") as refused:
        catalogue.model("zzzzzz")
    assert len(str(refused.value)) < 100


def test_unknown_names_list_near_matches() -> None:
    with pytest.raises(catalogue.UnknownName, match=r"unknown model 'llama-3\.1-9b'; near matches: .*llama-3\.1-8b"):
        catalogue.model("llama-3.1-9b")
    with pytest.raises(catalogue.UnknownName, match="h100-80gb"):
        catalogue.gpu("h100-90gb")
    with pytest.raises(catalogue.UnknownName, match=r"known: .*bfloat16"):
        catalogue.precision("zzzzzz")


def test_no_name_means_two_things() -> None:
    gpus = [name.lower() for one in GPUS for name in (one.name, *one.aliases)]
    models = [name.lower() for one in ARCHITECTURES for name in (one.id, *one.aliases)]
    assert len(set(gpus)) == len(gpus)
    assert len(set(models)) == len(models)


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_parameter_counts_match_the_published_ones(name: str, billions: float) -> None:
    assert catalogue.model(name).parameters / 1e9 == pytest.approx(billions, rel=0.012)


def test_every_row_is_plausible() -> None:
    for one in ARCHITECTURES:
        assert one.heads % one.kv_heads == 0, one.id
        assert one.full_layers + one.window_layers + one.linear_layers > 0, one.id
    for gpu in GPUS:
        assert gpu.bf16_flops / gpu.bandwidth_bytes_per_s > 35, gpu.name
        assert gpu.link in {"nvlink", "pcie"}


def test_short_names_are_offered_first() -> None:
    assert "llama-3.1-8b" in catalogue.model_names()
    assert "h100-80gb" in catalogue.gpu_names()


@pytest.mark.parametrize("name", ["rtx5090", "rtx-5090", "RTX 5090", "nvidia_geforce_rtx_5090", "5090"])
def test_cards_are_known_however_they_are_spaced(name: str) -> None:
    assert catalogue.gpu(name).name == "rtx5090-32gb"


def test_every_card_is_known_with_and_without_dashes() -> None:
    for card in GPUS:
        for alias in (card.name, *card.aliases):
            assert catalogue.gpu(alias.replace("-", "")) == card
            assert catalogue.gpu(alias.replace("-", "_").upper()) == card


def test_cards_of_other_makers_are_refused_by_name() -> None:
    for name in ("mi300x", "AMD-Instinct-MI300X", "gaudi3"):
        with pytest.raises(catalogue.UnknownName, match="only engines on NVIDIA's GPUs are modelled"):
            catalogue.gpu(name)


def test_models_that_a_campaign_measured() -> None:
    assert catalogue.model("XiaomiMiMo/MiMo-VL-7B-SFT").parameters / 1e9 == pytest.approx(8.31, rel=0.002)
    assert catalogue.model("XiaomiMiMo/MiMo-7B-RL").id == "XiaomiMiMo/MiMo-7B-Base"
    assert catalogue.model("llava-hf/llava-1.5-7b-hf").parameters / 1e9 == pytest.approx(7.06, rel=0.002)
