"""What surrounds the engine, against the measurements that the constants were taken from."""

import pytest

from headway.perfmodel.service import ENGINE_CORE, ApiCost, Jitter, Lifecycle


def test_a_long_prompt_is_longer_with_the_server() -> None:
    api = ApiCost(base_s=0.01, serial_s=0.002, per_token_s=1e-6)
    assert api.busy_s(1000) == pytest.approx(0.003)
    assert api.delay_s(1000) == pytest.approx(0.013)
    assert ENGINE_CORE.delay_s(1000) == 0.0


@pytest.mark.parametrize(
    ("gib", "level", "sleep", "wake"),
    [(1.1, 1, 0.22, 1.22), (15.3, 1, 10.57, 2.19), (1.1, 2, 0.12, 1.8), (15.3, 2, 0.31, 6.53)],
)
def test_sleep_and_wake_on_an_a100(gib: float, level: int, sleep: float, wake: float) -> None:
    life = Lifecycle()
    assert life.sleep_s(level, gib * 2**30) == pytest.approx(sleep, abs=0.75)
    assert life.wake_s(level, gib * 2**30) == pytest.approx(wake, rel=0.05)


def test_starts_with_warm_and_cold_caches() -> None:
    """3.42 GiB came up in 59 s with compiled graphs at hand; a cold start costs the compilation more."""
    life = Lifecycle()
    assert life.start_s(3.42 * 2**30) == pytest.approx(59, rel=0.1)
    assert life.start_s(3.42 * 2**30, compiled=False) - life.start_s(3.42 * 2**30) == pytest.approx(37)


def test_steps_are_steady() -> None:
    assert 0.004 <= Jitter().relative <= 0.02
