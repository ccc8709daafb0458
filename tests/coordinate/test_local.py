"""Looking around on localhost."""

from collections.abc import Callable
from typing import Any

from headway.coordinate.local import Local, usual_ports
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.base import Dialect

Run = Callable[[Any], Any]


class One(Dialect):
    name, ports, detect_paths = "one", (8000,), ()

    def detect(self, answers: Any) -> None: ...


class Two(One):
    name, ports = "two", (8000, 9000)


async def detect(url: str) -> Any:
    if url.endswith(":9000"):
        return ReplicaSpec(ReplicaId("x"), url, "two", "llama")
    return f"nobody at {url}"


def test_neighbouring_ports_are_looked_at_too() -> None:
    assert usual_ports([Two(), One()]) == {
        8000: ("two", "one"),
        8001: ("two", "one"),
        9000: ("two",),
        9001: ("two",),
    }


def test_every_port_says_what_was_found(run: Run) -> None:
    looks = run(Local([One(), Two()], detect).look())
    assert [str(look) for look in looks] == [
        "port 8000 (one, two): nobody at http://127.0.0.1:8000",
        "port 8001 (one, two): nobody at http://127.0.0.1:8001",
        "port 9000 (two): two serving llama",
        "port 9001 (two): nobody at http://127.0.0.1:9001",
    ]


def test_what_was_found_is_published(run: Run) -> None:
    published: list[ReplicaSpec] = []
    run(Local([Two()], detect).run(published.extend))
    assert [spec.url for spec in published] == ["http://127.0.0.1:9000"]
