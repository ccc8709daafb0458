"""The default policy: request-seconds held up, what counts into them, and how they rank."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.view import ReplicaView, Speed
from headway.policies.headroom import PLUGIN, Headroom
from headway.policies.weights import HeadroomConfig
from tests.policies.fleet import FAST, SLOW, UNKNOWN, busy, demand, pick, send, view
from tests.views import changed

CONFIG = HeadroomConfig(crowded=0.8)


def costs(views: list[ReplicaView], **wanted: Any) -> list[dict[str, float]]:
    """Per replica: the total under "cost", and the parts by name."""
    policy = Headroom(CONFIG)
    rows = policy.costs(demand(**wanted), views, 0.0, random.Random(0))
    return [dict(zip(("cost", *policy.parts), row, strict=True)) for row in rows]


def ranked(*views: ReplicaView, **wanted: Any) -> list[str]:
    """Names from the best on."""
    rows = costs(list(views), **wanted)
    return [view.id for _, view in sorted(zip((row["cost"] for row in rows), views, strict=True), key=lambda x: x[0])]


def filled(name: str, share: float, **known: Any) -> ReplicaView:
    """A replica of 100,000 tokens with so much of it in use; a request of 1,000 comes on top."""
    return view(name, kv_used_tokens=100_000 * share - 1000, **known)


def test_the_cost_is_the_product_of_its_parts() -> None:
    config = PLUGIN.config()
    assert isinstance(config, HeadroomConfig)
    for row in costs([busy("a", 40), busy("b", 95, prefill_backlog_tokens=900.0)]):
        assert row["cost"] == pytest.approx(row["ttft_s"] * row["requests"] * row["crowding"])


class TestSeconds:
    """How long the first token takes, and everybody waits."""

    def test_backlog_and_own_prompt_over_the_rate(self) -> None:
        (row,) = costs([view(prefill_backlog_tokens=7_000.0)], prompt=1000)
        assert row["ttft_s"] == pytest.approx(8_000 / FAST.prefill_tokens_per_s)

    def test_what_is_cached_is_not_computed(self) -> None:
        warm, cold = costs([view("a"), view("b")], prompt=1000, hits={"a": 600})
        assert warm["ttft_s"] == pytest.approx(400 / FAST.prefill_tokens_per_s)
        assert cold["ttft_s"] == pytest.approx(1000 / FAST.prefill_tokens_per_s)

    @pytest.mark.parametrize("hit", [1000, 1200])
    def test_a_prompt_cached_in_whole_still_computes_a_token(self, hit: int) -> None:
        (row,) = costs([view("a")], prompt=1000, hits={"a": hit})
        assert row["ttft_s"] == pytest.approx(1 / FAST.prefill_tokens_per_s)

    def test_a_warm_one_is_worth_a_crowd_but_not_any(self) -> None:
        """Nine tenths cached: up to ten times the requests."""
        assert ranked(busy("warm", 8), view("cold"), prompt=1000, hits={"warm": 900})[0] == "warm"
        assert ranked(busy("warm", 10), view("cold"), prompt=1000, hits={"warm": 900})[0] == "cold"

    def test_hardware_compares_by_its_rate(self) -> None:
        """Eight times as fast, eight times the load."""
        assert ranked(busy("fast", 6), view("slow", speed=SLOW)) == ["fast", "slow"]
        assert ranked(busy("fast", 8), view("slow", speed=SLOW)) == ["slow", "fast"]

    def test_a_stranger_is_taken_for_an_average_replica(self) -> None:
        """An optimistic prior must not attract everything, nor a pessimistic one repel it for ever."""
        for prior in (1e6, 10.0):
            stranger = view("c", speed=Speed(1e-3, 0.0, 0.0, prior, False))
            rows = costs([view("a", speed=FAST), view("b", speed=SLOW), stranger], prompt=1000)
            assert rows[2]["ttft_s"] == pytest.approx(1000 / 22_500)

    def test_strangers_among_themselves_are_equal(self) -> None:
        quick = changed(UNKNOWN, prefill_tokens_per_s=12_000.0)
        rows = costs([view("a", speed=UNKNOWN), view("b", speed=quick)], prompt=1000)
        assert [row["ttft_s"] for row in rows] == [pytest.approx(0.1)] * 2, "the mean of 8,000 and 12,000"

    def test_nor_does_the_order_of_those_it_is_an_average_of_show(self) -> None:
        """To the last bit: equals must stay equal."""
        known = [
            view(f"r{k}", speed=Speed(0.01, 0.0, 0.0, rate, True))
            for k, rate in enumerate((10_000.1, 12_345.6, 9_876.7, 23_456.7))
        ]
        stranger = view("new", speed=UNKNOWN)
        assert len({costs([*order, stranger])[-1]["cost"] for order in itertools.permutations(known)}) == 1

    def test_slow_start_slows_down(self) -> None:
        warm, cold = costs([view("a"), view("b", slow_start=0.25)])
        assert cold["ttft_s"] == pytest.approx(4 * warm["ttft_s"])

    def test_slow_start_gets_a_smaller_share(self) -> None:
        policy, rng, views = Headroom(CONFIG), random.Random(1), [view("a"), view("b", slow_start=0.1)]
        for _ in range(60):
            send(views, pick(policy, demand(1000), views, rng), demand(1000))
        assert 0 < views[1].in_flight < views[0].in_flight / 2


class TestRequests:
    """Who waits for it."""

    def test_those_who_run_those_who_wait_and_itself(self) -> None:
        (row,) = costs([view(running=7.0, waiting=4.0, in_flight=3)])
        assert row["requests"] == 12.0

    def test_a_stale_report_is_replaced_by_counting(self) -> None:
        """Frozen at 90 running, in truth we have two there; and the other way round."""
        rows = costs([busy("a", 90, in_flight=2, stale=True), busy("b", 2, in_flight=90, stale=True)])
        assert [row["requests"] for row in rows] == [3.0, 91.0]

    def test_a_prefill_goes_where_it_stops_the_fewest(self) -> None:
        assert ranked(busy("many", 40), busy("few", 20), view("none")) == ["none", "few", "many"]


class TestCrowding:
    """Memory counts when there is little left."""

    @pytest.mark.parametrize(
        ("share", "crowding"),
        [(0.1, 1.0), (0.5, 1.0), (0.79, 1.0), (0.9, 2.0), (0.95, 4.0), (0.98, 10.0), (1.0, 10.0), (3.0, 10.0)],
    )
    def test_in_inverse_proportion_to_what_is_left_and_never_more_than_when_nearly_full(
        self, share: float, crowding: float
    ) -> None:
        (row,) = costs([filled("a", share)], prompt=1000)
        assert row["crowding"] == pytest.approx(crowding)

    def test_no_bonus_for_an_empty_pool(self) -> None:
        empty, half = costs([view("a"), filled("b", 0.7)])
        assert half["cost"] == empty["cost"]

    def test_what_was_sent_before_will_be_there_too(self) -> None:
        (row,) = costs([view(kv_used_tokens=40_000.0, prefill_backlog_tokens=49_000.0)], prompt=1000)
        assert row["crowding"] == pytest.approx(2.0)

    def test_a_cached_prompt_takes_its_place_all_the_same(self) -> None:
        cold, warm = (costs([filled("a", 0.9)], prompt=1000, hits={"a": hit})[0] for hit in (0, 900))
        assert warm["crowding"] == cold["crowding"] == pytest.approx(2.0)

    def test_the_threshold_is_the_operators(self) -> None:
        (row,) = Headroom(HeadroomConfig(crowded=0.5)).costs(demand(1000), [filled("a", 0.9)], 0.0, random.Random(0))
        assert row[3] == pytest.approx(5.0)

    def test_an_unknown_capacity_is_never_crowded(self) -> None:
        (row,) = costs([view(kv_capacity_tokens=0, kv_used_tokens=10.0**7)])
        assert row["crowding"] == 1.0

    def test_a_roomier_one_is_preferred(self) -> None:
        assert ranked(filled("full", 0.97), filled("roomy", 0.97, kv_capacity_tokens=400_000))[0] == "roomy"


def test_equals_share_evenly() -> None:
    policy, rng, counts = Headroom(CONFIG), random.Random(2), [0, 0, 0]
    views = [view(f"r{k}") for k in range(3)]
    rows = costs(views)
    assert rows[0] == rows[1] == rows[2], "exactly: chance decides between them"
    for _ in range(300):
        counts[pick(policy, demand(), views, rng)] += 1
    assert min(counts) > 60


def test_sends_everything_where_the_prefix_is_while_it_is_idle() -> None:
    policy, rng = Headroom(CONFIG), random.Random(2)
    views = [view(f"r{k}", speed=SLOW) for k in range(4)]
    assert {pick(policy, demand(8_000, hits={"r2": 7_500}), views, rng) for _ in range(20)} == {2}


# -- what holds whatever the fleet

amounts = st.integers(0, 300_000).map(float)


@st.composite
def replicas(draw: st.DrawFn, name: str) -> ReplicaView:
    rate = draw(st.floats(10.0, 1e6))
    return view(
        name,
        speed=Speed(0.01, 0.0, 0.0, rate, draw(st.booleans())),
        kv_capacity_tokens=draw(st.sampled_from((0, 1000, 100_000, 400_000))),
        kv_used_tokens=draw(amounts),
        prefill_backlog_tokens=draw(amounts),
        running=draw(st.integers(0, 300).map(float)),
        waiting=draw(st.integers(0, 300).map(float)),
        in_flight=draw(st.integers(0, 300)),
        stale=draw(st.booleans()),
        slow_start=draw(st.sampled_from((0.1, 0.7, 1.0))),
    )


fleets = st.integers(1, 5).flatmap(lambda count: st.tuples(*(replicas(f"r{k}") for k in range(count))).map(list))
prompts = st.integers(1, 200_000)
hits = st.dictionaries(st.sampled_from(("r0", "r1", "r2")), st.integers(0, 200_000), max_size=3)


@given(fleets, prompts, hits, st.randoms(use_true_random=False))
def test_the_order_of_replicas_does_not_show(
    views: list[ReplicaView], prompt: int, cached: dict[str, int], rng: random.Random
) -> None:
    order = list(range(len(views)))
    rng.shuffle(order)
    straight = costs(views, prompt=prompt, hits=cached)
    assert costs([views[k] for k in order], prompt=prompt, hits=cached) == [straight[k] for k in order]


@given(
    replicas("r0"),
    prompts,
    hits,
    st.sampled_from(("prefill_backlog_tokens", "kv_used_tokens", "running", "waiting", "in_flight")),
    st.integers(1, 100_000),
)
def test_more_load_never_makes_a_replica_better(
    here: ReplicaView, prompt: int, cached: dict[str, int], what: str, more: int
) -> None:
    loaded = changed(here, **{what: getattr(here, what) + more})
    before, after = (costs([view], prompt=prompt, hits=cached)[0]["cost"] for view in (here, loaded))
    assert after >= before
    if what == "prefill_backlog_tokens":
        assert after > before
    if what in ("running", "waiting", "in_flight"):
        assert (after > before) is (here.stale is (what == "in_flight"))


@given(replicas("r0"), prompts, st.integers(0, 100_000), st.integers(1, 100_000))
def test_a_longer_hit_never_makes_it_worse(here: ReplicaView, prompt: int, hit: int, more: int) -> None:
    less, much = (costs([here], prompt=prompt, hits={"r0": count})[0]["cost"] for count in (hit, hit + more))
    assert much <= less


@given(fleets, prompts, hits)
def test_every_part_is_at_least_what_it_is_alone(views: list[ReplicaView], prompt: int, cached: dict[str, int]) -> None:
    for row in costs(views, prompt=prompt, hits=cached):
        assert row["ttft_s"] > 0.0
        assert row["requests"] >= 1.0
        assert 1.0 - 1e-9 <= row["crowding"] <= 10.0 + 1e-9
