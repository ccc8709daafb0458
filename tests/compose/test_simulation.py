"""From a file and flags to a sweep."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from headway.compose.simulate import MakeBrain
from headway.compose.simulation import (
    Simulation,
    at_size,
    checked,
    misfits,
    overlaid,
    read_simulation,
    scenario,
    sized,
    sweep,
    workload,
)
from headway.compose.source import SettingsError
from headway.core.constants import SloConfig
from headway.sim.scenario import Fault, PoolSpec, Scenario, Truth
from headway.sim.sweep import NothingToSimulate, run
from headway.sim.truth import DoesNotFit, grounds
from headway.workload.columns import TraceError
from headway.workload.results import RunResult
from headway.workload.stats import Slo

DOCS = Path(__file__).parents[2] / "docs" / "simulator.md"

FILE = """
trace: log.csv
pools:
  - {count: 2, gpu: h100-80gb}
  - {count: 3, gpu: a100-80gb, kv_tokens: 60000}
truth: {perturb: 0.2}
slo: {ttft_s: 2}
faults:
  - {at_s: 30, replica: 4, kind: slow, factor: 2}
loads: [0.7, 0.9]
policies: [headroom, round_robin]
"""


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def log(folder: Path, rows: int = 200) -> Path:
    path = folder / "log.csv"
    lines = (f"{n * 0.5},{100 + 37 * (n % 11)},{10 + n % 23}\n" for n in range(rows))
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(lines))
    return path


def small(trace: Path, **more: object) -> Simulation:
    """A simulation of moments."""
    data = {"trace": str(trace), "columns": "arrival=TIMESTAMP,input=ContextTokens,output=GeneratedTokens"}
    return checked({**data, "seeds": 1, "duration_s": 20, "policies": ["round_robin"], **more})


def problem(data: dict[str, object]) -> str:
    with pytest.raises(SettingsError) as raised:
        checked({"trace": "x", **data})
    return str(raised.value)


def test_a_file_says_everything_and_flags_win(tmp_path: Path) -> None:
    document = read_simulation(written(tmp_path))
    changes = {"loads": [1.0], "seeds": None, "slo": {"tpot_s": 0.1, "ttft_s": None}}
    asked = overlaid(document, changes, {"model": "qwen3-8b", "gpu": None})
    assert asked.loads == (1.0,)
    assert asked.seeds == Simulation().seeds
    assert (asked.slo.ttft_s, asked.slo.tpot_s) == (2.0, 0.1)
    assert [(pool.count, pool.gpu, pool.model) for pool in asked.pools] == [
        (2, "h100-80gb", "qwen3-8b"),
        (3, "a100-80gb", "qwen3-8b"),
    ]
    assert asked.faults == (Fault(30, 4, "slow", factor=2),)
    assert asked.trace == str(tmp_path / "log.csv")


def test_flags_alone_are_enough() -> None:
    asked = overlaid(None, {"generate": "chat"}, {"count": 8, "kv_tokens": 60_000})
    assert asked.pools == (PoolSpec(count=8, kv_tokens=60_000),)


def test_another_workload_replaces_the_files(tmp_path: Path) -> None:
    asked = overlaid(read_simulation(written(tmp_path)), {"generate": "code"}, {})
    assert (asked.trace, asked.generate) == ("", "code")


def test_the_size_of_one_of_several_pools_cannot_be_a_flag(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there are several"):
        overlaid(read_simulation(written(tmp_path)), {}, {"count": 4})


def test_an_error_names_field_and_line(tmp_path: Path) -> None:
    text = FILE.replace("kv_tokens", "kv_token")
    with pytest.raises(SettingsError, match=r'line 5: pools\[1\]\.kv_token: unknown key; did you mean "kv_tokens"'):
        overlaid(read_simulation(written(tmp_path, text)), {}, {})
    with pytest.raises(SettingsError, match="must be a map"):
        read_simulation(written(tmp_path, "- 1"))


def test_what_fits_together_nowhere_is_refused() -> None:
    assert "give a trace (--trace FILE) or" in problem({"generate": "chat"})
    assert "give a trace (--trace FILE) or" in problem({"trace": ""})
    assert "no workload is named 'chta'; did you mean \"chat\"?" in problem({"trace": "", "generate": "chta"})
    assert "must be positive for a generated" in problem({"trace": "", "generate": "chat", "duration_s": 0})
    assert "one pool at least" in problem({"pools": []})
    assert "must be a map" in problem({"pools": ["h100"]})
    assert "positive multiples" in problem({"loads": [0.5, 0.0]})
    assert "names one twice" in problem({"loads": [0.5, 0.5]})
    assert "positive multiples" in problem({"loads": [float("nan")]})
    assert "positive multiples" in problem({"loads": [float("inf")]})
    assert "belong to a trace" in problem({"trace": "", "generate": "chat", "columns": "azure"})
    assert "leaves nothing of the 20 s" in problem({"duration_s": 20, "warmup_s": 20})
    assert "one name at least" in problem({"policies": []})
    assert "none twice" in problem({"policies": ["random", "random"]})
    assert "not among the policies" in problem({"reference": "random"})
    assert "replicas 0 to 3" in problem({"faults": [{"at_s": 1, "replica": 4}]})
    assert 'did you mean "loads"?' in problem({"load": [1.0]})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"slo": {"ttft_s": -1}}, "slo.ttft_s: must be 0 or more, not -1"),
        ({"slo": {"tpot_s": -0.1}}, "slo.tpot_s: must be 0 or more"),
        ({"slo": {"ttft_per_prompt_token_s": -1}}, "slo.ttft_per_prompt_token_s: must be 0 or more"),
        ({"seeds": 0}, "seeds: must be 1 to 10,000, not 0"),
        ({"seeds": 10**9}, "seeds: must be 1 to 10,000"),
        ({"truth": {"perturb": 20}}, "truth.perturb: must be 0 to 0.99, not 20"),
        ({"truth": {"scrape_interval_s": 0}}, "truth.scrape_interval_s: must be 0.001 to 3,600, not 0"),
        ({"truth": {"bytes_per_token": 0}}, "truth.bytes_per_token: must be 0.1 to 100"),
        ({"truth": {"step_jitter": -1}}, "truth.step_jitter"),
        ({"pools": [{"count": 0}]}, "pools[0].count: must be 1 to 10,000, not 0"),
        ({"pools": [{}, {"max_num_seqs": 0}]}, "pools[1].max_num_seqs: must be 1 to"),
        ({"pools": [{"tensor_parallel_size": -1}]}, "pools[0].tensor_parallel_size: must be 1 to"),
        ({"pools": [{"kv_tokens": -5}]}, "pools[0].kv_tokens"),
        ({"pools": [{"max_model_len": -5}]}, "pools[0].max_model_len"),
        ({"pools": [{"api": {"base_s": -1}}]}, "pools[0].api.base_s"),
        ({"faults": [{"at_s": -1, "replica": 0}]}, "faults[0].at_s"),
        ({"faults": [{"at_s": 1, "replica": 0, "factor": 0, "kind": "slow"}]}, "faults[0].factor: must be 0.01 to"),
        ({"duration_s": -1}, "duration_s: must be 0 or more"),
        ({"warmup_s": -1}, "warmup_s: must be 0 or more"),
        ({"length_factor": 0}, "length_factor: must be 0.001 to 1,000, not 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(data: dict[str, object], words: str) -> None:
    assert words in problem(data)


def test_policies_are_told_what_counts_as_good(tmp_path: Path) -> None:
    """Order and pacing go by objectives; a policy that knew only the usual ones was measured by others."""
    made = sweep(small(log(tmp_path), slo={"ttft_s": 3, "tpot_s": 0.2}))
    usual = sweep(small(log(tmp_path)))
    told, before = (one.contenders[0].make_brain for one in (made, usual))
    assert isinstance(told, MakeBrain)
    assert isinstance(before, MakeBrain)
    assert (told.config.slo.ttft_s, told.config.slo.tpot_s) == (3.0, 0.2)
    assert before.config.slo == SloConfig()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"loads": [1e-9]}, r"no request arrives within 20 s: seed 0, .*\(load 1e-09\)\. Make the duration longer"),
        ({"loads": [1e-3], "warmup_s": 19.999}, "no request arrives within 20 s after a warm-up of 19.999 s"),
    ],
)
def test_a_run_without_requests_says_what_to_change(tmp_path: Path, more: dict[str, object], words: str) -> None:
    made = sweep(small(log(tmp_path), **more))
    with pytest.raises(NothingToSimulate, match=words):
        run(made, jobs=1)


def test_a_run_that_would_never_end_is_refused_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(NothingToSimulate, match=r"a run has 2,000,000 at most\. Make the load \(or rate\) lower"):
        sweep(small(log(tmp_path), loads=[1e9]))
    with pytest.raises(NothingToSimulate, match="2,000,000 at most"):
        sized(small(log(tmp_path)), 1e6)
    with pytest.raises(NothingToSimulate, match="2,000,000 at most"):
        sweep(checked({"generate": "diurnal", "loads": [1e9]}))


def test_requests_that_fit_nowhere_are_counted(tmp_path: Path) -> None:
    """They fail under every policy, which looks like the policies' fault where nobody says so."""
    assert misfits(sweep(small(log(tmp_path)))) == 0.0
    made = sweep(small(log(tmp_path), pools=[{"max_model_len": 110}, {"kv_tokens": 112}]))
    prompts = [request.prompt_tokens for request in made.workload.requests]
    assert misfits(made) == pytest.approx(sum(prompt >= 112 for prompt in prompts) / len(prompts))
    assert 0.5 < misfits(made) < 1.0


