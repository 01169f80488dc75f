"""The ways to run one kernel: of each nest the tilings that are worth it, and of all together the
Pareto front over RAM, energy and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np
from xdsl.dialects import func

from poetc.costmodel.cost import Cost
from poetc.costmodel.device import Device
from poetc.costmodel.slices import slice_costs
from poetc.kernels.analysis import buffer_bytes, workspace_bytes
from poetc.variants.footprints import distinct
from poetc.variants.nests import Nest, Stream, Tree, nests
from poetc.variants.tiling import NestSearch, Tiled, Tiling

MOST_VARIANTS = 12
"""Of a kernel, unless more are asked for: with these transfers take some percent longer than with
all of them, on the average over budgets."""

_POSITION_BYTES = 4

MOST_RESIDENT = 3
"""Buffers of which the resident sets of a kernel are made."""


@dataclass(frozen=True)
class Variant:
    """One way to run a kernel.

    `resident` are the numbers of the buffers, operands and then results, that are in RAM whole; the
    others are on storage. Bringing the resident ones there and back is not counted. `tilings` has
    one for each nest, in the order in which they run. `ram_bytes` is all RAM while it runs:
    resident buffers, slices, sums, workspaces. `time_ns` and `energy_nj` are those of the kernel
    with its transfers, and with writing empty first what is written in slices. No tiling moves less
    than `least_bytes` in that RAM.
    """

    resident: frozenset[int]
    tilings: tuple[Tiling, ...]
    ram_bytes: int
    read_bytes: int
    written_bytes: int
    runs: int
    time_ns: int
    energy_nj: int
    least_bytes: int

    @property
    def moved_bytes(self) -> int:
        """Read and written."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class _Point:
    ram_bytes: int
    transfer_ns: float
    parts: tuple[Tiled, ...]


