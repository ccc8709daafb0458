"""Engines on this machine, looked for at the ports they usually use. For a first try without any settings."""

import asyncio
from collections.abc import Iterable

import msgspec

from headway.coordinate.base import Detect, Publish
from headway.core.replica import ReplicaSpec
from headway.engines.base import Dialect

HOST = "127.0.0.1"
NEIGHBOURS = 2  # people who run a second engine count the port up


class Look(msgspec.Struct, frozen=True):
    """What one port gave: a spec, or why there is none. `usual` names the engines expected there."""

    port: int
    usual: tuple[str, ...]
    spec: ReplicaSpec | None
    reason: str = ""

    def __str__(self) -> str:
        what = f"{self.spec.engine} serving {self.spec.model}" if self.spec else self.reason
        return f"port {self.port} ({', '.join(self.usual)}): {what}"


class Local:
    """The source for localhost: looks once."""

    name = "local"

    def __init__(self, dialects: Iterable[Dialect], detect: Detect, host: str = HOST) -> None:
        self._usual = usual_ports(dialects)
        self._detect = detect
        self._host = host

    async def look(self) -> tuple[Look, ...]:
        """Every port with what was found there, by port."""
        return tuple(await asyncio.gather(*(self._look(port, engines) for port, engines in self._usual.items())))

    async def run(self, publish: Publish) -> None:
        """See Source. Publishes once and returns."""
        publish([look.spec for look in await self.look() if look.spec])

    async def _look(self, port: int, engines: tuple[str, ...]) -> Look:
        got = await self._detect(f"http://{self._host}:{port}")
        if isinstance(got, ReplicaSpec):
            return Look(port, engines, got)
        return Look(port, engines, None, str(got))


def usual_ports(dialects: Iterable[Dialect]) -> dict[int, tuple[str, ...]]:
    """Port -> the engines that usually listen there, their neighbours included, in order of port."""
    ports: dict[int, list[str]] = {}
    for dialect in dialects:
        for port in dialect.ports:
            for near in range(port, port + NEIGHBOURS):
                ports.setdefault(near, []).append(dialect.name)
    return {port: tuple(ports[port]) for port in sorted(ports)}
