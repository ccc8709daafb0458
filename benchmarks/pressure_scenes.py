"""The scenes of the pressure runs: each starts a fleet, puts load on it, and says what came of it beside its goal.

A load of 1.0 is what the engines can do of the mix when there is always more to do (scene `capacity`). What is
measured is measured at the client or told by the engines; the gateway is asked only for its books and its queue.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pressure_client import Ask, Load, Mix, Seen, arrivals
from pressure_fleet import ACCOUNTS, SMALL, Engine, Fleet, Refuser, fleet

from headway.compose import keyfile

MIX = Mix()
TWO = (SMALL, SMALL)
LEAD_S = 0.05
"""A load begins so long after its start."""


class Result(msgspec.Struct, frozen=True):
    """One figure: `met` is None where there is no goal. `lag`: share of time that the engines' clocks lost."""

    scene: str
    what: str
    value: float
    unit: str = ""
    goal: str = ""
    met: bool | None = None
    lag: float = 0.0


class Stage(msgspec.Struct, frozen=True):
    """Where a scene plays. `short`: seconds in place of minutes."""

    folder: Path
    short: bool
    seed: int = 1

    def pick(self, full: float, short: float) -> float:
        """One of them."""
        return short if self.short else full

    def asks(
        self, rate: float, since_s: float, until_s: float, headers: str = "", tag: str = "", mix: Mix = MIX
    ) -> list[Ask]:
        """Requests of a part of the run, drawn by its seed and its beginning."""
        seed = self.seed * 10_000 + int(since_s * 10) + 7 * len(headers)
        return list(arrivals(rate, until_s, mix, seed, since_s=since_s, headers=headers, tag=tag))


Scene = Callable[[Stage], Awaitable[list[Result]]]


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest rank; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def capacity_of(engines: Sequence[Engine]) -> float:
    """Requests per second."""
    return sum(engine.rps for engine in engines)


def between(seen: Iterable[Seen], since_s: float, until_s: float) -> list[Seen]:
    """Those that were due in a span."""
    return [each for each in seen if since_s <= each.due_s < until_s]


def goodput(seen: Iterable[Seen], since_s: float, until_s: float) -> float:
    """Good answers per second to those due in a span."""
    return sum(each.good for each in between(seen, since_s, until_s)) / (until_s - since_s)


def tpots(seen: Iterable[Seen]) -> list[float]:
    """Time per token of each answer."""
    return [(s.last_s - s.first_s) / (s.output_tokens - 1) for s in seen if s.ok and s.output_tokens > 1]


async def balance(at: Fleet) -> int:
    """Requests that the gateway cannot account for, and whatever it still holds at rest; 0 when the books are good."""
    for _ in range(50):
        books = await at.accounts()
        wrong = abs(books["started"] - sum(books[name] for name in ACCOUNTS)) + books["held"]
        if not wrong:
            return 0
        await asyncio.sleep(0.1)
    return wrong


async def capacity(stage: Stage) -> list[Result]:
    """What two engines can do of the mix: three times as much is offered."""
    whole = stage.pick(90.0, 30.0)
    async with fleet(stage.folder, TWO, {}) as at:
        await at.watch_clocks()
        run = asyncio.create_task(Load(at.port, "capacity").run(stage.asks(27.0, 0.0, whole), 5.0))
        await asyncio.sleep(whole)
        lag = await at.lag()
        seen = await run
    done = [each for each in seen if each.ok and whole / 4 < each.end_s < whole]
    figures = {
        "requests ended per replica": (len(done) / (whole * 0.75) / len(TWO), "/s"),
        "tokens of a prompt": (sum(each.prompt_tokens for each in done) / len(done), ""),
        "tokens of an answer": (sum(each.output_tokens for each in done) / len(done), ""),
        "time per token p90": (percentile(tpots(done), 0.9) * 1e3, "ms"),
    }
    return [Result("capacity", what, value, unit, lag=lag) for what, (value, unit) in figures.items()]


# -- overload ----------------------------------------------------------------------------------------------------


