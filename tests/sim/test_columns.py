"""One value per request, once it is known; totals of all engines at the end."""

import math

import pytest

from headway.core.commands import Moved
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.perfmodel.decoding import Job
from headway.sim.columns import FAILED, OK, OPEN, SHED, Columns
from headway.sim.prompt import prompts
from headway.sim.replica import SimReplica
from headway.sim.truth import grounds
from tests.sim.support import fleet, workload


def columns() -> tuple[Columns, list[SimReplica]]:
    requests, scenario = workload(4).requests, fleet()
    replicas = [SimReplica(ground, scenario.truth, 0) for ground in grounds(scenario, 0)]
    return Columns(requests, prompts(requests), replicas), replicas


def attempt(started: float, first: float, last: float, preemptions: int = 0) -> Job:
    job = Job("x", 100, 10, (), 0.0)
    job.started, job.first_token, job.last_token, job.preemptions = started, first, last, preemptions
    return job


def test_of_several_attempts_the_first_start_and_the_last_token_count() -> None:
    table, _ = columns()
    table.ended(1, attempt(1.0, 2.0, 3.0, 1))
    table.ended(1, attempt(4.0, 5.0, 6.0, 2))
    table.ended(2, attempt(-1.0, -1.0, -1.0))
    assert (table.started[1], table.first[1], table.last[1], table.preempted[1]) == (1.0, 2.0, 6.0, 3)
    assert all(math.isnan(column[2]) for column in (table.started, table.first, table.last))


def test_fates_and_moves() -> None:
    table, _ = columns()
    table.closed(0, 1.0, True, False)
    table.closed(1, 1.0, False, True)
    table.closed(2, 1.0, False, False)
    assert table.fate == [OK, SHED, FAILED, OPEN]
    where = (RequestId("r"), ReplicaId("a"), ReplicaId("b"), "drain")
    table.moved(Moved(1.0, *where, "cut", replayed_tokens=7))
    table.moved(Moved(1.0, *where, "abandoned", replayed_tokens=9))
    assert (dict(table.moves), table.replayed) == ({"cut": 1, "abandoned": 1}, 7)


def test_a_look_and_the_end() -> None:
    table, replicas = columns()
    replicas[0].engine.preemptions, replicas[1].engine.queries = 2, 50
    table.look(3.0, replicas)
    assert (table.times, table.usage, table.preemptions) == ([3.0], [[0.0] * 3], [2])
    table.finish(9.0, replicas, [0.1])
    assert (table.ended_at, table.totals, table.stalls) == (9.0, [2, 0, 50, 0], [0.1])
    assert len(table.spoken) == len(table.names) == 3


def test_what_a_replica_said_before_a_crash_counts() -> None:
    """Jain's index took a fleet for unfair in which one replica had crashed at the very end."""
    table, (one, other, _) = columns()
    for replica in (one, other):
        replica.add(AttemptId("a"), Job("a", 100, 50, (), 0.0), 0.0)
        while replica.ends < math.inf:
            replica.complete()
    other.add(AttemptId("b"), Job("b", 100, 1000, (), 50.0), 50.0)
    other.complete()
    said = other.engine.generated_at(50.5)
    other.crash(50.5)
    other.restart()
    other.add(AttemptId("c"), Job("c", 100, 7, (), 60.0), 60.0)
    while other.ends < math.inf:
        other.complete()
    assert said > 51
    assert (one.generated, other.generated) == (50, said + 7)
    table.finish(70.0, (one, other))
    assert table.spoken[1] / table.spoken[0] == pytest.approx((said + 7) / 50, rel=0.5)  # speeds are bent by a fifth
