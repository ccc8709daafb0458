"""Rotary tables are as long as positions reach after scaling."""

from typing import Any

import pytest

from headway.perfmodel.hf_rope import elements


@pytest.mark.parametrize(
    ("kind", "text", "rows"),
    [
        ("llama", {}, 1000),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8}}, 1000),
        ("x", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 2000),
        ("x", {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 100}}, 4000),
        ("phi3", {"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 100}}, 1100),
        ("gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 8}}, 9000),
        ("phi", {"partial_rotary_factor": 0.4}, 400),
        ("x", {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25}}}, 250),
        ("qwen2_5_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 4000),  # for videos
        ("gemma4_text", {"rope_parameters": {"full_attention": {"rope_type": "proportional"}}, "head_dim": 10}, 1500),
        ("jamba", {}, 0),
        ("minimax_m1", {}, 0),
    ],
)
def test_rows_of_the_table(kind: str, text: dict[str, Any], rows: int) -> None:
    assert elements(kind, text, 20, 1000) == 20 * rows
