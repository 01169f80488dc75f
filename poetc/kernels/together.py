"""Loads of floats that follow each other, which one instruction may do.

The loop that they are in has the attribute `poet.together`: of its loads, in order, how many one
instruction does. These are one behind the other, from one buffer, at addresses that follow each
other. It says nothing of what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine
from xdsl.dialects.builtin import DenseArrayBase, Float32Type
from xdsl.ir import Block, BlockArgument, Operation

from poetc.kernels.access import linear_address
from poetc.kernels.guards import only_guard

TOGETHER = "poet.together"
"""Attribute of an `affine.for`: how many of the loads in it, in order, one instruction does."""


def block_in(loop: affine.ForOp) -> Block:
    """The block that runs in each iteration of a loop: that of its guard, if it has nothing
    else."""
    guard = only_guard(loop)
    return loop.body.block if guard is None else guard.then_region.block


def loads_together(loop: affine.ForOp) -> list[Sequence[affine.LoadOp]]:
    """The loads of a loop that one instruction may do, each time several; without those of which
    the attribute says so but that do not follow each other."""
    counts = loop.attributes.get(TOGETHER)
    if not isinstance(counts, DenseArrayBase):
        return []
    loads = [op for op in block_in(loop).ops if isinstance(op, affine.LoadOp)]
    found: list[Sequence[affine.LoadOp]] = []
    for count in counts.get_values():
        group, loads = loads[: int(count)], loads[max(int(count), 0) :]
        if len(group) > 1 and _follow(group):
            found.append(group)
    return found


def _follow(loads: Sequence[affine.LoadOp]) -> bool:
    first = loads[0]
    begin = linear_address(first)
    if begin is None or not isinstance(first.memref, BlockArgument):
        return False
    before: Operation | None = None
    for number, load in enumerate(loads):
        address = linear_address(load)
        if (
            load.memref is not first.memref
            or not isinstance(load.result.type, Float32Type)
            or (before is not None and before.next_op is not load)
            or address is None
            or dict(address.terms) != dict(begin.terms)
            or address.const != begin.const + number
        ):
            return False
        before = load
    return True
