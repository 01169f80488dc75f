"""Time and energy of kernels and transfers on a device.

A kernel takes as long as its slower half, arithmetic or memory traffic (the roofline model:
Williams, Waterman and Patterson, CACM 52(4), 2009), and draws the active power meanwhile:

    time = max(flops / flops_per_s, (bytes loaded + bytes stored) / memory_bytes_per_s)
    energy = active_power * time

A transfer moves whole blocks and draws the power of the storage (POET, ICML 2022); without DMA the
processor does the moving and draws its active power too:

    time = latency + blocks * block_bytes / bytes_per_s
    energy = (storage_power + (0 if DMA else active_power)) * time

The power drawn all the time is not in these: it is counted once, over the whole step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from poetc.costmodel.device import Device, Storage
from poetc.errors import InputError

if TYPE_CHECKING:
    from poetc.kernels.analysis import Work


class Cost(NamedTuple):
    """Duration in nanoseconds and energy in nanojoules, rounded up to at least 1."""

    time_ns: int
    energy_nj: int


def _cost(time_s: float, power_w: float) -> Cost:
    return Cost(max(1, math.ceil(time_s * 1e9)), max(1, math.ceil(time_s * power_w * 1e9)))


def kernel_cost(work: Work, device: Device) -> Cost:
    """Cost of one run of a kernel that does `work`."""
    moved_bytes = work.load_bytes + work.store_bytes
    time_s = max(work.flops / device.flops_per_s, moved_bytes / device.memory_bytes_per_s)
    return _cost(time_s, device.active_power_w)


def pagein_cost(size_bytes: int, device: Device) -> Cost:
    """Cost of reading `size_bytes` from storage; InputError if the device has none."""
    storage = _storage(device)
    rate = storage.read_bytes_per_s
    return _transfer(size_bytes, device, storage, storage.read_latency_s, rate)


def pageout_cost(size_bytes: int, device: Device) -> Cost:
    """Cost of writing `size_bytes` to storage; InputError if the device has none."""
    storage = _storage(device)
    rate = storage.write_bytes_per_s
    return _transfer(size_bytes, device, storage, storage.write_latency_s, rate)


def _storage(device: Device) -> Storage:
    if device.storage is None:
        raise InputError(f"device {device.name} has no auxiliary storage")
    return device.storage


def _transfer(
    size_bytes: int, device: Device, storage: Storage, latency_s: float, bytes_per_s: float
) -> Cost:
    blocks = -(-size_bytes // storage.block_bytes)
    power_w = storage.power_w + (0.0 if device.dma else device.active_power_w)
    return _cost(latency_s + blocks * storage.block_bytes / bytes_per_s, power_w)
