"""From a file and flags to a sweep."""

import re
from pathlib import Path

import pytest
import yaml

from headway.compose.simulation import Simulation, at_size, checked, overlaid, read_simulation, sized, sweep
from headway.compose.source import SettingsError
from headway.sim.scenario import Fault, PoolSpec, Truth
from headway.sim.truth import DoesNotFit
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
    assert "one replica at least" in problem({"pools": [{"count": 0}]})
    assert "must be a map" in problem({"pools": ["h100"]})
    assert "are 1 at least" in problem({"pools": [{"max_num_seqs": 0}]})
    assert "are 1 at least" in problem({"pools": [{"tensor_parallel_size": -1}]})
    assert "positive multiples" in problem({"loads": [0.5, 0.0]})
    assert "positive multiples" in problem({"loads": [float("nan")]})
    assert "positive multiples" in problem({"loads": [float("inf")]})
    assert "must be 1 or more" in problem({"seeds": 0})
    assert "fraction below 1" in problem({"truth": {"perturb": 20}})
    assert "not among the policies" in problem({"reference": "random"})
    assert "replicas 0 to 3" in problem({"faults": [{"at_s": 1, "replica": 4}]})
    assert 'did you mean "loads"?' in problem({"load": [1.0]})


def test_what_the_hardware_cannot_do_is_refused(tmp_path: Path) -> None:
    log(tmp_path)
    with pytest.raises(ValueError, match="h100"):
        sweep(small(tmp_path / "log.csv", pools=[{"gpu": "h100-8gb"}]))
    with pytest.raises(DoesNotFit):
        sweep(small(tmp_path / "log.csv", pools=[{"model": "llama-3.1-70b", "gpu": "t4-16gb"}]))


@pytest.mark.slow
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
