"""Looks at a local fleet while it works: the gateway's /fleet, and what each emulator says about itself."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headway.bench.local_fleet import Address, LocalFleet
from headway.runtime.http import Answer, Client
from headway.wire import promtext

INTERVAL_S = 0.5
_SUM, _COUNT = "vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_count"
_LAG = "headway_emulator_clock_lag_ratio"
_NAMES = frozenset({_SUM, _COUNT, _LAG})


class Glance(msgspec.Struct, frozen=True):
    """The fleet at one moment. `fleet` is /fleet as the gateway says it; `ttft_s` by replica name is the engine's own
    mean since the last glance that saw a first token, in the emulator's time."""

    fleet: Mapping[str, Any]
    ttft_s: Mapping[str, float]

    @property
    def accounts(self) -> Mapping[str, int]:
        """The gateway's accounts of requests."""
        accounts: Mapping[str, int] = self.fleet["requests"]
        return accounts


class Watcher:
    """Asks again and again. `worst_lag` is the largest share of time any emulator's clock was behind."""

    def __init__(self, fleet: LocalFleet, http: Client) -> None:
        self._fleet, self._http = fleet, http
        self._totals: dict[str, tuple[float, float]] = {}
        self._ttft: dict[str, float] = {}
        self._lag: dict[str, float] = {}

    @property
    def worst_lag(self) -> float:
        """0.1: an emulator took 10 % longer than its clock allowed, at its worst moment."""
        return max(self._lag.values(), default=0.0)

    async def run(self, show: Callable[[Glance], None]) -> None:
        """Glance until cancelled."""
        while True:
            glance = await self.glance()
            if glance is not None:
                show(glance)
            await asyncio.sleep(INTERVAL_S)

    async def glance(self) -> Glance | None:
        """The fleet now; None when the gateway does not answer."""
        for replica in self._fleet.replicas:
            await self._ask(replica)
        got = await self._http.fetch(f"{self._fleet.admin}/fleet", timeout_s=2.0)
        if not isinstance(got, Answer) or got.status != 200:
            return None
        return Glance(msgspec.json.decode(got.body), dict(self._ttft))

    async def _ask(self, replica: Address) -> None:
        got = await self._http.fetch(f"{replica.url}/metrics", timeout_s=2.0)
        if not isinstance(got, Answer) or got.status != 200:
            return
        page = promtext.read(got.body, _NAMES)
        seconds, count = _total(page, _SUM), _total(page, _COUNT)
        before_s, before = self._totals.get(replica.name, (0.0, 0.0))
        if count > before:
            self._ttft[replica.name] = (seconds - before_s) / (count - before)
            self._totals[replica.name] = seconds, count
        self._lag[replica.name] = max(_total(page, _LAG), self._lag.get(replica.name, 0.0))


def _total(page: promtext.Samples, name: str) -> float:
    return sum(value for _, value in page.get(name, ()))
