"""What every policy owes the scheduler. A new file in headway.policies is swept without being named here."""

import importlib
import math
import pkgutil
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headway.policies
from headway.core.demand import Demand
from headway.core.plugin import Plugin, Policy, Tracker
from headway.core.replica import LoadSample
from headway.core.view import ReplicaView
from headway.policies.books import Books
from tests.interpreted import COMPILED
from tests.policies.fleet import FAST, SLOW, UNKNOWN, busy, demand, pick, send, view
from tests.views import told

PLUGINS: dict[str, Plugin] = {
    info.name: module.PLUGIN
    for info in pkgutil.iter_modules(headway.policies.__path__)
    if hasattr(module := importlib.import_module(f"headway.policies.{info.name}"), "PLUGIN")
}
BY_CHANCE = {"random", "p2c", "weighted_score"}
GAUGES_ONLY = {"blend_322"}
"""Sees nothing of what was sent since the last report: between two of them it is chance who gets it."""

sweep = pytest.mark.parametrize("name", sorted(PLUGINS))


def make(name: str) -> Policy:
    """A fresh policy with its default settings."""
    plugin = PLUGINS[name]
    policy: Policy = plugin.factory(plugin.config())
    return policy


def tokens(most: int) -> st.SearchStrategy[float]:
    return st.integers(0, most).map(float)


@st.composite
def fleets(draw: st.DrawFn) -> list[ReplicaView]:
    """One to six replicas in any state a scheduler would still offer: awake, breaker not open."""
    views = []
    for k in range(draw(st.integers(1, 6))):
        known: dict[str, Any] = {
            "kv_capacity_tokens": draw(st.sampled_from((0, 1_000, 400_000))),
            "sample_age_s": draw(st.sampled_from((-1.0, 0.0, 0.5, 60.0))),
            "stale": draw(st.booleans()),
            "max_num_seqs": draw(st.sampled_from((0, 1, 256))),
            "slow_start": draw(st.sampled_from((0.1, 1.0))),
            "speed": draw(st.sampled_from((FAST, SLOW, UNKNOWN))),
            "headroom_tokens": draw(st.integers(-50_000, 400_000).map(float)),
            "in_flight": draw(st.integers(0, 300)),
        }
        for amount in ("running", "waiting", "output_left_mean", "growth_tokens_per_s"):
            known[amount] = draw(tokens(500))
        for amount in ("kv_used_tokens", "peak_mean", "prefill_backlog_tokens", "dispatched_tokens", "context_tokens"):
            known[amount] = draw(tokens(500_000))
        for amount in ("peak_var", "headroom_sigma", "reserved_tokens"):
            known[amount] = draw(tokens(100_000))
        weight = draw(st.sampled_from((0.5, 1.0, 2.0)))
        views.append(view(f"r{k}", spec={"weight": weight}, **known))
    return views


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    prompt = draw(st.integers(1, 200_000))
    hits = draw(
        st.dictionaries(
            st.sampled_from(("r0", "r1", "r2", "gone")), st.integers(0, prompt - 1) if prompt > 1 else st.just(0)
        )
    )
    return demand(prompt, draw(st.sampled_from((0.0, 1.0, 300.0, 30_000.0))), hits, sigma=draw(tokens(5_000)))


def test_ours_hold_requests_and_the_baselines_do_not() -> None:
    late = {name for name in PLUGINS if make(name).binds_late}
    assert late >= {"headroom", "predictive"}
    assert late.isdisjoint({"random", "round_robin", "least_connections", "p2c", "weighted_score", "lmetric"})


@sweep
def test_plugin_is_named_as_its_file(name: str) -> None:
    policy = make(name)
    assert PLUGINS[name].name == name == policy.name
    assert policy.tolerance >= 0.0
    assert policy.binds_late in (True, False)
    module = importlib.import_module(f"headway.policies.{name}")
    assert COMPILED or (module.__doc__ or "").strip(), "compilation drops it"


@pytest.mark.slow
@sweep
@given(views=fleets(), wanted=demands(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_costs_are_one_tuple_per_view_and_in_range(
    name: str, views: list[ReplicaView], wanted: Demand, seed: int
) -> None:
    policy = make(name)
    before = [told(each) for each in (*views, wanted)]
    costs = policy.costs(wanted, views, 1.0, random.Random(seed))
    assert len(costs) == len(views)
    for cost in costs:
        assert len(cost) == 1 + len(policy.parts)
        assert cost[0] >= 0.0, "nan or negative"
        assert all(math.isfinite(part) and part >= 0.0 for part in cost[1:])
    somebody = min(cost[0] for cost in costs) < math.inf
    known = all(view.kv_capacity_tokens and not view.stale and view.in_flight + view.running for view in views)
    assert somebody or known, "an idle replica, or one that nothing is known of, must be able to take it"
    assert before == [told(each) for each in (*views, wanted)]


@pytest.mark.slow
@sweep
@given(views=fleets(), wanted=demands(), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_same_seed_same_costs(name: str, views: list[ReplicaView], wanted: Demand, seed: int) -> None:
    one, two = (make(name).costs(wanted, views, 1.0, random.Random(seed)) for _ in range(2))
    assert list(one) == list(two)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PLUGINS) - BY_CHANCE))
