"""The base classes of the operations, and their tensors, checks, attributes and assembly."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    TensorType,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.irdl import IRDLOperation, opt_prop_def, result_def, traits_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense, types
from poetc.ir.stablehlo_attributes import Dims, parse_dims, print_dims

dense.install()


Padding = tuple[tuple[int, int], ...]


Value = SSAValue | Operation


ELEMENT_TYPES: tuple[Attribute, ...] = tuple(types.ELEMENT_TYPES)


def tensor_type(value: Value | Attribute) -> TensorType:
    """The tensor type of a value, of the only result of an op, or the type itself."""
    # Asked for most often of all; the classes of most values come first, by identity.
    if isinstance(value, OpResult | BlockArgument | SSAValue):
        return cast(TensorType, value.type)
    if isinstance(value, TensorType | Attribute):
        return cast(TensorType, value)
    return cast(TensorType, SSAValue.get(value).type)


def shape_of(value: Value | Attribute) -> Dims:
    """Dimensions of a tensor."""
    return tensor_type(value).get_shape()


def element_type_of(value: Value | Attribute) -> Attribute:
    """Element type of a tensor."""
    return tensor_type(value).element_type


def is_float(value: Value | Attribute) -> bool:
    """Whether the elements of a tensor are floats."""
    return isinstance(element_type_of(value), AnyFloat)


def element_count(value: Value | Attribute) -> int:
    """Number of elements of a tensor."""
    return math.prod(shape_of(value))


def with_shape(value: Value | Attribute, shape: Sequence[int]) -> TensorType:
    return TensorType(element_type_of(value), shape)


def check(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)


# The checks below run for every operation: they build a message only where one is needed.


def check_tensor(name: str, type: Attribute) -> None:
    """Static shape, no encoding, supported elements."""
    if not isinstance(type, TensorType):
        raise VerifyException(f"{name} is {type}, expected a ranked tensor")
    if DYNAMIC_INDEX in type.get_shape():
        raise VerifyException(f"{name} has the dynamic shape {type}")
    if not isinstance(type.encoding, NoneAttr):
        raise VerifyException(f"{name} has an encoding: {type}")
    if type.element_type not in ELEMENT_TYPES:
        raise VerifyException(
            f"{name} has elements of type {type.element_type}, supported are {types.listed('and')}"
        )


def check_elements(name: str, value: SSAValue, allowed: Sequence[Attribute]) -> None:
    element = element_type_of(value)
    if element not in allowed:
        expected = " or ".join(map(str, allowed))
        raise VerifyException(f"{name} has elements of type {element}, expected {expected}")


def check_type(what: str, actual: Attribute, expected: Attribute) -> None:
    if actual != expected:
        raise VerifyException(f"{what} is {actual}, expected {expected}")


def check_dims(name: str, dims: Sequence[int], rank: int) -> None:
    """Distinct dimensions of a tensor of that rank."""
    if len(set(dims)) != len(dims) or not all(0 <= d < rank for d in dims):
        raise VerifyException(
            f"{name} = {list(dims)} must be distinct dimensions of a tensor of rank {rank}"
        )


def check_rank(name: str, values: Sequence[Any], rank: int) -> None:
    check(len(values) == rank, f"{name} has {len(values)} entries, expected {rank}")


def check_positive(name: str, values: Sequence[int]) -> None:
    check(all(v > 0 for v in values), f"{name} = {list(values)} must be positive")


def i64s(values: Sequence[int]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, tuple(values))


def ints(attr: Attribute | None) -> Dims:
    return () if attr is None else tuple(cast(DenseArrayBase[IntegerType], attr).get_values())


def int_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def padding_attr(padding: Sequence[Sequence[int]]) -> DenseIntOrFPElementsAttr:
    """Pairs of low and high padding as an attribute."""
    return dense.from_array(np.array(padding, np.int64).reshape(-1, 2), i64)


def padding_pairs(attr: DenseIntOrFPElementsAttr | None, rank: int) -> Padding:
    """Low and high padding of each dimension; zero where there is no attribute."""
    if attr is None:
        return ((0, 0),) * rank
    return tuple((int(low), int(high)) for low, high in dense.to_array(attr))


def check_padding(attr: DenseIntOrFPElementsAttr | None, rank: int) -> None:
    if attr is not None:
        check(
            attr.get_shape() == (rank, 2) and attr.get_element_type() == i64,
            f"padding is {attr.type}, expected tensor<{rank}x2xi64>",
        )


INTS = DenseArrayBase.constr(i64)


def parse_signature(
    parser: Parser, operands: Sequence[UnresolvedOperand]
) -> tuple[list[SSAValue], Attribute]:
    """Parse `: type` (of all operands and the result) or `: (types) -> type`."""
    parser.parse_punctuation(":")
    position = parser.pos
    type = parser.parse_type()
    inputs: Sequence[Attribute] = (type,) * len(operands)
    if isinstance(type, FunctionType):
        inputs, outputs = type.inputs.data, type.outputs.data
        if len(inputs) != len(operands) or len(outputs) != 1:
            parser.raise_error(
                f"expected {len(operands)} operand types and one result type", position, parser.pos
            )
        type = outputs[0]
    return [parser.resolve_operand(o, t) for o, t in zip(operands, inputs, strict=True)], type


def parse_operands(parser: Parser, count: int) -> list[UnresolvedOperand]:
    operands = [parser.parse_unresolved_operand()]
    for _ in range(count - 1):
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
    return operands


def parse_named_dims(parser: Parser, name: str) -> Dims:
    """Parse `, name = [0, 1]`."""
    parser.parse_punctuation(",")
    parser.parse_keyword(name)
    parser.parse_punctuation("=")
    return parse_dims(parser)


def resized(sizes: Sequence[int], dim: int, size: int) -> DenseArrayBase:
    """Sizes of dimensions as an attribute, with another size of one of them."""
    return i64s([size if d == dim else n for d, n in enumerate(sizes)])


def print_named_dims(printer: Printer, name: str, dims: Dims) -> None:
    printer.print_string(f", {name} = ")
    print_dims(printer, dims)


Array = np.ndarray[Any, np.dtype[Any]]
Head = tuple[list[UnresolvedOperand], dict[str, Attribute]]


IntRange = tuple[int, int]
"""The smallest and the largest value that an integer can have."""


def hull(ranges: Sequence[IntRange]) -> IntRange:
    """The smallest range that has all of these."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


