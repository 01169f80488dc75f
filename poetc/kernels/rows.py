"""Scatter by rows: the updates of each row are found by counting, not by comparing all indices.

Three passes over the indices sort the updates by the row that they go to, those of one row in their
own order. Then an element runs over the updates of its row only:

    for each row:    starts[row] = 0
    for each update: starts[row of it] += 1
    for each row:    starts[row] = the sum so far, where its updates end
    for each update, from the last on: order[--starts[row of it]] = it

Updates that fall outside belong to a row behind the last.

Where there are many more rows than updates, no list has a place for each row. Then updates are
sorted by one digit of their row after the other, from the last digit on, in the same way, with a
list of rows beside them. An element finds the first update of its row by halving that list; where
those of the row end stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IndexType, MemRefType, i32
from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.ir import stablehlo
from poetc.ir.buffers import element_bytes
from poetc.ir.index import ZERO, Dynamic, Index, Quotient, Var, constant
from poetc.ir.stablehlo import element_count, element_type_of, shape_of
from poetc.ir.stablehlo.bodies import lower_body
from poetc.ir.stablehlo.index_maps import Indices, Read
from poetc.ir.stablehlo.indexing import Scatter
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.values import counted

Element = Callable[[SSAValue, Indices], Val]
"""A function that emits an element of a value."""

Item = Callable[[Val, Sequence[Val]], None]
"""A function of an item: its row, and the values that go with it."""

_FEWEST_UPDATES = 8
_LARGEST_PART = 4
"""The workspace is at most so small a part of the tensor that is scattered to."""

_MANY_ROWS = 8
"""A list of all rows may take so many times what sorting by digits does."""

_DIGIT_BITS = 8


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
    def digits(self) -> list[tuple[int, int]]:
        """Of rows, from the last one on: the lowest bit and how many; none if all rows have a
        place in a list."""
        bits = self.rows.bit_length()
        passes = max(2, -(-bits // _DIGIT_BITS))
        size = -(-bits // passes)
        sorting = (1 << size) + 2 * self.updates * (1 + len(self.axes))
        if self.rows + 1 + self.updates * len(self.axes) <= _MANY_ROWS * sorting:
            return []
        return [(low, min(size, bits - low)) for low in range(0, bits, size)]

    @property
    def types(self) -> list[MemRefType]:
        """Of the workspaces: where rows start, and for each dimension of the space of updates the
        position in it, sorted by rows. By digits: where the numbers start, and twice, before and
        after a digit, the rows and those positions."""
        update, order = MemRefType(i32, [self.updates]), len(self.axes)
        if self.digits:
            return [MemRefType(i32, [1 << self.digits[0][1]]), *[update] * (2 + 2 * order)]
        return [MemRefType(i32, [self.rows + 1]), *[update] * order]

    def pays(self) -> bool:
        """Whether it can be done so, with little memory in comparison."""
        op = self.op
        update_shape, windows = shape_of(op.updates), op.window_dims
        if self.description.tied or not self.dims or self.updates < _FEWEST_UPDATES:
            return False
        if any(dim in windows and update_shape[windows[dim]] != 1 for dim in self.dims):
            return False
        size = sum(prod(type.get_shape()) * element_bytes(i32) for type in self.types)
        whole = element_count(op.operand) * element_bytes(element_type_of(op.operand))
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
            moves = owner.moves(at) if isinstance(owner, stablehlo.MovementOp) else []
            if len(moves) != 1:
                return False
            value, at = moves[0].source, moves[0].indices
            if any(isinstance(atom, Quotient) for index in at for atom in index.atoms()):
                return False
        return isinstance(value, BlockArgument)

    def sort(self, b: Builder, element: Element, spaces: Sequence[SSAValue]) -> None:
        """Fills the workspaces."""
        starts = spaces[0]

        def from_updates(body: Item) -> None:
            """Emits the loops over updates, with their rows, from the last on."""
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
                known = [b.index_value(index) for index in at if index != ZERO]
                numbers = [b.unary(arith.IndexCastOp, value, i32) for value in known]
                body(self._row(b, element, at), numbers)

            def step(depth: int, var: Var, _: Sequence[Val]) -> Sequence[Val]:
                del at[depth:]
                at.append(constant(var.extent - 1) - Index.of(var))
                inside(depth + 1)
                return []

            inside(0)

        if not self.digits:
            sorted_ = _Sort(b, starts, self.rows + 1, lambda row: row, spaces[1:])
            sorted_.run(from_updates, with_row=False)
            return
        items = from_updates
        last, before = self._lists(spaces)
        for left, (low, bits) in zip(range(len(self.digits))[::-1], self.digits, strict=True):
            target = before if left % 2 else last
            _Sort(b, starts, 1 << bits, partial(_digit, b, low, bits), target).run(items)
            items = partial(_from_lists, b, self.updates, target)
        self._mark_ends(b, last[0], before[0])

    def _lists(self, spaces: Sequence[SSAValue]) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
        """The lists that are sorted by all digits, of rows and of each dimension of the space of
        updates; and the lists beside them, of which the first says in the end where rows end."""
        half = 1 + len(self.axes)
        return spaces[1 : 1 + half], spaces[1 + half :]

    def _mark_ends(self, b: Builder, rows: SSAValue, ends: SSAValue) -> None:
        """Beside each update, where those of its row end."""

        def mark(var: Var, accs: Sequence[Val]) -> Sequence[Val]:
            after, end = accs
            place = constant(self.updates - 1) - Index.of(var)
            row = _load(b, rows, b.index_value(place))
            behind = b.unary(arith.IndexCastOp, b.index_value(place + 1), i32)
            end = b.select(b.compare("eq", row, after), end, behind)
            _store(b, end, ends, b.index_value(place))
            return [row, end]

        none = b.constant(-1, i32)
        b.loop(self.updates, "r", [none, none], mark, in_order=True)

    def _found(self, b: Builder, row: Index, spaces: Sequence[SSAValue]) -> tuple[Val, Val]:
        """Where the updates of a row begin and end, in lists that are sorted by digits."""
        (rows, *_), (ends, *_) = self._lists(spaces)
        wanted = b.unary(arith.IndexCastOp, b.index_value(row), i32)
        count = self.updates

        def at(list_: SSAValue, place: Val, high: int) -> Val:
            number = b.unary(arith.IndexCastOp, place, IndexType())
            return b.load(list_, [Index.of(Dynamic(b.number(), high, number.ssa, number.depth))])

        # At most `step` - 1 updates behind `begin` may be of rows before.
        step = 1 << (count.bit_length() - 1)
        before = b.compare("slt", b.load(rows, [constant(count - step)]), wanted)
        begin = b.select(before, b.constant(count - step + 1, i32), b.constant(0, i32))
        while step > 1:
            step //= 2
            last = b.binary(arith.AddiOp, begin, b.constant(step - 1, i32))
            next_ = b.binary(arith.AddiOp, begin, b.constant(step, i32))
            begin = b.select(b.compare("slt", at(rows, last, count - 1), wanted), next_, begin)
        place = b.select(
            b.compare("slt", begin, b.constant(count, i32)), begin, b.constant(count - 1, i32)
        )
        hit = b.compare("eq", at(rows, place, count - 1), wanted)
        end = b.select(hit, at(ends, place, count - 1), place)
        return (
            b.unary(arith.IndexCastOp, place, IndexType()),
            b.unary(arith.IndexCastOp, end, IndexType()),
        )

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
        if self.digits:
            (_, *order), _ = self._lists(spaces)

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
                for dim, update_dim in op.window_dims.items()
            }
            index = self.description.update_index(update, window)
            return lower_body(b, op.body.block, [accs[0], element(op.updates, index)])

        if self.digits:
            between = self._found(b, row, spaces)
        else:
            between = position(starts, row), position(starts, row + 1)
        init = element(op.operand, at)
        return b.loop(self.updates, "p", [init], leaf, between=between)[0]


@dataclass(frozen=True)
class _Sort:
    """Sorts by counting: `places` has one for each of `numbers`, `number` gives that of a row."""

    b: Builder
    places: SSAValue
    numbers: int
    number: Callable[[Val], Val]
    target: Sequence[SSAValue]

    def run(self, items: Callable[[Item], None], with_row: bool = True) -> None:
        """Puts items, which come from the last on, into the lists of the target: their rows, if
        these are wanted, and what goes with them. Items of one number keep their order."""
        b, places = self.b, self.places
        one, zero = b.constant(1, i32), b.constant(0, i32)

        def each_number(body: Callable[[Val, Sequence[Val]], Sequence[Val]], *accs: Val) -> None:
            def inside(var: Var, accs: Sequence[Val]) -> Sequence[Val]:
                return body(b.index_value(Index.of(var)), accs)

            b.loop(self.numbers, "r", accs, inside, in_order=True)

        def clear(number: Val, _: Sequence[Val]) -> Sequence[Val]:
            _store(b, zero, places, number)
            return []

        def count(row: Val, _: Sequence[Val]) -> None:
            number = self.number(row)
            _store(b, b.binary(arith.AddiOp, _load(b, places, number), one), places, number)

        def add_up(number: Val, accs: Sequence[Val]) -> Sequence[Val]:
            end = b.binary(arith.AddiOp, accs[0], _load(b, places, number))
            _store(b, end, places, number)
            return [end]

        def put(row: Val, known: Sequence[Val]) -> None:
            number = self.number(row)
            place = b.binary(arith.SubiOp, _load(b, places, number), one)
            _store(b, place, places, number)
            at = b.unary(arith.IndexCastOp, place, IndexType())
            values = [_as_number(b, row), *known] if with_row else known
            for list_, value in zip(self.target, values, strict=True):
                _store(b, value, list_, at)

        each_number(clear)
        items(count)
        each_number(add_up, zero)
        items(put)


def _digit(b: Builder, low: int, bits: int, row: Val) -> Val:
    """The digit of a row that has so many bits from `low` on."""
    shifted = _as_number(b, row)
    if low:
        shifted = b.binary(arith.ShRUIOp, shifted, b.constant(low, i32))
    digit = b.binary(arith.AndIOp, shifted, b.constant((1 << bits) - 1, i32))
    return b.unary(arith.IndexCastOp, digit, IndexType())


def _as_number(b: Builder, row: Val) -> Val:
    return row if row.type == i32 else b.unary(arith.IndexCastOp, row, i32)


def _from_lists(b: Builder, length: int, lists: Sequence[SSAValue], body: Item) -> None:
    """The items in these lists, from the last on: rows, and what goes with them."""

    def inside(var: Var, _: Sequence[Val]) -> Sequence[Val]:
        place = b.index_value(constant(length - 1) - Index.of(var))
        row, *known = (_load(b, list_, place) for list_ in lists)
        body(row, known)
        return []

    b.loop(length, "s", [], inside, in_order=True)


def _load(b: Builder, list_: SSAValue, place: Val) -> Val:
    return _emitted(b, memref.LoadOp.get(list_, [place.ssa]))


def _store(b: Builder, value: Val, list_: SSAValue, place: Val) -> None:
    b.scopes[-1].block.add_op(memref.StoreOp.get(value.ssa, list_, [place.ssa]))


def _emitted(b: Builder, op: Operation) -> Val:
    """The result of what is not remembered, as memory changes."""
    b.scopes[-1].block.add_op(op)
    return Val(op.results[0], b.depth)
