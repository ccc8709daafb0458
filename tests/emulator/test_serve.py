"""The process: it says where it listens, ends in order, and keeps its clock."""

import signal
import socket
import time

import pytest

from headway.emulator import EmulatorConfig, serve
from headway.emulator.config import DoesNotFit
from tests.emulator.process import emulator
from tests.emulator.test_api import CHAT, chat
from tests.emulator.wire import opened, post

pytestmark = pytest.mark.slow


STREAM = chat(max_tokens=60, ignore_eos=True, stream=True)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_sigterm_lets_streams_finish_while_the_port_refuses() -> None:
    with emulator(time_scale=1.0, served_model_name="tiny") as one:
        with opened(one.port, STREAM) as answer:
            one.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert refuses(one.port)
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert one.process.wait(5) == 0


def test_or_falls_silent_as_vllm_does_by_default() -> None:
    with emulator(time_scale=1.0, served_model_name="tiny") as one:
        one.fault("sigterm_hang")
        with opened(one.port, STREAM, patience_s=0.5) as answer:
            one.process.send_signal(signal.SIGTERM)
            with pytest.raises(TimeoutError):
                answer.read()
            assert refuses(one.port)
            assert one.process.poll() is None
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(5) == 1


def test_time_can_run_faster() -> None:
    spent = {}
    for scale in (1.0, 10.0):
        with emulator(time_scale=scale, served_model_name="tiny") as one:
            begun = time.monotonic()
            post(one.port, CHAT, chat(max_tokens=60, ignore_eos=True))
            spent[scale] = time.monotonic() - begun
    assert 0.35 < spent[1.0] < 3  # 60 steps of 7 ms
    assert spent[10.0] < spent[1.0] / 3


def test_what_cannot_work_is_refused_before_anything_listens() -> None:
    with pytest.raises(DoesNotFit):
        serve(EmulatorConfig(model="llama-3.1-70b", port=0))
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(OSError, match="in use"):
        serve(EmulatorConfig(port=taken.getsockname()[1]))
