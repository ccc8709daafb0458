"""Lengths: ratios of prompts, and survival laws that censoring must not bias."""

import itertools
import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.constants import LengthConfig
from headway.core.ids import RequestId
from headway.core.length import LengthModel
from headway.core.request import RequestInfo
from tests.interpreted import COMPILED

observations = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 300_000), st.booleans()), max_size=60)
limits = st.one_of(st.just(0), st.integers(1, 400_000))


def request(prompt_bytes: int = 0, **facts: int) -> RequestInfo:
    return RequestInfo(id=RequestId("q"), model="m", prompt_bytes=prompt_bytes, **facts)


def taught(seen: list[tuple[str, int, bool]]) -> LengthModel:
    model = LengthModel()
    for name, tokens, censored in seen:
        model.observe_output(name, tokens, censored)
    return model


def log_normal(rng: random.Random) -> int:
    return max(1, round(rng.lognormvariate(5.0, 0.7)))


class TestPrompt:
    def test_exact_count_wins(self) -> None:
        model = LengthModel()
        assert model.prompt_tokens(request(4000, prompt_tokens=7)) == 7
        assert model.prompt_tokens_at_least(request(4000, prompt_tokens=7)) == 7

    def test_prior_ratio_media_and_at_least_one(self) -> None:
        model = LengthModel()
        assert model.prompt_tokens(request(4000)) == 1000
        assert model.prompt_tokens(request(4000, media_tokens=500)) == 1500
        assert model.prompt_tokens(request(0)) == model.prompt_tokens_at_least(request(0)) == 1

    def test_ratio_is_learned_and_shared_with_models_not_seen(self) -> None:
        model = LengthModel()
        for _ in range(20):
            model.observe_prompt(request(6000), 2000)
        assert model.prompt_tokens(request(6000)) == pytest.approx(2000, rel=0.03)
        assert model.bytes_per_token("unseen") == pytest.approx(3.0, rel=0.03)
        assert model.bytes_per_token("m") < model.bytes_per_token("unseen")

    def test_each_model_has_its_own(self) -> None:
        model = LengthModel()
        for _ in range(50):
            model.observe_prompt(RequestInfo(id=RequestId("q"), model="dense", prompt_bytes=6000), 3000)
            model.observe_prompt(RequestInfo(id=RequestId("q"), model="sparse", prompt_bytes=6000), 1000)
        assert model.bytes_per_token("dense") == pytest.approx(2.0, rel=0.05)
        assert model.bytes_per_token("sparse") == pytest.approx(6.0, rel=0.05)

    def test_one_huge_prompt_does_not_decide(self) -> None:
        model = LengthModel()
        for _ in range(20):
            model.observe_prompt(request(8000), 2000)
        model.observe_prompt(request(4_000_000), 4_000_000)
        assert model.bytes_per_token("m") > 3.5

    def test_drift_is_followed(self) -> None:
        model = LengthModel()
        for _ in range(500):
            model.observe_prompt(request(8000), 2000)
        for _ in range(500):
            model.observe_prompt(request(4000), 2000)
        assert model.bytes_per_token("m") == pytest.approx(2.0, rel=0.1)

    @pytest.mark.parametrize(
        ("facts", "tokens"),
        [({"prompt_bytes": 900}, 0), ({"prompt_bytes": 0}, 9), ({"prompt_bytes": 9, "prompt_tokens": 9}, 9),
         ({"prompt_bytes": 9, "media_tokens": 9}, 900)],
    )  # fmt: skip
    def test_what_says_nothing_about_text_teaches_nothing(self, facts: dict[str, int], tokens: int) -> None:
        model = LengthModel()
        for _ in range(100):
            model.observe_prompt(request(**facts), tokens)
        assert model.bytes_per_token("m") == 4.0

    def test_lower_bound_yields_to_what_was_seen(self) -> None:
        """A prompt like one that an engine took is never refused."""
        model, spaces = LengthModel(), request(128_000)
        assert model.prompt_tokens_at_least(spaces) == 4000
        model.observe_prompt(spaces, 1000)
        assert model.prompt_tokens_at_least(spaces) <= 1000
        model.observe_prompt(request(10_000), 1)
        assert model.prompt_tokens_at_least(spaces) > 500, "a count of next to nothing is no evidence"

    @given(size=st.integers(0, 10**8), seen=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**5))))
    @settings(max_examples=30, deadline=None)
    def test_lower_bound_is_below_the_estimate(self, size: int, seen: list[tuple[int, int]]) -> None:
        model = LengthModel()
        for prompt_bytes, tokens in seen:
            if prompt_bytes / tokens <= 32:
                model.observe_prompt(request(prompt_bytes), tokens)
        assert 1 <= model.prompt_tokens_at_least(request(size)) <= model.prompt_tokens(request(size))


