"""One request and its attempts without sockets, loop or time: every byte, death and deadline is the test's.

A real exchange, driver and mover between a client that keeps what it gets, a pool whose connections do what they are
told, and a brain that writes down. Engines are those of `tests.wire.engine`: what a connection is sent, `script` knows
the stream for.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headway.core.commands import Command, Dispatch, Evict, Migrate
from headway.core.events import AttemptFinished, Event, EvictionRefused, RequestArrived
from headway.core.ids import AttemptId, ReplicaId, RequestId, attempt_id
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import ReplicaSpec
from headway.core.snapshot import FleetSnapshot
from headway.engines import vllm
from headway.engines.llamacpp import CONTINUATION as LLAMA
from headway.gateway.config import GatewayConfig, Moving
from headway.gateway.driver import Driver
from headway.gateway.exchange import FAR, Exchange
from headway.gateway.head import HeadReader
from headway.gateway.mover import Mover
from headway.gateway.plane import Plane
from headway.gateway.target import Target
from headway.telemetry import Telemetry
from tests.wire.engine import CHAT, COMPLETIONS, detokenise, framed, stream

JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
MODEL = "tiny"
R0, R1, R2 = ReplicaId("r0"), ReplicaId("r1"), ReplicaId("r2")


class Timers:
    """In place of the event loop: calls that are due when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Timer] = []

    def call_later(self, delay: float, call: Callable[..., Any], *args: Any) -> "Timer":
        timer = Timer(self, delay, call, args)
        self.calls.append(timer)
        return timer

    def fire(self, longest: float) -> None:
        """All that is due within so many seconds, once."""
        for timer in [timer for timer in self.calls if timer.delay <= longest]:
            timer.cancel()
            timer.call(*timer.args)


