"""Fit the shared constants of the step model to AIConfigurator's points, and say how well it does on what it never saw.

    python benchmarks/perfmodel_calibrate.py --data DIR [--folds 5] [--processes 2]

The groups (model and card) are dealt into folds; for each, the constants are fitted on a sample of all other groups and
every point of the fold is predicted. Fits start from START: what kernel tables say, Blackwell taken for Hopper, round
figures for the rest. A last fit, on all groups, prints the constants that `headway.perfmodel.calibration` and `service`
carry. Gauss-Newton on the logarithms of TPOT and TTFT errors, outliers damped; about two minutes of CPU time.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from perfmodel_silicon import Point, Settings, points, summary, told

from headway.perfmodel.calibration import Coefficients, Efficiency
from headway.perfmodel.service import ApiCost

Floats = npt.NDArray[np.float64]

TIGHT, LOOSE = 0.1, 0.7
"""How far (in logarithms, one standard deviation) a constant may leave its start: kernel tables say it, or nothing."""

HOPPER = Efficiency(
    weights=0.84,
    kv=0.84,
    attention=0.55,
    flops={"bfloat16": 0.79, "fp8": 0.60, "int8": 0.60, "unpacked": 0.60},
    launch_s={"bfloat16": 3.3e-6, "fp8": 6.7e-6, "int8": 6.7e-6, "unpacked": 3.3e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.31, "int8": 0.31, "unpacked": 0.31},
)
"""Medians of AIConfigurator's H100 and H200 tables of vLLM 0.24 (docs/perfmodel.md says how)."""

BLACKWELL_LAUNCH = {"bfloat16": 3.3e-6, "fp8": 6.7e-6, "fp4": 6.7e-6, "int8": 6.7e-6, "unpacked": 3.3e-6}
BLACKWELL_EXPERTS = {"bfloat16": 0.65, "fp8": 0.31, "fp4": 0.31, "int8": 0.31, "unpacked": 0.31}

FREE: tuple[tuple[str, float], ...] = (
    ("coefficients base_s", LOOSE),
    ("coefficients per_sequence_s", LOOSE),
    ("coefficients per_layer_s", LOOSE),
    ("coefficients eager_layer_s", LOOSE),
    ("coefficients sync_s", LOOSE),
    ("coefficients expert_skew", LOOSE),
    ("api base_s", LOOSE),
    ("api serial_s", LOOSE),
    ("hopper weights", TIGHT),
    ("hopper kv", TIGHT),
    ("hopper flops bfloat16", TIGHT),
    ("hopper flops fp8", TIGHT),
    ("hopper expert_flops unpacked", LOOSE),
    ("hopper expert_s", TIGHT),
    ("blackwell weights", TIGHT),
    ("blackwell kv", TIGHT),
    ("blackwell flops fp8", LOOSE),
    ("blackwell flops fp4", LOOSE),
    ("blackwell expert_flops fp8", LOOSE),
    ("blackwell expert_flops fp4", LOOSE),
    ("blackwell expert_flops unpacked", LOOSE),
    ("blackwell expert_weights", TIGHT),
    ("blackwell expert_s", LOOSE),
    ("blackwell distinct_s", LOOSE),
)
"""What is fitted: a field of Settings, and its freedom."""

START = Settings(
    Coefficients(base_s=0.5e-3, per_sequence_s=6e-6, per_layer_s=20e-6, eager_layer_s=0.2e-3, sync_s=5e-6),
    {
        "hopper": HOPPER,
        "blackwell": msgspec.structs.replace(
            HOPPER, flops=HOPPER.flops | {"fp4": 0.5}, launch_s=BLACKWELL_LAUNCH, expert_flops=BLACKWELL_EXPERTS
        ),
    },
    ApiCost(0.015, 5e-3, 1.6e-6),
)

SAMPLE = 100
ROUNDS = 5
PER_CLIENT = 3
LARGEST = 64
TTFT_WEIGHT = 0.4
DAMPING = 0.1
SHARE_LIMIT = 0.95


def settings(factors: Floats) -> Settings:
    """The start with its free constants multiplied; shares of a rate stay below SHARE_LIMIT."""
    raw = msgspec.to_builtins(START)
    for (path, _freedom), factor in zip(FREE, np.exp(factors).tolist(), strict=True):
        words = path.split()
        node = raw["efficiencies"] if words[0] in raw["efficiencies"] else raw
        for word in words[:-1]:
            node = node[word]
        value = node[words[-1]] * factor
        node[words[-1]] = (
            value if words[0] in ("coefficients", "api") or words[-1].endswith("_s") else min(SHARE_LIMIT, value)
        )
    return msgspec.convert(raw, Settings)


