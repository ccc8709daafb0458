"""Speeds: found from noisy steps, never negative, shrunk towards the kind, and quick to believe real news."""

import itertools
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.constants import SpeedConfig
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.speed import SpeedModel, non_negative

TRUTH = (0.012, 0.00012, 5e-8)
RATE = 30_000.0


def replica(name: str = "a", gpu: str = "H100", features: dict[str, float] | None = None) -> ReplicaSpec:
    return ReplicaSpec(id=ReplicaId(name), url="", model="m", gpu=gpu, features=features or {})


def step_s(running: float, context: float) -> float:
    return TRUTH[0] + TRUTH[1] * running + TRUTH[2] * context


def work(model: SpeedModel, spec: ReplicaSpec, rng: random.Random, count: int, factor: float = 1.0) -> None:
    """A replica `factor` times as slow as the truth does `count` steps and prefills, with 15 % noise."""
    for _ in range(count):
        running = rng.randint(1, 80)
        context = running * rng.randint(200, 3000)
        model.observe_step(spec, running, context, factor * step_s(running, context) * rng.lognormvariate(0, 0.15))
        tokens = rng.randint(20, 4000)
        model.observe_prefill(spec, tokens, factor * (0.010 + tokens / RATE) * rng.lognormvariate(0, 0.15))


def test_prior_is_features_else_defaults() -> None:
    config, model = SpeedConfig(), SpeedModel()
    plain = model.speed(replica())
    assert (plain.step_base_s, plain.prefill_tokens_per_s) == (config.step_base_s, config.prefill_tokens_per_s)
    known = replica("b", "T4", {"step_base_s": 0.05, "step_per_token_s": 1e-7, "prefill_tokens_per_s": 900.0})
    speed = model.speed(known)
    assert (speed.step_base_s, speed.step_per_token_s) == (0.05, 1e-7)
    assert speed.step_per_request_s == config.step_per_request_s
    assert speed.prefill_tokens_per_s == pytest.approx(900.0)
    assert not plain.learned
    assert not speed.learned


def test_converges_on_synthetic_steps() -> None:
    model, rng, spec = SpeedModel(), random.Random(1), replica()
    work(model, spec, rng, 400)
    speed = model.speed(spec)
    for running, context in ((1, 500), (20, 20_000), (64, 128_000)):
        assert speed.step_s(running, context) == pytest.approx(step_s(running, context), rel=0.1)
    assert speed.prefill_tokens_per_s == pytest.approx(RATE, rel=0.1)


@pytest.mark.parametrize("factor", [0.1, 1.0, 40.0])
def test_a_wrong_prior_is_soon_forgotten(factor: float) -> None:
    model, rng, spec = SpeedModel(), random.Random(2), replica()
    work(model, spec, rng, 40, factor)
    assert model.speed(spec).step_s(40, 40_000) == pytest.approx(factor * step_s(40, 40_000), rel=0.2)
    assert model.speed(spec).prefill_tokens_per_s == pytest.approx(RATE / factor, rel=0.35)


def test_learned_once_both_are_measured_and_by_the_kind() -> None:
    model, spec = SpeedModel(), replica()
    for _ in range(4):
        model.observe_step(spec, 4, 4000, 0.011)
    assert not model.speed(spec).learned
    for _ in range(4):
        model.observe_prefill(spec, 1000, 0.05)
    assert model.speed(spec).learned
    assert model.speed(replica("b")).learned, "same kind"
    assert not model.speed(replica("c", "T4")).learned


def test_a_newcomer_is_as_fast_as_its_kind() -> None:
    model, rng = SpeedModel(), random.Random(3)
    work(model, replica("a"), rng, 200)
    assert model.speed(replica("b")).step_s(20, 20_000) == pytest.approx(step_s(20, 20_000), rel=0.1)


def test_noise_does_not_make_one_of_equals_the_fastest() -> None:
    """The spread of estimates among equals is smaller than without shrinkage."""

    def spread(shrink: float) -> float:
        values = []
        for seed in range(6):
            model, rng = SpeedModel(SpeedConfig(shrink=shrink)), random.Random(seed)
            specs = [replica(name) for name in "abcd"]
            for _ in range(60):
                for spec in specs:
                    work(model, spec, rng, 1)
            values.append(statistics.stdev(model.speed(spec).step_s(40, 40_000) for spec in specs))
        return statistics.mean(values)

    shrunk = spread(SpeedConfig().shrink)
    assert shrunk < 0.9 * spread(1e-6)
    assert shrunk < 0.03 * step_s(40, 40_000)


@pytest.mark.parametrize(("factor", "alike"), [(1.0, True), (1.25, False)])
def test_equals_are_told_apart_only_where_they_differ(factor: float, alike: bool) -> None:
    """What noise makes of either is no reason to prefer it."""
    model, rng, specs = SpeedModel(), random.Random(4), [replica("a"), replica("b")]
    for spec, slower in zip(specs * 20, (1.0, factor) * 20, strict=True):
        work(model, spec, rng, 4, slower)
    a, b = (model.speed(spec) for spec in specs)
    assert (a.prefill_tokens_per_s == b.prefill_tokens_per_s) is alike
    assert (a.step_s(8, 8000) == b.step_s(8, 8000)) is alike
    assert alike or a.prefill_tokens_per_s > 1.1 * b.prefill_tokens_per_s


def test_f3_a_replica_ten_times_slower_is_found_out_in_a_few_steps() -> None:
    model, rng, slow, other = SpeedModel(), random.Random(4), replica("slow"), replica("other")
    for _ in range(100):
        work(model, slow, rng, 1)
        work(model, other, rng, 1)
    for _ in range(8):
        work(model, slow, rng, 1, 10.0)
        work(model, other, rng, 1)
    assert model.speed(slow).step_s(40, 40_000) > 5 * step_s(40, 40_000)
    assert model.speed(other).step_s(40, 40_000) == pytest.approx(step_s(40, 40_000), rel=0.25)
    for _ in range(30):
        work(model, slow, rng, 1)
    assert model.speed(slow).step_s(40, 40_000) == pytest.approx(step_s(40, 40_000), rel=0.25)


