"""Turns the segments of a prompt into real text, so that an HTTP request has the size and the sharing it stands for.

One token becomes one of the commonest three-letter words of English and a blank: four bytes, one token for byte-pair
vocabularies, so a prompt of n tokens is close to n tokens for an engine too (its chat template adds a few per message).
"""

from collections.abc import Iterator

import numpy as np

from headway.workload.request import Request, Segment

BYTES_PER_TOKEN = 4

_LEXICON = """
add age ago air all and any are ask bed big box boy but can car cut day did dog dry eat end eye far few fly for get
got had has her him his hot how lay let lot low man map may men new now off old one our out own put ran red run saw
say sea see set she sit six sun ten the too top try two use war was way who why yes yet you
"""
_TABLE = np.array([f"{word} ".encode() for word in _LEXICON.split()], dtype="S4")


def segment_text(segment: Segment, seed: int = 0) -> str:
    """Text of exactly 4 * tokens bytes (ASCII), the same for the same key and seed, whatever the process."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, segment.key))))
    picks = rng.integers(0, len(_TABLE), size=segment.tokens)
    return _TABLE[picks].tobytes().decode("ascii")


def prompt(request: Request, seed: int = 0) -> str:
    """The whole prompt as one string, for completions."""
    return "".join(segment_text(segment, seed) for segment in request.segments)


def messages(request: Request, seed: int = 0) -> list[dict[str, str]]:
    """The prompt as chat messages: neighbouring segments of one role are one message."""
    return [{"role": role, "content": content} for role, content in _turns(request, seed)]


def _turns(request: Request, seed: int) -> Iterator[tuple[str, str]]:
    role, parts = "", list[str]()
    for segment in request.segments:
        if segment.role != role and parts:
            yield role, "".join(parts)
            parts = []
        role = segment.role
        parts.append(segment_text(segment, seed))
    if parts:
        yield role, "".join(parts)
