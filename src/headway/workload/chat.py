"""Generated sessions of several turns whose prompts grow, opened by shared system prompts, in mixes of shapes.

Where the numbers of CHAT come from: the lengths are fitted so that whole prompts and outputs have the median and the
90th percentile of the Azure LLM inference trace 2023, "conv" (prompts 1020 and 2734 tokens, outputs 129 and 424; the
longest output there is 1000). DOCUMENTS takes prompts from the arXiv summarisation lengths published with Vidur (2730
and 3702 tokens, outputs 167 and 372). No public trace tells how a prompt splits into system prompt, history and new
words, nor how long people think; the splits, 3 turns and 8 s of thought are our assumptions.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from headway.workload.arrivals import STEADY, Profile, following
from headway.workload.request import Request, Segment

_Z90 = 1.2816
"""The standard normal's 90th percentile."""
_SESSION_KEYS = 1 << 40
"""Keys of the segments of sessions start here: 2^20 for each, 2^28 sessions."""


class LogNormal(msgspec.Struct, frozen=True):
    """A log-normal law by its median and 90th percentile; values are clipped to [low, high]."""

    median: float
    p90: float
    low: int = 1
    high: int = 1_000_000

    def draw(self, rng: np.random.Generator) -> int:
        """One value, in tokens."""
        return min(self.high, max(self.low, round(self.draw_exactly(rng))))

    def draw_exactly(self, rng: np.random.Generator) -> float:
        """One value, neither rounded nor clipped."""
        return rng.lognormal(math.log(self.median), math.log(self.p90 / self.median) / _Z90)


class Shape(msgspec.Struct, frozen=True):
    """One kind of session. `systems` system prompts of `system_tokens` are shared by all its sessions, popular ones
    more (Zipf with exponent 1). `opening` is what the first turn adds to the system prompt, `words` each later turn.
    Turns are geometric with mean `turns`; between the end of one answer (at `answer_s_per_token`) and the next turn
    lies a think time: exponential with mean `think_s`, or `thinking` (in seconds) where that is given.
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
    thinking: LogNormal | None = None

    def pause_s(self, answer_tokens: int, rng: np.random.Generator) -> float:
        """From one turn's arrival to the next's."""
        law = self.thinking
        think_s = rng.exponential(self.think_s) if law is None else min(law.high, law.draw_exactly(rng))
        return answer_tokens * self.answer_s_per_token + think_s


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
    starts (coefficient of variation of their gaps; 1 is Poisson), the longest prompt plus output allowed, and how the
    rate of session starts changes with time.

    A session ends when its next turn would be longer, so a small limit makes fewer requests than `rate`.
    """

    rate: float
    duration_s: float
    shapes: tuple[Shape, ...] = (CHAT,)
    cv: float = 1.0
    max_tokens: int = 32_768
    profile: Profile = STEADY


def generate(spec: ChatSpec, rng: np.random.Generator) -> list[Request]:
    """Requests of [0, duration_s), by arrival.

    Time is a ring: turns that lie behind the end come in at the start, as sessions in mid-talk with their history in
    the prompt. So the load is steady from the first second, as at a fleet that was just restarted.
    """
    weights = np.array([shape.weight for shape in spec.shapes])
    weights = weights / weights.sum()
    mean_turns = float(sum(w * shape.turns for w, shape in zip(weights, spec.shapes, strict=True)))
    starts = following(spec.profile, spec.rate / mean_turns, spec.cv, 0.0, spec.duration_s, rng)
    kinds = rng.choice(len(weights), size=len(starts), p=weights)
    requests: list[Request] = []
    for number, (start_s, at) in enumerate(zip(starts.tolist(), kinds.tolist(), strict=True)):
        requests.extend(_session(spec, at, number, start_s, rng))
    return sorted(requests, key=lambda request: request.arrival_s)


def _session(spec: ChatSpec, at: int, number: int, start_s: float, rng: np.random.Generator) -> Iterator[Request]:
    """The turns of one conversation. Keys: system prompts below _SESSION_KEYS, then one range per session."""
    shape = spec.shapes[at]
    keys = iter(range(_SESSION_KEYS + (number << 20), _SESSION_KEYS + ((number + 1) << 20)))
    system = [Segment((at << 20) + _zipf(shape.systems, rng), shape.system_tokens, "system")]
    segments = system if shape.system_tokens else []
    shared, lap, arrival_s = len(segments), 0, start_s
    for turn in range(int(rng.geometric(1 / max(1.0, shape.turns)))):
        behind, when_s = divmod(arrival_s, spec.duration_s)
        if behind > lap:
            lap = int(behind)
            segments = [*segments[:shared], *(Segment(next(keys), old.tokens, old.role) for old in segments[shared:])]
        words, output = (shape.words if turn else shape.opening).draw(rng), shape.output.draw(rng)
        left = spec.max_tokens - output - _tokens(segments)
        if turn and words > left:
            return
        segments = [*segments, Segment(next(keys), max(1, min(words, left)), "user")]
        name = f"{shape.name}-{number}~{lap}" if lap else f"{shape.name}-{number}"
        yield Request(when_s, tuple(segments), output, name, turn, shape.name)
        segments.append(Segment(next(keys), output, "assistant"))
        arrival_s += shape.pause_s(output, rng)


def _tokens(segments: Sequence[Segment]) -> int:
    return sum(segment.tokens for segment in segments)


def _zipf(count: int, rng: np.random.Generator) -> int:
    weights = 1.0 / np.arange(1, count + 1)
    return int(rng.choice(count, p=weights / weights.sum()))