@pytest.mark.parametrize("factor", [50.0, 0.02])
def test_single_outliers_are_clipped(factor: float) -> None:
    model, rng, spec = SpeedModel(), random.Random(5), replica()
    work(model, spec, rng, 100)
    for _ in range(5):
        model.observe_step(spec, 40, 40_000, factor * step_s(40, 40_000))
        work(model, spec, rng, 20)
    assert model.speed(spec).step_s(40, 40_000) == pytest.approx(step_s(40, 40_000), rel=0.15)


def test_outliers_of_both_signs_are_no_news() -> None:
    model, rng, spec = SpeedModel(), random.Random(6), replica()
    work(model, spec, rng, 100)
    for _ in range(10):
        for factor in (9.0, 1 / 9.0):
            model.observe_step(spec, 40, 40_000, factor * step_s(40, 40_000))
    assert 0.3 < model.speed(spec).step_s(40, 40_000) / step_s(40, 40_000) < 3.0


durations = st.tuples(st.floats(0, 512), st.floats(0, 1e6), st.floats(1e-5, 1e3), st.sampled_from("abc"))


@given(seen=st.lists(durations, max_size=60))
@settings(max_examples=40, deadline=None)
def test_coefficients_are_never_negative_whatever_is_seen(seen: list[tuple[float, float, float, str]]) -> None:
    model = SpeedModel()
    for running, context, seconds, name in seen:
        spec = replica(name)
        model.observe_step(spec, running, context, seconds)
        model.observe_prefill(spec, context + 1.0, seconds)
        speed = model.speed(spec)
        assert min(speed.step_base_s, speed.step_per_request_s, speed.step_per_token_s) >= 0.0
        assert speed.step_s(1.0, 1000.0) > 0.0
        assert 0.0 < speed.prefill_tokens_per_s <= 1e7


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_nonsense_is_ignored(bad: float) -> None:
    model, spec = SpeedModel(), replica()
    before = model.speed(spec)
    model.observe_step(spec, 4, 4000, bad)
    model.observe_prefill(spec, 1000, bad)
    model.observe_prefill(spec, 0, 1.0)
    model.observe_step(spec, -1, 4000, 0.01)
    model.observe_step(spec, 4, float("nan"), 0.01)
    assert model.speed(spec) is before


def test_the_same_object_until_something_changes() -> None:
    model, rng, spec = SpeedModel(), random.Random(7), replica()
    work(model, spec, rng, 50)
    first = model.speed(spec)
    assert model.speed(spec) is first
    model.observe_step(spec, 4, 4000, 0.02)
    assert model.speed(spec) is not first
    seen = model.speed(replica("idle"))
    work(model, spec, rng, 50, 1.5)
    assert model.speed(replica("idle")) != seen, "the kind has moved"


def test_forget_keeps_what_the_kind_has_learned() -> None:
    model, rng, spec = SpeedModel(), random.Random(8), replica()
    work(model, spec, rng, 100, 2.0)
    model.forget(spec.id)
    assert model.speed(spec).step_s(40, 40_000) == pytest.approx(2 * step_s(40, 40_000), rel=0.1)
    assert not any(kind.replicas for pair in model._kinds.values() for kind in pair)


def test_kinds_are_bounded() -> None:
    model = SpeedModel(SpeedConfig(max_kinds=5))
    for k in range(30):
        model.speed(replica(f"r{k}", f"gpu{k}"))
    assert len(model._kinds) == 5


def test_non_negative_of_singular_systems() -> None:
    """All steps alike: what they share goes to one coefficient."""
    ones = [4.0] * 6
    theta = non_negative(ones, [8.0, 8.0, 8.0])
    assert sorted(theta) == [0.0, 0.0, 2.0]
    assert non_negative(ones, [-8.0, -8.0, -8.0]) == (0.0, 0.0, 0.0)


numbers = st.floats(-10, 10)


@pytest.mark.slow
@given(rows=st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_non_negative_beats_every_point_of_a_grid(rows: list[tuple[float, float, float, float]]) -> None:
    xx, xy = [0.01, 0.0, 0.0, 0.01, 0.0, 0.01], [0.0, 0.0, 0.0]
    for a, b, c, y in rows:
        xx = [v + d for v, d in zip(xx, (a * a, a * b, a * c, b * b, b * c, c * c), strict=True)]
        xy = [v + d for v, d in zip(xy, (a * y, b * y, c * y), strict=True)]

    def objective(theta: tuple[float, float, float]) -> float:
        a, b, c = theta
        square = xx[0] * a * a + xx[3] * b * b + xx[5] * c * c + 2 * (xx[1] * a * b + xx[2] * a * c + xx[4] * b * c)
        return square - 2 * (a * xy[0] + b * xy[1] + c * xy[2])

    found = non_negative(xx, xy)
    assert min(found) >= 0.0
    grid = (0.0, 0.1, 0.3, 1.0, 3.0, 20.0)
    best = min(objective(point) for point in itertools.product(grid, repeat=3))
    assert objective(found) <= best + 1e-6 * (1.0 + abs(best))


def test_no_step_takes_no_time_at_all() -> None:
    """Where all time seems to go on prefill, what is left for steps is nothing; nobody may divide by it."""
    model = SpeedModel()
    for _ in range(60):
        model.observe_step(replica(), 4, 4000, 1e-9)
    assert model.speed(replica()).step_s(0, 0) > 0.0
