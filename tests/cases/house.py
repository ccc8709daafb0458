"""A whole gateway for one test: real sockets, the real brain, the default policy, before engines of the test's own.

What lives here: putting it together, and the books that every test must leave in order. What must not: anything a
single case wants (`tests/harness` has the clients, the engines and their scripts).

A test is a coroutine that takes the house as its first argument, made a test by `case`:

    @case(scripts.stream(400, gap_s=0.05))
    async def test_something(house: House, leave: str) -> None: ...
"""

import asyncio
import functools
import inspect
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import msgspec
import openai
import pytest

from headway.core.brain import Brain
from headway.core.commands import SHED, Command, Dispatch, Migrate
from headway.core.constants import BrainConfig, MigrationConfig, SchedulerConfig
from headway.core.events import AttemptFinished, Event, ProbeFailed, ProbeSucceeded, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.view import ReplicaView
from headway.engines import vllm
from headway.gateway import Gateway
from headway.gateway.config import GatewayConfig, Moving, Timeouts
from headway.policies import headroom
from headway.runtime.clock import now
from headway.telemetry import Access, Telemetry
from headway.wire.promtext import read
from tests.harness import accounts, scripts
from tests.harness.client import Answer, RawClient
from tests.harness.engine import Script, ScriptedEngine, Seen

SOAK = os.environ.get("HEADWAY_SOAK") == "1"
"""Run the full numbers of the cases, not the ones that fit into `make test`."""

SEED = 20_26
T = TypeVar("T")


def rounds(full: int, short: int) -> int:
    """How often to repeat: the case's own number when soaking."""
    return full if SOAK else short


def within(seconds: float) -> float:
    """A bound in time: the case's own when soaking, else with room for a machine that does much besides."""
    return seconds if SOAK else seconds * 5


def patience(**seconds: float) -> GatewayConfig:
    """A gateway with some timeouts shortened."""
    return GatewayConfig(port=0, timeouts=Timeouts(**seconds))


def at_most(in_flight: int) -> BrainConfig:
    """A brain that lets each replica have so many attempts; others are held."""
    return BrainConfig(scheduler=SchedulerConfig(max_in_flight=in_flight))


