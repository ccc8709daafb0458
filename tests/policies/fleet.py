"""Views and demands for tests of policies, and a scheduler of ten lines.

A view's sample says what its facts say (unless one is given, or there is none): as if the ledger had nothing to add.
"""

import random
from collections.abc import Sequence
from typing import Any

from headway.core.demand import Demand
from headway.core.ids import ReplicaId, RequestId
from headway.core.plugin import Policy, Tracker
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.view import Breaker, ReplicaView, Speed
from tests.views import changed

FAST = Speed(0.008, 0.00005, 1e-8, 40_000.0, True)
SLOW = Speed(0.032, 0.0002, 4e-8, 5_000.0, True)
UNKNOWN = Speed(0.010, 0.00005, 2e-8, 8_000.0, False)


def view(name: str = "a", *, spec: dict[str, Any] | None = None, **known: Any) -> ReplicaView:
    """An idle, warm replica with 100 k tokens of KV, but for what is given."""
    facts: dict[str, Any] = {
        "spec": ReplicaSpec(id=ReplicaId(name), url=f"http://{name}", model="m", **(spec or {})),
        "as_of": 0.0,
        "sample_age_s": 0.2,
        "stale": False,
        "kv_capacity_tokens": 100_000,
        "kv_used_tokens": 0.0,
        "headroom_tokens": 99_000.0,
        "headroom_sigma": 0.0,
        "peak_mean": 0.0,
        "peak_var": 0.0,
        "reserved_tokens": 0.0,
        "prefill_backlog_tokens": 0.0,
        "dispatched_tokens": 0.0,
        "growth_tokens_per_s": 0.0,
        "in_flight": 0,
        "running": 0.0,
        "waiting": 0.0,
        "context_tokens": 0.0,
        "output_left_mean": 0.0,
        "max_num_seqs": 256,
        "speed": FAST,
        "breaker": Breaker.CLOSED,
        "slow_start": 1.0,
        "draining": False,
        "sleeping": False,
    }
    facts |= known
    facts.setdefault("sample", _sample(facts))
    return ReplicaView(**facts)


def _sample(facts: dict[str, Any]) -> LoadSample | None:
    """The report that a replica of these facts would give."""
    if facts["sample_age_s"] < 0.0:
        return None
    return LoadSample(
        facts["spec"].id,
        facts["as_of"] - facts["sample_age_s"],
        kv_capacity_tokens=facts["kv_capacity_tokens"] or None,
        kv_used_tokens=round(facts["kv_used_tokens"]),
        running=round(facts["running"]),
        waiting=round(facts["waiting"]),
        max_num_seqs=facts["max_num_seqs"] or None,
    )


def busy(name: str, requests: int, context: int = 1000, left: float = 200.0, **known: Any) -> ReplicaView:
    """A replica that decodes `requests` sequences of `context` tokens with `left` tokens to go."""
    used = float(requests * context)
    peak = used + requests * left / 2
    capacity = known.get("kv_capacity_tokens", 100_000)
    facts: dict[str, Any] = {
        "kv_used_tokens": used,
        "peak_mean": peak,
        "peak_var": requests * left * left,
        "headroom_tokens": capacity * 0.99 - peak,
        "headroom_sigma": (requests * left * left) ** 0.5,
        "reserved_tokens": requests * left,
        "in_flight": requests,
        "running": float(requests),
        "context_tokens": used,
        "output_left_mean": left,
        "growth_tokens_per_s": requests / 0.02,
    }
    return view(name, **(facts | known))


def demand(
    prompt: int = 1000,
    output: float = 200.0,
    hits: dict[str, int] | None = None,
    model: str = "m",
    sigma: float = 100.0,
) -> Demand:
    """A request of that many prompt tokens, forecast to generate `output`."""
    request = RequestInfo(id=RequestId("q"), model=model, prompt_tokens=prompt)
    found = {ReplicaId(name): hit for name, hit in (hits or {}).items()}
    return Demand(request, prompt, output, sigma, 0, found)


def pick(policy: Policy, wanted: Demand, views: Sequence[ReplicaView], rng: random.Random, now: float = 0.0) -> int:
    """The index of the least cost; within the policy's tolerance by chance. It counts as sent there."""
    costs = [cost[0] for cost in policy.costs(wanted, views, now, rng)]
    bound = min(costs) * (1.0 + policy.tolerance)
    k = rng.choice([k for k, cost in enumerate(costs) if cost <= bound])
    if isinstance(policy, Tracker):
        policy.sent(wanted, views[k].id, now)
    return k


def send(views: list[ReplicaView], k: int, wanted: Demand) -> None:
    """What the ledger does at dispatch: everything promised counts at once, before any report or response. The last
    report stands as it is."""
    old = views[k]
    new = max(1, wanted.prompt_tokens - wanted.hit(old.id))
    views[k] = changed(
        old,
        in_flight=old.in_flight + 1,
        running=old.running + 1.0,
        reserved_tokens=old.reserved_tokens + wanted.output_mean,
        prefill_backlog_tokens=old.prefill_backlog_tokens + new,
        dispatched_tokens=old.dispatched_tokens + new,
        kv_used_tokens=old.kv_used_tokens + new,
        peak_mean=old.peak_mean + new + wanted.output_mean,
        headroom_tokens=old.headroom_tokens - new - wanted.output_mean,
        context_tokens=old.context_tokens + wanted.prompt_tokens,
        output_left_mean=wanted.output_mean,
    )
