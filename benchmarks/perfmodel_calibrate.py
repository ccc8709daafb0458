"""Fit the shared constants of the step model to AIConfigurator's points, and say how well it does on what it never saw.

    python benchmarks/perfmodel_calibrate.py --data DIR [--folds 5] [--processes 2] [--keep-dense]

The groups (model and card) are dealt into folds; for each, the constants are fitted on a sample of all other groups and
every point of the fold is predicted. Fits start from START: what kernel tables say, Blackwell taken for Hopper, round
figures for the rest. A last fit is on all groups. Gauss-Newton on the logarithms of TPOT and TTFT errors; every group
counts alike, and points far off count for little (Cauchy's loss): some are not what they say. Two to three minutes of
CPU time.

With --keep-dense only the last fit is made, from the constants that `headway.perfmodel.calibration` and `service` now
carry, and what dense models on Hopper feel stays as it is: simulations published with them can be repeated. The rest
that it prints is what the code carries for Blackwell, experts and 4-bit weights.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from missing import said
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
    flops={"bfloat16": 0.79, "fp8": 0.60, "fp8_block": 0.60, "int8": 0.60, "unpacked": 0.60},
    launch_s={"bfloat16": 3.3e-6, "fp8": 6.7e-6, "fp8_block": 6.7e-6, "int8": 6.7e-6, "unpacked": 3.3e-6},
    expert_flops={"bfloat16": 0.65, "fp8": 0.31, "fp8_block": 0.31, "int8": 0.31, "unpacked": 0.31},
)
"""Medians of AIConfigurator's H100 and H200 tables of vLLM 0.24 (docs/perfmodel.md says how). Routers: half of what
the cores beside the tensor cores can do."""

BLACKWELL = msgspec.structs.replace(
    HOPPER,
    kv_narrow=0.8,
    routers=0.017,
    flops=HOPPER.flops | {"fp4": 0.5},
    launch_s=HOPPER.launch_s | {"fp4": 6.7e-6},
    expert_flops=HOPPER.expert_flops | {"fp4": 0.31},
)
"""Hopper's, and round figures. Its engines read 8-bit caches with kernels made for them (no conversion on the way)."""

UNPACKED_PER_CORE = (989 / 132) / (2250 / 148)
"""Packed weights are multiplied by instructions that both generations have, at one rate per multiprocessor: so much of
Hopper's share is Blackwell's."""

FREE: tuple[tuple[str, float], ...] = (
    ("coefficients base_s", LOOSE),
    ("coefficients per_sequence_s", LOOSE),
    ("coefficients per_layer_s", LOOSE),
    ("coefficients eager_layer_s", LOOSE),
    ("coefficients sync_s", LOOSE),
    ("coefficients expert_skew", LOOSE),
    ("coefficients expert_moved", LOOSE),
    ("coefficients unpack_bytes_per_s", LOOSE),
    ("coefficients lag_s", LOOSE),
    ("coefficients lag_sequence_s", LOOSE),
    ("api base_s", LOOSE),
    ("api serial_s", LOOSE),
    ("hopper weights", TIGHT),
    ("hopper kv", TIGHT),
    ("hopper flops bfloat16", TIGHT),
    ("hopper flops fp8", TIGHT),
    ("hopper expert_flops unpacked", LOOSE),
    ("hopper expert_s", TIGHT),
    ("hopper kv_narrow", TIGHT),
    ("hopper routers", TIGHT),
    ("blackwell weights", TIGHT),
    ("blackwell kv", TIGHT),
    ("blackwell kv_narrow", TIGHT),
    ("blackwell attention", LOOSE),
    ("blackwell routers", LOOSE),
    ("blackwell flops bfloat16", TIGHT),
    ("blackwell flops fp8", LOOSE),
    ("blackwell flops fp8_block", LOOSE),
    ("blackwell flops fp4", LOOSE),
    ("blackwell launch_s bfloat16", TIGHT),
    ("blackwell launch_s fp8_block", LOOSE),
    ("blackwell expert_flops fp8_block", LOOSE),
    ("blackwell expert_flops fp4", LOOSE),
    ("blackwell expert_weights", TIGHT),
    ("blackwell expert_s", LOOSE),
    ("blackwell distinct_s", LOOSE),
    ("blackwell host", LOOSE),
    ("blackwell layer", LOOSE),
    ("blackwell eager", LOOSE),
    ("blackwell sync", LOOSE),
    ("blackwell_ultra eager", LOOSE),
)
"""What is fitted: a field of Settings, and its freedom."""

