"""A tiny language model for real engines: what it is made of, before it is written in some engine's format.

Llama architecture, random weights, byte-level tokenizer with a few merges, chat template. Nothing is downloaded and
nothing is committed: it is made when a test asks for it, in a moment, the same bytes each time. Only printable ASCII
tokens have output weights, so that whatever is generated is valid text; the end token has none, so that a generation
goes on to its limit.
"""

import numpy as np

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FFN, CONTEXT = 4, 64, 2, 1, 32, 192, 8192
ROPE_THETA, NORM_EPS = 10000.0, 1e-5
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BOS, EOS = 0, 2
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


def tokens() -> list[str]:
    """Every token by id."""
    return [*SPECIAL, *byte_letters(), *PIECES]


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The tensors under Hugging Face's names and in its layout (rotary halves one after the other), float32."""
    rng = np.random.default_rng(seed)

    def random(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.3, (rows, columns)).astype(np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    words = tokens()
    speakable = np.array([word in PIECES or (len(word) == 1 and 0x20 < ord(word) < 0x7F) for word in words])
    tensors = {
        "model.embed_tokens.weight": random(len(words), WIDTH),
        "model.norm.weight": ones,
        "lm_head.weight": random(len(words), WIDTH) * speakable[:, None].astype(np.float32),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": ones,
            f"{prefix}.self_attn.q_proj.weight": random(HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.k_proj.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.v_proj.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.o_proj.weight": random(WIDTH, HEADS * HEAD),
            f"{prefix}.post_attention_layernorm.weight": ones,
            f"{prefix}.mlp.gate_proj.weight": random(FFN, WIDTH),
            f"{prefix}.mlp.up_proj.weight": random(FFN, WIDTH),
            f"{prefix}.mlp.down_proj.weight": random(WIDTH, FFN),
        }
    return tensors
