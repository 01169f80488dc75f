"""The StableHLO subset that training steps use, as an xDSL dialect (`stablehlo`) with verifiers.

Ops have the names, properties and assembly of StableHLO 1.x, in the pretty form that JAX prints and
in generic form. Constructors take plain Python values and infer result types; lower-case accessors
return plain ints, tuples and strings. All ops are pure and have one result. Shapes are static;
elements are f32, i32 or i1. Reductions run over one operand with one of `REDUCERS` as their body.

The dialect `resume` has what StableHLO lacks: contractions that go on with sums.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BoolAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    FunctionType,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    TensorType,
    f32,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense, types
from poetc.ir.stablehlo_attributes import (
    ATTRIBUTES,
    ComparisonDirectionAttr,
    ComparisonTypeAttr,
    ConvDims,
    ConvDimsAttr,
    Dims,
    DotAlgorithmAttr,
    DotDims,
    DotDimsAttr,
    GatherDims,
    GatherDimsAttr,
    PrecisionAttr,
    ScatterDims,
    ScatterDimsAttr,
    parse_conv_dims,
    parse_dims,
    parse_int,
    print_conv_dims,
    print_dims,
)

dense.install()

Padding = tuple[tuple[int, int], ...]
Value = SSAValue | Operation

ELEMENT_TYPES: tuple[Attribute, ...] = tuple(types.ELEMENT_TYPES)


# --- tensors ----------------------------------------------------------------------------------


def tensor_type(value: Value | Attribute) -> TensorType:
    """The tensor type of a value, of the only result of an op, or the type itself."""
    if isinstance(value, Attribute):
        return cast(TensorType, value)
    return cast(TensorType, SSAValue.get(value).type)


def shape_of(value: Value | Attribute) -> Dims:
    """Dimensions of a tensor."""
    return tensor_type(value).get_shape()


def element_type_of(value: Value | Attribute) -> Attribute:
    """Element type of a tensor."""
    return tensor_type(value).element_type


def element_count(value: Value | Attribute) -> int:
    """Number of elements of a tensor."""
    return math.prod(shape_of(value))


def _with_shape(value: Value | Attribute, shape: Sequence[int]) -> TensorType:
    return TensorType(element_type_of(value), shape)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyException(message)


# The checks below run for every operation: they build a message only where one is needed.


def _check_tensor(name: str, type: Attribute) -> None:
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


def _check_elements(name: str, value: SSAValue, allowed: Sequence[Attribute]) -> None:
    element = element_type_of(value)
    if element not in allowed:
        expected = " or ".join(map(str, allowed))
        raise VerifyException(f"{name} has elements of type {element}, expected {expected}")


def _check_type(what: str, actual: Attribute, expected: Attribute) -> None:
    if actual != expected:
        raise VerifyException(f"{what} is {actual}, expected {expected}")


def _check_dims(name: str, dims: Sequence[int], rank: int) -> None:
    """Distinct dimensions of a tensor of that rank."""
    if len(set(dims)) != len(dims) or not all(0 <= d < rank for d in dims):
        raise VerifyException(
            f"{name} = {list(dims)} must be distinct dimensions of a tensor of rank {rank}"
        )


def _check_rank(name: str, values: Sequence[Any], rank: int) -> None:
    _check(len(values) == rank, f"{name} has {len(values)} entries, expected {rank}")


def _check_positive(name: str, values: Sequence[int]) -> None:
    _check(all(v > 0 for v in values), f"{name} = {list(values)} must be positive")


# --- attributes from and to plain values --------------------------------------------------------


def _i64s(values: Sequence[int]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, tuple(values))


def _ints(attr: Attribute | None) -> Dims:
    return () if attr is None else tuple(cast(DenseArrayBase[IntegerType], attr).get_values())


def _int_attr(value: int) -> IntegerAttr:
    return IntegerAttr(value, i64)


def padding_attr(padding: Sequence[Sequence[int]]) -> DenseIntOrFPElementsAttr:
    """Pairs of low and high padding as an attribute."""
    return dense.from_array(np.array(padding, np.int64).reshape(-1, 2), i64)


def _pairs(attr: DenseIntOrFPElementsAttr | None, rank: int) -> Padding:
    """Low and high padding of each dimension; zero where there is no attribute."""
    if attr is None:
        return ((0, 0),) * rank
    return tuple((int(low), int(high)) for low, high in dense.to_array(attr))


def _check_padding(attr: DenseIntOrFPElementsAttr | None, rank: int) -> None:
    if attr is not None:
        _check(
            attr.get_shape() == (rank, 2) and attr.get_element_type() == i64,
            f"padding is {attr.type}, expected tensor<{rank}x2xi64>",
        )


_INTS = DenseArrayBase.constr(i64)


# --- assembly -----------------------------------------------------------------------------------


def _parse_signature(
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


def _parse_operands(parser: Parser, count: int) -> list[UnresolvedOperand]:
    operands = [parser.parse_unresolved_operand()]
    for _ in range(count - 1):
        parser.parse_punctuation(",")
        operands.append(parser.parse_unresolved_operand())
    return operands


def _parse_named_dims(parser: Parser, name: str) -> Dims:
    """Parse `, name = [0, 1]`."""
    parser.parse_punctuation(",")
    parser.parse_keyword(name)
    parser.parse_punctuation("=")
    return parse_dims(parser)


def _print_named_dims(printer: Printer, name: str, dims: Dims) -> None:
    printer.print_string(f", {name} = ")
    print_dims(printer, dims)


Head = tuple[list[UnresolvedOperand], dict[str, Attribute]]


class StablehloOp(IRDLOperation):
    """A pure op with one result."""

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
            _check_tensor(f"operand {index}", operand.type)
        _check_tensor("result", self.result.type)
        self.verify_op()

    def verify_op(self) -> None:
        """Check what is special to the op; operands and result are supported tensors."""
        raise NotImplementedError

    def _verify_result(self, expected: TensorType) -> None:
        _check_type("result", self.result.type, expected)


class PrettyOp(StablehloOp):
    """An op with an assembly of its own: subclasses give what stands before the types."""

    # `: type` instead of `: (type, ..) -> type` where all types are equal.
    SHORT_SIGNATURE: ClassVar[bool] = False

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
        values, result_type = _parse_signature(parser, operands)
        return cls.create(
            operands=values,
            result_types=[result_type],
            properties=properties,
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        self.print_head(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        types = [*self.operand_types, self.result.type]
        if self.SHORT_SIGNATURE and all(t == types[0] for t in types):
            printer.print_attribute(types[0])
        else:
            printer.print_operation_type(self)

    def _print_operands(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)


# --- element-wise -------------------------------------------------------------------------------


class BinaryElementwiseOp(PrettyOp):
    """Two operands and a result of the same type."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    SHORT_SIGNATURE: ClassVar = True
    ELEMENTS: ClassVar[tuple[Attribute, ...]] = ELEMENT_TYPES

    def __init__(self, lhs: Value, rhs: Value):
        self._init([lhs, rhs], tensor_type(lhs))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return _parse_operands(parser, 2), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        _check_elements("operand 0", self.lhs, self.ELEMENTS)
        _check_type("operand 1", self.rhs.type, self.lhs.type)
        self._verify_result(tensor_type(self.lhs))


@irdl_op_definition
class AddOp(BinaryElementwiseOp):
    """lhs + rhs; i32 wraps."""

    name = "stablehlo.add"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class SubtractOp(BinaryElementwiseOp):
    """lhs - rhs; i32 wraps."""

    name = "stablehlo.subtract"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class MultiplyOp(BinaryElementwiseOp):
    """lhs * rhs; i32 wraps."""

    name = "stablehlo.multiply"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class DivideOp(BinaryElementwiseOp):
    """lhs / rhs."""

    name = "stablehlo.divide"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class MaximumOp(BinaryElementwiseOp):
    """The larger operand; NaN if one is NaN; +0.0 for 0.0 and -0.0."""

    name = "stablehlo.maximum"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class MinimumOp(BinaryElementwiseOp):
    """The smaller operand; NaN if one is NaN; -0.0 for 0.0 and -0.0."""

    name = "stablehlo.minimum"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class PowerOp(BinaryElementwiseOp):
    """lhs to the power of rhs."""

    name = "stablehlo.power"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class AndOp(BinaryElementwiseOp):
    """Bitwise and."""

    name = "stablehlo.and"
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class OrOp(BinaryElementwiseOp):
    """Bitwise or."""

    name = "stablehlo.or"
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class XorOp(BinaryElementwiseOp):
    """Bitwise exclusive or."""

    name = "stablehlo.xor"
    ELEMENTS: ClassVar = (i32, i1)


