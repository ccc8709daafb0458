"""A tiny model that writes English, Russian, Chinese and emoji, half of them in tokens that end inside a character.

Like `tiny_model` (whose names it has, so that the same writers take it): random weights, made on the spot, every token
depends on all before it. But its vocabulary has words and pieces of characters, and a few dimensions are reserved: one
is the same for every token, one tells the script, and one belongs to each token that ends inside a character. Through
them the last layer knows what may follow, so that what is said is always valid text; which of it is said, the random
rest decides.

Words are built so that what the model says is what the tokenizer makes of it (as trained models nearly always do):
every merge starts at the beginning of a word or character, so text splits in one way only.
"""

import numpy as np

from tests.real import tiny_model
from tests.real.tiny_model import (
    BOS,
    CONTEXT,
    EOS,
    FFN,
    HEAD,
    KV_HEADS,
    LAYERS,
    NORM_EPS,
    ROPE_THETA,
    SPECIAL,
    TEMPLATE,
)

__all__ = [
    "BOS", "CONTEXT", "EOS", "FFN", "HEAD", "HEADS", "KV_HEADS", "LAYERS", "NORM_EPS", "PIECES", "ROPE_THETA",
    "SPECIAL", "TEMPLATE", "WIDTH", "tokens", "weights",
]  # fmt: skip

WIDTH, HEADS = 128, 4
SCRIPTS = (
    " the of and to in is that was for on with his they at one have this from word but what all were when your said",
    " мир вода день слово дело рука время очередь память токен кэш ответ запрос поток узел ветер",
    "你好世界今天气很缓存前缀可以减少首个令牌的延迟请求发送到合适服务器",
    "🙂🙃🙄🚀🚃🚄🎉🎊🔥🔦🌍🌊🍎🐍🦊",
)
MARKS = (",", ".", "!")
FORCE, KEEP, BIAS = 6.0, 60.0, 12
STICK, EAGER = 12.0, 4.0
"""What dimensions are worth to a score: may it follow at all, is it the same script, is it said in two tokens."""


def _whole() -> list[tuple[int, bytes]]:
    """`(script, bytes)` of every word or character the model knows."""
    english, russian, chinese, emoji = SCRIPTS
    words = [(0, f" {word}".encode()) for word in english.split()] + [(1, f" {w}".encode()) for w in russian.split()]
    return words + [(2, c.encode()) for c in dict.fromkeys(chinese)] + [(3, c.encode()) for c in emoji]


def _split(script: int, number: int) -> bool:
    """Whether a word is said in two tokens, the first of which ends before its last byte."""
    return script == 3 or (script in (1, 2) and number % 2 == 0)


LETTERS = tiny_model.byte_letters()


def _spelled(data: bytes) -> str:
    return "".join(LETTERS[byte] for byte in data)


def _lexicon() -> tuple[dict[bytes, int], dict[bytes, list[bytes]]]:
    """Tokens said whole, with their script; and tokens that end inside a character, with the bytes that may follow."""
    whole: dict[bytes, int] = {}
    opened: dict[bytes, list[bytes]] = {}
    for number, (script, data) in enumerate(_whole()):
        if _split(script, number):
            opened.setdefault(data[:-1], []).append(data[-1:])
        else:
            whole[data] = script
    return whole, opened


WHOLE, OPENED = _lexicon()


def _merges() -> list[tuple[str, str]]:
    """Each token from its first byte on, one byte more at a time; short ones first, as byte-pair encoding asks."""
    chains: dict[bytes, None] = {}
    for token in sorted({*WHOLE, *OPENED}):
        chains.update((token[:end], None) for end in range(2, len(token) + 1))
    return [(_spelled(chain[:-1]), _spelled(chain[-1:])) for chain in sorted(chains, key=lambda one: (len(one), one))]


PIECES = _merges()


def tokens() -> list[str]:
    """Every token by id."""
    return [*SPECIAL, *LETTERS, *("".join(piece) for piece in PIECES)]


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """As `tiny_model.weights`, with the reserved dimensions written in."""
    rng = np.random.default_rng(seed)
    reserved = 1 + len(SCRIPTS) + len(OPENED)
    assert reserved < WIDTH // 2

    def random(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, 0.3, (rows, columns)).astype(np.float32)

    def kept(columns: int) -> np.ndarray:
        made = random(WIDTH, columns) / 4.0
        made[:reserved] = 0.0  # no layer writes into what is reserved
        return made

    embed, head = _reserved(random(len(tokens()), WIDTH), random(len(tokens()), WIDTH))
    ones = np.ones(WIDTH, dtype=np.float32)
    tensors = {"model.embed_tokens.weight": embed, "model.norm.weight": ones, "lm_head.weight": head}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": ones,
            f"{prefix}.self_attn.q_proj.weight": random(HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.k_proj.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.v_proj.weight": random(KV_HEADS * HEAD, WIDTH),
            f"{prefix}.self_attn.o_proj.weight": kept(HEADS * HEAD),
            f"{prefix}.post_attention_layernorm.weight": ones,
            f"{prefix}.mlp.gate_proj.weight": random(FFN, WIDTH),
            f"{prefix}.mlp.up_proj.weight": random(FFN, WIDTH),
            f"{prefix}.mlp.down_proj.weight": kept(FFN),
        }
    return tensors


def _reserved(embed: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Dimension 0 says "a token", the next ones its script, the rest which character it has begun."""
    ids = {token: number for number, token in enumerate(tokens())}
    first, reserved = 1 + len(SCRIPTS), 1 + len(SCRIPTS) + len(OPENED)
    embed[:, :reserved] = head[:, :reserved] = 0.0
    head *= 4.0 / np.linalg.norm(head, axis=1, keepdims=True)  # each word as likely as any other ...
    head[:, reserved:] -= embed[:, reserved:]  # ... but not twice in a row
    embed[:, 0] = FORCE
    head[:, 0] = -KEEP  # nothing is said unless it is a beginning, or follows from what was begun
    for data, script in {**WHOLE, **{begun: _script(begun) for begun in OPENED}}.items():
        token = ids[_spelled(data)]
        head[token, 0] = EAGER if data in OPENED else 0.0
        head[token, 1 + script] = STICK
        embed[token, 1 + script] = 1.0
    for mark in MARKS:
        head[ids[mark], 0] = 0.0
    head[EOS, 0] = -0.5
    for place, (begun, endings) in enumerate(OPENED.items(), first):
        embed[ids[_spelled(begun)], place] = FORCE
        for ending in endings:
            head[ids[_spelled(ending)], place] = 3 * KEEP
    return embed, head


def _script(begun: bytes) -> int:
    return 1 if begun.startswith(b" ") else 3 if begun[0] >= 0xF0 else 2


def favour(script: int) -> dict[str, int]:
    """A `logit_bias` that makes the model write one script (0 English, 1 Russian, 2 Chinese, 3 emoji)."""
    ids = {token: number for number, token in enumerate(tokens())}
    begun = [data for data in OPENED if _script(data) == script]
    return {str(ids[_spelled(data)]): BIAS for data in [*begun, *(one for one, own in WHOLE.items() if own == script)]}
