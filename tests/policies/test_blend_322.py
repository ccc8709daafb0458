"""Queue 2, KV cache 2, prefix 3, by the last report alone."""

import random

import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.core.view import ReplicaView
from headway.policies.blend_322 import Blend, BlendConfig
from tests.policies.fleet import busy, demand, pick, send, view
from tests.views import changed


def sampled(name: str, **gauges: object) -> ReplicaView:
    return view(name, sample=LoadSample(ReplicaId(name), 0.0, **gauges))  # type: ignore[arg-type]


def scores(*views: ReplicaView, **wanted: object) -> list[tuple[float, ...]]:
    return list(Blend(BlendConfig()).costs(demand(**wanted), views, 0.0, random.Random(0)))  # type: ignore[arg-type]


def test_the_queue_is_scored_between_the_shortest_and_the_longest() -> None:
    rows = scores(sampled("a", waiting=2), sampled("b", waiting=6), sampled("c", waiting=3))
    assert [row[1] for row in rows] == [1.0, 0.0, 0.75]
    assert [row[0] for row in rows] == pytest.approx([3.0, 5.0, 3.5])
    assert [row[1] for row in scores(sampled("a", waiting=4), sampled("b", waiting=4))] == [1.0, 1.0]


def test_kv_is_what_is_free_by_the_report() -> None:
    rows = scores(
        sampled("a", kv_usage=0.25), sampled("b", kv_used_tokens=30_000, kv_capacity_tokens=40_000), sampled("c")
    )
    assert [row[2] for row in rows] == [0.75, 0.25, 1.0]


def test_the_prefix_is_the_matched_share_of_the_first_4096_tokens() -> None:
    short, cold = scores(view("a"), view("b"), prompt=1000, hits={"a": 400})
    assert (short[3], cold[3]) == (0.4, 0.0)
    (long,) = scores(view("a"), prompt=10_000, hits={"a": 2048})
    assert long[3] == 0.5
    (full,) = scores(view("a"), prompt=10_000, hits={"a": 9000})
    assert full == (0.0, 1.0, 1.0, 1.0)


def test_weights_are_2_2_3() -> None:
    (row,) = scores(sampled("a", kv_usage=1.0), prompt=1000)
    assert row[0] == 2.0 * 0.0 + 2.0 * 1.0 + 3.0 * 1.0


def test_nothing_sent_since_the_report_counts() -> None:
    """As published: until the next report all of a burst may go to one replica."""
    policy, rng = Blend(BlendConfig()), random.Random(1)
    views = [busy("a", 10), busy("b", 20)]
    for _ in range(20):
        k = pick(policy, demand(), views, rng)
        assert k == 0
        send(views, k, demand())


def test_a_missing_report_reads_as_idle() -> None:
    blind = changed(busy("a", 90, waiting=9.0), sample=None)
    rows = scores(blind, busy("b", 5))
    assert rows[0][1:3] == (1.0, 1.0)
    assert rows[0][0] < rows[1][0]