Scalar = Any
"""A number in code that is being built; it has a `type`, and `of(type)` is the same one as a number
of another type that has the same type in code."""


class ScalarBuilder(Protocol):
    """A builder of operations of the arith and math dialects on scalars."""

    def constant(self, value: float, type: Attribute, /) -> Scalar: ...

    def unary(
        self, op: type[Operation], operand: Scalar, type: Attribute | None = None, /
    ) -> Scalar:
        """An operation on one scalar, with the result type for conversions."""
        ...

    def binary(self, op: type[Operation], lhs: Scalar, rhs: Scalar, /) -> Scalar: ...

    def rounded(self, number: Scalar, type: Attribute, /) -> Scalar:
        """A float of 32 bits as one of a type that has fewer."""
        ...

    def compare(self, predicate: str, lhs: Scalar, rhs: Scalar, /) -> Scalar:
        """`arith.cmpf` or `arith.cmpi`, as the operands' type asks."""
        ...

    def select(self, condition: Any, on_true: Any, on_false: Any, /) -> Scalar: ...


class FloatFacts(Protocol):
    """Facts about float tensors."""

    def never_negative_zero(self, value: SSAValue, /) -> bool:
        """Whether no element can be -0.0, so that adding +0.0 changes no bit."""
        ...

    def splat(self, value: SSAValue, /) -> np.generic | None:
        """The element that all elements are equal to, bit for bit."""
        ...


@dataclass(frozen=True)
class Along:
    """A dimension of an operand that runs with the result's, from its end if `mirrored`."""

    dim: int
    mirrored: bool = False


Walk = tuple[Along | None, ...]
"""For each operand how it is walked; None: all of it is read for each piece."""


class Fuses(Enum):
    """How `poet-fuse` puts an operation into kernels."""

    POINT = auto()
    """Element by element: where it is read, unless that is too often."""
    VIEW = auto()
    """Moves elements only: an index map where it is read."""
    LEAF = auto()
    """Has no operands that are read: where it is read."""
    LOOKUP = auto()
    """Reads elements of a table: a clone of it would keep the whole table alive."""
    REDUCTION = auto()
    """Shares loops with others over the same elements."""
    ANCHOR = auto()
    """At most one in a kernel, with element-wise operations behind it."""
    LOOP = auto()
    """A kernel of its own: its operands and results are stored."""


