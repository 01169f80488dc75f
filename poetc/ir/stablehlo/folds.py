"""Operations whose body is any arithmetic: loops that carry several values, and sorting."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i1, i32
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.errors import InputError
from poetc.ir import types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    Fuses,
    Value,
    Walk,
    check,
    check_dims,
    check_elements,
    check_type,
    i64s,
    int_attr,
    ints,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.bodies import body_key, check_body, fold, run_body
from poetc.ir.stablehlo.control import ControlOp, Execute, check_region
from poetc.ir.stablehlo.index_maps import Indices, Reduction, ReductionAlong, ReductionOp
from poetc.ir.stablehlo_attributes import Dims, parse_int


@irdl_op_definition
class FoldOp(ReductionOp):
    """One of the values that a loop over some dimensions of its operands carries.

    The body takes these values, which are scalars, and an element of each operand, and returns the
    next values. The last operands are what they are at first.
    """

    FUSES: ClassVar = Fuses.ANCHOR
    name = "resume.fold"
    arguments = var_operand_def(TensorType)
    dimensions = prop_def(INTS)
    carried = prop_def(IntegerAttr)
    number_attr = prop_def(IntegerAttr, prop_name="number")
    body = region_def()

    def __init__(
        self,
        inputs: Sequence[Value],
        inits: Sequence[Value],
        dims: Sequence[int],
        body: Region,
        number: int = 0,
    ):
        shape = [n for d, n in enumerate(shape_of(inputs[0])) if d not in dims]
        properties: dict[str, Attribute | None] = {
            "dimensions": i64s(dims),
            "carried": int_attr(len(inits)),
            "number": int_attr(number),
        }
        self._init([[*inputs, *inits]], with_shape(inits[number], shape), properties, [body])

    @property
    def dims(self) -> Dims:
        """The dimensions that the loop runs over."""
        return ints(self.dimensions)

    @property
    def number(self) -> int:
        """The number of the value that is the result."""
        return self.number_attr.value.data

    @property
    def inputs(self) -> Sequence[SSAValue]:
        """The tensors whose elements the loop reads."""
        return self.operands[: len(self.operands) - self.carried.value.data]

    @property
    def inits(self) -> Sequence[SSAValue]:
        """The values before the first step."""
        return self.operands[len(self.operands) - self.carried.value.data :]

    def verify_op(self) -> None:
        check(0 <= self.number < self.carried.value.data < len(self.operands), "too few operands")
        shape = shape_of(self.inputs[0])
        check_dims("dimensions", self.dims, len(shape))
        for value in self.inputs:
            check_type("operand", tensor_type(value), with_shape(value, shape))
        values = [with_shape(value, ()) for value in self.inits]
        for value, expected in zip(self.inits, values, strict=True):
            check_type("initial value", tensor_type(value), expected)
        elements = [with_shape(value, ()) for value in self.inputs]
        check_body(self.body, [*values, *elements], values)
        kept = [n for d, n in enumerate(shape) if d not in self.dims]
        self._verify_result(with_shape(self.inits[self.number], kept))

    def reduction(self, at: Indices) -> Reduction:
        return ReductionAlong(self, at, self.inputs, self.dims)

    def reads_each(self, index: int) -> float:
        return 1.0

    def along(self, dim: int) -> Walk | None:
        kept = [d for d in range(len(shape_of(self.inputs[0]))) if d not in self.dims]
        return (Along(kept[dim]),) * len(self.inputs) + (None,) * len(self.inits)

    def bodies_key(self) -> Hashable:
        return body_key(self.body.block)

    def evaluate(self, *operands: Array) -> Array:
        count = len(self.inputs)
        return fold(self.body.block, operands[:count], operands[count:], self.dims)[self.number]


@irdl_op_definition
class SortOp(ControlOp):
    """The operands along a dimension in the order of a comparator, which takes a left and a right
    element of each operand and says whether the left ones come first. It is stable.

    The comparator must be a strict weak order of the elements; in which order others come is not
    said. It takes time with the square of the length.
    """

    name = "stablehlo.sort"
    inputs = var_operand_def(TensorType)
    dimension = opt_prop_def(IntegerAttr)
    is_stable = opt_prop_def(BoolAttr)
    comparator = region_def()

    @property
    def dim(self) -> int:
        """The dimension that is sorted along."""
        dim = -1 if self.dimension is None else self.dimension.value.data
        return dim + len(shape_of(self.inputs[0])) if dim < 0 else dim

    def verify_op(self) -> None:
        check(len(self.inputs) > 0, "expected at least one operand")
        shape = shape_of(self.inputs[0])
        check_dims("dimension", (self.dim,), len(shape))
        for number, (value, result) in enumerate(zip(self.inputs, self.results, strict=True)):
            check_type(f"operand {number}", value.type, with_shape(value, shape))
            check_type(f"result {number}", result.type, value.type)
        pairs = [with_shape(value, ()) for value in self.inputs for _ in range(2)]
        check_region("the comparator", self.comparator, pairs, [TensorType(i1, ())])

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        check_pure_body(self, self.comparator)
        rows = [np.moveaxis(x, self.dim, -1) for x in operands]
        pairs = [side for x in rows for side in (x[..., :, None], x[..., None, :])]
        (first,) = run_body(self.comparator.block, pairs)
        order = _order(np.broadcast_to(first, (*rows[0].shape, rows[0].shape[-1])))
        return [np.moveaxis(np.take_along_axis(x, order, -1), -1, self.dim) for x in rows]


def _order(first: Array) -> Array:
    """Where the elements come from, if `first[.., i, j]` says whether i goes before j; of two that
    may go in either order the first one does."""
    upper = np.triu(np.ones(first.shape[-2:], bool), 1)
    before = np.where(upper, ~np.swapaxes(first, -1, -2), first)
    return np.argsort(before.sum(-2), axis=-1, kind="stable").astype(np.int32)


@irdl_op_definition
class TopKOp(ControlOp):
    """The largest elements of the last dimension, from the largest on, and where they are; of equal
    ones the first. NaN counts as large, and +0.0 as larger than -0.0."""

    name = "chlo.top_k"
    operand = operand_def(TensorType)
    k_attr = prop_def(IntegerAttr, prop_name="k")

    @property
    def k(self) -> int:
        """The number of elements."""
        return self.k_attr.value.data

    @classmethod
    def parse(cls, parser: Parser) -> "TopKOp":
        with parser.in_parens():
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(",")
            parser.parse_keyword("k")
            parser.parse_punctuation("=")
            k = parse_int(parser)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        return cls.create(
            operands=[parser.resolve_operand(operand, type)],
            result_types=results,
            properties={"k": int_attr(k)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        with printer.in_parens():
            printer.print_ssa_value(self.operand)
            printer.print_string(f", k = {self.k}")
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(self.result_types, printer.print_attribute)

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, types.with_arithmetic("float", "signed"))
        shape = shape_of(self.operand)
        check(len(shape) > 0 and 0 <= self.k <= shape[-1], f"there are no {self.k} elements")
        expected = with_shape(self.operand, (*shape[:-1], self.k))
        check(len(self.results) == 2, f"{len(self.results)} results, expected two")
        check_type("result 0", self.results[0].type, expected)
        check_type("result 1", self.results[1].type, TensorType(i32, expected.get_shape()))

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        (x,) = operands
        keys = semantics.total_order(x) if types.is_float(x.dtype) else x
        order = np.argsort(~keys, axis=-1, kind="stable")[..., : self.k]
        return [np.take_along_axis(x, order, -1), order.astype(np.int32)]


def check_pure_body(op: ControlOp, body: Region) -> None:
    """Raises an InputError that names the operation unless a body is arithmetic on scalars."""
    end = body.block.last_op
    assert end is not None
    try:
        check_body(body, body.block.arg_types, end.operand_types)
    except VerifyException as error:
        raise InputError(f"{op.name}: {error}") from error
