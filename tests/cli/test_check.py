import json
from pathlib import Path

import pytest

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
