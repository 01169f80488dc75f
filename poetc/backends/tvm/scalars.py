"""Operations of kernels on numbers and vectors of them, in TIR.

Float operations are those of the kernel, with the same bits as in C. A product is fenced where a
sum follows, because TVM lets LLVM fuse the two into one operation that rounds once; mathematical
functions and integers that wrap are functions (mathir.py).
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx
from xdsl.dialects import affine, arith, math
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Attribute, Operation

from poetc.backends.tvm import mathir
from poetc.errors import InputError
from poetc.ir import mathlib
from poetc.ir.types import type_in_code

Expr = Any
"""A TIR expression; TVM's own annotations do not fit together."""


class Scalar(NamedTuple):
    """A value of a kernel in TIR: one number, or one for each lane."""

    expr: Expr
    type: str
    lanes: int = 1


def element_dtype(type_: Attribute) -> str:
    """The TVM type of an element in memory. Raises InputError for a type there is none for."""
    return _known(type_, type_in_code(type_).tvm_memory)


def scalar_dtype(type_: Attribute) -> str:
    """The TVM type of a number in code. Raises InputError for a type there is none for."""
    return _known(type_, type_in_code(type_).tvm)


def _known(type_: Attribute, name: str | None) -> str:
    if name is None:
        raise InputError(f"the TVM backend has no code for elements of type {type_}; --emit=c has")
    return name


