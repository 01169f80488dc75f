"""Loads, or stores, of floats that follow each other, which one instruction may do.

The loop that they are in has the attribute `poet.together`: of its loads and stores, in order, how
many one instruction does. These are one behind the other, of one buffer, at addresses that follow
each other. It says nothing of what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine
from xdsl.dialects.builtin import DenseArrayBase, Float32Type
from xdsl.ir import Block, BlockArgument, Operation

from poetc.kernels.access import linear_addresses
from poetc.kernels.guards import only_guard

TOGETHER = "poet.together"
"""Attribute of an `affine.for`: how many of the loads and stores in it, in order, one instruction
does."""

Group = Sequence[affine.LoadOp] | Sequence[affine.StoreOp]


def block_in(loop: affine.ForOp) -> Block:
    """The block that runs in each iteration of a loop: that of its guard, if it has nothing
    else."""
    guard = only_guard(loop)
    return loop.body.block if guard is None else guard.then_region.block


def accesses_together(loop: affine.ForOp) -> list[Group]:
    """The loads and stores of a loop that one instruction may do, each time several; without those
    of which the attribute says so but that do not follow each other."""
    counts = loop.attributes.get(TOGETHER)
    if not isinstance(counts, DenseArrayBase):
        return []
    accesses = [op for op in block_in(loop).ops if isinstance(op, affine.LoadOp | affine.StoreOp)]
    found: list[Group] = []
    for count in counts.get_values():
        group, accesses = accesses[: int(count)], accesses[max(int(count), 0) :]
        loads = [op for op in group if isinstance(op, affine.LoadOp)]
        stores = [op for op in group if isinstance(op, affine.StoreOp)]
        if len(group) > 1 and not (loads and stores) and _follow(loads or stores):
            found.append(loads or stores)
    return found


def _follow(group: Group) -> bool:
    first = group[0]
    addresses = linear_addresses(group)
    begin = addresses[first]
    if begin is None or not isinstance(first.memref, BlockArgument):
        return False
    before: Operation | None = None
    for number, access in enumerate(group):
        address = addresses[access]
        value = access.result if isinstance(access, affine.LoadOp) else access.value
        if (
            access.memref is not first.memref
            or not isinstance(value.type, Float32Type)
            or (before is not None and before.next_op is not access)
            or address is None
            or dict(address.terms) != dict(begin.terms)
            or address.const != begin.const + number
        ):
            return False
        before = access
    return True
