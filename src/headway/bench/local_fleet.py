"""A fleet on this machine: emulated replicas and the gateway in front of them, each a process of its own.

For the demo, benchmarks and anyone who wants to see a policy under load without a GPU. Ports are chosen by the system.
"""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from headway.bench.processes import Children
from headway.runtime import clock
from headway.runtime.http import Answer, Client

HOST = "127.0.0.1"
START_S = 45.0
"""Patience with the start of all processes together; it takes three seconds on two idle cores."""
POLL_S = 0.05


class NotReady(Exception):
    """The fleet did not come up in time; the text says how far it got."""


class EmulatedReplica(msgspec.Struct, frozen=True):
    """One replica to emulate. `kv_tokens` 0: what the card's memory leaves."""

    name: str
    gpu: str
    kv_tokens: int = 0


class FleetPlan(msgspec.Struct, frozen=True):
    """Which engines to start and how fast their clock runs (virtual seconds per real second)."""

    model: str
    replicas: tuple[EmulatedReplica, ...]
    time_scale: float = 1.0
    longest: int = 8192


class Address(msgspec.Struct, frozen=True):
    """Where a started replica listens."""

    name: str
    url: str


class LocalFleet(msgspec.Struct, frozen=True):
    """Addresses of a running fleet."""

    gateway: str
    admin: str
    replicas: tuple[Address, ...]


class _Ready(msgspec.Struct):
    """What an emulator writes once it listens."""

    port: int


async def start(plan: FleetPlan, policy: str, children: Children, folder: Path, http: Client) -> LocalFleet:
    """Start everything and wait until the gateway has a load report of each replica.

    Raises NotReady, or processes.ChildDied when one of them ends.
    """
    deadline = clock.now() + START_S
    ready_files = [_start_replica(plan, replica, children, folder) for replica in plan.replicas]
    urls = [await _url(path, children, deadline) for path in ready_files]
    replicas = tuple(Address(replica.name, url) for replica, url in zip(plan.replicas, urls, strict=True))
    port, admin_port = _free_ports(2)
    settings = folder / "headway.yaml"
    settings.write_text(yaml.safe_dump(_settings(plan, policy, replicas, port, admin_port)))
    children.start("gateway", "serve", "--config", str(settings), "--exit-with-parent")
    fleet = LocalFleet(f"http://{HOST}:{port}", f"http://{HOST}:{admin_port}", replicas)
    await _sampled(fleet, children, http, deadline)
    return fleet


def _start_replica(plan: FleetPlan, replica: EmulatedReplica, children: Children, folder: Path) -> Path:
    ready = folder / f"{replica.name}.ready"
    ready.unlink(missing_ok=True)
    options = {
        "--model": plan.model,
        "--gpu": replica.gpu,
        "--time-scale": str(plan.time_scale),
        "--host": HOST,
        "--port": "0",
        "--ready-file": str(ready),
    }
    if replica.kv_tokens:
        options["--kv-tokens"] = str(replica.kv_tokens)
    if not 0 < replica.kv_tokens < plan.longest:  # a smaller pool bounds the context by itself
        options["--max-model-len"] = str(plan.longest)
    flat = [word for pair in options.items() for word in pair]
    children.start(replica.name, "emulate", *flat, "--exit-with-parent", "--enable-prompt-tokens-details")
    return ready


async def _url(ready: Path, children: Children, deadline: float) -> str:
    while clock.now() < deadline:
        children.check()
        port = _port_in(ready)
        if port:
            return f"http://{HOST}:{port}"
        await asyncio.sleep(POLL_S)
    raise NotReady(f"{ready.stem} did not listen within {START_S:g} s")


def _port_in(ready: Path) -> int:
    """The port an emulator wrote down, 0 while the file is not there or only half of it."""
    try:
        return msgspec.json.decode(ready.read_bytes(), type=_Ready).port
    except (FileNotFoundError, msgspec.DecodeError):
        return 0


def _settings(
    plan: FleetPlan, policy: str, replicas: Sequence[Address], port: int, admin_port: int
) -> dict[str, object]:
    return {
        "listen": {"host": HOST, "port": port},
        "admin": {"host": HOST, "port": admin_port},
        "policy": policy,
        "replicas": [
            {"url": at.url, "labels": {"name": at.name}, "gpu": replica.gpu}
            for at, replica in zip(replicas, plan.replicas, strict=True)
        ],
        "logging": {"access": False, "level": "warning"},
    }


async def _sampled(fleet: LocalFleet, children: Children, http: Client, deadline: float) -> None:
    state = "nothing"
    while clock.now() < deadline:
        children.check()
        got = await http.fetch(f"{fleet.admin}/fleet", timeout_s=2.0)
        if isinstance(got, Answer) and got.status == 200:
            views = msgspec.json.decode(got.body)["fleet"]["views"]
            state = f"{sum(view['sample'] is not None for view in views)} of {len(fleet.replicas)} replicas"
            if len(views) == len(fleet.replicas) and all(view["sample"] is not None for view in views):
                return
        await asyncio.sleep(POLL_S)
    raise NotReady(f"the gateway knows {state} after {START_S:g} s")


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
