"""Forecasts beside truths: errors, coverage, and bounds on what is kept."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Settled
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.snapshot import KvError
from headway.telemetry import Telemetry
from headway.telemetry.forecasts import KEEP, MAX_MODELS, Forecasts, Window
from tests.telemetry.test_metrics import at, series
from tests.telemetry.values import settled, snapshot, view


def end(output: int = 60, prompt: int = 100, kind: OutcomeKind = OutcomeKind.OK, **changed: object) -> Settled:
    """One end of a request of which 50 outputs of 20 to 80, 110 prompt tokens and 0.1 s were forecast."""
    known = {
        "outcome": Outcome(kind, status=200, prompt_tokens=prompt, output_tokens=output),
        "forecast_output_low": 20,
        "forecast_output_middle": 45,
        "forecast_output_high": 80,
        "output_tokens": output,
        "model": "m",
        "forecast_prompt_tokens": 110,
    }
    return msgspec.structs.replace(settled(), **(known | changed))


def summary(*entries: Settled) -> dict[str, dict[str, float]]:
    forecasts = Forecasts()
    for entry in entries:
        forecasts.settled(entry)
    return forecasts.summary()["m"]


def test_errors_are_relative_to_the_truth() -> None:
    found = summary(end())
    assert found["output_tokens"]["p50"] == pytest.approx(10 / 60)
    assert found["prompt_tokens"]["p99"] == pytest.approx(0.1)
    assert found["ttft_seconds"]["p50"] == pytest.approx(0.02 / 0.12)
    assert found["kv_peak_tokens"]["p50"] == 0.0, "160 were expected, and 160 came: both errors cancel out"


def test_coverage_is_the_share_inside_of_the_interval() -> None:
    found = summary(*(end(output) for output in (20, 80, 19, 81)))
    assert found["output_tokens"]["coverage"] == 0.5
    assert found["kv_peak_tokens"]["coverage"] == 0.5, "120, 180, 119 and 181, of which two lie in 130 to 190"
    assert "coverage" not in found["ttft_seconds"]


def test_what_is_not_known_is_not_judged() -> None:
    nothing = end(output=0, prompt=0, kind=OutcomeKind.RESET, ttft_s=None)
    assert summary(nothing) == {}
    cut = summary(end(output=5, kind=OutcomeKind.CLIENT_CLOSED))
    assert set(cut) == {"prompt_tokens", "ttft_seconds"}
    assert set(summary(end(prompt=0))) == {"output_tokens", "ttft_seconds"}
    assert set(summary(end(forecast_output_high=0))) == {"prompt_tokens", "ttft_seconds"}


def test_the_window_slides() -> None:
    window = Window()
    for k in range(3 * KEEP):
        window.add(2.0 if k < 2 * KEEP else 1.0, 1.0)
    assert window.summary() == {"p50": 0.0, "p99": 0.0, "samples": KEEP}


@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=200))
def test_percentiles_are_errors_that_were_made(truths: list[float]) -> None:
    window = Window()
    for truth in truths:
        window.add(1.0, truth)
    found = window.summary()
    assert {found["p50"], found["p99"]} <= set(window.errors)
    assert sum(error <= found["p50"] for error in window.errors) * 2 >= len(truths)
    assert found["p99"] >= found["p50"]


def test_models_are_bounded() -> None:
    forecasts = Forecasts()
    for k in range(10 * MAX_MODELS):
        forecasts.settled(end(model=f"m{k}"))
    assert len(forecasts.models) == MAX_MODELS + 1
    assert forecasts.summary()["other"]["output_tokens"]["samples"] == 9 * MAX_MODELS


def test_the_page_tells_all_of_it() -> None:
    telemetry = Telemetry()
    telemetry.record(end())
    error = KvError(view("a").spec.id, 3, 0.01, 0.02, 1, 0.03, 0.04, 2.0)
    fresh = KvError(view("b").spec.id, 1, 0.0, 0.0, 0, 0.0, 0.0, 2.0)
    got = series(telemetry, snapshot(view("a"), view("b"), kv_errors=(error, fresh)))
    named = {"model": "m", "quantity": "output_tokens"}
    assert got[at("headway_forecast_error_ratio", **named, quantile="0.99")] == pytest.approx(10 / 60)
    assert got[at("headway_forecast_coverage_ratio", **named)] == 1.0
    assert got[at("headway_forecast_samples", **named)] == 1
    assert at("headway_forecast_coverage_ratio", model="m", quantity="ttft_seconds") not in got
    assert got[at("headway_kv_forecast_error_ratio", replica="a", horizon="now", quantile="0.99")] == 0.02
    assert got[at("headway_kv_forecast_error_ratio", replica="a", horizon="2s", quantile="0.5")] == 0.03
    assert at("headway_kv_forecast_error_ratio", replica="b", horizon="2s", quantile="0.5") not in got
