"""Extents of the loops of lowered kernels, and in which iterations accesses have one address."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import AffineMapAttr, IntegerAttr
from xdsl.ir import BlockArgument, SSAValue
from xdsl.ir.affine import AffineConstantExpr

from poetc.errors import InputError
from poetc.ir.locations import source_location
from poetc.kernels.access import Linear, tile_of

SEQUENTIAL = "poet.sequential"
"""Attribute of an `affine.for` whose iterations run in order: they read what others write."""

IN_ALL = "poet.in_all"
"""Attribute of an `affine.for` between positions that are read from memory: how often it runs at
most, in all of the different ranges together. All are between 0 and that."""

COPIES = "poet.copies"
"""Attribute of an `affine.for` that copies an operand to a result which is in the place of it in
all calls: it has nothing to do there, and is not counted."""


def extent(loop: affine.ForOp) -> int:
    """Trip count, at most, of a loop in steps of 1, from 0 to a constant or between positions that
    are read from memory; InputError for any other."""
    in_all = loop.attributes.get(IN_ALL)
    # The attribute first, as operands take time to look up.
    if isinstance(in_all, IntegerAttr) and loop.lowerBoundOperands and loop.upperBoundOperands:
        return max(0, in_all.value.data)
    low, high = (_constant(loop, name) for name in ("lowerBoundMap", "upperBoundMap"))
    if low != 0 or loop.step.value.data != 1:
        raise InputError("loops of kernels start at 0 and have step 1", source_location(loop))
    if high is None:
        raise InputError("loops of kernels have constant bounds", source_location(loop))
    return max(0, high)


def _constant(loop: affine.ForOp, bound: str) -> int | None:
    """A bound of a loop, if it is constant."""
    # Looked up where it is, as extents are asked for often.
    attribute = loop.properties[bound]
    assert isinstance(attribute, AffineMapAttr)
    match attribute.data.results:
        case (AffineConstantExpr(value),):
            return value
        case _:
            return None


def extent_of(variable: SSAValue) -> int:
    """A number that the variable of a loop, or a start of a tile, is below: the trip count of the
    loop, that of the whole one for a loop over a tile."""
    assert isinstance(variable, BlockArgument)
    parent = variable.block.parent_op()
    # Loops first: this is asked often, and each other question takes its time.
    if isinstance(parent, affine.ForOp):
        start = tile_start(parent)
        return extent(parent) if start is None else extent_of(start)
    assert isinstance(parent, func.FuncOp)
    return tile_of(variable)[0]


def tile_start(loop: affine.ForOp) -> BlockArgument | None:
    """The start of the tile that a loop runs over, up to the end of the tile or of the loop; None
    for a loop of all iterations."""
    # Without operands of bounds there are only initial values; counted, as they take time to tell.
    if len(loop.operands) == len(loop.results):
        return None
    if IN_ALL in loop.attributes or len(loop.lowerBoundOperands) != 1:
        return None
    (start,) = loop.lowerBoundOperands
    if not isinstance(start, BlockArgument) or not isinstance(start.owner.parent_op(), func.FuncOp):
        return None
    return start


def all_pinned(
    maps: Sequence[tuple[Linear | None, Linear | None]],
    variables: Sequence[SSAValue],
    same: set[SSAValue],
) -> set[SSAValue]:
    """The common loop variables that are equal where two accesses have one address: those that are
    the `same` anyway, and those that follow. `maps` are the indices of both in each dimension."""
    found = set(same)
    before = -1
    while before < len(found) and not found.issuperset(variables):
        before = len(found)
        for stored, loaded in maps:
            found |= _pins(stored, loaded, variables, found)
    return found


def _pins(
    stored: Linear | None,
    loaded: Linear | None,
    variables: Sequence[SSAValue],
    pinned: set[SSAValue],
) -> set[SSAValue]:
    """The common loop variables that equal indices `stored` and `loaded` force to be equal: those
    that are the leading digits of a mixed-radix number whose last digits are the rest."""
    if stored is None or loaded is None:
        return set()
    if any(stored.terms.get(v, 0) != loaded.terms.get(v, 0) for v in variables):
        return set()
    digits = [v for v in variables if v not in pinned and stored.terms.get(v, 0)]
    stored_low, stored_high = span(stored, variables)
    loaded_low, loaded_high = span(loaded, variables)
    reach = max(loaded_high - stored_low, stored_high - loaded_low)
    leading: set[SSAValue] = set()
    for v in sorted(digits, key=lambda v: abs(stored.terms[v])):
        weight = abs(stored.terms[v])
        leading = leading | {v} if weight > reach else set()
        reach += weight * (extent_of(v) - 1)
    return leading


def never_equal(stored: Linear | None, loaded: Linear | None, same: set[SSAValue]) -> bool:
    """Whether two indices are different in all iterations of their loops in which the variables
    `same` are."""
    if stored is None or loaded is None:
        return False
    for index in (stored, loaded):
        for v in index.terms:
            if v not in same and extent_of(v) == 2:
                # Borders that are peeled off are far apart: each of the two by itself.
                ends = (_without(index, v, 0), _without(index, v, 1))
                return all(
                    never_equal(end, loaded, same)
                    if index is stored
                    else never_equal(stored, end, same)
                    for end in ends
                )
    difference = {v: stored.terms.get(v, 0) - loaded.terms.get(v, 0) for v in same}
    low, high = span(Linear(stored.const - loaded.const, difference), ())
    (own_low, own_high), (other_low, other_high) = (
        span(Linear(0, {v: c for v, c in index.terms.items() if v not in same}), ())
        for index in (stored, loaded)
    )
    return low + own_low - other_high > 0 or high + own_high - other_low < 0


def _without(index: Linear, variable: SSAValue, at: int) -> Linear:
    """An index where a variable is at a position."""
    terms = {v: c for v, c in index.terms.items() if v != variable}
    return Linear(index.const + index.terms[variable] * at, terms)


def span(index: Linear, without: Sequence[SSAValue]) -> tuple[int, int]:
    """Least and greatest value of an index without these loop variables."""
    low = high = index.const
    for v, c in index.terms.items():
        if v not in without:
            reach = c * (extent_of(v) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high