class UnaryElementwiseOp(PrettyOp):
    """One operand and a result of the same shape, by default of the same type."""

    operand = operand_def(TensorType)
    SHORT_SIGNATURE: ClassVar = True
    ELEMENTS: ClassVar[tuple[Attribute, ...]] = ELEMENT_TYPES

    def __init__(self, operand: Value):
        self._init([operand], tensor_type(operand))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return _parse_operands(parser, 1), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        _check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(tensor_type(self.operand))


@irdl_op_definition
class NegateOp(UnaryElementwiseOp):
    """-operand: flips the sign bit of f32."""

    name = "stablehlo.negate"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class AbsOp(UnaryElementwiseOp):
    """Absolute value: clears the sign bit of f32."""

    name = "stablehlo.abs"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class ExponentialOp(UnaryElementwiseOp):
    """e to the power of the operand."""

    name = "stablehlo.exponential"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class LogOp(UnaryElementwiseOp):
    """Natural logarithm."""

    name = "stablehlo.log"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class RsqrtOp(UnaryElementwiseOp):
    """1 / sqrt(operand)."""

    name = "stablehlo.rsqrt"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class SqrtOp(UnaryElementwiseOp):
    """Square root."""

    name = "stablehlo.sqrt"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class TanhOp(UnaryElementwiseOp):
    """Hyperbolic tangent."""

    name = "stablehlo.tanh"
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class SignOp(UnaryElementwiseOp):
    """-1, 0 or 1 with the operand's sign; f32 keeps -0.0 and NaN."""

    name = "stablehlo.sign"
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class NotOp(UnaryElementwiseOp):
    """Bitwise not."""

    name = "stablehlo.not"
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class IsFiniteOp(UnaryElementwiseOp):
    """Whether the operand is neither infinite nor NaN."""

    name = "stablehlo.is_finite"
    ELEMENTS: ClassVar = (f32,)

    def __init__(self, operand: Value):
        self._init([operand], TensorType(i1, shape_of(operand)))

    def verify_op(self) -> None:
        _check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(TensorType(i1, shape_of(self.operand)))


@irdl_op_definition
class ConvertOp(UnaryElementwiseOp):
    """The value in another element type: to i1 by `!= 0`, f32 to i32 towards zero."""

    name = "stablehlo.convert"
    ELEMENTS: ClassVar = ELEMENT_TYPES

    def __init__(self, operand: Value, element_type: Attribute):
        self._init([operand], TensorType(element_type, shape_of(operand)))

    def verify_op(self) -> None:
        self._verify_result(_with_shape(self.result, shape_of(self.operand)))


@irdl_op_definition
class CompareOp(PrettyOp):
    """Element-wise comparison; false for NaN, except NE."""

    name = "stablehlo.compare"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    comparison_direction = prop_def(ComparisonDirectionAttr)
    comparison_type = opt_prop_def(ComparisonTypeAttr, prop_name="compare_type")

    def __init__(self, lhs: Value, rhs: Value, direction: str, compare_type: str | None = None):
        self._init(
            [lhs, rhs],
            TensorType(i1, shape_of(lhs)),
            {
                "comparison_direction": ComparisonDirectionAttr(direction),
                "compare_type": None if compare_type is None else ComparisonTypeAttr(compare_type),
            },
        )

    @property
    def direction(self) -> str:
        """EQ, NE, GE, GT, LE or LT."""
        return self.comparison_direction.data

    @property
    def compare_type(self) -> str | None:
        """FLOAT, SIGNED or UNSIGNED where it is written out; it follows from the element type."""
        return None if self.comparison_type is None else self.comparison_type.data

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        properties: dict[str, Attribute] = {
            "comparison_direction": ComparisonDirectionAttr(
                parser.parse_keyword_in(ComparisonDirectionAttr.keywords)
            )
        }
        parser.parse_punctuation(",")
        operands = _parse_operands(parser, 2)
        if parser.parse_optional_punctuation(",") is not None:
            properties["compare_type"] = ComparisonTypeAttr(
                parser.parse_keyword_in(ComparisonTypeAttr.keywords)
            )
        return operands, properties

    def print_head(self, printer: Printer) -> None:
        printer.print_string(f" {self.direction},")
        self._print_operands(printer)
        if self.compare_type is not None:
            printer.print_string(f", {self.compare_type}")

    def verify_op(self) -> None:
        _check_type("operand 1", self.rhs.type, self.lhs.type)
        self._verify_result(TensorType(i1, shape_of(self.lhs)))
        element = element_type_of(self.lhs)
        expected = types.ELEMENT_TYPES[element].compare_type
        _check(
            self.compare_type in (None, expected),
            f"compare type {self.compare_type} does not fit {element}, expected {expected}",
        )