class House:
    """A gateway on a free port. `engines[0]`, `[1]` ... are its replicas "r0", "r1" ..."""

    def __init__(self, engines: list[ScriptedEngine], config: GatewayConfig, brain: BrainConfig) -> None:
        self.engines = engines
        self.booked: list[Access] = []
        self.journal: list[tuple[Event, list[Command]]] = []
        self.telemetry = Telemetry(access_log=self.booked.append)
        self.config = config
        self.deaf: set[ReplicaId] = set()  # replicas whose probes are not answered
        self.brain = Brain(brain, headroom.PLUGIN.factory(headroom.PLUGIN.config()), random.Random(SEED))
        self.gateway = Gateway(
            self.brain,
            config,
            {"vllm": vllm.PLUGIN.factory(vllm.PLUGIN.config())},
            self.telemetry,
            journal=lambda event, commands: self.journal.append((event, commands)),
            probe=self._probe,
        )

    @property
    def engine(self) -> ScriptedEngine:
        """The first engine."""
        return self.engines[0]

    def client(self) -> RawClient:
        """A fresh connection to the gateway, to be entered."""
        return RawClient(self.gateway.port)

    async def ask(self, body: object, path: str = "/v1/chat/completions", **options: Any) -> Answer:
        """One request on a connection of its own."""
        async with self.client() as client:
            return await client.ask(path, body, **options)

    async def page(self) -> bytes:
        """What Prometheus would see."""
        return self.telemetry.render(self.gateway.snapshot())

    def count(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        samples = read(self.telemetry.render(self.gateway.snapshot()), frozenset((name,)))
        return sum(value for found, value in samples.get(name, []) if labels.items() <= found.items())

    def view(self, number: int = 0) -> ReplicaView:
        """What the brain believes of a replica."""
        return next(view for view in self.gateway.snapshot().views if view.spec.id == f"r{number}")

    def add(self, url: str, number: int, **spec: Any) -> None:
        """Register a replica, and have it probed."""
        made = ReplicaSpec(id=ReplicaId(f"r{number}"), url=url, engine="vllm", model="m", metrics=False)
        self.gateway.post(ReplicasChanged(now(), (msgspec.structs.replace(made, **spec),)))

    async def at_rest(self, **expected: int) -> None:
        """Wait until nothing is in flight; then the books are in order, and say what is expected of them."""
        await until(lambda: not self.unsettled(), 3.0, self.unsettled)
        await accounts.balanced_within(self.page, 1.0, **expected)
        assert {(each.status, each.code) for each in self.booked if each.account == "shed"} <= SHED

    def unsettled(self) -> str:
        """What is still held somewhere; empty at rest."""
        snapshot, plane = self.gateway.snapshot(), self.gateway.plane
        found = {
            "in flight": snapshot.in_flight,
            "queued": snapshot.queued,
            "exchanges": len(plane.driver.exchanges),
            "body bytes": plane.body_bytes,
            "unbooked": self.telemetry.requests_started - sum(self.telemetry.accounts.values()),
        }
        return ", ".join(f"{what}: {count}" for what, count in found.items() if count)

    def _probe(self, replica: ReplicaId) -> None:
        asyncio.get_running_loop().call_soon(self._probed, replica)

    def _probed(self, replica: ReplicaId) -> None:
        if replica in self.deaf:
            self.gateway.post(ProbeFailed(now(), replica, "no answer"))
            return
        number = int(replica[1:])
        listens = number >= len(self.engines) or self.engines[number].listening
        event = ProbeSucceeded(now(), replica) if listens else ProbeFailed(now(), replica, "refused", refused=True)
        self.gateway.post(event)


async def until(condition: Callable[[], object], seconds: float = 5.0, describe: Callable[[], object] = str) -> None:
    """Wait until something holds, or fail with what was instead."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"not within {seconds} s: {describe()}"
        await asyncio.sleep(0.002)


@asynccontextmanager
async def open_house(
    *engine_scripts: Script, config: GatewayConfig | None = None, brain: BrainConfig | None = None, **spec: Any
) -> AsyncIterator[House]:
    """A house with an engine per script. Leaving it checks the books, and that nothing is held."""
    engines = [ScriptedEngine(script, scripts.vllm_paths()) for script in engine_scripts]
    house = House(engines, config or GatewayConfig(port=0), brain or BrainConfig())
    for engine in engines:
        await engine.start()
    await house.gateway.start()
    for number, engine in enumerate(engines):
        house.add(engine.url, number, **spec)
    await until(lambda: all(view.breaker.value == "closed" for view in house.gateway.snapshot().views))
    try:
        yield house
        await house.at_rest()
        assert all(not engine.log.malformed for engine in engines), [engine.log.malformed for engine in engines]
    finally:
        await house.gateway.stop(0.0)
        for engine in engines:
            await engine.stop()
    assert not house.unsettled()
    assert not house.gateway.plane.connections
    check_journal(house.journal)


def check_journal(journal: list[tuple[Event, list[Command]]]) -> None:
    """Every attempt that was dispatched was finished exactly once, and no other was."""
    ends: dict[str, int] = {}
    for event, commands in journal:
        if isinstance(event, AttemptFinished):
            ends[event.attempt_id] = ends.get(event.attempt_id, 0) - 1
        for command in commands:
            if isinstance(command, Dispatch | Migrate):
                ends[command.attempt_id] = ends.get(command.attempt_id, 0) + 1
    assert not {attempt: left for attempt, left in ends.items() if left}


def movable(config: GatewayConfig | None = None) -> GatewayConfig:
    """The same gateway, where all that can move may."""
    return msgspec.structs.replace(config or GatewayConfig(port=0), moving=Moving(plain=True))


def moving(brain: BrainConfig | None = None) -> BrainConfig:
    """The same brain, which moves requests and lets them outlive their replicas."""
    return msgspec.structs.replace(brain or BrainConfig(), migration=MigrationConfig(enabled=True))


def case(
    *engine_scripts: Script,
    config: GatewayConfig | None = None,
    brain: BrainConfig | None = None,
    moves: bool = False,
    **spec: Any,
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine `(house, **parametrised)`: it runs on uvloop, in a house of its own. `moves`: it runs
    twice, the second time with live migration on; what it expects is the same."""

    def decorate(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(scene)
        def test(run: Callable[[Awaitable[None]], None], migration: bool = False, **parameters: Any) -> None:
            made = (
                {"config": movable(config), "brain": moving(brain)} if migration else {"config": config, "brain": brain}
            )

            async def whole() -> None:
                async with open_house(*engine_scripts, **made, **spec) as house:  # type: ignore[arg-type]
                    await scene(house, **parameters)

            run(whole())

        signature = inspect.signature(scene)
        fixtures = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ["run", "migration"][: 1 + moves]
        ]
        wanted = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in list(signature.parameters.values())[1:]]
        test.__signature__ = signature.replace(parameters=[*fixtures, *wanted])  # type: ignore[attr-defined]
        test.checks_books = True  # type: ignore[attr-defined]
        if moves:
            both: Callable[..., None] = pytest.mark.parametrize("migration", [False, True], ids=["", "moves"])(test)
            return both
        return test

    return decorate


async def gather_bounded(width: int, work: Iterable[Awaitable[T]]) -> list[T]:
    """All results in order, at most `width` at once."""
    gate = asyncio.Semaphore(width)

    async def one(item: Awaitable[T]) -> T:
        async with gate:
            return await item

    return list(await asyncio.gather(*(one(item) for item in work)))


async def official_stream(house: House) -> list[str | None]:
    """The texts that the official client reads from a stream. Raises what it raises."""

    def read_all() -> list[str | None]:
        with openai.OpenAI(base_url=f"http://127.0.0.1:{house.gateway.port}/v1", api_key="x", max_retries=0) as client:
            message: Any = {"role": "user", "content": "hi"}
            with client.chat.completions.create(model="m", messages=[message], stream=True) as stream:
                return [chunk.choices[0].delta.content for chunk in stream]

    return await asyncio.to_thread(read_all)


def gone_within(seen: Seen, since: float) -> float:
    """Seconds from `since` (perf_counter) until the engine saw its peer leave; infinite if it did not."""
    return float("inf") if seen.gone_at is None else seen.gone_at - since


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of an address that swallows SYNs: a listener whose queue is full and that nobody accepts from."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        plugs = [socket.socket() for _ in range(4)]
        for plug in plugs:
            plug.setblocking(False)
            plug.connect_ex((host, port))
        try:
            yield f"http://{host}:{port}"
        finally:
            for plug in plugs:
                plug.close()
