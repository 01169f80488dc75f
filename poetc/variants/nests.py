"""The model of a nest: loops that can run in tiles, and the slices that a tile touches.

A nest is a chain of loops, parallel ones first, then those of a sum. Some loops are not tiled, and
run whole in each tile: loops that run in order, loops between positions from memory, loops inside a
sum that do not belong to it, and all loops inside of one that has several beside each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import IndexType, MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from poetc.ir.buffers import element_bytes
from poetc.ir.loops import parents
from poetc.kernels.access import LOADS, STORES, Access, Linear, linear_indices
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL, buffers, extent, workspace_bytes
from poetc.kernels.positions import can_be_found

_INDEX_BYTES = 4


@dataclass(frozen=True)
class Loop:
    """A loop that can run in tiles: its number among the loops of the kernel, in their order in the
    text, and its trip count. `resumed_bytes` is what is kept of each sum that is interrupted at it;
    0 for a parallel loop."""

    number: int
    extent: int
    resumed_bytes: int = 0


@dataclass(frozen=True)
class Dim:
    """The range of one dimension of a buffer that a nest touches.

    From `Σ coefficient · variable + low` to the same `+ high`, as far as that is in 0 .. extent;
    `terms` are (loop of the nest, coefficient). With `gaps`, loops that are not tiled leave
    positions in between out. With `rows`, the positions are looked up in a list that is filled
    before: at most so many for each iteration of the loops in `terms`.
    """

    extent: int
    terms: tuple[tuple[int, int], ...] = ()
    low: int = 0
    high: int = 0
    rows: int = 0
    gaps: bool = False


@dataclass(frozen=True)
class Stream:
    """The loads of a nest from one buffer, or its stores to it.

    `buffer` is the number of an argument of the kernel, an operand or a result. The slice of a tile
    is needed in each tile of the loops in `needed_in`, and in one tile of each other loop: stores
    and what is done to a finished sum. A store that is `partial` leaves elements out, so that its
    buffer has to be in RAM whole. A store may be `over` the slices of a buffer that the nest loads,
    with the same elements.
    """

    buffer: int
    stored: bool
    element_bytes: int
    dims: tuple[Dim, ...]
    needed_in: frozenset[int]
    partial: bool
    accesses: tuple[Operation, ...] = field(compare=False)
    over: int | None = None


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost on, and what they touch.

    `sum_in_result`: bytes of an element of a result that has one for each sum, so that sums that
    are interrupted can wait in its place; else 0.
    """

    loops: tuple[Loop, ...]
    streams: tuple[Stream, ...]
    sum_in_result: int = 0

    @property
    def parallel(self) -> int:
        """How many loops are parallel: the first ones."""
        return sum(not loop.resumed_bytes for loop in self.loops)

    @property
    def blocks(self) -> int:
        """How many loops are outside of those of a partial sum: the first ones."""
        least = min((loop.resumed_bytes for loop in self.loops if loop.resumed_bytes), default=0)
        return sum(loop.resumed_bytes <= least for loop in self.loops)


def nest_model(function: func.FuncOp) -> Nest | None:
    """The model of a nest (`distribute`), or of a whole kernel whose loops are in one; None where
    loops run one after the other that have none around. Workspaces are beside it, in RAM whole.

    Raises InputError for what is no kernel.
    """
    return _Reader(function).model()


def streamed_buffers(function: func.FuncOp) -> tuple[int, ...]:
    """Numbers of the arguments that can be on storage: operands and results."""
    return tuple(range(len(function.body.block.args) - len(buffers(function, "workspace"))))


