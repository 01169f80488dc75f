"""Variants of the operations of a problem: their kernels in tiles, with some tensors on storage."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from poetc.costmodel.device import Device
from poetc.costmodel.slices import SliceCosts, slice_costs
from poetc.ir.graph import GraphView, graphs
from poetc.ir.poet import ComputeOp, CostAttr, GraphOp, RunOp, StreamOp
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import buffers, may_alias
from poetc.kernels.arrange.tile_functions import lowered_kernels
from poetc.kernels.structure import structure
from poetc.kernels.tiles import Tiled
from poetc.planning.tile_code import TileCode
from poetc.planning.tile_loops import stream_of
from poetc.planning.tile_search import KernelTiles, TiledKernel, pairs
from poetc.schedule.arena.pack import round_up
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Operation, Place, Problem, Step, Variant
from poetc.schedule.model.rebuild import share

ARRANGE = 8e-3
"""Work of arranging the loops of a function of tiles."""

_SMALL = 32
"""A tensor that takes at most such a part of the RAM is resident wherever that is possible."""

_LARGEST = 4
"""Tensors of an operation that are streamed alone, or resident alone."""

_WAYS = 4
"""The most ways to run a kernel with one set of tensors on storage, in ever less RAM."""


@dataclass(frozen=True)
class KnownTiles:
    """The known tiles and tile code of the kernels of a step on one device, by the names of the
    kernels. All searches of the step share them, and those of another step with the same kernels
    the tiles of `both`, by the names and the structure of the kernels."""

    kernels: dict[str, KernelTiles] = field(default_factory=dict)
    codes: dict[str, TileCode] = field(default_factory=dict)
    both: dict[Hashable, KernelTiles] = field(default_factory=dict)

    def add(self, name: str, lowered: FuncOp, costs: SliceCosts, code: TileCode) -> None:
        """Adds a kernel, which stays as it is, and the code of its tiles."""
        self.codes[name] = code
        key = name, structure(lowered)
        if key not in self.both:
            # The module may lose the function, once its graph is scheduled.
            self.both[key] = KernelTiles(lowered.clone(), costs, code.rest_ns(lowered))
        self.kernels[name] = self.both[key]


def with_variants(
    view: GraphView,
    device: Device,
    ram_bytes: int | None,
    align: int,
    known: KnownTiles,
    effort: Effort,
    least: Effort,
) -> GraphView:
    """`view`, of an unscheduled graph whose kernels are lowered, with variants that run within
    `ram_bytes` at the costs of `device`; without a limit with those that need as little RAM as is
    known to be possible, where it is they that need most, whatever they cost. Where the `effort` is
    over before, some are left out; operations that need one have one until the effort `least` is
    over. Raises InputError where it has no storage."""
    made = _Variants(view, device, slice_costs(device), align, known, effort)
    any_tiles = made.least_problem(ram_bytes)
    instance = Instance(any_tiles)
    needed_bytes, _ = ram_needed_in_any_order(instance)
    in_time = time_needed(instance) <= (any_tiles.deadline_ns or math.inf)
    turns: dict[int, Iterator[bool]] = {}
    if ram_bytes is None or (needed_bytes <= ram_bytes and in_time):
        # Else there is no schedule in any tiles.
        turns = {k: made.offers(k, ram_bytes, needed_bytes) for k in range(instance.n)}
    for k, turn in turns.items():
        whole_bytes = made.resident_bytes(k, frozenset(), shared=True)
        whole_bytes += view.problem.operations[k].workspace_bytes
        is_large = ram_bytes is not None and whole_bytes > ram_bytes
        if is_large and (least.over or not next(turn, False)):
            break
    # One way of each operation after the other, so that each has some when the effort is over.
    waiting = deque(turns.values())
    while waiting and not effort.over:
        turn = waiting.popleft()
        if next(turn, False):
            waiting.append(turn)
    made.view = replace(view, any_tiles=any_tiles, left_out=bool(waiting))
    return made.tiled()


def drop_kernels(graph: GraphOp, before: Iterable[RunOp]) -> None:
    """Erases the kernels of the runs `before` that no compute runs any more, and all that tiles are
    made of."""
    module = graph.parent_op()
    if not isinstance(module, ModuleOp):
        return
    used = {compute.kernel for each in graphs(module) for compute in each.computes}
    old = {op.kernel for op in before if isinstance(op, ComputeOp)} - used
    names = {kernel.string_value() for kernel in old if kernel is not None}
    names.update(op.sym_name.data for op, _ in lowered_kernels(module.ops).values())
    for op in list(module.ops):
        if isinstance(op, FuncOp) and op.sym_name.data in names:
            op.detach()
            op.erase()


class _Way(NamedTuple):
    """A way to run an operation: the tensors that are `streamed`, and the kernel in tiles."""

    streamed: frozenset[int]
    tiled: TiledKernel


Ways = Mapping[int, tuple[_Way, ...]]
"""The variants of each operation."""


@dataclass
class _Variants:
    """The variants of the operations of a view, by their numbers."""

    view: GraphView
    device: Device
    costs: SliceCosts
    align: int
    known: KnownTiles
    effort: Effort
    offered: dict[int, list[_Way]] = field(default_factory=dict)
    """The ways to run each operation, whether they are worth it or not."""
    names: dict[int, str] = field(default_factory=dict)
    """The names of tile functions in the module, by the identities of the kernels that they are
    made of."""

    def __post_init__(self) -> None:
        module = self.view.graph.parent_op()
        assert isinstance(module, ModuleOp)
        self.module = module
        self.functions = named_in(module, FuncOp)
        self.lowered = lowered_kernels(module.ops)

    def tiled(self) -> GraphView:
        """The view with those variants that are worth it at what is known of their cost."""
        ways = {
            k: self._undominated(k, self.offered.get(k, [])) for k in range(len(self.view.computes))
        }
        return self._view(ways)

    def _view(self, ways: Ways) -> GraphView:
        problem = self.problem(lambda k: tuple(self._variant(k, way) for way in ways[k]))
        make_stream, settle = partial(self.stream, ways), partial(self.settle, ways)
        return replace(self.view, problem=problem, make_stream=make_stream, settle=settle)

    def settle(self, ways: Ways, steps: Sequence[Step]) -> tuple[GraphView, GraphView] | None:
        """The `GraphView.settle` of the view with these ways."""
        arranged = sum(
            self._code(step.operation).settle(ways[step.operation][step.variant].tiled)
            for step in steps
            if isinstance(step, Compute) and step.variant is not None
        )
        self.effort.spend(ARRANGE * arranged)
        return (self._view(ways), self.tiled()) if arranged else None

    def problem(self, variants: Callable[[int], tuple[Variant, ...]]) -> Problem:
        """The problem with these variants of each operation."""
        operations = tuple(
            replace(operation, variants=variants(k))
            for k, operation in enumerate(self.view.problem.operations)
        )
        return replace(self.view.problem, operations=operations)

    def least_problem(self, ram_bytes: int | None) -> Problem:
        """The problem in which operations need no more RAM and time than in any tiles. Where a
        tensor is streamed by all that read or make it, what every schedule moves of it is in the
        time of an operation: once, what is on storage before or after the step, and each time, what
        does not fit into RAM. On a device with DMA, reading may go on while kernels compute
        (`read_graph_ahead`)."""
        problem = self.problem(self.least)
        if problem.dma:
            # Transfers take no time of the processor.
            return problem
        instance = Instance(problem)
        reading_ns, moving_ns = 0.0, [0.0] * instance.n
        for v, tensor in enumerate(problem.tensors):
            too_large = ram_bytes is not None and tensor.bytes > ram_bytes
            readers, producer = instance.readers[v], instance.producer[v]
            if all(v in instance.may_stream[k] for k in readers) and tensor.end is not Place.RAM:
                each = {k: self._moving_ns(k, v, written=False) for k in readers}
                if too_large:
                    reading_ns += sum(each.values())
                elif each and instance.stored_at_start[v]:
                    reading_ns += min(tensor.pagein_time_ns, *each.values())
            if producer is not None and v in instance.may_stream[producer]:
                time_ns = self._moving_ns(producer, v, written=True)
                if too_large:
                    moving_ns[producer] += time_ns
                elif instance.must_store[v]:
                    moving_ns[producer] += min(tensor.pageout_time_ns, time_ns)
        if self.device.dma:
            reading_ns = max(0.0, reading_ns - instance.base_time_ns)
        if moving_ns:
            moving_ns[0] += reading_ns
        return replace(problem, operations=tuple(map(_later, problem.operations, moving_ns)))

    def _moving_ns(self, k: int, v: int, written: bool) -> float:
        """The least time in which operation `k` moves a tensor that it streams."""
        kernel = self._kernel(k)
        assert kernel is not None
        positions, _ = self._streamable(k, kernel)
        return kernel.least_moving_ns(positions[v], written)

    def offers(self, k: int, ram_bytes: int | None, least_bytes: int) -> Iterator[bool]:
        """Offers ways to run operation `k`, yielding True after each look for some: first that in
        `least_bytes`, or the least that is found; then those within the RAM, if it is limited."""
        kernel = self._kernel(k)
        if kernel is None:
            return
        operation, unit = self.view.problem.operations[k], self._unit(k)
        positions, streamable = self._streamable(k, kernel)
        found = self.offered.setdefault(k, [])

        def front(streamed: frozenset[int], room_bytes: int, most: int | None) -> None:
            at = frozenset().union(*(positions[v] for v in streamed))
            before, room_bytes = kernel.work, room_bytes // unit * unit
            if most is not None:
                found.extend(_Way(streamed, way) for way in kernel.front(at, room_bytes, most))
            elif (way := kernel.smallest(at, max(0, room_bytes))) is not None:
                found.append(_Way(streamed, way))
            self.effort.spend(kernel.work - before)

        every = frozenset(streamable)
        whole_bytes = self.resident_bytes(k, frozenset(), shared=True) + operation.workspace_bytes
        if every and whole_bytes > least_bytes:
            front(every, least_bytes - self.resident_bytes(k, every, shared=True), None)
            yield True
        if ram_bytes is None:
            return
        for streamed in self._sets(operation, positions, streamable, kernel, ram_bytes):
            # In place results take no room, where what they replace dies; or they do.
            for count, shared in ((_WAYS, True), (1, False)):
                front(streamed, ram_bytes - self.resident_bytes(k, streamed, shared), count)
            yield True

    def _undominated(self, k: int, found: Sequence[_Way]) -> tuple[_Way, ...]:
        """The ways that no other one dominates in RAM, energy and time, even if the other moves
        whole tensors in place of slices."""
        tensors, operation = self.view.problem.tensors, self.view.problem.operations[k]

        def needed(variant: Variant) -> int:
            resident_bytes = self.resident_bytes(k, variant.streamed, shared=False)
            return variant.workspace_bytes + resident_bytes

        def better(one: Variant, other: Variant) -> bool:
            if not one.streamed <= other.streamed or needed_bytes[one] > needed_bytes[other]:
                return False
            energy_nj, time_ns = one.energy_nj, one.time_ns
            for v in other.streamed - one.streamed:
                made, tensor = v in operation.outputs, tensors[v]
                energy_nj += tensor.pageout_energy_nj if made else tensor.pagein_energy_nj
                time_ns += tensor.pageout_time_ns if made else tensor.pagein_time_ns
            return energy_nj <= other.energy_nj and time_ns <= other.time_ns

        kept: dict[Variant, _Way] = {}
        variants = [self._variant(k, way) for way in found]
        needed_bytes = {variant: needed(variant) for variant in variants}
        for variant, way in zip(variants, found, strict=True):
            if not any(better(other, variant) for other in kept):
                kept = {other: of for other, of in kept.items() if not better(variant, other)}
                kept[variant] = way
        return tuple(kept.values())

    def _variant(self, k: int, way: _Way) -> Variant:
        """A way to run operation `k`, at what is known of its cost."""
        tiled = way.tiled
        cost = self._code(k).cost(tiled, self.costs)
        return Variant(
            way.streamed,
            round_up(cost.workspace, self._unit(k)),
            cost.time_ns,
            math.ceil(tiled.transfer_ns),
            cost.energy_nj,
            tiled.read_bytes,
            tiled.written_bytes,
        )

    def resident_bytes(self, k: int, streamed: frozenset[int], shared: bool) -> int:
        """The bytes of the tensors of operation `k` that are not streamed. If buffers are `shared`,
        all inputs die there and results take over their buffers; else only new values of parameters
        take over buffers."""
        problem, operation = self.view.problem, self.view.problem.operations[k]
        tensors = problem.tensors
        inputs, outputs = set(operation.inputs) - streamed, set(operation.outputs) - streamed
        replaced = {tensors[v].replaces for v in outputs}
        dying = inputs if shared else {v for v in inputs if v in replaced}
        saved = sum(tensors[o].bytes for o, _ in share(problem, k, dying, outputs))
        return sum(tensors[v].bytes for v in inputs | outputs) - saved

    def _unit(self, k: int) -> int:
        """The unit that the workspace of operation `k` is a multiple of, in bytes."""
        return max(self.align, self.view.problem.operations[k].workspace_align)

    def least(self, k: int) -> tuple[Variant, ...]:
        """One variant of operation `k` that needs no more than it does in any tiles: nothing is in
        RAM whole that may be streamed, and moving costs nothing. Of a result that may share a
        buffer nothing is counted: whole, it might take no RAM of its own."""
        operation, kernel = self.view.problem.operations[k], self._kernel(k)
        if kernel is None:
            return ()
        positions, streamable = self._streamable(k, kernel)
        if not streamable:
            return ()
        own = streamable - {output for output, _ in operation.inplace}
        workspace_bytes = kernel.least_bytes([positions[v] for v in sorted(own)])
        time_ns, energy_nj = operation.time_ns, operation.energy_nj
        return (Variant(frozenset(streamable), workspace_bytes, time_ns, 0, energy_nj),)

    def _kernel(self, k: int) -> KernelTiles | None:
        """The kernel of operation `k`; None where it has none."""
        compute = self.view.computes[k]
        assert isinstance(compute, ComputeOp)
        name = compute.kernel.string_value() if compute.kernel is not None else ""
        function = self.functions.get(name)
        if function is None:
            return None
        lowered, price = self.lowered.get(name, (function, None))
        if name not in self.known.kernels:
            whole = compute.cost or CostAttr(0)
            code = TileCode.of(function, whole, self.device, price)
            self.known.add(name, lowered, self.costs, code)
        return self.known.kernels[name]

    def _streamable(
        self, k: int, kernel: KernelTiles
    ) -> tuple[Mapping[int, frozenset[int]], set[int]]:
        """For each tensor of operation `k` the buffers of the kernel that it is; and the tensors
        that may be streamed. An old value that a new one replaces may be if that may be."""
        compute, operation = self.view.computes[k], self.view.problem.operations[k]
        tensors = self.view.problem.tensors
        assert isinstance(compute, ComputeOp)
        positions = buffers_of(compute, operation)
        streamable = {
            v for v, at in positions.items() if tensors[v].pageable and at <= kernel.streamable
        }
        stay = {tensors[v].replaces for v in operation.outputs if v not in streamable}
        return positions, streamable - stay

    def _sets(
        self,
        operation: Operation,
        positions: Mapping[int, frozenset[int]],
        streamable: set[int],
        kernel: KernelTiles,
        ram_bytes: int,
    ) -> list[frozenset[int]]:
        """Sets of tensors that it may pay to stream: all large ones, all but one, each alone."""
        tensors = self.view.problem.tensors
        by_size = sorted(streamable, key=lambda v: (-tensors[v].bytes, v))
        large = [v for v in by_size if tensors[v].bytes * _SMALL > ram_bytes]
        many, few = frozenset(large), large[:_LARGEST]
        sets = [
            many,
            *(many - {v} for v in few),
            *map(frozenset, combinations(few, 2)),
            *(frozenset({v}) for v in few),
            frozenset(by_size),
        ]
        together = [
            pair for pair in operation.inplace if not _stays_in_place(kernel, positions, pair)
        ]
        closed: list[frozenset[int]] = []
        for streamed in map(set, sets):
            for new, old in together:
                # They cannot share a buffer in tiles, so that one of them is on storage.
                if not streamed & {new, old}:
                    streamed.add(old if old in streamable else new)
            # A parameter whose old value is on storage only gets the new one there.
            streamed |= {v for v in operation.outputs if tensors[v].replaces in streamed}
            if streamed and streamed <= streamable:
                closed.append(frozenset(streamed))
        return list(dict.fromkeys(closed))

    def stream(self, ways: Ways, k: int, variant: int, operands: Sequence[SSAValue]) -> StreamOp:
        """The stream of a variant that is settled, whose tile functions are in the module then."""
        compute, way = self.view.computes[k], ways[k][variant].tiled
        assert isinstance(compute, ComputeOp)
        assert compute.kernel is not None
        kernel, code = compute.kernel.string_value(), self._code(k)
        names = [[self._name(kernel, code, t) for t in loop.tiled] for loop in way.loops]
        return stream_of(compute, way, names, operands, code.cost(way, self.costs))

    def _code(self, k: int) -> TileCode:
        """How the tiles of operation `k`, whose kernel is known, become code."""
        compute = self.view.computes[k]
        assert isinstance(compute, ComputeOp) and compute.kernel is not None
        return self.known.codes[compute.kernel.string_value()]

    def _name(self, kernel: str, code: TileCode, tiled: Tiled) -> str:
        """The name of a tile function in the module."""
        key = id(tiled.function)
        if key not in self.names:
            taken = {
                name.data
                for op in self.module.ops
                if isinstance(name := op.properties.get("sym_name"), StringAttr)
            }
            name, number = f"{kernel}_tile", 0
            while name in taken:
                number += 1
                name = f"{kernel}_tile{number}"
            copy = code.function(tiled).clone()
            copy.properties["sym_name"] = StringAttr(name)
            self.module.body.block.add_op(copy)
            self.names[key] = name
        return self.names[key]


def _later(operation: Operation, more_ns: float) -> Operation:
    """An operation that takes so much more time in each way, rounded down."""
    more = math.floor(more_ns)
    variants = (replace(way, time_ns=way.time_ns + more) for way in operation.variants)
    return replace(operation, time_ns=operation.time_ns + more, variants=tuple(variants))


def buffers_of(compute: RunOp, operation: Operation) -> dict[int, frozenset[int]]:
    """For each tensor of an operation the buffers of the kernel that it is."""
    values = dict.fromkeys(compute.operands)
    numbers = dict(zip(values, operation.inputs, strict=True))
    found: dict[int, set[int]] = {}
    for at, value in enumerate(compute.operands):
        found.setdefault(numbers[value], set()).add(at)
    for at, v in enumerate(operation.outputs, len(compute.operands)):
        found[v] = {at}
    return {v: frozenset(at) for v, at in found.items()}


def _stays_in_place(
    kernel: KernelTiles, positions: Mapping[int, frozenset[int]], pair: tuple[int, int]
) -> bool:
    """Whether an output of the kernel in tiles may lie over an input: no nest reads that once a
    nest has begun to write the other, but as the kernel does itself."""
    (result,), operands = positions[pair[0]], positions[pair[1]]
    for both in pairs(kernel.distributed):
        # They run tile by tile: one of them may read what the other one has written over.
        own = [set(kernel.distributed.nests[number].buffers) for number in both.nests]
        if any(result in mine and operands & others for mine, others in (own, own[::-1])):
            return False
    wrote = False
    for nest in kernel.distributed.nests:
        reads = [at for at, buffer in enumerate(nest.buffers) if buffer in operands]
        writes = [at for at, buffer in enumerate(nest.buffers) if buffer == result]
        if wrote and reads:
            return False
        wrote |= bool(writes)
        inputs = len(buffers(nest.function, "inputs"))
        if writes and not all(may_alias(nest.function, writes[0] - inputs, at) for at in reads):
            return False
    return True
