"""Names of weight formats as engines and files write them, and their order."""

import pytest

from headway.core.precision import (
    EIGHT,
    FLOORS,
    FORMATS,
    FOUR,
    FULL,
    LESS,
    UNKNOWN,
    floor,
    known,
    of_model,
    rank,
    stricter,
)


@pytest.mark.parametrize(
    ("text", "name", "level"),
    [
        ("torch.bfloat16", "bf16", FULL),
        ("all F32", "fp32", FULL),
        ("float16", "fp16", FULL),
        ("half", "fp16", FULL),
        ("fp8_e4m3", "fp8", EIGHT),
        ("compressed-tensors w8a8", "int8", EIGHT),
        ("Q8_0", "int8", EIGHT),
        ("awq_marlin", "int4", FOUR),
        ("gptq_int8", "int8", EIGHT),
        ("modelopt", "fp8", EIGHT),
        ("modelopt_fp4", "fp4", FOUR),
        ("bnb_4bit", "int4", FOUR),
        ("MXFP4 MoE", "fp4", FOUR),
        ("Q4_K - Medium", "int4", FOUR),
        ("Q6_K", "int6", FOUR),
        ("IQ4_XS - 4.25 bpw", "int4", FOUR),
        ("IQ3_S - 3.4375 bpw", "int3", LESS),
        ("TQ1_0 - 1.69 bpw ternary", "int2", LESS),
        ("auto", "", UNKNOWN),
        ("compressed-tensors", "", UNKNOWN),
        ("", "", UNKNOWN),
        ("q9", "", UNKNOWN),
    ],
)
def test_what_engines_call_their_formats(text: str, name: str, level: int) -> None:
    assert known(text) == (name, level)
    assert rank(text) == level


def test_the_order() -> None:
    assert rank("fp32") == rank("bf16") == rank("fp16") > rank("fp8") == rank("int8")
    assert rank("int8") > rank("int4") == rank("fp4") == rank("int6") > rank("int2") > rank("who knows")


def test_what_we_call_a_format_is_a_format() -> None:
    for name, level in FORMATS.values():
        assert known(name) == (name, level)
    for level, name in FLOORS.items():
        assert rank(name) == level


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen2.5-7B-Instruct-FP8-dynamic", "fp8"),
        ("Qwen2.5-7B-Instruct-GPTQ-Int8", "int8"),
        ("Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "int4"),
        ("gemma-3-27b-it-Q4_K_M.gguf", "int4"),
        ("llama-3.1-8b-instruct", ""),
        ("the-better-half", ""),
    ],
)
def test_what_the_name_of_a_model_says(name: str, found: str) -> None:
    assert of_model(name) == found


@pytest.mark.parametrize(
    ("said", "meant"),
    [("bf16", "bf16"), (" FP16 ", "bf16"), ("int8", "fp8"), ("fp4", "int4"), ("q8", "fp8"), ("any", "int2")],
)
def test_a_floor_is_known_by_its_rank(said: str, meant: str) -> None:
    assert floor(said) == meant


@pytest.mark.parametrize("said", ["", "banana", "bf16, fp8", "auto", "x" * 10_000, "q9"])
def test_what_is_no_floor(said: str) -> None:
    assert floor(said) == ""


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        ("", "", ""),
        ("", "int8", "fp8"),
        ("int4", "", "int4"),
        ("any", "int4", "int4"),
        ("fp16", "fp8", "bf16"),
        ("fp8", "bf16", "bf16"),
        ("fp8", "int8", "fp8"),
        ("odd", "fp8", "odd"),
        ("fp8", "odd", "odd"),
    ],
)
def test_the_stricter_of_two_floors(one: str, other: str, least: str) -> None:
    assert stricter(one, other) == least
