"""The functions of kernels: attributes count their inputs, results and workspaces."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Block, Region, SSAValue

BUFFERS = ("inputs", "results", "workspace")
"""The kinds of buffers that a kernel takes, in their order."""


def kernel_function(name: str, body: Block, *counts: int) -> func.FuncOp:
    """The function of a kernel with that body, whose arguments are so many of each of `BUFFERS`;
    others may stand behind."""
    function = func.FuncOp(name, (body.arg_types, []), Region(body), visibility="private")
    for kind, count in zip(BUFFERS, counts, strict=True):
        function.attributes[f"poet.{kind}"] = IntegerAttr(count, i64)
    return function


def with_arguments(body: Block, order: Sequence[SSAValue]) -> Block:
    """A block with the operations of `body`, which are moved there, whose arguments are these of
    the body in this order."""
    block = Block(arg_types=[value.type for value in order])
    for new, old in zip(block.args, order, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for op in list(body.ops):
        op.detach()
        block.add_op(op)
    return block
