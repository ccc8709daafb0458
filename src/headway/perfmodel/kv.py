"""What a token leaves behind in the cache, and how the pool of an engine is cut into blocks for it.

Per token and layer: keys and values of the KV heads of this GPU, or one latent row; linear layers keep a state per
sequence instead. Layers of different kinds form groups of equally many layers with blocks of one size in bytes; each
group has block tables of its own (vLLM's kv_cache_utils). A group padded to that many layers wastes cache.
"""

import math

import msgspec

from headway.perfmodel.architectures import Architecture, Latent
from headway.perfmodel.versions import Rules

SPARSE_FP8_BYTES = 656
"""A row of DeepSeek-V3.2's cache in fp8: 512 fp8 values, 4 scales of 4 bytes, 64 rotary values of 2 bytes."""

UNEVEN = 1.5
"""Kinds with less than this ratio of layers are padded to the larger count, else cut to the smaller one."""


class Group(msgspec.Struct, frozen=True):
    """Layers that share block tables: `letter` their kind, `block_size` tokens a block of theirs holds."""

    letter: str
    block_size: int


class Layout(msgspec.Struct, frozen=True):
    """How the pool is cut. `block_bytes`: of one block over all layers of a group, on this GPU."""

    block_bytes: int
    groups: tuple[Group, ...]
    window: int
    chunked: bool
    in_flight_tokens: int

    @property
    def block_size(self) -> int:
        """Tokens in the smallest block that holds tokens."""
        return min((group.block_size for group in self.groups if group.letter != "l"), default=1)

    def blocks_of(self, tokens: int) -> int:
        """Blocks that one sequence of this many tokens holds at most, over all groups."""
        return sum(self._blocks(group, tokens) for group in self.groups)

    def _blocks(self, group: Group, tokens: int) -> int:
        if group.letter == "l":
            return 1
        if group.letter == "f":
            return -(-tokens // group.block_size)
        reach = self.window if self.chunked else self.window - 1
        held = -(-min(reach + self.in_flight_tokens, tokens) // group.block_size)
        return held if self.chunked else held + 1  # a window may begin inside a block

    def bytes_of(self, tokens: int) -> int:
        """Bytes that one sequence of this many tokens holds at most, on this GPU."""
        return self.block_bytes * self.blocks_of(tokens)

    def reported_tokens(self, blocks: int, max_model_len: int, rules: Rules) -> int:
        """The pool's size as this version prints it."""
        if rules.tokens_by_length:
            return blocks * max_model_len // self.blocks_of(max_model_len)
        return blocks // len(self.groups) * self.block_size

    def pool_bytes(self, tokens: int, max_model_len: int) -> int:
        """Bytes of a pool that versions since 0.20.1 print as this many tokens."""
        return tokens * self.bytes_of(max_model_len) // max_model_len


TYPES = ("auto", "bfloat16", "bf16", "float16", "fp16", "half", "float32", "float")
"""What a KV cache may be of, beside the variants of fp8 and int8."""


def width(kv_dtype: str, dtype: str = "bfloat16") -> int:
    """Bytes per element of the cache."""
    if kv_dtype not in TYPES and not kv_dtype.startswith(("fp8", "int8")):
        raise ValueError(f"unknown type of KV cache {kv_dtype!r}: there are {', '.join(TYPES)}, fp8 and int8")
    if kv_dtype.startswith(("fp8", "int8")):
        return 1
    return 4 if (dtype if kv_dtype == "auto" else kv_dtype) in ("float32", "float") else 2


def caching(model: Architecture) -> str:
    """Mixer letters, with "-" for layers that keep nothing of their own because they read an earlier one's cache."""
    own = model.layers - model.shared_kv_layers
    return model.mixer_letters[:own] + "-" * (model.layers - own)


def kv_bytes_per_token(model: Architecture, kv_dtype: str = "auto", tp: int = 1, letters: str = "") -> int:
    """Bytes of cache per token and GPU while no window is full: `2 L max(1, kv_heads / tp) head_dim B`, or
    `L (kv_rank + rope) B` with latent attention, which is not divided. `letters`: of the GPU's layers (default: all).
    """
    letters = letters or caching(model)
    return sum(letters.count(letter) * _row(model, letter, kv_dtype, tp) for letter in "fw")


def window_bytes_per_token(model: Architecture, kv_dtype: str = "auto", tp: int = 1, letters: str = "") -> int:
    """What of `kv_bytes_per_token` is in layers with a window: a sequence longer than it takes no more of these."""
    return (letters or caching(model)).count("w") * _row(model, "w", kv_dtype, tp)


def state_bytes(model: Architecture, tp: int = 1) -> int:
    """Bytes that one linear layer keeps per sequence on one GPU."""
    linear = model.linear
    if linear is None:
        return 0
    copied = tp - linear.groups if linear.groups % tp else 0
    conv = (linear.conv + copied * linear.group_conv) * 2
    return -(-(conv + linear.state * (linear.state_bytes or 2)) // tp)


def layout(
    model: Architecture,
    rules: Rules,
    *,
    kv_dtype: str = "auto",
    tp: int = 1,
    block_size: int = 16,
    max_num_batched_tokens: int = 2048,
    letters: str = "",
) -> Layout:
    """How an engine cuts the pool of a GPU whose layers have these mixer letters (default: all, see `caching`)."""
    letters = letters or caching(model)
    counts = {kind: count for kind in "fwl" if (count := letters.count(kind))}
    if not counts:
        counts = {"f": 1}
    if not rules.hybrid and "w" in counts and "f" in counts:
        counts = {"f": counts["f"] + counts["w"]} | ({"l": counts["l"]} if "l" in counts else {})
    rows = {kind: _row(model, kind, kv_dtype, tp) for kind in counts if kind != "l"}
    page, sizes = _pages(model, rules, rows, block_size, tp if "l" in counts else 0)
    group_layers = _group_layers(list(counts.values()))
    groups = [Group(kind, sizes[kind]) for kind, count in counts.items() for _ in range(-(-count // group_layers))]
    in_flight = rules.batches_in_flight * max_num_batched_tokens
    return Layout(page * group_layers, tuple(groups), model.window, model.chunked, in_flight)


def _row(model: Architecture, letter: str, kv_dtype: str, tp: int) -> int:
    """Bytes per token of one layer of a kind."""
    element = width(kv_dtype, model.dtype)
    if model.latent:
        return _latent_row(model.latent, element)
    heads = model.heads_of(letter)[0]
    return max(1, heads // tp) * model.row_of(letter) * element


def _latent_row(latent: Latent, element: int) -> int:
    if not latent.index_dim:
        return latent.width * element
    row = SPARSE_FP8_BYTES if element == 1 else latent.width * element
    return row + latent.index_dim + 4  # an fp8 key and its scale


def _pages(
    model: Architecture, rules: Rules, rows: dict[str, int], block_size: int, linear_tp: int
) -> tuple[int, dict[str, int]]:
    """(bytes of a block of one layer, tokens per block by kind). Blocks are equal in bytes: kinds with smaller rows get
    more tokens a block; beside linear layers, blocks grow until one holds a whole state."""
    if not rows:
        return state_bytes(model, linear_tp), {"l": 1}
    if linear_tp:
        step = 16
        if model.latent:
            step = 128 if rules.batches_in_flight > 1 else 64
        row = max(rows.values())
        block_size = max(block_size, step * -(-state_bytes(model, linear_tp) // (step * row)))
    page = block_size * max(rows.values())
    return page, {kind: page // row for kind, row in rows.items()} | {"l": 1}


def _group_layers(counts: list[int]) -> int:
    """Layers per group: as many as the rarest kind has, or as the most frequent one where they are about equal."""
    if len(counts) == 1:
        return counts[0]
    return max(counts) if max(counts) < UNEVEN * min(counts) else math.floor(min(counts))
