"""The model cards of one replica, refreshed seldom: adapters are loaded and unloaded while an engine runs.

Cards are kept as the engine wrote them, unknown fields included. A replica that does not answer keeps its last ones.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from headway.engines.cards import MODELS_PATH, limits, models, names
from headway.observe.config import ObserveConfig
from headway.runtime.http import Answer, Client

Cards = list[dict[str, Any]]


class ModelCards:
    """Refreshes one replica's cards until cancelled; `on_change(cards)` when names or limits differ from before."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        client: Client,
        config: ObserveConfig,
        on_change: Callable[[Cards], None],
    ) -> None:
        self.cards: Cards = []
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
        if not isinstance(answer, Answer) or answer.status != 200 or not (cards := models({MODELS_PATH: answer.body})):
            return
        changed = names(cards) != names(self.cards) or limits(cards) != limits(self.cards)
        self.cards = cards
        if changed:
            self._on_change(cards)
