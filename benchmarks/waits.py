"""How true it is what those who wait are told of their wait, in the simulator: two small replicas, too much to do.

    python benchmarks/waits.py                       # 1.1, 2.35, 5 times the load for 60 s, three seeds: 10 s
    python benchmarks/waits.py --loads 2.35 --brain '{admission: {queue_timeout_s: 4}}'

Fleet and requests are those of benchmarks/in_vain.py. Three forecasts are held against what happened: what a request
was told when it began to wait, what everybody who waits is told each second (`/fleet`, `103 Early Hints`), and what the
model's gauge says a newcomer must expect, against the mean of those who came within that second. Whoever is refused, at
once or while it waits, counts as one who waited as long as it may. `early`: in the first 20 s.
"""

import argparse
import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from in_vain import FLEET, requests

from headway.compose.simulate import contender
from headway.core.commands import Command, Dispatch, Hold, LevelChanged, Record, Reject
from headway.core.constants import BrainConfig
from headway.core.events import Event, RequestArrived, TimerFired
from headway.sim.run import play
from headway.sim.scenario import Scenario, Truth

EARLY_S = 20.0
HEAD = "| load | forecast | n | waited, mean s | told, mean s | error p50 s | error, mean s |\n|---" + "|---" * 6 + "|"


class Watch:
    """What was told, and what happened."""

    def __init__(self, config: BrainConfig, until: float) -> None:
        self._make = contender("headroom", config).make_brain
        self._until = until
        self._most = config.admission.queue_timeout_s
        self._served: set[str] = set()
        self._brain: Any
        self.came: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.held: dict[str, float] = {}
        self.hints: list[tuple[str, float, float]] = []
        self.gauge: list[tuple[float, float]] = []
        self.levels: list[tuple[float, int]] = []
        self.retry_after_s = 0.0

    def make(self, seed: int) -> Any:
        """The brain to be watched."""
        self._brain = self._make(seed)
        return self._brain

    def note(self, event: Event, commands: list[Command]) -> None:
        """What the brain heard and said."""
        if isinstance(event, RequestArrived):
            self.came[event.request.id] = event.at
        for each in commands:
            if isinstance(each, Hold):
                self.held.setdefault(each.request_id, each.wait_s)
            elif isinstance(each, Dispatch | Reject):
                self.ended.setdefault(each.request_id, event.at)
                if isinstance(each, Dispatch):
                    self._served.add(each.request_id)
                else:
                    self.retry_after_s = max(self.retry_after_s, each.retry_after_s)
            elif isinstance(each, Record) and isinstance(each.entry, LevelChanged):
                self.levels.append((event.at, each.entry.level))
        if isinstance(event, TimerFired) and event.timer == "degrade:" and event.at < self._until:
            shown = self._brain.snapshot(event.at)
            self.gauge.append((event.at, shown.pools[0].expected_wait_s))
            self.hints += [(held.request_id, event.at, held.expected_wait_s) for held in shown.held]

    def told(self) -> list[tuple[float, float]]:
        """Told, and waited, of all who began to wait."""
        return [
            (wait, self._waited(name, self.came[name]))
            for name, wait in self.held.items()
            if self.came[name] < self._until and name in self.ended
        ]

    def hinted(self) -> list[tuple[float, float]]:
        """The same of those who waited, each second."""
        return [(wait, self._waited(name, at)) for name, at, wait in self.hints if name in self.ended]

    def _waited(self, name: str, at: float) -> float:
        """How long one had to wait from then on."""
        return self.ended[name] - at if name in self._served else self.came[name] + self._most - at

    def expected(self, until: float) -> list[tuple[float, float]]:
        """The gauge, and what those who came in the next second waited."""
        waited = [
            (at, self._waited(name, at))
            for name, at in sorted(self.came.items(), key=lambda item: item[1])
            if name in self.ended
        ]
        times = [at for at, _ in waited]
        found = []
        for at, wait in self.gauge:
            near = waited[bisect.bisect_left(times, at) : bisect.bisect_left(times, at + 1.0)]
            if near and at < until:
                found.append((wait, float(np.mean([each for _, each in near]))))
        return found


def row(load: float, name: str, pairs: Sequence[tuple[float, float]]) -> str:
    """One forecast at one load."""
    told, waited = np.array(pairs).T
    error = np.abs(told - waited)
    cells = (np.mean(waited), np.mean(told), np.median(error), np.mean(error))
    return f"| {load:g} | {name} | {len(told)} | {' | '.join(f'{cell:.2f}' for cell in cells)} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="1.1,2.35,5")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--brain", default="{}", help="constants, as `brain:` takes them")
    return parser


def main() -> None:
    """Three rows per load."""
    options = _parser().parse_args()
    config = msgspec.yaml.decode(options.brain, type=BrainConfig)
    print(HEAD)
    first: list[str] = []
    for load in map(float, options.loads.split(",")):
        watches = []
        for seed in range(1, options.seeds + 1):
            watch = Watch(config, options.seconds)
            asked = list(requests(load, options.seconds, seed))
            play(Scenario(FLEET, Truth(perturb=0.1)), asked, watch.make, seed, None, watch.note)
            watches.append(watch)
            moves = ", ".join(f"{level} at {at:.0f} s" for at, level in watch.levels[:4]) or "none"
            last = f"{watch.retry_after_s:.0f} s"
            first.append(f"load {load:g}, seed {seed}: longest Retry-After {last}; levels {moves}")
        for name, pairs in (
            ("as it begins to wait", [watch.told() for watch in watches]),
            ("each second", [watch.hinted() for watch in watches]),
            ("gauge", [watch.expected(math.inf) for watch in watches]),
            ("gauge, early", [watch.expected(EARLY_S) for watch in watches]),
        ):
            print(row(load, name, list(itertools.chain.from_iterable(pairs))), flush=True)
    print("\n" + "\n".join(first))


if __name__ == "__main__":
    main()