class KernelSearch:
    """The ways to run one kernel that costs `cost`, in at most `ram_bytes` of RAM.

    Raises InputError where the device has no storage.
    """

    def __init__(
        self, function: func.FuncOp, device: Device, cost: Cost, ram_bytes: int | None = None
    ) -> None:
        self.function, self.cost, self.ram_bytes = function, cost, ram_bytes
        self.costs = slice_costs(device)
        self.buffers = (1, 2) if device.dma else (1,)
        self.tree = nests(function)
        self._searches: dict[Nest, NestSearch] = {}

    def variants(
        self, resident: frozenset[int] = frozenset(), most: int = MOST_VARIANTS
    ) -> list[Variant]:
        """At most `most` ways by growing RAM, with the `resident` buffers in RAM whole and all
        others on storage. None is worse in RAM, energy and time than another one. There is none
        where the kernel needs more RAM."""
        fixed = workspace_bytes(self.function) + sum(
            buffer_bytes(self.function.body.block.args[n]) for n in resident
        )
        fixed += sum(_list_bytes(nest, resident) for nest in _leaves(self.tree))
        limit = np.inf if self.ram_bytes is None else self.ram_bytes - fixed
        bound = _Bound(self.tree, resident)
        found: list[Variant] = []
        clear_ns = self._clear_ns(resident)
        for buffers in self.buffers:
            for point in self._front(self.tree, resident, limit, buffers):
                ram_bytes = fixed + point.ram_bytes
                time_ns, energy_nj = self._cost(point, buffers, clear_ns)
                found.append(
                    Variant(
                        resident,
                        tuple(tiled.tiling for tiled in point.parts),
                        ram_bytes,
                        sum(tiled.read_bytes for tiled in point.parts),
                        sum(tiled.written_bytes for tiled in point.parts),
                        sum(tiled.runs for tiled in point.parts),
                        time_ns,
                        energy_nj,
                        bound.bytes(ram_bytes),
                    )
                )
        found.sort(key=lambda v: (v.ram_bytes, v.energy_nj, v.time_ns, v.moved_bytes))
        best: list[Variant] = []
        for variant in found:
            if all(v.energy_nj > variant.energy_nj or v.time_ns > variant.time_ns for v in best):
                best.append(variant)
        return _spread(best, most)

    def resident_sets(self) -> list[frozenset[int]]:
        """Which buffers it may pay to have in RAM whole: none, each of the largest ones that fit
        beside a few slices, the two largest, and all of those that several nests touch in turn,
        each of which would move them again; beside those that cannot be streamed."""
        nests_of: Counter[int] = Counter()
        for nest in _leaves(self.tree):
            nests_of.update({stream.buffer for stream in nest.streams})
        partial = {s.buffer for n in _leaves(self.tree) for s in n.streams if s.partial}
        sizes = {n: buffer_bytes(self.function.body.block.args[n]) for n in nests_of}
        room = np.inf if self.ram_bytes is None else 0.75 * self.ram_bytes
        fit = [n for n in sizes if sizes[n] <= room]
        largest = sorted(fit, key=lambda n: (-sizes[n], n))[:MOST_RESIDENT]
        shared = frozenset(n for n in largest if nests_of[n] > 1)
        sets = [frozenset(), *(frozenset({n}) for n in largest), frozenset(largest[:2]), shared]
        return list(dict.fromkeys(each | partial for each in sets))

    def _clear_ns(self, resident: frozenset[int]) -> float:
        """Time of writing the results that are on storage empty before all tiles."""
        made = {s.buffer for n in _leaves(self.tree) for s in n.streams if s.stored} - resident
        arguments = self.function.body.block.args
        return sum(self.costs.clear_ns(buffer_bytes(arguments[n])) for n in made)

    def _cost(self, point: _Point, buffers: int, clear_ns: float) -> tuple[int, int]:
        """Time and energy, with the transfers."""
        transfer_ns, time_ns = point.transfer_ns, self.cost.time_ns + point.transfer_ns
        if buffers == 2:
            # The first slices arrive before computing begins, the last ones leave after it.
            ends_ns = sum(tiled.transfer_ns / tiled.steps for tiled in point.parts)
            time_ns = max(self.cost.time_ns, transfer_ns) + ends_ns
        transfer_ns += clear_ns
        energy_nj = self.cost.energy_nj + self.costs.power_w * transfer_ns
        return round(time_ns + clear_ns), round(energy_nj)

    def _front(
        self, tree: Tree, resident: frozenset[int], limit: float, buffers: int
    ) -> list[_Point]:
        """Points by growing RAM and falling time of transfers."""
        if isinstance(tree, Nest):
            if tree not in self._searches:
                self._searches[tree] = NestSearch(tree, self.costs)
            tiled = self._searches[tree].front(limit, buffers, resident)
            return [_Point(each.ram_bytes, each.transfer_ns, (each,)) for each in tiled]
        room = limit - tree.kept_bytes
        fronts = [self._front(part, resident, room, buffers) for part in tree.parts]
        points = _in_turn(fronts, tree.kept_bytes) if all(fronts) else []
        if tree.together is not None:
            points += self._front(tree.together, resident, limit, buffers)
        points.sort(key=lambda point: (point.ram_bytes, point.transfer_ns))
        best: list[_Point] = []
        for point in points:
            if not best or point.transfer_ns < best[-1].transfer_ns:
                best.append(point)
        return best


def _in_turn(fronts: Sequence[Sequence[_Point]], kept_bytes: int) -> list[_Point]:
    """Nests one after the other: RAM for the greatest of them, time of all."""
    points: list[_Point] = []
    for ram in sorted({point.ram_bytes for front in fronts for point in front}):
        within = [[point for point in front if point.ram_bytes <= ram] for front in fronts]
        if all(within):
            last = [each[-1] for each in within]
            parts = tuple(tiled for point in last for tiled in point.parts)
            points.append(_Point(ram + kept_bytes, sum(p.transfer_ns for p in last), parts))
    return points


