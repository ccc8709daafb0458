"""Generated mixes have the lengths and rhythms their docstring claims."""

import numpy as np
import pytest

from headway.workload.mixes import MIXES, generated
from headway.workload.outline import outline


def rng() -> np.random.Generator:
    return np.random.default_rng(4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("code", (1469, 5188, 13, 55)),
        ("reasoning", (208, 2092, 792, 3432)),
        ("documents", (2730, 3702, 167, 372)),
        ("chat", (1020, 2734, 129, 424)),
        ("diurnal", (1020, 2734, 129, 424)),
    ],
)
def test_lengths_are_those_of_their_traces(name: str, lengths: tuple[int, ...]) -> None:
    seen = outline(generated(name, 10.0, 800.0, rng()).requests)
    assert (seen.prompt_p50, seen.prompt_p90, seen.output_p50, seen.output_p90) == pytest.approx(lengths, rel=0.12)
    assert seen.rate_rps == pytest.approx(10.0, rel=0.08)


def test_agents_go_on_for_long_and_share_nearly_all() -> None:
    load = generated("agents", 4.0, 600.0, rng(), max_tokens=131_072)
    seen = outline(load.requests)
    assert seen.reusable > 0.85
    assert (seen.output_p50, seen.output_p90) == pytest.approx((248, 1477), rel=0.2)
    assert max(request.turn for request in load.requests) > 40


@pytest.mark.slow
def test_bursts_come_in_the_first_ten_seconds_of_each_minute() -> None:
    load = generated("bursts", 20.0, 600.0, rng())
    firsts = np.array([request.arrival_s for request in load.requests if request.turn == 0])
    share = float(np.mean(firsts % 60.0 < 10.0))
    assert share == pytest.approx(5 / 6, abs=0.03)


def test_a_day_fits_into_any_duration() -> None:
    load = generated("diurnal", 20.0, 240.0, rng())
    counts, _ = np.histogram([r.arrival_s for r in load.requests if r.turn == 0], bins=24, range=(0, 240))
    assert counts[6:9].sum() < counts[12:15].sum() / 4


@pytest.mark.parametrize("name", MIXES)
def test_every_mix_is_ordered_and_said(name: str) -> None:
    load = generated(name, 2.0, 30.0, rng())
    arrivals = [request.arrival_s for request in load.requests]
    assert arrivals == sorted(arrivals)
    assert load.requests == generated(name, 2.0, 30.0, rng()).requests
    assert name in load.how[0]
    assert load.span_s == 30.0


def test_unknown_mixes() -> None:
    with pytest.raises(KeyError):
        generated("poetry", 1.0, 1.0, rng())
