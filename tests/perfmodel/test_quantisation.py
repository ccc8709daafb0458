"""Formats by name, by the ending of a model's name and by quantization_config."""

from typing import Any

import pytest

from headway.perfmodel import catalogue, memory
from headway.perfmodel.gpus import GIB
from headway.perfmodel.quantisation import SCHEMES, UnknownFormat, kv_of_config, of_config, of_name, scheme, spared


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("bfloat16", 2.0),
        ("fp8", 1.0),
        ("int4", 0.52),
        ("mxfp4", 0.53),
        ("nvfp4", 0.56),
        ("bnb_4bit", 0.52),
        ("float32", 4),
    ],
)
def test_bytes_with_scales(name: str, bytes_per_parameter: float) -> None:
    found = scheme(name)
    assert found
    assert found.bytes_per_parameter == pytest.approx(bytes_per_parameter, rel=0.01)


def test_spellings() -> None:
    for spelled, name in (("half", "float16"), ("AWQ", "int4"), ("gptq-marlin", "int4"), ("w8a8", "int8")):
        found = scheme(spelled)
        assert found
        assert found.name == name
    assert scheme("fp3") is None
    assert len({one.name for one in SCHEMES}) == len(SCHEMES)


@pytest.mark.parametrize(
    ("name", "base", "precision"),
    [
        ("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic", "qwen2.5-7b", "fp8"),
        ("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", "llama-3.3-70b", "int8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "w4a16"),
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", "qwen2.5-32b", "int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", "gptq_int8"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-r1", "nvfp4"),
        ("unsloth/Llama-3.1-8B-Instruct", "llama-3.1-8b", ""),
        ("ibm-granite/granite-3.1-8b-base", "granite-3.1-8b", ""),
        ("somebody/Qwen3-8B-Base-AWQ", "qwen3-8b", "int4"),
    ],
)
def test_copies_are_known_by_name(name: str, base: str, precision: str) -> None:
    found = catalogue.model(name)
    assert found.id == catalogue.model(base).id
    assert found.quantisation == precision
    assert of_name(name)[1] == precision


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({}, ""),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "gptq_int8"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb_4bit"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors"}, "int8"),
        ({"quant_method": "gptq", "bits": 2, "group_size": 64}, "int2_g64"),
        ({"quant_method": "gptq", "bits": 3}, "int3_g128"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4_g32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_channel"),
        ({"quant_method": "awq", "bits": 8, "group_size": 128}, "gptq_int8"),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "intel/auto-round", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp4"}, "mxfp4_all"),
        ({"quant_method": "auto-round", "bits": 4, "data_type": "nv_fp"}, "nvfp4"),
        ({"quant_method": "auto-round", "bits": 8, "data_type": "fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "modelopt_mxfp8", "quant_algo": "MXFP8"}, "mxfp8"),
        ({"quant_method": "modelopt_fp4"}, "nvfp4"),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, "int4_g64"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}}, "int4"),
        ({"quant_method": "torchao", "quant_type": {"default": {"_type": "Float8WeightOnlyConfig"}}}, "fp8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int8"}}}, "int8"),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp4", "group_size": 32}]}},
            "mxfp4_all",
        ),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "experts_int8"}, "experts_int8"),
    ],
)
def test_configs(config: dict[str, Any], name: str) -> None:
    assert of_config({"quantization_config": config} if config else {}) == name
    assert of_config({"text_config": {"quantization_config": config}}) == name


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"quant_method": "zzz"}, "quant_method 'zzz' is not known; known: auto_round, awq"),
        *(({"quant_method": name}, f"quant_method '{name}'") for name in ("aqlm", "exl2", "eetq", "bitnet")),
        ({"quant_method": "gptq", "bits": 9}, "GPTQ with bits = 9 is not known: 2 or 3 or 4 or 8"),
        ({"quant_method": "gptq", "bits": True}, "bits = True"),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, "AWQ with group_size = 0"),
        ({"quant_method": "auto-round", "data_type": "odd"}, "auto-round with data_type 'odd'"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo 'MIXED_PRECISION'"),
        ({"quant_method": "torchao", "quant_type": "odd"}, "torchao's 'odd'"),
        ({"quant_method": "quark"}, "Quark's weights of type ''"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "a": {"weights": {"num_bits": 8, "type": "float"}},
                    "b": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}},
                },
            },
            r"groups of several formats \(fp8, nvfp4\)",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 6, "type": "float"}}},
            },
            "6",
        ),
        ([1], "not an object"),
        ("awq", "not an object"),
    ],
)
def test_formats_that_are_not_known_are_refused(config: Any, words: str) -> None:
    with pytest.raises(UnknownFormat, match=words):
        of_config({"quantization_config": config})


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, ("", 0)),
        ({"quant_method": "fp8"}, ("", 0)),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, ("", 0)),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, ("fp8", 15)),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, ("fp8", 14)),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "odd"}, ("", 0)),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, ("fp8", 14)),
        ({"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, ("", 0)),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "NVFP4"}}, ("nvfp4", 14)),
    ],
)
def test_the_cache_that_a_checkpoint_asks_for(config: dict[str, Any], found: tuple[str, int]) -> None:
    assert kv_of_config({"quantization_config": config}) == found


