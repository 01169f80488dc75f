"""Time and energy of kernels and transfers on a device.

A kernel takes the cycles of all that it does, counted in its loops as they are arranged for the
device, and draws the active power meanwhile:

    time = (loads * cycles of a load + flops * cycles of a flop + ...) / clock
    energy = active_power * time

Where the cycles of a core are not known, it takes as long as its slower half, arithmetic or memory
traffic (the roofline model: Williams, Waterman and Patterson, CACM 52(4), 2009):

    time = max(flops / flops_per_s, (bytes loaded + bytes stored) / memory_bytes_per_s)

A transfer moves whole blocks and draws the power of the storage (POET, ICML 2022); without DMA the
processor does the moving and draws its active power too:

    time = latency + blocks * block_bytes / bytes_per_s
    energy = (storage_power + (0 if DMA else active_power)) * time

The power drawn all the time is not in these: it is counted once, over the whole step.

No cost may exceed `MAX_COST`, so that costs are exact as floating-point numbers in the solvers and
that of a whole step fits in 64 bits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from poetc.costmodel.device import Cycles, Device, Storage
from poetc.costmodel.profile import content_bytes
from poetc.errors import InputError

if TYPE_CHECKING:
    from poetc.kernels.analysis import Work


class Cost(NamedTuple):
    """Duration in nanoseconds and energy in nanojoules, rounded up to at least 1."""

    time_ns: int
    energy_nj: int


MAX_COST = 1 << 53
"""In nanoseconds (104 days) or nanojoules (9 MJ)."""


def _cost(device: Device, times_s: Mapping[str, float], powers_w: Mapping[str, float]) -> Cost:
    """Cost of what takes the sum of `times_s` at the sum of `powers_w`.

    The keys are those of the device that each comes from: the greatest is to blame if the cost is
    too large.
    """
    time_s, power_w = sum(times_s.values()), sum(powers_w.values())
    _check(time_s * 1e9, "ns", device, times_s)
    cost = Cost(max(1, math.ceil(time_s * 1e9)), 0)
    # The power that is always drawn must not be too large either.
    all_w = {**powers_w, "idle_power_w": device.idle_power_w}
    _check(cost.time_ns * sum(all_w.values()), "nJ", device, all_w)
    return cost._replace(energy_nj=max(1, math.ceil(time_s * power_w * 1e9)))


def _check(value: float, unit: str, device: Device, causes: Mapping[str, float]) -> None:
    # Written so that NaN is too large.
    if not value <= MAX_COST:
        key = max(causes, key=lambda key: causes[key])
        raise InputError(
            f"device {device.name}: a kernel or transfer costs {value:.3g} {unit}, more than "
            f"{MAX_COST:.3g} {unit}: look at {key}"
        )


def _seconds(amount: float, per_s: float) -> float:
    """`amount / per_s`, infinite where that is more than a float holds."""
    return amount / per_s if amount <= per_s * sys.float_info.max else math.inf


def profiled_time_ns(amount: float, device: Device) -> int:
    """Time of `amount`, in the unit of the profile of `device`; at least 1 ns."""
    assert device.profile is not None
    return _cost(device, _profiled(amount, device), {}).time_ns


def profiled_kernel_cost(key: str, device: Device) -> Cost:
    """Cost of one run of a kernel that the profile of `device` has."""
    assert device.profile is not None
    times_s = _profiled(device.profile.kernel(key), device)
    return _cost(device, times_s, {"active_power_w": device.active_power_w})


def _profiled(amount: float, device: Device) -> dict[str, float]:
    """Seconds by the cause, as `_cost` wants them."""
    assert device.profile is not None
    if device.profile.unit == "ns":
        return {"the profile": amount * 1e-9}
    cycles = amount * device.cycles_per_instruction
    return {"clock_hz": _seconds(cycles, device.clock_hz)}


def kernel_cost(work: Work, device: Device) -> Cost:
    """Cost of one run of a kernel that does `work`.

    This and the costs of transfers raise InputError where they exceed `MAX_COST`.
    """
    if device.cycles is None:
        return roofline_cost(work.flops, work.load_bytes + work.store_bytes, device)
    times_s = {"clock_hz": _seconds(cycles_of(work, device.cycles), device.clock_hz)}
    return _cost(device, times_s, {"active_power_w": device.active_power_w})


def cycles_of(work: Work, cycles: Cycles) -> float:
    """Cycles of one run of a kernel that does `work`."""
    counts = work_counts(work)
    return sum(counts[name] * each for name, each in vars(cycles).items())


def work_counts(work: Work) -> dict[str, int]:
    """How often a kernel that does `work` does each thing that a core has `Cycles` of."""
    return {
        "load": work.loads - work.spared_loads,
        "store": work.stores - work.spared_stores,
        "flop": work.flops - work.compares - work.divs - work.chained,
        "chained": work.chained - work.spared_chained,
        "compare": work.compares,
        "divide": work.divs,
        "call": sum(calls for _, calls in work.math),
        "integer": work.int_ops,
        "guard": work.guards,
        "iteration": work.iterations - work.spared_iterations,
        "loop": work.loops,
    }


def roofline_cost(flops: int, moved_bytes: int, device: Device) -> Cost:
    """Cost of a kernel of which nothing else is known."""
    halves_s = {
        "flops_per_s": _seconds(flops, device.flops_per_s),
        "memory_bytes_per_s": _seconds(moved_bytes, device.memory_bytes_per_s),
    }
    slower = max(halves_s, key=lambda key: halves_s[key])
    power_w = {"active_power_w": device.active_power_w}
    return _cost(device, {slower: halves_s[slower]}, power_w)


def pagein_cost(size_bytes: int, device: Device) -> Cost:
    """Cost of reading `size_bytes` from storage; InputError if the device has none."""
    return _page_cost("read", size_bytes, device)


def pageout_cost(size_bytes: int, device: Device) -> Cost:
    """Cost of writing `size_bytes` to storage; InputError if the device has none."""
    return _page_cost("write", size_bytes, device)


def _page_cost(way: str, size_bytes: int, device: Device) -> Cost:
    storage = transfer_storage(device)
    if (profile := device.profile) is not None:
        amount = profile.transfers.expected(way == "write", content_bytes(size_bytes))
        return _transfer(device, storage, _profiled(amount, device))
    latency, rate = f"{way}_latency_s", f"{way}_bytes_per_s"
    seconds = _seconds(_moved_bytes(size_bytes, storage), getattr(storage, rate))
    times_s = {f"storage.{latency}": getattr(storage, latency), f"storage.{rate}": seconds}
    return _transfer(device, storage, times_s)


def transfer_storage(device: Device) -> Storage:
    """The storage of a device; InputError if it has none."""
    if device.storage is None:
        raise InputError(f"device {device.name} has no auxiliary storage")
    return device.storage


def _moved_bytes(size_bytes: int, storage: Storage) -> int:
    return -(-size_bytes // storage.block_bytes) * storage.block_bytes


def _transfer(device: Device, storage: Storage, times_s: Mapping[str, float]) -> Cost:
    powers_w = {"storage.power_w": storage.power_w}
    if not device.dma:
        powers_w["active_power_w"] = device.active_power_w
    return _cost(device, times_s, powers_w)
