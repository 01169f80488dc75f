"""The error of the proof, and the names of operations, values and transfers in it."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from poetc.errors import PoetcError
from poetc.ir.locations import source_location
from poetc.ir.poet import GraphOp, PageInStartOp, PageOutStartOp


class VerificationError(PoetcError):
    """A graph breaks one of the rules above; after our own passes, an internal error."""


def op_name(op: Operation) -> str:
    """The name of an operation, with its label; of a graph, its start."""
    if isinstance(op, GraphOp):
        return f"the start of poet.graph @{op.sym_name.data}"
    label = op.properties.get("label")
    return f'{op.name} "{label.data}"' if isinstance(label, StringAttr) else op.name


def transfer_name(op: PageOutStartOp | PageInStartOp) -> str:
    """A transfer under way, for messages."""
    return f"{op_name(op)} of {name_of(op.operands[0])}"


def name_of(value: SSAValue) -> str:
    """The name of a value and what defines it, as names in the text may differ or be missing."""
    name = f"%{value.name_hint} " if value.name_hint else ""
    if isinstance(value, BlockArgument):
        return f"{name}(argument {value.index})"
    assert isinstance(value, OpResult)
    which = f"result {value.index} of " if len(value.owner.results) > 1 else ""
    return f"{name}({which}{op_name(value.owner)})"


def fault(op: Operation, message: str) -> VerificationError:
    """The error that says at `op` which rule is broken."""
    return VerificationError(message, source_location(op))
