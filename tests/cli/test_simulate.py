"""`headway simulate` from end to end on a small trace."""

import json
import re
from pathlib import Path

import pytest

from headway.cli.simulate_options import names, numbers
from headway.workload.results import RunResult
from tests.cli.calling import call

NAMED = (
    *("policy", "load", "seed", "requests", "good", "goodput_rps", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s"),
    *("tpot_p99_s", "preemptions", "kv_usage_std", "prefix_hit_rate", "gpu_hours_per_1k_good"),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten minutes of small requests in Azure's format."""
    path = tmp_path / "log.csv"
    lines = (f"2023-11-16 18:{n // 60:02d}:{n % 60:02d}.5,{200 + 37 * (n % 11)},{20 + n % 43}\n" for n in range(600))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    return path


def simulate(trace: Path, *more: str) -> int:
    few = ("--duration", "4", "--replicas", "2", "--kv-tokens", "4000", "--jobs", "1")
    return call("simulate", "--trace", str(trace), *few, *more)


@pytest.mark.slow
def test_json_is_one_object_per_policy_load_and_seed(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("--policy", "headroom,round_robin", "--load", "0.5,0.9", "--seeds", "2", "--json")
    assert simulate(trace, *wanted) == 0
    said = json.loads(capsys.readouterr().out)
    assert [(run["load"], run["policy"], run["seed"]) for run in said] == [
        (load, policy, seed) for load in (0.5, 0.9) for policy in ("headroom", "round_robin") for seed in (0, 1)
    ]
    for run in said:
        assert set(NAMED) <= set(run) == set(RunResult.__struct_fields__)
        assert run["requests"] == run["good"] + run["late"] + run["shed"] + run["failed"] > 0


@pytest.mark.slow
def test_tables_and_a_report(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.html"
    assert simulate(trace, "--policy", "headroom", "--policy", "random", "--seeds", "1", "--html", str(report)) == 0
    captured = capsys.readouterr()
    for words in ("load 0.9:", "longest", "2 × llama-3.1-8b on h100-80gb; 4,000 KV tokens", "one seed", "superposing"):
        assert words in captured.out
    assert "report written to" in captured.err
    text = report.read_text(encoding="utf-8")
    for words in ("<title>2 × llama-3.1-8b on h100-80gb under log", "KV use of each replica", "Where requests waited"):
        assert words in text


@pytest.mark.slow
def test_a_scenario_file_with_faults_and_flags_over_it(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        f"trace: {trace.name}\npools:\n- {{count: 1, kv_tokens: 4000}}\n- {{count: 1, kv_tokens: 8000}}\n"
        "truth: {perturb: 0.2}\nfaults:\n- {at_s: 1, replica: 1, duration_s: 2}\nduration_s: 5\nseeds: 2\n"
        "policies: [round_robin]\n"
    )
    assert call("simulate", str(scenario), "--seeds", "1", "--jobs", "1") == 0
    said = capsys.readouterr().out
    for words in ("4,000 KV tokens, 8,000 KV tokens", "±20 %", "replica 1 crashes at 1 s for 2 s", "one seed"):
        assert words in said


@pytest.mark.slow
def test_a_generated_workload(capsys: pytest.CaptureFixture[str]) -> None:
    few = ("--duration", "4", "--replicas", "1", "--kv-tokens", "8000", "--seeds", "1", "--jobs", "1")
    assert call("simulate", "--generate", "diurnal", "--policy", "round_robin", "--json", *few) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["requests"] > 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--policy", "headrom"), r"no policy is named 'headrom'; did you mean \"headroom\""),
        (("--gpu", "h100-81gb"), "h100-80gb"),
        (("--policy", "clairvoyant+queue"), "clairvoyant is headroom with foresight and takes no suffix"),
        (("--tensor-parallel-size", "3"), "32 attention heads cannot be split over 3 GPUs"),
        (("--load", "0.7;0.9"), "--load takes numbers by comma, such as 0.7,0.9, not '0.7;0.9'"),
        (("--load", "-1"), "must be positive multiples"),
        (("--columns", "arrival=x"), "input, output missing"),
        (("--generate", "chat"), "--trace FILE"),
        (("--longest", "10"), "no request has 10 tokens or fewer"),
        (("--columns", "azure", "--trace-format", "azure"), "say the same"),
        (("--tenant", "bob"), "no request of a tenant named 'bob'; this workload names none"),
        (("--load", "1e-7"), "no request arrives within 4 s: .* Make the duration longer"),
        (("--load", "1e9"), "a run has 2,000,000 at most"),
        (("--warmup", "4"), "warmup_s: leaves nothing of the 4 s"),
        (("--seeds", "1000000000"), "seeds: must be 1 to 10,000"),
        (("--replicas", "1000000"), r"pools\[0\].count: must be 1 to 10,000"),
    ],
)
def test_errors_say_what_to_do(
    trace: Path, flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(trace, *flags) == 1
    captured = capsys.readouterr()
    assert re.search(words, captured.err)
    assert captured.out == ""


def test_an_error_in_a_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("generate: chat\nreplicas: 8\n")
    assert call("simulate", str(path)) == 1
    assert "line 2: replicas: unknown key" in capsys.readouterr().err


def test_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("simulate", str(tmp_path / "none.yaml")) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_found_at_once(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(trace, "--html", str(tmp_path / "none" / "report.html")) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_what_cannot_be_simulated_leaves_no_report(trace: Path, tmp_path: Path) -> None:
    """It left an empty file; a report that was there stays as it was."""
    new, old = tmp_path / "new.html", tmp_path / "old.html"
    old.write_text("old")
    for path in (new, old):
        assert simulate(trace, "--policy", "nope", "--html", str(path)) == 1
    assert not new.exists()
    assert old.read_text() == "old"


def test_names_by_comma_or_repeated() -> None:
    assert names(["a,b", "c", " a "]) == ["a", "b", "c"]
    assert names([]) is None
    assert numbers(None) is None
    assert numbers("0.7,1") == [0.7, 1.0]
