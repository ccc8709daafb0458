"""Other programs run to their end, or are ended."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.runtime.program import run as run_program

Run = Callable[[Any], Any]


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def test_success_says_nothing(run: Run, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert run(run_program(python(f"open({str(made)!r}, 'w').close(); print('x' * 200000)"), 10.0)) == ""
    assert made.exists()


def test_what_went_wrong_is_said(run: Run) -> None:
    assert run(run_program(python("raise SystemExit(3)"), 10.0)) == "ended with 3"
    assert run(run_program(["/no/such/program"], 10.0)) == "cannot be started: No such file or directory"
    assert "cannot be started" in run(run_program(["a\0b"], 10.0))


def test_nothing_is_read_by_a_shell(run: Run, tmp_path: Path) -> None:
    code = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    run(run_program([*python(code), str(tmp_path / "said"), "$(id); `id` > x"], 10.0))
    assert (tmp_path / "said").read_text() == "$(id); `id` > x"


@pytest.mark.slow
def test_time_is_bounded_also_for_its_children(run: Run, tmp_path: Path) -> None:
    child = f"import time; time.sleep(2); open({str(tmp_path / 'late')!r}, 'w').close()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {child!r}])"
    began = time.perf_counter()
    assert run(run_program(python(code), 0.3)) == "took longer than 0.3 s"
    assert time.perf_counter() - began < 1.5
    time.sleep(2.0)
    assert not (tmp_path / "late").exists()


@pytest.mark.slow
def test_whoever_does_not_listen_is_ended(run: Run) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(30)"
    began = time.perf_counter()
    assert "took longer" in run(run_program(python(code), 0.3))
    assert time.perf_counter() - began < 5.0


def test_it_ends_with_the_caller(run: Run) -> None:
    async def story() -> float:
        task = asyncio.ensure_future(run_program(python("import time; time.sleep(30)"), 60.0))
        await asyncio.sleep(0.1)
        began = time.perf_counter()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        return time.perf_counter() - began

    assert run(story()) < 1.0
