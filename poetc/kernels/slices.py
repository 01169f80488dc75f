"""Slices of the buffers of a nest that runs in tiles: what a tile touches, from its starts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import affine, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.errors import PoetcError
from poetc.ir.index import ZERO, Index, Quotient, Var, affine_map, constant
from poetc.ir.loops import loops_around, parents
from poetc.kernels.access import STORES, Access, access_indices
from poetc.kernels.analysis import IN_ALL, extent
from poetc.kernels.positions import place_in_list, position_load

_Rows = tuple[int, int]


class NotTileable(PoetcError):  # noqa: N818
    """A nest cannot run in these tiles, or not with this buffer on storage."""


@dataclass(frozen=True)
class TiledLoops:
    """The loops of a nest that run in several tiles, in the order of the loops over tiles.

    `sizes` are the iterations in a tile of each, `variables` the starts of a tile, `sums` the loops
    of the sum of the nest.
    """

    loops: tuple[affine.ForOp, ...]
    sizes: tuple[int, ...]
    variables: tuple[Var, ...]
    sums: tuple[affine.ForOp, ...]

    @property
    def before_sum(self) -> int:
        """How many loops over tiles are outside of those of the sum."""
        places = (i for i, loop in enumerate(self.loops) if loop in self.sums)
        return next(places, len(self.loops))


@dataclass(frozen=True)
class Slice:
    """The part of a buffer that a tile function takes in place of the buffer.

    `argument` is the number of the buffer among the arguments of the nest. The slice begins at
    `starts`, in terms of the first `depth` of `Tiled.variables`. It may reach beyond the buffer;
    nothing is moved there. `read` and `written` say whether tiles read it and write it.

    `rows` is a dimension and an argument of the nest: the positions in this dimension are elements
    of this argument, a list, from the start of the slice on.
    """

    argument: int
    type: MemRefType
    starts: tuple[Index, ...]
    depth: int
    read: bool
    written: bool
    rows: _Rows | None = None


def _known(tiled: TiledLoops, op: Operation, depth: int) -> dict[SSAValue, Index]:
    """The variables of the loops around: those of the first `depth` loops over tiles begin at
    their starts, others at 0."""
    found: dict[SSAValue, Index] = {}
    for loop in loops_around(op):
        if IN_ALL in loop.attributes:
            continue
        number = -len(found) - 1
        place = tiled.loops.index(loop) if loop in tiled.loops else depth
        if place < depth:
            inside = Index.of(Var(number, tiled.sizes[place]))
            index = Index.of(tiled.variables[place]) + inside
        else:
            index = Index.of(Var(number, extent(loop)))
        found[loop.body.block.args[0]] = index
    return found


def slices_of(argument: BlockArgument, tiled: TiledLoops) -> list[tuple[Slice, list[Access]]]:
    """The slices of a buffer, each with the accesses to it: one for all that move alike.

    Raises NotTileable where no slices have what tiles make of it."""
    assert isinstance(argument.type, MemRefType)
    shape = argument.type.get_shape()
    accesses = [use.operation for use in argument.uses]
    accesses = [op for op in accesses if isinstance(op, Access)]
    written = any(isinstance(op, STORES) for op in accesses)
    depth = tiled.before_sum if written else len(tiled.loops)
    groups: dict[tuple[_Rows | None, object], list[tuple[Access, list[_Span]]]] = {}
    for op in accesses:
        known = _known(tiled, op, depth)
        rows, listed = _rows(op, known, tiled)
        spans = [
            listed
            if rows is not None and dim == rows[0]
            else _whole(size)
            if index is None
            else _span(index, set(tiled.variables), size)
            for dim, (index, size) in enumerate(zip(access_indices(op, known), shape, strict=True))
        ]
        key = rows, tuple(span.start.terms for span in spans)
        groups.setdefault(key, []).append((op, spans))
    if written and len(groups) > 1:
        raise NotTileable(f"no slice of %{argument.name_hint} has all that a tile makes of it")
    found: list[tuple[Slice, list[Access]]] = []
    for (rows, _), group in groups.items():
        starts, sizes = [], []
        for dim, size in enumerate(shape):
            spans = [each[dim] for _, each in group]
            first = min(spans, key=lambda span: span.start.const).start
            end = max(span.start.const + span.width for span in spans)
            width = end - first.const + 1
            whole = width >= size
            starts.append(ZERO if whole else first)
            sizes.append(size if whole else width)
        if rows is not None:
            dim, size = rows[0], shape[rows[0]]
            apart = sizes[dim] > 1 and any(n > 1 for n in sizes[:dim])
            if apart or sizes[dim] == size:
                # Rows lie side by side in a buffer, and are no more than there are; or all is read.
                rows, starts[dim], sizes[dim] = None, ZERO, size
        moving = [v for start in starts for v in start.vars()]
        at = max((tiled.variables.index(v) + 1 for v in moving), default=0)
        stored = [op for op, _ in group if isinstance(op, STORES)]
        for op in stored:
            _check_filled(tiled, op, depth, shape, argument)
        part = Slice(
            argument.index,
            MemRefType(argument.type.element_type, sizes),
            tuple(starts),
            at,
            any(not isinstance(op, STORES) for op, _ in group) and not written,
            written,
            rows,
        )
        found.append((part, [op for op, _ in group]))
    return found


def _rows(
    op: Access, known: dict[SSAValue, Index], tiled: TiledLoops
) -> tuple[_Rows | None, _Span]:
    """The dimension in which a load goes by a list of positions, and the argument that has it; and
    which of them a tile needs."""
    nothing = None, _Span(ZERO, 0)
    if not isinstance(op, memref.LoadOp):
        return nothing
    loads = [position_load(value) for value in op.indices]
    dims = [dim for dim, load in enumerate(loads) if load is not None]
    if len(dims) != 1 or (load := loads[dims[0]]) is None:
        return nothing
    assert isinstance(load.memref, BlockArgument)
    index = place_in_list(load, known)
    return (dims[0], load.memref.index), _span(index, set(tiled.variables), 0)


def _check_filled(
    tiled: TiledLoops, op: Access, depth: int, shape: Sequence[int], argument: SSAValue
) -> None:
    """A store fills its slice: in each dimension loops are the digits of a number, and no loop is
    in two dimensions. Where a tile has a part of a digit it has one value of each higher one, and
    only of the highest may the last tile be smaller: what is past its end is outside."""
    refused = NotTileable(
        f"what is stored to %{argument.name_hint} fills no slice of it, so it stays in RAM"
    )
    loops = loops_around(op)
    if any(not isinstance(parent, affine.ForOp) for parent in parents(op)):
        raise refused
    full: dict[SSAValue, Index] = {
        loop.body.block.args[0]: Index.of(Var(n, extent(loop))) for n, loop in enumerate(loops)
    }
    used: set[Var] = set()
    for index, size in zip(access_indices(op, full), shape, strict=True):
        if index is None:
            raise refused
        terms = sorted(index.terms, key=lambda term: abs(term[1]))
        reach, partly = 1, False
        for place, (variable, coefficient) in enumerate(terms):
            if not isinstance(variable, Var) or variable in used or abs(coefficient) != reach:
                raise refused
            used.add(variable)
            loop, tile = loops[variable.number], variable.extent
            if loop in tiled.loops[:depth]:
                tile = tiled.sizes[tiled.loops.index(loop)]
            if (partly and tile > 1) or (place < len(terms) - 1 and variable.extent % tile):
                raise refused
            partly = partly or tile < variable.extent
            reach *= variable.extent
        if reach != size or (index.low, index.high) != (0, size - 1):
            raise refused
    if len(used) != sum(extent(loop) > 1 for loop in loops if loop not in tiled.sums):
        raise refused


def take_slice(op: Access, new: SSAValue, part: Slice, tiled: TiledLoops) -> None:
    """Lets an access take a slice in place of the whole buffer. Raises NotTileable."""
    if isinstance(op, memref.StoreOp):
        raise NotTileable("a store at a position from memory is to a whole buffer")
    if isinstance(op, memref.LoadOp):
        known = _named(tiled, op)
        for place, (value, start) in enumerate(zip(list(op.indices), part.starts, strict=True)):
            by_row = part.rows is not None and part.rows[0] == place
            if start == ZERO and not by_row:
                continue
            index = access_indices(op, known)[place]
            if by_row:
                load = position_load(value)
                assert load is not None
                index = place_in_list(load, known)
            assert index is not None
            attribute, operands = affine_map([index - start])
            apply = affine.ApplyOp(operands, attribute)
            parent = op.parent_block()
            assert parent is not None
            parent.insert_op_before(apply, op)
            op.operands[1 + place] = apply.result
        op.operands[0] = new
        return
    indices = access_indices(op, _named(tiled, op))
    assert all(index is not None for index in indices)
    moved = [i - start for i, start in zip(indices, part.starts, strict=True) if i is not None]
    attribute, operands = affine_map(moved)
    if isinstance(op, affine.LoadOp):
        replacement: Operation = affine.LoadOp(new, operands, attribute)
    else:
        replacement = affine.StoreOp(op.value, new, operands, attribute)
    replace_op(op, replacement)


def replace_op(old: Operation, new: Operation) -> None:
    """Puts an operation in the place of another; each result keeps its name."""
    block = old.parent_block()
    assert block is not None
    block.insert_op_before(new, old)
    for result, other in zip(old.results, new.results, strict=True):
        other.name_hint = result.name_hint
        result.replace_all_uses_with(other)
    old.detach()
    old.erase()


def _named(tiled: TiledLoops, op: Operation) -> dict[SSAValue, Index]:
    """The variables of the loops around, as they are."""
    found: dict[SSAValue, Index] = {}
    for number, loop in enumerate(loops_around(op)):
        variable = loop.body.block.args[0]
        size = 1 << 31 if IN_ALL in loop.attributes else extent(loop)
        found[variable] = Index.of(Var(len(tiled.variables) + number, size, ssa=variable))
    return found


@dataclass(frozen=True)
class _Span:
    """From `start` to `start + width`, both included."""

    start: Index
    width: int


def _whole(size: int) -> _Span:
    return _Span(ZERO, max(size - 1, 0))


def _span(index: Index, fixed: set[Var], size: int) -> _Span:
    """Where an index may be while the `fixed` variables are as they are; as much as there is if
    that is not known."""
    start, width = constant(index.const), 0
    for atom, coefficient in index.terms:
        if isinstance(atom, Var):
            part = _Span(Index.of(atom), 0) if atom in fixed else _Span(ZERO, atom.high)
        elif isinstance(atom, Quotient):
            part = _quotient_span(atom, fixed)
        else:
            return _whole(size)
        start = start + part.start * coefficient
        if coefficient < 0:
            start = start + part.width * coefficient
        width += abs(coefficient) * part.width
    return _Span(start, width)


def _quotient_span(atom: Quotient, fixed: set[Var]) -> _Span:
    inner = _span(atom.of, fixed, 0)
    if atom.remainder:
        first = inner.start.const % atom.divisor
        if inner.start.is_constant and first + inner.width < atom.divisor:
            return _Span(constant(first), inner.width)
        return _whole(atom.divisor)
    if inner.start.is_constant:
        first = inner.start.const // atom.divisor
        return _Span(constant(first), (inner.start.const + inner.width) // atom.divisor - first)
    return _Span(inner.start // atom.divisor, -(-inner.width // atom.divisor))