class TestCounted:
    """Texts counted by a tokenizer: what the template adds is learned, and nothing is refused on it."""

    def test_before_anything_is_known_the_count_is_taken(self) -> None:
        model = LengthModel()
        assert model.prompt_tokens(request(4000, counted_tokens=900)) == 900
        assert model.prompt_tokens(request(4000, counted_tokens=900, media_tokens=100)) == 1000
        assert model.prompt_tokens_at_least(request(4000, counted_tokens=900)) == 4000 // 32

    def test_what_the_template_adds_is_learned(self) -> None:
        model = LengthModel()
        model.observe_prompt(request(4000, counted_tokens=900), 925)
        assert model.prompt_tokens(request(8000, counted_tokens=2000)) == 2025
        for _ in range(30):
            model.observe_prompt(request(4000, counted_tokens=900), 890)
        assert model.prompt_tokens(request(8000, counted_tokens=2000)) == pytest.approx(1991, abs=2)

    def test_one_far_off_moves_it_a_little_only(self) -> None:
        model = LengthModel()
        for _ in range(50):
            model.observe_prompt(request(4000, counted_tokens=900), 925)
        model.observe_prompt(request(400_000, counted_tokens=90_000), 120_000)
        assert model.prompt_tokens(request(4000, counted_tokens=900)) in (925, 926, 927)

    def test_it_is_followed_when_the_template_changes(self) -> None:
        model = LengthModel()
        for added in (10, 200):
            for _ in range(400):
                model.observe_prompt(request(4000, counted_tokens=900), 900 + added)
        assert model.prompt_tokens(request(4000, counted_tokens=900)) == pytest.approx(1100, abs=3)

    def test_the_ratio_of_bytes_is_learned_as_well(self) -> None:
        model = LengthModel()
        for _ in range(50):
            model.observe_prompt(request(6000, counted_tokens=1990), 2000)
        assert model.prompt_tokens(request(600_000)) == pytest.approx(200_000, rel=0.03)


