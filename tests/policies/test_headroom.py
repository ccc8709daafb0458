"""The default policy: what it must prefer, and the traps it must not fall into."""

import math
import random
from typing import Any

import pytest

from headway.core.ids import ReplicaId
from headway.core.view import ReplicaView, Speed
from headway.policies.headroom import PLUGIN, Headroom
from headway.policies.weights import HeadroomConfig
from tests.policies.fleet import FAST, SLOW, UNKNOWN, busy, demand, pick, send, view


def costs(views: list[ReplicaView], **wanted: Any) -> list[dict[str, float]]:
    """Per replica: the total under "cost", and the parts by name."""
    policy = Headroom(HeadroomConfig())
    rows = policy.costs(demand(**wanted), views, 0.0, random.Random(0))
    return [dict(zip(("cost", *policy.parts), row, strict=True)) for row in rows]


def test_cost_is_the_weighted_sum_of_its_parts() -> None:
    config = PLUGIN.config()
    assert isinstance(config, HeadroomConfig)
    for row in costs([busy("a", 40), busy("b", 99, dispatched_tokens=900.0)]):
        total = row["ttft"] + row["dec"] + row["ext"] + row["mem"] + row["unc"]
        assert row["cost"] == pytest.approx(total)


def test_ttft_is_backlog_and_own_prefill_over_the_rate() -> None:
    (row,) = costs([view(prefill_backlog_tokens=7_000.0)], prompt=1000)
    assert row["ttft"] == pytest.approx(8_000 / FAST.prefill_tokens_per_s)


def test_a_prompt_cached_in_whole_still_computes_a_token() -> None:
    (row,) = costs([view("a")], prompt=1000, hits={"a": 1000})
    assert row["ttft"] == pytest.approx(1 / FAST.prefill_tokens_per_s)


def test_others_pay_for_slower_steps_and_for_the_prefill() -> None:
    idle, loaded = costs([view("a"), busy("b", 50, left=100.0)], prompt=1000, output=300.0)
    assert idle["ext"] == 0.0
    slower = FAST.step_per_request_s + FAST.step_per_token_s * 1000
    assert loaded["ext"] == pytest.approx(50 * slower * 100 + 51 * 1000 / FAST.prefill_tokens_per_s)


def test_what_has_to_be_waited_for_counts_more_than_its_seconds() -> None:
    now, later = costs([view("a"), view("b")], waits={ReplicaId("b"): 2.0})
    assert later["ttft"] == pytest.approx(now["ttft"] + 2.0 * HeadroomConfig().wait_weight)


def test_hardware_compares_by_its_own_speed() -> None:
    """The fast one carries several times the load before the slow one is the better choice."""
    slow = busy("slow", 4, speed=SLOW)
    assert pick(Headroom(HeadroomConfig()), demand(), [busy("fast", 16, speed=FAST), slow], random.Random(0)) == 0
    rows = costs([busy("fast", 90, speed=FAST, prefill_backlog_tokens=60_000.0), view("slow", speed=SLOW)])
    assert rows[1]["cost"] < rows[0]["cost"]


def test_a_likely_preemption_costs_tens_of_seconds() -> None:
    full, free = costs([busy("a", 95, left=400.0), busy("b", 90, left=400.0, kv_capacity_tokens=400_000)])
    assert full["mem"] > 10.0
    assert free["mem"] == 0.0


def test_memory_counts_only_where_it_can_be_short() -> None:
    rows = costs([view(f"r{k}") for k in range(8)])
    assert all(row["mem"] == 0.0 for row in rows)


def test_who_was_not_looked_at_does_not_win_by_it() -> None:
    """With the cheapest all full, the evaluation goes on until the best is found, not to the fourth."""
    views = [busy(f"full{k}", 96, left=400.0) for k in range(12)]
    roomy = busy("roomy", 97, left=400.0, kv_capacity_tokens=400_000, prefill_backlog_tokens=40_000.0)
    rows = costs([*views, roomy])
    assert min(range(13), key=lambda k: rows[k]["cost"]) == 12
    config = HeadroomConfig(exact=2)
    limited = Headroom(config).costs(demand(), [*views, roomy], 0.0, random.Random(0))
    assert min(range(13), key=lambda k: limited[k][0]) == 12
    assert all(row[0] > 10.0 for row in limited[:12])


def test_no_bonus_for_an_empty_pool() -> None:
    """Half-full memory that is not short costs nothing."""
    empty, half = costs([view("a"), view("b", kv_used_tokens=50_000.0, peak_mean=50_000.0, headroom_tokens=49_000.0)])
    assert half["cost"] == empty["cost"]


def test_a_full_pool_makes_the_request_wait_for_memory() -> None:
    free, full = costs([busy("a", 90), busy("b", 90, kv_used_tokens=100_000.0)])
    assert full["ttft"] > 2 * free["ttft"]


