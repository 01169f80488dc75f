"""Borders peeled off loops: where guards of padding hold at all positions but the first and last
ones, those have a loop of their own, and the loop between them has no guards.

    for i in 0 to 32:                      for b in 0 to 2:    // i = 31 b
      for k in 0 to 3:                       for k in 0 to 3:
        if 0 <= i + k - 1 < 32:                if 0 <= i + k - 1 < 32: ...
          ...                     becomes  for i in 0 to 30:   // i + 1
                                             for k in 0 to 3: ...
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import affine, func
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.kernels.access import Linear, linear_constraints, parents
from poetc.kernels.addresses import extent, span
from poetc.kernels.arrange.copies import split
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.dependences import yielded

_LEAST = 2
"""Positions between borders for which it is worth looking at."""


def peelings(function: func.FuncOp) -> Iterator[func.FuncOp]:
    """Copies of a kernel, each with the borders of some loops peeled off: the innermost ones that
    have borders, then the innermost but one."""
    for depth in (0, 1):
        copy = function.clone()
        loops = [op for op in copy.walk(region_first=True) if isinstance(op, affine.ForOp)]
        interiors = {loop: found for loop in loops if (found := _interior(loop)) is not None}
        inside = dict.fromkeys(interiors, 0)
        for loop in interiors:
            for parent in parents(loop):
                if isinstance(parent, affine.ForOp) and parent in inside:
                    inside[parent] = max(inside[parent], inside[loop] + 1)
        chosen = [loop for loop in interiors if inside[loop] == depth]
        if not chosen:
            return
        for loop in chosen:
            peel(loop, *interiors[loop])
        yield copy


def _interior(loop: affine.ForOp) -> tuple[int, int] | None:
    """The first position in a parallel loop at which its guards hold whatever the other loops are
    at, and the one behind the last; None if there are none, or there are no guards to gain."""
    if loop.inits:
        return None
    variable = loop.body.block.args[0]
    low, high = 0, extent(loop)
    for guard in loop.walk():
        if isinstance(guard, affine.IfOp) and variable in guard.args:
            for index, equal in linear_constraints(guard):
                factor = 0 if index is None else index.terms.get(variable, 0)
                if index is None or (equal and factor):
                    return None
                rest = span(index, (variable,))[0]
                if factor > 0:
                    low = max(low, -(rest // factor))
                elif factor < 0:
                    high = min(high, rest // -factor + 1)
    has_borders = low > 0 or high < extent(loop)
    return (low, high) if has_borders and high - low >= _LEAST and may_jam(loop) else None


def peel(loop: affine.ForOp, low: int, high: int) -> None:
    """Runs a parallel loop first at its borders, before `low` and from `high`, then between them,
    where guards that hold are gone.

    The caller knows that iterations are independent (`legality.py`).
    """
    count = extent(loop)
    if low == 1 and high == count - 1:
        ranges = [(2, count - 1, 0)]
    else:
        ranges = [(low, 1, 0), (count - high, 1, high)]
    *_, interior = split(loop, [*(part for part in ranges if part[0]), (high - low, 1, low)])
    for guard in list(interior.walk(reverse=True)):
        if isinstance(guard, affine.IfOp) and all(_holds(*c) for c in linear_constraints(guard)):
            _without(guard)


def _holds(index: Linear | None, equal: bool) -> bool:
    return index is not None and not equal and span(index, ())[0] >= 0


def _without(guard: affine.IfOp) -> None:
    """Puts what is behind a guard in its place."""
    block = guard.then_region.block
    values = tuple(yielded(block))
    for op in list(block.ops):
        op.detach()
        if isinstance(op, affine.YieldOp):
            op.erase()
        else:
            Rewriter.insert_op(op, InsertPoint.before(guard))
    for result, value in zip(guard.results, values, strict=True):
        result.replace_all_uses_with(value)
    Rewriter.erase_op(guard)
