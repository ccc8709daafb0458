import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from headway.admin.control import Added, NewReplica, Refused
from headway.compose.fleet import Fleet
from headway.coordinate.static import Entry
from headway.core.events import Event, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Heard:
    """Everybody a fleet tells about changes."""

    def __init__(self, aliases: dict[str, list[str]] | None = None, entries: Sequence[Entry] = ()) -> None:
        self.events: list[ReplicasChanged] = []
        self.watched: list[list[str]] = []
        engines = {"vllm", "openai"}
        self.own: list[tuple[str, int]] = []
        self.fleet = Fleet(
            self.post, self.watch, self.detect, aliases or {}, engines, entries, lambda: self.own, retry_s=0.001
        )
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.now: ReplicaSpec | None = spec("x")

    def post(self, event: Event) -> None:
        assert isinstance(event, ReplicasChanged)
        self.events.append(event)

    def watch(self, specs: Sequence[ReplicaSpec]) -> None:
        self.watched.append([spec.id for spec in specs])

    async def detect(self, url: str) -> object:
        self.asked.put_nowait(url)
        await asyncio.sleep(0)
        found = self.now if "there" in url else None
        return f"nobody at {url}" if found is None else msgspec.structs.replace(found, url=url)


def spec(name: str, url: str = "", serves: Sequence[str] = ("m",)) -> ReplicaSpec:
    return ReplicaSpec(ReplicaId(name), url or f"http://{name}", "vllm", serves[0], serves={n: n for n in serves})


def test_publications_reach_brain_and_observer() -> None:
    heard = Heard()
    publish = heard.fleet.publisher("static")
    publish([spec("a"), spec("b")])
    publish([spec("a"), spec("b")])
    publish([spec("b")])
    assert [([s.id for s in e.upserted], list(e.removed)) for e in heard.events] == [(["a", "b"], []), ([], ["a"])]
    assert heard.watched == [["a", "b"], ["b"]]


def test_aliases_lead_to_the_most_wanted_name_that_is_served() -> None:
    """Case 137: each replica gets the name it knows."""
    heard = Heard({"fast": ["small", "large"], "none": ["absent"]})
    heard.fleet.publisher("static")([spec("a", serves=["large"]), spec("b", serves=["small", "large"])])
    a, b = heard.fleet.specs()
    assert a.serves == {"large": "large", "fast": "large"}
    assert b.serves == {"small": "small", "large": "large", "fast": "small"}
    assert (a.variants, b.variants) == ({"fast": 1}, {"fast": 0})


def test_the_name_of_a_model_says_its_precision_unless_somebody_did() -> None:
    heard = Heard()
    stated = msgspec.structs.replace(spec("c", serves=["m-fp8"]), precision="bf16")
    heard.fleet.publisher("static")([spec("a", serves=["m-FP8-dynamic"]), spec("b"), stated])
    assert [replica.precision for replica in heard.fleet.specs()] == ["fp8", "", "bf16"]


def test_adapters_come_and_go_with_the_engines_cards() -> None:
    heard = Heard({"mine": ["adapter"]})
    heard.fleet.publisher("static")([spec("a")])
    heard.fleet.new_cards(ReplicaId("a"), [{"id": "m"}])
    assert len(heard.events) == 1, "nothing new"
    heard.fleet.new_cards(ReplicaId("a"), [{"id": "m"}, {"id": "adapter"}])
    assert heard.fleet.specs()[0].serves == {"m": "m", "adapter": "adapter", "mine": "adapter"}
    heard.fleet.new_cards(ReplicaId("a"), [{"id": "m"}])
    assert heard.fleet.specs()[0].serves == {"m": "m"}
    heard.fleet.new_cards(ReplicaId("gone"), [{"id": "m"}])
    assert [s.id for e in heard.events for s in e.upserted] == ["a", "a", "a"]


def test_an_engine_that_was_started_anew_is_asked_again_what_it_is(run: Run) -> None:
    """With another context, on another version: what was found out is renewed, what was stated stays, and so do id and
    names, which the cards tell."""
    stated = Entry("http://there-b", weight=2.0, max_model_tokens=64)
    heard = Heard({"nick": ["m"]}, [stated])
    before = [msgspec.structs.replace(spec(name, f"http://there-{name}"), max_model_tokens=8) for name in "ab"]
    heard.fleet.publisher("static")(before)
    heard.now = msgspec.structs.replace(spec("x"), max_model_tokens=32, labels={"engine_version": "2"})
    for replica in heard.fleet.specs():
        run(heard.fleet.look_again(replica.id))
    a, b = heard.fleet.specs()
    assert [(r.id, r.max_model_tokens, r.weight) for r in (a, b)] == [("there-a", 32, 1.0), ("there-b", 64, 2.0)]
    assert a.serves == b.serves == {"m": "m", "nick": "m"}
    assert a.labels == {"engine_version": "2"}
    told = len(heard.events)
    run(heard.fleet.look_again(a.id))
    run(heard.fleet.look_again(ReplicaId("gone")))
    assert len(heard.events) == told, "nothing new"


