"""Runs laid out as policy x load x measure, each with its mean over seeds and its difference to a reference policy.

Pairs are made by seed, and a seed that one side lacks is left out of the difference. The bootstrap draws from a fixed
seed: the same results always print the same intervals.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from headway.report.measures import Measure, measures
from headway.workload.paired import FEW_SEEDS, Interval, mean_interval, paired_interval
from headway.workload.results import RunResult

USUAL_REFERENCE = "round_robin"


class Cell(msgspec.Struct, frozen=True):
    """One figure, None where a run had nothing to measure. `difference` is policy minus reference, None for the
    reference itself, without common seeds, or where one of the two has no figure.

    `verdict`: 1 surely better than the reference, -1 surely worse, 0 not told apart (or a figure without a good side).
    """

    mean: float | None
    difference: Interval | None
    verdict: int


class Board:
    """Looks results up and compares them; policies and loads keep the order in which they came."""

    def __init__(self, results: Sequence[RunResult], reference: str = "") -> None:
        self.policies = list(dict.fromkeys(result.policy for result in results))
        self.loads = sorted({result.load for result in results})
        self.seeds = len({result.seed for result in results})
        self.measures = measures(results)
        self.reference = reference or choose_reference(self.policies)
        if results and self.reference not in self.policies:
            raise ValueError(f"no run of the reference policy {self.reference!r}; there are {', '.join(self.policies)}")
        self._runs: dict[tuple[str, float], dict[int, RunResult]] = {}
        for result in results:
            self._runs.setdefault((result.policy, result.load), {})[result.seed] = result

    @property
    def few_seeds(self) -> bool:
        """Whether there are too few seeds for intervals to be believed."""
        return self.seeds < FEW_SEEDS

    def runs(self, policy: str, load: float) -> list[RunResult]:
        """The runs of one policy at one load, by seed."""
        return [run for _, run in sorted(self._runs.get((policy, load), {}).items())]

    def has(self, policy: str, load: float) -> bool:
        """Whether this point was run."""
        return (policy, load) in self._runs

    def mean(self, policy: str, load: float, measure: Measure) -> float | None:
        """Over seeds; None where one of them had nothing to measure. Raises KeyError where nothing was run."""
        values = _known([measure.read(run) for run in self._runs[policy, load].values()])
        return float(np.mean(values)) if values is not None else None

    def cell(self, policy: str, load: float, measure: Measure) -> Cell:
        """One figure with its comparison. Raises KeyError where nothing was run."""
        mean = self.mean(policy, load, measure)
        difference = None if policy == self.reference else self.difference(policy, load, measure)
        return Cell(mean, difference, difference.sign * measure.better if difference else 0)

    def difference(self, policy: str, load: float, measure: Measure) -> Interval | None:
        """Policy minus reference, paired by seed; None without common seeds, or where one of them has no figure."""
        mine, theirs = self._runs.get((policy, load), {}), self._runs.get((self.reference, load), {})
        common = sorted(mine.keys() & theirs.keys())
        if not common:
            return None
        ours, others = (_known([measure.read(runs[seed]) for seed in common]) for runs in (mine, theirs))
        if ours is None or others is None:
            return None
        return paired_interval(ours, others, np.random.default_rng(0))

    def band(self, policy: str, load: float, measure: Measure) -> Interval:
        """The mean over seeds with its own interval, for plots of one policy beside others. Raises ValueError where
        there is none."""
        values = _known([measure.read(run) for run in self.runs(policy, load)])
        return mean_interval(values or (), np.random.default_rng(0))

    def ratio(self, policy: str, load: float) -> float | None:
        """Good requests as a multiple of the reference's, over common seeds; None where that has none."""
        mine, theirs = self._runs.get((policy, load), {}), self._runs.get((self.reference, load), {})
        common = mine.keys() & theirs.keys()
        base = sum(theirs[seed].good_share for seed in common)
        return sum(mine[seed].good_share for seed in common) / base if base else None

    def best(self, load: float, measure: Measure) -> float | None:
        """The best mean of a measure at a load; None where none is better or all are equal."""
        means = {self.mean(policy, load, measure) for policy in self.policies if self.has(policy, load)}
        known = [mean for mean in means if mean is not None]
        if not measure.better or len(means) < 2 or not known:
            return None
        return max(known) if measure.better > 0 else min(known)


def _known(values: Sequence[float | None]) -> list[float] | None:
    """The values, if there is one of each run."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def choose_reference(policies: Sequence[str]) -> str:
    """Round robin where it ran, because everybody knows it; else the first policy."""
    return USUAL_REFERENCE if USUAL_REFERENCE in policies else next(iter(policies), "")
