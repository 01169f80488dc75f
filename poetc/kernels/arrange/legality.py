"""Whether iterations of a loop may run together: a proof from the addresses of what is in it."""

from __future__ import annotations

from xdsl.dialects import affine, memref
from xdsl.ir import SSAValue

from poetc.kernels.access import STORES, Access, Place, places_of
from poetc.kernels.addresses import IN_ALL, SEQUENTIAL, all_pinned, extent_of, never_equal


def may_jam(loop: affine.ForOp) -> bool:
    """Whether it is proven that what an iteration of a loop stores is its own.

    For every store in it, and every access to the same buffer, it must follow from equal addresses
    that both are in the same iteration.
    """
    if loop.inits or SEQUENTIAL in loop.attributes or IN_ALL in loop.attributes:
        return False
    accesses = [op for op in loop.walk() if isinstance(op, Access)]
    stored = {op.memref for op in accesses if isinstance(op, STORES)}
    places: dict[SSAValue, list[Place]] = {buffer: [] for buffer in stored}
    for place in places_of(op for op in accesses if op.memref in stored):
        places[place.op.memref].append(place)
    return all(
        _apart(loop, one, other)
        for of_buffer in places.values()
        for one in of_buffer
        if isinstance(one.op, STORES)
        for other in of_buffer
    )


def _apart(loop: affine.ForOp, store: Place, other: Place) -> bool:
    """Whether two accesses in a loop are at different addresses in different iterations of it."""
    if isinstance(store.op, memref.StoreOp) or isinstance(other.op, memref.StoreOp):
        return False
    common = (each.body.block.args[0] for each in store.loops if each in other.loops)
    variables = [*store.starts, *common]
    inside = variables.index(loop.body.block.args[0])
    maps = list(zip(store.indices, other.indices, strict=True))
    # Reordered iterations are in one tile, and in one iteration of the loops around.
    fixed: set[SSAValue] = {*variables[:inside], *(v for v in variables if extent_of(v) <= 1)}
    same = all_pinned(maps, variables, fixed)
    return loop.body.block.args[0] in same or any(
        never_equal(stored, loaded, same) for stored, loaded in maps
    )
