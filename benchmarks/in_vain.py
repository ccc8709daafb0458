"""How long those wait who are refused, in the simulator: two small replicas, more than they can do, then less.

    python benchmarks/in_vain.py                       # five times the load for 300 s, three seeds: a minute
    python benchmarks/in_vain.py --hopeless 0          # with nobody told early
    python benchmarks/in_vain.py --load 1.1 --seconds 120

The replicas and the requests are those of benchmarks/pressure.py (A10, 4,096 KV tokens; prompts of 60 to 180 tokens,
answers of 115 on average), where memory is what runs out; load 1 is its 9 requests per second. 40 s of .6 follow.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headway.compose.simulate import contender
from headway.core.commands import Command, Reject
from headway.core.constants import AdmissionConfig, BrainConfig
from headway.core.events import Event, RequestArrived
from headway.sim.columns import OK
from headway.sim.run import play
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.request import Request, Segment

FULL_RPS = 9.0
AFTER, AFTER_S = 0.6, 40.0
FLEET = (PoolSpec(2, "llama-3.1-8b", "a10-24gb", kv_tokens=4096),)


def requests(load: float, seconds: float, seed: int) -> Iterator[Request]:
    """A Poisson process that changes its rate once."""
    chance = np.random.default_rng([seed, 5])
    at = end = 0.0
    key = 0
    for rate, lasts in ((load, seconds), (AFTER, AFTER_S)):
        end += lasts
        while (at := at + chance.exponential(1.0 / (rate * FULL_RPS))) < end:
            key += 1
            prompt = Segment(key, int(chance.integers(60, 181)))
            yield Request(at, (prompt,), int(min(512, 1 + chance.exponential(115))))
        at = end


class Refusals:
    """How long everybody had waited who was refused."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._arrived: dict[str, float] = {}
        self.waits: list[float] = []

    def note(self, event: Event, commands: list[Command]) -> None:
        """What the brain heard and said."""
        if isinstance(event, RequestArrived):
            self._arrived[event.request.id] = event.at
        for each in commands:
            if isinstance(each, Reject) and (at := self._arrived[each.request_id]) < self._until:
                self.waits.append(event.at - at)


def measured(load: float, seconds: float, seed: int, hopeless: float) -> NDArray[np.float64]:
    """Shares of those that came in the first part: refused, at once, after 29 s; mean wait; good per second."""
    asked, refusals = list(requests(load, seconds, seed)), Refusals(seconds)
    scenario = Scenario(FLEET, Truth(perturb=0.1))
    config = BrainConfig(admission=AdmissionConfig(hopeless=hopeless))
    columns, _ = play(scenario, asked, contender("headroom", config).make_brain, seed, None, refusals.note)
    arrival, first, last = (np.array(each) for each in (columns.arrival, columns.first, columns.last))
    counted, output, slo = arrival < seconds, np.array(columns.output), scenario.slo
    with np.errstate(invalid="ignore"):
        timely = first - arrival <= slo.ttft_s + slo.ttft_per_prompt_token_s * np.array(columns.prompt)
        paced = (output <= 1) | ((last - first) / np.maximum(1, output - 1) <= slo.tpot_s)
    good = (np.array(columns.fate) == OK) & timely & paced & counted
    waits, count = np.array(refusals.waits), int(counted.sum())
    shares = (len(waits) / count, (waits < 0.01).sum() / count, (waits >= 29.0).sum() / count)
    return np.array([*shares, waits.mean() if len(waits) else 0.0, good.sum() / seconds])


def main() -> None:
    """A row per seed, and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hopeless", type=float, default=AdmissionConfig().hopeless)
    options = parser.parse_args()
    print("| seed | refused | at once | after 29 s or more | their mean wait s | good/s |\n|---|---|---|---|---|---|")
    rows = [measured(options.load, options.seconds, n, options.hopeless) for n in range(1, options.seeds + 1)]
    for name, row in [*((str(n), row) for n, row in enumerate(rows, start=1)), ("mean", np.mean(rows, axis=0))]:
        print(f"| {name} | {row[0]:.1%} | {row[1]:.1%} | {row[2]:.1%} | {row[3]:.1f} | {row[4]:.2f} |")


if __name__ == "__main__":
    main()
