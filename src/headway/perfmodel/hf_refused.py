"""Families whose config.json is refused, and why: a wrong answer would be worse than none.

Their memory follows other formulas than those of this package, or their file does not say what is needed. What is read
is in `hf_config`.
"""

from collections.abc import Mapping
from typing import Any

from headway.perfmodel.hf_layers import ConfigError

UNKNOWN = {
    "is_encoder_decoder": "encoder-decoder models",
    "cross_attention_layers": "cross-attention layers (Llama 3.2 Vision)",
    "compress_ratios": "compressed caches (DeepSeek-V4)",
    "block_configs": "layers of different sizes (Nemotron-NAS)",
    "zero_expert_num": "layers with two attentions (LongCat)",
    "mamba_d_ssm": "layers with attention and Mamba side by side (Falcon H1)",
    "num_mem_blocks": "blocks that layers share (Zamba 2)",
    "block_types": "recurrent layers (RecurrentGemma)",
    "use_cla": "caches that layers share (Hunyuan-Large)",
    "num_query_heads": "layers of different sizes (OpenELM)",
    "loop_num": "layers that run more than once, each time with a cache of their own (LoopCoder)",
    "num_layers_per_stack": "layers that run more than once, each time with a cache of their own (HRM)",
    "mova_num_experts": "values from a mixture of experts (K2 Horizon)",
    "v_channels": "heads whose values and sinks have sizes of their own (Pangu)",
    "share_q_dim": "queries through a shared projection (Step-3)",
    "qformer_config": "transformers between image and text (BLIP-2)",
}
"""By fields that nobody else has; 0, false and null are as good as none."""

KINDS = {
    "minicpm3": "latent weights with a cache of whole heads",
    "ernie4_5_vl_moe": "experts for text and others for images",
    "ernie4_5_moe_vl": "experts for text and others for images",
    "phi4_multimodal": "encoders of images and speech whose sizes are not in the file",
    "phi4mm": "encoders of images and speech whose sizes are not in the file",
    "molmo": "a vision tower whose sizes are not in the file",
    "inkling_mm_model": "Inkling's experts and convolutions",
    "inkling_text": "Inkling's experts and convolutions",
}
"""The same by model_type, where no field of the file tells them apart."""

NO_ATTENTION = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "reformer")
"""Families without attention as we know it: they keep no cache that grows with a sequence."""

ENCODERS = (
    *("albert", "bert", "big_bird", "camembert", "deberta", "distilbert", "electra", "ernie_m", "esm", "gte", "ibert"),
    *("jina_bert", "layoutlm", "longformer", "modernbert", "mpnet", "new", "nomic_bert", "rembert", "roberta"),
    *("roformer", "xlm-roberta", "xlm_roberta", "xlnet", "vit", "clip", "siglip", "wav2vec2", "hubert"),
)
"""Families that read and do not write; model_type may go on after these words."""

DECODERS_NONETHELESS = ("ernie4_5", "bert-generation", "new_")
ENCODER_DECODERS = (
    *("bart", "mbart", "blenderbot", "fsmt", "led", "longt5", "m2m_100", "marian", "mt5", "nllb", "pegasus"),
    *("plbart", "prophetnet", "speech_to_text", "switch_transformers", "t5", "umt5", "whisper"),
)


def refuse(config: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    """Raises ConfigError for families that are not modelled, with the reason; `text`: the text part of `config`."""
    for part in (config, text):
        for field, what in UNKNOWN.items():
            if part.get(field):
                raise ConfigError(f"config.json has {field}: {what} are not modelled")
        _kind(str(part.get("model_type", "")))
    groups = text.get("layer_group_size")
    if isinstance(groups, int) and groups > 1 and not text.get("layer_types"):
        raise ConfigError("config.json has layer_group_size: linear layers in groups (Ling 2.5) are not modelled")
    if text.get("word_embed_proj_dim") not in (None, text.get("hidden_size")):
        raise ConfigError("config.json has word_embed_proj_dim: embeddings narrower than the layers are not modelled")


def _kind(kind: str) -> None:
    words = f"config.json has model_type {kind}:"
    if kind in KINDS:
        raise ConfigError(f"{words} {KINDS[kind]} are not modelled")
    if kind in NO_ATTENTION:
        raise ConfigError(f"{words} models without attention are not modelled")
    if kind in ENCODER_DECODERS:
        raise ConfigError(f"{words} encoder-decoder models are not modelled")
    if kind.startswith(ENCODERS) and not kind.startswith(DECODERS_NONETHELESS):
        raise ConfigError(f"{words} an encoder (as for embeddings) writes no tokens and keeps no KV cache")
