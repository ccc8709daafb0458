"""What moving a running request costs: the gap its client sees, and the gateway's CPU where it is possible at all.

    python benchmarks/migration.py gaps|failover|cpu|drain [--streams 40] [--said 2000]

Two emulated H100 replicas in real time, `headway serve` before them, one client. `gaps`: each stream has about 2,000
tokens of context and is moved once, at random; the gap is the longest pause between two of its events within half a
second of the order. `failover`: all connections of one replica are reset under a stream. `cpu`: CPU of the gateway per
stream of 65 events, with moves possible and not, in turns. `drain`: four replicas under so many streams at a time, of
whatever length the model says; the busiest is drained, four times, with moves and without, and both times stand beside
what the gateway forecast. `--said`: order the move, or break the connections, when so many tokens were said (else 20 to
80, at random).
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from processes import cpu_s, free_port

MODEL = "llama-3.1-8b"
TEXT = "the of and to in that was his with they have from word what said each which their time will"
WORDS = TEXT.split()
LEARN_S, SETTLE_S, TURNS = 40.0, 12.0, 4
"""Of drains: how long lengths are learnt before the first, and how long replicas fill again after each."""


class Fleet:
    """Emulators and a gateway. Requests move when asked, or by themselves (`tick_s`)."""

    def __init__(self, folder: Path, time_scale: float, migration: bool, count: int = 2, tick_s: float = 1e6) -> None:
        self.count = count
        self.port, self.admin = free_port(), free_port()
        ready = [folder / f"{number}-{migration}.json" for number in range(count)]
        engines = ["--port", "0", "--control-port", "0", "--time-scale", str(time_scale), "--max-model-len", "8192"]
        self.children = [
            start("emulate", "--model", MODEL, *engines, "--ready-file", str(path), "--exit-with-parent")
            for path in ready
        ]
        self.ports = [json.loads(wait(path).read_bytes()) for path in ready]
        settings = {
            "listen": {"port": self.port},
            "admin": {"port": self.admin},
            "replicas": [f"http://127.0.0.1:{one['port']}" for one in self.ports],
            "migration": {"enabled": migration},
            "requests": {"inject_usage": "never"},
            "logging": {"access": False, "level": "error"},
            "brain": {"migration": {"cooldown_s": 0.0, "tick_s": tick_s}, "health": {"slow_start_s": 1.0}},
        }
        path = folder / f"headway-{migration}.yaml"
        path.write_text(json.dumps(settings))
        self.gateway = start("serve", "--config", str(path), "--exit-with-parent")
        self.children.append(self.gateway)

    def usable(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                views = self.ask("/fleet")["fleet"]["views"]
            except OSError:
                views = []
            if len(views) == self.count and all(
                v["breaker"] == "closed" and v["sample"] and v["slow_start"] >= 1 for v in views
            ):
                return
            time.sleep(0.1)
        raise SystemExit("the fleet did not come up")

    def ask(self, path: str, body: object = None, port: int = 0) -> Any:
        data = None if body is None else json.dumps(body).encode()
        made = urllib.request.Request(
            f"http://127.0.0.1:{port or self.admin}{path}", data, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(made, timeout=10) as answer:
            return json.load(answer)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def end(self) -> None:
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait(20)


def start(*words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "headway", *words], stdout=subprocess.DEVNULL, env=os.environ)


def wait(path: Path) -> Path:
    until = time.monotonic() + 45
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{path} did not appear")
        time.sleep(0.05)
    return path


async def stream(
    fleet: Fleet,
    name: str,
    tokens: int,
    prompt: str,
    order: Callable[[], None] | None = None,
    at: int = 0,
    exact: bool = True,
) -> list[float]:
    """The times of a stream's events; `order` is called when so many have come. `exact`: ends are ignored."""
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.port)
    body = {"model": MODEL, "stream": True, "max_tokens": tokens, "ignore_eos": exact, "temperature": 0}
    data = json.dumps({**body, "messages": [{"role": "user", "content": prompt}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: {name}\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    times: list[float] = []
    whole = b""
    while piece := await reader.read(65536):
        whole += piece
        times += [time.perf_counter()] * piece.count(b"data: ")
        if order is not None and len(times) >= at:
            asyncio.get_running_loop().run_in_executor(None, order)
            order = None
    writer.close()
    if not whole.rstrip().endswith(b"0") or b"data: [DONE]" not in whole:
        raise SystemExit(f"{name} was broken: {whole[-300:]!r}")
    return times


def gap(times: list[float], after: int) -> float:
    """The longest pause in the half second after an event."""
    pairs = zip(times[after - 1 :], times[after:], strict=False)
    return max(later - sooner for sooner, later in pairs if sooner < times[after - 1] + 0.5)


def told(what: str, values: list[float]) -> None:
    values = sorted(values)
    p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
    middle = statistics.median(values)
    print(f"{what}: p50 {middle * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, max {values[-1] * 1e3:.1f} ms, n {len(values)}")


async def gaps(fleet: Fleet, streams: int, reset: bool, said: int) -> None:
    rng = random.Random(1)
    found, steps = [], []
    for number in range(streams):
        name, at = f"s{number}", said or rng.randrange(20, 80)
        prompt = " ".join(rng.choice(WORDS) for _ in range(1850))

        def move(name: str = name) -> None:
            fleet.ask(f"/requests/{name}/migrate", {})

        def break_off() -> None:
            busy = [
                v["in_flight"] for v in sorted(fleet.ask("/fleet")["fleet"]["views"], key=lambda v: v["spec"]["id"])
            ]
            order = sorted(range(2), key=lambda n: f"127.0.0.1:{fleet.ports[n]['port']}")
            fleet.ask(
                "/faults", {"kind": "drop_connections"}, fleet.ports[order[busy.index(max(busy))]]["control_port"]
            )

        times = await stream(fleet, name, at + 60, prompt, break_off if reset else move, at)
        found.append(gap(times, at))
        steps += [b - a for a, b in pairwise(times[5:at])]
        if reset:
            await asyncio.sleep(2.2)  # a breaker may have opened
    told("an ordinary step", steps)
    told("gap at a failover" if reset else "gap at a move", found)
    print(f"moves made: {fleet.metric('headway_migration_gap_seconds_count'):.0f} of {streams}")
    for number in range(streams):
        last = fleet.ask(f"/requests/s{number}/explain")["moves"][-1:]
        if last and last[0]["result"] not in ("cut", "failed_over"):
            print(f"  s{number}: {last[0]['result']}, {last[0]['reason']}")


async def drains(fleet: Fleet, streams: int, moves: str) -> None:
    """Empties the busiest replica again and again."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    async def keep(number: int) -> None:
        rng, made = random.Random(number), 0
        while not over.is_set():
            prompt = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(50, 400)))
            await stream(fleet, f"{moves}{number}-{made}", 4000, prompt, exact=False)
            made += 1

    def drain() -> tuple[float, dict[str, Any]]:
        views = fleet.ask("/fleet")["fleet"]["views"]
        name = max(views, key=lambda view: int(view["in_flight"]))["spec"]["id"]
        began, told = time.monotonic(), fleet.ask(f"/replicas/{name}/drain", {})["emptying"]
        while next(v["in_flight"] for v in fleet.ask("/fleet")["fleet"]["views"] if v["spec"]["id"] == name):
            time.sleep(0.02)
        took = time.monotonic() - began
        fleet.ask(f"/replicas/{name}/undrain", {})
        return took, told

    workers = [asyncio.create_task(keep(number)) for number in range(streams)]
    await asyncio.sleep(LEARN_S)
    for _ in range(TURNS):
        took, told = await loop.run_in_executor(None, drain)
        print(
            f"moves {moves}: {told['requests']} requests ({told['movable']} movable), empty after {took:.1f} s;"
            f" forecast {told['moving_s']:.1f} s, without moves {told['waiting_s']:.1f} s",
            flush=True,
        )
        await asyncio.sleep(SETTLE_S)
    over.set()
    await asyncio.gather(*workers)


async def batch(fleet: Fleet, count: int) -> float:
    """CPU of the gateway per stream."""
    before = cpu_s(fleet.gateway.pid)
    for _ in range(count // 10):
        await asyncio.gather(*(stream(fleet, f"c{n}", 64, "say something") for n in range(10)))
    return (cpu_s(fleet.gateway.pid) - before) / count


async def cpu(off: Fleet, on: Fleet, streams: int) -> None:
    ratios: list[float] = []
    costs: dict[str, list[float]] = {"off": [], "on": []}
    for turn in range(6):
        a, b = await batch(off, streams), await batch(on, streams)
        if turn:
            costs["off"].append(a)
            costs["on"].append(b)
            ratios.append(b / a)
    for name, values in costs.items():
        print(f"CPU per stream of 65 events, moves {name}: {statistics.median(values) * 1e6:.0f} us")
    print(f"ratio: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def drain(folder: Path, streams: int) -> None:
    for moves in (True, False):
        fleet = Fleet(folder, 1.0, moves, count=4, tick_s=0.5)
        try:
            fleet.usable()
            asyncio.run(drains(fleet, streams, "on" if moves else "off"))
        finally:
            fleet.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("gaps", "failover", "cpu", "drain"))
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--said", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if options.what == "drain":
            drain(Path(name), options.streams)
            return
        scale = 2.0 if options.what == "cpu" else 1.0
        fleets = [Fleet(Path(name), scale, True)]
        try:
            fleets[0].usable()
            if options.what == "cpu":
                fleets.append(Fleet(Path(name), scale, False))
                fleets[1].usable()
                asyncio.run(cpu(fleets[1], fleets[0], options.streams))
            else:
                asyncio.run(gaps(fleets[0], options.streams, options.what == "failover", options.said))
        finally:
            for fleet in fleets:
                fleet.end()


if __name__ == "__main__":
    main()
