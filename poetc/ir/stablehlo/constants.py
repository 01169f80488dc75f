"""Operations without operands: constants and counting."""

from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir import dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    Array,
    FloatFacts,
    Fuses,
    IntRange,
    PrettyOp,
    Walk,
    check_dims,
    check_elements,
    element_type_of,
    int_attr,
    shape_of,
)
from poetc.ir.stablehlo_attributes import parse_int


@irdl_op_definition
class ConstantOp(PrettyOp):
    """A tensor known at compile time."""

    FUSES: ClassVar = Fuses.LEAF
    name = "stablehlo.constant"
    value = prop_def(DenseIntOrFPElementsAttr)

    def __init__(self, value: DenseIntOrFPElementsAttr | np.ndarray | np.generic):
        """From an attribute, or from an array of elements of a type in the table."""
        if not isinstance(value, DenseIntOrFPElementsAttr):
            array = np.asarray(value)
            value = dense.from_array(array, types.type_of_array(array.dtype).mlir)
        self._init([], cast(TensorType, value.type), {"value": value})

    @staticmethod
    def splat(value: float | int | bool, type: Attribute) -> "ConstantOp":
        """A tensor of that type with all elements equal to `value`."""
        array = np.full(shape_of(type), value, dense.dtype_of(element_type_of(type)))
        return ConstantOp(array)

    def array(self) -> np.ndarray:
        """The elements, with exactly their bits."""
        return dense.to_array(self.value)

    @classmethod
    def parse(cls, parser: Parser) -> "ConstantOp":
        attributes = parser.parse_optional_attr_dict()
        position = parser.pos
        value = parser.parse_attribute()
        if not isinstance(value, DenseIntOrFPElementsAttr):
            parser.raise_error("expected dense elements", position, parser.pos)
        return cls.create(
            result_types=[value.type], properties={"value": value}, attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_op_attributes(self.attributes)
        printer.print_string(" ")
        printer.print_attribute(self.value)

    def verify_op(self) -> None:
        self._verify_result(cast(TensorType, self.value.type))

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        array = self.array()
        return (int(array.min()), int(array.max())) if array.size else (0, 0)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        array = self.array()
        return not np.any((array == 0) & np.signbit(array))

    def evaluate(self, *operands: Array) -> Array:
        return self.array()


@irdl_op_definition
class IotaOp(PrettyOp):
    """Each element is its index along a dimension."""

    FUSES: ClassVar = Fuses.LEAF
    name = "stablehlo.iota"
    iota_dimension = prop_def(IntegerAttr)

    def __init__(self, result_type: TensorType, dim: int):
        self._init([], result_type, {"iota_dimension": int_attr(dim)})

    @property
    def dim(self) -> int:
        """The dimension that is counted along."""
        return self.iota_dimension.value.data

    @classmethod
    def parse(cls, parser: Parser) -> "IotaOp":
        parser.parse_keyword("dim")
        parser.parse_punctuation("=")
        dim = parse_int(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(
            result_types=[parser.parse_type()],
            properties={"iota_dimension": int_attr(dim)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" dim = {self.dim}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

    def verify_op(self) -> None:
        check_elements("result", self.result, types.with_arithmetic("float", "signed", "unsigned"))
        check_dims("dim", (self.dim,), len(shape_of(self.result)))

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        return 0, max(0, shape_of(self.result)[self.dim] - 1)

    def along(self, dim: int) -> Walk | None:
        return None if dim == self.dim else ()

    def evaluate(self, *operands: Array) -> Array:
        shape, dtype = shape_of(self.result), dense.dtype_of(element_type_of(self.result))
        return semantics.iota(shape, self.dim, dtype)
