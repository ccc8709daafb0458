"""The yardstick's page, and what its scripts say where they cannot run."""

import sys
from pathlib import Path

import msgspec
import pytest

from tests.report.simulated import run

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")
sys.path.insert(0, BENCHMARKS)
import perfmodel_runs  # noqa: E402
import results  # noqa: E402
from missing import said  # noqa: E402
from points import POINTS  # noqa: E402
from results_table import limit_words, point_table  # noqa: E402

sys.path.remove(BENCHMARKS)


def test_nothing_good_has_no_price_in_the_page_either() -> None:
    good = [run("headroom", 0.85, seed, detail=False) for seed in range(3)]
    bad = [run("random", 0.85, seed, detail=False) for seed in range(3)]
    spoilt = msgspec.structs.replace(bad[1].result, good=0, gpu_hours_per_1k_good=None, ttft_p99_s=None)
    bad[1] = msgspec.structs.replace(bad[1], result=spoilt)
    text = point_table(POINTS[0], [*good, *bad], "headroom", None)
    ours, theirs = text.splitlines()[-2:]
    assert ours.startswith("| **headroom** |")
    assert theirs.endswith("| - |")
    assert " / - |" in theirs
    assert "Linear-programming bound: not worked out." in text


def test_a_bound_is_said_in_three_digits() -> None:
    assert limit_words(0.99449) == "Linear-programming bound: 0.994"


def test_few_pieces_of_time_where_there_are_three_kinds_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ceiling(*_: object, buckets: int) -> object:
        asked.append(buckets)
        return type("Bound", (), {"good": 1})

    monkeypatch.setattr(results, "ceiling", ceiling)
    arrival = type("R", (), {"arrival_s": 1e9})
    monkeypatch.setattr(results.sweep, "arrivals", lambda *_: type("W", (), {"requests": [arrival]}))
    shares = [results._limit(point, None) for point in POINTS if point.name in ("conv-8", "conv-8-mixed")]  # type: ignore[arg-type]
    assert shares == [1.0, 1.0]
    assert asked == [400, results.FEW_BUCKETS]


@pytest.mark.parametrize(
    ("module", "words"),
    [(perfmodel_runs, "vllm_run_rtx4090_llama-3.1-8b_requests.jsonl.gz is not there"), (results, "cannot be read")],
)
def test_data_that_is_not_there_is_named(
    module: object, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=words) as ended:
        said(module.main)  # type: ignore[attr-defined]
    assert str(ended.value).startswith("error: ")


@pytest.mark.parametrize(
    "flags", [("--only", "conv-9"), ("--out", "x.md", "--policies", "headroom"), ("--seeds", "many")]
)
def test_what_the_yardstick_cannot_do_is_refused_at_once(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["results.py", "--data", "x", *flags])
    with pytest.raises(SystemExit):
        results.main()
    assert flags[0] in capsys.readouterr().err
