"""Tile functions: a nest of a kernel that runs from given positions on, on slices of its buffers.

A loop that runs in tiles gets its start as an argument. A buffer that is on storage is there as
slices: what a tile reads and makes of it. A sum that is interrupted begins from a buffer unless its
tile is the first one, and ends there unless it is the last one; what is done to the finished sum is
under a guard. The buffer is one of its own, or that of the result (`sums_in_result`). A sum of
partial sums that is interrupted within one of these has a buffer for them, too: the tile that
finishes one adds it to the total. Loop variables keep their values, so guards and tables stay as
they are, and each element is computed by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise

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
from poetc.kernels.access import TILES, Access, places_of
from poetc.kernels.addresses import all_pinned, extent_of
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL, STARTS, buffers, extent, may_alias
from poetc.kernels.dependences import drop_dead
from poetc.kernels.distribute import is_whole, splits
from poetc.kernels.functions import kernel_function, with_arguments
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
    sum in the innermost of these, and those of one of its terms, if that is a sum, too."""

    parallel: tuple[affine.ForOp, ...]
    total: tuple[affine.ForOp, ...] = ()
    partial: tuple[affine.ForOp, ...] = ()

    @property
    def sums(self) -> tuple[affine.ForOp, ...]:
        return (*self.total, *self.partial)

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
            return Loops(tuple(parallel))
        if loops[0].inits:
            total = tuple(_sum_loops(loops[0]))
            partial = _partial_sum(total)
            return Loops(tuple(parallel), total, tuple(_sum_loops(partial)) if partial else ())
        parallel.append(loops[0])
        if len(whole) != 1 or not splits(loops[0]):
            return Loops(tuple(parallel))
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


def _partial_sum(total: Sequence[affine.ForOp]) -> affine.ForOp | None:
    """The loop whose results are a term of the sum in these loops, and are carried as its totals
    are, if nothing but these is needed to add them: a block of a sum."""
    for outer, inner in pairwise(total):
        if inner.parent_op() is not outer:
            return None
    inside = total[-1].body.block
    loops = [op for op in inside.ops if any(isinstance(each, affine.ForOp) for each in op.walk())]
    if len(loops) != 1 or not isinstance(term := loops[0], affine.ForOp):
        return None
    if SEQUENTIAL in term.attributes or IN_ALL in term.attributes:
        return None
    added, last = _behind(term), inside.last_op
    assert last is not None
    carried = list(inside.args[1:])
    known = {*carried, *term.results, *(value for op in added for value in op.results)}
    needed = [value for op in (*added, last) for value in op.operands if value not in known]
    alone = (
        tuple(term.result_types) == tuple(total[0].result_types)
        and not any(op.regions or isinstance(op, Access) for op in added)
        and not any(total[0].is_ancestor(value.owner) for value in (*needed, *term.inits))
        and all(use.operation in (*added, last) for value in carried for use in value.uses)
    )
    return term if alone and any(extent(loop) > 1 for loop in total) else None


def _behind(op: Operation) -> list[Operation]:
    """The operations behind one, but for the last one of the block."""
    found: list[Operation] = []
    while op.next_op is not None:
        op = op.next_op
        found.append(op)
    return found[:-1]


def sums_in_result(nest: func.FuncOp) -> int | None:
    """The result, by its number among the arguments of a nest, in whose place sums that are
    interrupted wait: it has an element for each of them, which the nest stores once they are
    finished and does not read, and which is never in the place of an operand."""
    loops = nest_loops(nest)
    if not loops.total or len(loops.total[0].results) != 1:
        return None
    (sum_,) = loops.total[0].results
    results = buffers(nest, "results")
    for number, result in enumerate(results):
        store = next((use.operation for use in result.uses), None)
        if not isinstance(store, affine.StoreOp) or not result.has_one_use():
            continue
        after = store.parent_block() is loops.total[0].parent_block()
        if not after or not loops.total[0].is_before_in_block(store):
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


