"""Scalar operations of loops in lanes as C: on vectors of gcc and clang.

A boolean is a vector of integers, all bits of which are set where it is true, as comparisons make
them; so a choice is made by masks. Integers wrap, as vectors without a sign do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from xdsl.dialects import affine, arith, func, math
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.backends.c.bindings import Bindings
from poetc.backends.c.expressions import (
    CMPF,
    Expression,
    Level,
    integers_type,
    spread,
    vector_type,
    words_type,
)
from poetc.backends.c.scalars import compute, is_limit
from poetc.ir import mathlib
from poetc.kernels.dependences import dependences
from poetc.kernels.lanes import lanes_of, parts_of

_FLOAT = Float32Type()
_BITWISE: Mapping[type[Operation], str] = {arith.AndIOp: "&", arith.OrIOp: "|", arith.XOrIOp: "^"}
_WORDS: Mapping[type[Operation], str] = {
    arith.AddiOp: "+",
    arith.SubiOp: "-",
    arith.MuliOp: "*",
    arith.ShLIOp: "<<",
}


def inline_functions(function: func.FuncOp) -> None:
    """Replaces calls of mathematical functions by their operations, where vectors do these."""
    loops = [op for op in function.walk() if isinstance(op, affine.ForOp) and lanes_of(op) > 1]
    if not loops:
        return
    depends = dependences(function)
    for loop in loops:
        parts = parts_of(loop, depends)
        for op in [each for part in parts.vectors for each in part.walk()] if parts else []:
            symbol = mathlib.symbol_of(op)
            if symbol is not None and loop in depends.get(op.results[0], ()):
                result = _inlined(symbol, op.operands, InsertPoint.before(op))
                op.results[0].replace_all_uses_with(result)
                Rewriter.erase_op(op)


def _inlined(symbol: str, arguments: Sequence[SSAValue], at: InsertPoint) -> SSAValue:
    """The result of a function whose operations are put at a place."""

    def put(op: Operation, operands: Sequence[SSAValue]) -> SSAValue:
        copy = op.clone(dict(zip(op.operands, operands, strict=True)))
        Rewriter.insert_op(copy, at)
        return copy.results[0]

    return mathlib.call(symbol, arguments, put)


def define_vector(bindings: Bindings, op: Operation) -> None:
    """Binds the result of an operation, a vector, to an expression."""
    result = op.results[0]
    bindings.define(result, _Vectors(bindings, bindings.vectors[result]).compute(op))


class _Vectors:
    """Operations on vectors of so many lanes."""

    def __init__(self, bindings: Bindings, lanes: int) -> None:
        self.bindings, self.lanes = bindings, lanes
        self.floats, self.integers = vector_type(lanes), integers_type(lanes)
        self.words = words_type(lanes)

    def compute(self, op: Operation) -> Expression:
        match op:
            case arith.CmpfOp():
                return self.compare(op)
            case arith.MaximumfOp() | arith.MinimumfOp():
                return self.limit(op)
            case arith.SelectOp() if op.cond in self.bindings.vectors:
                return self.chosen(self.bindings.atom(op.cond), op.lhs, op.rhs)
            case arith.SelectOp():
                parts = [self.bindings.expression(op.cond), *map(self.vector, (op.lhs, op.rhs))]
                return _made("{0} ? {1} : {2}", Level.CHOICE, parts)
            case math.AbsFOp():
                text = f"({self.floats})(({self.integers}){{0}} & 0x7fffffff)"
            case arith.BitcastOp():
                text = f"({self.floats if op.result.type == _FLOAT else self.integers}){{0}}"
            case arith.SIToFPOp():
                text = f"__builtin_convertvector({{0}}, {self.floats})"
            case arith.ExtUIOp():
                text = "({0} & 1)"
            case arith.ShRSIOp():
                text = "({0} >> {1})"
            case arith.FPToSIOp():
                numbers = self.bindings.atom(op.operands[0])
                each = (f"poetc_to_int({numbers}[{lane}])" for lane in range(self.lanes))
                return Expression(f"({self.integers}){{{', '.join(each)}}}", Level.UNARY)
            case arith.AddiOp() | arith.SubiOp() | arith.MuliOp() | arith.ShLIOp():
                parts = [self.word(operand) for operand in op.operands]
                text = f"({self.integers})({{0}} {_WORDS[type(op)]} {{1}})"
                return _made(text, Level.UNARY, parts)
            case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
                parts = [self.vector(operand) for operand in op.operands]
                return _made(f"({{0}} {_BITWISE[type(op)]} {{1}})", Level.UNARY, parts)
            case _:
                # C has these operators for vectors, and for a vector and a number.
                return compute(self.bindings, op)
        return _made(text, Level.UNARY, map(self.bindings.expression, op.operands))

    def vector(self, value: SSAValue) -> Expression:
        """An operand as a vector, where it is a number for all lanes, too."""
        expression = self.bindings.expression(value)
        if value in self.bindings.vectors:
            return expression
        return spread(expression, value.type, self.lanes)

    def word(self, value: SSAValue) -> Expression:
        type_ = self.words if value in self.bindings.vectors else "uint32_t"
        return _made(f"({type_}){{0}}", Level.UNARY, [self.bindings.expression(value)])

    def bits(self, value: SSAValue) -> Expression:
        """An operand as a vector of integers."""
        vector = self.vector(value)
        if value.type != _FLOAT:
            return vector
        return _made(f"({self.integers}){{0}}", Level.UNARY, [vector])

    def named(self, text: str) -> str:
        """The name of a mask."""
        name = self.bindings.fresh("mask")
        self.bindings.line(f"const {self.integers} {name} = {text};")
        return name

    def compare(self, op: arith.CmpfOp) -> Expression:
        a, b = (self.bindings.atom(operand) for operand in op.operands)
        match op.predicate.value.data:
            case 6:
                text = f"(({a} < {b}) | ({a} > {b}))"
            case 8:
                text = f"~(({a} < {b}) | ({a} > {b}))"
            case 7:
                text = f"(({a} == {a}) & ({b} == {b}))"
            case 14:
                text = f"(({a} != {a}) | ({b} != {b}))"
            case predicate:
                operator, negated = CMPF[predicate]
                text = f"{'~' * negated}({a} {operator} {b})"
        return Expression(text, Level.UNARY)

    def chosen(self, mask: str, yes: SSAValue, no: SSAValue) -> Expression:
        """Of two operands, the first where the bits of a mask are set."""
        masks = ((yes, mask), (no, f"~{mask}"))
        parts = [(self.bits(value), bits) for value, bits in masks if not _is_zero(value)]
        text = " | ".join(f"({bits} & {part.at(Level.UNARY)})" for part, bits in parts)
        if yes.type == _FLOAT:
            text = f"({self.floats})({text})" if parts else f"({self.floats}){{0.0f}}"
        else:
            text = f"({text})" if parts else f"({self.integers}){{0}}"
        return Expression(text, Level.UNARY, frozenset().union(*(part.reads for part, _ in parts)))

    def limit(self, op: Operation) -> Expression:
        """maximumf and minimumf, as `poetc_maximum` and `poetc_at_least` make them of numbers."""
        greater = ">" if isinstance(op, arith.MaximumfOp) else "<"
        operands = list(op.operands)
        if is_limit(op, operands[0]):
            operands.reverse()
        a, b = (self.bindings.atom(operand) for operand in operands)
        if is_limit(op, operands[1]):
            return self.chosen(self.named(f"~({b} {greater}= {a})"), *operands)
        mask = self.named(f"({a} {greater} {b}) | ({a} != {a})")
        x, y = (self.bits(operand).at(Level.UNARY) for operand in operands)
        same = f"{y} & ({x} | ({a} != {b}))" if greater == ">" else f"{y} | ({x} & ({a} == {b}))"
        return Expression(f"({self.floats})(({mask} & {x}) | (~{mask} & ({same})))", Level.UNARY)


def _made(text: str, level: Level, parts: Iterable[Expression]) -> Expression:
    """An expression of operands that a text has places for."""
    parts = list(parts)
    return Expression(
        text.format(*(part.at(Level.UNARY) for part in parts)),
        level,
        frozenset().union(*(part.reads for part in parts)),
    )


def _is_zero(value: SSAValue) -> bool:
    """Whether it is a constant without a bit that is set."""
    op = value.owner
    return (
        isinstance(op, arith.ConstantOp)
        and isinstance(op.value, FloatAttr | IntegerAttr)
        and not np.float32(op.value.value.data).view(np.uint32)
    )
