"""Time and energy of moving slices of pages, a run after another.

A run is a stretch of bytes that is adjacent in the page. Each costs the latency of a transfer and
the blocks that it touches; what is written to a part of a block, the block is read for first. Runs
that are not written from the first to the last byte of a page need blocks that are cleared. Where
runs begin at multiples of an alignment, it is not known in which place of a block: what is counted
is the average over all places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from poetc.costmodel.cost import transfer_storage
from poetc.costmodel.device import Device, Storage

Numbers = np.ndarray

_SUM_BYTES = 4
"""Of a sum that is interrupted, a float."""


@dataclass(frozen=True)
class Rates:
    """One direction: nanoseconds of a run, and of a byte of the blocks that it touches."""

    run_ns: float
    byte_ns: float


@dataclass(frozen=True)
class SliceCosts:
    """Costs of slices on a device. `power_w` is drawn while they are moved.

    `loop_ns` and `resumed_ns` are what the code of tiles takes more than that of the kernel: each
    time that a loop is begun, and each time that a sum is interrupted. The energy of code is
    `code_share` of that of transfers that take as long.
    """

    read: Rates
    write: Rates
    block_bytes: int
    power_w: float
    code_share: float = 1.0
    loop_ns: float = 0.0
    resumed_ns: float = 0.0

    @property
    def gap_bytes(self) -> float:
        """Between two runs, reading up to so many bytes costs less than another run."""
        return self.read.run_ns / self.read.byte_ns if self.read.byte_ns else np.inf

    def read_ns(self, runs: Numbers, run_bytes: Numbers, alignment: Numbers) -> Numbers:
        """Time of `runs` reads of `run_bytes` each, from multiples of `alignment`."""
        moved = self._touched_bytes(run_bytes, alignment)
        return runs * (self.read.run_ns + moved * self.read.byte_ns)

    def write_ns(
        self, runs: Numbers, run_bytes: Numbers, alignment: Numbers, page_bytes: int
    ) -> Numbers:
        """Time of `runs` writes, which together are a page, in any order: that of clearing what
        blocks they write in part, and of reading these blocks for both ends of a run."""
        again_ns = 2 * self._again_ns(run_bytes, alignment)
        return self._clear_ns(runs, page_bytes) + self._runs_ns(
            runs, run_bytes, alignment, again_ns
        )

    def append_ns(self, runs: Numbers, run_bytes: Numbers, alignment: Numbers) -> Numbers:
        """The same where they are written from the first to the last byte of the page: nothing is
        cleared, and a run reads the block in which the one before it has ended."""
        again_ns = self._again_ns(run_bytes, alignment)
        return self._runs_ns(runs, run_bytes, alignment, again_ns)

    def _runs_ns(
        self, runs: Numbers, run_bytes: Numbers, alignment: Numbers, again_ns: Numbers
    ) -> Numbers:
        """Time of `runs` writes of `run_bytes` each, from multiples of `alignment`; `again_ns` is
        that of reading blocks for each."""
        whole = self._touched_bytes(run_bytes, alignment)
        return runs * (self.write.run_ns + whole * self.write.byte_ns + again_ns)

    def _again_ns(self, run_bytes: Numbers, alignment: Numbers) -> Numbers:
        """Time of reading the block that one end of a run is inside of, but where it happens to be
        at the edge of one: at most half of what a run touches."""
        whole = self._touched_bytes(run_bytes, alignment)
        unaligned = 1 - np.minimum(alignment, self.block_bytes) / self.block_bytes
        partial = np.minimum(unaligned, whole / self.block_bytes / 2)
        return partial * (self.read.run_ns + self.block_bytes * self.read.byte_ns)

    def _clear_ns(self, runs: Numbers, page_bytes: int) -> Numbers:
        """Time of writing empty what blocks of a page its `runs` write in part, before all of them:
        each run but the last one ends within a block at most, and all blocks are one run."""
        blocks = -(-page_bytes // self.block_bytes)
        block_ns = self.block_bytes * self.write.byte_ns
        each_ns = np.maximum(runs - 1, 0) * (self.write.run_ns + block_ns)
        return np.minimum(each_ns, self.write.run_ns + blocks * block_ns)

    def energy_nj(self, time_ns: Numbers) -> Numbers:
        """Energy of transfers that take so long."""
        return time_ns * self.power_w

    def _touched_bytes(self, run_bytes: Numbers, alignment: Numbers) -> Numbers:
        """Bytes of the blocks that a run touches."""
        step = np.minimum(alignment, self.block_bytes)
        return np.where(run_bytes > 0, -(-run_bytes // step) * step + self.block_bytes - step, 0)


def slice_costs(device: Device) -> SliceCosts:
    """Costs of slices on `device`. Raises InputError if it has no storage."""
    storage = transfer_storage(device)
    power_w = storage.power_w + (0 if device.dma else device.active_power_w)
    read, write, block_bytes = _rates(device, storage)
    # Code that takes more power than transfers, as with DMA, counts no more than they do.
    share = min(1.0, device.active_power_w / power_w) if power_w else 1.0
    return SliceCosts(read, write, block_bytes, power_w, share, *_code_ns(device))


def _rates(device: Device, storage: Storage) -> tuple[Rates, Rates, int]:
    """The rates of reading and writing, and the bytes of a block."""
    if device.profile is None:
        read = Rates(storage.read_latency_s * 1e9, 1e9 / storage.read_bytes_per_s)
        write = Rates(storage.write_latency_s * 1e9, 1e9 / storage.write_bytes_per_s)
        return read, write, storage.block_bytes
    measured = device.profile.transfers
    unit_ns = 1.0
    if device.profile.unit != "ns":
        unit_ns = device.cycles_per_instruction * 1e9 / device.clock_hz
    block_bytes = measured.block_bytes or storage.block_bytes
    read = Rates(
        unit_ns * (measured.in_fixed + measured.per_part),
        unit_ns * (measured.in_per_byte + measured.block_read / block_bytes),
    )
    write = Rates(
        unit_ns * (measured.out_fixed + measured.per_part),
        unit_ns * (measured.out_per_byte + measured.block_write / block_bytes),
    )
    return read, write, block_bytes


def _code_ns(device: Device) -> tuple[float, float]:
    """Time of beginning a loop, and of interrupting a sum: it is stored and loaded in an iteration
    more, where tests say whether it begins and whether it ends."""
    if (cycles := device.cycles) is None:
        sum_ns = _SUM_BYTES * 1e9 / device.memory_bytes_per_s
        return sum_ns, 2 * sum_ns
    each = cycles.loop, cycles.load + cycles.store + 2 * cycles.guard
    loop_ns, resumed_ns = ((n + cycles.iteration) * 1e9 / device.clock_hz for n in each)
    return loop_ns, resumed_ns
