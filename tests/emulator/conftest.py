"""Emulators that tests share. Nobody may leave one changed: faults are healed by whoever sets them."""

from collections.abc import Iterator

import pytest

from tests.emulator.process import EmulatorProcess, emulator


@pytest.fixture(scope="session")
def tiny() -> Iterator[EmulatorProcess]:
    """Set up like the engine that was recorded: the model is called tiny, its context is 2,048 tokens."""
    with emulator(served_model_name="tiny", max_model_len=2048, time_scale=50.0) as running:
        yield running


@pytest.fixture(scope="session")
def slow() -> Iterator[EmulatorProcess]:
    """In real time, with a small pool and few places, so that there is time to look at what runs."""
    with emulator(served_model_name="tiny", max_model_len=2048, kv_tokens=4096, max_num_seqs=2, time_scale=1.0) as one:
        yield one
