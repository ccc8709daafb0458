"""Turns the segments of a prompt into real text, so that an HTTP request has the size and the sharing it stands for.

One token becomes one short English word and a blank, four bytes: about what byte-pair tokenizers make of such words,
so a prompt of n tokens is close to n tokens for a real engine too (its chat template adds a few per message).
"""

from collections.abc import Iterator

import numpy as np

from headway.workload.request import Request, Segment

BYTES_PER_TOKEN = 4

_LEXICON = """
air all and ant any are arm art bag bar bat bed bee big bit bow box boy bus but can car cat cow cup cut dad
day did dog dry due ear eat egg end eye fan far fat few fit fix fly for fox fun gap gas get gun has hat hen
her him his hit hot how ice ink its job joy key kid lab law lay leg let lie lip log lot low mad man map mix
mom net new nor not now odd off oil old one our out own pay pen per pet pie pig pin pit pop pot put raw ray
red rid rob row rub run sad sat saw say sea see set she shy sir sit six sky son spy sum sun tax tea ten the
tie tip toe ton too top toy try two use van vet via war was way wet who why win wit won yes yet you zoo
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