def common_loops(one: Nest, other: Nest) -> list[tuple[int, int]]:
    """Pairs of parallel loops with the same trip count, by which both nests go along the same
    dimension of what both read: a tile of one reads the slices that a tile of the other does."""
    found: dict[int, int] = {}
    reads = [stream for stream in other.streams if not stream.stored]
    for stream in one.streams:
        same = [s for s in reads if s.buffer == stream.buffer and not stream.stored]
        for dims in (zip(stream.dims, s.dims, strict=True) for s in same):
            for dim, own in dims:
                if dim.rows or own.rows:
                    continue
                for (a, coefficient), (b, factor) in product(dim.terms, own.terms):
                    parallel = a < one.parallel and b < other.parallel
                    fits = coefficient == factor and one.loops[a].extent == other.loops[b].extent
                    if parallel and fits and a not in found and b not in found.values():
                        found[a] = b
    return sorted(found.items())


def together(one: Nest, other: Nest, common: Sequence[tuple[int, int]]) -> Nest:
    """The model of two nests in one loop over tiles of their `common` loops, whose numbers are
    their places there; other loops run whole in each tile. Buffers of both have the same numbers.
    """
    streams: dict[object, Stream] = {}
    for nest, side in ((one, 0), (other, 1)):
        places = {pair[side]: n for n, pair in enumerate(common)}
        for stream in nest.streams:
            dims = tuple(_within(dim, nest.loops, places) for dim in stream.dims)
            new = replace(stream, dims=dims, needed_in=frozenset(range(len(common))))
            if nest is one and any(s.buffer == stream.over for s in other.streams):
                # The other nest is to read what was there.
                new = replace(new, over=None)
            # One of them stores something else than the other.
            streams.setdefault((stream.buffer, side if stream.stored else None, dims), new)
    loops = tuple(Loop(n, one.loops[a].extent) for n, (a, _) in enumerate(common))
    return Nest(loops, tuple(streams.values()))


def _within(dim: Dim, loops: Sequence[Loop], places: Mapping[int, int]) -> Dim:
    """The range of a dimension that is touched while loops that have no place run whole."""
    low, high, rows, gaps = dim.low, dim.high, dim.rows, dim.gaps
    for loop, coefficient in sorted(dim.terms, key=lambda term: abs(term[1])):
        if loop not in places:
            rows *= loops[loop].extent
            reach = coefficient * (loops[loop].extent - 1)
            gaps |= bool(reach) and abs(coefficient) > high - low + 1
            low, high = low + min(reach, 0), high + max(reach, 0)
    terms = tuple(sorted((places[loop], c) for loop, c in dim.terms if loop in places))
    if not terms and not rows and low <= 0 and high >= dim.extent - 1 and not gaps:
        low, high = 0, dim.extent - 1
    return Dim(dim.extent, terms, low, high, rows, gaps)


class _Reader:
    def __init__(self, function: func.FuncOp) -> None:
        self.numbers = {
            op: n for n, op in enumerate(o for o in function.walk() if isinstance(o, affine.ForOp))
        }
        self.buffers: dict[SSAValue, int] = {
            function.body.block.args[n]: n for n in streamed_buffers(function)
        }
        workspace_bytes(function)  # all of static shape
        self.ops = list(function.body.block.ops)

    def model(self) -> Nest | None:
        chain: list[affine.ForOp] = []
        outer, ops = [], self.ops  # what stands further outside, and in the innermost loop so far
        inside = list(_outermost_loops(ops))
        while len(inside) == 1 and _can_tile(chain, inside[0]):
            (loop,) = inside
            outer += _beside(ops, loop)
            chain.append(loop)
            ops = list(loop.body.block.ops)
            inside = list(_outermost_loops(ops))
        guarded = any(loop.parent_op() is not ops[0].parent_op() for loop in inside)
        if len(inside) > 1 and not chain and not guarded:
            return None
        return self._nest(chain, [*outer, *ops])

    def _nest(self, chain: Sequence[affine.ForOp], ops: Sequence[Operation]) -> Nest:
        loops: list[Loop] = []
        carried = 0  # of sums around that do not go on in the next loop
        for depth, op in enumerate(chain):
            own = sum(_value_bytes(value.type) for value in op.inits)
            if own and not (depth and _joins(chain[depth - 1], op)):
                carried += own
            loops.append(Loop(self.numbers[op], extent(op), carried if own else 0))
        inside: dict[SSAValue, int] = {
            op.body.block.args[0]: depth for depth, op in enumerate(chain)
        }
        parallel = sum(not loop.resumed_bytes for loop in loops)
        found: dict[tuple[object, ...], list[tuple[tuple[Dim, ...], Access]]] = {}
        for access in (a for op in ops for a in op.walk() if isinstance(a, Access)):
            if access.memref not in self.buffers:
                continue
            stored = isinstance(access, STORES)
            depth = _depth(access, chain)
            if stored:
                needed = range(depth)
            else:
                deepest = _deepest_use(access, chain)
                needed = range(max(parallel, deepest) if deepest > parallel else parallel)
            dims = _dims(access, inside)
            shape = tuple((dim.extent, dim.terms, dim.rows, dim.high - dim.low) for dim in dims)
            key = (self.buffers[access.memref], stored, frozenset(needed), shape)
            found.setdefault(key, []).append((dims, access))
        streams = [_stream(key, touched) for key, touched in found.items()]
        result = next((s.element_bytes for s in streams if _one_for_each(s, loops, parallel)), 0)
        return Nest(tuple(loops), tuple(streams), result)


