"""Google's Gemma. Numbers of the published config.json."""

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.model_row import Fields, row

SIGLIP: Fields = {
    "outer": "gemma3",
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "image_size": 896,
}
GEMMA3: Fields = {
    "sliding_window": 1024,
    "mm_tokens_per_image": 256,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "vision": SIGLIP,
}
GEMMA4: Fields = {
    "global_head_dim": 512,
    "attention_k_eq_v": True,
    "sliding_window": 1024,
    "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
    "vision": SIGLIP
    | {
        "outer": "gemma4",
        "patch_size": 16,
        "image_size": 0,
        "position_embedding_size": 10240,
        "pooling_kernel_size": 3,
    },
    "mm_tokens_per_image": 280,
}


def every_sixth(layers: int) -> list[str]:
    """Five sliding layers, then one with full attention."""
    return ["full_attention" if (n + 1) % 6 == 0 else "sliding_attention" for n in range(layers)]


ROWS: tuple[Architecture, ...] = (
    row("google/gemma-2b", "gemma", "18 2048 16384 8 1 256 256000 8192", "gemma-2b", "google/gemma-2b-it"),
    row("google/gemma-7b", "gemma", "28 3072 24576 16 16 256 256000 8192", "gemma-7b", "google/gemma-7b-it"),
    row(
        "google/gemma-2-2b-it",
        "gemma2",
        "26 2304 9216 8 4 256 256000 8192",
        "gemma-2-2b",
        "google/gemma-2-2b",
        sliding_window=4096,
    ),
    row(
        "google/gemma-2-9b-it",
        "gemma2",
        "42 3584 14336 16 8 256 256000 8192",
        "gemma-2-9b",
        "google/gemma-2-9b",
        sliding_window=4096,
    ),
    row(
        "google/gemma-2-27b-it",
        "gemma2",
        "46 4608 36864 32 16 128 256000 8192",
        "gemma-2-27b",
        "google/gemma-2-27b",
        sliding_window=4096,
    ),
    row(
        "google/gemma-3-1b-it",
        "gemma3_text",
        "26 1152 6912 4 1 256 262144 32768",
        "gemma-3-1b",
        "google/gemma-3-1b-pt",
        sliding_window=512,
    ),
    row(
        "google/gemma-3-4b-it",
        "gemma3_text",
        "34 2560 10240 8 4 256 262208 131072",
        "gemma-3-4b",
        "google/medgemma-4b-it",
        **GEMMA3,
    ),
    row("google/gemma-3-12b-it", "gemma3_text", "48 3840 15360 16 8 256 262208 131072", "gemma-3-12b", **GEMMA3),
    row(
        "google/gemma-3-27b-it",
        "gemma3_text",
        "62 5376 21504 32 16 128 262208 131072",
        "gemma-3-27b",
        "google/medgemma-27b-it",
        **GEMMA3,
    ),
    row(
        "google/gemma-4-31B-it",
        "gemma4_text",
        "60 5376 21504 32 16 256 262144 262144",
        "gemma-4-31b",
        layer_types=every_sixth(60),
        num_global_key_value_heads=4,
        **GEMMA4,
    ),
    row(
        "google/gemma-4-26B-A4B-it",
        "gemma4_text",
        "30 2816 2112 16 8 256 262144 262144",
        "gemma-4-26b-a4b",
        layer_types=every_sixth(30),
        num_global_key_value_heads=2,
        num_experts=128,
        top_k_experts=8,
        moe_intermediate_size=704,
        **GEMMA4,
    ),
)
