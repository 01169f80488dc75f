"""Loops of which several iterations at a time are the lanes of vectors.

Such a loop has the attribute `poet.lanes`. It means what it means without: iterations are
independent. Sums, and what they need, are done by vectors, one number for each iteration; what
remains as well, if it can be, or else iteration by iteration. Each sum is that of one
lane, in its own order. So are loops without sums, where vectors can do all that is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from xdsl.dialects import affine, arith, func, math
from xdsl.dialects.builtin import Float32Type, IntegerAttr, IntegerType, i32
from xdsl.ir import Block, Operation, SSAValue

from poetc.ir import mathlib
from poetc.kernels.access import STORES, Access, linear_address
from poetc.kernels.pieces import pieces

LANES = "poet.lanes"
"""Attribute of a parallel `affine.for`: how many iterations are done at a time, a divisor of their
number."""

SIDE = 4
"""Of squares of numbers that are transposed."""
_MOST_ROWS = 16
"""Of several squares beside each other."""

_FLOAT = Float32Type()
_TYPES = (_FLOAT, i32, IntegerType(1))
_IN_VECTORS = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.NegfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.CmpfOp,
    arith.SelectOp,
    math.AbsFOp,
    arith.AddiOp,
    arith.SubiOp,
    arith.MuliOp,
    arith.ShLIOp,
    arith.ShRSIOp,
    arith.AndIOp,
    arith.OrIOp,
    arith.XOrIOp,
    arith.BitcastOp,
    arith.SIToFPOp,
    arith.FPToSIOp,
    arith.ExtUIOp,
)
_ALWAYS = 15
"""The predicate of floats that is always true; 0 never is."""
_FIRST_UNSIGNED = 6
"""The first predicate of integers without a sign."""

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


def squares(block: Block, loop: affine.ForOp) -> Iterator[Sequence[affine.LoadOp]]:
    """Loads of a block in the lanes of a loop which are not side by side there, but with each
    other: `SIDE` at addresses that follow each other. They are the columns of a square of numbers
    whose rows are loaded at once. None where the block stores."""
    if lanes_of(loop) > _MOST_ROWS:
        return
    runs: dict[object, dict[int, affine.LoadOp]] = {}
    for op in block.ops:
        if isinstance(op, STORES) or (op.regions and any(isinstance(o, STORES) for o in op.walk())):
            return
        if not isinstance(op, affine.LoadOp) or step_of(op, loop) in (None, 0, 1):
            continue
        address = linear_address(op)
        if address is not None and op.result.type == _FLOAT:
            key = (op.memref, *sorted(address.terms.items(), key=lambda term: id(term[0])))
            runs.setdefault(key, {}).setdefault(address.const, op)
    for loads in runs.values():
        for start, count in pieces(sorted(loads), SIDE):
            if count == SIDE:
                yield [loads[start + i] for i in range(SIDE)]


@dataclass(frozen=True)
class Parts:
    """A loop body in two parts: operations on vectors, then operations for each iteration."""

    vectors: list[Operation]
    singly: list[Operation]


def parts_of(loop: affine.ForOp, depends: Depends) -> Parts | None:
    """How a parallel loop is done in lanes; None if it cannot be, or there is nothing to gain.
    `depends` says which loops values depend on."""
    ops = [op for op in loop.body.block.ops if not isinstance(op, affine.YieldOp)]
    sums = [at for at, op in enumerate(ops) if _has_sum(op)]
    if not any(loop in depends.get(value, ()) for at in sums for value in ops[at].results):
        return Parts(ops, []) if _is_side_by_side(ops, loop, depends) else None
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
    if singly and any(isinstance(each, STORES) for op in vectors for each in op.walk()):
        return None
    if not singly and all(_is_vector(op, loop, depends) for op in ops[cut:]):
        return Parts(ops, [])
    return Parts(vectors, [*singly, *ops[cut:]])


def _has_sum(op: Operation) -> bool:
    """Whether an operation is a sum, or a guard around one."""
    if isinstance(op, affine.IfOp):
        return any(map(_has_sum, (each for r in op.regions for b in r.blocks for each in b.ops)))
    return isinstance(op, affine.ForOp) and bool(op.inits)


def _is_side_by_side(ops: Sequence[Operation], loop: affine.ForOp, depends: Depends) -> bool:
    """Whether vectors can do all of a loop, on numbers that are side by side, and it computes."""
    inside = [each for op in ops for each in op.walk()]
    return (
        any(each.results and in_vectors(each) for each in inside)
        and all(_is_vector(op, loop, depends) for op in ops)
        and all(step_of(each, loop) in (0, 1) for each in inside if isinstance(each, affine.LoadOp))
    )


def _is_vector(op: Operation, loop: affine.ForOp, depends: Depends) -> bool:
    """Whether vectors can do an operation in a loop, with all that is in it."""

    def varies(value: SSAValue) -> bool:
        return loop in depends.get(value, ())

    match op:
        case affine.StoreOp():
            return varies(op.value) and op.value.type == _FLOAT and step_of(op, loop) == 1
        case affine.ForOp():
            if lanes_of(op) > 1 or any(
                map(varies, (*op.lowerBoundOperands, *op.upperBoundOperands))
            ):
                return False
        case affine.IfOp():
            if any(map(varies, op.args)):
                return False
        case _ if not any(map(varies, op.results)):
            return not op.regions and bool(op.results)
        case affine.LoadOp():
            return op.result.type == _FLOAT and step_of(op, loop) is not None
        case affine.ApplyOp():
            return True
        case _:
            return in_vectors(op)
    if any(varies(result) and result.type != _FLOAT for result in op.results):
        return False
    inside = (each for region in op.regions for block in region.blocks for each in block.ops)
    return all(
        isinstance(each, affine.YieldOp)
        or (not (op.results and isinstance(each, STORES)) and _is_vector(each, loop, depends))
        for each in inside
    )


def in_vectors(op: Operation) -> bool:
    """Whether vectors can do a scalar operation."""
    if any(value.type not in _TYPES for value in (*op.operands, *op.results)):
        return False
    match op:
        case arith.CmpiOp():
            return op.predicate.value.data < _FIRST_UNSIGNED and op.lhs.type == i32
        case arith.SIToFPOp() | arith.MuliOp() | arith.AddiOp() | arith.SubiOp():
            return op.operands[0].type == i32
        case arith.CmpfOp():
            return 0 < op.predicate.value.data < _ALWAYS
        case _:
            symbol = mathlib.symbol_of(op)
            return isinstance(op, _IN_VECTORS) if symbol is None else _function_in_vectors(symbol)


@cache
def _function_in_vectors(symbol: str) -> bool:
    """Whether vectors can do a mathematical function."""
    known = (arith.ConstantOp, func.CallOp, func.ReturnOp)
    return all(
        isinstance(op, known) or in_vectors(op)
        for name in mathlib.callees(symbol)
        for op in mathlib.function(name).body.block.ops
    )
