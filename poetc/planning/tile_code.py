"""The functions of tiles as they become code, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from xdsl.dialects.func import FuncOp

from poetc.costmodel.cost import Cost, kernel_cost
from poetc.costmodel.device import Device
from poetc.costmodel.machine import machine_of
from poetc.costmodel.slices import SliceCosts
from poetc.ir.poet import CostAttr
from poetc.kernels.analysis import work
from poetc.kernels.arrange import Machine
from poetc.kernels.arrange.tile_functions import arranged_tile
from poetc.kernels.distribute import Nest
from poetc.kernels.tiles import Tiled
from poetc.planning.tile_search import TiledKernel


@dataclass
class TileCode:
    """How the functions of the tiles of a kernel become code for a core, and what they cost.

    As a `whole` the kernel costs that. Loops are arranged for the `machine`, so that each operation
    of more code saves `price` instructions of a run; without one they stay as they are. `scale` is
    the measured time of the whole kernel for the time that is counted. Arranging takes long: what
    tiles cost is `known` of those alone that were to be `settled`, and of others that they cost no
    less than the whole kernel.
    """

    device: Device
    whole: CostAttr
    machine: Machine | None = None
    price: float = 0.0
    scale: float = 1.0
    known: dict[object, Cost] = field(default_factory=dict)
    functions: dict[FuncOp, FuncOp] = field(default_factory=dict)

    @staticmethod
    def of(kernel: FuncOp, whole: CostAttr, device: Device, price: float | None) -> TileCode:
        """The code of tiles of a kernel; without a price for a kernel whose loops are as they are
        lowered."""
        machine = None if price is None else machine_of(device)
        scale = 1.0
        if device.profile is not None:
            scale = whole.time_ns / kernel_cost(work(kernel), device).time_ns
        return TileCode(device, whole, machine, price or 0.0, scale)

    def rest_ns(self, lowered: FuncOp) -> float:
        """Time that the kernel takes more as it is lowered, as tiles that are cut off run."""
        if self.machine is None:
            return 0.0
        time_ns = self.scale * kernel_cost(work(lowered), self.device).time_ns
        return max(0.0, time_ns - self.whole.time_ns)

    def function(self, tiled: Tiled) -> FuncOp:
        """The function of tiles as it becomes code."""
        if self.machine is None:
            return tiled.function
        if tiled.function not in self.functions:
            new = arranged_tile(tiled.function, self.machine, self.price)
            self.functions[tiled.function] = new
        return self.functions[tiled.function]

    def settle(self, way: TiledKernel) -> int:
        """Finds out what the kernel costs in tiles: of how many nests that was not known."""
        # Which tensors are on storage makes next to no difference.
        fresh = {key: tiled for key, tiled in _nests(way) if key not in self.known}
        self.known.update({key: self._computing(tiled) for key, tiled in fresh.items()})
        return len(fresh)

    def cost(self, way: TiledKernel, costs: SliceCosts) -> CostAttr:
        """The cost of the kernel in tiles with its transfers, or no more than that where it is not
        settled: no less than as a whole."""
        known = [self.known.get(key, Cost(0, 0)) for key, _ in _nests(way)]
        time_ns, energy_nj = (sum(each) for each in zip(*known, strict=True))
        slices_ns = math.ceil(way.transfer_ns)
        write_ns = min(math.ceil(way.write_ns), slices_ns)
        return CostAttr(
            max(energy_nj, self.whole.energy_nj) + math.ceil(way.transfer_ns * costs.power_w),
            max(time_ns, self.whole.time_ns) + slices_ns,
            way.workspace_bytes,
            self.whole.flops,
            slices_ns - write_ns,
            write_ns,
        )

    def _computing(self, tiled: Tiled) -> Cost:
        """The cost of all tiles without transfers; each is a call of their function."""
        done = work(self.function(tiled))
        calls = prod(-(-v.extent // t) for v, t in zip(tiled.variables, tiled.tiles, strict=True))
        done = replace(done, loops=done.loops + calls, iterations=done.iterations + calls)
        time_ns, energy_nj = kernel_cost(done, self.device)
        return Cost(math.ceil(time_ns * self.scale), math.ceil(energy_nj * self.scale))


_Key = tuple[Nest, tuple[tuple[int, int], ...]]


def _nests(way: TiledKernel) -> Iterator[tuple[_Key, Tiled]]:
    """The nests of a kernel in their tiles, and the tile function of each."""
    for loop in way.loops:
        yield from zip(zip(loop.nests, loop.tiles, strict=True), loop.tiled, strict=True)