class TestOutput:
    def test_prior(self) -> None:
        mean, sigma = LengthModel().forecast("m", 0)
        assert mean == pytest.approx(256, rel=0.02)
        assert sigma == pytest.approx(256, rel=0.05), "exponential"

    @given(seen=observations, limit=limits)
    @settings(max_examples=50, deadline=None)
    def test_forecast_lies_within_the_limit(self, seen: list[tuple[str, int, bool]], limit: int) -> None:
        mean, sigma = taught(seen).forecast("a", limit)
        assert mean >= 0.5
        assert sigma >= 0.0
        if limit:
            assert mean <= limit + 1e-6
            assert sigma <= limit / 2 + 1e-6

    @given(seen=observations, generated=st.integers(0, 500_000), limit=limits)
    @settings(max_examples=50, deadline=None)
    def test_left_lies_between_nothing_and_the_limit(
        self, seen: list[tuple[str, int, bool]], generated: int, limit: int
    ) -> None:
        mean, variance = taught(seen).left("a", generated, limit)
        assert variance >= 0.0
        if limit and generated >= limit:
            assert (mean, variance) == (0.0, 0.0)
        else:
            assert mean > 0.0
            assert not limit or mean <= limit - generated + 1e-6

    @given(
        seen=observations,
        generated=st.integers(0, 500_000),
        limit=limits,
        ahead=st.lists(st.integers(0, 500_000), min_size=1, max_size=12),
    )
    @settings(max_examples=50, deadline=None)
    def test_survival_falls_from_one_to_nothing(
        self, seen: list[tuple[str, int, bool]], generated: int, limit: int, ahead: list[int]
    ) -> None:
        model, ahead = taught(seen), sorted(ahead)
        alive = model.survival("a", generated, limit, ahead)
        assert len(alive) == len(ahead)
        assert all(0.0 <= p <= 1.0 + 1e-12 for p in alive)
        assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(alive))
        for a, p in zip(ahead, alive, strict=True):
            if limit and generated + a >= limit:
                assert p == 0.0
            elif a == 0:
                assert p == pytest.approx(1.0)

    def test_left_is_the_integral_of_survival(self) -> None:
        rng = random.Random(1)
        model = taught([("a", log_normal(rng), False) for _ in range(500)])
        for generated, limit in ((0, 0), (0, 300), (100, 0), (100, 300), (900, 0)):
            alive = model.survival("a", generated, limit, range(limit - generated if limit else 20_000))
            mean, variance = model.left("a", generated, limit)
            assert mean == pytest.approx(sum(alive), rel=0.01)
            second = sum((2 * a + 1) * p for a, p in enumerate(alive))
            assert variance == pytest.approx(second - mean * mean, rel=0.03)

    @pytest.mark.parametrize("cut", [lambda rng: 200, lambda rng: rng.randint(50, 400)], ids=["limit", "cancels"])
    def test_censoring_removes_the_short_bias(self, cut: Callable[[random.Random], int]) -> None:
        rng = random.Random(2)
        aware, naive, lengths = LengthModel(), LengthModel(), []
        for _ in range(3000):
            length, end = log_normal(rng), cut(rng)
            lengths.append(length)
            aware.observe_output("m", min(length, end), length > end)
            naive.observe_output("m", min(length, end), False)
        truth = statistics.mean(min(length, 400) for length in lengths)
        assert aware.forecast("m", 400)[0] == pytest.approx(truth, rel=0.08)
        assert naive.forecast("m", 400)[0] < 0.85 * truth

    def test_learns_mean_and_spread(self) -> None:
        rng = random.Random(3)
        lengths = [log_normal(rng) for _ in range(3000)]
        model = taught([("m", length, False) for length in lengths])
        mean, sigma = model.forecast("m", 0)
        assert mean == pytest.approx(statistics.mean(lengths), rel=0.03)
        assert sigma == pytest.approx(statistics.stdev(lengths), rel=0.1)

    def test_a_model_leans_on_the_fleet_until_it_is_known(self) -> None:
        model = taught([("known", 1000, False)] * 500)
        assert model.forecast("new", 0)[0] == pytest.approx(1000, rel=0.1)
        for _ in range(10):
            model.observe_output("new", 10, False)
        little = model.forecast("new", 0)[0]
        for _ in range(500):
            model.observe_output("new", 10, False)
        assert 500 < little < 1000
        assert model.forecast("new", 0)[0] < 150
        assert model.forecast("known", 0)[0] == pytest.approx(1000, rel=0.1)

    def test_who_lived_long_lives_longer(self) -> None:
        rng = random.Random(4)
        model = taught([("m", round(rng.lognormvariate(5, 1.5)) or 1, False) for _ in range(2000)])
        assert model.left("m", 2000, 0)[0] > model.left("m", 0, 0)[0]

    def test_unit_lengths_are_exact(self) -> None:
        model = taught([("m", 1, False)] * 9_000)
        assert model.forecast("m", 4)[0] == pytest.approx(1.0, abs=0.02)

    def test_drift_is_followed(self) -> None:
        model = LengthModel(LengthConfig(memory=200))
        for tokens in (1000, 10):
            for _ in range(1000):
                model.observe_output("m", tokens, False)
        assert model.forecast("m", 0)[0] < 120

    def test_nothing_is_learned_from_nothing(self) -> None:
        model = LengthModel()
        before = model.forecast("m", 0)
        for _ in range(100):
            model.observe_output("m", 0, True)
        assert model.forecast("m", 0) == before

    def test_forecasts_are_made_once_per_law(self) -> None:
        model = taught([("m", 100, False)] * 100)
        first = model.forecast("m", 50)
        assert COMPILED or model.forecast("m", 50) is first, "compiled code makes a tuple anew from what it remembers"
        assert model.forecast("m", 50) == first

    def test_flood_of_names_and_limits_is_bounded(self) -> None:
        model = LengthModel(LengthConfig(max_models=10, max_limits=20))
        for k in range(200):
            model.observe_output(f"m{k}", 10, False)
            model.observe_prompt(RequestInfo(id=RequestId("q"), model=f"n{k}", prompt_bytes=10), 3)
            model.observe_output("real", 10, False)
            model.forecast(f"asked{k}", 0)
            model.forecast("real", k + 1)
        assert len(model._models) == 10
        assert "real" in model._models
        assert len(model._law("real").forecasts) <= 20