def test_a_trace_too_sparse_to_be_laid_over_itself_is_refused(tmp_path: Path) -> None:
    """Milliseconds read as years: 1e13 copies would be needed."""
    path = tmp_path / "log.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,100,5\n1e12,100,5\n")
    with pytest.raises(NothingToSimulate, match=r"has 2 requests in 2e\+12 s.*column and unit"):
        run(sweep(small(path)), jobs=1)


def test_plans_take_faults_of_the_one_replica_that_all_sizes_have(tmp_path: Path) -> None:
    """The search starts with fewer replicas than the file names; a fault of the fourth was an IndexError."""
    pools = [{"count": 4}]
    with pytest.raises(ValueError, match="replica 0 only"):
        sized(small(log(tmp_path), pools=pools, faults=[{"at_s": 1, "replica": 3}]), 0.0)
    assert sized(small(log(tmp_path), pools=pools, faults=[{"at_s": 1, "replica": 0}]), 0.0)[1] > 0


def test_a_section_that_is_no_map_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, FILE.replace("{perturb: 0.2}", "[1]"))
    with pytest.raises(SettingsError, match="line 6: truth: expected `object`"):
        overlaid(read_simulation(path), {"truth": {"perturb": None}}, {})


def test_what_is_generated_is_shortened_and_cut_like_a_trace() -> None:
    """--length-factor, --longest and --tenant were without effect on generated workloads, or not as said."""
    usual = workload(checked({"generate": "chat"}), 2.0, 100.0)
    short = workload(checked({"generate": "chat", "length_factor": 0.1, "longest": 800}), 2.0, 100.0)
    sizes = [[r.prompt_tokens + r.output_tokens for r in load.requests] for load in (usual, short)]
    assert np.mean(sizes[1]) < 0.3 * np.mean(sizes[0])
    assert max(sizes[1]) <= 800
    with pytest.raises(TraceError, match="no request has 1 tokens or fewer"):
        workload(checked({"generate": "chat", "longest": 1}), 2.0, 100.0)
    with pytest.raises(TraceError, match="names none"):
        workload(checked({"generate": "chat", "tenant": "x"}), 2.0, 100.0)


