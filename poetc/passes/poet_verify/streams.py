"""Tiles of a stream: slices are those that the functions of tiles were made for, functions stay in
them, and each element of a result is written to storage once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from math import prod

import numpy as np
from xdsl.dialects import affine, memref
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, MemRefType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineSet

from poetc.ir.index import ZERO, Index, Var, constant
from poetc.ir.loops import loops_around, parents
from poetc.ir.poet import (
    AnySlice,
    PageType,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileBufferOp,
    TileOp,
    tile_starts,
)
from poetc.ir.symbols import named_in
from poetc.kernels.access import (
    Access,
    access_indices,
    holds,
    map_indices,
    starts_around,
    tile_of,
    tiles_of,
)
from poetc.kernels.analysis import IN_ALL, STARTS, buffers, extent, may_alias
from poetc.passes.poet_verify.messages import fault

_MOST_ELEMENTS = 1 << 24
"""The most elements of a result whose slices are counted element by element."""


def verify_stream(stream: StreamOp) -> None:
    """Raises a `VerificationError` unless what the tiles of a stream move is what they need."""
    for op in stream.tiles.block.walk():
        if isinstance(op, TileOp):
            _verify_tile(stream, op)
    block = stream.tiles.block
    results = block.args[len(stream.operands) :]
    for number, page in enumerate(results):
        if isinstance(page.type, PageType):
            _verify_written(stream, number, page)


# Tiles


def _verify_tile(stream: StreamOp, op: TileOp) -> None:
    name = op.function.string_value()
    # Its existence and types are verified with the operation.
    function = named_in(stream, FuncOp)[name]
    what = f"{stream.where}: {op.name} @{name}"
    loops = [_loop_of(position) for position in op.positions]
    tiles = tuple((starts.stop, starts.step) for starts in map(tile_starts, loops))
    if tiles != tiles_of(function):
        raise fault(op, f"{what} is for tiles {list(tiles_of(function))}, these are {list(tiles)}")
    around = loops_around(op)
    if around != loops:
        raise fault(
            op, f"{what} has not the positions of all loops over tiles around, in their order"
        )
    starts = function.attributes.get(STARTS)
    if not isinstance(starts, ArrayAttr) or len(starts.data) != len(op.buffers):
        raise fault(op, f"{what} does not say in {STARTS} where its buffers begin")
    known = _known(loops)
    arguments = function.body.block.args
    for argument, buffer, start in zip(arguments, op.buffers, starts.data, strict=False):
        place = f"{what}, argument {argument.index}"
        written = any(_stores(use.operation, argument) for use in argument.uses)
        row_dim = None
        if isinstance(start, ArrayAttr) and len(start.data) == 2:
            start, row_dim = start.data
        if isinstance(start, AffineMapAttr):
            expected = map_indices(start.data, list(op.positions), known)
            whole: set[int] = set()
            for slice in _slices(buffer):
                if map_indices(slice.starts.data, list(slice.positions), known) != expected:
                    raise fault(slice, f"{place}: its slice begins elsewhere")
                if (slice.row_dim if isinstance(slice, SliceInOp) else None) != row_dim:
                    raise fault(slice, f"{place}: its slice has not the rows of a list")
                if isinstance(slice, SliceInOp) and slice.rows is not None:
                    _verify_filled(stream, slice, slice.rows)
                whole |= _whole_dims(slice, expected)
            _verify_inside(op, place, function, argument, whole)
        elif any(_slices(buffer)):
            raise fault(op, f"{place} is a whole buffer, not a slice")
        _verify_waiting(op, place, function, argument, buffer)
        if written and isinstance(buffer.owner, SliceInOp):
            _verify_over(op, place, function, argument, buffer.owner)
        elif written and not _may_write(stream, buffer):
            raise fault(op, f"{place}: it writes to what is no result, and lost")


def _verify_waiting(
    op: TileOp, place: str, function: FuncOp, argument: BlockArgument, buffer: SSAValue
) -> None:
    """Sums that go on from a buffer, but in the first tile of some loops, wait there while these
    run: it is there before them."""
    if isinstance(buffer, BlockArgument):
        return
    starts = function.body.block.args[len(op.buffers) :]
    loops: dict[SSAValue, affine.ForOp] = dict(zip(starts, loops_around(op), strict=True))
    around = loops_around(buffer.owner) if isinstance(buffer.owner, Operation) else []
    for use in argument.uses:
        inner = use.operation
        for guard in () if _stores(inner, argument) else parents(inner):
            if (
                isinstance(guard, affine.IfOp)
                and inner.parent_region() is guard.else_region
                and _in_first(guard.condition.data)
                and any(loops.get(start) in around for start in guard.args)
            ):
                raise fault(op, f"{place}: sums go on in it that are lost before")
            inner = guard


def _in_first(condition: AffineSet) -> bool:
    """Whether a condition says of all of its operands that they are 0."""
    return all(each.kind is AffineConstraintKind.eq for each in condition.constraints)


def _verify_over(
    op: TileOp, place: str, function: FuncOp, argument: BlockArgument, slice: SliceInOp
) -> None:
    """A result that is written over a slice of an operand goes to storage from there, and nothing
    reads what was in the slice once it is written over."""
    if all(isinstance(use.operation, SliceInOp | TileOp) for use in slice.buffer.uses):
        raise fault(op, f"{place}: it writes to what is no result, and lost")
    inputs, results = (list(buffers(function, kind)) for kind in ("inputs", "results"))
    arguments = function.body.block.args
    same = [a for a, b in zip(arguments, op.buffers, strict=False) if b is slice.buffer]
    operands = [each for each in same if each is not argument]
    if argument not in results or not all(
        each in inputs and may_alias(function, results.index(argument), inputs.index(each))
        for each in operands
    ):
        raise fault(op, f"{place}: it is written over a slice of which more is read")
    around = loops_around(slice)
    inside = [n for n, loop in enumerate(loops_around(op)) if loop not in around]
    tiles = [use.operation for use in slice.buffer.uses if isinstance(use.operation, TileOp)]
    others = [tile for tile in tiles if tile is not op]
    if (inside and others) or not all(tile.is_before_in_block(op) for tile in others):
        raise fault(op, f"{place}: a tile reads later what it is written over")
    stores = [use.operation for use in argument.uses if _stores(use.operation, argument)]
    if inside and not all(_in_last(store, inside) for store in stores):
        raise fault(op, f"{place}: it is written over a slice that later tiles have, too")


def _in_last(store: Operation, loops: Sequence[int]) -> bool:
    """Whether guards around a store hold in the last tile of these loops over tiles alone."""
    starts = starts_around(store)
    ranges = [np.arange(0, *tile_of(start)) for start in starts]
    if prod(map(len, ranges)) > _MOST_ELEMENTS:
        return False
    grid = np.meshgrid(*ranges, indexing="ij")
    values: dict[SSAValue, np.ndarray] = dict(zip(starts, grid, strict=True))
    held = np.ones(grid[0].shape, bool)
    inner = store
    for guard in parents(store):
        if isinstance(guard, affine.IfOp) and all(each in values for each in guard.args):
            here = holds(guard.condition.data, [values[each] for each in guard.args])
            held &= here if inner.parent_region() is guard.then_region else ~here
        inner = guard
    return all((grid[n][held] == ranges[n][-1]).all() for n in loops)


def _slices(buffer: SSAValue) -> Iterator[AnySlice]:
    """The operations that move a slice into a buffer or out of it."""
    if isinstance(buffer.owner, SliceInOp):
        yield buffer.owner
    for use in buffer.uses:
        if isinstance(use.operation, SliceOutOp):
            yield use.operation


def _whole_dims(slice: AnySlice, starts: Sequence[Index | None]) -> set[int]:
    """The dimensions that a slice has all of: what is outside of them is outside of the tensor."""
    assert isinstance(slice.buffer.type, MemRefType)
    sizes = zip(slice.buffer.type.get_shape(), slice.extents(), strict=True)
    return {dim for dim, (own, all_) in enumerate(sizes) if own == all_ and starts[dim] == ZERO}


def _verify_filled(stream: StreamOp, slice: SliceInOp, rows: SSAValue) -> None:
    """The list of rows is in RAM, and tiles that end before have written to it."""
    ops = list(stream.tiles.block.ops)
    before = ops[: _place(slice, ops)]
    tiles = [use.operation for use in rows.uses if isinstance(use.operation, TileOp)]
    if not any(_place(tile, ops) < len(before) for tile in tiles):
        raise fault(slice, f"{stream.where}: no tile before fills the list of rows of a slice")


def _may_write(stream: StreamOp, buffer: SSAValue) -> bool:
    if isinstance(buffer, BlockArgument):
        return buffer.index >= len(stream.operands)
    return isinstance(buffer.owner, TileBufferOp)


def _stores(op: Operation, buffer: SSAValue) -> bool:
    return isinstance(op, affine.StoreOp | memref.StoreOp) and op.memref is buffer


def _loop_of(position: SSAValue) -> affine.ForOp:
    loop = position.owner.parent_op() if isinstance(position.owner, Block) else None
    assert isinstance(loop, affine.ForOp)
    return loop


def _variable(loop: affine.ForOp) -> SSAValue:
    return loop.body.block.args[0]


def _known(loops: Sequence[affine.ForOp]) -> dict[SSAValue, Index]:
    return {
        _variable(loop): Index.of(Var(n, tile_starts(loop).stop)) for n, loop in enumerate(loops)
    }


def _verify_inside(
    op: TileOp, place: str, function: FuncOp, argument: BlockArgument, whole: set[int]
) -> None:
    """The function stays in a slice, whatever the tile. Guards are left out of account, so in
    `whole` dimensions it is the kernel's word."""
    assert isinstance(argument.type, MemRefType)
    tiles = tiles_of(function)
    inputs = function.body.block.args
    starts: dict[SSAValue, int] = {
        start: n for n, start in enumerate(inputs[len(inputs) - len(tiles) :])
    }
    for use in argument.uses:
        access = use.operation
        if not isinstance(access, Access):
            raise fault(op, f"{place} is used by {access.name}")
        shape = argument.type.get_shape()
        for dim, size in enumerate(shape):
            if dim in whole:
                continue
            # A number for each start is tried where variables alone do not tell.
            for positions in chain((None,), _positions(tiles)):
                index = access_indices(access, _inside(access, starts, tiles, positions))[dim]
                if index is None:
                    # At a position from memory: all of that dimension is in it, or it is the
                    # kernel's word.
                    break
                if index.low >= 0 and index.high < size:
                    if positions is None:
                        break
                elif positions is not None:
                    raise fault(
                        op,
                        f"{place}: {access.name} from {index.low} to {index.high} in dimension "
                        f"{dim} of {argument.type}",
                    )


