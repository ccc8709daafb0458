"""Generated chat: sessions of several turns whose prompts grow, opened by shared system prompts, in mixes of shapes.

Where the numbers of CHAT come from: the lengths are fitted so that whole prompts and outputs have the median and the
90th percentile of the Azure LLM inference trace 2023, "conv" (prompts 1020 and 2734 tokens, outputs 129 and 424; the
longest output there is 1000). DOCUMENTS takes prompts from the arXiv summarisation lengths published with Vidur (2730
and 3702 tokens, outputs 167 and 372). No public trace tells how a prompt splits into system prompt, history and new
words, nor how long people think; the splits, 3 turns and 8 s of thought are our assumptions.
"""

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from headway.workload.arrivals import gamma
from headway.workload.request import Request, Segment

_Z90 = 1.2816
"""The standard normal's 90th percentile."""


class LogNormal(msgspec.Struct, frozen=True):
    """A log-normal law by its median and 90th percentile; values are clipped to [low, high]."""

    median: float
    p90: float
    low: int = 1
    high: int = 1_000_000

    def draw(self, rng: np.random.Generator) -> int:
        """One value, in tokens."""
        sigma = np.log(self.p90 / self.median) / _Z90
        return int(np.clip(round(float(rng.lognormal(np.log(self.median), sigma))), self.low, self.high))


class Shape(msgspec.Struct, frozen=True):
    """One kind of session. `systems` system prompts of `system_tokens` are shared by all its sessions, popular ones
    more (Zipf with exponent 1). `opening` is what the first turn adds to the system prompt, `words` each later turn.
    Turns are geometric with mean `turns`; between the end of one answer (at `answer_s_per_token`) and the next turn
    lies an exponential think time.
    """

    name: str
    weight: float
    opening: LogNormal
    words: LogNormal
    output: LogNormal
    systems: int = 8
    system_tokens: int = 256
    turns: float = 3.0
    think_s: float = 8.0
    answer_s_per_token: float = 0.02


CHAT = Shape(
    name="chat",
    weight=1.0,
    opening=LogNormal(250, 1000, low=8, high=12_000),
    words=LogNormal(70, 350, low=4, high=4_000),
    output=LogNormal(129, 424, high=1000),
)
DOCUMENTS = Shape(
    name="documents",
    weight=1.0,
    opening=LogNormal(2474, 3446, low=512, high=32_000),
    words=LogNormal(60, 200, low=4, high=2_000),
    output=LogNormal(167, 372, high=1000),
    turns=1.0,
)


class ChatSpec(msgspec.Struct, frozen=True):
    """A whole workload: requests/s on average, seconds, shapes by weight (share of sessions), burstiness of session
    starts (coefficient of variation of their gaps; 1 is Poisson), and the longest prompt plus output allowed.

    A session ends when its next turn would be longer, so a small limit makes fewer requests than `rate`.
    """

    rate: float
    duration_s: float
    shapes: tuple[Shape, ...] = (CHAT,)
    cv: float = 1.0
    max_tokens: int = 32_768


def generate(spec: ChatSpec, rng: np.random.Generator) -> list[Request]:
    """Requests of [0, duration_s), by arrival.

    Sessions start early enough that the load is steady from the first second; turns before 0 are left out, so some
    sessions come in mid-talk with their history in the prompt, as they would at a fleet that was just restarted.
    """
    weights = np.array([shape.weight for shape in spec.shapes])
    weights = weights / weights.sum()
    mean_turns = float(sum(w * shape.turns for w, shape in zip(weights, spec.shapes, strict=True)))
    ahead_s = max(_lifetime_s(shape) for shape in spec.shapes)
    starts = gamma(spec.rate / mean_turns, spec.cv, ahead_s + spec.duration_s, rng) - ahead_s
    requests: list[Request] = []
    for number, start in enumerate(starts):
        at = int(rng.choice(len(weights), p=weights))
        turns = _session(spec.shapes[at], at, number, float(start), spec.max_tokens, rng)
        requests.extend(request for request in turns if 0 <= request.arrival_s < spec.duration_s)
    return sorted(requests, key=lambda request: request.arrival_s)


def _lifetime_s(shape: Shape) -> float:
    """How long nearly every session (98 % of a geometric number of turns) of a shape lasts."""
    turns = 1.0 if shape.turns <= 1 else np.log(0.02) / np.log(1 - 1 / shape.turns)
    return float((turns - 1) * (shape.think_s + shape.output.median * shape.answer_s_per_token * 1.5))


def _session(
    shape: Shape, at: int, number: int, start_s: float, max_tokens: int, rng: np.random.Generator
) -> Iterator[Request]:
    """The turns of one conversation. Keys: system prompts first, then one range per session."""
    system = Segment((at << 20) + _zipf(shape.systems, rng), shape.system_tokens, "system")
    keys = iter(range((number + 1) << 32, (number + 2) << 32))
    segments: list[Segment] = [system] if shape.system_tokens else []
    arrival_s = start_s
    for turn in range(int(rng.geometric(1 / max(1.0, shape.turns)))):
        length = shape.words if turn else shape.opening
        segments.append(Segment(next(keys), length.draw(rng), "user"))
        output = shape.output.draw(rng)
        if _tokens(segments) + output > max_tokens and turn:
            return
        if turn == 0:
            segments[-1] = _cut(segments, max_tokens - output)
        yield Request(arrival_s, tuple(segments), output, f"{shape.name}-{number}", turn, shape.name)
        segments.append(Segment(next(keys), output, "assistant"))
        arrival_s += output * shape.answer_s_per_token + float(rng.exponential(shape.think_s))


def _tokens(segments: Sequence[Segment]) -> int:
    return sum(segment.tokens for segment in segments)


def _cut(segments: Sequence[Segment], limit: int) -> Segment:
    """The last segment, shortened so that the prompt stays within the limit."""
    last = segments[-1]
    over = max(0, _tokens(segments) - limit)
    return msgspec.structs.replace(last, tokens=max(1, last.tokens - over))


def _zipf(count: int, rng: np.random.Generator) -> int:
    weights = 1.0 / np.arange(1, count + 1)
    return int(rng.choice(count, p=weights / weights.sum()))
