"""The operations around one."""

from __future__ import annotations

from collections.abc import Iterator

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
