from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from headway.admin.control import Added, NewReplica, Refused
from headway.compose.fleet import Fleet
from headway.core.events import Event, ReplicasChanged
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec

Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Heard:
    """Everybody a fleet tells about changes."""

    def __init__(self, aliases: dict[str, list[str]] | None = None) -> None:
        self.events: list[ReplicasChanged] = []
        self.watched: list[list[str]] = []
        self.fleet = Fleet(self.post, self.watch, self.detect, aliases or {}, {"vllm", "openai"})

    def post(self, event: Event) -> None:
        assert isinstance(event, ReplicasChanged)
        self.events.append(event)

    def watch(self, specs: Sequence[ReplicaSpec]) -> None:
        self.watched.append([spec.id for spec in specs])

    async def detect(self, url: str) -> object:
        return spec("x", url=url) if "there" in url else f"nobody at {url}"


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


def test_an_engine_that_does_not_answer_needs_engine_and_model(run: Run) -> None:
    heard = Heard()
    refused = run(heard.fleet.add(NewReplica("http://absent")))
    assert isinstance(refused, Refused)
    assert "nobody at" in refused.reason
    assert isinstance(run(heard.fleet.add(NewReplica("http://absent", engine="vllm", model="m"))), Added)


def test_an_unknown_engine_is_refused(run: Run) -> None:
    refused = run(Heard().fleet.add(NewReplica("http://there", engine="vlm")))
    assert refused == Refused("engine: there are openai, vllm")