def test_a_full_batch_makes_the_request_wait_for_a_slot() -> None:
    free, full = costs([busy("a", 60, max_num_seqs=256), busy("b", 60, max_num_seqs=60)])
    assert full["ttft"] > 2 * free["ttft"]


def test_doubt_grows_with_the_age_of_the_sample() -> None:
    fresh, old, none = costs(
        [busy("a", 50, sample_age_s=0.1), busy("b", 50, sample_age_s=5.0), busy("c", 50, sample_age_s=-1.0)]
    )
    assert none["unc"] == 0.0 < fresh["unc"] < old["unc"]


def test_a_stale_report_is_replaced_by_counting() -> None:
    """Frozen at 90 running, in truth we have two there; and the other way round."""
    rows = costs([busy("a", 90, in_flight=2, stale=True), busy("b", 90), busy("c", 2, in_flight=90, stale=True)])
    assert rows[0]["ext"] < rows[1]["ext"] / 10
    assert rows[2]["ext"] == pytest.approx(rows[1]["ext"], rel=0.5)


def test_until_speeds_are_learned_prefill_work_times_batch() -> None:
    views = [busy("a", 4, speed=UNKNOWN, prefill_backlog_tokens=500.0), view("b", speed=UNKNOWN, slow_start=0.5)]
    first, second = costs(views, prompt=1000, hits={"a": 600})
    assert first["cost"] == (500 + 400) * 5
    assert second["cost"] == 1000 * 1 / 0.5


def test_a_stranger_is_taken_for_an_average_replica() -> None:
    """An optimistic prior must not attract everything, nor a pessimistic one repel it for ever."""
    known = [view("a", speed=FAST), view("b", speed=SLOW)]
    for prior in (1e6, 10.0):
        stranger = view("c", speed=Speed(1e-3, 0.0, 0.0, prior, False))
        rows = costs([*known, stranger])
        assert rows[0]["cost"] < rows[2]["cost"] < rows[1]["cost"]


def test_slow_start_gets_a_smaller_share() -> None:
    policy, rng, views = Headroom(HeadroomConfig()), random.Random(1), [view("a"), view("b", slow_start=0.1)]
    for _ in range(60):
        send(views, pick(policy, demand(4000), views, rng), demand(4000))
    assert views[1].in_flight < views[0].in_flight / 2


def test_slow_start_scales_the_memory_that_may_be_filled() -> None:
    (warm,), (cold,) = costs([busy("a", 40)]), costs([busy("a", 40, slow_start=0.3)])
    assert warm["mem"] == 0.0
    assert cold["mem"] > 10.0


class TestSticky:
    """Mostly cached prompts stay with their cache, within reason."""

    def test_keeps_only_warm_ones(self) -> None:
        rows = costs([busy("warm", 4, speed=SLOW), view("cold", speed=SLOW)], prompt=10_000, hits={"warm": 9_000})
        assert rows[1]["cost"] == math.inf
        assert rows[0]["cost"] < math.inf

    def test_lets_go_when_the_warm_one_is_two_slos_behind(self) -> None:
        behind = busy("warm", 30, speed=SLOW, prefill_backlog_tokens=50_000.0)
        rows = costs([behind, view("cold", speed=SLOW)], prompt=10_000, hits={"warm": 9_000})
        assert rows[1]["cost"] < rows[0]["cost"] < math.inf

    def test_lets_go_when_it_costs_more_in_all_than_the_hit_is_worth(self) -> None:
        """A popular system prompt, cached at one replica: no queue for prefill there, but a crowd."""
        rows = costs([busy("warm", 80), view("cold")], prompt=2_000, hits={"warm": 1_800})
        assert rows[1]["cost"] < rows[0]["cost"] < math.inf

    @pytest.mark.parametrize(("prompt", "hit"), [(10_000, 7_000), (500, 450)])
    def test_small_hits_only_count_by_the_prefill_they_save(self, prompt: int, hit: int) -> None:
        rows = costs([busy("warm", 2), view("cold")], prompt=prompt, hits={"warm": hit})
        assert rows[1]["cost"] < math.inf
        assert rows[0]["ttft"] < rows[1]["ttft"]

    def test_nothing_to_keep_when_all_are_warm(self) -> None:
        rows = costs([view("a"), view("b")], prompt=10_000, hits={"a": 9_000, "b": 9_500})
        assert all(row["cost"] < math.inf for row in rows)


def test_sends_everything_where_the_prefix_is_while_it_is_idle() -> None:
    policy, rng = Headroom(HeadroomConfig()), random.Random(2)
    views = [view(f"r{k}", speed=SLOW) for k in range(4)]
    assert {pick(policy, demand(8_000, hits={"r2": 7_500}), views, rng) for _ in range(20)} == {2}
