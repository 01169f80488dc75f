"""Rules for windows at computed places: static where the place is known, else gathers and selects.

A start is moved so that the window lies inside. A dimension of which the window is all has no
choice of a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from xdsl.ir import SSAValue

from poetc.ir import dense
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import GatherDims
from poetc.simplify.driver import Rewriter

_Window = hlo.DynamicSliceOp | hlo.DynamicUpdateSliceOp


def _known_starts(op: _Window, rewriter: Rewriter) -> list[int | None]:
    """The clamped start in each dimension, None where it is computed."""
    starts: list[int | None] = []
    for start, limit in zip(op.start_indices, op.limits, strict=True):
        known = np.int64(0) if limit == 0 else rewriter.facts.splat(start)
        starts.append(None if known is None else min(max(int(known), 0), limit))
    return starts


def slice_window(op: hlo.DynamicSliceOp, rewriter: Rewriter) -> SSAValue | None:
    """A dynamic slice is a slice in the dimensions whose start is known, and a gather of one window
    in the others: a gather clamps, too."""
    starts = _known_starts(op, rewriter)
    value = op.operand
    first = [0 if start is None else start for start in starts]
    last = [
        n if start is None else start + size
        for start, size, n in zip(starts, op.sizes, hlo.shape_of(value), strict=True)
    ]
    if last != list(hlo.shape_of(value)) or any(first) or None not in starts:
        value = rewriter.emit(hlo.SliceOp(value, first, last))
    computed = [d for d, start in enumerate(starts) if start is None]
    if not computed:
        return value
    places = [rewriter.emit(hlo.ReshapeOp(op.start_indices[d], (1,))) for d in computed]
    indices = rewriter.emit(hlo.ConcatenateOp(places, 0)) if len(places) > 1 else places[0]
    dims = GatherDims(tuple(range(len(starts))), (), (), (), tuple(computed), 0)
    return rewriter.emit(hlo.GatherOp(value, indices, dims, op.sizes))


@dataclass(frozen=True)
class _Update:
    """A window of a tensor that `value` replaces; all of it in every other dimension."""

    value: SSAValue
    start: int
    stop: int


def update_window(op: hlo.DynamicUpdateSliceOp, rewriter: Rewriter) -> SSAValue | None:
    """Updates one after the other at known places along one dimension -> one concatenation of what
    is left of them and of the operand.

    The last of the updates stands for all: a loop that fills a tensor would have as many
    concatenations of as many pieces otherwise.
    """
    starts = _known_starts(op, rewriter)
    if None in starts:
        return _update_computed(op, rewriter)
    partial = [d for d, limit in enumerate(op.limits) if limit]
    if 0 in op.sizes or not partial:
        return op.operand if 0 in op.sizes else op.update
    if len(partial) > 1:
        return _update_strip(op, partial[0], rewriter)
    (axis,) = partial
    if _is_followed(op, axis, rewriter):
        return None
    updates = [_window(op, axis, rewriter)]
    while isinstance(below := op.operand.owner, hlo.DynamicUpdateSliceOp) and _is_along(
        below, axis, rewriter
    ):
        op = below
        updates.append(_window(op, axis, rewriter))
    pieces = list(_pieces(op.operand, updates[::-1], axis, rewriter))
    return pieces[0] if len(pieces) == 1 else rewriter.emit(hlo.ConcatenateOp(pieces, axis))


def _update_strip(op: hlo.DynamicUpdateSliceOp, dim: int, rewriter: Rewriter) -> SSAValue:
    """An update of a part of several dimensions as one of a strip that has it whole in `dim`."""
    start, shape = _known_starts(op, rewriter)[dim], hlo.shape_of(op.operand)
    assert start is not None
    first, last = [0] * len(shape), list(shape)
    first[dim], last[dim] = start, start + op.sizes[dim]
    strip = rewriter.emit(hlo.SliceOp(op.operand, first, last))
    strip = rewriter.emit(hlo.DynamicUpdateSliceOp(strip, op.update, op.start_indices))
    return rewriter.emit(hlo.DynamicUpdateSliceOp(op.operand, strip, op.start_indices))


def _is_along(op: hlo.DynamicUpdateSliceOp, axis: int, rewriter: Rewriter) -> bool:
    """Whether the window is at a known place and all of the operand in other dimensions."""
    partial = [d for d, limit in enumerate(op.limits) if limit]
    return partial == [axis] and 0 not in op.sizes and None not in _known_starts(op, rewriter)


def _window(op: hlo.DynamicUpdateSliceOp, axis: int, rewriter: Rewriter) -> _Update:
    start = _known_starts(op, rewriter)[axis]
    assert start is not None
    return _Update(op.update, start, start + op.sizes[axis])


def _is_followed(op: hlo.DynamicUpdateSliceOp, axis: int, rewriter: Rewriter) -> bool:
    """Whether the next update along the same dimension, at a known place, uses this one, and else
    slices only, which are taken from the updates (`slice_of_update`)."""
    followed = False
    for use in op.result.uses:
        user = use.operation
        if isinstance(user, hlo.SliceOp | hlo.DynamicSliceOp):
            if not _is_contiguous(user, rewriter):
                return False
        elif (
            isinstance(user, hlo.DynamicUpdateSliceOp)
            and use.index == 0
            and not followed
            and _is_along(user, axis, rewriter)
        ):
            followed = True
        else:
            return False
    return followed


def _is_contiguous(op: hlo.SliceOp | hlo.DynamicSliceOp, rewriter: Rewriter) -> bool:
    if isinstance(op, hlo.DynamicSliceOp):
        return None not in _known_starts(op, rewriter)
    return all(stride == 1 for stride in op.strides)


def slice_of_update(op: hlo.SliceOp, rewriter: Rewriter) -> SSAValue | None:
    """A slice of an update -> a slice of what is written, or of the operand below, or, where it has
    of both, the update of a slice."""
    value, update = op.operand, None
    if hlo.element_count(op.result) == 0 or not _is_contiguous(op, rewriter):
        return None
    starts, limits = list(op.starts), list(op.limits)
    while isinstance(below := value.owner, hlo.DynamicUpdateSliceOp):
        partial = [d for d, limit in enumerate(below.limits) if limit]
        if len(partial) != 1 or not _is_along(below, partial[0], rewriter):
            return None
        (axis,) = partial
        update = _window(below, axis, rewriter)
        if starts[axis] < update.stop and update.start < limits[axis]:
            break
        value = below.operand
    if value is op.operand and update is None:
        return None
    if not isinstance(below, hlo.DynamicUpdateSliceOp) or update is None:
        return rewriter.emit(hlo.SliceOp(value, starts, limits))
    first, last = max(starts[axis], update.start), min(limits[axis], update.stop)
    written = rewriter.emit(
        hlo.SliceOp(
            update.value,
            [*starts[:axis], first - update.start, *starts[axis + 1 :]],
            [*limits[:axis], last - update.start, *limits[axis + 1 :]],
        )
    )
    if (first, last) == (starts[axis], limits[axis]):
        return written
    operand = rewriter.emit(hlo.SliceOp(below.operand, starts, limits))
    zero = rewriter.emit(hlo.ConstantOp(np.int32(0)))
    places = [zero] * len(starts)
    places[axis] = rewriter.emit(hlo.ConstantOp(np.int32(first - starts[axis])))
    return rewriter.emit(hlo.DynamicUpdateSliceOp(operand, written, places))


def _pieces(
    operand: SSAValue, updates: Sequence[_Update], axis: int, rewriter: Rewriter
) -> Iterator[SSAValue]:
    """The parts of the operand after the updates, along the dimension."""
    shape = hlo.shape_of(operand)
    owner = np.full(shape[axis], -1)
    for number, update in enumerate(updates):
        owner[update.start : update.stop] = number
    cuts = [0, *(np.flatnonzero(np.diff(owner)) + 1).tolist(), shape[axis]]
    for start, stop in pairwise(cuts):
        number = int(owner[start])
        whole = updates[number] if number >= 0 else _Update(operand, 0, shape[axis])
        first, last = [0] * len(shape), list(hlo.shape_of(whole.value))
        first[axis], last[axis] = start - whole.start, stop - whole.start
        yield rewriter.emit(hlo.SliceOp(whole.value, first, last))


def _update_computed(op: hlo.DynamicUpdateSliceOp, rewriter: Rewriter) -> SSAValue:
    """A dynamic update -> a select between the update, read at the place relative to the start, and
    the operand."""
    if 0 in op.sizes:
        return op.operand
    update, inside = op.update, None
    shape = hlo.shape_of(op.operand)
    for d, limit in enumerate(op.limits):
        if limit == 0:
            continue
        start = _clamped(op.start_indices[d], limit, rewriter)
        places = hlo.TensorType(hlo.element_type_of(start), (shape[d],))
        counted = rewriter.emit(hlo.IotaOp(places, 0))
        start = rewriter.emit(hlo.BroadcastInDimOp(start, (), (shape[d],)))
        place = rewriter.emit(hlo.SubtractOp(counted, start))
        update = _read_at(update, place, d, rewriter)
        bounds = [("EQ", 0)] if op.sizes[d] == 1 else [("GE", 0), ("LT", op.sizes[d])]
        for direction, bound in bounds:
            edge = rewriter.splat(_integer(bound, place), place.type)
            within = rewriter.emit(hlo.CompareOp(place, edge, direction))
            within = rewriter.emit(hlo.BroadcastInDimOp(within, (d,), shape))
            inside = within if inside is None else rewriter.emit(hlo.AndOp(inside, within))
    return update if inside is None else rewriter.emit(hlo.SelectOp(inside, update, op.operand))


def _integer(value: int, like: SSAValue) -> np.generic:
    return dense.dtype_of(hlo.element_type_of(like)).type(value)


def _clamped(start: SSAValue, limit: int, rewriter: Rewriter) -> SSAValue:
    """The start from 0 to the limit, of 32 bits."""
    bytes = _integer(0, start).itemsize
    if bytes < 4:
        # The limit need not fit into less.
        start = rewriter.emit(hlo.ConvertOp(start, hlo.i32))
    at_least = rewriter.splat(_integer(0, start), start.type)
    at_most = rewriter.splat(_integer(limit, start), start.type)
    start = rewriter.emit(hlo.MaximumOp(start, at_least))
    start = rewriter.emit(hlo.MinimumOp(start, at_most))
    return rewriter.emit(hlo.ConvertOp(start, hlo.i32)) if bytes > 4 else start


def _read_at(update: SSAValue, place: SSAValue, dim: int, rewriter: Rewriter) -> SSAValue:
    """The update with, in one dimension, its elements at these places; any where there is none."""
    shape = list(hlo.shape_of(update))
    (count,) = hlo.shape_of(place)
    if shape[dim] == 1:
        shape[dim] = count
        return rewriter.emit(hlo.BroadcastInDimOp(update, range(len(shape)), shape))
    others = tuple(d for d in range(len(shape)) if d != dim)
    sizes = [1 if d == dim else n for d, n in enumerate(shape)]
    # Places without a vector dimension: one start for each.
    dims = GatherDims(others, (dim,), (), (), (dim,), 1)
    return rewriter.emit(hlo.GatherOp(update, place, dims, sizes))


def slice_of_concatenation(op: hlo.SliceOp, rewriter: Rewriter) -> SSAValue | None:
    """slice(concatenate(.., x, ..)) -> slice(x) where all that is left is of x."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.ConcatenateOp) or hlo.element_count(op.result) == 0:
        return None
    dim = inner.dim
    begin, end = 0, 0
    first = op.starts[dim]
    last = first + (hlo.shape_of(op.result)[dim] - 1) * op.strides[dim]
    for value in inner.inputs:
        begin, end = end, end + hlo.shape_of(value)[dim]
        if first < end:
            break
    else:
        raise AssertionError("unreachable: a slice is inside its operand")
    if last >= end:
        return None
    starts, limits = list(op.starts), list(op.limits)
    starts[dim], limits[dim] = first - begin, last + 1 - begin
    return rewriter.emit(hlo.SliceOp(value, starts, limits, op.strides))