KEPT = FREE[:7] + FREE[10:16]
"""What dense models on Hopper feel in 16 and 8 bits with 16-bit caches, what the recorded run of a mixture on an RTX
PRO 6000 agrees with, and the server: kept under --keep-dense."""

START = Settings(
    Coefficients(
        base_s=0.5e-3,
        per_sequence_s=6e-6,
        per_layer_s=20e-6,
        eager_layer_s=0.2e-3,
        sync_s=5e-6,
        expert_skew=0.5,
        expert_moved=7.0,
        lag_s=0.5e-3,
        lag_sequence_s=6e-6,
        unpack_bytes_per_s=2e10,
    ),
    {"hopper": HOPPER, "blackwell": BLACKWELL, "blackwell_ultra": BLACKWELL},
    ApiCost(0.015, 5e-3, 1.6e-6),
)
"""`lag`: what the CPU does in a step is the same figure where it is hidden and where it is not."""

EACH = 12
ROUNDS = 7
PER_CLIENT = 3
TTFT_WEIGHT = 0.4
DAMPING = 0.1
SHARE_LIMIT = 0.95
FACTORS = ("host", "layer", "eager", "sync")


class Search(msgspec.Struct, frozen=True):
    """Where a fit starts, and what it may move."""

    start: Settings
    free: tuple[tuple[str, float], ...]

    def settings(self, factors: Floats) -> Settings:
        """The start with its free constants multiplied; shares of a rate stay below SHARE_LIMIT."""
        raw = msgspec.to_builtins(self.start)
        kinds = raw["efficiencies"]
        for (path, _freedom), factor in zip(self.free, np.exp(factors).tolist(), strict=True):
            words = path.split()
            node = kinds if words[0] in kinds else raw
            for word in words[:-1]:
                node = node[word]
            value = node[words[-1]] * factor
            whole = words[0] in ("coefficients", "api") or words[-1].endswith("_s") or "_s" in words[-2]
            node[words[-1]] = value if whole or words[-1] in FACTORS else min(SHARE_LIMIT, value)
        kinds["blackwell"]["expert_flops"]["unpacked"] = kinds["hopper"]["expert_flops"]["unpacked"] * UNPACKED_PER_CORE
        kinds["blackwell_ultra"] = kinds["blackwell"] | {"eager": kinds["blackwell_ultra"]["eager"]}
        return msgspec.convert(raw, Settings)


def residuals(rows: list[Point], tried: Settings, per_client: int = PER_CLIENT) -> Floats:
    """Logarithms of told over measured: every TPOT, then every TTFT."""
    results = np.array([told(point, tried, per_client) for point in rows])
    measured = np.array([(point.ttft, point.tpot) for point in rows])
    errors = np.log(results / measured)
    return np.concatenate([errors[:, 1], TTFT_WEIGHT * errors[:, 0]])


def sample(rows: list[Point]) -> list[Point]:
    """As many points of every group, spread over it."""
    chosen: list[Point] = []
    for group in sorted({point.group for point in rows}):
        mine = [point for point in rows if point.group == group]
        count = min(len(mine), EACH)
        chosen += [mine[int((number + 0.5) * len(mine) / count)] for number in range(count)]
    return chosen


