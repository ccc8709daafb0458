"""The step model: its shape, and how far it is from measured engines."""

import csv
import gzip
import statistics
from pathlib import Path

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.steptime import Batch, StepModel

SYSTEMS = {"h100_sxm": "h100-80gb", "h200_sxm": "h200-141gb", "b200_sxm": "b200-180gb"}


def model(name: str = "llama-3.1-8b", gpu: str = "h100-80gb", **options: object) -> StepModel:
    return StepModel(catalogue.model(name), catalogue.gpu(gpu), **options)  # type: ignore[arg-type]


def tpot(steps: StepModel, running: float, isl: float, osl: float, chunk: int) -> float:
    """Seconds per output token of a steady closed loop: decode steps, and the prefills that fall between them."""
    decode = steps.step_s(Batch(int(running), int(running * (isl + osl / 2)), sequences=int(running)))
    extra, done = 0.0, 0
    while done < isl:
        tokens = min(chunk, int(isl) - done)
        extra += steps.step_s(Batch(int(running), 0, tokens, tokens * (done + tokens / 2), int(running)))
        extra -= steps.step_s(Batch(int(running), 0, sequences=int(running)))
        done += tokens
    return decode + running / osl * extra


def test_an_empty_batch_costs_nothing() -> None:
    assert model().step_s(Batch(0, 0)) == 0.0


def test_every_part_of_a_batch_costs_time() -> None:
    steps = model(tp=2)
    base = steps.decode_s(8, 8000)
    assert steps.decode_s(9, 8000) > base
    assert steps.decode_s(8, 16000) > base
    assert steps.step_s(Batch(8, 8000, 2048, 2048 * 1024, 9)) > 2 * base
    assert steps.prefill_s(2048, before=30000) > steps.prefill_s(2048)


def test_better_hardware_smaller_weights_and_more_cards_are_faster() -> None:
    base = model().decode_s(16, 16000)
    assert model(gpu="h200-141gb").decode_s(16, 16000) < base < model(gpu="a100-80gb").decode_s(16, 16000)
    assert model(precision="fp8").decode_s(16, 16000) < base
    assert model("llama-3.1-70b", tp=8).decode_s(16, 16000) < model("llama-3.1-70b", tp=4).decode_s(16, 16000)
    assert model("llama-3.1-70b", gpu="l40s-48gb", tp=8).comm_s > model("llama-3.1-70b", tp=8).comm_s


def test_eight_bit_weights_prefill_no_faster_where_the_card_has_no_such_type() -> None:
    assert model(gpu="a100-80gb", precision="fp8").flop_s_per_token == model(gpu="a100-80gb").flop_s_per_token
    assert model(precision="fp8").flop_s_per_token < model().flop_s_per_token


def test_features_are_priors_for_the_same_steps() -> None:
    steps = model()
    features = steps.features()
    learned = features["step_base_s"] + 64 * features["step_per_request_s"] + 64_000 * features["step_per_token_s"]
    assert learned == pytest.approx(steps.decode_s(64, 64_000), rel=0.01)
    assert 20_000 < features["prefill_tokens_per_s"] < 60_000


def test_within_a_tenth_of_measured_vllm_in_the_median(shared: Path) -> None:
    """The Llama-3.1-70B and Qwen3-32B rows of the AIConfigurator silicon sample, none of which was fitted."""
    errors = []
    with gzip.open(shared / "profiles" / "aiconfigurator" / "silicon_sample.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            if (row["backend"], row["mode"]) != ("vllm", "agg") or row["system"] not in SYSTEMS:
                continue
            if row["model_path"] not in {"meta-llama/Llama-3.1-70B", "Qwen/Qwen3-32B"} or row["precision"] == "fp4":
                continue
            steps = model(
                row["model_path"],
                SYSTEMS[row["system"]],
                precision=row["precision"] or "bfloat16",
                tp=int(row["tp_size"]),
            )
            told = tpot(steps, int(row["batch_size"]), int(row["isl"]), int(row["osl"]), 8192)
            errors.append(told / (float(row["silicon_tpot_ms"]) / 1e3) - 1)
    assert len(errors) > 200
    assert statistics.median(abs(error) for error in errors) < 0.10
    assert -0.10 < statistics.median(errors) < 0.10