def _spread(found: list[Variant], most: int) -> list[Variant]:
    """Some of the variants, first and last among them: again and again the one is left out that
    its neighbour with less RAM replaces at the least cost."""
    found = list(found)
    while len(found) > max(2, most):
        losses = [
            found[i - 1].energy_nj / found[i].energy_nj + found[i - 1].time_ns / found[i].time_ns
            for i in range(1, len(found) - 1)
        ]
        del found[1 + losses.index(min(losses))]
    return found[:most]


# Bounds


@dataclass(frozen=True)
class _Product:
    """A product of matrices, or many: `times` of them with m · n · k = `size`."""

    times: int
    size: int
    element_bytes: int

    def bytes(self, ram_bytes: int) -> float:
        """2mnk/√S - 2S elements at least are moved in RAM for S (Smith, Lowery, Langou and van de
        Geijn, 2019)."""
        elements = max(1, ram_bytes // self.element_bytes)
        least = 2 * self.size / sqrt(elements) - 2 * elements
        return self.times * max(0.0, least) * self.element_bytes


class _Bound:
    """What is moved at least in whatever tiles."""

    def __init__(self, tree: Tree, resident: frozenset[int]) -> None:
        touched: dict[tuple[int, bool], int] = {}
        made: set[int] = set()
        self.products: list[_Product] = []
        for nest in _leaves(tree):
            extents = [loop.extent for loop in nest.loops]
            for stream in nest.streams:
                if stream.buffer in resident:
                    continue
                key = stream.buffer, stream.stored
                touched[key] = max(touched.get(key, 0), distinct(stream, extents))
                made |= {stream.buffer} if stream.stored else set()
            product = _product(nest, resident)
            self.products += [product] if product else []
        # A result that is read again may still be there.
        self.compulsory = sum(
            n for (buffer, out), n in touched.items() if out or buffer not in made
        )

    def bytes(self, ram_bytes: int) -> int:
        """In this much RAM."""
        return max(self.compulsory, round(sum(p.bytes(ram_bytes) for p in self.products)))


def _list_bytes(nest: Nest, resident: frozenset[int]) -> int:
    """Of the lists of rows that are looked up in buffers on storage (`kernels/positions.py`)."""
    return sum(
        _POSITION_BYTES * dim.rows * prod(nest.loops[loop].extent for loop, _ in dim.terms)
        for stream in nest.streams
        if stream.buffer not in resident
        for dim in stream.dims
    )


def _leaves(tree: Tree) -> Sequence[Nest]:
    """The nests that run one after the other."""
    if isinstance(tree, Nest):
        return [tree]
    return [nest for part in tree.parts for nest in _leaves(part)]


def _product(nest: Nest, resident: frozenset[int]) -> _Product | None:
    """A nest as a product of matrices: each loop in two of three streams, or in all of them."""
    extents = [loop.extent for loop in nest.loops]
    sums = set(range(nest.parallel, len(extents)))
    inside = [s for s in nest.streams if not s.stored and sums & s.needed_in and _loops(s)]
    stored = [s for s in nest.streams if s.stored and not sums & s.needed_in]
    if len(inside) != 2 or not sums or not stored:
        return None
    left, right = map(_loops, inside)
    together = [*inside, stored[0]]
    if any(s.buffer in resident for s in together):
        return None
    for stream in together:
        touched = prod(extents[loop] for loop in _loops(stream))
        if touched * stream.element_bytes != distinct(stream, extents):
            return None
    parallel = set(range(nest.parallel))
    if sums - (left & right) or parallel - (left | right) or _loops(stored[0]) != parallel:
        return None
    batch = parallel & left & right
    size = prod(extents[loop] for loop in range(len(extents)) if loop not in batch)
    times = prod(extents[loop] for loop in batch)
    return _Product(times, size, min(s.element_bytes for s in together))


def _loops(stream: Stream) -> set[int]:
    return {loop for dim in stream.dims for loop, _ in dim.terms}