class Timer:
    """One such call."""

    def __init__(self, timers: Timers, delay: float, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.delay, self.call, self.args = delay, call, args
        self._timers = timers

    def cancel(self) -> None:
        if self in self._timers.calls:
            self._timers.calls.remove(self)


class Brain:
    """Sends what comes to the first replica, writes down all events, and answers ends as the test says."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.then: list[Callable[[AttemptFinished], list[Command]]] = []

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        if isinstance(event, RequestArrived):
            return [dispatch(event.request.id, 0, R0)]
        asks = isinstance(event, AttemptFinished) and (event.outcome.resumable or not event.outcome.committed)
        if asks and self.then and isinstance(event, AttemptFinished):
            return self.then.pop(0)(event)
        return []

    def snapshot(self, at: float) -> FleetSnapshot:
        raise NotImplementedError

    def prospect(self, request_id: RequestId) -> tuple[int, float] | None:
        return None


def dispatch(request: RequestId, number: int, replica: ReplicaId, resumes: bool = False) -> Dispatch:
    return Dispatch(request, attempt_id(request, number), replica, MODEL, resumes=resumes)


class Client:
    """The client's connection, and its transport in one."""

    def __init__(self) -> None:
        self.transport: Any = self
        self.got = b""
        self.deadline = FAR
        self.keep_alive = self.secure = True
        self.paused = self.cutting = self.over = False
        self.peer = self.forwarded = b""

    def write(self, data: bytes) -> None:
        self.got += data

    def own_lines(self, ticket: Any, notes: Any) -> bytes:
        return b""

    def interim(self, response: bytes) -> None:
        self.got += response

    def exchange_ended(self) -> None:
        self.over = True

    @property
    def head(self) -> bytes:
        return self.got.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        """The payload, its framing taken off."""
        head, _, data = self.got.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head:
            return data
        found = b""
        while data:
            size, _, data = data.partition(b"\r\n")
            found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
        return found

    @property
    def ended(self) -> bool:
        """Whether the body ended cleanly."""
        return self.got.endswith(b"\r\n0\r\n\r\n") or b"content-length" in self.head


class Connection:
    """One connection to an engine, and what was sent on it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.owner: Any = None
        self.dropped = self.paused = False
        self.heard_at = 0.0
        self.path = ""
        self.body = b""
        self._told = 0

    def __repr__(self) -> str:
        return f"<{self.target.spec.id} {self.path} {'dropped' if self.dropped else 'open' if self.owner else 'free'}>"

    # Called by the owner.

    def send(self, owner: Any, head: bytes, body: bytes) -> None:
        self.send_pieces(owner, head, [body])

    def send_pieces(self, owner: Any, head: bytes, pieces: list[Any]) -> None:
        self.owner, self.body = owner, b"".join(pieces)
        self.path = head.split(b" ", 2)[1].decode()

    def drop(self) -> None:
        self.owner, self.dropped = None, True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    # Called by the test.

    def begins(self, head: bytes = STREAM_HEAD) -> None:
        """The response's head."""
        read, length = HeadReader().response(head)
        self.owner.response(read, length)

    def says(self, data: bytes) -> None:
        """Payload."""
        if self.owner is not None:
            self.owner.body(data)

    def ends(self) -> None:
        """The response ends as its framing says."""
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.ended()

    def dies(self, kind: OutcomeKind = OutcomeKind.TRUNCATED) -> None:
        """The connection is gone."""
        owner, self.owner = self.owner, None
        owner.lost(kind, "it is gone")

    def answers(self, value: object) -> None:
        """A whole JSON answer at once."""
        owner, self.owner = self.owner, None
        read, _ = HeadReader().response(JSON_HEAD)
        owner.answered(read, json.dumps(value).encode())

    def refuses(self, status: int) -> None:
        """A status without more."""
        read, _ = HeadReader().response(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())
        self.owner.response(read, 0)
        self.ends()

    @property
    def script(self) -> list[bytes]:
        """The events that an engine says to what was sent."""
        return [framed([event]) for event in stream(self.path, self.body, f"at-{self.target.spec.id}")]

    def plays(self, events: int = 10**6) -> None:
        """So many more of them; with the last one the response ends."""
        script = self.script
        for event in script[self._told : self._told + events]:
            self._told += 1
            self.says(event)
        if self._told == len(script):
            self.ends()


class Pool:
    """Hands out connections; `refusing` replicas cannot be connected to."""

    def __init__(self) -> None:
        self.targets: dict[ReplicaId, Target] = {}
        self.connections: list[Connection] = []
        self.refusing: set[ReplicaId] = set()

    def acquire(self, target: Target) -> Connection | None:
        if target.spec.id in self.refusing:
            return None
        self.connections.append(Connection(target))
        return self.connections[-1]

    def connect(self, target: Target, done: Any, failed: Callable[[OutcomeKind, str], None]) -> Timer:
        failed(OutcomeKind.CONNECT_FAILED, "refused")
        return Timer(Timers(), 0.0, lambda: None, ())


class Handing(vllm.Vllm):
    """An engine that continues like vLLM and hands its KV over like llama.cpp."""

    continuation = msgspec.structs.replace(vllm.Vllm.continuation, kv=LLAMA.kv, pull=None)


class Stage:
    """All of it. `timers` replaces the loop (see the fixture `stage`). `domains`: those of r0, r1 and r2, within
    which they hand over their KV, through slots or (`pulls`) as vLLM does."""

    def __init__(
        self, timers: Timers, moving: Moving | None = None, domains: Sequence[str] = (), pulls: bool = False
    ) -> None:
        config = GatewayConfig(moving=moving or Moving(), inject_usage="never")
        self.timers = timers
        self.brain = Brain()
        self.booked: list[Any] = []
        self.plane = Plane(config, HeadReader(), Telemetry(access_log=self.booked.append))
        self.pool = Pool()
        self.plane.pool = self.pool  # type: ignore[assignment]
        self.plane.driver = Driver(self.brain, self, config.progress_tick_s, lambda _: None)
        dialect = Handing() if domains and not pulls else vllm.PLUGIN.factory(vllm.PLUGIN.config())
        for name, domain in zip((R0, R1, R2), domains or ("", "", ""), strict=True):
            spec = ReplicaSpec(name, f"http://{name}:1", "vllm", MODEL, max_num_seqs=2, kv_domain=domain)
            self.pool.targets[name] = Target(spec, config, dialect)
        self.plane.set_models()
        self.client = Client()
        self.exchange: Exchange
        self.body = b""
        self.path = ""

    def record(self, entry: Any) -> None:
        """The driver's keeper."""

    def arrive(self, path: str = CHAT, **fields: Any) -> Connection:
        """A request, as the client sends it, and the connection that it is sent on."""
        prompt = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "Once"}
        self.body = json.dumps({"model": MODEL, "stream": True, "max_tokens": 40, **prompt, **fields}).encode()
        self.path = path
        head, _ = self.plane.reader.request(f"POST {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        notes = self.plane.note(head)  # type: ignore[arg-type]
        self.plane.body_bytes += len(self.body)
        ticket = self.plane.open(notes)
        self.exchange = Exchange(self.plane, self.client, head, notes, ticket, self.body)  # type: ignore[arg-type]
        self.exchange.begin()
        return self.pool.connections[-1]

    def running(self, events: int = 8, path: str = CHAT, **fields: Any) -> Connection:
        """One that has begun to be answered."""
        source = self.arrive(path, **fields)
        source.begins()
        source.plays(events)
        return source

    @property
    def request(self) -> RequestId:
        return self.exchange.ticket.request_id

    @property
    def mover(self) -> Mover:
        mover = self.exchange.mover
        assert mover is not None
        return mover

    def attempt(self, number: int) -> AttemptId:
        return attempt_id(self.request, number)

    def migrate(
        self, number: int = 1, to: ReplicaId = R1, source: int = 0, reason: str = "test", replay_s: float = 0.0
    ) -> Connection:
        """The brain wants it moved: the connection on which the target is warmed, or KV saved for it."""
        attempts = self.attempt(source), self.attempt(number)
        command = Migrate(self.request, *attempts, to, MODEL, reason, 1000, replay_s)
        self.exchange.migrate(command)
        return self.pool.connections[-1]

    def evict(self, number: int = 0) -> None:
        self.exchange.evict(Evict(self.attempt(number), "test"))

    def resume(self, number: int = 1, to: ReplicaId = R1) -> Connection:
        """The brain has found somebody to go on: the connection on which he is asked what ids spell."""
        self.exchange.dispatch(dispatch(self.request, number, to, resumes=True))
        return self.pool.connections[-1]

    def warmed(self, warming: Connection) -> Connection:
        """The target has read what there is: the connection on which it is asked what ids spell."""
        warming.answers({"choices": []})
        return self.pool.connections[-1]

    def spelled(self, asking: Connection) -> Connection:
        """The target says what ids spell, as often as it is asked: the connection on which it is to go on."""
        while asking.path == "/detokenize":
            asking.answers({"prompt": detokenise(json.loads(asking.body)["tokens"])})
            if asking is self.pool.connections[-1]:
                break
            asking = self.pool.connections[-1]
        return asking

    def moving(self, **options: Any) -> Connection:
        """From the order to move to where the target is to go on."""
        return self.spelled(self.warmed(self.migrate(**options)))

    # What came of it.

    @property
    def undisturbed(self) -> bytes:
        """What one engine would have said, with the head of the first."""
        return framed(stream(self.path, self.body, "at-r0"))

    @property
    def ends(self) -> list[tuple[str, Outcome]]:
        """How attempts ended, in order, by number."""
        told = [event for event in self.brain.events if isinstance(event, AttemptFinished)]
        return [(event.attempt_id.rpartition("-")[2], event.outcome) for event in told]

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(number, str(outcome.kind)) for number, outcome in self.ends]

    @property
    def refusals(self) -> int:
        """Evictions that were refused."""
        return sum(isinstance(event, EvictionRefused) for event in self.brain.events)

    def closed(self) -> None:
        """The request is over: every connection is free or closed, each attempt settled once, nothing is held."""
        assert self.client.over
        assert [connection for connection in self.pool.connections if connection.owner is not None] == []
        numbers = [number for number, _ in self.ends]
        assert sorted(numbers) == sorted(set(numbers))
        assert (self.plane.body_bytes, self.plane.driver.exchanges) == (0, {})
        assert [timer for timer in self.timers.calls if timer.delay > 0.05] == [], "a timer of the mover's"
        assert len(self.booked) == 1


__all__ = ["CHAT", "COMPLETIONS", "R0", "R1", "R2", "Client", "Connection", "Stage", "Timers", "dispatch"]
