"""Whether iterations of a loop may run together: a proof from the addresses of what is in it."""

from __future__ import annotations

from xdsl.dialects import affine, memref
from xdsl.ir import Operation, SSAValue

from poetc.kernels.access import STORES, Access, linear_indices, loops_around
from poetc.kernels.addresses import IN_ALL, SEQUENTIAL, all_pinned, extent_of, never_equal


def may_jam(loop: affine.ForOp) -> bool:
    """Whether it is proven that what an iteration of a loop stores is its own.

    For every store in it, and every access to the same buffer, it must follow from equal addresses
    that both are in the same iteration.
    """
    if loop.inits or SEQUENTIAL in loop.attributes or IN_ALL in loop.attributes:
        return False
    accesses: dict[SSAValue, list[Operation]] = {}
    for op in loop.walk():
        if isinstance(op, Access):
            accesses.setdefault(op.memref, []).append(op)
    return all(
        _apart(loop, op, other)
        for of_buffer in accesses.values()
        for op in of_buffer
        if isinstance(op, STORES)
        for other in of_buffer
    )


def _apart(loop: affine.ForOp, store: Operation, other: Operation) -> bool:
    """Whether two accesses in a loop are at different addresses in different iterations of it."""
    if isinstance(store, memref.StoreOp) or isinstance(other, memref.StoreOp):
        return False
    assert isinstance(store, affine.StoreOp)
    assert isinstance(other, affine.LoadOp | affine.StoreOp | memref.LoadOp)
    others = set(loops_around(other))
    variables = [each.body.block.args[0] for each in loops_around(store) if each in others]
    inside = variables.index(loop.body.block.args[0])
    maps = list(zip(linear_indices(store), linear_indices(other), strict=True))
    # What is reordered is in one iteration of the loops around.
    fixed: set[SSAValue] = {*variables[:inside], *(v for v in variables if extent_of(v) <= 1)}
    same = all_pinned(maps, variables, fixed)
    return loop.body.block.args[0] in same or any(
        never_equal(stored, loaded, same) for stored, loaded in maps
    )
