"""One scenario, two hash seeds, equal journals; and one seed, one journal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def journal(hash_seed: str, steps: int) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.core.storm", "7", str(steps)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, timeout=60).stdout


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_commands() -> None:
    one, other = journal("1", 1500), journal("2", 1500)
    assert one.count(b"\n") > 1500
    assert one.count(b"Dispatch") > 100
    assert one == other
