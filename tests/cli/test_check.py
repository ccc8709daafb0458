import json
from pathlib import Path

import pytest

from headway.cli import check
from headway.coordinate.static import Entry
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from tests.cli.calling import call

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def written(folder: Path, text: str) -> str:
    file = folder / "headway.yaml"
    file.write_text(text)
    return str(file)


def test_a_good_file_is_explained(tmp_path: Path, capsys: Captured) -> None:
    text = (
        "replicas: [http://a:8000, {url: http://b:8000, api_key: zq9-planted}]\nmodels: {fast: m}\nlisten: {port: 9}\n"
    )
    assert call("check", written(tmp_path, text)) == 0
    shown = capsys.readouterr().out
    for part in (
        "engine detected, model detected",
        "127.0.0.1:9",
        "http://a:8000",
        "key set",
        "fast -> m",
        "headroom",
        "open on loopback",
    ):
        assert part in shown
    assert "zq9-planted" not in shown


def test_addresses_to_connect_to_are_written_as_urls_have_them(tmp_path: Path, capsys: Captured) -> None:
    text = "listen: {host: '127.0.0.1, ::1', port: 9}\nadmin: {host: '[::1]'}\n"
    assert call("check", written(tmp_path, text)) == 0
    shown = capsys.readouterr().out
    assert "127.0.0.1:9, [::1]:9" in shown
    assert "[::1]:8801 (open on loopback)" in shown


def test_what_is_stated_of_a_replica_is_repeated(tmp_path: Path, capsys: Captured) -> None:
    text = "replicas: [{url: http://a:8000, engine: vllm, model: m, gpu: h100-80gb, gpu_count: 2}]\n"
    assert call("check", written(tmp_path, text)) == 0
    assert "vllm, m, 2 x h100-80gb" in capsys.readouterr().out


def test_every_problem_is_listed_with_its_line(tmp_path: Path, capsys: Captured) -> None:
    assert call("check", written(tmp_path, "lisen: {}\nlimits:\n  max_headers: x\n")) == 1
    shown = capsys.readouterr().err
    assert 'line 1: lisen: unknown key; did you mean "listen"?' in shown
    assert "line 3: limits.max_headers" in shown


def test_what_only_wiring_can_find_has_its_line_too(tmp_path: Path, capsys: Captured) -> None:
    assert call("check", written(tmp_path, "seed: 1\npolicy: hedroom\n")) == 1
    assert "line 2: policy.name: no policy is named 'hedroom'" in capsys.readouterr().err


def test_what_is_doubtful_is_a_warning_with_its_line(tmp_path: Path, capsys: Captured) -> None:
    text = (
        "replicas:\n  - http://a/v1\n  - url: http://b\n    gpu: h100-81gb\n"
        "models:\n  x: y\n  y: z\n  w: [w, x]\n  v: [y, x]\n"
    )
    assert call("check", written(tmp_path, text)) == 0
    captured = capsys.readouterr()
    for words in (
        "line 2: replicas[0].url: the /v1 at its end is left out",
        "line 4: replicas[1].gpu: unknown GPU 'h100-81gb'",
        "line 6: models.x: leads to y, which is an alias, too",
        "line 9: models.v: leads to y and x",
    ):
        assert words in captured.err
    assert captured.err.count("warning") == 4
    assert "http://a " in captured.out


@pytest.mark.parametrize("place", ["nosuch/x.j", "."])
def test_a_journal_that_cannot_be_is_an_error(tmp_path: Path, capsys: Captured, place: str) -> None:
    assert call("check", written(tmp_path, f"seed: 1\njournal: {tmp_path / place}\n")) == 1
    assert "line 2: journal: " in capsys.readouterr().err
    assert call("check", written(tmp_path, f"journal: {tmp_path / 'x.j'}\n")) == 0
    assert not (tmp_path / "x.j").exists()


def test_a_file_is_needed(capsys: Captured) -> None:
    assert call("check") == 2
    assert "headway check headway.yaml" in capsys.readouterr().err


def test_the_schema_is_complete_json(capsys: Captured) -> None:
    assert call("check", "--schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(schema["properties"]) >= {"listen", "replicas", "policy", "brain", "models"}
    assert schema["additionalProperties"] is False


def test_plugins_are_listed(capsys: Captured) -> None:
    assert call("check", "--list") == 0
    shown = capsys.readouterr().out
    assert "headroom" in shown
    assert "llamacpp" in shown
    assert "h100-80gb" in shown
    assert "llama-3.1-8b" in shown


def test_probing_says_what_each_replica_answered(tmp_path: Path, capsys: Captured) -> None:
    assert call("check", "--probe", written(tmp_path, "replicas: [http://127.0.0.1:1]\n")) == 0
    assert "refused" in capsys.readouterr().out


def test_probing_tells_of_one_engine_under_two_names(tmp_path: Path, capsys: Captured) -> None:
    assert call("check", "--probe", written(tmp_path, "replicas: [http://127.0.0.1:1, http://localhost:1]\n")) == 0
    assert "http://127.0.0.1:1, http://localhost:1: two replicas are at one address" in capsys.readouterr().err


def test_a_model_that_the_engine_does_not_list_is_part_of_the_answer() -> None:
    found = ReplicaSpec(ReplicaId("r"), "http://a", "vllm", "m", serves={"m": "m"})
    assert check._answer(Entry("http://a", model="other"), found).endswith(
        "does not list other, which is stated for it"
    )
    assert check._answer(Entry("http://a", model="m"), found) == "vllm, m"
