"""Functions that kernels call, as LLVM IR, for numbers or vectors of them: mathematical ones, from
ir/math/, and integer arithmetic that wraps.

They do the operations of the source in its order, so their bits are those of the C. TVM links the
text with the kernels that call the functions (the attribute `pragma_import_llvm`), and LLVM writes
them out there. As TIR they would be long chains of integer operations, which TVM's passes take very
long to analyse.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import numpy as np
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import Float32Type, FloatAttr, IntegerAttr, IntegerType
from xdsl.ir import Attribute, Operation, SSAValue

from poetc.ir import mathlib

_BINARY: Mapping[type[Operation], str] = {
    arith.AddfOp: "fadd",
    arith.SubfOp: "fsub",
    arith.MulfOp: "fmul",
    arith.DivfOp: "fdiv",
    arith.AddiOp: "add",
    arith.SubiOp: "sub",
    arith.MuliOp: "mul",
    arith.RemSIOp: "srem",
    arith.AndIOp: "and",
    arith.OrIOp: "or",
    arith.XOrIOp: "xor",
    arith.ShLIOp: "shl",
    arith.ShRSIOp: "ashr",
}
_CONVERSIONS: Mapping[type[Operation], str] = {
    arith.BitcastOp: "bitcast",
    arith.SIToFPOp: "sitofp",
    arith.FPToSIOp: "fptosi",
    arith.ExtUIOp: "zext",
}


WRAPPING: Mapping[type[Operation], str] = {
    arith.AddiOp: "poetc_add",
    arith.SubiOp: "poetc_sub",
    arith.MuliOp: "poetc_mul",
    arith.ShLIOp: "poetc_shift_left",
}
"""Integer arithmetic modulo 2^32: TVM takes it for granted that nothing overflows."""

_WRAPPING_OF = {name: _BINARY[kind] for kind, name in WRAPPING.items()}


def function_name(symbol: str, lanes: int) -> str:
    """The name of a function of ir/math/, or of `WRAPPING`, for vectors of so many lanes."""
    return f"{symbol}_x{lanes}"


def module_text(wanted: Iterable[tuple[str, int]]) -> str:
    """LLVM IR of the functions, given by symbol and lanes, and of all that they call."""
    wanted = sorted(wanted)
    parts = [_wrapping(symbol, n) for symbol, n in wanted if symbol in _WRAPPING_OF]
    mathematical = [(symbol, n) for symbol, n in wanted if symbol not in _WRAPPING_OF]
    for lanes in dict.fromkeys(n for _, n in mathematical):
        type_ = _vector("float", lanes)
        parts.append(f"declare {type_} @{_fence(lanes)}({type_})\n")
    needed = {(callee, n) for symbol, n in mathematical for callee in mathlib.callees(symbol)}
    parts += [_function(symbol, n) for symbol, n in sorted(needed)]
    return "\n".join(parts)


def _wrapping(symbol: str, lanes: int) -> str:
    type_ = _vector("i32", lanes)
    head = f"define linkonce_odr {type_} @{function_name(symbol, lanes)}"
    return (
        f"{head}({type_} %a, {type_} %b) alwaysinline {{\n"
        f"  %r = {_WRAPPING_OF[symbol]} {type_} %a, %b\n  ret {type_} %r\n}}\n"
    )


def _fence(lanes: int) -> str:
    return "llvm.arithmetic.fence." + ("f32" if lanes == 1 else f"v{lanes}f32")


def _function(symbol: str, lanes: int) -> str:
    function = mathlib.function(symbol)
    block = function.body.block
    names: dict[SSAValue, str] = {}
    for i, argument in enumerate(block.args):
        names[argument] = f"%a{i}"
    lines: list[str] = []
    for op in block.ops:
        if isinstance(op, func.ReturnOp):
            value = op.operands[0]
            lines.append(f"  ret {_type(value.type, lanes)} {names[value]}")
        elif isinstance(op, arith.ConstantOp):
            names[op.result] = _constant(op, lanes)
        else:
            names[op.results[0]] = name = f"%v{len(names)}"
            lines += [f"  {line}" for line in _operation(op, name, names, lanes)]
    parameters = ", ".join(f"{_type(a.type, lanes)} {names[a]}" for a in block.args)
    result = _type(function.function_type.outputs.data[0], lanes)
    name = function_name(symbol, lanes)
    head = f"define linkonce_odr {result} @{name}({parameters}) alwaysinline {{"
    return "\n".join([head, *lines, "}", ""])


def _operation(op: Operation, name: str, names: Mapping[SSAValue, str], lanes: int) -> list[str]:
    operands = [names[operand] for operand in op.operands]
    types = [_type(operand.type, lanes) for operand in op.operands]
    result = _type(op.results[0].type, lanes)
    kind = type(op)
    if kind is arith.MulfOp:
        # Not to be fused with a sum that follows.
        return [
            f"{name}p = fmul {result} {operands[0]}, {operands[1]}",
            f"{name} = call {result} @{_fence(lanes)}({result} {name}p)",
        ]
    if kind in _BINARY:
        return [f"{name} = {_BINARY[kind]} {result} {operands[0]}, {operands[1]}"]
    if kind in _CONVERSIONS:
        return [f"{name} = {_CONVERSIONS[kind]} {types[0]} {operands[0]} to {result}"]
    listed = ", ".join(f"{t} {o}" for t, o in zip(types, operands, strict=True))
    match op:
        case arith.CmpfOp():
            test = f"fcmp {arith.CMPF_COMPARISON_OPERATIONS[op.predicate.value.data]}"
            return [f"{name} = {test} {types[0]} {operands[0]}, {operands[1]}"]
        case arith.CmpiOp():
            test = f"icmp {arith.CMPI_COMPARISON_OPERATIONS[op.predicate.value.data]}"
            return [f"{name} = {test} {types[0]} {operands[0]}, {operands[1]}"]
        case arith.SelectOp():
            return [f"{name} = select {listed}"]
        case func.CallOp():
            callee = function_name(op.callee.root_reference.data, lanes)
            return [f"{name} = call {result} @{callee}({listed})"]
    raise AssertionError(f"ir/math/ has no {op.name}")


def _constant(op: arith.ConstantOp, lanes: int) -> str:
    match op.value:
        case FloatAttr():
            # LLVM writes a float as the double of the same value.
            wide = float(np.float32(op.value.value.data))
            text = f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
        case IntegerAttr():
            text = str(op.value.value.data)
        case _:
            raise AssertionError(f"ir/math/ has no constant {op.value}")
    return text if lanes == 1 else f"splat ({_type(op.result.type, 1)} {text})"


def _type(type_: Attribute, lanes: int) -> str:
    match type_:
        case Float32Type():
            return _vector("float", lanes)
        case IntegerType():
            return _vector(f"i{type_.width.data}", lanes)
    raise AssertionError(f"ir/math/ has no {type_}")


def _vector(type_: str, lanes: int) -> str:
    return type_ if lanes == 1 else f"<{lanes} x {type_}>"
