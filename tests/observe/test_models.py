"""Model cards are kept as written and refreshed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headway.observe.config import ObserveConfig
from headway.observe.models import Cards, ModelCards
from headway.runtime.http import client
from tests.observe.fakes import MODELS, models
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
CONFIG = ObserveConfig(probe_timeout_s=0.1)


def refresh(run: Run, *replies: Reply) -> tuple[ModelCards, list[list[str]]]:
    async def story() -> tuple[ModelCards, list[list[str]]]:
        changes: list[list[str]] = []

        def note(cards: Cards) -> None:
            changes.append([card["id"] for card in cards])

        async with serving({}) as served, client() as http:
            kept = ModelCards(served.url, {}, http, CONFIG, note)
            for reply in replies:
                served.replies[MODELS] = reply
                await kept.refresh()
        return kept, changes

    return run(story())


def test_cards_keep_fields_nobody_knows(run: Run) -> None:
    kept, changes = refresh(run, models("a", "b"))
    assert [card["id"] for card in kept.cards] == ["a", "b"]
    assert kept.cards[0]["odd"] == 1
    assert changes == [["a", "b"]]


def test_a_change_of_names_is_told(run: Run) -> None:
    _, changes = refresh(run, models("a"), models("a"), models("a", "lora"), models("a"))
    assert changes == [["a"], ["a", "lora"], ["a"]]


def test_a_change_of_limits_is_told(run: Run) -> None:
    pages = [Reply(b'{"data": [{"id": "a", "created": %d, "max_model_len": %d}]}' % (n, n // 2)) for n in range(4)]
    _, changes = refresh(run, *pages)
    assert len(changes) == 2, "not with each moment of its making"


def test_a_change_of_weights_is_told(run: Run) -> None:
    _, changes = refresh(run, *[Reply(b'{"data": [{"id": "a", "root": "%b"}]}' % root) for root in (b"x", b"x", b"y")])
    assert len(changes) == 2


@pytest.mark.parametrize(
    "reply", [Reply(b"Internal Server Error", 500), Reply(b"{}"), Reply(delay_s=None), Reply(raw=b"")]
)
def test_a_replica_that_does_not_answer_keeps_its_cards(run: Run, reply: Reply) -> None:
    kept, changes = refresh(run, models("a"), reply)
    assert [card["id"] for card in kept.cards] == ["a"]
    assert changes == [["a"]]


def test_a_refresh_comes_by_the_clock_and_on_demand(run: Run) -> None:
    async def story() -> None:
        async with serving({MODELS: models("a")}) as served, client() as http:
            for config, ask in ((ObserveConfig(cards_interval_s=0.01), False), (CONFIG, True)):
                kept = ModelCards(served.url, {}, http, config, lambda _cards: None)
                before = served.asked[MODELS]
                running = asyncio.ensure_future(kept.run())
                await served.asked_for(MODELS, before + 1)
                if ask:
                    kept.ask()
                await served.asked_for(MODELS, before + 2)
                running.cancel()
                await asyncio.wait([running])

    run(story())


def test_a_replica_that_fails_is_asked_again_soon(run: Run) -> None:
    """For half a minute it served nothing, because the first answer was a 503."""

    async def story() -> Cards:
        heard: asyncio.Queue[Cards] = asyncio.Queue()
        async with serving({MODELS: Reply(status=503)}) as served, client() as http:
            kept = ModelCards(served.url, {}, http, ObserveConfig(cards_retry_s=0.001), heard.put_nowait)
            running = asyncio.ensure_future(kept.run())
            await served.asked_for(MODELS, 3)
            served.replies[MODELS] = models("a")
            async with asyncio.timeout(5):
                cards = await heard.get()
            asked = served.asked[MODELS]
            await asyncio.sleep(0.02)
            assert served.asked[MODELS] == asked, "and seldom once it answered"
            running.cancel()
            await asyncio.wait([running])
        return cards

    assert [card["id"] for card in run(story())] == ["a"]


@pytest.mark.parametrize(("status", "settled"), [(200, True), (404, True), (401, True), (503, False), (429, False)])
def test_an_engine_without_cards_has_answered(run: Run, status: int, settled: bool) -> None:
    async def story() -> bool:
        async with serving({MODELS: Reply(status=status)}) as served, client() as http:
            return await ModelCards(served.url, {}, http, CONFIG, lambda _cards: None).refresh()

    assert run(story()) is settled