class StablehloOp(IRDLOperation):
    """A pure op with one result."""

    FUSES: ClassVar[Fuses] = Fuses.POINT

    result = result_def(TensorType)
    traits = traits_def(Pure())

    def _init(
        self,
        operands: Sequence[Value | Sequence[Value]],
        result_type: TensorType,
        properties: dict[str, Attribute | None] | None = None,
        regions: Sequence[Region] = (),
    ) -> None:
        super().__init__(
            operands=operands,
            result_types=[result_type],
            properties=properties or {},
            regions=list(regions),
        )

    def verify_(self) -> None:
        for index, operand in enumerate(self.operands):
            check_tensor(f"operand {index}", operand.type)
        check_tensor("result", self.result.type)
        self.verify_op()

    def verify_op(self) -> None:
        """Check what is special to the op; operands and result are supported tensors."""
        raise NotImplementedError

    def evaluate(self, *operands: Array) -> Array:
        """The meaning of the op: its result for these operands, bit for bit as generated code
        computes it. Callers ignore NumPy's floating-point errors. Raises InputError for operands
        that the op is not supported for."""
        raise NotImplementedError

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        """Range of an integer result before it wraps, for operands of these ranges; None where
        nothing is known of it."""
        return None

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        """Whether no element of a float result can be -0.0, by what is known of the operands."""
        return False

    def along(self, dim: int) -> Walk | None:
        """How the operands are walked along dimension `dim` of the result; None where the result
        cannot be computed in pieces along it."""
        return None

    def piece(self, dim: int, operands: Sequence[SSAValue], start: int, size: int) -> StablehloOp:
        """This operation for `size` indices along `dim` of its result, from `start` on, on
        `operands` cut as `along` says. Each element is computed as in the whole, so that the bits
        are the same."""
        shape = list(shape_of(self.result))
        shape[dim] = size
        return type(self).create(
            operands=operands,
            result_types=[with_shape(self.result, shape)],
            properties={**self.properties, **self._piece_properties(dim, start, size)},
            attributes=self.attributes,
            regions=[region.clone() for region in self.regions],
        )

    def _piece_properties(self, dim: int, start: int, size: int) -> dict[str, Attribute]:
        """The properties of a `piece` that are not those of the whole."""
        return {}

    def reads_each(self, index: int) -> float:
        """How often each element of operand `index` is read, on average."""
        return element_count(self.result) / max(1, element_count(self.operands[index]))

    def bodies_key(self) -> Hashable:
        """Equal for operations of this kind whose regions compute the same."""
        return ()

    def _verify_result(self, expected: TensorType) -> None:
        check_type("result", self.result.type, expected)


class WindowedOp(StablehloOp):
    """An operation over windows of an operand."""

    window_strides = opt_prop_def(INTS)
    padding_attr = opt_prop_def(DenseIntOrFPElementsAttr, prop_name="padding")

    @property
    def _rank(self) -> int:
        """Dimensions of a window."""
        raise NotImplementedError

    @property
    def strides(self) -> Dims:
        """Distance between windows in each dimension."""
        return ints(self.window_strides) or (1,) * self._rank

    @property
    def padding(self) -> Padding:
        """Low and high padding of each dimension; may be negative."""
        return padding_pairs(self.padding_attr, self._rank)

    def _verify_windows(self, rank: int, *names: str) -> None:
        """Raises VerifyException unless the padding, and what has these names, is for so many
        dimensions, and all but the padding is positive."""
        check_padding(self.padding_attr, rank)
        for name in names:
            check_rank(name, getattr(self, name), rank)
            check_positive(name, getattr(self, name))


class PrettyOp(StablehloOp):
    """An op with an assembly of its own: subclasses give what stands before the types."""

    # `: type` instead of `: (type, ..) -> type` where all types are equal.
    SHORT_SIGNATURE: ClassVar[bool] = False
    # Properties that stand in the dictionary.
    REST: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        """Parse operands and properties."""
        raise NotImplementedError

    def print_head(self, printer: Printer) -> None:
        """Print operands and properties."""
        raise NotImplementedError

    @classmethod
    def parse(cls, parser: Parser):
        operands, properties = cls.parse_head(parser)
        attributes = parser.parse_optional_attr_dict()
        # Properties without a place of their own in the assembly stand in the dictionary.
        for name in cls.get_irdl_definition().properties:
            if name in attributes:
                if name in properties:
                    parser.raise_error(f"property '{name}' given twice")
                properties[name] = attributes.pop(name)
        values, result_type = parse_signature(parser, operands)
        return cls.create(
            operands=values,
            result_types=[result_type],
            properties=properties,
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        self.print_head(printer)
        rest = {name: self.properties[name] for name in self.REST if name in self.properties}
        printer.print_op_attributes(rest | self.attributes)
        printer.print_string(" : ")
        types = [*self.operand_types, self.result.type]
        if self.SHORT_SIGNATURE and all(t == types[0] for t in types):
            printer.print_attribute(types[0])
        else:
            printer.print_operation_type(self)

    def _print_operands(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)


def dilated(size: int, dilation: int) -> int:
    """Elements from the first to the last of `size` elements that are `dilation` apart."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def window_count(size: int, padding: Sequence[int], dilation: int, extent: int, stride: int) -> int:
    """Windows of `extent` elements, `stride` apart, in a dilated and padded dimension."""
    padded = padding[0] + dilated(size, dilation) + padding[1]
    return 0 if padded < extent else (padded - extent) // stride + 1
