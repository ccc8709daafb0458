"""Listed replicas: stated facts win, open ones are found out, late ones are waited for."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from structlog.testing import capture_logs

from headway.coordinate.static import LOOKS, Entry, Static, merged, unlisted
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec

Run = Callable[[Any], Any]
URL = "http://a:1"
FOUND = ReplicaSpec(
    ReplicaId("x"),
    URL,
    "vllm",
    "llama",
    precision="bf16",
    labels={"engine_version": "1"},
    serves={"llama": "llama"},
    max_model_tokens=100,
    kv_capacity_tokens=1000,
)


def publications(run: Run, entries: Sequence[Entry], answers: list[object]) -> list[list[ReplicaSpec]]:
    """What a source publishes when detection gives these answers, one after the other, and then FOUND."""

    async def detect(_url: str) -> Any:
        return answers.pop(0) if answers else FOUND

    async def story() -> list[list[ReplicaSpec]]:
        published: list[list[ReplicaSpec]] = []
        async with asyncio.timeout(5):
            await Static(entries, detect, retry_s=0.001).run(lambda specs: published.append(list(specs)))
        return published

    return run(story())


def test_a_bare_url_is_published_when_it_was_detected(run: Run) -> None:
    first, last = publications(run, [Entry(URL)], [])
    assert first == []
    (spec,) = last
    assert (spec.engine, spec.model, spec.serves, spec.kv_capacity_tokens) == (
        "vllm",
        "llama",
        {"llama": "llama"},
        1000,
    )


def test_a_complete_entry_is_published_at_once_and_completed_later(run: Run) -> None:
    first, last = publications(run, [Entry(URL, engine="vllm", model="llama")], [])
    assert [(spec.engine, spec.model, spec.kv_capacity_tokens) for spec in first] == [("vllm", "llama", 0)]
    assert last[0].kv_capacity_tokens == 1000


def test_an_engine_that_is_not_up_yet_is_waited_for_and_told_once_per_reason(run: Run) -> None:
    with capture_logs() as logs:
        published = publications(run, [Entry(URL)], ["refused", "refused", "status 503", "refused"])
    assert [len(specs) for specs in published] == [0, 1]
    assert [entry["reason"] for entry in logs] == ["refused", "status 503", "refused"]


def test_one_late_engine_does_not_keep_back_the_others(run: Run) -> None:
    published = publications(run, [Entry(URL), Entry("http://b:2")], [FOUND, "refused"])
    assert [len(specs) for specs in published] == [0, 1, 2]


def test_one_that_never_answers_does_not_keep_back_the_others(run: Run) -> None:
    """The good one was registered when the look at the other gave up, five seconds later."""
    published: asyncio.Queue[int] = asyncio.Queue()
    open_now, most = 0, 0

    async def detect(url: str) -> Any:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        try:
            await asyncio.sleep(3600 if "hung" in url else 0)
        finally:
            open_now -= 1
        return msgspec.structs.replace(FOUND, url=url)

    async def story() -> None:
        entries = [Entry("http://hung"), *(Entry(f"http://h{n}") for n in range(LOOKS))]
        source = Static(entries, detect)
        running = asyncio.ensure_future(source.run(lambda specs: published.put_nowait(len(specs))))
        times = 1
        async with asyncio.timeout(5):
            while await published.get() < LOOKS:
                times += 1
        assert times <= 4, "what is found together is told together"
        running.cancel()
        await asyncio.wait([running])

    run(story())
    assert (most, open_now) == (LOOKS, 0)


def test_what_is_stated_wins() -> None:
    entry = Entry(
        URL,
        engine="openai",
        model="other",
        serves={"alias": "other"},
        labels={"zone": "a"},
        weight=2.0,
        precision="fp8",
        kv_capacity_tokens=7,
        metrics=False,
        features={"step_base_s": 0.01},
    )
    spec = merged(entry, FOUND)
    assert (spec.engine, spec.model, spec.precision, spec.kv_capacity_tokens) == ("openai", "other", "fp8", 7)
    assert spec.serves == {"llama": "llama", "other": "other", "alias": "other"}
    assert spec.labels == {"engine_version": "1", "zone": "a"}
    assert (spec.weight, spec.metrics, spec.max_model_tokens) == (2.0, False, 100)
    assert spec.features == {"step_base_s": 0.01}


def test_what_is_left_open_is_as_detected() -> None:
    assert merged(Entry(URL), FOUND) == FOUND
    assert merged(Entry(URL, engine="vllm", model="m"), None).id == "a:1"


def test_what_another_dialect_says_of_a_load_report_does_not_bind_the_stated_engine() -> None:
    generic = msgspec.structs.replace(FOUND, engine="openai", metrics=False)
    assert merged(Entry(URL, engine="vllm"), generic).metrics
    assert not merged(Entry(URL, engine="vllm", metrics=False), generic).metrics
    assert not merged(Entry(URL), generic).metrics


def test_a_stated_model_that_is_not_listed_is_told(run: Run) -> None:
    with capture_logs() as logs:
        publications(run, [Entry(URL, model="other", serves={"x": "llama", "y": "gone"})], [])
    (told,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert (told["url"], told["stated"], told["listed"]) == (URL, ("gone", "other"), ["llama"])


def test_names_an_engine_knows_are_not_missed() -> None:
    tagged = msgspec.structs.replace(FOUND, serves={"llama:latest": "llama:latest"})
    assert unlisted(Entry(URL, model="llama"), FOUND) == unlisted(Entry(URL, model="llama"), tagged) == ()
    assert unlisted(Entry(URL, model="llama"), msgspec.structs.replace(FOUND, serves={})) == ()
    assert unlisted(Entry(URL), FOUND) == ()