def test_an_engine_that_does_not_say_what_it_is_is_asked_until_it_does(run: Run) -> None:
    """Its cards failed for three seconds after a restart, and the old context held until the next one."""
    heard = Heard()
    heard.fleet.publisher("static")([spec("a", "http://there")])
    (replica,) = heard.fleet.specs()

    async def story() -> None:
        heard.now = None
        first = asyncio.ensure_future(heard.fleet.look_again(replica.id))
        assert [await heard.asked.get() for _ in range(3)] == ["http://there"] * 3
        assert heard.fleet.specs() == (replica,)
        second = asyncio.ensure_future(heard.fleet.look_again(replica.id))
        await asyncio.sleep(0)
        heard.now = msgspec.structs.replace(spec("x"), max_model_tokens=32)
        async with asyncio.timeout(5):
            await asyncio.gather(first, second)
        assert len(heard.events) == 2, "the later look takes over"

    run(story())
    assert heard.fleet.specs()[0].max_model_tokens == 32


def test_a_replica_that_is_removed_is_not_asked_for_ever(run: Run) -> None:
    heard = Heard()
    heard.fleet.publisher("static")([spec("a", "http://absent")])

    async def story() -> None:
        looking = asyncio.ensure_future(heard.fleet.look_again(ReplicaId("absent")))
        assert [await heard.asked.get() for _ in range(2)] == ["http://absent"] * 2
        heard.fleet.remove(ReplicaId("absent"))
        async with asyncio.timeout(5):
            await looking

    run(story())
    assert len(heard.events) == 2


def test_what_the_same_model_does_not_say_again_stays_known(run: Run) -> None:
    known = {"precision": "fp8", "max_model_tokens": 8, "kv_capacity_tokens": 80, "max_num_seqs": 4}
    heard = Heard()
    before = msgspec.structs.replace(spec("a", "http://there"), labels={"engine_version": "1"}, **known)
    heard.fleet.publisher("static")([before])
    heard.now = msgspec.structs.replace(spec("x"), max_model_tokens=16)
    run(heard.fleet.look_again(ReplicaId("there")))
    assert heard.fleet.specs() == (msgspec.structs.replace(before, id="there", max_model_tokens=16),)
    heard.now = spec("x", serves=["another"])
    run(heard.fleet.look_again(ReplicaId("there")))
    (other,) = heard.fleet.specs()
    assert (other.model, other.precision, other.max_model_tokens, other.labels) == ("another", "", 0, {})


def test_a_replica_that_is_removed_while_it_is_looked_at_stays_removed(run: Run) -> None:
    heard = Heard()
    heard.fleet.publisher("static")([spec("a", "http://there")])

    async def story() -> None:
        looking = asyncio.ensure_future(heard.fleet.look_again(ReplicaId("there")))
        await asyncio.sleep(0)
        heard.fleet.remove(ReplicaId("there"))
        await looking

    run(story())
    assert heard.fleet.specs() == ()


def test_operators_add_and_remove(run: Run) -> None:
    heard = Heard()
    added = run(heard.fleet.add(NewReplica("HTTP://There:8000/", weight=2.0, serves={"nick": "m"})))
    assert added == Added("there:8000", "http://there:8000")
    (registered,) = heard.fleet.specs()
    assert (registered.weight, registered.serves) == (2.0, {"m": "m", "nick": "m"})
    assert heard.fleet.knows(registered.id)
    assert heard.fleet.remove(registered.id)
    assert not heard.fleet.remove(registered.id)
    assert heard.watched[-1] == []


def test_what_cannot_be_a_replica_is_refused_without_asking_anybody(run: Run) -> None:
    """Case 133."""
    heard = Heard()
    for url in ("http://169.254.169.254/", "file:///etc/passwd", "gopher://there", "http://u:p@there", "there"):
        assert isinstance(run(heard.fleet.add(NewReplica(url))), Refused)
    assert not heard.events


def test_the_gateways_own_ports_are_refused_without_asking_anybody(run: Run) -> None:
    """Twelve requests came back twenty-six times."""
    heard = Heard()
    heard.own = [("0.0.0.0", 8800), ("127.0.0.1", 8801)]
    for url in ("http://127.0.0.1:8800", "http://localhost:8801/v1"):
        refused = run(heard.fleet.add(NewReplica(url, engine="vllm", model="m")))
        assert isinstance(refused, Refused)
        assert "own address" in refused.reason
    assert heard.asked.empty()
    assert isinstance(run(heard.fleet.add(NewReplica("http://there:8800"))), Added)


def test_an_engine_that_does_not_answer_needs_engine_and_model(run: Run) -> None:
    heard = Heard()
    refused = run(heard.fleet.add(NewReplica("http://absent")))
    assert isinstance(refused, Refused)
    assert "nobody at" in refused.reason
    assert isinstance(run(heard.fleet.add(NewReplica("http://absent", engine="vllm", model="m"))), Added)


def test_an_unknown_engine_is_refused(run: Run) -> None:
    refused = run(Heard().fleet.add(NewReplica("http://there", engine="vlm")))
    assert refused == Refused("engine: there are openai, vllm")
