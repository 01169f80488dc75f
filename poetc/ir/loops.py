"""The operations around one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from xdsl.dialects import affine, func
from xdsl.ir import Operation


def loops_around(op: Operation) -> list[affine.ForOp]:
    """The loops around an operation, the outermost first."""
    return [parent for parent in parents(op) if isinstance(parent, affine.ForOp)][::-1]


def parents(op: Operation) -> Iterator[Operation]:
    """The operations around one in its function, the innermost first."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, func.FuncOp):
        yield parent
        parent = parent.parent_op()


def nest_around(loop: affine.ForOp, may: Callable[[affine.ForOp], bool]) -> list[affine.ForOp]:
    """The loops around a loop, the outermost first, that have nothing in them but the next one, as
    far out as they `may` be of the nest."""
    nest: list[affine.ForOp] = []
    inner = loop
    while isinstance(outer := inner.parent_op(), affine.ForOp):
        if [*outer.body.block.ops][:-1] != [inner] or not may(outer):
            break
        nest.insert(0, outer)
        inner = outer
    return nest
