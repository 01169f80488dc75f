"""Tile functions: a nest of a kernel that runs from given positions on, on slices of its buffers.

A loop that runs in tiles gets its start as an argument. A buffer that is on storage is there as
slices: what a tile reads and makes of it. A sum that is interrupted begins from a buffer unless its
tile is the first one, and ends there unless it is the last one; what is done to the finished sum is
under a guard. The buffer is one of its own, or that of the result (`sums_in_result`). Loop
variables keep their values, so guards and tables stay as they are, and each element is computed by
the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DenseArrayBase,
    IndexType,
    IntegerAttr,
    MemRefType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineMap

from poetc.ir.index import Condition, Index, Var, affine_map, affine_set
from poetc.kernels.access import TILES, places_of
from poetc.kernels.addresses import all_pinned, extent_of
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL, STARTS, buffers, extent, may_alias
from poetc.kernels.dependences import drop_dead
from poetc.kernels.distribute import is_whole, splits
from poetc.kernels.slices import (
    NotTileable,
    Slice,
    TiledLoops,
    replace_op,
    slices_of,
    take_slice,
)


@dataclass(frozen=True)
class Loops:
    """The loops of a nest that can run in tiles, outermost first: parallel ones, then those of the
    sum in the innermost of these."""

    parallel: tuple[affine.ForOp, ...]
    sums: tuple[affine.ForOp, ...]

    @property
    def all(self) -> tuple[affine.ForOp, ...]:
        return (*self.parallel, *self.sums)

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(map(extent, self.all))


@dataclass(frozen=True)
class Sum:
    """A buffer in which interrupted sums wait, within the first `depth` loops over tiles."""

    type: MemRefType
    depth: int


@dataclass(frozen=True)
class Tiled:
    """A tile function, what its buffers are (an int is a whole buffer, by its argument of the
    nest), and its variables: the starts of loops, with their trip counts and tiles, in order."""

    function: func.FuncOp
    buffers: tuple[int | Slice | Sum, ...]
    variables: tuple[Var, ...]
    tiles: tuple[int, ...]


def nest_loops(nest: func.FuncOp) -> Loops:
    """The loops of a nest (`distribute`) that can run in tiles."""
    parallel: list[affine.ForOp] = []
    block = nest.body.block
    while True:
        whole = [op for op in block.ops if is_whole(op)]
        loops = [op for op in whole if isinstance(op, affine.ForOp)]
        if len(loops) != 1 or SEQUENTIAL in loops[0].attributes or IN_ALL in loops[0].attributes:
            return Loops(tuple(parallel), ())
        if loops[0].inits:
            return Loops(tuple(parallel), tuple(_sum_loops(loops[0])))
        parallel.append(loops[0])
        if len(whole) != 1 or not splits(loops[0]):
            return Loops(tuple(parallel), ())
        block = loops[0].body.block


def _sum_loops(loop: affine.ForOp) -> Iterator[affine.ForOp]:
    """The loop and those inside in which its sums go on."""
    yield loop
    carried = tuple(loop.body.block.args[1:])
    last = loop.body.block.last_op
    assert last is not None
    inner = _goes_on(tuple(last.operands), carried)
    users = {use.operation for value in carried for use in value.uses} - {inner}
    # Where a guard does not hold, nothing is added.
    if inner is not None and all(
        isinstance(user, affine.YieldOp) and isinstance(user.parent_op(), affine.IfOp)
        for user in users
    ):
        yield from _sum_loops(inner)


def _goes_on(yielded: tuple[SSAValue, ...], carried: tuple[SSAValue, ...]) -> affine.ForOp | None:
    """The loop, maybe under guards, that takes what is carried and whose results are yielded."""
    owner = yielded[0].owner
    if not isinstance(owner, Operation) or tuple(owner.results) != yielded:
        return None
    if isinstance(owner, affine.ForOp):
        usual = SEQUENTIAL not in owner.attributes and IN_ALL not in owner.attributes
        return owner if usual and tuple(owner.inits) == carried else None
    if not isinstance(owner, affine.IfOp) or not owner.else_region.blocks:
        return None
    then, other = owner.then_region.block.last_op, owner.else_region.block.last_op
    if then is None or other is None or tuple(other.operands) != carried:
        return None
    return _goes_on(tuple(then.operands), carried)


def sums_in_result(nest: func.FuncOp) -> int | None:
    """The result, by its number among the arguments of a nest, in whose place sums that are
    interrupted wait: it has an element for each of them, which the nest stores once they are
    finished and does not read, and which is never in the place of an operand."""
    loops = nest_loops(nest)
    if not loops.sums or len(loops.sums[0].results) != 1:
        return None
    (sum_,) = loops.sums[0].results
    results = buffers(nest, "results")
    for number, result in enumerate(results):
        store = next((use.operation for use in result.uses), None)
        if not isinstance(store, affine.StoreOp) or not result.has_one_use():
            continue
        after = store.parent_block() is loops.sums[0].parent_block()
        if not after or not loops.sums[0].is_before_in_block(store):
            continue
        assert isinstance(result.type, MemRefType)
        (place,) = places_of([store])
        variables: list[SSAValue] = [loop.body.block.args[0] for loop in place.loops]
        single = {v for v in variables if extent_of(v) <= 1}
        pinned = all_pinned([(at, at) for at in place.indices], variables, single)
        operands = [n for n, each in enumerate(buffers(nest, "inputs")) if each.uses]
        if (
            result.type.element_type == sum_.type
            and all(isinstance(index, BlockArgument) for index in store.indices)
            and pinned.issuperset(variables)
            and not any(may_alias(nest, number, operand) for operand in operands)
        ):
            return result.index
    return None


def tile(
    nest: func.FuncOp,
    name: str,
    tiles: Sequence[tuple[int, int]],
    streamed: frozenset[int] = frozenset(),
) -> Tiled:
    """The tile function of a nest, called `name`; the nest is left as it is.

    `tiles` are the loops that run in several tiles, the outermost one over tiles first: their
    places in `nest_loops`, and the iterations in a tile. `streamed` are the arguments of the nest
    that are on storage. Raises NotTileable where that is not possible.
    """
    return _Tiling(nest, name, tiles, streamed).run()


class _Tiling:
    def __init__(
        self,
        nest: func.FuncOp,
        name: str,
        tiles: Sequence[tuple[int, int]],
        streamed: frozenset[int],
    ) -> None:
        self.function = function = nest.clone()
        self.name, self.streamed = name, streamed
        self.block = function.body.block
        self.counts = [len(buffers(function, kind)) for kind in ("inputs", "results")]
        self.loops = nest_loops(function)
        every = self.loops.all
        loops = tuple(every[place] for place, _ in tiles)
        sizes = tuple(size for _, size in tiles)
        extents = [extent(loop) for loop in loops]
        if any(not 0 < size < n for size, n in zip(sizes, extents, strict=True)):
            raise self._refused("a tile has fewer iterations than the loop, and one at least")
        self._check_sums(tiles)
        starts = [self.block.insert_arg(IndexType(), len(self.block.args)) for _ in loops]
        for start, loop in zip(starts, loops, strict=True):
            hint = loop.body.block.args[0].name_hint
            start.name_hint = f"{hint}_start" if hint else "start"
        variables = tuple(
            Var(number, n, ssa=start)
            for number, (n, start) in enumerate(zip(extents, starts, strict=True))
        )
        self.tiled = TiledLoops(loops, sizes, variables, self.loops.sums)
        self.place = sums_in_result(nest) if self.tiled.before_sum < len(loops) else None

    def _refused(self, message: str) -> NotTileable:
        return NotTileable(f"kernel @{self.function.sym_name.data}: {message}")

    def _check_sums(self, tiles: Sequence[tuple[int, int]]) -> None:
        """The order of sums stays: the loops over tiles of a sum are in its order, and those
        outside of the innermost one have tiles of one iteration."""
        first = len(self.loops.parallel)
        places = [place for place, _ in tiles if place >= first]
        sizes = dict(tiles)
        if len(sizes) != len(tiles) or places != sorted(places):
            raise self._refused("the loops over the tiles of a sum are not in its order")
        extents = self.loops.extents
        for place in range(first, max(places, default=first)):
            if sizes.get(place, extents[place]) != 1:
                raise self._refused("a sum is interrupted inside of a loop that is not")

    def run(self) -> Tiled:
        tiled = self.tiled
        own = self.block.args[: len(self.block.args) - len(tiled.variables)]
        slices = {n: slices_of(own[n], tiled) for n in sorted(self.streamed)}
        found: list[int | Slice | Sum] = []
        order: list[SSAValue] = []
        for number, argument in enumerate(own):
            if number not in slices:
                found.append(number)
                order.append(argument)
            for part, accesses in slices.get(number, ()):
                new = self.block.insert_arg(part.type, len(self.block.args))
                new.name_hint = argument.name_hint
                found.append(part)
                order.append(new)
                for access in accesses:
                    take_slice(access, new, part, tiled)
        # Lists of rows that the step alone reads.
        drop_dead(self.block)
        used = [bool(value.uses) for value in order]
        found, order = list(compress(found, used)), list(compress(order, used))
        if tiled.before_sum < len(tiled.loops):
            place = None
            for part, buffer in zip(found, order, strict=True):
                number = part.argument if isinstance(part, Slice) else part
                if number == self.place and number is not None:
                    (place,) = (use.operation for use in buffer.uses)
            for part, buffer in self._interrupt(place):
                found.append(part)
                order.append(buffer)
        order += [variable.ssa for variable in tiled.variables if variable.ssa is not None]
        for loop, variable, size in zip(tiled.loops, tiled.variables, tiled.sizes, strict=True):
            _restrict(loop, variable, size)
        return Tiled(self._of(order, found), tuple(found), tiled.variables, tiled.sizes)

    # Sums

    def _interrupt(self, place: Operation | None) -> list[tuple[Sum, BlockArgument]]:
        """Lets the sum go on from a buffer, and end there before its last tile: the one that
        `place` stores its result to, or new ones."""
        tiled, loop = self.tiled, self.loops.sums[0]
        block = loop.parent_block()
        assert block is not None
        interrupted = [
            (variable, size)
            for each, variable, size in zip(tiled.loops, tiled.variables, tiled.sizes, strict=True)
            if each in tiled.sums
        ]
        sums: list[tuple[Sum, BlockArgument]] = []
        if isinstance(place, affine.StoreOp):
            attribute, operands = place.map, list(place.indices)
            waiting: list[SSAValue] = [place.memref]
        else:
            shape, indices = self._unfinished()
            attribute, operands = affine_map(indices)
            for value in loop.results:
                type_ = MemRefType(value.type, shape)
                buffer = self.block.insert_arg(type_, len(self.block.args))
                buffer.name_hint = "sums"
                sums.append((Sum(type_, tiled.before_sum), buffer))
            waiting = [buffer for _, buffer in sums]
        # Begin.
        first = [Condition(Index.of(variable), equal=True) for variable, _ in interrupted]
        loads = [affine.LoadOp(buffer, operands, attribute) for buffer in waiting]
        begin = _guard(
            first,
            [affine.YieldOp.get(*loop.inits)],
            [*loads, affine.YieldOp.get(*(load.result for load in loads))],
            loop.result_types,
        )
        block.insert_op_before(begin, loop)
        loop.operands = [*loop.operands[: -len(loop.inits)], *begin.results]
        # End.
        after: list[Operation] = []
        op = loop.next_op
        while op is not None and op is not block.last_op:
            after.append(op)
            op = op.next_op
        for op in after:
            op.detach()
        last = [
            Condition(Index.of(variable) + (size - variable.extent))
            for variable, size in interrupted
        ]
        stores = [
            affine.StoreOp(value, buffer, operands, attribute)
            for value, buffer in zip(loop.results, waiting, strict=True)
        ]
        end = _guard(last, [*after, affine.YieldOp.get()], [*stores, affine.YieldOp.get()], ())
        block.insert_op_after(end, loop)
        return sums

    def _unfinished(self) -> tuple[list[int], list[Index]]:
        """The shape of a buffer for sums that wait at a time, and where a sum is in it."""
        tiled, shape, indices = self.tiled, list[int](), list[Index]()
        # A tile of loops outside of those over its tiles has sums of its own.
        outside = tiled.loops[: tiled.before_sum]
        for number, outer in enumerate(self.loops.parallel, len(tiled.variables)):
            variable = outer.body.block.args[0]
            size, index = extent(outer), Index.of(Var(number, extent(outer), ssa=variable))
            if outer in outside:
                place = outside.index(outer)
                size, index = tiled.sizes[place], index - Index.of(tiled.variables[place])
            shape.append(size)
            indices.append(index)
        return shape, indices

    def _of(self, order: Sequence[SSAValue], found: Sequence[int | Slice | Sum]) -> func.FuncOp:
        final = Block(arg_types=[value.type for value in order])
        for new, old in zip(final.args, order, strict=True):
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        for op in list(self.block.ops):
            op.detach()
            final.add_op(op)
        function = func.FuncOp(
            self.name,
            ([value.type for value in order], []),
            Region(final),
            visibility="private",
        )
        inputs, results = self.counts
        kinds = [0, 0, 0]
        for buffer in found:
            number = buffer.argument if isinstance(buffer, Slice) else buffer
            if isinstance(number, Sum):
                kinds[2] += 1
            else:
                kinds[(number >= inputs) + (number >= inputs + results)] += 1
        for kind, count in zip(("inputs", "results", "workspace"), kinds, strict=True):
            function.attributes[f"poet.{kind}"] = IntegerAttr(count, i64)
        numbers = [
            (v.extent, t) for v, t in zip(self.tiled.variables, self.tiled.sizes, strict=True)
        ]
        function.attributes[TILES] = DenseArrayBase.from_list(
            i64, [number for pair in numbers for number in pair]
        )
        function.attributes[STARTS] = ArrayAttr([self._starts(buffer) for buffer in found])
        return function

    def _starts(self, buffer: int | Slice | Sum) -> Attribute:
        """Where a buffer begins, if it is a slice; and in which dimension in a list of rows."""
        if not isinstance(buffer, Slice):
            return UnitAttr()
        attribute, operands = affine_map(buffer.starts)
        dims = [AffineDimExpr(self._place(operand)) for operand in operands]
        results = [expr.replace_dims_and_symbols(dims, ()) for expr in attribute.data.results]
        starts = AffineMapAttr(AffineMap(len(self.tiled.variables), 0, tuple(results)))
        if buffer.rows is None:
            return starts
        return ArrayAttr([starts, IntegerAttr(buffer.rows[0], i64)])

    def _place(self, start: SSAValue) -> int:
        return [variable.ssa for variable in self.tiled.variables].index(start)


def _restrict(loop: affine.ForOp, variable: Var, size: int) -> None:
    """Lets a loop run over one tile."""
    assert variable.ssa is not None
    start = AffineDimExpr(0)
    ends = [start + size]
    if variable.extent % size:
        ends.append(AffineConstantExpr(variable.extent))
    new = affine.ForOp.from_region(
        [variable.ssa],
        [variable.ssa],
        list(loop.inits),
        list(loop.result_types),
        AffineMapAttr(AffineMap(1, 0, (start,))),
        AffineMapAttr(AffineMap(1, 0, tuple(ends))),
        loop.detach_region(loop.body),
    )
    replace_op(loop, new)


def _guard(
    conditions: Sequence[Condition],
    then: Sequence[Operation],
    other: Sequence[Operation],
    types: Sequence[Attribute],
) -> affine.IfOp:
    attribute, operands = affine_set(conditions)
    regions = [Region(Block(list(ops))) for ops in (then, other)]
    return affine.IfOp.build(
        operands=[operands],
        result_types=[list(types)],
        properties={"condition": attribute},
        regions=regions,
    )
