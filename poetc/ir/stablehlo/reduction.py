"""Operations that combine elements of a tensor, of a window or along dimensions."""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import LocationAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, region_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from poetc.ir import dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    FloatFacts,
    Fuses,
    PrettyOp,
    Value,
    Walk,
    check,
    check_dims,
    check_type,
    element_type_of,
    i64s,
    ints,
    shape_of,
    with_shape,
)
from poetc.ir.stablehlo.bits import AndOp, OrOp, XorOp
from poetc.ir.stablehlo.control import ReturnOp
from poetc.ir.stablehlo.elementwise import (
    AddOp,
    BinaryElementwiseOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
)
from poetc.ir.stablehlo.index_maps import Indices, Reduction, ReductionAlong, ReductionOp
from poetc.ir.stablehlo.reduce_together import ReduceTogetherOp
from poetc.ir.stablehlo.sums import Blocks, blocks_of
from poetc.ir.stablehlo_attributes import Dims, parse_dims, print_dims

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
    if types.is_float(dtype):
        return dtype.type(-math.inf if is_maximum else math.inf)
    if dtype.kind == "b":
        return dtype.type(not is_maximum)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if is_maximum else limits.max)


def reducer_body(kind: str, element_type: Attribute) -> Region:
    """Body `kind(%a, %b)` on scalars."""
    scalar = TensorType(element_type, ())
    block = Block(arg_types=(scalar, scalar))
    op = REDUCERS[kind](*block.args)
    block.add_ops((op, ReturnOp(op)))
    return Region(block)


def body_op(region: Region) -> Operation | None:
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
    body = body_op(region)
    if body is None or set(body.operands) != set(region.block.args):
        return None
    return next((kind for kind, cls in REDUCERS.items() if isinstance(body, cls)), None)


def body_kind(region: Region) -> str:
    kind = reducer_kind(region)
    assert kind is not None, "the verifier accepts only bodies in REDUCERS"
    return kind


def check_reducer(region: Region, element_type: Attribute, kinds: Sequence[str]) -> None:
    kind = reducer_kind(region)
    check(
        kind in kinds,
        f"the body must be one of {', '.join(kinds)} of its two arguments"
        if kind is None
        else f"the body {kind} is not supported, expected {', '.join(kinds)}",
    )
    scalar = TensorType(element_type, ())
    for argument in region.block.args:
        check_type("body argument", argument.type, scalar)


@irdl_op_definition
class ReduceOp(PrettyOp, ReductionOp):
    """Combines all elements along some dimensions, starting from `init`."""

    FUSES: ClassVar = Fuses.REDUCTION
    name = "stablehlo.reduce"
    operand = operand_def(TensorType)
    init = operand_def(TensorType)
    dimensions = prop_def(INTS)
    body = region_def()

    def __init__(self, operand: Value, init: Value, dims: Sequence[int], kind: str):
        shape = [n for d, n in enumerate(shape_of(operand)) if d not in dims]
        self._init(
            [operand, init],
            with_shape(operand, shape),
            {"dimensions": i64s(dims)},
            [reducer_body(kind, element_type_of(operand))],
        )

    @property
    def dims(self) -> Dims:
        """The reduced dimensions."""
        return ints(self.dimensions)

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that the body computes."""
        return body_kind(self.body)

    @property
    def blocks(self) -> Blocks | None:
        """In which it adds floats; None where it does not, or not in blocks."""
        shape = shape_of(self.operand)
        return blocks_in(
            self.kind, element_type_of(self.init), [shape[d] for d in sorted(self.dims)]
        )

    @classmethod
    def create(
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        location: LocationAttr | None = None,
        successors: Sequence[Block] = (),
        regions: Sequence[Region] = (),
    ) -> "ReduceOp | ReduceTogetherOp":  # pyright: ignore[reportIncompatibleMethodOverride]
        """Of several operands, or with a body that is none of `REDUCERS`, the general operation of
        the same name."""
        together = len(operands) > 2 or any(
            region.blocks and reducer_kind(region) is None for region in regions
        )
        create = ReduceTogetherOp.create if together else super().create
        return create(
            operands=operands,
            result_types=result_types,
            properties=properties or {},
            attributes=attributes or {},
            location=location,
            successors=successors,
            regions=regions,
        )

    @classmethod
    def parse(cls, parser: Parser) -> "ReduceOp | ReduceTogetherOp":
        def parse_pair() -> tuple[UnresolvedOperand, UnresolvedOperand]:
            with parser.in_parens():
                operand = parser.parse_unresolved_operand()
                parser.parse_keyword("init")
                parser.parse_punctuation(":")
                return operand, parser.parse_unresolved_operand()

        pairs = [parse_pair()]
        kind = None
        while parser.parse_optional_punctuation(",") is not None:
            pairs.append(parse_pair())
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
        parser.parse_punctuation(":")
        position = parser.pos
        type = parser.parse_function_type()
        operands = [operand for column in zip(*pairs, strict=True) for operand in column]
        values = parser.resolve_operands(operands, type.inputs.data, position)
        if kind is not None:
            element = values[0].type
            if not isinstance(element, TensorType):
                parser.raise_error("expected tensor operands", position, parser.pos)
            body = reducer_body(kind, element.element_type)
        else:
            parser.parse_keyword("reducer")
            arguments = [
                parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
                for _ in pairs
            ]
            if any(len(pair) != 2 for pair in arguments):
                parser.raise_error("expected a value and an element for each operand", position)
            body = parser.parse_region(
                [a for column in zip(*arguments, strict=True) for a in column]
            )
        return cls.create(
            operands=values,
            result_types=type.outputs.data,
            properties={"dimensions": i64s(dims)},
            attributes=attributes,
            regions=[body],
        )

    def _has_short_body(self) -> bool:
        body = body_op(self.body)
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
        check_dims("dimensions", self.dims, len(shape))
        check_type("init", self.init.type, with_shape(self.operand, ()))
        check_reducer(self.body, element_type_of(self.operand), tuple(REDUCERS))
        reduced = [n for d, n in enumerate(shape) if d not in self.dims]
        self._verify_result(with_shape(self.operand, reduced))

    def reduction(self, at: Indices) -> Reduction:
        return ReductionAlong(self, at, [self.operand], self.dims)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # Sums that start from an element which is not -0.0 stay so, as two numbers added do.
        return self.kind == "add" and facts.never_negative_zero(self.init)

    def bodies_key(self) -> Hashable:
        return self.kind

    def along(self, dim: int) -> Walk | None:
        kept = [d for d in range(len(shape_of(self.operand))) if d not in self.dims]
        return Along(kept[dim]), None

    def evaluate(self, *operands: Array) -> Array:
        dtype = types.computed_dtype(operands[0].dtype)
        x, init = (array.astype(dtype) for array in operands)
        combine = REDUCERS[self.kind].meaning
        found = semantics.reduce(x, init, self.dims, combine, self.blocks)
        return found.astype(operands[0].dtype)


def blocks_in(kind: str, element: Attribute, loops: Sequence[int]) -> Blocks | None:
    """The blocks in which a reduction over such loops adds floats; None where it does not."""
    adds = kind == "add" and types.is_float(dense.dtype_of(element))
    return blocks_of(loops) if adds else None
