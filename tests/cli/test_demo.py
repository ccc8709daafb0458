"""`headway demo`: what it says, and that nothing outlives it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headway.bench import BenchResult, ClientLoad, Progress
from headway.bench.demo import DemoPlan, PolicyRun, workload
from headway.bench.watch import Glance
from headway.cli import demo
from headway.workload.accounts import Accounts
from headway.workload.stats import Record, Slo, summarize
from tests.cli.calling import call
from tests.report.test_live import answer

GOOD = Record(0.0, 0.0, 2.0, "ok", (0.5, 0.6), 200, 100, 3)


def policy_run(policy: str = "headroom", gateway: Accounts | None = None, lag: float = 0.0) -> PolicyRun:
    accounts = Accounts(started=1, ok=1)
    result = BenchResult("m", summarize([GOOD], 1, 10.0, Slo()), accounts, ClientLoad(0.1, 0.001, 10.0), (GOOD,))
    return PolicyRun(policy, result, gateway or accounts, lag)


def test_the_object_is_exactly_what_was_promised() -> None:
    said = demo.plain([policy_run("round_robin"), policy_run()])
    assert said == {
        "requests": {"started": 2, "ok": 2, "client_error": 0, "server_error": 0, "client_closed": 0, "shed": 0},
        "policies": [
            {"name": name, "goodput_rps": 0.1, "ttft_p50_s": 0.5, "ttft_p99_s": 0.5, "tpot_p50_s": pytest.approx(0.05)}
            for name in ("round_robin", "headroom")
        ],
        "balanced": True,
    }


@pytest.mark.parametrize("gateway", [Accounts(started=2, ok=2), Accounts(started=1, client_closed=1), Accounts()])
def test_books_that_differ_are_not_balanced(gateway: Accounts) -> None:
    assert demo.plain([policy_run(), policy_run(gateway=gateway)])["balanced"] is False


@pytest.mark.parametrize(("lag", "warned"), [(0.09, False), (0.11, True)])
def test_a_late_emulator_is_warned_of(lag: float, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    demo._warn_of_lag([policy_run(lag=lag)])
    assert ("warning" in capsys.readouterr().err) is warned


@pytest.mark.parametrize("terminal", [True, False])
def test_displays_draw_what_they_are_told(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=140)
    with demo._display(console, "headroom (1 of 1)", DemoPlan()) as display:
        display.stage("headroom", "load")
        display.progress(Progress(5.0, 10, 4, 2, 2, Accounts(started=4, ok=1, shed=1)))
        glance: dict[str, Any] = answer()
        display.glance(Glance(glance, {"127.0.0.1:9000": 0.25}))
        if terminal:
            display._live.refresh()  # type: ignore[attr-defined]
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "headroom (1 of 1)" in text
    assert "75 %" in text
    if terminal:
        assert "250 ms" in text
        assert "1 not ok" in text


def test_every_policy_gets_the_same_workload() -> None:
    plan = DemoPlan(seconds=5.0)
    assert workload(plan) == workload(plan)
    assert max(r.prompt_tokens for r in workload(plan)) <= plan.fleet.longest


def test_an_unknown_policy_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("demo", "--policy", "hedroom") == 1
    shown = capsys.readouterr().err
    assert "no policy is named 'hedroom'" in shown
    assert "headroom" in shown


# --- end to end -------------------------------------------------------------------------------------------------------


def children_of(group: int) -> list[int]:
    """Processes whose parent is, or was, in this session's demo: found by the mark in their environment."""
    mark = f"HEADWAY_TEST_MARK={group}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0") and (entry / "stat").read_text().split()[2] != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def marked() -> Iterator[dict[str, str]]:
    """An environment that marks every process started with it; none may be left."""
    mark = str(time.time_ns())
    yield {**os.environ, "HEADWAY_TEST_MARK": mark}
    left = children_of(int(mark))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"processes left behind: {left}"


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headway", "demo", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to count processes")
def test_end_to_end(marked: dict[str, str]) -> None:
    with start(marked, "--seconds", "3", "--json") as process:
        stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 0, stderr
    said = json.loads(stdout)
    assert said["balanced"] is True
    assert [policy["name"] for policy in said["policies"]] == ["round_robin", "headroom"]
    assert said["requests"]["started"] > 20
    assert said["requests"]["server_error"] == said["requests"]["client_error"] == 0
    assert all(policy["ttft_p50_s"] > 0 and policy["goodput_rps"] > 0 for policy in said["policies"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to count processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["starting four engines", " running "])
def test_no_process_outlives_an_interrupt(marked: dict[str, str], number: signal.Signals, after: str) -> None:
    with start(marked, "--seconds", "30", "--json") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if after in line)
        time.sleep(0.3)
        assert len(children_of(int(marked["HEADWAY_TEST_MARK"]))) > 1
        process.send_signal(number)
        process.communicate(timeout=20)
    assert process.returncode == 130


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to count processes")
def test_an_impatient_second_interrupt_leaves_nothing_either(marked: dict[str, str]) -> None:
    with start(marked, "--seconds", "30", "--json") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if " running " in line)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        process.communicate(timeout=20)
    assert process.returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to count processes")
def test_an_unknown_policy_is_said_and_leaves_nothing(marked: dict[str, str]) -> None:
    with start(marked, "--seconds", "1", "--policy", "no_such") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no_such" in stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to count processes")
@pytest.mark.parametrize("after", ["starting four engines", " running "])
def test_no_process_outlives_a_demo_that_is_killed(marked: dict[str, str], after: str) -> None:
    mark = int(marked["HEADWAY_TEST_MARK"])
    with start(marked, "--seconds", "30", "--json") as process:
        assert process.stderr is not None
        next(line for line in process.stderr if after in line)
        time.sleep(0.3)
        assert len(children_of(mark)) > 1
        process.kill()
        process.communicate(timeout=20)
    until = time.monotonic() + 10.0
    while children_of(mark) and time.monotonic() < until:
        time.sleep(0.05)
