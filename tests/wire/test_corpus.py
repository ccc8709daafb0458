"""Every kept input of the fuzz runs, replayed: seeds and past findings alike (B3)."""

import random
import time
from pathlib import Path

import pytest

from fuzz.run import MAX_BYTES, mutate
from fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
KEPT = [(name, file) for name in sorted(TARGETS) for file in sorted((CORPUS / name).iterdir())]


@pytest.mark.parametrize(("name", "file"), KEPT, ids=[f"{name}/{file.name}" for name, file in KEPT])
def test_kept_inputs_hold(name: str, file: Path) -> None:
    began = time.process_time()
    TARGETS[name](file.read_bytes())
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_few_hundred_mutations_hold(name: str) -> None:
    rng = random.Random(f"replay {name}")
    seeds = [file.read_bytes() for kept, file in KEPT if kept == name]
    for _ in range(150):
        TARGETS[name](mutate(rng.choice(seeds), seeds, rng))


def test_mutations_repeat_by_seed_and_stay_bounded() -> None:
    seeds = [b"abc" * 30_000, b"x"]
    one, two = (mutate(seeds[0], seeds, random.Random(7)) for _ in range(2))
    assert one == two != seeds[0]
    assert len(one) <= MAX_BYTES