class Translator:
    """Translates operations on scalars. `bind` computes a value where it is, for several uses;
    `called` are the functions of mathir.py that are needed, with their lanes."""

    def __init__(self, bind: Callable[[Scalar], Scalar]) -> None:
        self.bind = bind
        self.called: set[tuple[str, int]] = set()

    def compute(self, op: Operation, operands: Sequence[Scalar]) -> Scalar:
        """An operation on scalars. Parts that are needed twice are bound first."""
        lanes = max((operand.lanes for operand in operands), default=1)
        wide = [widened(operand, lanes) for operand in operands]
        boolean = bool(wide) and wide[0].type == "bool"
        kind = type(op)
        if kind in _FLOAT_BINARY:
            result = arithmetic(_FLOAT_BINARY[kind], *wide)
            return fenced(result) if may_fuse(op) else result
        if kind in mathir.WRAPPING and not boolean:
            return self.call(mathir.WRAPPING[kind], wide)
        if kind in _BITWISE and not boolean:
            return arithmetic(_BITWISE[kind], *wide)
        if kind in (arith.XOrIOp, arith.AddiOp, arith.SubiOp) and boolean:
            # TVM compares booleans as if they were floats.
            numbers = [cast(operand, "uint32") for operand in wide]
            return arithmetic(tirx.NE, *numbers)._replace(type="bool")
        if kind in _LOGICAL and boolean:
            return arithmetic(_LOGICAL[kind], *wide)
        symbol = mathlib.symbol_of(op)
        if symbol is not None and not isinstance(op, math.SqrtOp | math.RsqrtOp):
            return self.call(symbol, wide)
        result_type = scalar_dtype(op.results[0].type)
        match op:
            case arith.CmpfOp():
                return compare_floats(op.predicate.value.data, *wide)
            case arith.CmpiOp():
                predicate = op.predicate.value.data
                if boolean and 2 <= predicate < len(_CMPI):
                    # True is -1 as a signed number.
                    wide.reverse()
                if boolean or predicate >= len(_CMPI):
                    wide = [cast(operand, "uint32") for operand in wide]
                if predicate >= len(_CMPI):
                    predicate -= len(_CMPI) - 2
                test = arithmetic(_CMPI[predicate], *wide)
                return test._replace(type="bool")
            case arith.ShRUIOp() | arith.DivUIOp() | arith.RemUIOp():
                numbers = [cast(operand, "uint32") for operand in wide]
                return cast(arithmetic(_UNSIGNED[kind], *numbers), "int32")
            case arith.SelectOp():
                condition, yes, no = wide
                return Scalar(tirx.Select(condition.expr, yes.expr, no.expr), yes.type, lanes)
            case arith.MaximumfOp():
                return limited(op, wide, maximum=True)
            case arith.MinimumfOp():
                return limited(op, wide, maximum=False)
            case arith.MaxSIOp():
                return arithmetic(tirx.Max, *wide)
            case arith.MinSIOp():
                return arithmetic(tirx.Min, *wide)
            case arith.NegfOp():
                sign = number(-(2**31), Scalar(None, "int32", lanes))
                flipped = tirx.BitwiseXor(reinterpret(wide[0], "int32").expr, sign.expr)
                return reinterpret(Scalar(flipped, "int32", lanes), "float32")
            case math.AbsFOp():
                mask = number(2**31 - 1, Scalar(None, "int32", lanes))
                cleared = tirx.BitwiseAnd(reinterpret(wide[0], "int32").expr, mask.expr)
                return reinterpret(Scalar(cleared, "int32", lanes), "float32")
            case math.SqrtOp():
                return intrinsic("llvm.sqrt", *wide)
            case math.RsqrtOp():
                root = self.bind(intrinsic("llvm.sqrt", *wide))
                return arithmetic(tirx.Div, number(1.0, root), root)
            case arith.BitcastOp():
                return reinterpret(wide[0], result_type)
            case arith.FPToSIOp():
                return self.to_integer(wide[0])
            case arith.SIToFPOp() if boolean:
                return self.choice(wide[0], -1.0, 0.0, "float32")
            case arith.UIToFPOp() if boolean:
                return self.choice(wide[0], 1.0, 0.0, "float32")
            case arith.ExtUIOp() if boolean:
                return self.choice(wide[0], 1, 0, result_type)
            case arith.ExtSIOp() if boolean:
                return self.choice(wide[0], -1, 0, result_type)
            case arith.SIToFPOp():
                return cast(wide[0], "float32")
            case arith.UIToFPOp():
                return cast(cast(wide[0], "uint32"), "float32")
            case arith.TruncIOp() if result_type == "bool":
                low = tirx.BitwiseAnd(wide[0].expr, number(1, wide[0]).expr)
                return Scalar(tirx.NE(low, number(0, wide[0]).expr), "bool", lanes)
            case arith.IndexCastOp():
                return cast(wide[0], "int32") if boolean else wide[0]
        raise InputError(f"the TVM backend does not know {op.name} of {op.results[0].type}")

    def choice(self, test: Scalar, yes: float, no: float, type_: str) -> Scalar:
        like = Scalar(None, type_, test.lanes)
        return Scalar(
            tirx.Select(test.expr, number(yes, like).expr, number(no, like).expr),
            type_,
            test.lanes,
        )

    def to_integer(self, value: Scalar) -> Scalar:
        """Towards zero; NaN gives 0 and what is out of range the nearest integer in range."""
        limit = number(2.0**31, value)
        high = self.bind(Scalar(tirx.GE(value.expr, limit.expr), "bool", value.lanes))
        low = Scalar(tirx.LT(value.expr, number(-(2.0**31), value).expr), "bool", value.lanes)
        low = self.bind(low)
        nan = self.bind(Scalar(tirx.Not(tirx.EQ(value.expr, value.expr)), "bool", value.lanes))
        outside = tirx.Or(tirx.Or(high.expr, low.expr), nan.expr)
        safe = Scalar(
            tirx.Select(outside, number(0.0, value).expr, value.expr), "float32", value.lanes
        )
        result = self.bind(cast(safe, "int32"))
        for test, nearest in ((high, 2**31 - 1), (low, -(2**31))):
            expr = tirx.Select(test.expr, number(nearest, result).expr, result.expr)
            result = self.bind(result._replace(expr=expr))
        return result

    def call(self, symbol: str, arguments: Sequence[Scalar]) -> Scalar:
        """A function of mathir.py."""
        like = arguments[0]
        self.called.add((symbol, like.lanes))
        name = mathir.function_name(symbol, like.lanes)
        dtype = vector(like.type, like.lanes)
        operands = [argument.expr for argument in arguments]
        return like._replace(expr=tirx.call_pure_extern(dtype, name, *operands))


def arithmetic(node: Any, left: Scalar, right: Scalar) -> Scalar:
    """A binary operation, on vectors if one operand is one."""
    lanes = max(left.lanes, right.lanes)
    a, b = widened(left, lanes), widened(right, lanes)
    return Scalar(node(a.expr, b.expr), left.type, lanes)


_FLOAT_BINARY: Mapping[type[Operation], Any] = {
    arith.AddfOp: tirx.Add,
    arith.SubfOp: tirx.Sub,
    arith.MulfOp: tirx.Mul,
    arith.DivfOp: tirx.Div,
}

_BITWISE: Mapping[type[Operation], Any] = {
    arith.AndIOp: tirx.BitwiseAnd,
    arith.OrIOp: tirx.BitwiseOr,
    arith.XOrIOp: tirx.BitwiseXor,
    arith.ShRSIOp: tirx.RShift,
    arith.DivSIOp: tirx.Div,
    arith.RemSIOp: tirx.Mod,
}

_UNSIGNED: Mapping[type[Operation], Any] = {
    arith.ShRUIOp: tirx.RShift,
    arith.DivUIOp: tirx.Div,
    arith.RemUIOp: tirx.Mod,
}

_LOGICAL: Mapping[type[Operation], Any] = {
    arith.AndIOp: tirx.And,
    arith.MuliOp: tirx.And,
    arith.OrIOp: tirx.Or,
}

