"""A request of a workload, as its gateway reads it (bytes, hashes of blocks) and as its engine does (tokens, pieces).

Both sides see the same sharing: prompts that begin with equal segments begin with equal bytes and equal tokens. How
many bytes a token has differs from segment to segment, so that the brain has to guess tokens as it must in reality.
Worked out once per workload, outside of any run.
"""

import math
from collections.abc import Sequence

import msgspec
import xxhash

from headway.core.constants import PrefixConfig
from headway.workload.request import Request, Segment

_BLOCK_BYTES = PrefixConfig().block_bytes


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """`hashes`: chained, one per full block of bytes, for the gateway. `pieces`: (key, full KV blocks), for engines."""

    tokens: int
    bytes: int
    hashes: tuple[int, ...]
    pieces: tuple[tuple[int, int], ...]


def _mix(*parts: int) -> int:
    return xxhash.xxh3_64_intdigest(b"".join([(part & _MASK).to_bytes(8, "little") for part in parts]))


_MASK = (1 << 64) - 1


def prompts(
    requests: Sequence[Request], block_size: int = 16, bytes_per_token: float = 4.2, noise: float = 0.15
) -> list[Prompt]:
    """One per request. Segments shared by several requests are worked out once."""
    sizes: dict[Segment, int] = {}
    return [_prompt(request, sizes, block_size, bytes_per_token, noise) for request in requests]


def _prompt(
    request: Request, sizes: dict[Segment, int], block_size: int, bytes_per_token: float, noise: float
) -> Prompt:
    chain = tokens = size = blocks = 0
    hashes: list[int] = []
    pieces: list[tuple[int, int]] = []
    for segment in request.segments:
        weight = sizes.get(segment)
        if weight is None:
            weight = sizes[segment] = _bytes(segment, bytes_per_token, noise)
        size += weight
        tokens += segment.tokens
        for number in range(len(hashes), size // _BLOCK_BYTES):
            hashes.append(_mix(chain, segment.key, number))
        chain = _mix(chain, segment.key, segment.tokens)
        full = tokens // block_size - blocks
        if full:
            pieces.append((chain, full))
            blocks += full
    return Prompt(tokens, size, tuple(hashes), tuple(pieces))


def _bytes(segment: Segment, bytes_per_token: float, noise: float) -> int:
    """Bytes of a segment: a function of its key, log-normal around the mean ratio."""
    uniform = (_mix(segment.key, 7) + 0.5) / 2.0**64
    other = (_mix(segment.key, 11) + 0.5) / 2.0**64
    normal = math.sqrt(-2.0 * math.log(uniform)) * math.cos(2.0 * math.pi * other)  # Box and Muller
    return max(1, round(segment.tokens * bytes_per_token * math.exp(noise * normal)))