def _positions(tiles: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    return product(*(range(0, end, size) for end, size in tiles))


def _inside(
    access: Operation,
    starts: Mapping[SSAValue, int],
    tiles: Sequence[tuple[int, int]],
    positions: tuple[int, ...] | None,
) -> dict[SSAValue, Index]:
    """The variables around an access in a tile function, its starts among them."""
    found: dict[SSAValue, Index] = {}
    for start, n in starts.items():
        end, _ = tiles[n]
        found[start] = Index.of(Var(n, end)) if positions is None else constant(positions[n])
    for number, loop in enumerate(loops_around(access), len(tiles)):
        if IN_ALL in loop.attributes:
            continue
        variable = loop.body.block.args[0]
        bounds = list(loop.lowerBoundOperands)
        if len(bounds) == 1 and bounds[0] in starts:
            n = starts[bounds[0]]
            size = tiles[n][1]
            if positions is not None:
                size = min(size, tiles[n][0] - positions[n])
            found[variable] = found[bounds[0]] + Index.of(Var(number, size))
        else:
            found[variable] = Index.of(Var(number, extent(loop)))
    return found


# Results on storage


def _verify_written(stream: StreamOp, number: int, page: BlockArgument) -> None:
    """The slices that are written have each element once, before any is read."""
    what = f"{stream.where}: result {number}"
    outs = [use.operation for use in page.uses if isinstance(use.operation, SliceOutOp)]
    if len(outs) != 1:
        raise fault(stream, f"{what} is written at {len(outs)} places, not at one")
    (out,) = outs
    ops = list(stream.tiles.block.ops)
    at = _place(out, ops)
    for use in page.uses:
        if use.operation is not out and _place(use.operation, ops) <= at:
            raise fault(use.operation, f"{what} is read before all of it is written")
    loops = loops_around(out)
    counts = [len(tile_starts(loop)) for loop in loops]
    assert isinstance(page.type, PageType) and isinstance(out.buffer.type, MemRefType)
    shape = page.type.tensor.get_shape()
    indices = map_indices(out.starts.data, list(out.positions), _known(loops))
    used = [
        frozenset(v.number for v in index.vars()) if index is not None else frozenset()
        for index in indices
    ]
    starts = out.starts_in_turn()
    moved = [n for dims in used for n in dims]
    if len(moved) == len(set(moved)) and set(moved) == {n for n, c in enumerate(counts) if c > 1}:
        exact = all(
            covers(start.reshape(-1), size, extent_)
            for start, size, extent_ in zip(starts, out.buffer.type.get_shape(), shape, strict=True)
        )
    else:
        exact = counted_once(starts, counts, out.buffer.type.get_shape(), shape)
    if not exact:
        raise fault(out, f"{what} has elements that are written to storage never, or twice")


def _place(op: Operation, ops: Sequence[Operation]) -> int:
    while op not in ops:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return ops.index(op)


def covers(starts: np.ndarray, size: int, extent_: int) -> bool:
    """Whether stretches of `size` from these places on have each of `extent_` positions once."""
    low, high = np.clip(starts, 0, extent_), np.clip(starts + size, 0, extent_)
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    kept = high > low
    low, high = low[kept], high[kept]
    if not extent_:
        return not low.size
    return bool(low.size and low[0] == 0 and high[-1] == extent_ and (low[1:] == high[:-1]).all())


def counted_once(
    starts: Sequence[np.ndarray],
    counts: Sequence[int],
    size: Sequence[int],
    shape: Sequence[int],
) -> bool:
    """Whether slices of this size have each element of a tensor once, counted element by element;
    False where these are too many."""
    if prod(shape) > _MOST_ELEMENTS or prod(counts) > _MOST_ELEMENTS:
        return False
    times = np.zeros(shape, np.int64)
    spread = [np.broadcast_to(start, tuple(counts)).reshape(-1) for start in starts]
    for corner in zip(*spread, strict=True) if spread else [()]:
        ends = zip(corner, size, strict=True)
        times[tuple(slice(max(int(at), 0), max(int(at) + n, 0)) for at, n in ends)] += 1
    return bool((times == 1).all())
