"""Which level of degradation a fleet would be at, under growing load: does a harmless load raise one?

    python benchmarks/levels.py --trace azure_llm_2023_conv.csv.gz [--policy headroom] [--loads .7,.9,1.0,1.2,1.5,2.0]

`memory` is the mean over replicas of the 95 % bound of the forecast peak over capacity, each second; `saturation` what
levels are moved by, of which memory is only a part where requests are held. Four replicas of 60,000 KV tokens, 240
seconds, one seed. docs/decisions/0011 has the table.
"""

import argparse
import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np

from headway.compose.simulate import MakeBrain
from headway.compose.simulation import checked, sweep
from headway.core.brain import Brain
from headway.core.commands import Command, LevelChanged, Record
from headway.core.constants import DegradeConfig
from headway.core.events import Event, TimerFired
from headway.core.snapshot import FleetSnapshot
from headway.sim.measure import summarize
from headway.sim.run import play
from headway.sim.sweep import arrivals, prepared

SECONDS = 240.0
POOL = {"count": 4, "kv_tokens": 60_000}


class Watch:
    """Looks at a brain once a second, when it looks itself."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._brain: Brain
        self.memory: list[float] = []
        self.saturation: list[float] = []
        self.changes: list[LevelChanged] = []

    def make(self, seed: int) -> Brain:
        """The brain to be watched."""
        self._brain = MakeBrain(self._policy)(seed)
        return self._brain

    def note(self, event: Event, commands: list[Command]) -> None:
        """As a journal of the run."""
        entries = [command.entry for command in commands if isinstance(command, Record)]
        self.changes += [entry for entry in entries if isinstance(entry, LevelChanged)]
        if isinstance(event, TimerFired) and event.timer == "degrade:":
            snapshot = self._brain.snapshot(event.at)
            self.memory.append(memory(snapshot))
            self.saturation.append(snapshot.pools[0].saturation)

    def seconds_at(self, level: int, until: float) -> float:
        """How long the pool was at a level."""
        moments = [(0.0, 0), *((change.at, change.level) for change in self.changes), (until, 0)]
        return sum(end - at for (at, here), (end, _) in itertools.pairwise(moments) if here == level)


def memory(snapshot: FleetSnapshot) -> float:
    """How full pools will be."""
    z = DegradeConfig().memory_z
    return statistics.fmean((v.peak_mean + z * math.sqrt(v.peak_var)) / v.kv_capacity_tokens for v in snapshot.views)


def row(trace: str, policy: str, load: float) -> str:
    """One line of the table."""
    wanted = {"trace": trace, "duration_s": SECONDS, "loads": [load], "seeds": 1, "policies": [policy], "pools": [POOL]}
    made = prepared(sweep(checked(wanted)))
    watch = Watch(policy)
    columns, brain_s = play(made.scenario, arrivals(made, 0, 0).requests, watch.make, 0, journal=watch.note)
    result = summarize(columns, SECONDS, made.scenario, policy, load, 0, brain_s, False).result
    end = max(SECONDS, watch.changes[-1].at if watch.changes else 0.0)
    full = float(np.mean(np.array(watch.memory) >= DegradeConfig().bounds[1]))
    middle, high = quantiles(watch.saturation)
    one, two = (watch.seconds_at(level, end) for level in (1, 2))
    good = result.good_share
    return f"| {load:g} | {good:.3f} | {full:.2f} | {middle:.2f} | {high:.2f} | {one:.0f} s | {two:.0f} s |"


def quantiles(values: Sequence[float]) -> tuple[float, float]:
    """Middle and 90th percentile."""
    return float(np.quantile(values, 0.5)), float(np.quantile(values, 0.9))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--policy", default="headroom")
    parser.add_argument("--loads", default=".7,.9,1.0,1.2,1.5,2.0")
    chosen = parser.parse_args()
    print("| load | served well | memory >= .90 | saturation p50 | p90 | level 1 | level 2 |")
    print("|---|---|---|---|---|---|---|")
    for load in chosen.loads.split(","):
        print(row(chosen.trace, chosen.policy, float(load)), flush=True)


if __name__ == "__main__":
    main()