def _stream(key: tuple[object, ...], touched: Sequence[tuple[tuple[Dim, ...], Access]]) -> Stream:
    """Accesses that differ in constants only are one slice."""
    buffer, stored, needed, _ = key
    assert isinstance(buffer, int) and isinstance(needed, frozenset)
    dims = [
        Dim(
            each[0].extent,
            each[0].terms,
            min(dim.low for dim in each),
            max(dim.high for dim in each),
            each[0].rows and sum(dim.rows for dim in each),
            # Of accesses beside each other there may be some missing.
            any(dim.gaps for dim in each) or len({dim.low for dim in each}) > 1,
        )
        for each in zip(*(dims for dims, _ in touched), strict=True)
    ]
    accesses = tuple(access for _, access in touched)
    memory = accesses[0].memref.type
    assert isinstance(memory, MemRefType)
    size = element_bytes(memory.element_type)
    moved = [loop for dim in dims for loop, _ in dim.terms]
    guarded = any(isinstance(op, affine.IfOp) for access in accesses for op in parents(access))
    partial = bool(stored) and (guarded or len(set(moved)) < len(moved))
    return Stream(buffer, bool(stored), size, tuple(dims), needed, partial, accesses)


def _one_for_each(stream: Stream, loops: Sequence[Loop], parallel: int) -> bool:
    """Whether a store has one element for each sum."""
    moved = {loop for dim in stream.dims for loop, _ in dim.terms}
    return (
        stream.stored
        and parallel < len(loops)
        and stream.needed_in == frozenset(range(parallel))
        and moved.issuperset(i for i in range(parallel) if loops[i].extent > 1)
        and all(not dim.rows for dim in stream.dims)
    )


# Loops


def _can_tile(chain: Sequence[affine.ForOp], loop: affine.ForOp) -> bool:
    if SEQUENTIAL in loop.attributes or IN_ALL in loop.attributes:
        return False
    return bool(loop.inits) or not any(outside.inits for outside in chain)


def _joins(outside: affine.ForOp, loop: affine.ForOp) -> bool:
    """Whether a sum goes on in a loop where it was in the loop around."""
    carried = outside.body.block.args[1:]
    return bool(carried) and all(start in carried for start in loop.inits)


def _outermost_loops(ops: Iterable[Operation]) -> Iterator[affine.ForOp]:
    for op in ops:
        if isinstance(op, affine.ForOp):
            yield op
            continue
        for region in op.regions:
            for block in region.blocks:
                yield from _outermost_loops(block.ops)


def _beside(ops: Iterable[Operation], loop: affine.ForOp) -> Iterator[Operation]:
    """`ops` without a loop; of a guard around it, what stands beside it."""
    for op in ops:
        if op is loop:
            continue
        if loop in op.walk():
            for region in op.regions:
                for block in region.blocks:
                    yield from _beside(block.ops, loop)
        else:
            yield op


