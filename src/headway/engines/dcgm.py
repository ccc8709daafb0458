"""NVIDIA's DCGM exporter: device memory, which no engine reports. Not a dialect: it describes GPUs, not replicas.

A replica says in its labels which devices are its own; see `matches`. Values are MiB on the page, bytes here.
Source: the exporter's default counters (`DCGM_FI_DEV_FB_FREE`, `_USED`, `_RESERVED`). The instances of a GPU in MIG
mode share its UUID and are told apart by `GPU_I_ID`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from headway.engines.gauges import usable
from headway.wire import promtext

FREE = "DCGM_FI_DEV_FB_FREE"
USED = "DCGM_FI_DEV_FB_USED"
RESERVED = "DCGM_FI_DEV_FB_RESERVED"
NAMES = frozenset({FREE, USED, RESERVED})
MIB = 1024 * 1024

JOINS = {
    "gpu_uuid": "UUID",
    "gpu_index": "gpu",
    "gpu_instance": "GPU_I_ID",
    "host": "Hostname",
    "namespace": "namespace",
    "pod": "pod",
}
"""Replica label -> DCGM label. Several devices are given as a comma-separated list."""
NARROW = frozenset({"gpu_uuid", "gpu_index", "pod"})
"""A replica must have one of these: a host alone would claim every device on it."""


class Device(msgspec.Struct, frozen=True):
    """The memory of one GPU, or of one instance of it, and the labels by which it is found."""

    labels: dict[str, str]
    free_bytes: int
    total_bytes: int


def read(page: bytes) -> tuple[Device, ...]:
    """The devices of an exporter's page whose values are usable."""
    families = promtext.read(page, NAMES)
    used, reserved = _by_device(families.get(USED, ())), _by_device(families.get(RESERVED, ()))
    devices = []
    for labels, free in families.get(FREE, ()):
        key = _key(labels)
        if usable(free) and key in used:
            total = free + used[key] + reserved.get(key, 0.0)
            devices.append(Device(dict(labels), int(free * MIB), int(total * MIB)))
    return tuple(devices)


def matches(device: Device, labels: Mapping[str, str]) -> bool:
    """Whether a replica with these labels runs on the device: every label it states must agree, at least one of
    gpu_uuid, gpu_index or pod among them."""
    stated = {ours: labels[ours] for ours in JOINS if labels.get(ours)}
    return bool(NARROW & stated.keys()) and all(
        device.labels.get(JOINS[ours]) in wanted.split(",") for ours, wanted in stated.items()
    )


def memory(devices: Sequence[Device], labels: Mapping[str, str]) -> tuple[int, int] | None:
    """(free, total) bytes over a replica's devices, None if none of them is known."""
    own = [device for device in devices if matches(device, labels)]
    return (sum(d.free_bytes for d in own), sum(d.total_bytes for d in own)) if own else None


def _key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("Hostname", ""), labels.get("UUID") or labels.get("gpu", ""), labels.get("GPU_I_ID", "")


def _by_device(series: Sequence[tuple[Mapping[str, str], float]]) -> dict[tuple[str, str, str], float]:
    return {_key(labels): value for labels, value in series if usable(value)}
