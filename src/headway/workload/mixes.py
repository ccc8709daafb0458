"""Generated workloads by name: what sessions look like (`chat.Shape`) and how their arrivals go (`arrivals.Profile`).

Lengths come from public traces where one says (docs/workloads.md); what no trace tells is called an assumption:

- CODE: completion in an editor. Prompts and outputs have median and 90th percentile of the Azure trace 2023, "code"
  (1469 and 5188 tokens, 13 and 55; longest 7437 and 1899). Assumption: 512 tokens are shared by the users of one of 32
  repositories.
- REASONING: median and 90th percentile of ServeGen's deepseek-r1 (208 and 2092 tokens, 792 and 3432; longest output
  32768), one turn, nothing shared, because the data set tells of neither.
- AGENTS: tool use in a loop. Outputs (248 and 1477), think times (1.8 s and 71 s) and what a turn adds beyond the last
  answer (939 at the 90th percentile) are those of Claude Code sessions; 25 turns lie between the medians of LMCache's
  three agent suites (20 to 33). Assumptions: 4 kinds of agent with a system prompt of 3000 tokens (one eighth of
  Claude Code's first prompts), and no pause over two minutes.
"""

from collections.abc import Mapping

import msgspec
import numpy as np

from headway.workload.arrivals import STEADY, Profile
from headway.workload.burstgpt import HOURS
from headway.workload.chat import CHAT, DOCUMENTS, ChatSpec, LogNormal, Shape, generate
from headway.workload.request import Workload

CODE = Shape(
    name="code",
    weight=1.0,
    opening=LogNormal(957, 4676, high=6925),
    words=LogNormal(70, 350),
    output=LogNormal(13, 55, high=1899),
    systems=32,
    system_tokens=512,
    turns=1.0,
)
REASONING = Shape(
    name="reasoning",
    weight=1.0,
    opening=LogNormal(208, 2092),
    words=LogNormal(70, 350),
    output=LogNormal(792, 3432, high=32_768),
    system_tokens=0,
    turns=1.0,
)
AGENTS = Shape(
    name="agents",
    weight=1.0,
    opening=LogNormal(250, 1000, high=12_000),
    words=LogNormal(150, 939, high=12_000),
    output=LogNormal(248, 1477, high=8000),
    systems=4,
    system_tokens=3000,
    turns=25.0,
    thinking=LogNormal(1.8, 71.0, low=0, high=120),
)
BURSTS = Profile(10.0, (5.0, 0.2, 0.2, 0.2, 0.2, 0.2))
"""Ten seconds of every minute bring five times the mean rate, the other fifty a fifth of it. An assumption."""


class Mix(msgspec.Struct, frozen=True):
    """Shapes of sessions, how their starts go, and whether the profile is stretched to fill the whole duration."""

    shapes: tuple[Shape, ...]
    profile: Profile = STEADY
    stretched: bool = False


MIXES: Mapping[str, Mix] = {
    "chat": Mix((CHAT,)),
    "documents": Mix((DOCUMENTS,)),
    "code": Mix((CODE,)),
    "reasoning": Mix((REASONING,)),
    "agents": Mix((AGENTS,)),
    "bursts": Mix((CHAT,), BURSTS),
    "diurnal": Mix((CHAT,), Profile(3600.0, HOURS), stretched=True),
}


def generated(
    name: str, rate: float, duration_s: float, rng: np.random.Generator, cv: float = 1.0, max_tokens: int = 32_768
) -> Workload:
    """The named mix at `rate` requests/s on average. `diurnal` puts one day's profile into duration_s: the rate moves
    faster than on a real day then, sessions and think times do not. Raises KeyError for an unknown name."""
    mix = MIXES[name]
    step_s = duration_s / len(mix.profile.weights) if mix.stretched else mix.profile.step_s
    profile = Profile(step_s, mix.profile.weights)
    requests = generate(ChatSpec(rate, duration_s, mix.shapes, cv, max_tokens, profile), rng)
    how = f"generated: {name}, {rate:g} requests/s asked for, gaps of session starts with coefficient {cv:g}"
    return Workload(name, requests, duration_s, (how,))
