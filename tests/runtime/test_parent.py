"""A child whose parent is killed outright ends by itself."""

import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

CHILD = "import asyncio; from headway.runtime.parent import parent_gone; asyncio.run(parent_gone())"
PARENT = """
import subprocess, sys, time
pipe = subprocess.PIPE if sys.argv[2] == "pipe" else subprocess.DEVNULL
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=pipe, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def ended(pid: int) -> bool:
    """Gone, or a zombie that nobody reaps here."""
    try:
        with open(f"/proc/{pid}/stat") as state:
            return state.read().rsplit(")")[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc to see a process that is not ours")
@pytest.mark.parametrize("stdin", ["pipe", "null"])
@pytest.mark.parametrize("head_start_s", [0.0, 1.0])
def test_a_child_follows_a_parent_that_was_killed(stdin: str, head_start_s: float) -> None:
    if stdin == "null" and not head_start_s:
        pytest.skip("who its parent was can only be known while that lives")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, CHILD, stdin], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(head_start_s)
    assert not ended(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10.0
    while not ended(pid):
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.02)