def slopes(rows: list[Point], search: Search, spread: Executor) -> Floats:
    """Derivatives of the residuals by the free constants, at the start: they know nothing of what was measured."""
    tried = [np.zeros(len(search.free)), *(0.2 * np.eye(len(search.free)))]
    found = list(spread.map(residuals, [rows] * len(tried), [search.settings(one) for one in tried]))
    return np.array([(one - found[0]) / 0.2 for one in found[1:]]).T


def fit(rows: list[Point], slope: Floats, search: Search) -> Settings:
    """Gauss-Newton with a prior at the start and fixed slopes."""
    prior = (DAMPING / np.array([freedom for _path, freedom in search.free])) ** 2
    x = np.zeros(len(search.free))
    for _round in range(ROUNDS):
        error = residuals(rows, search.settings(x))
        weight = 1 / (1 + (error / DAMPING) ** 2)
        normal = slope.T @ (weight[:, None] * slope) + np.diag(prior)
        x = x + np.clip(np.linalg.solve(normal, -slope.T @ (weight * error) - prior * x), -0.5, 0.5)
    return search.settings(x)


def deal(rows: list[Point], folds: int) -> list[list[tuple[str, str]]]:
    """Groups dealt in turn by name, so that the cards of a model fall into different folds."""
    groups = sorted({point.group for point in rows})
    return [groups[number::folds] for number in range(folds)]


def report(rows: list[Point], found: Settings, spread: Executor, say: Callable[[str], None], name: str) -> None:
    """One line per group, one for the fold, and one without points that are doubted, where there are any."""
    results = list(spread.map(told, rows, [found] * len(rows), chunksize=8))
    errors = [(tpot / p.tpot - 1, ttft / p.ttft - 1) for p, (ttft, tpot) in zip(rows, results, strict=True)]
    lines = {
        group: [e for p, e in zip(rows, errors, strict=True) if p.group == group] for group in {p.group for p in rows}
    }
    trusted = [e for p, e in zip(rows, errors, strict=True) if not p.doubted]
    rest = [(("all but doubted ones", ""), trusted)] if len(trusted) < len(rows) else []
    for what, some in [*sorted(lines.items()), (("all", ""), errors), *rest]:
        tpot, ttft = (summary(error[part] for error in some) for part in (0, 1))
        cells = f"{tpot[0]:+.1%} | {tpot[1]:.1%} | {ttft[0]:+.1%} | {ttft[1]:.1%}"
        say(f"| {name} | {' on '.join(what).removesuffix(' on ')} | {len(some)} | {cells} |")


def main() -> None:
    """Print the table of folds and the constants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep-dense", action="store_true", help="see above")
    options = parser.parse_args()
    rows = points(options.data / "aiconfigurator" / "silicon_sample.csv.gz")
    search = Search(START, FREE)
    if options.keep_dense:
        search, options.folds = Search(Settings(), tuple(one for one in FREE if one not in KEPT)), 0
    print("| fold | group | points | TPOT error | absolute | TTFT error | absolute |\n|---|---|---|---|---|---|---|")
    chosen = sample(rows)
    with ProcessPoolExecutor(options.processes) as spread:
        slope = slopes(chosen, search, spread)
        folds = deal(rows, options.folds) if options.folds else []
        tasks = [[point.group not in held for point in chosen] for held in folds] + [[True] * len(chosen)]
        kept = [[point for point, keep in zip(chosen, mask, strict=True) if keep] for mask in tasks]
        found = list(spread.map(fit, kept, [slope[mask + mask] for mask in tasks], [search] * len(tasks)))
        for number, (held, one) in enumerate(zip(folds, found, strict=False)):
            report([p for p in rows if p.group in held], one, spread, print, str(number + 1))
        report(rows, found[-1], spread, print, "in sample")
    print(json.dumps(msgspec.to_builtins(found[-1]), indent=1))


if __name__ == "__main__":
    said(main)
