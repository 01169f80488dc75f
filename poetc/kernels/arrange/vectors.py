"""Chooses the loops whose iterations are the lanes of vectors."""

from __future__ import annotations

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import IntegerAttr

from poetc.kernels.addresses import extent
from poetc.kernels.arrange.blocks import block_outside
from poetc.kernels.arrange.copies import split
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.dependences import dependences
from poetc.kernels.lanes import LANES, parts_of

_FEWEST_LANES = 4


def in_lanes(function: func.FuncOp, lanes: int, cache_bytes: int = 0) -> func.FuncOp | None:
    """A copy of a kernel in which parallel loops run so many iterations at a time, or half as many
    where there are no more, and those that remain one by one; None if none may. With a cache, such
    loops are cut into blocks where that is to load less from beyond it (`blocks.py`)."""
    copy = function.clone()
    depends = dependences(copy)
    guarded = {
        loop
        for op in copy.walk()
        if isinstance(op, affine.IfOp)
        for value in op.args
        for loop in depends.get(value, ())
    }
    chosen: dict[affine.ForOp, int] = {}
    for loop in copy.walk(region_first=True):
        if not isinstance(loop, affine.ForOp) or loop.inits or loop in guarded:
            continue
        count = _lanes_for(extent(loop), lanes)
        if not count or (parts := parts_of(loop, depends)) is None or not may_jam(loop):
            continue
        if all(each not in chosen for op in parts.vectors for each in op.walk()):
            chosen[loop] = count
    # Inner ones first: those around are copied with them.
    for loop, count in chosen.items():
        rest = extent(loop) % count
        whole = extent(loop) - rest
        ranges = [(whole, 1, 0), *([(rest, 1, whole)] if rest else [])]
        made = split(loop, ranges)[0] if rest else loop
        made.attributes[LANES] = IntegerAttr(count, 64)
        if cache_bytes and not rest:
            block_outside(made, count, cache_bytes)
    return copy if chosen else None


def _lanes_for(positions: int, lanes: int) -> int:
    """The lanes for a loop of so many positions; 0 where there are too few."""
    while lanes >= _FEWEST_LANES and lanes > positions:
        lanes //= 2
    return lanes if lanes >= _FEWEST_LANES else 0
