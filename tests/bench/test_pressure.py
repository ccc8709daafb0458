"""How the pressure runs judge what they see (the runs themselves are in tests/cases)."""

import asyncio
import sys
from pathlib import Path

import pytest

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
import pressure  # noqa: E402
from pressure_client import Ask, Load, Mix, Seen, arrivals  # noqa: E402
from pressure_fleet import Refuser  # noqa: E402
from pressure_scenes import Result, percentile, recovery  # noqa: E402

sys.path.remove(BENCHMARKS)


def seen(due_s: float, good: bool) -> Seen:
    return Seen("", due_s, first_s=due_s + 0.1, end_s=due_s + 1, status=200 if good else 503, whole=True)


def test_recovery_is_the_last_bad_moment_of_a_bad_window() -> None:
    calm = [seen(20.0 + n, True) for n in range(30)]
    assert recovery(calm, 10.0) == 0.0
    assert recovery([*calm[:20], seen(39.5, False), *calm[20:]], 10.0) == 0.0, "one in ten"
    assert recovery([seen(10.5, False), seen(11.5, False), *calm], 10.0) == pytest.approx(1.5)


def test_good_is_complete_and_in_time() -> None:
    whole = Seen("", 1.0, sent_s=1.0, first_s=1.5, last_s=2.5, end_s=2.6, status=200, output_tokens=41, whole=True)
    assert whole.good
    whole.output_tokens = 11
    assert not whole.good, "100 ms per token"
    whole.output_tokens, whole.first_s = 41, 2.4
    assert not whole.good, "1.4 s for a short prompt"
    whole.first_s, whole.whole = 1.5, False
    assert not whole.good
    assert not whole.ok


def test_percentiles_are_values_that_happened() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.5) == 0.0


def test_arrivals_are_those_of_their_seed() -> None:
    first, again = list(arrivals(50.0, 4.0, Mix(), 1, since_s=2.0)), list(arrivals(50.0, 4.0, Mix(), 1, since_s=2.0))
    assert first == again
    assert first != list(arrivals(50.0, 4.0, Mix(), 2, since_s=2.0))
    assert all(2.0 <= ask.due_s < 4.0 for ask in first)
    assert 60 < len(first) < 140
    assert len({ask.body[60:120] for ask in first}) == len(first)


@pytest.mark.slow
def test_a_client_reads_answers_and_refusals_and_obeys() -> None:
    async def story() -> tuple[list[Seen], int]:
        busy = Refuser(429, "retry-after: 1\r\n")
        await busy.start()
        asks = [Ask(0.0, b"{}"), Ask(0.01, b"{}", tag="x")]
        served = await Load(int(busy.url.rsplit(":", 1)[1]), "test").run(asks, 5.0)
        busy.refusing = True
        asyncio.get_running_loop().call_later(0.5, setattr, busy, "refusing", False)
        obeyed = await Load(int(busy.url.rsplit(":", 1)[1]), "test", obeys=1).run(asks[:1], 5.0)
        await busy.stop()
        return [*served, *obeyed], busy.asked

    (one, two, refused, back), asked = asyncio.run(story())
    assert (one.ok, two.ok, two.tag, one.first_s > 0.0) == (True, True, "x", True)
    assert (refused.refused, refused.code, refused.retry_after_s, refused.tries) == (True, "429", 1.0, 1)
    assert (back.ok, back.tries) == (True, 2)
    assert back.due_s >= refused.end_s + 1.0
    assert asked == 4


def test_a_broken_connection_is_seen() -> None:
    class Closer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.abort()  # type: ignore[attr-defined]

    async def story() -> list[Seen]:
        server = await asyncio.get_running_loop().create_server(Closer, "127.0.0.1", 0)
        found = await Load(server.sockets[0].getsockname()[1], "test").run([Ask(0.0, b"{}")], 5.0)
        server.close()
        return found

    (broken,) = asyncio.run(story())
    assert (broken.status, broken.ok, broken.refused) == (0, False, False)


def test_the_table_says_what_was_missed_and_what_is_void() -> None:
    results = [
        Result("s", "fine", 1.0, "ms", "< 2", True),
        Result("s", "not", 3.0, "/s", "< 2", False),
        Result("s", "busy", 3.0, "", "< 2", True, lag=0.25),
        Result("s", "plain", 4.0),
    ]
    rows = pressure.table(results).splitlines()[2:]
    assert [row.rsplit("|", 2)[1].strip() for row in rows] == ["met", "**missed**", "void (clocks lost 25%)", ""]
    assert "1 ms" in rows[0]
    assert "3/s" in rows[1]
