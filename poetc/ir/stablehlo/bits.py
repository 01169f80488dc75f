"""Element-wise operations on the bits of integers, and on booleans."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import i1
from xdsl.irdl import irdl_op_definition

from poetc.ir.stablehlo.base import Array, IntRange, Scalar, ScalarBuilder
from poetc.ir.stablehlo.elementwise import BinaryElementwiseOp, UnaryElementwiseOp


@irdl_op_definition
class AndOp(BinaryElementwiseOp):
    """Bitwise and."""

    name = "stablehlo.and"
    SCALARS: ClassVar = {
        "signed": arith.AndIOp,
        "unsigned": arith.AndIOp,
        "bool": arith.AndIOp,
    }
    MEANING: ClassVar = staticmethod(np.bitwise_and)


@irdl_op_definition
class OrOp(BinaryElementwiseOp):
    """Bitwise or."""

    name = "stablehlo.or"
    SCALARS: ClassVar = {
        "signed": arith.OrIOp,
        "unsigned": arith.OrIOp,
        "bool": arith.OrIOp,
    }
    MEANING: ClassVar = staticmethod(np.bitwise_or)


@irdl_op_definition
class XorOp(BinaryElementwiseOp):
    """Bitwise exclusive or."""

    name = "stablehlo.xor"
    SCALARS: ClassVar = {
        "signed": arith.XOrIOp,
        "unsigned": arith.XOrIOp,
        "bool": arith.XOrIOp,
    }
    MEANING: ClassVar = staticmethod(np.bitwise_xor)


def _inverted(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.binary(arith.XOrIOp, x, b.constant(1 if x.type == i1 else -1, x.type))


@irdl_op_definition
class NotOp(UnaryElementwiseOp):
    """Bitwise not."""

    name = "stablehlo.not"
    SCALARS: ClassVar = {"signed": _inverted, "unsigned": _inverted, "bool": _inverted}
    MEANING: ClassVar = staticmethod(np.invert)


def _in_range(b: ScalarBuilder, count: Scalar) -> Scalar:
    return b.compare("ult", count, b.constant(count.type.bitwidth, count.type))


def _shifted_or_zero(op: type[arith.ShLIOp | arith.ShRUIOp]) -> Any:
    """A shift that gives 0 where no bit is left."""

    def build(b: ScalarBuilder, x: Scalar, count: Scalar) -> Scalar:
        inside, zero = _in_range(b, count), b.constant(0, x.type)
        return b.select(inside, b.binary(op, x, b.select(inside, count, zero)), zero)

    return build


def _shift_right_arithmetic(b: ScalarBuilder, x: Scalar, count: Scalar) -> Scalar:
    last = b.constant(x.type.bitwidth - 1, x.type)
    return b.binary(arith.ShRSIOp, x, b.select(_in_range(b, count), count, last))


def _unsigned(x: Array) -> Array:
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


def _bits(x: Array) -> int:
    return 8 * x.dtype.itemsize


@irdl_op_definition
class ShiftLeftOp(BinaryElementwiseOp):
    """lhs * 2^rhs without the bits beyond; 0 where rhs as an unsigned number leaves no bit."""

    name = "stablehlo.shift_left"
    SCALARS: ClassVar = dict.fromkeys(("signed", "unsigned"), _shifted_or_zero(arith.ShLIOp))

    @staticmethod
    def MEANING(x: Array, count: Array) -> Array:
        shifted = x << (count % _bits(x)).astype(x.dtype)
        return np.where(_unsigned(count) < _bits(x), shifted, 0).astype(x.dtype)


@irdl_op_definition
class ShiftRightLogicalOp(BinaryElementwiseOp):
    """lhs / 2^rhs as unsigned numbers; 0 where rhs leaves no bit."""

    name = "stablehlo.shift_right_logical"
    SCALARS: ClassVar = dict.fromkeys(("signed", "unsigned"), _shifted_or_zero(arith.ShRUIOp))

    @staticmethod
    def MEANING(x: Array, count: Array) -> Array:
        shifted = _unsigned(x) >> _unsigned((count % _bits(x)).astype(x.dtype))
        return np.where(_unsigned(count) < _bits(x), shifted, 0).astype(x.dtype)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        low, high = ranges[0]
        return (0, high) if low >= 0 else None


@irdl_op_definition
class ShiftRightArithmeticOp(BinaryElementwiseOp):
    """lhs / 2^rhs, rounded down; a rhs that leaves no bit counts as one that leaves the sign."""

    name = "stablehlo.shift_right_arithmetic"
    SCALARS: ClassVar = {"signed": _shift_right_arithmetic}

    @staticmethod
    def MEANING(x: Array, count: Array) -> Array:
        return x >> np.minimum(_unsigned(count), _bits(x) - 1).astype(x.dtype)


def _ones(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Counts ones: in pairs of bits, in fours, in bytes, and the bytes by a product."""
    bits = x.type.bitwidth

    def bytes_of(byte: int) -> Scalar:
        return b.constant(int.from_bytes(bytes([byte] * (bits // 8))), x.type)

    def masked(x: Scalar, byte: int) -> Scalar:
        return b.binary(arith.AndIOp, x, bytes_of(byte))

    def right(x: Scalar, count: int) -> Scalar:
        return b.binary(arith.ShRSIOp, x, b.constant(count, x.type))

    x = b.binary(arith.SubiOp, x, masked(right(x, 1), 0x55))
    x = b.binary(arith.AddiOp, masked(x, 0x33), masked(right(x, 2), 0x33))
    x = masked(b.binary(arith.AddiOp, x, right(x, 4)), 0x0F)
    return x if bits == 8 else right(b.binary(arith.MuliOp, x, bytes_of(0x01)), bits - 8)


def _halves(bits: int) -> list[int]:
    """1, 2, 4 and so on, up to half of the bits."""
    return [1 << n for n in range(bits.bit_length() - 1)]


def _leading_zeros(b: ScalarBuilder, x: Scalar) -> Scalar:
    """Counts the zeros that are left when all bits below the first one are set."""
    for count in _halves(x.type.bitwidth):
        shifted = b.binary(arith.ShRSIOp, x, b.constant(count, x.type))
        x = b.binary(arith.OrIOp, x, shifted)
    return _ones(b, _inverted(b, x))


@irdl_op_definition
class PopcntOp(UnaryElementwiseOp):
    """The number of bits that are one."""

    name = "stablehlo.popcnt"
    SCALARS: ClassVar = {"signed": _ones, "unsigned": _ones}

    @staticmethod
    def MEANING(x: Array) -> Array:
        return np.unpackbits(x[..., None].view(np.uint8), axis=-1).sum(-1, dtype=x.dtype)


@irdl_op_definition
class CountLeadingZerosOp(UnaryElementwiseOp):
    """The number of zeros before the first bit that is one; all bits for 0."""

    name = "stablehlo.count_leading_zeros"
    SCALARS: ClassVar = {"signed": _leading_zeros, "unsigned": _leading_zeros}

    @staticmethod
    def MEANING(x: Array) -> Array:
        smeared = _unsigned(x)
        for count in _halves(_bits(x)):
            smeared = smeared | (smeared >> smeared.dtype.type(count))
        return PopcntOp.MEANING(np.asarray(~smeared)).astype(x.dtype)
