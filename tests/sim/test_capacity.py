"""Load 1.0: what an engine works off does not depend on how many rows of a workload were written down."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from headway.perfmodel.service import ENGINE_CORE
from headway.sim.capacity import SAMPLE, backlog_rps, fleet_rps
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.request import Request, Segment
from headway.workload.scaling import copies
from tests.sim.support import SMALL, workload

LARGE = PoolSpec(1, "llama-3.1-8b", "h100-80gb")


def equal(count: int, prompt: int = 1000, output: int = 200) -> list[Request]:
    """Rows that are all alike."""
    return [Request(float(k), (Segment(k, prompt),), output) for k in range(count)]


def repeated(requests: Sequence[Request], times: int) -> list[Request]:
    """The same rows so often, each time with prefixes of their own."""
    endless = copies(requests)
    return [request for _ in range(times) for request in next(endless)]


@pytest.mark.parametrize("count", [1, 20, 250, 300, 600])
def test_a_short_trace_is_worked_off_as_fast_as_the_same_rows_many_times(count: int) -> None:
    rows = equal(count)
    assert backlog_rps(LARGE, rows) == pytest.approx(backlog_rps(LARGE, repeated(rows, 6000 // count)), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [LARGE, SMALL, msgspec.structs.replace(SMALL, max_num_seqs=64)])
def test_so_is_one_of_unequal_rows_and_shared_beginnings(pool: PoolSpec) -> None:
    rows = workload(120).requests
    assert backlog_rps(pool, rows) == pytest.approx(backlog_rps(pool, repeated(rows, 50)), rel=0.05)


def test_equal_requests_end_together_and_are_counted_by_whole_generations() -> None:
    """256 at a time: a generation more or less at an end of what is timed would be a tenth of it."""
    slow, long = backlog_rps(LARGE, equal(SAMPLE)), backlog_rps(LARGE, equal(10 * SAMPLE))
    assert slow == pytest.approx(long, rel=0.02)


@pytest.mark.slow
def test_most_requests_wait_however_many_run_at_once() -> None:
    """With room for 2,000 at once 3,000 requests would be a beginning and an end with nothing between."""
    wide = msgspec.structs.replace(LARGE, max_num_seqs=2000)
    rows = equal(100, prompt=20, output=100)
    assert backlog_rps(wide, rows) == pytest.approx(backlog_rps(wide, repeated(rows, 1000)), rel=0.05)


@pytest.mark.slow
def test_repetitions_hit_the_prefixes_of_their_own_copy_only() -> None:
    """Twenty rows with one prompt: all but the first of each copy find it; none finds another copy's."""
    rng = np.random.default_rng(0)
    rows = [Request(float(k), (Segment(7, 2000), Segment(100 + k, int(rng.integers(1, 50)))), 20) for k in range(10)]
    apart = [msgspec.structs.replace(r, segments=(Segment(500 + k, 2000), r.segments[1])) for k, r in enumerate(rows)]
    assert backlog_rps(LARGE, rows) > 2 * backlog_rps(LARGE, apart)
    assert backlog_rps(LARGE, rows) < 10 * backlog_rps(LARGE, apart)


@pytest.mark.slow
def test_a_fleet_does_what_its_replicas_do() -> None:
    rows = workload(30).requests
    pools = (SMALL, msgspec.structs.replace(SMALL, count=2, gpu="h100-80gb"))
    each = [pool.count * backlog_rps(pool, rows) for pool in pools]
    assert fleet_rps(Scenario(pools, Truth(perturb=0.2)), rows) == pytest.approx(sum(each))


def test_no_more_is_worked_off_than_gets_through_the_server() -> None:
    """At 4.7 ms a request it lets through 213/s, where the engine alone would do thousands of these."""
    rows = equal(50, prompt=4, output=2)
    assert backlog_rps(LARGE, rows) == pytest.approx(1 / LARGE.api.busy_s(4))
    assert backlog_rps(msgspec.structs.replace(LARGE, api=ENGINE_CORE), rows) > 1000


def test_what_cannot_be_measured_is_said() -> None:
    tiny = msgspec.structs.replace(SMALL, kv_tokens=16)
    with pytest.raises(ValueError, match=r"fits into 16 tokens of KV cache: the shortest prompt has 40"):
        backlog_rps(tiny, equal(3, prompt=40))
    with pytest.raises(ValueError, match="there are no requests"):
        backlog_rps(tiny, [])


def test_requests_that_all_end_at_once_are_repeated_until_they_do_not() -> None:
    """Three thousand of a token each run together, and end together."""
    wide = msgspec.structs.replace(LARGE, max_num_seqs=4000, api=ENGINE_CORE)
    assert backlog_rps(wide, equal(1, prompt=1, output=1)) > 1000
