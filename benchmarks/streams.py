"""1,000 concurrent streams at 10 events/s each: what Headway adds to each event, and what it holds in memory.

    python benchmarks/streams.py [--streams 1000] [--seconds 60] [--via headway]

The backend stamps each event with the monotonic clock; the client subtracts. The same load runs directly against the
backends first, so that the added lag is what the proxy did and not what a busy machine does.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import peers
import uvloop
from load import Load, wait_ready
from processes import cpu_s, free_port, rss_bytes

HERE = Path(__file__).resolve().parent


def quantile(values: list[float], q: float) -> float:
    """The value below which a fraction q of the sorted values lies."""
    return values[min(len(values) - 1, int(len(values) * q))]


def one(port: int, streams: int, pid: int | None) -> dict[str, float]:
    """Run all streams at once and sum up the lags."""
    before = cpu_s(pid) if pid else 0.0
    load = Load(port, streams, streams, stream=True, stamp=True)
    uvloop.run(load.run())
    lags = sorted(load.lags)
    return {
        "streams": len(load.times),
        "broken": load.broken,
        "events": len(lags),
        "lag_p50_ms": quantile(lags, 0.5) * 1e3,
        "lag_p99_ms": quantile(lags, 0.99) * 1e3,
        "cpu_us_per_event": (cpu_s(pid) - before) / max(1, len(lags)) * 1e6 if pid else 0.0,
        "rss_mb": rss_bytes(pid) / 2**20 if pid else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gap-ms", type=float, default=100.0)
    parser.add_argument("--via", default="headway", choices=sorted(peers.PEERS))
    options = parser.parse_args()
    ports = [free_port(), free_port()]
    cores = (0, (os.cpu_count() or 2) - 1)
    os.sched_setaffinity(0, {cores[1]})
    events = int(options.seconds * 1e3 / options.gap_ms)
    backend = [sys.executable, str(HERE / "backend.py"), *map(str, ports)]
    backend += ["--gap-ms", str(options.gap_ms), "--events", str(events)]
    server = subprocess.Popen(backend, stdout=subprocess.DEVNULL)
    port = free_port()
    with tempfile.TemporaryDirectory() as work:
        command, extra = peers.PEERS[options.via](port, ports, Path(work))
        proxy = subprocess.Popen(["taskset", "-c", str(cores[0]), *command], env={**os.environ, **extra})
        try:
            wait_ready(port, proxy, options.via)
            print(f"{options.streams} streams, {events} events each, directly ...", file=sys.stderr, flush=True)
            direct = one(ports[0], options.streams, None)
            print(f"the same through {options.via} ...", file=sys.stderr, flush=True)
            through = one(port, options.streams, proxy.pid)
        finally:
            for process in (proxy, server):
                process.terminate()
                process.wait()
    added = {q: through[f"lag_{q}_ms"] - direct[f"lag_{q}_ms"] for q in ("p50", "p99")}
    print(json.dumps({"direct": direct, options.via: through, "added_lag_ms": added}, indent=1))


if __name__ == "__main__":
    main()