def test_packed_integers_of_any_width_and_group() -> None:
    four, three, wide = (scheme(name) for name in ("int4_g32", "int3_g128", "w8a16_channel"))
    assert four
    assert three
    assert wide
    assert four.bytes_per_parameter == pytest.approx(0.5 + 2.5 / 32)
    assert three.bytes_per_parameter == pytest.approx(3 / 8 + (2 + 3 / 8) / 128)
    assert wide.bytes_per_parameter == pytest.approx(1.0, abs=0.001)
    assert catalogue.precision("int4_g32") == "int4_g32"
    assert scheme("int9_g32") is None


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "block"}, "fp8_block"),
        ({"num_bits": 4, "type": "float"}, "nvfp4"),
        ({"num_bits": 8, "type": "int"}, "int8"),
        ({"num_bits": 4, "type": "int"}, "w4a16"),
        ({"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"}, "w4a16_g32"),
        ({"num_bits": 8, "type": "int", "group_size": 128, "strategy": "group"}, "w8a16_g128"),
        ({"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False}, "int4"),
        ({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4_all"),
        ({"num_bits": 8, "type": "float", "group_size": 32, "strategy": "group"}, "mxfp8"),
    ],
)
def test_compressed_tensors(weights: dict[str, Any], name: str) -> None:
    groups = {"config_groups": {"group_0": {"weights": weights}}, "quant_method": "compressed-tensors"}
    assert of_config({"quantization_config": groups}) == name


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, ()),
        ({"ignore": ["lm_head", "re:.*gate$"]}, ()),
        ({"ignore": ["re:.*linear_attn.*"]}, ("linear",)),
        ({"modules_to_not_convert": ["model.layers.0.self_attn", "model.layers.1.self_attn"]}, ("qkv", "output")),
        ({"exclude_modules": ["model.layers.0.self_attn*"]}, ()),  # of one layer only
        ({"ignore": ["re:.*shared_expert.*"]}, ("shared",)),
        ({"ignore": ["model.layers.0.mlp*", "model.layers.1.mlp*"]}, ("up", "down", "shared")),
        ({"ignore": ["model.layers.0.mlp.down_proj"]}, ()),  # DeepSeek's few dense layers
        ({"ignore": ["model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]}, ()),  # routers are wide anyway
    ],
)
def test_what_a_file_spares(said: dict[str, Any], kept: tuple[str, ...]) -> None:
    found = spared({"quantization_config": said}, "llff" + "mmmm" if "linear" in str(said) else "ff" + "mm")
    assert found[: len(kept)] == kept
    assert bool(found) == bool(kept)


def test_spared_tensors_stay_wide() -> None:
    model = catalogue.model("qwen3.5-35b-a3b")
    all_of_it = memory.weights_bytes(model, "nvfp4")
    assert memory.weights_bytes(catalogue.model("Qwen/Qwen3.5-35B-A3B-NVFP4")) > all_of_it + GIB
