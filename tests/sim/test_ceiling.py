"""No run of a scenario serves more requests well than its ceiling says, and in overload the ceiling is not all."""

import random

import msgspec
import pytest

from headway.compose.simulate import contenders
from headway.sim.ceiling import ceiling
from headway.sim.run import simulate
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.request import Request, Segment, as_workload
from headway.workload.stats import Slo

STRICT = Slo(ttft_s=0.5, ttft_per_prompt_token_s=0.0001, tpot_s=0.03)


def chats(rate_rps: float, count: int, seed: int) -> list[Request]:
    """Conversations of a few turns that share their beginnings, and loners."""
    chance, at, found = random.Random(seed), 0.0, []
    for k in range(count):
        at += chance.expovariate(rate_rps)
        history = [Segment(chance.randrange(6), 512)] if chance.random() < 0.6 else []
        segments = (*history, Segment(1000 + k, chance.randrange(50, 4000)))
        found.append(Request(at, segments, chance.randrange(2, 300)))
    return found


def scenario(truth: Truth, **pool: object) -> Scenario:
    pools = (PoolSpec(1, gpu="h100-80gb", **pool), PoolSpec(2, gpu="l40s-48gb", **pool))  # type: ignore[arg-type]
    return Scenario(pools, truth, STRICT, warmup_s=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [{"kv_tokens": 20_000}, {"kv_tokens": 100_000, "enable_prefix_caching": False}])
def test_no_policy_beats_the_ceiling(pool: dict[str, object]) -> None:
    seed = 1
    stage, requests = scenario(Truth(perturb=0.2), **pool), chats(80.0, 240, seed)
    counted = sum(request.arrival_s >= stage.warmup_s for request in requests)
    bound = ceiling(stage, requests, seed)
    assert bound.good < counted, "this is more than the fleet can do"
    for one in contenders(("headroom", "lmetric+queue", "clairvoyant")):
        mine = msgspec.structs.replace(stage, clairvoyant=one.clairvoyant)
        result = simulate(mine, as_workload("", requests), one.make_brain, one.name, 1.0, seed).result
        assert result.requests == counted
        assert result.good <= bound.good


def test_an_easy_load_has_no_ceiling_below_all() -> None:
    requests = chats(1.0, 40, 3)
    stage = msgspec.structs.replace(scenario(Truth()), slo=Slo(), warmup_s=0.0)
    assert ceiling(stage, requests, 0).good == 40


@pytest.mark.slow
def test_the_ceiling_is_that_of_the_truth_of_the_seed() -> None:
    """Seeds bend the truth, and only the truth; what is not bent does not depend on them."""
    requests, bent = chats(120.0, 200, 4), Truth(perturb=0.2, step_jitter=0.0)
    stages = [scenario(truth, kv_tokens=20_000) for truth in (Truth(step_jitter=0.0), bent)]
    stages = [msgspec.structs.replace(stage, warmup_s=0.0) for stage in stages]
    exact = ceiling(stages[0], requests, 0).good
    others = [ceiling(stages[1], requests, seed).good for seed in range(3)]
    assert min(others) < max(others)
    assert exact == ceiling(stages[0], requests, 1).good


THREE = (PoolSpec(1, gpu="h100-80gb"), PoolSpec(1, gpu="a100-80gb"), PoolSpec(1, gpu="l40s-48gb"))


@pytest.mark.slow
def test_few_pieces_of_time_are_a_bound_too_and_hardly_a_looser_one() -> None:
    """Three kinds of replicas take minutes with 400 pieces; with an eighth of them the bound is found at once."""
    pools = tuple(msgspec.structs.replace(pool, kv_tokens=20_000) for pool in THREE)
    stage, seed = Scenario(pools, Truth(perturb=0.2), STRICT), 2
    requests = chats(120.0, 300, seed)
    exact, coarse, coarsest = (ceiling(stage, requests, seed, buckets=count).good for count in (400, 8, 2))
    assert exact <= coarse <= coarsest
    assert exact < len(requests), "this is more than the fleet can do"
    assert coarse <= 1.15 * exact
    for one in contenders(("headroom", "lmetric+queue", "clairvoyant")):
        mine = msgspec.structs.replace(stage, clairvoyant=one.clairvoyant)
        assert simulate(mine, as_workload("", requests), one.make_brain, one.name, 1.0, seed).result.good <= exact
