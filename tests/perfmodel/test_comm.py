"""All-reduces: free alone, dearer with size, far dearer over PCIe; and how far from measured ones."""

import csv
import gzip
import statistics
from pathlib import Path

import numpy as np
import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.comm import all_reduce_s

SIZES = np.array([1e3, 1e5, 1e7])


def test_one_card_has_nobody_to_talk_to() -> None:
    assert not all_reduce_s(SIZES, catalogue.gpu("h100"), 1).any()


def test_larger_messages_take_longer_and_pcie_longest() -> None:
    nvlink, pcie = (all_reduce_s(SIZES, catalogue.gpu(name), 4) for name in ("h100", "l40s"))
    assert (np.diff(nvlink) > 0).all()
    assert (pcie > 2 * nvlink).all()


def test_an_odd_number_of_cards_costs_what_the_next_larger_known_one_does() -> None:
    three, four = (all_reduce_s(SIZES, catalogue.gpu("h100"), tp) for tp in (3, 4))
    assert three[0] == pytest.approx(four[0], rel=0.01)
    assert all_reduce_s(SIZES, catalogue.gpu("h100"), 16)[0] > 5e-6


@pytest.mark.parametrize(("folder", "card", "version"), [("h100_sxm", "h100", "0.24.0"), ("l40s", "l40s", "0.14.0")])
def test_within_a_quarter_of_measured_ones(shared: Path, folder: str, card: str, version: str) -> None:
    path = shared / "profiles" / "aiconfigurator" / folder / f"comm_vllm_{version}_custom_allreduce_perf.csv.gz"
    errors = []
    with gzip.open(path, "rt") as lines:
        for row in csv.DictReader(lines):
            if row["backend"] == "vllm_graph" and int(row["message_size"]) <= 1 << 26:
                told = all_reduce_s(
                    np.array([2.0 * int(row["message_size"])]), catalogue.gpu(card), int(row["num_gpus"])
                )
                errors.append(abs(float(told[0]) / (float(row["latency"]) / 1e3) - 1))
    assert len(errors) == 60
    assert statistics.median(errors) < 0.25
