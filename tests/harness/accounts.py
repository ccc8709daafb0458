"""The books after a test: whatever happened, every request ended in exactly one account and nothing is still held."""

import asyncio
from collections.abc import Awaitable, Callable

from headway.wire.promtext import read

ACCOUNTS = ("ok", "client_error", "server_error", "client_closed", "shed")
STARTED = "headway_requests_started_total"
ENDED = "headway_requests_total"
HELD = (
    "headway_in_flight_attempts",
    "headway_queued_requests",
    "headway_replica_in_flight",
    "headway_replica_reserved_tokens",
)


def accounts(page: bytes) -> dict[str, int]:
    """Ended requests by account, and `started`."""
    samples = read(page, frozenset((STARTED, ENDED)))
    books = dict.fromkeys(ACCOUNTS, 0)
    for labels, value in samples.get(ENDED, []):
        books[labels["account"]] += int(value)
    books["started"] = sum(int(value) for _, value in samples.get(STARTED, []))
    return books


def imbalance(page: bytes) -> str:
    """What is wrong with the books at rest; empty when they are in order."""
    books = accounts(page)
    ended = sum(books[account] for account in ACCOUNTS)
    wrong = [] if books["started"] == ended else [f"started {books['started']}, ended {ended}: {books}"]
    samples = read(page, frozenset(HELD))
    for name in HELD:
        wrong += [f"{name}{labels} is {value}" for labels, value in samples.get(name, []) if value]
    return "; ".join(wrong)


def assert_balanced(page: bytes, **expected: int) -> None:
    """The books are in order and, where given, say this: `assert_balanced(page, started=3, ok=2, shed=1)`."""
    assert not imbalance(page)
    books = accounts(page)
    assert {key: books[key] for key in expected} == expected


async def balanced_within(fetch: Callable[[], Awaitable[bytes]], seconds: float = 2.0, **expected: int) -> None:
    """Fetch the page until the books are in order, or fail with what is wrong."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while imbalance(page := await fetch()) and loop.time() < until:  # noqa: ASYNC110 a page to poll
        await asyncio.sleep(0.01)
    assert_balanced(page, **expected)
