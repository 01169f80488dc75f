"""The loops of a kernel that each of its values depends on."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine, func
from xdsl.ir import Block, SSAValue


def yielded(block: Block) -> Sequence[SSAValue]:
    """The operands of a block's yield; none without one."""
    last = block.last_op
    return last.operands if isinstance(last, affine.YieldOp) else ()


def dependences(function: func.FuncOp) -> dict[SSAValue, frozenset[affine.ForOp]]:
    """The parallel loops whose variable each value depends on, by data or through guards.

    What is in memory counts as independent: a load depends on what its index does.
    """
    found: dict[SSAValue, frozenset[affine.ForOp]] = {}
    none: frozenset[affine.ForOp] = frozenset()

    def of(values: Sequence[SSAValue]) -> frozenset[affine.ForOp]:
        return none.union(*(found.get(value, none) for value in values))

    def visit(block: Block) -> None:
        for op in block.ops:
            match op:
                case affine.ForOp():
                    body = op.body.block
                    variable, *carried = body.args
                    found[variable] = none if op.inits else frozenset({op})
                    for argument, init in zip(carried, op.inits, strict=True):
                        found[argument] = of([init])
                    while True:
                        visit(body)
                        grown = False
                        for argument, value in zip(carried, yielded(body), strict=True):
                            more = found[argument] | of([value])
                            grown |= more != found[argument]
                            found[argument] = more
                        if not grown:
                            break
                    for result, argument in zip(op.results, carried, strict=True):
                        found[result] = found[argument]
                case affine.IfOp():
                    guard = of(op.args)
                    branches = [region.block for region in op.regions if region.blocks]
                    for branch in branches:
                        visit(branch)
                    for i, result in enumerate(op.results):
                        found[result] = guard.union(*(of([yielded(b)[i]]) for b in branches))
                case _:
                    for result in op.results:
                        found[result] = of(op.operands)

    visit(function.body.block)
    return found


def drop_dead(block: Block) -> None:
    """Erases scalars in a block, and in loops and guards in it, that nothing uses."""
    for op in reversed(list(block.walk())):
        if op.results and not op.regions and not any(result.uses for result in op.results):
            op.detach()
            op.erase()
