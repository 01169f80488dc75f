"""Loops of which several iterations at a time are the lanes of vectors.

Such a loop has the attribute `poet.lanes`. It means what it means without: iterations are
independent. Sums, and what they need, are done by vectors, one number for each iteration; what
remains as well, if it can be, or else iteration by iteration. Each sum is that of one
lane, in its own order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import affine, arith
from xdsl.dialects.builtin import Float32Type, IntegerAttr
from xdsl.ir import Operation, SSAValue

from poetc.kernels.access import STORES, Access, linear_address

LANES = "poet.lanes"
"""Attribute of a parallel `affine.for`: how many iterations are done at a time, a divisor of their
number."""

_IN_VECTORS = (arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp)
_FLOAT = Float32Type()

Depends = Mapping[SSAValue, frozenset[affine.ForOp]]


def lanes_of(loop: affine.ForOp) -> int:
    """The iterations of a loop that are done at a time; 1 without the attribute."""
    lanes = loop.attributes.get(LANES)
    return lanes.value.data if isinstance(lanes, IntegerAttr) else 1


def step_of(op: Access, loop: affine.ForOp) -> int | None:
    """The elements that an iteration of a loop moves an access by; None where that is not the
    same for all."""
    address = linear_address(op)
    return None if address is None else address.terms.get(loop.body.block.args[0], 0)


@dataclass(frozen=True)
class Parts:
    """A loop body in two parts: operations on vectors, then operations for each iteration."""

    vectors: list[Operation]
    singly: list[Operation]


def parts_of(loop: affine.ForOp, depends: Depends) -> Parts | None:
    """How a parallel loop is done in lanes; None if it cannot be, or there is no sum to gain by.
    `depends` says which loops values depend on."""
    ops = [op for op in loop.body.block.ops if not isinstance(op, affine.YieldOp)]
    sums = [at for at, op in enumerate(ops) if isinstance(op, affine.ForOp) and op.inits]
    if not any(loop in depends.get(ops[at].results[0], ()) for at in sums):
        return None
    cut = sums[-1] + 1
    vectors: list[Operation] = []
    singly: list[Operation] = []
    later: set[SSAValue] = set()
    for op in ops[:cut]:
        used = (value for each in op.walk() for value in each.operands)
        if _is_vector(op, loop, depends) and later.isdisjoint(used):
            vectors.append(op)
        elif op.regions or isinstance(op, STORES):
            return None
        else:
            # Only what comes behind the sums needs it.
            singly.append(op)
            later.update(op.results)
    if singly and any(isinstance(op, STORES) for op in vectors):
        return None
    if not singly and all(_is_vector(op, loop, depends) for op in ops[cut:]):
        return Parts(ops, [])
    return Parts(vectors, [*singly, *ops[cut:]])


def _is_vector(op: Operation, loop: affine.ForOp, depends: Depends) -> bool:
    """Whether vectors can do an operation in a loop, with all that is in it."""

    def varies(value: SSAValue) -> bool:
        return loop in depends.get(value, ())

    match op:
        case affine.StoreOp():
            return varies(op.value) and op.value.type == _FLOAT and step_of(op, loop) == 1
        case affine.ForOp():
            if not op.inits or any(map(varies, (*op.lowerBoundOperands, *op.upperBoundOperands))):
                return False
        case affine.IfOp():
            if any(map(varies, op.args)):
                return False
        case _ if not any(map(varies, op.results)):
            return not op.regions
        case affine.LoadOp():
            return op.result.type == _FLOAT and step_of(op, loop) is not None
        case affine.ApplyOp():
            return True
        case _:
            return isinstance(op, _IN_VECTORS) and op.results[0].type == _FLOAT
    if any(varies(result) and result.type != _FLOAT for result in op.results):
        return False
    inside = (each for region in op.regions for block in region.blocks for each in block.ops)
    return all(
        isinstance(each, affine.YieldOp)
        or (not isinstance(each, affine.StoreOp) and _is_vector(each, loop, depends))
        for each in inside
    )
