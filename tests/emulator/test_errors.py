"""Refusals on the wire: plain and inside a stream (recorded from a killed engine)."""

from pathlib import Path

import pytest

from headway.emulator.errors import DEAD, QUEUE_FULL, bad
from headway.emulator.shapes import DONE


@pytest.mark.shared
def test_a_dead_engine_in_the_recorded_bytes(shared: Path) -> None:
    folder = shared / "fixtures" / "vllm" / "crash"
    assert (folder / "chat-stream-engine-killed.body").read_bytes().endswith(DEAD.event() + DONE)
    assert (folder / "chat-nonstream-engine-killed.body").read_bytes() == DEAD.body()


@pytest.mark.shared
def test_a_full_queue_in_the_recorded_bytes(shared: Path) -> None:
    want = (shared / "fixtures" / "vllm" / "overload" / "err-503-chat.body").read_bytes()
    assert QUEUE_FULL.body() == want
    assert QUEUE_FULL.status == 503


def test_a_parameter_is_named_twice() -> None:
    assert bad("No.", "n", 5).message == "No. (parameter=n, value=5)"
    assert bad("No.", "n").message == "No. (parameter=n)"
    assert bad("No.").param is None