def asked(template: int = 0, tenant: str = "", model: str = "m") -> RequestInfo:
    return RequestInfo(RequestId("q"), model, tenant=tenant, prefix_hashes=(template,) if template else ())


class TestGroups:
    """Templates and tenants that come back have laws of their own."""

    def test_a_template_has_its_own_law(self) -> None:
        model = LengthModel()
        for _ in range(300):
            model.observe(asked(1), 20, False)
            model.observe(asked(2), 2000, False)
        terse, wordy = (model.forecast(model.name(asked(template)), 0)[0] for template in (1, 2))
        assert terse < 200, "300 of its own, and the weight of 50 that are half as wordy"
        assert wordy > 1700
        assert model.name(asked(3)) == "m"
        assert 500 < model.forecast("m", 0)[0] < 1500
        assert model.left(model.name(asked(1)), 10, 0)[0] < 250
        assert model.survival(model.name(asked(1)), 0, 0, (400,))[0] < 0.2

    def test_tenants_differ_within_a_template(self) -> None:
        model = LengthModel()
        for _ in range(300):
            model.observe(asked(1, "terse"), 10, False)
            model.observe(asked(1, "wordy"), 3000, False)
        terse, wordy = (model.forecast(model.name(asked(1, who)), 0)[0] for who in ("terse", "wordy"))
        assert terse < 300
        assert wordy > 2000
        assert model.name(asked(1, "stranger")) == model.name(asked(1))

    def test_tenants_are_told_apart_without_any_template(self) -> None:
        model = LengthModel()
        for _ in range(100):
            model.observe(asked(0, "terse"), 10, False)
            model.observe(asked(0, "wordy"), 3000, False)
        assert model.forecast(model.name(asked(0, "terse")), 0)[0] < model.forecast("m", 0)[0] / 2

    def test_models_do_not_share_templates(self) -> None:
        model = LengthModel()
        for _ in range(100):
            model.observe(asked(1, model="a"), 10, False)
        assert model.name(asked(1, model="b")) == "b"

    def test_who_comes_once_gets_no_law(self) -> None:
        model = LengthModel(LengthConfig(group_outputs=3))
        for template in range(1, 1000):
            model.observe(asked(template), 10, False)
        assert not model._groups
        for _ in range(3):
            model.observe(asked(7), 10, False)
        assert model.name(asked(7)) != "m"

    def test_a_group_follows_what_it_leans_on(self) -> None:
        """Five outputs of its own weigh little: when the model's outputs change, its forecast does."""
        model = LengthModel()
        for _ in range(6):
            model.observe(asked(1), 200, False)
        before = model.forecast(model.name(asked(1)), 0)[0]
        for _ in range(2000):
            model.observe_output("m", 3000, False)
        assert model.forecast(model.name(asked(1)), 0)[0] > 3 * before

    def test_a_flood_of_templates_and_tenants_is_bounded(self) -> None:
        model = LengthModel(LengthConfig(group_outputs=2, max_groups=10, max_seen=20))
        for template in range(1, 300):
            for _ in range(3):
                model.observe(asked(template, f"t{template}"), 10, False)
            for once in range(3):
                model.observe(asked(10_000 + 3 * template + once), 10, False)
        assert len(model._groups) <= 10
        assert len(model._seen) <= 20

    def test_nothing_said_is_nothing_learned(self) -> None:
        model = LengthModel(LengthConfig(group_outputs=1))
        model.observe(asked(1), 0, True)
        assert model.name(asked(1)) == "m"

    @given(seen=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "x", "y"]), st.integers(1, 10**5))))
    @settings(max_examples=30, deadline=None)
    def test_every_name_has_a_law(self, seen: list[tuple[int, str, int]]) -> None:
        model = LengthModel(LengthConfig(group_outputs=1, max_groups=2))
        for template, tenant, tokens in seen:
            model.observe(asked(template, tenant), tokens, False)
            mean, sigma = model.forecast(model.name(asked(template, tenant)), 50)
            assert 0.0 < mean <= 50.0 + 1e-6
            assert sigma >= 0.0


