"""Writes the tiny model as a GGUF file for llama.cpp, about 1 MB."""

from pathlib import Path
from types import ModuleType

import gguf
import numpy as np

from tests.real import tiny_model

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make(path: Path, tiny: ModuleType = tiny_model) -> Path:
    """Write the model file."""
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, tiny)
    for name, tensor in tiny.weights().items():
        writer.add_tensor(_name(name), _layout(name, tensor, tiny))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: gguf.GGUFWriter, tiny: ModuleType) -> None:
    tokens = tiny.tokens()
    writer.add_name("tiny")
    writer.add_context_length(tiny.CONTEXT)
    writer.add_embedding_length(tiny.WIDTH)
    writer.add_block_count(tiny.LAYERS)
    writer.add_feed_forward_length(tiny.FFN)
    writer.add_head_count(tiny.HEADS)
    writer.add_head_count_kv(tiny.KV_HEADS)
    writer.add_rope_dimension_count(tiny.HEAD)
    writer.add_rope_freq_base(tiny.ROPE_THETA)
    writer.add_layer_norm_rms_eps(tiny.NORM_EPS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in tiny.SPECIAL else normal for token in tokens])
    writer.add_token_merges([" ".join(piece) for piece in tiny.PIECES])
    writer.add_bos_token_id(tiny.BOS)
    writer.add_eos_token_id(tiny.EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tiny.TEMPLATE)


def _name(name: str) -> str:
    base = name.removesuffix(".weight")
    if not base.startswith("model.layers."):
        return f"{NAMES[base]}.weight"
    _, _, layer, rest = base.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}.weight"


def _layout(name: str, tensor: np.ndarray, tiny: ModuleType) -> np.ndarray:
    """llama.cpp wants the two rotary halves of queries and keys interleaved."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return tensor
    halves = tensor.reshape(-1, 2, tiny.HEAD // 2, tiny.WIDTH)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(tensor.shape)
