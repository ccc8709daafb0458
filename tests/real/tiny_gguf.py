"""Makes a tiny model file for llama.cpp: llama architecture, random weights, byte-level tokenizer, chat template.

Nothing is downloaded and nothing is committed: the file is made when a test asks for it, in under a second, the same
bytes each time. Only printable ASCII tokens have output weights, so that whatever is generated is valid text; the end
token has none, so that a generation goes on to its limit.
"""

from pathlib import Path

import gguf
import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FFN, CONTEXT = 4, 64, 2, 1, 32, 192, 8192
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PIECES = ("th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te", "of", "ed", "is", "it")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_letters() -> list[str]:
    """One printable letter for each byte, as GPT-2's tokenizer writes bytes: itself where printable, else shifted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def make(path: Path, seed: int = 0) -> Path:
    """Write the model file, about 1 MB."""
    tokens = [*SPECIAL, *byte_letters(), *PIECES]
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, tokens)
    for name, tensor in _weights(tokens, np.random.default_rng(seed)).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if token in SPECIAL else normal for token in tokens])
    writer.add_token_merges([" ".join(piece) for piece in PIECES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _weights(tokens: list[str], rng: np.random.Generator) -> dict[str, np.ndarray]:
    def random(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.3, (rows, columns)).astype(np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    speakable = np.array([token in PIECES or (len(token) == 1 and 0x20 < ord(token) < 0x7F) for token in tokens])
    weights = {
        "token_embd.weight": random(len(tokens), WIDTH),
        "output_norm.weight": ones,
        "output.weight": random(len(tokens), WIDTH) * speakable[:, None].astype(np.float32),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        weights |= {
            f"{block}.attn_norm.weight": ones,
            f"{block}.attn_q.weight": random(HEADS * HEAD, WIDTH),
            f"{block}.attn_k.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{block}.attn_v.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{block}.attn_output.weight": random(WIDTH, HEADS * HEAD),
            f"{block}.ffn_norm.weight": ones,
            f"{block}.ffn_gate.weight": random(FFN, WIDTH),
            f"{block}.ffn_up.weight": random(FFN, WIDTH),
            f"{block}.ffn_down.weight": random(WIDTH, FFN),
        }
    return weights
