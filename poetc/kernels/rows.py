"""Scatter by rows: the updates of each row are found by counting, not by comparing all indices.

Three passes over the indices sort the updates by the row that they go to, those of one row in their
own order. Then an element runs over the updates of its row only:

    for each row:    starts[row] = 0
    for each update: starts[row of it] += 1
    for each row:    starts[row] = the sum so far, where its updates end
    for each update, from the last on: order[--starts[row of it]] = it

Updates that fall outside belong to a row behind the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IndexType, MemRefType, i32
from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.ir import stablehlo
from poetc.ir.buffers import element_bytes
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.stablehlo.bodies import lower_body
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.index import ZERO, Dynamic, Index, Quotient, Var, constant
from poetc.kernels.indexing import Indices, Read, Scatter, counted, elements, movement

Element = Callable[[SSAValue, Indices], Val]
"""What emits an element of a value."""

_FEWEST_UPDATES = 8
_LARGEST_PART = 4
"""The workspace is at most so small a part of the tensor that is scattered to."""


class ByRows:
    """A scatter that can be done by rows: `rows` and `updates` are how many there are, `axes` those
    of the space of updates, but for those of size 1."""

    def __init__(self, op: stablehlo.ScatterOp) -> None:
        self.op = op
        shape = shape_of(op.operand)
        self.description = Scatter(op, [ZERO] * len(shape))
        self.dims = op.dnums.scatter_dims_to_operand_dims
        self.rows = prod(shape[dim] for dim in self.dims)
        self.axes = [axis for axis in self.description.axes if axis.extent != 1]
        self.updates = prod(axis.extent for axis in self.description.axes)

    @property
    def types(self) -> list[MemRefType]:
        """Of the workspaces: where rows start, and for each dimension of the space of updates the
        position in it, sorted by rows."""
        order = [MemRefType(i32, [self.updates]) for _ in self.axes]
        return [MemRefType(i32, [self.rows + 1]), *order]

    def pays(self) -> bool:
        """Whether it can be done so, with little memory in comparison."""
        op = self.op
        update_shape, windows = shape_of(op.updates), self.description.window_dims()
        if self.description.tied or not self.dims or self.updates < _FEWEST_UPDATES:
            return False
        if any(dim in windows and update_shape[windows[dim]] != 1 for dim in self.dims):
            return False
        size = sum(prod(type.get_shape()) * element_bytes(i32) for type in self.types)
        whole = elements(op.operand) * element_bytes(element_type_of(op.operand))
        if size * _LARGEST_PART > whole:
            return False
        free = [Index.of(Var(-1 - i, axis.extent)) for i, axis in enumerate(self.description.axes)]
        starts = [self.description.start_read(free, c) for c in range(len(self.dims))]
        return all(counted(*start) is None for start in starts) and self._reads_anywhere()

    def _reads_anywhere(self) -> bool:
        """Whether the updates can be read at positions from memory."""
        unknown = [
            Index.of(Dynamic(i, axis.extent - 1, self.op.indices, 0)) if axis.extent != 1 else ZERO
            for i, axis in enumerate(self.description.axes)
        ]
        value, at = self.op.updates, self.description.update_index(unknown, {})
        while isinstance(owner := value.owner, Operation):
            moves = movement(owner, at)
            if moves is None or len(moves) > 1:
                return False
            value, at = moves[0].source, moves[0].indices
            if any(isinstance(atom, Quotient) for index in at for atom in index.atoms()):
                return False
        return isinstance(value, BlockArgument)

    def sort(self, b: Builder, element: Element, spaces: Sequence[SSAValue]) -> None:
        """Fills the workspaces."""
        starts, *order = spaces
        one = b.constant(1, i32)

        def load(place: Val) -> Val:
            return _emitted(b, memref.LoadOp.get(starts, [place.ssa]))

        def store(value: Val, target: SSAValue, place: Val) -> None:
            b.scopes[-1].block.add_op(memref.StoreOp.get(value.ssa, target, [place.ssa]))

        def each_row(body: Callable[[Val, Sequence[Val]], Sequence[Val]], *accs: Val) -> None:
            def inside(var: Var, accs: Sequence[Val]) -> Sequence[Val]:
                return body(b.index_value(Index.of(var)), accs)

            b.loop(self.rows + 1, "r", accs, inside, in_order=True)

        def each_update(body: Callable[[Sequence[Index], Val], None]) -> None:
            """From the last on."""
            at: list[Index] = []

            def inside(depth: int) -> None:
                if depth < len(self.description.axes):
                    axis = self.description.axes[depth]
                    if axis.extent == 1:
                        at.append(ZERO)
                        inside(depth + 1)
                    else:
                        part = partial(step, depth)
                        b.loop(axis.extent, axis.name, [], part, in_order=True)
                    return
                body(at, self._row(b, element, at))

            def step(depth: int, var: Var, _: Sequence[Val]) -> Sequence[Val]:
                del at[depth:]
                at.append(constant(var.extent - 1) - Index.of(var))
                inside(depth + 1)
                return []

            inside(0)

        def clear(row: Val, _: Sequence[Val]) -> Sequence[Val]:
            store(b.constant(0, i32), starts, row)
            return []

        def count(_: Sequence[Index], row: Val) -> None:
            store(b.binary(arith.AddiOp, load(row), one), starts, row)

        def add_up(row: Val, accs: Sequence[Val]) -> Sequence[Val]:
            end = b.binary(arith.AddiOp, accs[0], load(row))
            store(end, starts, row)
            return [end]

        def put(at: Sequence[Index], row: Val) -> None:
            place = b.binary(arith.SubiOp, load(row), one)
            store(place, starts, row)
            known = [index for index in at if index != ZERO]
            for target, index in zip(order, known, strict=True):
                number = b.unary(arith.IndexCastOp, b.index_value(index), i32)
                store(number, target, b.unary(arith.IndexCastOp, place, IndexType()))

        each_row(clear)
        each_update(count)
        each_row(add_up, b.constant(0, i32))
        each_update(put)

    def _row(self, b: Builder, element: Element, at: Sequence[Index]) -> Val:
        """The row of an update; the number of rows for one that falls outside."""
        shape = shape_of(self.op.operand)
        row = b.index_value(ZERO)
        hits: list[Val] = []
        for component, dim in enumerate(self.dims):
            read: Read = self.description.start_read(at, component)
            start = expressions.to_index(b, element(*read))
            place = expressions.clamp(b, start, shape[dim] - 1)
            hits.append(b.compare("eq", place, start))
            if component:
                row = b.binary(arith.MuliOp, row, b.index_value(constant(shape[dim])))
                row = b.binary(arith.AddiOp, row, place)
            else:
                row = place
        hit = hits[0]
        for other in hits[1:]:
            hit = b.binary(arith.AndIOp, hit, other)
        return b.select(hit, row, b.index_value(constant(self.rows)))

    def combined(
        self, b: Builder, element: Element, spaces: Sequence[SSAValue], at: Indices
    ) -> Val:
        """The element at `at`, combined with the updates of its row, which are sorted."""
        op = self.op
        starts, *order = spaces
        shape = shape_of(op.operand)
        row = ZERO
        for dim in self.dims:
            row = row * shape[dim] + at[dim]

        def position(space: SSAValue, place: Index) -> Val:
            return b.unary(arith.IndexCastOp, b.load(space, [place]), IndexType())

        def leaf(place: Var, accs: Sequence[Val]) -> Sequence[Val]:
            found = iter(order)
            update: list[Index] = []
            for axis in self.description.axes:
                if axis.extent == 1:
                    update.append(ZERO)
                    continue
                number = position(next(found), Index.of(place))
                atom = Dynamic(b.number(), axis.extent - 1, number.ssa, number.depth)
                update.append(Index.of(atom))
            window = {
                update_dim: ZERO if dim in self.dims else at[dim]
                for dim, update_dim in self.description.window_dims().items()
            }
            index = self.description.update_index(update, window)
            return lower_body(b, op.body.block, [accs[0], element(op.updates, index)])

        between = position(starts, row), position(starts, row + 1)
        init = element(op.operand, at)
        return b.loop(self.updates, "p", [init], leaf, between=between)[0]


def _emitted(b: Builder, op: Operation) -> Val:
    """The result of what is not remembered, as memory changes."""
    b.scopes[-1].block.add_op(op)
    return Val(op.results[0], b.depth)