async def overload(stage: Stage) -> list[Result]:
    """L3: loads around capacity, then five times as much, then little again."""
    loads = (0.9,) if stage.short else (0.7, 0.8, 0.9, 1.0, 1.1)
    each_s, long_s, after_s = stage.pick(45.0, 4.0), stage.pick(300.0, 6.0), stage.pick(45.0, 5.0)
    settings = {"brain": {"admission": {"max_queued": 64}}} if stage.short else {}
    full = capacity_of(TWO)
    starts = [number * each_s for number in range(len(loads) + 1)]
    asks = [
        ask
        for load, since in zip(loads, starts, strict=False)
        for ask in stage.asks(load * full, since, since + each_s)
    ]
    began, ended = starts[-1], starts[-1] + long_s
    asks += stage.asks(5 * full, began, ended) + stage.asks(0.7 * full, ended, ended + after_s)
    async with fleet(stage.folder, TWO, settings) as at:
        await at.watch_clocks()
        seen = await Load(at.port, "overload").run(asks, stage.pick(90.0, 2.0))
        lag, wrong = await at.lag(), await balance(at)
    peak = max(goodput(seen, since + each_s / 5, since + each_s) for since in starts[:-1])
    share = goodput(seen, began, ended) / peak
    flood = between(seen, began, ended)
    at_once = [each for each in flood if each.refused and not each.waited]
    waited = [each for each in flood if each.refused and each.waited]
    quick = percentile((each.took_s for each in at_once), 0.99)
    back = recovery(between(seen, ended, ended + after_s), ended)
    broken = sum(not each.status and each.code != "open" for each in seen)
    per_load = [
        Result("overload", f"goodput at {load:g}", goodput(seen, since + each_s / 5, since + each_s), "/s", lag=lag)
        for load, since in zip(loads, starts, strict=False)
    ]
    return [
        *per_load,
        Result("overload", "goodput at 5", goodput(seen, began, ended), "/s", lag=lag),
        Result("overload", "goodput at 5 over its peak", share, "", ">= 0.95", share >= 0.95, lag),
        Result("overload", "refused at once", len(at_once) / max(1, len(flood)), "of requests", lag=lag),
        Result("overload", "refused after waiting", len(waited) / max(1, len(flood)), "of requests", lag=lag),
        Result("overload", "which waited, p50", percentile((s.took_s for s in waited), 0.5), "s", lag=lag),
        Result("overload", "which waited, longest", max((s.took_s for s in waited), default=0.0), "s", lag=lag),
        Result("overload", "refusals p50", percentile((s.took_s for s in at_once), 0.5) * 1e3, "ms", lag=lag),
        Result("overload", "refusals p99", quick * 1e3, "ms", "< 20", quick < 0.02, lag),
        Result("overload", "end of the last window with less than nine in ten good", back, "s", lag=lag),
        Result("overload", "unaccounted", wrong, "", "0", wrong == 0, lag),
        Result("overload", "broken", broken, "", "0", broken == 0, lag),
    ]


def recovery(seen: Sequence[Seen], since_s: float) -> float:
    """Seconds from `since_s` until from then on, in every window of ten requests, nine at least are good."""
    ordered = sorted(seen, key=lambda each: each.due_s)
    last = since_s
    for first in range(max(1, len(ordered) - 9)):
        window = ordered[first : first + 10]
        if sum(each.good for each in window) < 0.9 * len(window):
            last = max(each.due_s for each in window if not each.good)
    return last - since_s


async def after(stage: Stage) -> list[Result]:
    """L3: the same arrivals before and after an overload. What is left of it five seconds later?"""
    calm_s, flood_s, begin_s, settle_s = (55.0, 40.0, 10.0, 5.0) if not stage.short else (7.0, 4.0, 2.0, 2.0)
    ends, full = calm_s + flood_s, capacity_of(TWO)
    calm = stage.asks(0.7 * full, 0.0, calm_s)
    again = [msgspec.structs.replace(ask, due_s=ask.due_s + ends - begin_s) for ask in calm if ask.due_s >= begin_s]
    asks = calm + stage.asks(5 * full, calm_s, ends) + again
    async with fleet(stage.folder, TWO, {}) as at:
        await at.watch_clocks()
        seen = await Load(at.port, "after").run(asks, stage.pick(40.0, 5.0))
        lag = await at.lag()
    span = calm_s - begin_s
    spans = {"before": between(seen, begin_s + settle_s, calm_s), "after": between(seen, ends + settle_s, ends + span)}
    good = {name: sum(each.good for each in found) / len(found) for name, found in spans.items()}
    share = good["after"] / good["before"]
    found = [
        Result("after", f"good, from {settle_s:g} s on, over those before", share, "", ">= 0.95", share >= 0.95, lag)
    ]
    for name, those in spans.items():
        first = [each.ttft_s for each in those if each.ok]
        found.append(Result("after", f"good {name}", good[name], "of requests", lag=lag))
        found.append(Result("after", f"TTFT p50 {name}", percentile(first, 0.5) * 1e3, "ms", lag=lag))
        found.append(Result("after", f"TTFT p90 {name}", percentile(first, 0.9) * 1e3, "ms", lag=lag))
    within = percentile((each.ttft_s for each in spans["after"] if each.ok), 0.9)
    found.append(Result("after", "TTFT p90 after, within the objective", within, "s", "<= 1", within <= 1.0, lag))
    return found


