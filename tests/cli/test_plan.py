"""`headway plan` from end to end on a small workload."""

import json
from pathlib import Path

import pytest

from tests.cli.calling import call

pytestmark = pytest.mark.slow


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    rows = ({"at": n * 0.1, "in": 300 + 41 * (n % 13), "out": 30 + n % 61} for n in range(600))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plan(trace: Path, *more: str) -> int:
    few = ("--duration", "8", "--seeds", "1", "--jobs", "1", "--kv-tokens", "6000", "--policy", "headroom,round_robin")
    return call("plan", "--trace", str(trace), "--columns", "arrival=at,input=in,output=out", *few, *more)


def test_a_rate_at_which_nobody_comes_is_no_reason_for_more_replicas(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answered "> 64": no request arrived, and that counted as missed."""
    assert plan(trace, "--rate", "0.0001") == 1
    assert "no request arrives within 8 s: seed 0, 0.0001/s asked for" in capsys.readouterr().err


def test_the_smallest_fleet_and_what_it_costs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(trace, "--rate", "20", "--price", "2", "--json") == 0
    sizes = json.loads(capsys.readouterr().out)
    assert [size["policy"] for size in sizes] == ["headroom", "round_robin"]
    for size in sizes:
        assert size["good_share"] >= 0.95
        assert size["replicas"] == 1 or size["good_share_with_one_fewer"] < 0.95
        assert size["cost_per_1k_good"] == pytest.approx(2 * size["gpu_hours_per_1k_good"])
        assert size["runs"][0]["policy"] == size["policy"]


def test_the_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(trace) == 0
    said = capsys.readouterr().out
    for words in (
        "10/s to serve, 95 % of it within TTFT",
        "one replica (llama-3.1-8b on h100-80gb) works off",
        "GPU-h",
    ):
        assert words in said
    assert "against round_robin" in said or "as many GPUs as round_robin" in said


def test_no_fleet_is_large_enough(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(trace, "--slo-tpot", "0.0001", "--max-replicas", "3", "--price", "1", "--json") == 0
    sizes = json.loads(capsys.readouterr().out)
    assert {size["replicas"] for size in sizes} == {None}
    assert {size["good_share"] for size in sizes} == {None}
    assert {size["cost_per_1k_good"] for size in sizes} == {None}


def test_a_mixed_fleet_has_no_one_size(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text("generate: chat\npools: [{}, {gpu: a100-80gb}]\n")
    assert call("plan", str(path)) == 1
    assert "plan for one pool at a time" in capsys.readouterr().err