@irdl_op_definition
class SelectOp(PrettyOp):
    """on_true where pred, else on_false; pred is a scalar or has the operands' shape."""

    name = "stablehlo.select"
    pred = operand_def(TensorType)
    on_true = operand_def(TensorType)
    on_false = operand_def(TensorType)

    def __init__(self, pred: Value, on_true: Value, on_false: Value):
        self._init([pred, on_true, on_false], tensor_type(on_true))

    @classmethod
    def parse(cls, parser: Parser) -> "SelectOp":
        operands = _parse_operands(parser, 3)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        first = parser.parse_type()
        if isinstance(first, FunctionType):
            if len(first.inputs) != 3 or len(first.outputs) != 1:
                parser.raise_error(
                    "expected 3 operand types and one result type", position, parser.pos
                )
            inputs, type = first.inputs.data, first.outputs.data[0]
        else:
            parser.parse_punctuation(",")
            type = parser.parse_type()
            inputs = (first, type, type)
        values = [parser.resolve_operand(o, t) for o, t in zip(operands, inputs, strict=True)]
        return cls.create(operands=values, result_types=[type], attributes=attributes)

    def print(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.on_true.type == self.on_false.type == self.result.type:
            printer.print_list([self.pred.type, self.result.type], printer.print_attribute)
        else:
            printer.print_operation_type(self)

    def verify_op(self) -> None:
        _check_elements("pred", self.pred, (i1,))
        if shape_of(self.pred) not in ((), shape_of(self.on_true)):
            raise VerifyException(
                f"pred is {self.pred.type}, expected a scalar or the shape of {self.on_true.type}"
            )
        _check_type("on_false", self.on_false.type, self.on_true.type)
        self._verify_result(tensor_type(self.on_true))


# --- constants ----------------------------------------------------------------------------------


@irdl_op_definition
class ConstantOp(PrettyOp):
    """A tensor known at compile time."""

    name = "stablehlo.constant"
    value = prop_def(DenseIntOrFPElementsAttr)

    def __init__(self, value: DenseIntOrFPElementsAttr | np.ndarray | np.generic):
        """From an attribute, or from an array of float32, int32 or bool elements."""
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
        """The elements as float32, int32 or bool, with exactly their bits."""
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


@irdl_op_definition
class IotaOp(PrettyOp):
    """Each element is its index along a dimension."""

    name = "stablehlo.iota"
    iota_dimension = prop_def(IntegerAttr)

    def __init__(self, result_type: TensorType, dim: int):
        self._init([], result_type, {"iota_dimension": _int_attr(dim)})

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
            properties={"iota_dimension": _int_attr(dim)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" dim = {self.dim}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

    def verify_op(self) -> None:
        _check_elements("result", self.result, (f32, i32))
        _check_dims("dim", (self.dim,), len(shape_of(self.result)))


# --- data movement ------------------------------------------------------------------------------


@irdl_op_definition
class BroadcastInDimOp(PrettyOp):
    """Operand dimension i becomes result dimension dims[i]; others repeat the operand."""

    name = "stablehlo.broadcast_in_dim"
    operand = operand_def(TensorType)
    broadcast_dimensions = prop_def(_INTS)

    def __init__(self, operand: Value, dims: Sequence[int], shape: Sequence[int]):
        self._init([operand], _with_shape(operand, shape), {"broadcast_dimensions": _i64s(dims)})

    @property
    def dims(self) -> Dims:
        """Result dimension of each operand dimension."""
        return _ints(self.broadcast_dimensions)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, 1)
        return operands, {"broadcast_dimensions": _i64s(_parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        _print_named_dims(printer, "dims", self.dims)

    def verify_op(self) -> None:
        source, target = shape_of(self.operand), shape_of(self.result)
        self._verify_result(_with_shape(self.operand, target))
        _check_rank("dims", self.dims, len(source))
        _check_dims("dims", self.dims, len(target))
        for i, d in enumerate(self.dims):
            if source[i] not in (1, target[d]):
                raise VerifyException(
                    f"operand dimension {i} of size {source[i]} cannot become "
                    f"result dimension {d} of size {target[d]}"
                )


@irdl_op_definition
class ReshapeOp(PrettyOp):
    """The same elements in row-major order with another shape."""

    name = "stablehlo.reshape"
    operand = operand_def(TensorType)

    def __init__(self, operand: Value, shape: Sequence[int]):
        self._init([operand], _with_shape(operand, shape))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return _parse_operands(parser, 1), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        source, target = shape_of(self.operand), shape_of(self.result)
        self._verify_result(_with_shape(self.operand, target))
        _check(
            math.prod(source) == math.prod(target),
            f"cannot reshape {math.prod(source)} elements to {math.prod(target)}",
        )


@irdl_op_definition
class TransposeOp(PrettyOp):
    """Result dimension i is operand dimension permutation[i]."""

    name = "stablehlo.transpose"
    operand = operand_def(TensorType)
    permutation_attr = prop_def(_INTS, prop_name="permutation")

    def __init__(self, operand: Value, permutation: Sequence[int]):
        shape = shape_of(operand)
        self._init(
            [operand],
            _with_shape(operand, [shape[p] for p in permutation]),
            {"permutation": _i64s(permutation)},
        )

    @property
    def permutation(self) -> Dims:
        """Operand dimension of each result dimension."""
        return _ints(self.permutation_attr)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, 1)
        return operands, {"permutation": _i64s(_parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        _print_named_dims(printer, "dims", self.permutation)

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        _check_rank("dims", self.permutation, len(shape))
        _check_dims("dims", self.permutation, len(shape))
        self._verify_result(_with_shape(self.operand, [shape[p] for p in self.permutation]))


@irdl_op_definition
class ReverseOp(PrettyOp):
    """Elements in opposite order along some dimensions."""

    name = "stablehlo.reverse"
    operand = operand_def(TensorType)
    dimensions = prop_def(_INTS)
    SHORT_SIGNATURE: ClassVar = True

    def __init__(self, operand: Value, dims: Sequence[int]):
        self._init([operand], tensor_type(operand), {"dimensions": _i64s(dims)})

    @property
    def dims(self) -> Dims:
        """The reversed dimensions."""
        return _ints(self.dimensions)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, 1)
        return operands, {"dimensions": _i64s(_parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        _print_named_dims(printer, "dims", self.dims)

    def verify_op(self) -> None:
        _check_dims("dims", self.dims, len(shape_of(self.operand)))
        self._verify_result(tensor_type(self.operand))


def _slice_shape(starts: Dims, limits: Dims, strides: Dims) -> list[int]:
    return [
        max(0, -(-(limit - start) // stride))
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]


@irdl_op_definition
class SliceOp(PrettyOp):
    """Elements start, start + stride, ... below limit of each dimension."""

    name = "stablehlo.slice"
    operand = operand_def(TensorType)
    start_indices = prop_def(_INTS)
    limit_indices = prop_def(_INTS)
    strides_attr = prop_def(_INTS, prop_name="strides")

    def __init__(
        self,
        operand: Value,
        starts: Sequence[int],
        limits: Sequence[int],
        strides: Sequence[int] | None = None,
    ):
        strides = (1,) * len(starts) if strides is None else strides
        self._init(
            [operand],
            _with_shape(operand, _slice_shape(tuple(starts), tuple(limits), tuple(strides))),
            {
                "start_indices": _i64s(starts),
                "limit_indices": _i64s(limits),
                "strides": _i64s(strides),
            },
        )

    @property
    def starts(self) -> Dims:
        """First index of each dimension."""
        return _ints(self.start_indices)

    @property
    def limits(self) -> Dims:
        """First index of each dimension that is not taken any more."""
        return _ints(self.limit_indices)

    @property
    def strides(self) -> Dims:
        """Distance between indices of each dimension."""
        return _ints(self.strides_attr)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, 1)

        def parse_range() -> tuple[int, int, int]:
            start = parse_int(parser)
            parser.parse_punctuation(":")
            limit = parse_int(parser)
            if parser.parse_optional_punctuation(":") is None:
                return start, limit, 1
            return start, limit, parse_int(parser)

        ranges = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_range)
        names = ("start_indices", "limit_indices", "strides")
        return operands, {n: _i64s([r[i] for r in ranges]) for i, n in enumerate(names)}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        ranges = [
            f"{start}:{limit}" if stride == 1 else f"{start}:{limit}:{stride}"
            for start, limit, stride in zip(self.starts, self.limits, self.strides, strict=True)
        ]
        printer.print_string(f" [{', '.join(ranges)}]")

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        _check_rank("start_indices", self.starts, len(shape))
        _check_rank("limit_indices", self.limits, len(shape))
        _check_rank("strides", self.strides, len(shape))
        _check_positive("strides", self.strides)
        for i, size in enumerate(shape):
            _check(
                0 <= self.starts[i] <= self.limits[i] <= size,
                f"slice {self.starts[i]}:{self.limits[i]} is outside dimension {i} of size {size}",
            )
        shape = _slice_shape(self.starts, self.limits, self.strides)
        self._verify_result(_with_shape(self.operand, shape))


def _pad_shape(shape: Dims, low: Dims, high: Dims, interior: Dims) -> list[int]:
    return [
        lo + n + max(n - 1, 0) * gap + hi
        for n, lo, hi, gap in zip(shape, low, high, interior, strict=True)
    ]


@irdl_op_definition
class PadOp(PrettyOp):
    """Padding around and between elements; a negative low or high pad removes elements."""

    name = "stablehlo.pad"
    operand = operand_def(TensorType)
    padding_value = operand_def(TensorType)
    edge_padding_low = prop_def(_INTS)
    edge_padding_high = prop_def(_INTS)
    interior_padding = prop_def(_INTS)

    def __init__(
        self,
        operand: Value,
        padding_value: Value,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ):
        interior = (0,) * len(low) if interior is None else interior
        shape = _pad_shape(shape_of(operand), tuple(low), tuple(high), tuple(interior))
        self._init(
            [operand, padding_value],
            _with_shape(operand, shape),
            {
                "edge_padding_low": _i64s(low),
                "edge_padding_high": _i64s(high),
                "interior_padding": _i64s(interior),
            },
        )

    @property
    def low(self) -> Dims:
        """Elements added before the first of each dimension."""
        return _ints(self.edge_padding_low)

    @property
    def high(self) -> Dims:
        """Elements added after the last of each dimension."""
        return _ints(self.edge_padding_high)

    @property
    def interior(self) -> Dims:
        """Elements added between two elements of each dimension."""
        return _ints(self.interior_padding)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return _parse_operands(parser, 2), {
            "edge_padding_low": _i64s(_parse_named_dims(parser, "low")),
            "edge_padding_high": _i64s(_parse_named_dims(parser, "high")),
            "interior_padding": _i64s(_parse_named_dims(parser, "interior")),
        }

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        _print_named_dims(printer, "low", self.low)
        _print_named_dims(printer, "high", self.high)
        _print_named_dims(printer, "interior", self.interior)

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        _check_rank("low", self.low, len(shape))
        _check_rank("high", self.high, len(shape))
        _check_rank("interior", self.interior, len(shape))
        _check(min(self.interior, default=0) >= 0, "interior padding must not be negative")
        _check_type("padding value", self.padding_value.type, _with_shape(self.operand, ()))
        padded = _pad_shape(shape, self.low, self.high, self.interior)
        _check(min(padded, default=0) >= 0, f"negative padding leaves the shape {padded}")
        self._verify_result(_with_shape(self.operand, padded))


def _concatenate_type(inputs: Sequence[Value], dim: int) -> TensorType:
    shape = list(shape_of(inputs[0]))
    shape[dim] = sum(shape_of(value)[dim] for value in inputs)
    return _with_shape(inputs[0], shape)


@irdl_op_definition
class ConcatenateOp(PrettyOp):
    """Tensors one after the other along a dimension."""

    name = "stablehlo.concatenate"
    inputs = var_operand_def(TensorType)
    dimension = prop_def(IntegerAttr)

    def __init__(self, inputs: Sequence[Value], dim: int):
        self._init([inputs], _concatenate_type(inputs, dim), {"dimension": _int_attr(dim)})

    @property
    def dim(self) -> int:
        """The dimension whose sizes add up."""
        return self.dimension.value.data

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, 1)
        parser.parse_punctuation(",")
        while parser.parse_optional_keyword("dim") is None:
            operands.append(parser.parse_unresolved_operand("expected operand or 'dim'"))
            parser.parse_punctuation(",")
        parser.parse_punctuation("=")
        return operands, {"dimension": _int_attr(parse_int(parser))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_string(f", dim = {self.dim}")

    def verify_op(self) -> None:
        _check(len(self.inputs) > 0, "expected at least one operand")
        first = shape_of(self.inputs[0])
        _check_dims("dim", (self.dim,), len(first))
        for index, value in enumerate(self.inputs):
            shape = list(shape_of(value))
            if len(shape) == len(first):
                shape[self.dim] = first[self.dim]
            _check(
                tuple(shape) == first and element_type_of(value) == element_type_of(self.inputs[0]),
                f"operand {index} is {value.type}, which does not fit {self.inputs[0].type}",
            )
        self._verify_result(_concatenate_type(self.inputs, self.dim))


# --- contractions -------------------------------------------------------------------------------


def _dot_type(lhs: Value, rhs: Value, dims: DotDims) -> TensorType:
    left, right = shape_of(lhs), shape_of(rhs)
    lhs_used = {*dims.lhs_batching_dimensions, *dims.lhs_contracting_dimensions}
    rhs_used = {*dims.rhs_batching_dimensions, *dims.rhs_contracting_dimensions}
    return _with_shape(
        lhs,
        [left[d] for d in dims.lhs_batching_dimensions]
        + [n for d, n in enumerate(left) if d not in lhs_used]
        + [n for d, n in enumerate(right) if d not in rhs_used],
    )


def _precision_attr() -> ArrayAttr:
    return ArrayAttr([PrecisionAttr("DEFAULT")] * 2)


class DotBase(PrettyOp):
    """Sums of products over pairs of contracting dimensions, for each index of the batch pairs."""

    OPERANDS: ClassVar[int] = 2

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    dot_dimension_numbers = prop_def(DotDimsAttr)
    precision_config = opt_prop_def(ArrayAttr[PrecisionAttr])
    algorithm = opt_prop_def(DotAlgorithmAttr)

    def __init__(
        self,
        lhs: Value,
        rhs: Value,
        lhs_contract: Sequence[int],
        rhs_contract: Sequence[int],
        lhs_batch: Sequence[int] = (),
        rhs_batch: Sequence[int] = (),
    ):
        dims = DotDims(tuple(lhs_batch), tuple(rhs_batch), tuple(lhs_contract), tuple(rhs_contract))
        self._init(
            [lhs, rhs],
            _dot_type(lhs, rhs, dims),
            {"dot_dimension_numbers": DotDimsAttr(dims), "precision_config": _precision_attr()},
        )

    @property
    def lhs_batch(self) -> Dims:
        """Batch dimensions of lhs."""
        return self.dot_dimension_numbers.data.lhs_batching_dimensions

    @property
    def rhs_batch(self) -> Dims:
        """Batch dimensions of rhs."""
        return self.dot_dimension_numbers.data.rhs_batching_dimensions

    @property
    def lhs_contract(self) -> Dims:
        """Contracting dimensions of lhs."""
        return self.dot_dimension_numbers.data.lhs_contracting_dimensions

    @property
    def rhs_contract(self) -> Dims:
        """Contracting dimensions of rhs."""
        return self.dot_dimension_numbers.data.rhs_contracting_dimensions

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands(parser, cls.OPERANDS)
        pairs: dict[str, tuple[Dims, Dims]] = {}
        properties: dict[str, Attribute] = {}
        while parser.parse_optional_punctuation(",") is not None:
            name = parser.parse_keyword_in(
                ("batching_dims", "contracting_dims", "precision", "algorithm")
            )
            key = "precision_config" if name == "precision" else name
            if name in pairs or key in properties:
                parser.raise_error(f"'{name}' given twice")
            parser.parse_punctuation("=")
            if name == "algorithm":
                properties[key] = DotAlgorithmAttr(DotAlgorithmAttr.parse_parameter(parser))
            elif name == "precision":
                keywords = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE,
                    lambda: PrecisionAttr(parser.parse_keyword_in(PrecisionAttr.keywords)),
                )
                properties[key] = ArrayAttr(keywords)
            else:
                lhs = parse_dims(parser)
                parser.parse_keyword("x")
                pairs[name] = lhs, parse_dims(parser)
        none: tuple[Dims, Dims] = ((), ())
        dims = DotDims(*pairs.get("batching_dims", none), *pairs.get("contracting_dims", none))
        properties["dot_dimension_numbers"] = DotDimsAttr(dims)
        return operands, properties

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        for name, lhs, rhs in (
            ("batching_dims", self.lhs_batch, self.rhs_batch),
            ("contracting_dims", self.lhs_contract, self.rhs_contract),
        ):
            if lhs or rhs or name == "contracting_dims":
                _print_named_dims(printer, name, lhs)
                printer.print_string(" x ")
                print_dims(printer, rhs)
        if self.precision_config is not None:
            keywords = ", ".join(attr.data for attr in self.precision_config)
            printer.print_string(f", precision = [{keywords}]")
        if self.algorithm is not None:
            printer.print_string(", algorithm = ")
            self.algorithm.print_parameter(printer)

    def verify_op(self) -> None:
        if self.algorithm is not None and not self.algorithm.data.is_f32:
            raise VerifyException(
                f"algorithm {self.algorithm.data.name} is not supported, F32_F32_F32 is"
            )
        _check_elements("operand 0", self.lhs, (f32,))
        _check_elements("operand 1", self.rhs, (f32,))
        left, right = shape_of(self.lhs), shape_of(self.rhs)
        _check_dims("dimensions of operand 0", self.lhs_batch + self.lhs_contract, len(left))
        _check_dims("dimensions of operand 1", self.rhs_batch + self.rhs_contract, len(right))
        for name, lhs, rhs in (
            ("batching", self.lhs_batch, self.rhs_batch),
            ("contracting", self.lhs_contract, self.rhs_contract),
        ):
            if [left[d] for d in lhs] != [right[d] for d in rhs]:
                raise VerifyException(
                    f"{name} dimensions {list(lhs)} of {self.lhs.type} and {list(rhs)} of "
                    f"{self.rhs.type} differ in size"
                )
        self._verify_result(_dot_type(self.lhs, self.rhs, self.dot_dimension_numbers.data))


@irdl_op_definition
class DotGeneralOp(DotBase):
    """Each sum starts from +0.0."""

    name = "stablehlo.dot_general"


@irdl_op_definition
class DotFromOp(DotBase):
    """Each sum starts from its element of `init`, the first operand: it goes on with the sums of
    another contraction."""

    name = "resume.dot_general"
    OPERANDS: ClassVar[int] = 3

    init = operand_def(TensorType)

    def verify_op(self) -> None:
        super().verify_op()
        _check_type("init", self.init.type, self.result.type)


def dilated(size: int, dilation: int) -> int:
    """Elements from the first to the last of `size` elements that are `dilation` apart."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def _window_count(
    size: int, padding: Sequence[int], dilation: int, extent: int, stride: int
) -> int:
    """Windows of `extent` elements, `stride` apart, in a dilated and padded dimension."""
    padded = padding[0] + dilated(size, dilation) + padding[1]
    return 0 if padded < extent else (padded - extent) // stride + 1


def _conv_type(
    lhs: Value,
    rhs: Value,
    dims: ConvDims,
    strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    batch_groups: int,
) -> TensorType:
    source, kernel = shape_of(lhs), shape_of(rhs)
    shape = [0] * len(source)
    shape[dims.output_batch] = source[dims.input_batch] // batch_groups
    shape[dims.output_feature] = kernel[dims.kernel_output_feature]
    for i, d in enumerate(dims.output_spatial):
        extent = dilated(kernel[dims.kernel_spatial[i]], rhs_dilation[i])
        size = source[dims.input_spatial[i]]
        shape[d] = _window_count(size, padding[i], lhs_dilation[i], extent, strides[i])
    return _with_shape(lhs, shape)


class ConvolutionBase(PrettyOp):
    """Sums over kernel positions and the input features of a group."""

    OPERANDS: ClassVar[int] = 2

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    dimension_numbers = prop_def(ConvDimsAttr)
    window_strides = opt_prop_def(_INTS)
    padding_attr = opt_prop_def(DenseIntOrFPElementsAttr, prop_name="padding")
    lhs_dilation_attr = opt_prop_def(_INTS, prop_name="lhs_dilation")
    rhs_dilation_attr = opt_prop_def(_INTS, prop_name="rhs_dilation")
    window_reversal = opt_prop_def(DenseArrayBase.constr(i1))
    feature_group_count = prop_def(IntegerAttr)
    batch_group_count = prop_def(IntegerAttr)
    precision_config = opt_prop_def(ArrayAttr[PrecisionAttr])

    # Keyword in `window = {...}`, property.
    _WINDOW: ClassVar = {
        "stride": "window_strides",
        "pad": "padding",
        "lhs_dilate": "lhs_dilation",
        "rhs_dilate": "rhs_dilation",
        "reverse": "window_reversal",
    }

    def __init__(
        self,
        lhs: Value,
        rhs: Value,
        dims: ConvDims,
        strides: Sequence[int] | None = None,
        padding: Sequence[Sequence[int]] | None = None,
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        feature_groups: int = 1,
        batch_groups: int = 1,
    ):
        rank = len(dims.input_spatial)
        ones, zeros = (1,) * rank, ((0, 0),) * rank
        properties: dict[str, Attribute | None] = {
            "dimension_numbers": ConvDimsAttr(dims),
            "window_strides": _i64s(strides or ones),
            "padding": padding_attr(padding or zeros),
            "lhs_dilation": _i64s(lhs_dilation or ones),
            "rhs_dilation": _i64s(rhs_dilation or ones),
            "window_reversal": DenseArrayBase.from_list(i1, (False,) * rank),
            "feature_group_count": _int_attr(feature_groups),
            "batch_group_count": _int_attr(batch_groups),
            "precision_config": _precision_attr(),
        }
        result_type = _conv_type(
            lhs,
            rhs,
            dims,
            strides or ones,
            padding or zeros,
            lhs_dilation or ones,
            rhs_dilation or ones,
            batch_groups,
        )
        self._init([lhs, rhs], result_type, properties)

    @property
    def dims(self) -> ConvDims:
        """Layouts of operands and result."""
        return self.dimension_numbers.data

    @property
    def _rank(self) -> int:
        return len(self.dims.input_spatial)

    @property
    def strides(self) -> Dims:
        """Distance between windows in each spatial dimension."""
        return _ints(self.window_strides) or (1,) * self._rank

    @property
    def padding(self) -> Padding:
        """Low and high padding of each spatial dimension of lhs; may be negative."""
        return _pairs(self.padding_attr, self._rank)

    @property
    def lhs_dilation(self) -> Dims:
        """Distance between elements of lhs in each spatial dimension."""
        return _ints(self.lhs_dilation_attr) or (1,) * self._rank

    @property
    def rhs_dilation(self) -> Dims:
        """Distance between elements of the kernel in each spatial dimension."""
        return _ints(self.rhs_dilation_attr) or (1,) * self._rank

    @property
    def feature_groups(self) -> int:
        """Groups of input features, each with its own kernels."""
        return self.feature_group_count.value.data

    @property
    def batch_groups(self) -> int:
        """Groups of the batch, each with its own kernels."""
        return self.batch_group_count.value.data

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        with parser.in_parens():
            operands = _parse_operands(parser, cls.OPERANDS)
        parser.parse_keyword("dim_numbers")
        parser.parse_punctuation("=")
        properties: dict[str, Attribute] = {
            "dimension_numbers": ConvDimsAttr(parse_conv_dims(parser))
        }
        parser.parse_punctuation(",")
        parser.parse_keyword("window")
        parser.parse_punctuation("=")

        def parse_entry() -> None:
            keyword = parser.parse_keyword_in(tuple(cls._WINDOW))
            name = cls._WINDOW[keyword]
            if name in properties:
                parser.raise_error(f"'{keyword}' given twice")
            parser.parse_punctuation("=")
            if keyword == "pad":
                position = parser.pos
                pairs = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, lambda: parse_dims(parser)
                )
                if any(len(pair) != 2 for pair in pairs):
                    parser.raise_error("expected pairs of low and high padding", position)
                properties[name] = padding_attr(pairs)
            elif keyword == "reverse":
                flags = parser.parse_comma_separated_list(
                    parser.Delimiter.SQUARE, parser.parse_boolean
                )
                properties[name] = DenseArrayBase.from_list(i1, flags)
            else:
                properties[name] = _i64s(parse_dims(parser))

        parser.parse_comma_separated_list(parser.Delimiter.BRACES, parse_entry)
        return operands, properties

    def print(self, printer: Printer) -> None:
        with printer.in_parens():
            printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_string(" dim_numbers = ")
        print_conv_dims(printer, self.dims)
        entries = []
        for keyword, name in self._WINDOW.items():
            attr = self.properties.get(name)
            if isinstance(attr, DenseIntOrFPElementsAttr):
                entries.append(f"{keyword} = {[list(pair) for pair in self.padding]}")
            elif keyword == "reverse" and attr is not None:
                flags = ("true" if flag else "false" for flag in _ints(attr))
                entries.append(f"{keyword} = [{', '.join(flags)}]")
            elif attr is not None:
                entries.append(f"{keyword} = {list(_ints(attr))}")
        printer.print_string(f", window = {{{', '.join(entries)}}}")
        rest = ("batch_group_count", "feature_group_count", "precision_config")
        properties = {name: self.properties[name] for name in rest if name in self.properties}
        printer.print_op_attributes(properties | self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)

    def verify_op(self) -> None:
        _check_elements("operand 0", self.lhs, (f32,))
        _check_elements("operand 1", self.rhs, (f32,))
        dims, lhs, rhs = self.dims, shape_of(self.lhs), shape_of(self.rhs)
        rank = self._rank
        for name, spatial, shape in (
            ("input", dims.input_spatial, lhs),
            ("kernel", dims.kernel_spatial, rhs),
            ("output", dims.output_spatial, shape_of(self.result)),
        ):
            _check(
                len(spatial) == rank and len(shape) == rank + 2,
                f"{name} dimension numbers do not fit a tensor of rank {len(shape)}",
            )
        _check_padding(self.padding_attr, rank)
        for name in ("strides", "lhs_dilation", "rhs_dilation"):
            _check_rank(name, getattr(self, name), rank)
            _check_positive(name, getattr(self, name))
        _check(not any(_ints(self.window_reversal)), "window reversal is not supported")
        features, batch = lhs[dims.input_feature], lhs[dims.input_batch]
        outputs = rhs[dims.kernel_output_feature]
        groups, batch_groups = self.feature_groups, self.batch_groups
        _check_positive("group counts", (groups, batch_groups))
        _check(groups == 1 or batch_groups == 1, "only one of the group counts may exceed 1")
        _check(
            rhs[dims.kernel_input_feature] * groups == features,
            f"kernel has {rhs[dims.kernel_input_feature]} input features in {groups} groups, "
            f"input has {features}",
        )
        _check(outputs % groups == 0, f"{outputs} output features do not form {groups} groups")
        _check(
            batch % batch_groups == 0 and outputs % batch_groups == 0,
            f"batch of {batch} or {outputs} output features do not form {batch_groups} groups",
        )
        self._verify_result(
            _conv_type(
                self.lhs,
                self.rhs,
                dims,
                self.strides,
                self.padding,
                self.lhs_dilation,
                self.rhs_dilation,
                batch_groups,
            )
        )


@irdl_op_definition
class ConvolutionOp(ConvolutionBase):
    """Each sum starts from +0.0."""

    name = "stablehlo.convolution"


@irdl_op_definition
class ConvolutionFromOp(ConvolutionBase):
    """Each sum starts from its element of `init`, the first operand: it goes on with the sums of
    another convolution."""

    name = "resume.convolution"
    OPERANDS: ClassVar[int] = 3

    init = operand_def(TensorType)

    def verify_op(self) -> None:
        super().verify_op()
        _check_type("init", self.init.type, self.result.type)


# --- reductions ---------------------------------------------------------------------------------


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the body of a reduction."""

    name = "stablehlo.return"
    inputs = var_operand_def(TensorType)
    traits = traits_def(Pure(), IsTerminator())

    assembly_format = "$inputs attr-dict `:` type($inputs)"

    def __init__(self, *values: Value):
        super().__init__(operands=[values])


REDUCERS: dict[str, type[BinaryElementwiseOp]] = {
    "add": AddOp,
    "multiply": MultiplyOp,
    "maximum": MaximumOp,
    "minimum": MinimumOp,
    "and": AndOp,
    "or": OrOp,
    "xor": XorOp,
}


def identity(kind: str, element_type: Attribute) -> np.generic:
    """The element that the reducer `kind` combines with x to x, for every x of that type.

    The sum's is +0.0: it changes -0.0, but sums start from it everywhere.
    """
    dtype = dense.dtype_of(element_type)
    if kind in ("add", "multiply", "or", "xor"):
        return dtype.type(kind == "multiply")
    if kind == "and":
        return ~dtype.type(0)
    is_maximum = kind == "maximum"
    if dtype.kind == "f":
        return dtype.type(-math.inf if is_maximum else math.inf)
    if dtype.kind == "b":
        return dtype.type(not is_maximum)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if is_maximum else limits.max)


def _reducer(kind: str, element_type: Attribute) -> Region:
    """Body `kind(%a, %b)` on scalars."""
    scalar = TensorType(element_type, ())
    block = Block(arg_types=(scalar, scalar))
    op = REDUCERS[kind](*block.args)
    block.add_ops((op, ReturnOp(op)))
    return Region(block)


def _selector(direction: str, element_type: Attribute) -> Region:
    """Body `compare direction, %a, %b` on scalars."""
    scalar = TensorType(element_type, ())
    block = Block(arg_types=(scalar, scalar))
    compare_type = types.ELEMENT_TYPES[element_type].compare_type
    lhs, rhs = block.args
    op = CompareOp(lhs, rhs, direction, compare_type)
    block.add_ops((op, ReturnOp(op)))
    return Region(block)


def _body_op(region: Region) -> Operation | None:
    """The only op of a two-argument body whose result is returned, else None."""
    if len(region.blocks) != 1 or len(region.block.args) != 2:
        return None
    ops = list(region.block.ops)
    if len(ops) != 2 or not isinstance(ops[1], ReturnOp):
        return None
    body, end = ops
    if len(body.results) != 1 or tuple(end.operands) != tuple(body.results):
        return None
    return body


def reducer_kind(region: Region) -> str | None:
    """The key of `REDUCERS` that a body computes, its arguments in either order; else None."""
    body = _body_op(region)
    if body is None or set(body.operands) != set(region.block.args):
        return None
    return next((kind for kind, cls in REDUCERS.items() if isinstance(body, cls)), None)


def _kind(region: Region) -> str:
    kind = reducer_kind(region)
    assert kind is not None, "the verifier accepts only bodies in REDUCERS"
    return kind


def _check_reducer(region: Region, element_type: Attribute, kinds: Sequence[str]) -> None:
    kind = reducer_kind(region)
    _check(
        kind in kinds,
        f"the body must be one of {', '.join(kinds)} of its two arguments"
        if kind is None
        else f"the body {kind} is not supported, expected {', '.join(kinds)}",
    )
    scalar = TensorType(element_type, ())
    for argument in region.block.args:
        _check_type("body argument", argument.type, scalar)


@irdl_op_definition
class ReduceOp(PrettyOp):
    """Combines all elements along some dimensions, starting from `init`."""

    name = "stablehlo.reduce"
    operand = operand_def(TensorType)
    init = operand_def(TensorType)
    dimensions = prop_def(_INTS)
    body = region_def()

    def __init__(self, operand: Value, init: Value, dims: Sequence[int], kind: str):
        shape = [n for d, n in enumerate(shape_of(operand)) if d not in dims]
        self._init(
            [operand, init],
            _with_shape(operand, shape),
            {"dimensions": _i64s(dims)},
            [_reducer(kind, element_type_of(operand))],
        )

    @property
    def dims(self) -> Dims:
        """The reduced dimensions."""
        return _ints(self.dimensions)

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that the body computes."""
        return _kind(self.body)

    @classmethod
    def parse(cls, parser: Parser) -> "ReduceOp":
        with parser.in_parens():
            operands = [parser.parse_unresolved_operand()]
            parser.parse_keyword("init")
            parser.parse_punctuation(":")
            operands.append(parser.parse_unresolved_operand())
        if parser.parse_optional_punctuation(",") is not None:
            parser.raise_error("a reduce of several operands is not supported")
        kind = None
        if parser.parse_optional_keyword("applies") is not None:
            position = parser.pos
            kind = parser.parse_identifier().removeprefix("stablehlo.")
            if kind not in REDUCERS:
                known = ", ".join(REDUCERS)
                parser.raise_error(f"cannot reduce by '{kind}', expected {known}", position)
        parser.parse_keyword("across")
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        dims = parse_dims(parser)
        attributes = parser.parse_optional_attr_dict()
        position = parser.pos
        values, type = _parse_signature(parser, operands)
        if kind is not None:
            element = values[0].type
            if not isinstance(element, TensorType):
                parser.raise_error("expected tensor operands", position, parser.pos)
            body = _reducer(kind, element.element_type)
        else:
            parser.parse_keyword("reducer")
            arguments = parser.parse_comma_separated_list(
                parser.Delimiter.PAREN, parser.parse_argument
            )
            body = parser.parse_region(arguments)
        return cls.create(
            operands=values,
            result_types=[type],
            properties={"dimensions": _i64s(dims)},
            attributes=attributes,
            regions=[body],
        )

    def _has_short_body(self) -> bool:
        body = _body_op(self.body)
        return (
            body is not None
            and reducer_kind(self.body) is not None
            and tuple(body.operands) == tuple(self.body.block.args)
            and not body.attributes
        )

    def print(self, printer: Printer) -> None:
        with printer.in_parens():
            printer.print_ssa_value(self.operand)
            printer.print_string(" init: ")
            printer.print_ssa_value(self.init)
        short = self._has_short_body()
        if short:
            printer.print_string(f" applies stablehlo.{self.kind}")
        printer.print_string(" across dimensions = ")
        print_dims(printer, self.dims)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)
        if not short:
            printer.print_string(" reducer")
            with printer.in_parens():
                printer.print_list(self.body.block.args, printer.print_block_argument)
            printer.print_string(" ")
            printer.print_region(self.body, print_entry_block_args=False)

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        _check_dims("dimensions", self.dims, len(shape))
        _check_type("init", self.init.type, _with_shape(self.operand, ()))
        _check_reducer(self.body, element_type_of(self.operand), tuple(REDUCERS))
        reduced = [n for d, n in enumerate(shape) if d not in self.dims]
        self._verify_result(_with_shape(self.operand, reduced))


def _reduce_window_type(
    operand: Value,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    base_dilations: Sequence[int],
    window_dilations: Sequence[int],
) -> TensorType:
    shape = []
    for i, size in enumerate(shape_of(operand)):
        extent = dilated(window[i], window_dilations[i])
        shape.append(_window_count(size, padding[i], base_dilations[i], extent, strides[i]))
    return _with_shape(operand, shape)


@irdl_op_definition
class ReduceWindowOp(StablehloOp):
    """Combines the elements of each window, starting from `init`."""

    name = "stablehlo.reduce_window"
    operand = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = prop_def(_INTS)
    window_strides = opt_prop_def(_INTS)
    base_dilations_attr = opt_prop_def(_INTS, prop_name="base_dilations")
    window_dilations_attr = opt_prop_def(_INTS, prop_name="window_dilations")
    padding_attr = opt_prop_def(DenseIntOrFPElementsAttr, prop_name="padding")
    body = region_def()

    def __init__(
        self,
        operand: Value,
        init: Value,
        window: Sequence[int],
        kind: str,
        strides: Sequence[int] | None = None,
        padding: Sequence[Sequence[int]] | None = None,
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
    ):
        ones, zeros = (1,) * len(window), ((0, 0),) * len(window)
        result_type = _reduce_window_type(
            operand,
            window,
            strides or ones,
            padding or zeros,
            base_dilations or ones,
            window_dilations or ones,
        )
        self._init(
            [operand, init],
            result_type,
            {
                "window_dimensions": _i64s(window),
                "window_strides": _i64s(strides or ones),
                "base_dilations": _i64s(base_dilations or ones),
                "window_dilations": _i64s(window_dilations or ones),
                "padding": padding_attr(padding or zeros),
            },
            [_reducer(kind, element_type_of(operand))],
        )

    @property
    def window(self) -> Dims:
        """Elements of the window in each dimension."""
        return _ints(self.window_dimensions)

    @property
    def strides(self) -> Dims:
        """Distance between windows in each dimension."""
        return _ints(self.window_strides) or (1,) * len(self.window)

    @property
    def base_dilations(self) -> Dims:
        """Distance between elements of the operand in each dimension."""
        return _ints(self.base_dilations_attr) or (1,) * len(self.window)

    @property
    def window_dilations(self) -> Dims:
        """Distance between elements of the window in each dimension."""
        return _ints(self.window_dilations_attr) or (1,) * len(self.window)

    @property
    def padding(self) -> Padding:
        """Low and high padding of each dimension."""
        return _pairs(self.padding_attr, len(self.window))

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that the body computes."""
        return _kind(self.body)

    @property
    def starts_anywhere(self) -> bool:
        """Whether any `init` is supported: no window reaches padding or holes, which are `init` to
        StableHLO and are skipped here, which is the same for the identity."""
        return max((*self.base_dilations, 1)) == 1 and not any(
            pad > 0 for pads in self.padding for pad in pads
        )

    def verify_op(self) -> None:
        rank = len(shape_of(self.operand))
        _check_padding(self.padding_attr, rank)
        for name in ("window", "strides", "base_dilations", "window_dilations"):
            _check_rank(name, getattr(self, name), rank)
            _check_positive(name, getattr(self, name))
        _check_type("init", self.init.type, _with_shape(self.operand, ()))
        _check_reducer(self.body, element_type_of(self.operand), tuple(REDUCERS))
        self._verify_result(
            _reduce_window_type(
                self.operand,
                self.window,
                self.strides,
                self.padding,
                self.base_dilations,
                self.window_dilations,
            )
        )


@irdl_op_definition
class SelectAndScatterOp(StablehloOp):
    """Adds each source element to the element of the operand that its window selects."""

    name = "stablehlo.select_and_scatter"
    operand = operand_def(TensorType)
    source = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = opt_prop_def(_INTS)
    window_strides = opt_prop_def(_INTS)
    padding_attr = opt_prop_def(DenseIntOrFPElementsAttr, prop_name="padding")
    select_body = region_def()
    scatter_body = region_def()

    def __init__(
        self,
        operand: Value,
        source: Value,
        init: Value,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[Sequence[int]] | None = None,
        select_direction: str = "GE",
        scatter_kind: str = "add",
    ):
        element = element_type_of(operand)
        self._init(
            [operand, source, init],
            tensor_type(operand),
            {
                "window_dimensions": _i64s(window),
                "window_strides": _i64s(strides or (1,) * len(window)),
                "padding": padding_attr(padding or ((0, 0),) * len(window)),
            },
            [_selector(select_direction, element), _reducer(scatter_kind, element)],
        )

    @property
    def _rank(self) -> int:
        return len(shape_of(self.operand))

    @property
    def window(self) -> Dims:
        """Elements of the window in each dimension."""
        return _ints(self.window_dimensions) or (1,) * self._rank

    @property
    def strides(self) -> Dims:
        """Distance between windows in each dimension."""
        return _ints(self.window_strides) or (1,) * self._rank

    @property
    def padding(self) -> Padding:
        """Low and high padding of each dimension."""
        return _pairs(self.padding_attr, self._rank)

    @property
    def select_direction(self) -> str:
        """The comparison under which the current choice is kept: GE, GT, LE or LT."""
        return cast(CompareOp, _body_op(self.select_body)).direction

    @property
    def scatter_kind(self) -> str:
        """How source elements that meet are combined."""
        return _kind(self.scatter_body)

    def verify_op(self) -> None:
        _check_elements("operand 0", self.operand, (f32,))
        _check_padding(self.padding_attr, self._rank)
        for name in ("window", "strides"):
            _check_rank(name, getattr(self, name), self._rank)
            _check_positive(name, getattr(self, name))
        select = _body_op(self.select_body)
        _check(
            isinstance(select, CompareOp)
            and tuple(select.operands) == tuple(self.select_body.block.args)
            and select.direction in ("GE", "GT", "LE", "LT"),
            "the select body must compare its two arguments in order by GE, GT, LE or LT",
        )
        scalar = _with_shape(self.operand, ())
        for argument in self.select_body.block.args:
            _check_type("body argument", argument.type, scalar)
        _check_reducer(self.scatter_body, element_type_of(self.operand), ("add",))
        _check_type("init", self.init.type, scalar)
        windows = [
            _window_count(size, self.padding[i], 1, self.window[i], self.strides[i])
            for i, size in enumerate(shape_of(self.operand))
        ]
        _check_type("source", self.source.type, _with_shape(self.operand, windows))
        self._verify_result(tensor_type(self.operand))


# --- gather and scatter -------------------------------------------------------------------------


def _without(dims: Iterator[int] | Sequence[int], removed: Sequence[int]) -> list[int]:
    return [d for d in dims if d not in removed]


def _batch_shape(indices: Value, index_vector_dim: int) -> list[int]:
    """Shape of the indices without the dimension that holds the index vectors."""
    return [n for d, n in enumerate(shape_of(indices)) if d != index_vector_dim]


def _gather_type(
    operand: Value, indices: Value, dnums: GatherDims, slice_sizes: Dims
) -> TensorType:
    batch = iter(_batch_shape(indices, dnums.index_vector_dim))
    dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
    window = iter([n for d, n in enumerate(slice_sizes) if d not in dropped])
    rank = len(_batch_shape(indices, dnums.index_vector_dim)) + len(dnums.offset_dims)
    shape = [next(window if d in dnums.offset_dims else batch) for d in range(rank)]
    return _with_shape(operand, shape)


def _check_indices(
    operand: SSAValue,
    indices: SSAValue,
    index_map: Dims,
    index_vector_dim: int,
    operand_batching: Dims,
    indices_batching: Dims,
) -> None:
    """What gather and scatter ask of the index tensor."""
    _check_elements("indices", indices, (i32,))
    shape, rank = shape_of(indices), len(shape_of(operand))
    _check(
        0 <= index_vector_dim <= len(shape),
        f"index_vector_dim = {index_vector_dim} is outside {indices.type}",
    )
    length = 1 if index_vector_dim == len(shape) else shape[index_vector_dim]
    _check(
        length == len(index_map),
        f"index vectors have {length} elements for {len(index_map)} operand dimensions",
    )
    _check_dims("index map", index_map, rank)
    _check_dims("operand batching dimensions", operand_batching, rank)
    _check_dims("indices batching dimensions", indices_batching, len(shape))
    sizes = [shape_of(operand)[d] for d in operand_batching]
    _check(
        index_vector_dim not in indices_batching and sizes == [shape[d] for d in indices_batching],
        "batching dimensions of operand and indices differ",
    )


@irdl_op_definition
class GatherOp(StablehloOp):
    """Slices of the operand at computed, clamped positions."""

    name = "stablehlo.gather"
    operand = operand_def(TensorType)
    indices = operand_def(TensorType)
    dimension_numbers = prop_def(GatherDimsAttr)
    slice_sizes_attr = prop_def(_INTS, prop_name="slice_sizes")
    indices_are_sorted = opt_prop_def(BoolAttr)

    def __init__(
        self, operand: Value, indices: Value, dnums: GatherDims, slice_sizes: Sequence[int]
    ):
        self._init(
            [operand, indices],
            _gather_type(operand, indices, dnums, tuple(slice_sizes)),
            {
                "dimension_numbers": GatherDimsAttr(dnums),
                "slice_sizes": _i64s(slice_sizes),
                "indices_are_sorted": IntegerAttr(0, i1),
            },
        )

    @property
    def dnums(self) -> GatherDims:
        """Dimension numbers."""
        return self.dimension_numbers.data

    @property
    def slice_sizes(self) -> Dims:
        """Size of the slices in each operand dimension."""
        return _ints(self.slice_sizes_attr)

    def verify_op(self) -> None:
        dnums, shape = self.dnums, shape_of(self.operand)
        _check_indices(
            self.operand,
            self.indices,
            dnums.start_index_map,
            dnums.index_vector_dim,
            dnums.operand_batching_dims,
            dnums.start_indices_batching_dims,
        )
        dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
        _check_dims("collapsed and batching dimensions", dropped, len(shape))
        _check_rank("slice_sizes", self.slice_sizes, len(shape))
        for d, size in enumerate(self.slice_sizes):
            limit = 1 if d in dropped else shape[d]
            _check(0 <= size <= limit, f"slice size {size} of dimension {d} exceeds {limit}")
        batch = _batch_shape(self.indices, dnums.index_vector_dim)
        _check_rank("offset_dims", dnums.offset_dims, len(shape) - len(dropped))
        _check_dims("offset_dims", dnums.offset_dims, len(batch) + len(dnums.offset_dims))
        self._verify_result(_gather_type(self.operand, self.indices, dnums, self.slice_sizes))


@irdl_op_definition
class ScatterOp(StablehloOp):
    """The operand with windows of updates added at computed positions; a window that is not wholly
    inside is left out."""

    name = "stablehlo.scatter"
    operand = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    scatter_dimension_numbers = prop_def(ScatterDimsAttr)
    indices_are_sorted = opt_prop_def(BoolAttr)
    unique_indices = opt_prop_def(BoolAttr)
    body = region_def()

    def __init__(
        self, operand: Value, indices: Value, updates: Value, dnums: ScatterDims, kind: str = "add"
    ):
        self._init(
            [operand, indices, updates],
            tensor_type(operand),
            {
                "scatter_dimension_numbers": ScatterDimsAttr(dnums),
                "indices_are_sorted": IntegerAttr(0, i1),
                "unique_indices": IntegerAttr(0, i1),
            },
            [_reducer(kind, element_type_of(operand))],
        )

    @property
    def dnums(self) -> ScatterDims:
        """Dimension numbers."""
        return self.scatter_dimension_numbers.data

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that combines operand and update."""
        return _kind(self.body)

    def verify_op(self) -> None:
        dnums, shape = self.dnums, shape_of(self.operand)
        _check_indices(
            self.operand,
            self.indices,
            dnums.scatter_dims_to_operand_dims,
            dnums.index_vector_dim,
            dnums.input_batching_dims,
            dnums.scatter_indices_batching_dims,
        )
        _check_reducer(self.body, element_type_of(self.operand), ("add",))
        dropped = dnums.inserted_window_dims + dnums.input_batching_dims
        _check_dims("inserted and batching dimensions", dropped, len(shape))
        updates = shape_of(self.updates)
        window_dims = dnums.update_window_dims
        _check_type("updates", self.updates.type, _with_shape(self.operand, updates))
        _check_dims("update_window_dims", window_dims, len(updates))
        _check_rank("update_window_dims", window_dims, len(shape) - len(dropped))
        batch = [updates[d] for d in _without(range(len(updates)), window_dims)]
        expected = _batch_shape(self.indices, dnums.index_vector_dim)
        _check(
            batch == expected,
            f"updates {self.updates.type} do not fit indices {self.indices.type}",
        )
        for d, w in zip(_without(range(len(shape)), dropped), window_dims, strict=True):
            _check(
                updates[w] <= shape[d],
                f"update window of {updates[w]} exceeds operand dimension {d} of size {shape[d]}",
            )
        self._verify_result(tensor_type(self.operand))


# --- CHLO ---------------------------------------------------------------------------------------


class ChloUnaryOp(StablehloOp):
    """An op that JAX leaves in the text and `stablehlo-simplify` expands; on f32."""

    operand = operand_def(TensorType)

    def __init__(self, operand: Value):
        self._init([operand], tensor_type(operand))

    @classmethod
    def parse(cls, parser: Parser):
        operand = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        parser.parse_punctuation("->")
        return cls.create(
            operands=[parser.resolve_operand(operand, type)],
            result_types=[parser.parse_type()],
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)

    def verify_op(self) -> None:
        _check_elements("operand 0", self.operand, (f32,))
        self._verify_result(tensor_type(self.operand))


@irdl_op_definition
class SquareOp(ChloUnaryOp):
    """operand * operand."""

    name = "chlo.square"


@irdl_op_definition
class ErfOp(ChloUnaryOp):
    """The error function."""

    name = "chlo.erf"


@irdl_op_definition
class ErfcOp(ChloUnaryOp):
    """1 - erf(operand), accurate where erf is close to 1."""

    name = "chlo.erfc"


OPERATIONS: list[type[Operation]] = [
    AddOp,
    SubtractOp,
    MultiplyOp,
    DivideOp,
    MaximumOp,
    MinimumOp,
    PowerOp,
    AndOp,
    OrOp,
    XorOp,
    NegateOp,
    AbsOp,
    ExponentialOp,
    LogOp,
    RsqrtOp,
    SqrtOp,
    TanhOp,
    SignOp,
    NotOp,
    IsFiniteOp,
    ConvertOp,
    CompareOp,
    SelectOp,
    ConstantOp,
    IotaOp,
    BroadcastInDimOp,
    ReshapeOp,
    TransposeOp,
    ReverseOp,
    SliceOp,
    PadOp,
    ConcatenateOp,
    DotGeneralOp,
    ConvolutionOp,
    ReduceOp,
    ReduceWindowOp,
    SelectAndScatterOp,
    GatherOp,
    ScatterOp,
    ReturnOp,
]

StableHLO = Dialect("stablehlo", OPERATIONS, list(ATTRIBUTES))
CHLO = Dialect("chlo", [SquareOp, ErfOp, ErfcOp], [])
Resume = Dialect("resume", [DotFromOp, ConvolutionFromOp], [])
