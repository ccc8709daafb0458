"""Faults begin, strike after some tokens, heal, and look the way they do in the wild."""

import contextlib
import http.client
import time
import urllib.error
from collections.abc import Iterator

import pytest

from tests.emulator.process import EmulatorProcess, call, emulator
from tests.emulator.test_api import CHAT, chat
from tests.emulator.wire import exchange, get, hurried, opened, post


@contextlib.contextmanager
def fault(one: EmulatorProcess, kind: str, **options: object) -> Iterator[None]:
    one.fault(kind, **options)
    try:
        yield
    finally:
        one.heal()


def test_slow_makes_every_step_longer(slow: EmulatorProcess) -> None:
    def seconds() -> float:
        begun = time.monotonic()
        post(slow.port, CHAT, chat(max_tokens=8))
        return time.monotonic() - begun

    usual = seconds()
    with fault(slow, "slow", factor=4):
        assert seconds() > 2.5 * usual


def test_a_full_queue_is_a_503_that_is_counted(tiny: EmulatorProcess) -> None:
    with fault(tiny, "queue_full"):
        got = post(tiny.port, CHAT, chat())
        assert (got.status, got.json["error"]["type"]) == (503, "Service Unavailable")
        assert 'admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 0' not in page(tiny)
    assert post(tiny.port, CHAT, chat(max_tokens=1)).status == 200


def page(one: EmulatorProcess) -> str:
    return get(one.port, "/metrics").body.decode()


def test_frozen_metrics_repeat_themselves(tiny: EmulatorProcess) -> None:
    page(tiny)
    with fault(tiny, "freeze_metrics"):
        before = page(tiny)
        post(tiny.port, CHAT, chat(max_tokens=3))
        assert page(tiny) == before
    assert page(tiny) != before


def test_a_hang_answers_nothing_until_it_heals(tiny: EmulatorProcess) -> None:
    with fault(tiny, "hang"):
        with pytest.raises(TimeoutError):
            hurried(tiny.port, chat(max_tokens=1))
        with pytest.raises(TimeoutError):
            exchange(tiny.port, "GET", "/health", patience_s=0.1)
    assert get(tiny.port, "/health").status == 200


def test_a_pause_answers_probes_only(tiny: EmulatorProcess) -> None:
    with fault(tiny, "pause"):
        with pytest.raises(TimeoutError):
            hurried(tiny.port, chat(max_tokens=1))
        assert get(tiny.port, "/health").status == 200
        assert 'num_requests_waiting{engine="0",model_name="tiny"} 0.0' in page(tiny)
    assert post(tiny.port, CHAT, chat(max_tokens=1)).status == 200


def test_a_fault_can_heal_by_itself(tiny: EmulatorProcess) -> None:
    tiny.fault("queue_full", for_s=0.05)
    assert post(tiny.port, CHAT, chat()).status == 503
    tiny.wait_for(faults=[])


def test_dropped_connections_end_in_the_middle(slow: EmulatorProcess) -> None:
    with opened(slow.port, chat(max_tokens=1000, ignore_eos=True, stream=True)) as answer:
        answer.read(1)
        slow.fault("drop_connections", after_tokens=3)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.read()
    slow.wait_for(running=0, kv_blocks_used=0)


def test_one_kind_can_be_healed_alone(tiny: EmulatorProcess) -> None:
    tiny.fault("slow", factor=2)
    tiny.fault("freeze_metrics")
    assert call(f"{tiny.control}/faults?kind=slow", method="DELETE") == {"active": ["freeze_metrics"]}
    tiny.fault("slow", after_tokens=10**9)
    tiny.heal()
    assert tiny.state()["faults"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "nonsense"},
        {},
        *[{"kind": "slow", "factor": factor} for factor in (0, -1, 1e308)],
        {"kind": "slow", "for_s": -1},
        {"kind": "slow", "after_tokens": -5},
        {"kind": "slow", "facter": 2},
    ],
)
def test_nonsense_is_refused(tiny: EmulatorProcess, body: dict[str, object]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        call(f"{tiny.control}/faults", body)
    with pytest.raises(urllib.error.HTTPError, match="400"):
        call(f"{tiny.control}/faults?kind=nonsense", method="DELETE")


def test_the_state_is_the_engines(slow: EmulatorProcess) -> None:
    state = slow.state()
    assert (state["kv_tokens"], state["free_blocks"], state["max_num_seqs"]) == (4096, 256, 2)
    assert state["clock_lag_ratio"] >= 0.0


@pytest.mark.slow
def test_the_queue_has_the_length_it_was_given() -> None:
    with emulator(max_num_seqs=1, max_num_queued_reqs=1, time_scale=1.0, served_model_name="tiny") as one:
        body = chat(max_tokens=1000, ignore_eos=True, stream=True)
        with opened(one.port, body), opened(one.port, body):
            one.wait_for(running=1, waiting=1)
            assert post(one.port, CHAT, body).status == 503


@pytest.mark.slow
def test_an_engine_that_dies_says_so_in_band_and_ends_its_process() -> None:
    with emulator(time_scale=1.0, served_model_name="tiny") as one:
        with opened(one.port, chat(max_tokens=1000, ignore_eos=True, stream=True)) as answer:
            one.fault("oom", after_tokens=2)
            text = answer.read().decode()
        assert text.endswith('"code": 500}}\n\ndata: [DONE]\n\n')
        assert get(one.port, "/health").status == 503
        assert post(one.port, CHAT, chat()).status == 500
        assert one.process.wait(5) == 1


@pytest.mark.slow
def test_a_crash_leaves_nothing_but_a_cut_stream() -> None:
    with emulator(time_scale=1.0, served_model_name="tiny") as one:
        with opened(one.port, chat(max_tokens=1000, ignore_eos=True, stream=True)) as answer:
            one.fault("crash", after_tokens=2)
            with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                answer.read()
        assert one.process.wait(5) == 1
