"""Under pressure, over sockets: emulated replicas and the gateway as processes, real HTTP, and the goals beside it.

    python benchmarks/pressure.py                       # everything, full size: about 50 minutes
    python benchmarks/pressure.py --only overload,depth --short --json FILE

Scenes: capacity, overload and after (L3), depth and bytes (L4), tenants (L10), critical, refusals-503 and -429 (F9),
retry-after, preemptions-round-robin and -headroom, faults.
The engines' clocks run in real time. Where one of them lost more than a tenth of it, the machine was too busy: the
scene is played again, up to `--tries` times, and what remains of that is shown as `void`. docs/pressure.md has figures.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec
import uvloop
from pressure_scenes import SCENES, Result, Stage

MOST_LAG = 0.1


def play(name: str, options: argparse.Namespace) -> list[Result]:
    """A scene, again while the engines' clocks lag."""
    found: list[Result] = []
    for number in range(options.tries):
        print(f"{name}{f', try {number + 1}' if number else ''}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="headway-pressure-") as folder:
            found = uvloop.run(_played(name, Stage(Path(folder), options.short, options.seed)))
        if all(each.lag <= MOST_LAG for each in found):
            break
    return found


async def _played(name: str, stage: Stage) -> list[Result]:
    return await SCENES[name](stage)


def verdict(result: Result) -> str:
    """A word for a table."""
    if result.lag > MOST_LAG:
        return f"void (clocks lost {result.lag:.0%})"
    return "" if result.met is None else "met" if result.met else "**missed**"


def table(results: list[Result]) -> str:
    """Markdown."""
    rows = ["| scene | what | measured | goal | |", "|---|---|---|---|---|"]
    for each in results:
        unit = f" {each.unit}" if each.unit and not each.unit.startswith("/") else each.unit
        rows.append(f"| {each.scene} | {each.what} | {each.value:.4g}{unit} | {each.goal} | {verdict(each)} |")
    return "\n".join(rows)


def main() -> None:
    """Play what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SCENES))
    parser.add_argument("--short", action="store_true", help="seconds in place of minutes, as the tests do")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args()
    results: list[Result] = []
    for name in options.only:
        results += play(name, options)
        if options.json:
            options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    print(table(results))


if __name__ == "__main__":
    main()
