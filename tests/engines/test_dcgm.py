"""Device memory joined to replicas by label."""

import pytest

from headway.engines import dcgm
from tests.engines import pages

MIB = 1024 * 1024
DEVICES = dcgm.read(pages.DCGM.encode())


def test_devices_with_both_values_are_read_and_reserved_memory_counts_in_the_total() -> None:
    assert [(d.labels["UUID"], d.free_bytes // MIB, d.total_bytes // MIB) for d in DEVICES] == [
        ("GPU-aa", 1000, 81559),
        ("GPU-bb", 2000, 81000),
    ]


@pytest.mark.parametrize(
    ("labels", "free_mib"),
    [
        ({"gpu_uuid": "GPU-aa"}, 1000),
        ({"gpu_uuid": "GPU-aa,GPU-bb"}, 3000),
        ({"host": "n1", "gpu_index": "1"}, 2000),
        ({"namespace": "llm", "pod": "vllm-0"}, 1000),
        ({"host": "n1", "gpu_index": "1", "team": "x"}, 2000),
    ],
)
def test_a_replica_finds_its_devices(labels: dict[str, str], free_mib: int) -> None:
    memory = dcgm.memory(DEVICES, labels)
    assert memory is not None
    assert memory[0] == free_mib * MIB


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"host": "n1"},
        {"namespace": "llm"},
        {"gpu_uuid": "GPU-zz"},
        {"host": "n2", "gpu_index": "0"},
        {"gpu_uuid": ""},
    ],
)
def test_labels_that_name_no_device_find_none(labels: dict[str, str]) -> None:
    assert dcgm.memory(DEVICES, labels) is None


def test_instances_of_one_gpu_are_told_apart() -> None:
    """They share its UUID: the memory of the last one was taken for that of each."""
    page = "".join(
        f'DCGM_FI_DEV_FB_{name}{{Hostname="n",UUID="GPU-a",gpu="0",GPU_I_PROFILE="1g",GPU_I_ID="{instance}"}} {mib}\n'
        for instance, free, used in ((7, 1000, 9000), (8, 4000, 2000))
        for name, mib in (("FREE", free), ("USED", used), ("RESERVED", 10 * instance))
    )
    devices = dcgm.read(page.encode())

    def mib(labels: dict[str, str]) -> list[int]:
        return [amount // MIB for amount in dcgm.memory(devices, labels) or ()]

    assert mib({"gpu_uuid": "GPU-a", "gpu_instance": "7"}) == [1000, 10070]
    assert mib({"gpu_uuid": "GPU-a", "gpu_instance": "8"}) == [4000, 6080]
    assert mib({"gpu_uuid": "GPU-a", "gpu_instance": "7,8"}) == mib({"gpu_uuid": "GPU-a"}) == [5000, 16150]
    assert mib({"gpu_instance": "7"}) == [], "an instance of which GPU"


@pytest.mark.parametrize("value", ["NaN", "-1", "1e308"])
def test_values_that_cannot_be_true_are_no_device(value: str) -> None:
    assert dcgm.read(f'DCGM_FI_DEV_FB_FREE{{UUID="a"}} {value}\nDCGM_FI_DEV_FB_USED{{UUID="a"}} 1\n'.encode()) == ()
    assert dcgm.read(f'DCGM_FI_DEV_FB_FREE{{UUID="a"}} 1\nDCGM_FI_DEV_FB_USED{{UUID="a"}} {value}\n'.encode()) == ()