def residuals(rows: list[Point], tried: Settings, per_client: int = PER_CLIENT) -> Floats:
    """Logarithms of told over measured: every TPOT, then every TTFT."""
    results = np.array([told(point, tried, per_client) for point in rows])
    measured = np.array([(point.ttft, point.tpot) for point in rows])
    errors = np.log(results / measured)
    return np.concatenate([errors[:, 1], TTFT_WEIGHT * errors[:, 0]])


def sample(rows: list[Point]) -> list[Point]:
    """Points spread over everything, without the largest batches (they cost the most to replay)."""
    small = [point for point in rows if point.concurrency <= LARGEST]
    return small[:: max(1, len(small) // SAMPLE)]


def slopes(rows: list[Point], spread: Executor) -> Floats:
    """Derivatives of the residuals by the free constants, at the start: they know nothing of what was measured."""
    tried = [np.zeros(len(FREE)), *(0.2 * np.eye(len(FREE)))]
    found = list(spread.map(residuals, [rows] * len(tried), [settings(one) for one in tried]))
    return np.array([(one - found[0]) / 0.2 for one in found[1:]]).T


def fit(rows: list[Point], slope: Floats) -> Settings:
    """Gauss-Newton with a prior at the start and fixed slopes."""
    prior = (DAMPING / np.array([freedom for _path, freedom in FREE])) ** 2
    x = np.zeros(len(FREE))
    for _round in range(ROUNDS):
        error = residuals(rows, settings(x))
        weight = 1 / np.sqrt(1 + (error / DAMPING) ** 2)
        normal = slope.T @ (weight[:, None] * slope) + np.diag(prior)
        x = x + np.clip(np.linalg.solve(normal, -slope.T @ (weight * error) - prior * x), -0.5, 0.5)
    return settings(x)


def deal(rows: list[Point], folds: int) -> list[list[tuple[str, str]]]:
    """Groups dealt in turn by name, so that the cards of a model fall into different folds."""
    groups = sorted({point.group for point in rows})
    return [groups[number::folds] for number in range(folds)]


def report(rows: list[Point], found: Settings, spread: Executor, say: Callable[[str], None], name: str) -> None:
    """One line per group, and one for the fold."""
    results = list(spread.map(told, rows, [found] * len(rows), chunksize=8))
    errors = [(tpot / p.tpot - 1, ttft / p.ttft - 1) for p, (ttft, tpot) in zip(rows, results, strict=True)]
    lines = {
        group: [e for p, e in zip(rows, errors, strict=True) if p.group == group] for group in {p.group for p in rows}
    }
    for what, some in [*sorted(lines.items()), (("all", ""), errors)]:
        tpot, ttft = (summary(error[part] for error in some) for part in (0, 1))
        cells = f"{tpot[0]:+.1%} | {tpot[1]:.1%} | {ttft[0]:+.1%} | {ttft[1]:.1%}"
        say(f"| {name} | {' on '.join(what).removesuffix(' on ')} | {len(some)} | {cells} |")


def main() -> None:
    """Print the table of folds and the constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    rows = points(options.data / "aiconfigurator" / "silicon_sample.csv.gz")
    print("| fold | group | points | TPOT error | absolute | TTFT error | absolute |\n|---|---|---|---|---|---|---|")
    chosen = sample(rows)
    with ProcessPoolExecutor(options.processes) as spread:
        slope = slopes(chosen, spread)
        folds = deal(rows, options.folds) if options.folds else []
        tasks = [[point.group not in held for point in chosen] for held in folds] + [[True] * len(chosen)]
        kept = [[point for point, keep in zip(chosen, mask, strict=True) if keep] for mask in tasks]
        found = list(spread.map(fit, kept, [slope[mask + mask] for mask in tasks]))
        for number, (held, one) in enumerate(zip(folds, found, strict=False)):
            report([p for p in rows if p.group in held], one, spread, print, str(number + 1))
        report(rows, found[-1], spread, print, "in sample")
    print(json.dumps(msgspec.to_builtins(found[-1]), indent=1))


if __name__ == "__main__":
    main()