_CMPI = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
"""The signed comparisons, in the order of the `predicate` attribute; the unsigned ones follow."""

# Ordered comparisons by number; the unordered ones are the negation of their opposites.
_CMPF: Mapping[int, Any] = {1: tirx.EQ, 2: tirx.GT, 3: tirx.GE, 4: tirx.LT, 5: tirx.LE}
_NEGATED_CMPF: Mapping[int, Any] = {9: tirx.LE, 10: tirx.LT, 11: tirx.GE, 12: tirx.GT}


def compare_floats(predicate: int, a: Scalar, b: Scalar) -> Scalar:
    def test(node: Any) -> Expr:
        return node(a.expr, b.expr)

    ordered = tirx.And(tirx.EQ(a.expr, a.expr), tirx.EQ(b.expr, b.expr))
    match predicate:
        case 0 | 15:
            expr = number(predicate == 15, Scalar(None, "bool", a.lanes)).expr
        case 6:
            expr = tirx.Or(test(tirx.LT), test(tirx.GT))
        case 7:
            expr = ordered
        case 8:
            expr = tirx.Not(tirx.Or(test(tirx.LT), test(tirx.GT)))
        case 13:
            # TVM's own != is false for NaN.
            expr = tirx.Not(test(tirx.EQ))
        case 14:
            expr = tirx.Not(ordered)
        case _ if predicate in _CMPF:
            expr = test(_CMPF[predicate])
        case _:
            expr = tirx.Not(test(_NEGATED_CMPF[predicate]))
    return Scalar(expr, "bool", a.lanes)


def limited(op: Operation, operands: Sequence[Scalar], *, maximum: bool) -> Scalar:
    """maximumf and minimumf; a comparison is enough where one operand is a suitable constant."""
    excluded = 0x80000000 if maximum else 0
    a, b = operands
    for value, limit, constant in ((a, b, op.operands[1].owner), (b, a, op.operands[0].owner)):
        if isinstance(constant, arith.ConstantOp) and isinstance(constant.value, FloatAttr):
            single = np.float32(constant.value.value.data)
            if not np.isnan(single) and int(single.view(np.uint32)) != excluded:
                node = tirx.LE if maximum else tirx.GE
                expr = tirx.Select(node(value.expr, limit.expr), limit.expr, value.expr)
                return value._replace(expr=expr)
    return intrinsic("llvm.maximum" if maximum else "llvm.minimum", a, b)


def may_fuse(op: Operation) -> bool:
    """Whether a product is used where LLVM might round it together with a sum."""
    if not isinstance(op, arith.MulfOp):
        return False
    harmless = (arith.MulfOp, arith.DivfOp, affine.StoreOp)
    return any(not isinstance(use.operation, harmless) for use in op.result.uses)


def fenced(value: Scalar) -> Scalar:
    return intrinsic("llvm.arithmetic.fence", value)


def intrinsic(name: str, *operands: Scalar) -> Scalar:
    like = operands[0]
    dtype = vector(like.type, like.lanes)
    expr = tirx.call_llvm_pure_intrin(dtype, name, *(operand.expr for operand in operands))
    return like._replace(expr=expr)


def vector(type_: str, lanes: int) -> str:
    return type_ if lanes == 1 else f"{type_}x{lanes}"


def widened(value: Scalar, lanes: int) -> Scalar:
    """The value for each lane."""
    if value.lanes == lanes or value.lanes > 1:
        return value
    return Scalar(tirx.Broadcast(value.expr, lanes), value.type, lanes)


def not_zero(value: Scalar) -> Scalar:
    return Scalar(tirx.NE(value.expr, number(0, value).expr), "bool", value.lanes)


def cast(value: Scalar, type_: str) -> Scalar:
    return Scalar(tirx.Cast(vector(type_, value.lanes), value.expr), type_, value.lanes)


def reinterpret(value: Scalar, type_: str) -> Scalar:
    return Scalar(tirx.reinterpret(vector(type_, value.lanes), value.expr), type_, value.lanes)


def integer(value: int) -> Scalar:
    return Scalar(tirx.IntImm("int32", value), "int32")


def constant(value: float | int, type_: str) -> Scalar:
    """A number exactly; infinities and NaN by their bits."""
    if type_ == "bool":
        value = bool(value)
    if type_ != "float32":
        return Scalar(tirx.IntImm(type_, int(value)), type_)
    single = np.float32(value)
    if np.isfinite(single):
        return Scalar(tirx.FloatImm(type_, float(single)), type_)
    return reinterpret(integer(int(single.view(np.int32))), type_)


def number(value: float | int, like: Scalar) -> Scalar:
    """A constant of the type and lanes of another value."""
    return widened(constant(value, like.type), like.lanes)
