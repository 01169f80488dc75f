"""Borders peeled off loops: where guards of padding hold at all positions but the first and last
ones, those have a loop of their own, and the loop between them has no guards.

    for i in 0 to 32:                      for b in 0 to 2:    // i = 31 b
      for k in 0 to 3:                       for k in 0 to 3:
        if 0 <= i + k - 1 < 32:                if 0 <= i + k - 1 < 32: ...
          ...                     becomes  for i in 0 to 30:   // i + 1
                                             for k in 0 to 3: ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import affine, func
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.ir.loops import loops_around, parents
from poetc.kernels.access import Linear, linear_constraints
from poetc.kernels.addresses import IN_ALL, extent, span
from poetc.kernels.arrange.copies import split, split_sum
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.dependences import yielded

_LEAST = 2
"""Positions between borders for which it is worth looking at."""


def peelings(function: func.FuncOp) -> Iterator[func.FuncOp]:
    """Copies of a kernel, each with the borders of some loops peeled off: of parallel ones the
    innermost that have borders, then the innermost but one; and the innermost sums that have."""
    interiors = _interiors(function)
    for of_sums, depths in ((False, (0, 1)), (True, (0,))):
        chosen = [loop for loop in interiors if bool(loop.inits) is of_sums]
        inside = dict.fromkeys(chosen, 0)
        for loop in chosen:
            for parent in parents(loop):
                if isinstance(parent, affine.ForOp) and parent in inside:
                    inside[parent] = max(inside[parent], inside[loop] + 1)
        for depth in depths:
            if peeled := {loop: interiors[loop] for loop in chosen if inside[loop] == depth}:
                yield _peeled(function, peeled)


def _peeled(
    function: func.FuncOp, interiors: Mapping[affine.ForOp, tuple[int, int]]
) -> func.FuncOp:
    copied: dict[SSAValue, SSAValue] = {}
    copy = function.clone(copied)
    for loop, interior in interiors.items():
        new = copied[loop.body.block.args[0]].owner.parent_op()
        assert isinstance(new, affine.ForOp)
        peel(new, *interior)
    return copy


def _interiors(function: func.FuncOp) -> dict[affine.ForOp, tuple[int, int]]:
    """The parallel loops and sums, inner ones first, that have positions between others at which
    the guards in them hold whatever the other loops are at: the first of them, and the one behind
    the last."""
    ranges: dict[affine.ForOp, tuple[int, int]] = {}
    without: set[affine.ForOp] = set()
    for guard in function.walk():
        if not isinstance(guard, affine.IfOp):
            continue
        constraints = list(linear_constraints(guard))
        for loop in loops_around(guard):
            variable = loop.body.block.args[0]
            if variable not in guard.args:
                continue
            low, high = ranges.get(loop, (0, extent(loop)))
            for index, equal in constraints:
                factor = 0 if index is None else index.terms.get(variable, 0)
                if index is None or (equal and factor):
                    without.add(loop)
                    break
                rest = span(index, (variable,))[0]
                if factor > 0:
                    low = max(low, -(rest // factor))
                elif factor < 0:
                    high = min(high, rest // -factor + 1)
            ranges[loop] = low, high
    return {
        loop: (low, high)
        for loop in function.walk(region_first=True)
        if isinstance(loop, affine.ForOp) and loop in ranges and loop not in without
        for low, high in (ranges[loop],)
        if (low > 0 or high < extent(loop)) and high - low >= _LEAST
        if (IN_ALL not in loop.attributes if loop.inits else may_jam(loop))
    }


def peel(loop: affine.ForOp, low: int, high: int) -> None:
    """Runs a loop first at its borders, before `low` and from `high`, then between them, where
    guards that hold are gone; one that carries values in order.

    The caller knows that iterations of a parallel loop are independent (`legality.py`).
    """
    count = extent(loop)
    if loop.inits:
        interior = split_sum(loop, (low, high))[1 if low else 0]
    else:
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
