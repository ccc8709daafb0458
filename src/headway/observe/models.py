"""The model cards of one replica, refreshed seldom: adapters are loaded and unloaded while an engine runs.

Cards are kept as the engine wrote them, unknown fields included. A replica that does not answer keeps its last ones.
"""

import asyncio
from collections.abc import Callable

import msgspec

from headway.engines.cards import MODELS_PATH
from headway.observe.config import ObserveConfig
from headway.runtime.http import Answer, Client

Cards = dict[str, msgspec.Raw]
"""Model id -> the card's JSON."""


class _Card(msgspec.Struct):
    id: str


class _Page(msgspec.Struct):
    data: list[msgspec.Raw]


def parse(body: bytes) -> Cards | None:
    """The cards of a `/v1/models` answer in order, None if it is none."""
    try:
        cards = msgspec.json.decode(body, type=_Page).data
        return {msgspec.json.decode(card, type=_Card).id: msgspec.Raw(bytes(card)) for card in cards}
    except (msgspec.DecodeError, RecursionError):
        return None


class ModelCards:
    """Refreshes one replica's cards until cancelled; `on_change(cards)` when their names differ from before."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        client: Client,
        config: ObserveConfig,
        on_change: Callable[[Cards], None],
    ) -> None:
        self.cards: Cards = {}
        self._url = url + MODELS_PATH
        self._headers = headers
        self._client = client
        self._config = config
        self._on_change = on_change
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Refresh soon: the engine was started anew."""
        self._asked.set()

    async def run(self) -> None:
        """Refresh for ever."""
        while True:
            self._asked.clear()
            await self.refresh()
            try:
                async with asyncio.timeout(self._config.cards_interval_s):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Ask once."""
        answer = await self._client.fetch(self._url, timeout_s=self._config.probe_timeout_s, headers=self._headers)
        if not isinstance(answer, Answer) or answer.status != 200 or (cards := parse(answer.body)) is None:
            return
        changed = cards.keys() != self.cards.keys()
        self.cards = cards
        if changed:
            self._on_change(cards)
