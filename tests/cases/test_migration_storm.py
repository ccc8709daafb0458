"""Moves, evictions, deaths, failing targets and leaving clients at random bytes: nothing is lost, doubled or reordered.

Each answer is compared with that of an undisturbed run. More than 100,000 disturbances with HEADWAY_SOAK=1.
"""

import asyncio
import random
import re
import sys
from collections import Counter
from typing import Any

import msgspec
import pytest

from headway.core.ids import RequestId
from tests.cases.house import House, case, rounds
from tests.cases.moves import HASTY, PATIENT, QUEUE, move, obey, plain, speak, undisturbed, wish
from tests.harness import scripts
from tests.harness.client import request
from tests.harness.engine import Seen
from tests.harness.speaker import MODEL, WAYS, Trouble
from tests.wire.engine import CHAT, COMPLETIONS
from tests.wire.engine import whole as at_once
from tests.wire.test_resume_exact import seen

AT_ONCE = 16
PATIENCE_S = 50.0
"""Of a client. A busy machine makes the engines' short patience run out all the time, and requests go round."""

BOTH = msgspec.structs.replace(HASTY, moving=msgspec.structs.replace(HASTY.moving, plain=True))
USAGES: tuple[dict[str, Any], ...] = (
    {},
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
)


def said(data: bytes) -> dict[str, Any]:
    """All that a stream says, but for the order of keys."""
    told = seen(data)
    return {name: told[name] for name in ("text", "ids", "roles", "ends", "usage", "heads")}


def unsigned(data: bytes) -> bytes:
    """An answer in one piece without the engine's fingerprint, which nobody tells where we say the end ourselves."""
    return re.sub(rb',"system_fingerprint":null', b"", data)


def ended(received: bytes) -> bool:
    """Whether no more will come: of a stream, or of a refusal."""
    return received.endswith(scripts.LAST_CHUNK) or b"content-length:" in received[:600]


class Storm:
    """Disturbs every attempt at a random place, and counts what came of it."""

    def __init__(self, house: House, seed: int) -> None:
        self.house = house
        self.rng = random.Random(seed)
        self.tally: Counter[str] = Counter()
        self._orders: dict[str, list[int]] = {}

    def trouble(self, seen: Seen) -> Trouble | None:
        """Whether an attempt fails."""
        rng = self.rng
        attempt = seen.request.get("x-request-id")
        self._orders.setdefault(attempt, sorted(rng.randrange(300, 16_000) for _ in range(rng.randrange(3))))
        if rng.random() < 0.75:
            return None
        way = rng.choices(WAYS, (6, 6, 3, 1, 6, 6, 3))[0]
        self.tally[f"engine: {way}"] += 1
        return Trouble(rng.randrange(14_000), way)

    def sent(self, seen: Seen) -> None:
        """An attempt's stream grew: it may be time for an order."""
        orders = self._orders.get(seen.request.get("x-request-id"), [])
        if orders and seen.wrote > orders[0]:
            orders.pop(0)
            evict = self.rng.random() < 0.3
            self.tally["order: evict" if evict else "order: move"] += 1
            request = RequestId(seen.request.get("x-request-id").rpartition("-")[0])
            move(self.house, request, QUEUE) if evict else move(self.house, request)

    async def one(self, number: int) -> None:
        """One client."""
        rng = self.rng
        path = rng.choice((CHAT, COMPLETIONS))
        body = wish(path, max_tokens=rng.randrange(20, 70), **rng.choice(USAGES))
        whole = rng.random() < 0.2
        if whole:
            body = {name: value for name, value in body.items() if not name.startswith("stream")}
        expected = at_once(path, body) if whole else undisturbed(path, body)
        leaves = rng.randrange(300, 20_000) if rng.random() < 0.15 else 0
        async with self.house.client() as client:
            if leaves:
                await client.send(request(path, body))
                if whole:  # it hears nothing that it could count
                    await asyncio.sleep(rng.random() * 0.1)
                    self.tally["client: left"] += 1
                    return
                size = -1
                while size < len(client.received) < leaves and not ended(client.received):
                    size = len(client.received)
                    await client.read_bytes(size + 1, PATIENCE_S)
                self.tally["client: left"] += 1
                return
            await client.send(request(path, body))
            answer = await client.answer(PATIENCE_S)
        if whole and answer.status == 200:
            assert unsigned(plain(answer.body)) == unsigned(plain(expected)), f"{number}: {answer.body!r}"
            self.tally["answer: whole, in one piece"] += 1
            return
        got = plain(answer.body)
        if got == expected:
            self.tally["answer: whole"] += 1
        elif got.endswith(scripts.DONE) and b'data: {"error":' not in got and said(got) == said(expected):
            self.tally["answer: whole, cut behind the role: its first event in another order"] += 1
        elif answer.status != 200:
            self.tally[f"answer: {answer.status}"] += 1
        else:
            at = next((n for n, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), -1)
            parts = (
                f"{number} {answer.error} at {at}: {got[max(0, at - 400) : at + 300]!r} not {expected[at : at + 300]!r}"
            )
            whole, _, error = got.removesuffix(scripts.DONE).rpartition(b"data: ")  # an engine may say both
            assert error.startswith(b'{"error":'), parts
            assert expected.startswith(whole.rstrip(b"\n")), parts
            self.tally["answer: broken off"] += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(70, 1)))
@case(*(scripts.stream(1),) * 3, config=BOTH, brain=PATIENT, model=MODEL)
async def test_nothing_is_lost_doubled_or_reordered(house: House, seed: int) -> None:
    storm = Storm(house, seed)
    obey(house)
    pieces = random.Random(3)
    sizes = (0, 0, 0, 1400, 333, 100)
    speak(house, trouble=storm.trouble, sent=storm.sent, gap_s=0.0005, piece=lambda: pieces.choice(sizes))
    total, numbers = rounds(1000, 300), iter(range(10**9))

    def few_moves() -> bool:
        """A busy machine makes orders come too late for their streams: then there are more streams."""
        return house.count("headway_attempts_total", outcome="migrated") <= 0.2 * total

    async def client() -> None:
        while (number := next(numbers)) < total or (number < 3 * total and few_moves()):
            await storm.one(number)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    for entry in house.telemetry.decisions._moves:  # why an order came to nothing, without its figures
        if entry.result in ("abandoned", "refused"):
            storm.tally[f"{entry.result}: {re.sub('[0-9]+', 'N', entry.reason)}"] += 1
    outcomes = {name: house.count("headway_attempts_total", outcome=name) for name in ("migrated", "evicted")}
    sys.stdout.write(f"{dict(sorted(storm.tally.items())) | outcomes}\n")
    assert storm.tally["answer: whole"] + storm.tally["answer: whole, in one piece"] > 0.7 * total
    assert storm.tally["answer: whole, in one piece"] > 0.1 * total
    assert outcomes["migrated"] > 0.2 * total
