"""Scalar operations: each binds its result to an expression or an index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, FloatAttr, IndexType, IntegerAttr, IntegerType
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.bindings import LONG, Bindings
from poetc.backends.c.expressions import (
    BINARY,
    CMPF,
    Expression,
    Level,
    float_literal,
    integer_literal,
    render,
)
from poetc.backends.c.indexing import index_arithmetic
from poetc.errors import InputError
from poetc.ir.index import Index


def define_scalar(bindings: Bindings, op: Operation) -> None:
    if len(op.results) != 1 or op.regions:
        raise InputError(f"the C backend does not know {op.name}")
    result = op.results[0]
    if isinstance(op, arith.ConstantOp):
        constant(bindings, op)
    elif isinstance(result.type, IndexType):
        index = index_arithmetic(op, bindings.index)
        if index is None:
            bindings.values[result] = compute(bindings, op)
            bindings.materialize(result)
        else:
            bindings.define_index(result, index)
    else:
        shorten(bindings, op.operands)
        expression = compute(bindings, op)
        bindings.define(result, expression)


def constant(bindings: Bindings, op: arith.ConstantOp) -> None:
    match op.value:
        case IntegerAttr() if isinstance(op.result.type, IndexType):
            bindings.indices[op.result] = Index(op.value.value.data)
        case IntegerAttr() if op.result.type == IntegerType(1):
            bindings.values[op.result] = Expression("true" if op.value.value.data else "false")
        case IntegerAttr():
            bindings.values[op.result] = integer_literal(op.value.value.data)
        case FloatAttr() if isinstance(op.result.type, Float32Type):
            bindings.values[op.result] = float_literal(op.value.value.data)
        case _:
            raise InputError(f"the C backend has no constant of type {op.result.type}")


def shorten(bindings: Bindings, operands: Sequence[SSAValue]) -> None:
    """Names the longest operands until the expression of all of them is of bearable length."""
    while sum(len(bindings.text(operand)) for operand in operands) > LONG:
        longest = max(
            (operand for operand in operands if operand in bindings.pending),
            key=lambda operand: len(bindings.text(operand)),
            default=None,
        )
        if longest is None:
            return
        bindings.materialize(longest)


def compute(bindings: Bindings, op: Operation) -> Expression:
    """The expression of a scalar operation."""
    if isinstance(op, arith.CmpfOp):
        return compare_floats(bindings, op)
    if type(op) in (arith.MaximumfOp, arith.MinimumfOp):
        return limit(bindings, op)
    if type(op) in (arith.MaxSIOp, arith.MinSIOp):
        a, b = (bindings.atom(operand) for operand in op.operands)
        operator = ">" if isinstance(op, arith.MaxSIOp) else "<"
        return Expression(f"{a} {operator} {b} ? {a} : {b}", Level.CHOICE)
    parts = [bindings.expression(operand) for operand in op.operands]
    reads = frozenset().union(*(part.reads for part in parts))
    text, level = render(op, parts)
    operation = None
    if type(op) in BINARY:
        operation = (parts[0].text, BINARY[type(op)][0], parts[1].text)
    return Expression(text, level, reads, operation)


def compare_floats(bindings: Bindings, op: arith.CmpfOp) -> Expression:
    predicate = op.predicate.value.data
    if predicate in CMPF:
        parts = [bindings.expression(operand) for operand in op.operands]
        reads = parts[0].reads | parts[1].reads
        operator, negated = CMPF[predicate]
        text = f"{parts[0].at(Level.SUM)} {operator} {parts[1].at(Level.SUM)}"
        if negated:
            return Expression(f"!({text})", Level.UNARY, reads)
        return Expression(text, Level.COMPARE, reads)
    a, b = (bindings.atom(operand) for operand in op.operands)
    reads = frozenset().union(
        *(bindings.values[operand].reads for operand in op.operands if operand in bindings.values)
    )
    if a == b and predicate in (7, 14):  # ordered, unordered
        return Expression(f"{a} {'==' if predicate == 7 else '!='} {a}", Level.COMPARE, reads)
    match predicate:
        case 6:
            return Expression(f"{a} < {b} || {a} > {b}", Level.OR, reads)
        case 7:
            return Expression(f"{a} == {a} && {b} == {b}", Level.AND, reads)
        case 8:
            return Expression(f"!({a} < {b} || {a} > {b})", Level.UNARY, reads)
        case 14:
            return Expression(f"{a} != {a} || {b} != {b}", Level.OR, reads)
    return Expression("true" if predicate else "false")


def limit(bindings: Bindings, op: Operation) -> Expression:
    """maximumf and minimumf; cheaper with a constant, see `poetc_at_least`."""
    maximum = isinstance(op, arith.MaximumfOp)
    operands = list(op.operands)
    if isinstance(operands[0].owner, arith.ConstantOp):
        operands.reverse()
    name = "poetc_maximum" if maximum else "poetc_minimum"
    if is_limit(op, operands[1]):
        name = "poetc_at_least" if maximum else "poetc_at_most"
    parts = [bindings.expression(operand) for operand in operands]
    text = f"{name}({', '.join(part.text for part in parts)})"
    return Expression(text, Level.ATOM, parts[0].reads | parts[1].reads)


def is_limit(op: Operation, operand: SSAValue) -> bool:
    """Whether an operand of maximumf or minimumf is a constant with which one comparison does."""
    constant = operand.owner
    if not (isinstance(constant, arith.ConstantOp) and isinstance(constant.value, FloatAttr)):
        return False
    value = np.float32(constant.value.value.data)
    # The zero for which the comparison with -0 or +0 alone is not enough.
    excluded = 0x80000000 if isinstance(op, arith.MaximumfOp) else 0
    return not np.isnan(value) and int(value.view(np.uint32)) != excluded