class TestIntervals:
    """Nine in ten, whatever comes."""

    @staticmethod
    def covered(model: LengthModel, lengths: list[int], limit: int = 0) -> float:
        held = 0
        for length in lengths:
            said = min(length, limit) if limit else length
            low, middle, high = model.interval("m", "m", limit)
            assert low <= middle <= high
            held += low <= said <= high
            model.judge("m", not low <= said <= high)
            model.observe_output("m", said, said < length)
        return held / len(lengths)

    @pytest.mark.parametrize("limit", [0, 250])
    def test_nine_in_ten_of_a_steady_law(self, limit: int) -> None:
        rng = random.Random(5)
        share = self.covered(LengthModel(), [log_normal(rng) for _ in range(4000)], limit)
        assert 0.88 <= share <= (0.92 if not limit else 1.0)

    def test_nine_in_ten_of_a_drifting_law(self) -> None:
        """Outputs grow tenfold while the law remembers the old ones: plain quantiles would hold a few in ten."""
        rng = random.Random(6)
        lengths = [max(1, round(log_normal(rng) * 10 ** (k / 4000))) for k in range(4000)]
        assert 0.88 <= self.covered(LengthModel(), lengths) <= 0.92

    def test_what_is_aimed_at_stays_within_reason(self) -> None:
        model = LengthModel()
        for _ in range(2000):
            model.judge("m", True)
        wide = model.interval("m", "m", 0)
        for _ in range(20_000):
            model.judge("m", False)
        narrow = model.interval("m", "m", 0)
        assert wide[0] < narrow[0] < narrow[2] < wide[2]
        assert model.interval("never seen", "m", 0)[2] > narrow[2], "each model has its own aim"

    def test_a_limit_bounds_it(self) -> None:
        model = taught([("m", 1000, False)] * 500)
        assert model.interval("m", "m", 100) == (100, 100, 100)


class TestLeast:
    """Outputs that cannot end before so many tokens."""

    @given(seen=observations, least=st.integers(0, 300_000), generated=st.integers(0, 300_000), limit=limits)
    def test_it_is_a_law(self, seen: list[tuple[str, int, bool]], least: int, generated: int, limit: int) -> None:
        model = taught(seen)
        mean, variance = model.left("a", generated, limit, least)
        sure = max(0, min(least, limit or least) - generated)
        assert mean >= sure - 1e-9
        assert variance >= 0.0
        if limit:
            assert mean <= max(0, limit - generated) + 1e-6
        ahead = [0, 1, 10, 1000, 100_000]
        alive = model.survival("a", generated, limit, ahead, least)
        assert list(alive) == sorted(alive, reverse=True)
        for a, p in zip(ahead, alive, strict=True):
            assert 0.0 <= p <= 1.0
            if a < sure:
                assert p == 1.0
            if limit and a >= limit - generated:
                assert p == 0.0

    @given(seen=observations, least=st.integers(0, 300_000), limit=limits)
    def test_its_interval(self, seen: list[tuple[str, int, bool]], least: int, limit: int) -> None:
        low, middle, high = taught(seen).interval("a", "a", limit, least)
        assert min(least, limit or least) <= low <= middle <= high <= (limit or high)

    def test_what_is_known_to_be_longer_is_what_has_become_longer(self) -> None:
        rng = random.Random(3)
        model = taught([("a", log_normal(rng), False) for _ in range(500)])
        mean, sigma = model.forecast("a", 0, 200)
        left, variance = model.left("a", 200, 0)
        assert (mean, sigma) == pytest.approx((200 + left, variance**0.5))
        ahead = [0, 50, 199, 200, 300, 700]
        later = model.survival("a", 200, 0, [a - 200 for a in ahead[3:]])
        assert model.survival("a", 0, 0, ahead, 200) == pytest.approx([1.0, 1.0, 1.0, *later])

    def test_all_is_known_of_who_ends_by_the_limit_only(self) -> None:
        model = LengthModel()
        assert model.forecast("a", 64, 64) == (64.0, 0.0)
        assert model.interval("a", "a", 64, 64) == (64, 64, 64)
        assert model.left("a", 60, 64, 64) == (4.0, 0.0)
        assert list(model.survival("a", 60, 64, [0, 3, 4, 5], 64)) == [1.0, 1.0, 0.0, 0.0]