@dataclass(frozen=True)
class _Waiting:
    """The buffers in which sums wait that are interrupted, and where a sum is in them."""

    buffers: Sequence[SSAValue]
    map: AffineMapAttr
    indices: Sequence[SSAValue]

    def begin(self, first: Sequence[Condition], inits: Sequence[SSAValue]) -> affine.IfOp:
        """From what sums go on: in the `first` tile `inits`."""
        loads = [affine.LoadOp(buffer, self.indices, self.map) for buffer in self.buffers]
        return _guard(
            first,
            [affine.YieldOp.get(*inits)],
            [*loads, affine.YieldOp.get(*(load.result for load in loads))],
            [init.type for init in inits],
        )

    def end(
        self, last: Sequence[Condition], after: Sequence[Operation], values: Sequence[SSAValue]
    ) -> affine.IfOp:
        """What is done `after` the last tile, and with the sums before that."""
        stores = [
            affine.StoreOp(value, buffer, self.indices, self.map)
            for value, buffer in zip(values, self.buffers, strict=True)
        ]
        return _guard(last, [*after, affine.YieldOp.get()], [*stores, affine.YieldOp.get()], ())


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
        loop = self.loops.total[0]
        block = loop.parent_block()
        assert block is not None
        after = _behind(loop)
        for op in after:
            op.detach()
        sums: list[tuple[Sum, BlockArgument]] = []
        if isinstance(place, affine.StoreOp):
            total = _Waiting([place.memref], place.map, list(place.indices))
        else:
            total, sums = self._unfinished(loop, self.tiled.before_sum)
        first, last = self._ends(self.loops.total)
        begins, ends = self._ends(self.loops.partial)
        if not begins:
            begin = total.begin(first, loop.inits)
            end = total.end(last, after, loop.results)
        else:
            depth = next(n for n, op in enumerate(self.tiled.loops) if op in self.loops.partial)
            partial, parts = self._unfinished(loop, depth)
            sums += parts
            inits = list(loop.inits)
            begin = partial.begin(begins, self.loops.partial[0].inits)
            resumed = total.begin(first, inits)
            added, found = self._carry_parts(after, resumed.results)
            finished = [resumed, *added, total.end(last, after, found)]
            end = partial.end(ends, finished, loop.results)
        block.insert_op_before(begin, loop)
        _start_from(loop, begin.results)
        block.insert_op_after(end, loop)
        return sums

    def _carry_parts(
        self, after: Sequence[Operation], totals: Sequence[SSAValue]
    ) -> tuple[list[Operation], list[SSAValue]]:
        """Lets the loops of the total, which run once in a tile, carry the partial sum alone. What
        adds it to the `totals`, which is taken out of them, and the new totals, of which `after`
        makes use."""
        loop, inner, part = self.loops.total[0], self.loops.total[-1], self.loops.partial[0]
        last = inner.body.block.last_op
        assert last is not None
        added = _behind(part)
        for op in added:
            op.detach()
        carried = list(inner.body.block.args[1:])
        for old, new in zip(
            (*loop.results, *carried, *part.results),
            (*last.operands, *totals, *loop.results),
            strict=True,
        ):
            old.replace_all_uses_with(new)
        found = list(last.operands)
        last.operands = list(part.results)
        _start_from(part, carried)
        return added, found

    def _ends(self, sums: Sequence[affine.ForOp]) -> tuple[list[Condition], list[Condition]]:
        """The conditions for the first and for the last tile of those of these loops that run in
        several tiles."""
        tiled = self.tiled
        interrupted = [
            (variable, size)
            for each, variable, size in zip(tiled.loops, tiled.variables, tiled.sizes, strict=True)
            if each in sums
        ]
        first = [Condition(Index.of(variable), equal=True) for variable, _ in interrupted]
        ends = [Index.of(variable) + (size - variable.extent) for variable, size in interrupted]
        return first, [Condition(end) for end in ends]

    def _unfinished(
        self, loop: affine.ForOp, depth: int
    ) -> tuple[_Waiting, list[tuple[Sum, BlockArgument]]]:
        """New buffers for the sums in a loop that wait at a time, within the first `depth` loops
        over tiles."""
        shape, indices = list[int](), list[Index]()
        # A tile of loops outside of those over its tiles has sums of its own.
        outside = self.tiled.loops[:depth]
        for number, outer in enumerate(self.loops.parallel, len(self.tiled.variables)):
            variable = outer.body.block.args[0]
            size, index = extent(outer), Index.of(Var(number, extent(outer), ssa=variable))
            if outer in outside:
                place = outside.index(outer)
                size, index = self.tiled.sizes[place], index - Index.of(self.tiled.variables[place])
            shape.append(size)
            indices.append(index)
        sums: list[tuple[Sum, BlockArgument]] = []
        for value in loop.results:
            type_ = MemRefType(value.type, shape)
            buffer = self.block.insert_arg(type_, len(self.block.args))
            buffer.name_hint = "sums"
            sums.append((Sum(type_, depth), buffer))
        return _Waiting([buffer for _, buffer in sums], *affine_map(indices)), sums

    def _of(self, order: Sequence[SSAValue], found: Sequence[int | Slice | Sum]) -> func.FuncOp:
        inputs, results = self.counts
        kinds = [0, 0, 0]
        for buffer in found:
            number = buffer.argument if isinstance(buffer, Slice) else buffer
            if isinstance(number, Sum):
                kinds[2] += 1
            else:
                kinds[(number >= inputs) + (number >= inputs + results)] += 1
        function = kernel_function(self.name, with_arguments(self.block, order), *kinds)
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


def _start_from(loop: affine.ForOp, values: Sequence[SSAValue]) -> None:
    """Lets a loop carry these values from the start."""
    loop.operands = [*loop.operands[: -len(values)], *values]


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
