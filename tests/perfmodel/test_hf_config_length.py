"""The longest context by version, for every way of scaling rotary positions."""

from typing import Any

import pytest

from headway.perfmodel import memory_limits
from headway.perfmodel.hf_config import ConfigError, read
from headway.perfmodel.hf_config_length import context
from tests.perfmodel.test_hf_config import LLAMA


def scaled(positions: int, **scaling: Any) -> dict[str, Any]:
    return {"max_position_embeddings": positions, "rope_scaling": scaling}


@pytest.mark.parametrize(
    ("text", "longest", "before"),
    [
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072, 131072),
        ({"max_position_embeddings": 32768, "seq_length": 8192}, 8192, 8192),
        (scaled(4096, type="linear", factor=4.0), 16384, 16384),
        (scaled(4096, rope_type="dynamic", factor=4.0), 16384, 16384),
        (scaled(32768, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768), 32768, 131072),
        (scaled(163840, type="yarn", factor=40, original_max_position_embeddings=4096), 163840, 163840),
        (scaled(131072, rope_type="llama3", factor=8.0), 131072, 131072),
        (scaled(128000, type="mrope", mrope_section=[16, 24, 24]), 128000, 128000),
        (scaled(8192, full_attention={"rope_type": "linear", "factor": 2.0}), 16384, 16384),
        ({}, 2048, 2048),
    ],
)
def test_lengths(text: dict[str, Any], longest: int, before: int) -> None:
    found = context("llama", text)
    assert (found.longest, found.before) == (longest, before)
    assert found.open_ended is (not text)


def test_gemma_3_names_the_longer_length_already() -> None:
    assert context("gemma3_text", scaled(131072, rope_type="linear", factor=8.0)).longest == 131072


def test_versions_differ() -> None:
    yarn = read("x", LLAMA | scaled(32768, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768))
    assert [memory_limits.longest(yarn, version) for version in ("0.29.1", "0.30.0")] == [131072, 32768]
    long_rope = read("x", LLAMA | scaled(131072, type="longrope") | {"original_max_position_embeddings": 4096})
    assert [memory_limits.default_length(long_rope, version) for version in ("0.11.0", "0.12.0")] == [131072, 4096]
    assert memory_limits.longest(long_rope) == 131072


@pytest.mark.parametrize("factor", ["x", 0, -1, 1e9, True])
def test_factors_that_make_no_sense(factor: Any) -> None:
    with pytest.raises(ConfigError, match="the factor of rope_scaling is"):
        read("x", LLAMA | scaled(4096, type="linear", factor=factor))
    with pytest.raises(ConfigError, match="the factor of rope_scaling is"):
        read("x", LLAMA | scaled(4096, type="yarn", factor=factor))


def test_scaling_that_is_no_object() -> None:
    with pytest.raises(ConfigError, match=r"rope_scaling is \[1\], not an object"):
        read("x", LLAMA | {"rope_scaling": [1]})