# -- bounds of the queue -----------------------------------------------------------------------------------------


async def depth(stage: Stage) -> list[Result]:
    """L4: at most so many wait, and for so long, with everybody asking where it stands."""
    return await _bound(stage, "depth", {"max_queued": 24, "queue_timeout_s": 4.0})


async def weight(stage: Stage) -> list[Result]:
    """L4: the bodies that wait are bounded in bytes."""
    return await _bound(stage, "bytes", {"max_queued_bytes": 16_384, "queue_timeout_s": 4.0})


async def _bound(stage: Stage, name: str, admission: dict[str, Any]) -> list[Result]:
    long_s = stage.pick(60.0, 5.0)
    deepest = odd = 0
    async with fleet(stage.folder, TWO, {"brain": {"admission": admission}}) as at:
        await at.watch_clocks()
        asks = stage.asks(5 * capacity_of(TWO), 0.0, long_s, "x-queue-hints: 1\r\n")
        longest = max(len(ask.body) for ask in asks)
        run = asyncio.create_task(Load(at.port, f"bounds: {name}").run(asks))
        while not run.done():
            state = await at.state()
            held = [each["position"] for each in state.get("held", [])]
            deepest = max(deepest, state.get("queued", 0))
            odd += held != list(range(1, len(held) + 1))
            await asyncio.sleep(0.05)
        seen, lag, wrong = await run, await at.lag(), await balance(at)
    scene = f"bounds: {name}"
    waited = [each for each in seen if each.code == "queue_timeout"]
    patience = admission["queue_timeout_s"]
    over = percentile((abs(each.took_s - patience) for each in waited), 1.0)
    held = [each for each in seen if each.hints or (each.took_s > 0.5 and each.status != 200)]
    told = sum(bool(each.hints) for each in held) / max(1, len(held))
    positions = [place for each in seen for _, place in each.hints]
    most = admission.get("max_queued", admission.get("max_queued_bytes", 0) // 300)
    least = admission.get("max_queued", admission.get("max_queued_bytes", 0) // longest)
    full = sum(each.code == "queue_full" for each in seen)
    return [
        Result(scene, "most that waited", deepest, "", f"{least} to {most}", least <= deepest <= most, lag),
        Result(scene, "refused as the queue was full", full, "", "> 0", full > 0, lag),
        Result(scene, "waits that ended at the bound", len(waited), lag=lag),
        Result(scene, "furthest from the bound", over * 1e3, "ms", "<= 100", over <= 0.1, lag),
        Result(scene, "held ones who were told their place", told, "", "1", told == 1.0, lag),
        Result(
            scene,
            "highest place told",
            max(positions, default=0),
            "",
            f"<= {most}",
            max(positions, default=0) <= most,
            lag,
        ),
        Result(scene, "lists of places with a gap", odd, "", "0", odd == 0, lag),
        Result(scene, "unaccounted", wrong, "", "0", wrong == 0, lag),
    ]


# -- tenants -----------------------------------------------------------------------------------------------------


async def tenants(stage: Stage) -> list[Result]:
    """L10: ten to one in demand, with equal weights, and three to one either way; both want more than their share."""
    found = []
    for many, few in ((1.0, 1.0), (3.0, 1.0), (1.0, 3.0)) if not stage.short else ((1.0, 1.0),):
        found += await _shares(stage, many, few)
    return found


async def _shares(stage: Stage, many: float, few: float) -> list[Result]:
    long_s, warm_s = stage.pick(120.0, 14.0), stage.pick(20.0, 6.0)
    file = stage.folder / "keys.json"
    file.unlink(missing_ok=True)
    made = {name: keyfile.make(name) for name in ("many", "few")}
    keyfile.change(file, lambda keys: [*keys, *(key for key, _ in made.values())])
    weights = {"many": {"weight": many}, "few": {"weight": few}}
    full = capacity_of(TWO)
    wanted = 1.1 * full * few / (many + few) + 0.1 * full
    asks = []
    for name, rate in (("many", 10 * wanted), ("few", wanted)):
        asks += stage.asks(rate, 0.0, long_s, f"authorization: Bearer {made[name][1]}\r\n", name)
    async with fleet(stage.folder, TWO, {"keys_file": str(file), "tenants": weights}) as at:
        await at.watch_clocks()
        seen = await Load(at.port, f"tenants {many:g}:{few:g}").run(asks, 5.0)
        lag = await at.lag()
    served: Counter[str] = Counter()
    for each in seen:
        if warm_s <= each.end_s < long_s:
            served[each.tag] += each.tokens
    ratio = served["many"] / max(1, served["few"]) / (many / few)
    scene = f"tenants {many:g}:{few:g}"
    return [
        Result(
            scene,
            "tokens of the one that wants ten times as much, over its share",
            ratio,
            "",
            "0.9 to 1.1",
            abs(ratio - 1) <= 0.1,
            lag,
        ),
        Result(scene, "tokens served", (served["many"] + served["few"]) / (long_s - warm_s), "/s", lag=lag),
    ]


# -- what is critical --------------------------------------------------------------------------------------------


async def critical(stage: Stage) -> list[Result]:
    """Critical requests alone, then the same ones in a flood of twice the capacity of low priority."""
    long_s = stage.pick(240.0, 5.0)
    full = capacity_of(TWO)
    vital = stage.asks(0.15 * full, 0.0, long_s, "x-priority: critical\r\n", "vital")
    flood = stage.asks(2 * full, 0.0, long_s, "x-priority: low\r\n", "flood")
    found: dict[str, list[Seen]] = {}
    lags = []
    for name, asks in (("alone", vital), ("flooded", vital + flood)):
        async with fleet(stage.folder, TWO, {"brain": {"admission": {"reserved": 0.5}}}) as at:
            await at.watch_clocks()
            seen = await Load(at.port, f"critical {name}").run(asks, stage.pick(10.0, 1.0))
            lags.append(await at.lag())
        found[name] = [each for each in seen if each.tag == "vital" and each.due_s > long_s / 10]
        found["low"] = [each for each in seen if each.tag == "flood"]
    p99 = {name: percentile((each.ttft_s for each in found[name] if each.ok), 0.99) for name in ("alone", "flooded")}
    p50 = {name: percentile((each.ttft_s for each in found[name] if each.ok), 0.5) for name in ("alone", "flooded")}
    ratio = p99["flooded"] / p99["alone"]
    lost = sum(not each.first_s for each in found["flooded"])
    low = goodput(found["low"], 0.0, long_s)
    return [
        Result("critical", "TTFT p50 alone", p50["alone"] * 1e3, "ms", lag=lags[0]),
        Result("critical", "TTFT p99 alone", p99["alone"] * 1e3, "ms", lag=lags[0]),
        Result("critical", "TTFT p50 in the flood", p50["flooded"] * 1e3, "ms", lag=lags[1]),
        Result("critical", "TTFT p99 in the flood", p99["flooded"] * 1e3, "ms", lag=lags[1]),
        Result("critical", "p99 in the flood over p99 alone", ratio, "", "<= 1.2", ratio <= 1.2, max(lags)),
        Result("critical", "critical ones not served", lost, "", "0", lost == 0, max(lags)),
        Result("critical", "goodput of the flood", low, "/s", lag=lags[1]),
    ]


# -- when everybody refuses --------------------------------------------------------------------------------------


async def refusals_503(stage: Stage) -> list[Result]:
    """F9: every emulated replica says for half a minute that its queue is full."""
    since, lasts, whole = 3.0, stage.pick(30.0, 4.0), stage.pick(50.0, 8.0)
    async with fleet(stage.folder, TWO, {}) as at:
        await at.watch_clocks()
        run = asyncio.create_task(Load(at.port, "refusals 503").run(stage.asks(0.6 * capacity_of(TWO), 0.0, whole)))
        await asyncio.sleep(since + LEAD_S)
        for number in range(len(TWO)):
            await at.fault(number, kind="queue_full", for_s=lasts)
        seen, lag = await run, await at.lag()
        attempts, wrong = await at.counted("vllm:admission_rejections_total"), await balance(at)
    return _attempts("refusals 503", attempts, between(seen, since, since + lasts), seen, since + lasts, lag, wrong)


async def refusals_429(stage: Stage) -> list[Result]:
    """F9: every replica answers 429, with and without a Retry-After."""
    found = []
    for headers in ("", "retry-after: 1\r\n") if not stage.short else ("",):
        found += await _refused(stage, headers)
    return found


async def _refused(stage: Stage, headers: str) -> list[Result]:
    since, lasts, whole = 3.0, stage.pick(30.0, 4.0), stage.pick(50.0, 8.0)
    refusers = tuple(Refuser(429, headers) for _ in range(3))
    for each in refusers:
        await each.start()
    scene = f"refusals 429{' with Retry-After' if headers else ''}"
    async with fleet(stage.folder, (), {}, refusers) as at:
        run = asyncio.create_task(Load(at.port, scene).run(stage.asks(50.0, 0.0, whole)))
        await asyncio.sleep(since + LEAD_S)
        before = sum(each.asked for each in refusers)
        for each in refusers:
            each.refusing = True
        await asyncio.sleep(lasts)
        attempts = sum(each.asked for each in refusers) - before
        for each in refusers:
            each.refusing = False
        seen, wrong = await run, await balance(at)
    for each in refusers:
        await each.stop()
    return _attempts(scene, attempts, between(seen, since, since + lasts), seen, since + lasts, 0.0, wrong)


def _attempts(
    scene: str, attempts: float, came: Sequence[Seen], seen: Sequence[Seen], healed_s: float, lag: float, wrong: int
) -> list[Result]:
    ratio = attempts / max(1, len(came))
    end = max(each.due_s for each in seen)
    bad = [each.due_s - healed_s for each in between(seen, healed_s, end + 1) if not each.ok]
    return [
        Result(scene, "requests that came meanwhile", len(came), lag=lag),
        Result(scene, "attempts at replicas for each", ratio, "", "<= 1.2", ratio <= 1.2, lag),
        Result(scene, "last one not served, after they are well", max(bad, default=0.0), "s", lag=lag),
        Result(scene, "unaccounted", wrong, "", "0", wrong == 0, lag),
    ]


# -- Retry-After -------------------------------------------------------------------------------------------------


async def retry_after(stage: Stage) -> list[Result]:
    """An overload whose refused clients come back when they were told to; new ones are few by then."""
    found = []
    for depth in (16,) if stage.short else (64,):
        found += await _obeyed(stage, depth)
    return found


async def _obeyed(stage: Stage, depth: int) -> list[Result]:
    flood_s, after_s = stage.pick(20.0, 5.0), stage.pick(300.0, 7.0)
    full = capacity_of(TWO)
    asks = stage.asks(stage.pick(5.0, 2.0) * full, 0.0, flood_s) + stage.asks(0.6 * full, flood_s, flood_s + after_s)
    async with fleet(stage.folder, TWO, {"brain": {"admission": {"max_queued": depth}}}) as at:
        await at.watch_clocks()
        seen = await Load(at.port, f"retry-after, queue of {depth}", obeys=1).run(asks, stage.pick(60.0, 5.0))
        lag, wrong = await at.lag(), await balance(at)
    retried = [each for each in seen if each.tries == 2 and each.due_s >= flood_s]
    ok = sum(each.ok for each in retried) / max(1, len(retried))
    told = [each.retry_after_s for each in seen if each.refused and each.tries == 1]
    fresh = [each for each in seen if each.tries == 1 and each.due_s >= flood_s + 5]
    scene = f"retry-after, queue of {depth}"
    return [
        Result(scene, "first retries after the overload", len(retried), lag=lag),
        Result(scene, "of these admitted", ok, "", ">= 0.9", ok >= 0.9, lag),
        Result(scene, "longest Retry-After", max(told, default=0.0), "s", lag=lag),
        Result(scene, "new ones served well meanwhile", sum(s.good for s in fresh) / max(1, len(fresh)), "", lag=lag),
        Result(scene, "unaccounted", wrong, "", "0", wrong == 0, lag),
    ]


# -- memory ------------------------------------------------------------------------------------------------------


async def storm(stage: Stage) -> list[Result]:
    """Arrivals a little above capacity, sent on as they come: the engines preempt."""
    return await _preempted(stage, "round_robin", "> 0.1", lambda share: share > 0.1)


async def no_storm(stage: Stage) -> list[Result]:
    """The same arrivals, held until they fit."""
    return await _preempted(stage, "headroom", "<= 0.001", lambda share: share <= 0.001)


async def _preempted(stage: Stage, policy: str, goal: str, meets: Callable[[float], bool]) -> list[Result]:
    long_s = stage.pick(180.0, 8.0)
    async with fleet(stage.folder, TWO, {"policy": policy}) as at:
        await at.watch_clocks()
        asks = stage.asks(1.1 * capacity_of(TWO), 0.0, long_s)
        seen = await Load(at.port, f"preemptions {policy}").run(asks, stage.pick(40.0, 5.0))
        count, lag = await at.counted("vllm:num_preemptions_total"), await at.lag()
    share, scene = count / len(seen), f"preemptions {policy}"
    return [
        Result(scene, "preempted of requests", share, "", goal, meets(share), lag),
        Result(scene, "goodput", goodput(seen, long_s / 5, long_s), "/s", lag=lag),
    ]


# -- faults in the middle of it ----------------------------------------------------------------------------------


async def faults(stage: Stage) -> list[Result]:
    """One replica of three is killed, hangs, or is ten times slower while twice as much comes as all can do."""
    kinds: dict[str, dict[str, Any]] = {
        "killed": {"kind": "crash"},
        "hangs": {"kind": "hang"},
        "slow": {"kind": "slow", "factor": 10},
    }
    found = []
    for name, fault in kinds.items() if not stage.short else [("hangs", kinds["hangs"])]:
        found += await _fault(stage, name, fault)
    return found


async def _fault(stage: Stage, name: str, fault: dict[str, Any]) -> list[Result]:
    long_s, patience_s, silence_s = stage.pick(60.0, 7.0), stage.pick(10.0, 2.0), stage.pick(10.0, 3.0)
    three = (SMALL,) * 3
    settings = {
        "brain": {"admission": {"queue_timeout_s": patience_s}},
        "timeouts": {"first_byte_s": silence_s, "idle_s": silence_s},
    }
    asks = stage.asks(2 * capacity_of(three), 0.0, long_s)
    async with fleet(stage.folder, three, settings) as at:
        await at.watch_clocks()
        run = asyncio.create_task(Load(at.port, f"faults: {name}").run(asks))
        await asyncio.sleep(long_s / 4)
        lag = await at.lag()
        await at.fault(0, **fault)
        seen = await run
        wrong = await balance(at)
    longest = max((each.first_s or each.end_s) - each.sent_s for each in seen)
    bound = patience_s + silence_s + 1.0
    ends = Counter("ok" if each.ok else each.code or f"broken {each.status}" for each in seen)
    broken = sum(count for end, count in ends.items() if end.startswith("broken") or end == "open")
    scene = f"faults: {name}"
    return [
        Result(scene, "longest without a word", longest, "s", f"<= {bound:g}", longest <= bound, lag),
        Result(scene, "broken streams", broken, lag=lag),
        Result(scene, "answers that never ended", ends["open"], "", "0", ends["open"] == 0, lag),
        Result(scene, "goodput before", goodput(seen, long_s / 8, long_s / 4), "/s", lag=lag),
        Result(scene, "goodput after", goodput(seen, long_s / 2, long_s), "/s", lag=lag),
        Result(scene, "unaccounted", wrong, "", "0", wrong == 0, lag),
    ]


SCENES: dict[str, Scene] = {
    "capacity": capacity,
    "overload": overload,
    "after": after,
    "depth": depth,
    "bytes": weight,
    "tenants": tenants,
    "critical": critical,
    "refusals-503": refusals_503,
    "refusals-429": refusals_429,
    "retry-after": retry_after,
    "preemptions-round-robin": storm,
    "preemptions-headroom": no_storm,
    "faults": faults,
}