def test_what_the_hardware_cannot_do_is_refused(tmp_path: Path) -> None:
    log(tmp_path)
    with pytest.raises(ValueError, match="h100"):
        sweep(small(tmp_path / "log.csv", pools=[{"gpu": "h100-8gb"}]))
    with pytest.raises(DoesNotFit):
        sweep(small(tmp_path / "log.csv", pools=[{"model": "llama-3.1-70b", "gpu": "t4-16gb"}]))


@pytest.mark.slow
@pytest.mark.parametrize(("least", "ok"), [("bf16", False), ("int8", True), ("any", True)])
def test_a_precision_that_no_pool_has_is_refused(least: str, ok: bool) -> None:
    """And what a pool of no stated type has is what its model is published in: gpt-oss in four bits."""
    pools = [{"count": 1, "model": "llama-3.1-8b", "dtype": "fp8"}, {"count": 1, "model": "gpt-oss-20b"}]
    asked = checked({"generate": "chat", "duration_s": 10, "pools": pools, "precision_floor": least})
    with contextlib.nullcontext() if ok else pytest.raises(ValueError, match="no pool is as precise as bf16"):
        assert scenario(asked).precision_floor == least
    assert [ground.spec.precision for ground in grounds(Scenario(asked.pools), 0)] == ["fp8", "mxfp4"]


def test_a_sweep_knows_what_its_fleet_can_do(tmp_path: Path) -> None:
    one = sweep(small(log(tmp_path), pools=[{"count": 1}]))
    two = sweep(small(tmp_path / "log.csv", pools=[{"count": 2}]), detail=True)
    assert two.capacity_rps == pytest.approx(2 * one.capacity_rps)
    assert (two.runs, two.detail, one.detail) == (1, True, False)


@pytest.mark.slow
def test_a_plan_keeps_the_rate_whatever_the_fleet(tmp_path: Path) -> None:
    asked = small(log(tmp_path), policies=["round_robin", "random"])
    made, each_rps = sized(asked, 50.0)
    assert made.capacity_rps == 50.0
    assert each_rps > 0
    assert sized(asked, 0.0)[0].capacity_rps == pytest.approx(made.workload.rate_rps)
    three = at_size(made, 3, ["random"])
    assert (three.scenario.replicas, [c.name for c in three.contenders], three.capacity_rps) == (3, ["random"], 50.0)
    with pytest.raises(ValueError, match="several pools"):
        sized(small(tmp_path / "log.csv", pools=[{}, {}]), 1.0)


@pytest.mark.slow
def test_peaks_of_a_generated_workload_are_not_smoothed_by_copies() -> None:
    data = {"generate": "bursts", "duration_s": 60, "seeds": 1, "policies": ["round_robin"], "loads": [0.5]}
    made = sweep(checked({**data, "pools": [{"count": 1, "kv_tokens": 20_000}]}))
    assert made.workload.rate_rps >= 0.5 * made.capacity_rps  # dense enough to be thinned
    first = sum(request.arrival_s < 10 for request in made.workload.requests)
    assert first > 0.3 * len(made.workload.requests)  # of a sixth of the time; later turns come when they come


def test_the_docs_name_every_field_and_their_example_is_valid() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for kind in (Simulation, PoolSpec, Truth, Fault, Slo, RunResult):
        for name in kind.__struct_fields__:
            assert f"`{name}`" in text, f"docs/simulator.md does not name {name}"
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert checked(yaml.safe_load(example)).pools[1].gpu == "a100-80gb"
