"""Writes the tiny model as a Hugging Face folder for vLLM and its kind: JSON files and one safetensors file.

The safetensors format is a length, a JSON table of names, shapes and offsets, and the raw numbers.
"""

import json
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.real import tiny_model


def make(folder: Path, tiny: ModuleType = tiny_model) -> Path:
    """Write the model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", _config(tiny)),
        ("generation_config.json", {"bos_token_id": tiny.BOS, "eos_token_id": tiny.EOS}),
        ("tokenizer.json", _tokenizer(tiny)),
        ("tokenizer_config.json", _tokenizer_config(tiny)),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    _write_weights(folder / "model.safetensors", tiny)
    return folder


def _config(tiny: ModuleType) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(tiny.tokens()),
        "hidden_size": tiny.WIDTH,
        "intermediate_size": tiny.FFN,
        "num_hidden_layers": tiny.LAYERS,
        "num_attention_heads": tiny.HEADS,
        "num_key_value_heads": tiny.KV_HEADS,
        "head_dim": tiny.HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": tiny.CONTEXT,
        "rms_norm_eps": tiny.NORM_EPS,
        "rope_theta": tiny.ROPE_THETA,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": tiny.BOS,
        "eos_token_id": tiny.EOS,
    }


def _tokenizer(tiny: ModuleType) -> dict[str, Any]:
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": word, **added} for number, word in enumerate(tiny.SPECIAL)],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(tiny.tokens())},
            "merges": [list(piece) for piece in tiny.PIECES],
        },
    }


def _tokenizer_config(tiny: ModuleType) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tiny.SPECIAL[tiny.EOS],
        "pad_token": tiny.SPECIAL[tiny.BOS],
        "model_max_length": tiny.CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": tiny.TEMPLATE,
    }


def _write_weights(path: Path, tiny: ModuleType) -> None:
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    raw, at = [], 0
    for name, tensor in tiny.weights().items():
        table[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        raw.append(tensor.tobytes())
        at += tensor.nbytes
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(raw))
