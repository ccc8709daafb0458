"""What could be hoped for on AIConfigurator's points: how far repeats differ, and how far a regression gets.

    python benchmarks/perfmodel_bound.py --data DIR

Repeats: points that agree in everything stated but the day or the version of vLLM. Half the median difference of two
is what a model that knows neither cannot get below. Regression: boosted trees, and the nearest neighbour, on logarithms
of sizes, load, and what `work` counts, in the same five folds as `perfmodel_calibrate` has: no mechanism, no queue.
"""

import argparse
import itertools
import statistics
from pathlib import Path

import numpy as np
import numpy.typing as npt
from missing import said
from perfmodel_calibrate import deal
from perfmodel_silicon import MODELS, SYSTEMS, Point, points

from headway.perfmodel import catalogue, quantisation, work

Floats = npt.NDArray[np.float64]

FOLDS = 5
TREES, DEPTH, RATE, LEAF = 300, 4, 0.05, 5


def features(point: Point) -> list[float]:
    """What may be known of a point without having measured it."""
    model, gpu = catalogue.model(MODELS.get(point.model, point.model)), catalogue.gpu(SYSTEMS[point.system])
    scheme = quantisation.scheme(point.precision)
    if scheme is None:
        raise ValueError(f"unknown precision {point.precision!r}")
    w = work.count(model, scheme, point.tp, 1 if point.how.kv_dtype == "fp8" else 2)
    hit = min(w.experts, point.concurrency * w.chosen)
    read = w.narrow_bytes + w.wide_bytes + w.expert_layers * hit * w.expert_bytes
    flops = w.narrow_flops + w.wide_flops + w.expert_layers * w.expert_flops
    cache = w.kv_bytes * point.concurrency * (point.isl + point.osl / 2)
    sizes = [
        read / gpu.bandwidth_bytes_per_s,
        cache / gpu.bandwidth_bytes_per_s,
        flops * point.isl / gpu.bf16_flops,
        flops * point.concurrency * (1 + point.isl / point.osl) / gpu.bf16_flops,
        w.layers,
        w.hidden,
        point.tp,
        point.isl,
        point.osl,
        point.concurrency,
        scheme.bits,
        gpu.bandwidth_bytes_per_s,
        point.how.batched,
        max(1, point.how.flags.graph_tokens),
    ]
    return [*np.log(sizes).tolist(), float(point.how.flags.asynchronous), float(w.experts > 0)]


def boosted(known: Floats, wanted: Floats, asked: Floats) -> Floats:
    """Gradient boosting on squared error with small trees."""
    base = float(np.median(wanted))
    left, told = wanted - base, np.full(len(asked), base)
    for _tree in range(TREES):
        inside, outside = grow(known, left, asked, DEPTH)
        left, told = left - RATE * inside, told + RATE * outside
    return told


def grow(known: Floats, wanted: Floats, asked: Floats, depth: int) -> tuple[Floats, Floats]:
    """One tree: what it says where it was grown, and where it is asked."""
    best, place = 0.0, None
    for column in range(known.shape[1] if depth and len(wanted) >= 2 * LEAF else 0):
        order = np.argsort(known[:, column], kind="stable")
        sums, count = np.cumsum(wanted[order]), np.arange(1, len(wanted) + 1)
        gain = sums[:-1] ** 2 / count[:-1] + (sums[-1] - sums[:-1]) ** 2 / (len(wanted) - count[:-1])
        gain = gain - sums[-1] ** 2 / len(wanted)
        ranked = known[order, column]
        gain[(ranked[1:] == ranked[:-1]) | (count[:-1] < LEAF) | (count[:-1] > len(wanted) - LEAF)] = 0.0
        at = int(np.argmax(gain))
        if gain[at] > best:
            best, place = float(gain[at]), (column, (ranked[at] + ranked[at + 1]) / 2)
    mean = float(wanted.mean()) if len(wanted) else 0.0
    inside, outside = np.full(len(wanted), mean), np.full(len(asked), mean)
    if place is not None:
        here, there = known[:, place[0]] <= place[1], asked[:, place[0]] <= place[1]
        for side, that in ((here, there), (~here, ~there)):
            inside[side], outside[that] = grow(known[side], wanted[side], asked[that], depth - 1)
    return inside, outside


def nearest(known: Floats, wanted: Floats, asked: Floats) -> Floats:
    """What the nearest point says, columns scaled to the same spread."""
    scale = known.std(axis=0) + 1e-9
    apart = ((known[None] - asked[:, None]) / scale) ** 2
    return np.asarray(wanted[apart.sum(axis=2).argmin(axis=1)], dtype=np.float64)


def repeats(rows: list[Point]) -> None:
    """Differences of points that are alike."""
    alike: dict[tuple[object, ...], list[Point]] = {}
    for p in rows:
        key = (*p.group, p.precision, p.tp, p.isl, p.osl, p.concurrency)
        alike.setdefault(key, []).append(p)
    print("| points that agree in all but | pairs | TPOT differs by | TTFT differs by |\n|---|---|---|---|")
    pairs = [pair for some in alike.values() for pair in itertools.combinations(some, 2)]
    same = [(a, b) for a, b in pairs if (a.version, a.how) == (b.version, b.how)]
    other = [(a, b) for a, b in pairs if (a.version, a.how) != (b.version, b.how)]
    for name, some in (("the day", same), ("version or recipe", other)):
        cells = [
            statistics.median(abs(np.log(getattr(a, key) / getattr(b, key))) for a, b in some)
            for key in ("tpot", "ttft")
        ]
        print(f"| {name} | {len(some)} | {cells[0]:.1%} | {cells[1]:.1%} |")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    rows = points(parser.parse_args().data / "aiconfigurator" / "silicon_sample.csv.gz")
    repeats(rows)
    table = np.array([features(p) for p in rows])
    wanted = {key: np.log([getattr(p, key) for p in rows]) for key in ("tpot", "ttft")}
    print("\n| fold | trees TPOT | TTFT | nearest TPOT | TTFT |\n|---|---|---|---|---|")
    for number, held in enumerate(deal(rows, FOLDS)):
        out = np.array([p.group in held for p in rows])
        cells = [
            f"{np.median(abs(np.expm1(way(table[~out], wanted[key][~out], table[out]) - wanted[key][out]))):.1%}"
            for way in (boosted, nearest)
            for key in ("tpot", "ttft")
        ]
        print(f"| {number + 1} | {' | '.join(cells)} |")


if __name__ == "__main__":
    said(main)
