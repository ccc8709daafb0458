"""The model cards of one replica, refreshed seldom: adapters are loaded and unloaded while an engine runs.

Cards are kept as the engine wrote them, unknown fields included. A replica that does not answer keeps its last ones,
and is asked again soon: what it serves may be known from nothing else.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from headway.engines.cards import MODELS_PATH, models, told
from headway.observe.config import ObserveConfig
from headway.observe.polling import ABSENT
from headway.runtime.http import Answer, Client

Cards = list[dict[str, Any]]


class ModelCards:
    """Refreshes one replica's cards until cancelled; `on_change(cards)` when names, weights or limits are others."""

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
        interval_s = self._config.cards_interval_s
        soon_s = retry_s = min(self._config.cards_retry_s, interval_s)
        while True:
            self._asked.clear()
            if await self.refresh():
                wait_s, retry_s = interval_s, soon_s
            else:
                wait_s, retry_s = retry_s, min(2.0 * retry_s, interval_s)
            try:
                async with asyncio.timeout(wait_s):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> bool:
        """Ask once; whether there was an answer, if only that there are no cards."""
        answer = await self._client.fetch(self._url, timeout_s=self._config.probe_timeout_s, headers=self._headers)
        if not isinstance(answer, Answer) or answer.status != 200:
            return isinstance(answer, Answer) and answer.status in ABSENT
        if cards := models({MODELS_PATH: answer.body}):
            changed = told(cards) != told(self.cards)
            self.cards = cards
            if changed:
                self._on_change(cards)
        return True