@given(views=fleets(), wanted=demands(), data=st.data())
@settings(max_examples=40, deadline=None)
def test_costs_do_not_depend_on_the_order_of_replicas(
    name: str, views: list[ReplicaView], wanted: Demand, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(views))))
    straight = make(name).costs(wanted, views, 1.0, random.Random(0))
    turned = make(name).costs(wanted, [views[k] for k in order], 1.0, random.Random(0))
    assert list(turned) == [straight[k] for k in order]


@sweep
def test_engines_without_any_load_report_share_fairly(name: str) -> None:
    blind: dict[str, Any] = {
        "sample_age_s": -1.0,
        "stale": True,
        "kv_capacity_tokens": 0,
        "max_num_seqs": 0,
        "headroom_tokens": 0.0,
        "speed": UNKNOWN,
    }
    policy, rng = make(name), random.Random(1)
    views = [view(f"r{k}", **blind) for k in range(4)]
    counts = [0, 0, 0, 0]
    for _ in range(80):
        k = pick(policy, demand(), views, rng)
        counts[k] += 1
        send(views, k, demand())
    assert min(counts) >= 10, counts


@sweep
def test_case_080_slow_prefill_hides_no_load(name: str) -> None:
    """40 requests at once, nothing answered yet: what was sent counts, so each of four gets its share."""
    policy, rng = make(name), random.Random(2)
    views = [view(f"r{k}") for k in range(4)]
    counts = [0, 0, 0, 0]
    for _ in range(40):
        k = pick(policy, demand(), views, rng)
        counts[k] += 1
        send(views, k, demand())
    if name in {"random", "weighted_score"} | GAUGES_ONLY:  # chosen by (weighted) chance: no more than even on average
        assert min(counts) >= 4, counts
    else:
        assert all(8 <= count <= 12 for count in counts), counts


@sweep
def test_case_095_every_policy_reads_the_same_accounts(name: str) -> None:
    """50 open streams sum to 50 in flight whoever placed them, because the ledger counts and not the policy."""
    policy, rng = make(name), random.Random(3)
    views = [view(f"r{k}") for k in range(4)]
    for _ in range(50):
        send(views, pick(policy, demand(), views, rng), demand())
    assert sum(v.in_flight for v in views) == 50
    other = make("least_connections")
    k = pick(other, demand(), views, rng)
    assert views[k].in_flight == min(v.in_flight for v in views), "a policy that takes over starts from these counts"


@pytest.mark.parametrize("name", sorted(set(PLUGINS) - {"random", "round_robin", "p2c"}))
def test_the_idle_replica_is_preferred_to_the_full_one(name: str) -> None:
    rng = random.Random(4)
    views = [busy("a", 90, waiting=20.0, prefill_backlog_tokens=20_000.0), view("b")]
    picks = [pick(make(name), demand(), views, rng) for _ in range(200)]
    assert sum(picks) >= 190


@pytest.mark.parametrize("name", ["headroom", "lmetric", "predictive", "weighted_score"])
def test_case_079_a_miss_goes_by_load_not_by_cache_size(name: str) -> None:
    """A slow replica with an empty cache against an idle one with a large warm one: unique prompts avoid the slow one.

    A full prefix cache is free for the taking, so it is not in `kv_used_tokens` nor in the forecast peak.
    """
    policy, rng = make(name), random.Random(5)
    sample = LoadSample(replica_id=view("b").id, taken_at=0.0, prefix_hits_total=90_000, prefix_queries_total=100_000)
    went = 0
    for _ in range(100):
        views = [busy("a", 40, prefill_backlog_tokens=8_000.0, waiting=5.0), view("b", sample=sample)]
        went += pick(policy, demand(), views, rng)
    assert went >= 80


@sweep
def test_state_is_bounded_when_replicas_and_models_come_and_go(name: str) -> None:
    policy, rng = make(name), random.Random(6)
    for k in range(3000):
        for wanted in (demand(model=f"m{k}"), demand()):
            views = [view(f"r{k}"), view(f"s{k}")]
            chosen = pick(policy, wanted, views, rng, float(k))
            if isinstance(policy, Tracker):
                policy.ended(wanted.request, views[chosen].id)
    states = [getattr(policy, attribute) for attribute in dir(policy)]
    assert all(len(state) <= 16_384 for state in states if isinstance(state, dict | Books))
    turns = getattr(policy, "_models", {}).get("m")
    assert turns is None or len(turns.times) < 32
