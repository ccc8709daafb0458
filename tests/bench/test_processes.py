"""No child outlives its run."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.bench import processes
from headway.bench.processes import ChildDied, Children

Run = Callable[..., Any]
pytestmark = pytest.mark.slow


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children run the given Python text."""
    monkeypatch.setattr(processes, "PROGRAM", ("-c",))


def test_children_are_ended_on_leaving(run: Run, tmp_path: Path, python: None) -> None:
    async def scenario() -> int:
        async with Children(tmp_path) as children:
            child = children.start("sleeper", "import time; time.sleep(60)")
            assert child.alive
            return child.pid

    assert gone(run(scenario()))


def test_children_are_ended_on_exceptions_even_if_they_ignore_sigterm(
    run: Run, tmp_path: Path, python: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.3)
    pids: list[int] = []
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    )

    async def scenario() -> None:
        async with Children(tmp_path) as children:
            child = children.start("stubborn", stubborn)
            pids.append(child.pid)
            while "on" not in child.output():
                child.check()
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        run(scenario())
    assert gone(pids[0])


def test_grandchildren_go_with_their_group(run: Run, tmp_path: Path, python: None) -> None:
    forks = "import os, time; print(os.fork(), flush=True); time.sleep(60)"

    async def scenario() -> list[int]:
        async with Children(tmp_path) as children:
            child = children.start("forks", forks)
            while child.output().count("\n") < 2:
                child.check()
            return [int(line) for line in child.output().split() if int(line)]

    (grandchild,) = run(scenario())
    os_state = Path(f"/proc/{grandchild}/stat")
    assert gone(grandchild) or os_state.read_text().split()[2] == "Z"  # its reaper may be slow


def test_an_early_end_is_told_with_its_last_words(run: Run, tmp_path: Path, python: None) -> None:
    async def scenario() -> None:
        async with Children(tmp_path) as children:
            child = children.start("talker", "print('my last words'); raise SystemExit(3)")
            while child.alive:
                pass
            children.check()

    with pytest.raises(ChildDied, match=r"talker ended with status 3:\nmy last words"):
        run(scenario())


def test_signalling_the_dead_is_harmless(run: Run, tmp_path: Path, python: None) -> None:
    async def scenario() -> None:
        async with Children(tmp_path) as children:
            child = children.start("brief", "pass")
            while child.alive:
                pass
            child.send(signal.SIGTERM)
            assert not child.alive

    run(scenario())
