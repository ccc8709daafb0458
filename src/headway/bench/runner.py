"""The open loop: requests leave at their due moments whether or not earlier answers have come.

A closed loop would slow down with the server and so hide its delay. Where a concurrency cap keeps a request back, its
waiting counts in its latencies and the summary says how many were kept back.
"""

import asyncio
import resource
from collections import Counter

import msgspec

from headway.bench.exchange import Exchange
from headway.bench.plan import BenchPlan, BenchResult, ClientLoad, Progress, Watch
from headway.runtime import clock
from headway.runtime.http import Answer, Client, Failure, client
from headway.runtime.tasks import TaskSet
from headway.workload.accounts import Kind, count
from headway.workload.request import Request
from headway.workload.stats import Record, spread, summarize

LEAD_S = 0.05
"""Real seconds between set-up and the first due moment at 0."""
WATCH_S = 0.25
"""Real seconds between two reports of progress."""
LOOK_S = 0.02
"""Real seconds between two looks at whether all answers have come."""


class BenchError(Exception):
    """The run cannot start; the text says why, for people."""


async def run(plan: BenchPlan, watch: Watch | None = None, stop: asyncio.Event | None = None) -> BenchResult:
    """Send the plan's requests and wait for their answers. `stop` ends it early: what is in flight is client_closed.

    Raises BenchError when no model is given and the endpoint names none.
    """
    async with client() as http:
        model = plan.model or await _first_model(plan, http)
        return await _Run(plan, model, http, watch, stop or asyncio.Event()).result()


async def _first_model(plan: BenchPlan, http: Client) -> str:
    headers = {"authorization": f"Bearer {plan.api_key}"} if plan.api_key else None
    got = await http.fetch(f"{plan.base}/v1/models", headers=headers)
    if isinstance(got, Failure):
        raise BenchError(f"{plan.base} does not answer: {got}")
    return _name_of_model(plan.base, got)


def _name_of_model(base: str, got: Answer) -> str:
    try:
        names = msgspec.json.decode(got.body)["data"]
        return str(names[0]["id"])
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        raise BenchError(f"{base}/v1/models names no model (status {got.status}): give one with --model") from None


class _Run:
    """State of one run."""

    def __init__(self, plan: BenchPlan, model: str, http: Client, watch: Watch | None, stop: asyncio.Event) -> None:
        self._plan, self._model, self._http, self._watch, self._stop = plan, model, http, watch, stop
        self._queue = plan.due()
        self._slots = asyncio.Semaphore(plan.max_concurrency) if plan.max_concurrency else None
        self._tasks = TaskSet()
        self._started = 0
        self._kinds: Counter[Kind] = Counter()
        self._records: list[Record] = []
        self._ended_s = 0.0
        self._origin = clock.now() + LEAD_S

    def _now_s(self) -> float:
        return (clock.now() - self._origin) * self._plan.time_scale

    async def result(self) -> BenchResult:
        began, cpu = clock.now(), _cpu_s()
        watcher = self._tasks.spawn(self._report(), "bench-watch")
        try:
            await self._send_all()
            await self._finish()
            self._ended_s = self._now_s()
        finally:
            await self._tasks.cancel(watcher)
            await self._tasks.close()
        wall_s = clock.now() - began
        self._tell()
        return self._sum_up(wall_s, (_cpu_s() - cpu) / wall_s)

    async def _send_all(self) -> None:
        for request in self._queue:
            if await self._stopped_before(request.arrival_s):
                return
            self._started += 1
            self._tasks.spawn(self._one(request), f"bench-{self._started}")

    async def _stopped_before(self, due_s: float) -> bool:
        """Wait for a moment of the server's clock; True as soon as the run is to end instead."""
        wait_s = (due_s - self._now_s()) / self._plan.time_scale
        if wait_s <= 0:
            return self._stop.is_set()
        try:
            async with asyncio.timeout(wait_s):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _finish(self) -> None:
        """Wait for the answers, for as long as the plan's patience lasts; then let `close` cut what is left."""
        until_s = (self._queue[-1].arrival_s if self._queue else 0.0) + self._plan.patience_s
        while len(self._records) < self._started and self._now_s() < until_s:
            next_look_s = self._now_s() + LOOK_S * self._plan.time_scale
            if await self._stopped_before(min(next_look_s, until_s)):
                break
        await asyncio.sleep(0)  # a task that never ran would end without a Record

    async def _one(self, request: Request) -> None:
        exchange = Exchange(self._plan, self._model, request, self._http, self._now_s)
        if self._slots is None:
            record = await exchange.run()
        else:
            record = await self._with_slot(exchange, self._slots)
        self._records.append(record)
        self._kinds[record.kind] += 1

    async def _with_slot(self, exchange: Exchange, slots: asyncio.Semaphore) -> Record:
        capped = slots.locked()
        try:
            await slots.acquire()
        except asyncio.CancelledError:
            return exchange.never_sent()
        try:
            return await exchange.run(capped)
        finally:
            slots.release()

    async def _report(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(WATCH_S)

    def _tell(self) -> None:
        if self._watch is not None:
            finished = len(self._records)
            accounts = count(self._kinds.elements(), self._started)
            self._watch(
                Progress(self._now_s(), len(self._queue), self._started, finished, self._started - finished, accounts)
            )

    def _sum_up(self, wall_s: float, cpu_share: float) -> BenchResult:
        plan = self._plan
        counted = [record for record in self._records if record.due_s >= plan.warmup_s]
        sent = sum(request.arrival_s >= plan.warmup_s for request in self._queue[: self._started])
        late = spread(r.lag_s / plan.time_scale for r in self._records if not r.capped).p99
        return BenchResult(
            model=self._model,
            summary=summarize(counted, sent, self._window_s(), plan.slo),
            accounts=count((record.kind for record in self._records), self._started),
            client=ClientLoad(cpu_share=cpu_share, late_p99_s=late or 0.0, wall_s=wall_s),
            records=tuple(self._records),
            time_scale=plan.time_scale,
            stopped=self._stop.is_set(),
        )

    def _window_s(self) -> float:
        """The span in which counted requests were due: the plan's, or what there was of it when the run was stopped."""
        window_s = self._plan.window_s
        return min(window_s, max(0.0, self._ended_s - self._plan.warmup_s)) if self._stop.is_set() else window_s


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
