"""Profiles of BurstGPT."""

import pytest

from headway.workload.arrivals import Profile
from headway.workload.burstgpt import busiest, is_minutes, read_minutes
from headway.workload.columns import TraceError

LINES = ["minute,tokens_per_s,norm", "0,30.0,0.1", "1,10.0,0.1", "4,50,0.2"]


def test_minutes_without_traffic_are_zero() -> None:
    assert read_minutes(LINES) == Profile(60.0, (30.0, 10.0, 0.0, 0.0, 50.0))
    assert is_minutes({"minute", "tokens_per_s", "norm"})
    assert not is_minutes({"minute"})


def test_the_busiest_piece() -> None:
    assert busiest(read_minutes(LINES), 120.0).weights == (0.0, 50.0)
    assert busiest(read_minutes(LINES), 60.0).weights == (50.0,)
    assert busiest(read_minutes(LINES), 1e6) == read_minutes(LINES)


@pytest.mark.parametrize("row", ["0,0,0", "1,-1,0", "-5,1,0", "100000000000,1,0", "1,nan,0", "1,inf,0"])
def test_minutes_that_are_no_profile(row: str) -> None:
    with pytest.raises(TraceError, match="within ten years"):
        read_minutes([LINES[0], row])


@pytest.mark.parametrize("lines", [LINES[:1], [], ["minute,x", "1,2"], [LINES[0], "1"], [LINES[0], "a,b,c"]])
def test_bad_files(lines: list[str]) -> None:
    with pytest.raises(TraceError, match="BurstGPT"):
        read_minutes(lines)
