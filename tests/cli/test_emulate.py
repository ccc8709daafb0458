import gc
import inspect
import socket

import pytest

from headway.cli import emulate
from headway.emulator import EmulatorConfig
from tests.cli.calling import call


def test_every_flag_is_a_field_with_the_same_default() -> None:
    fields = EmulatorConfig()
    for name, parameter in inspect.signature(emulate.command).parameters.items():
        if name != "log_level":
            assert getattr(fields, name) == parameter.default, name


def test_flags_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[EmulatorConfig] = []
    monkeypatch.setattr(emulate, "serve", seen.append)
    flags = ["--model", "m", "--tensor-parallel-size", "2", "--no-enable-prefix-caching", "--time-scale", "5"]
    assert call("emulate", *flags) == 0
    expected = EmulatorConfig(model="m", tensor_parallel_size=2, enable_prefix_caching=False, time_scale=5.0)
    assert seen == [expected]


@pytest.mark.parametrize("flag", ["--port", "--control-port"])
def test_a_taken_port_is_told_by_its_flag(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = "--control-port" if flag == "--port" else "--port"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert call("emulate", flag, port, other, "0") == 1
    gc.collect()
    shown = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in shown
    assert f"choose another {flag}" in shown


def test_a_level_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("emulate", "--log-level", "loud") == 2
    assert "--log-level loud: there are debug, info" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model", "llama-3.1-9b"], "llama-3.1-8b"),
        (["--gpu", "h100-81gb"], "h100-80gb"),
        (["--kv-tokens", "1000", "--max-model-len", "8192"], "leave --max-model-len out"),
        (["--time-scale", "nan"], "--time-scale nan is not between 0.001 and 10,000"),
        (["--host", "nosuch.invalid"], "name an address of this machine with --host"),
        (["--model", "llama-3.1-70b", "--gpu", "l4"], "headway memory --model llama-3.1-70b --gpu l4 --gpus-needed"),
    ],
)
def test_what_cannot_be_emulated_is_explained(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("emulate", *flags) == 1
    assert words in capsys.readouterr().err