def _depth(op: Operation, chain: Sequence[affine.ForOp]) -> int:
    """How many loops of the chain are around."""
    around = set(parents(op))
    return sum(loop in around for loop in chain)


def _deepest_use(load: Operation, chain: Sequence[affine.ForOp]) -> int:
    """In how many loops of the chain, at most, stands what uses the value that is loaded."""
    deepest, seen, pending = _depth(load, chain), {load}, [load]
    while pending:
        op = pending.pop()
        for result in op.results:
            for use in result.uses:
                user = use.operation
                if user in seen:
                    continue
                seen.add(user)
                deepest = max(deepest, _depth(user, chain))
                if isinstance(user, affine.ForOp):
                    # The sum starts from it.
                    deepest = max(deepest, _depth(user, chain) + (user in chain))
                elif not isinstance(user, affine.YieldOp):
                    pending.append(user)
                elif isinstance(guard := user.parent_op(), affine.IfOp):
                    pending.append(guard)
    return deepest


# Accesses


def _dims(access: Access, inside: dict[SSAValue, int]) -> tuple[Dim, ...]:
    memory = access.memref.type
    assert isinstance(memory, MemRefType)
    values = list(access.indices)
    linear = linear_indices(access)
    shape = memory.get_shape()
    if len(values) == len(shape) and isinstance(access, memref.LoadOp | memref.StoreOp):
        sources = [[value] for value in values]
    else:
        sources = [values] * len(shape)
    return tuple(
        _dim(size, index, from_, inside)
        for size, index, from_ in zip(shape, linear, sources, strict=True)
    )


def _dim(
    size: int, index: Linear | None, sources: Sequence[SSAValue], inside: dict[SSAValue, int]
) -> Dim:
    if index is None:
        loops, loaded = _comes_from(sources)
        if not loaded or not all(map(can_be_found, sources)):
            return Dim(size, (), 0, size - 1)  # a division, or found too late: all of it
        known = sorted(inside[v] for v in loops if v in inside)
        rows = prod(_extent_of(v) for v in loops if v not in inside)
        return Dim(size, tuple((loop, 1) for loop in known), rows=rows)
    low = high = index.const
    terms: list[tuple[int, int]] = []
    gaps = False
    for variable, coefficient in sorted(index.terms.items(), key=lambda term: abs(term[1])):
        if variable in inside:
            terms.append((inside[variable], coefficient))
        else:
            reach = coefficient * (_extent_of(variable) - 1)
            gaps |= bool(reach) and abs(coefficient) > high - low + 1
            low, high = low + min(reach, 0), high + max(reach, 0)
    return Dim(size, tuple(sorted((loop, c) for loop, c in terms if c)), low, high, gaps=gaps)


def _extent_of(variable: SSAValue) -> int:
    assert isinstance(variable, BlockArgument)
    loop = variable.block.parent_op()
    assert isinstance(loop, affine.ForOp)
    return max(1, extent(loop))


def _comes_from(values: Sequence[SSAValue]) -> tuple[list[SSAValue], bool]:
    """The loop variables that values depend on, and whether anything is loaded for them."""
    loops: dict[SSAValue, None] = {}
    loaded, seen, pending = False, set(values), list(values)
    while pending:
        value = pending.pop()
        owner = value.owner
        if isinstance(owner, Block):
            if isinstance(owner.parent_op(), affine.ForOp):
                loops[value if value is owner.args[0] else owner.args[0]] = None
            continue
        loaded |= isinstance(owner, LOADS)
        fresh = {operand for op in owner.walk() for operand in op.operands} - seen
        seen |= fresh
        pending += fresh
    return list(loops), loaded


def _value_bytes(type: Attribute) -> int:
    return _INDEX_BYTES if isinstance(type, IndexType) else element_bytes(type)
