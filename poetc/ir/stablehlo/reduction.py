"""Operations that combine elements of a tensor, of a window or along dimensions."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, LocationAttr, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, region_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from poetc.errors import InputError
from poetc.ir import dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    Padding,
    PrettyOp,
    StablehloOp,
    Value,
    check,
    check_dims,
    check_elements,
    check_padding,
    check_positive,
    check_rank,
    check_type,
    dilated,
    element_type_of,
    i64s,
    ints,
    padding_attr,
    padding_pairs,
    shape_of,
    tensor_type,
    window_count,
    with_shape,
)
from poetc.ir.stablehlo.bits import AndOp, OrOp, XorOp
from poetc.ir.stablehlo.control import ReturnOp
from poetc.ir.stablehlo.elementwise import (
    AddOp,
    BinaryElementwiseOp,
    CompareOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
)
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
class ReduceOp(PrettyOp):
    """Combines all elements along some dimensions, starting from `init`."""

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
        return _blocks(self, [shape[d] for d in sorted(self.dims)])

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
        check_dims("dimensions", self.dims, len(shape))
        check_type("init", self.init.type, with_shape(self.operand, ()))
        check_reducer(self.body, element_type_of(self.operand), tuple(REDUCERS))
        reduced = [n for d, n in enumerate(shape) if d not in self.dims]
        self._verify_result(with_shape(self.operand, reduced))

    def evaluate(self, *operands: Array) -> Array:
        dtype = types.computed_dtype(operands[0].dtype)
        x, init = (array.astype(dtype) for array in operands)
        combine = REDUCERS[self.kind].meaning
        found = semantics.reduce(x, init, self.dims, combine, self.blocks)
        return found.astype(operands[0].dtype)


def _blocks(op: "ReduceOp | ReduceWindowOp", loops: Sequence[int]) -> Blocks | None:
    adds = op.kind == "add" and types.is_float(dense.dtype_of(element_type_of(op.init)))
    return blocks_of(loops) if adds else None


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
        shape.append(window_count(size, padding[i], base_dilations[i], extent, strides[i]))
    return with_shape(operand, shape)


@irdl_op_definition
class ReduceWindowOp(StablehloOp):
    """Combines the elements of each window, starting from `init`."""

    name = "stablehlo.reduce_window"
    operand = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = prop_def(INTS)
    window_strides = opt_prop_def(INTS)
    base_dilations_attr = opt_prop_def(INTS, prop_name="base_dilations")
    window_dilations_attr = opt_prop_def(INTS, prop_name="window_dilations")
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
                "window_dimensions": i64s(window),
                "window_strides": i64s(strides or ones),
                "base_dilations": i64s(base_dilations or ones),
                "window_dilations": i64s(window_dilations or ones),
                "padding": padding_attr(padding or zeros),
            },
            [reducer_body(kind, element_type_of(operand))],
        )

    @property
    def window(self) -> Dims:
        """Elements of the window in each dimension."""
        return ints(self.window_dimensions)

    @property
    def strides(self) -> Dims:
        """Distance between windows in each dimension."""
        return ints(self.window_strides) or (1,) * len(self.window)

    @property
    def base_dilations(self) -> Dims:
        """Distance between elements of the operand in each dimension."""
        return ints(self.base_dilations_attr) or (1,) * len(self.window)

    @property
    def window_dilations(self) -> Dims:
        """Distance between elements of the window in each dimension."""
        return ints(self.window_dilations_attr) or (1,) * len(self.window)

    @property
    def padding(self) -> Padding:
        """Low and high padding of each dimension."""
        return padding_pairs(self.padding_attr, len(self.window))

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that the body computes."""
        return body_kind(self.body)

    @property
    def blocks(self) -> Blocks | None:
        """In which it adds floats; None where it does not, or not in blocks."""
        return _blocks(self, self.window)

    @property
    def starts_anywhere(self) -> bool:
        """Whether any `init` is supported: no window reaches padding or holes, which are `init` to
        StableHLO and are skipped here, which is the same for the identity."""
        return max((*self.base_dilations, 1)) == 1 and not any(
            pad > 0 for pads in self.padding for pad in pads
        )

    def verify_op(self) -> None:
        rank = len(shape_of(self.operand))
        check_padding(self.padding_attr, rank)
        for name in ("window", "strides", "base_dilations", "window_dilations"):
            check_rank(name, getattr(self, name), rank)
            check_positive(name, getattr(self, name))
        check_type("init", self.init.type, with_shape(self.operand, ()))
        check_reducer(self.body, element_type_of(self.operand), tuple(REDUCERS))
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

    def evaluate(self, *operands: Array) -> Array:
        x, init = operands
        if not self.starts_anywhere and init != identity(self.kind, element_type_of(self.init)):
            raise InputError(
                f"{self.name} with padding must start from the identity of {self.kind}"
            )
        dtype = types.computed_dtype(x.dtype)
        found = semantics.reduce_window(
            x.astype(dtype),
            init.astype(dtype),
            self.window,
            self.strides,
            self.base_dilations,
            self.window_dilations,
            self.padding,
            REDUCERS[self.kind].meaning,
            shape_of(self.result),
            self.blocks,
        )
        return found.astype(x.dtype)


@irdl_op_definition
class SelectAndScatterOp(StablehloOp):
    """Adds each source element to the element of the operand that its window selects."""

    name = "stablehlo.select_and_scatter"
    operand = operand_def(TensorType)
    source = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = opt_prop_def(INTS)
    window_strides = opt_prop_def(INTS)
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
                "window_dimensions": i64s(window),
                "window_strides": i64s(strides or (1,) * len(window)),
                "padding": padding_attr(padding or ((0, 0),) * len(window)),
            },
            [_selector(select_direction, element), reducer_body(scatter_kind, element)],
        )

    @property
    def _rank(self) -> int:
        return len(shape_of(self.operand))

    @property
    def window(self) -> Dims:
        """Elements of the window in each dimension."""
        return ints(self.window_dimensions) or (1,) * self._rank

    @property
    def strides(self) -> Dims:
        """Distance between windows in each dimension."""
        return ints(self.window_strides) or (1,) * self._rank

    @property
    def padding(self) -> Padding:
        """Low and high padding of each dimension."""
        return padding_pairs(self.padding_attr, self._rank)

    @property
    def select_direction(self) -> str:
        """The comparison under which the current choice is kept: GE, GT, LE or LT."""
        return cast(CompareOp, _body_op(self.select_body)).direction

    @property
    def scatter_kind(self) -> str:
        """How source elements that meet are combined."""
        return body_kind(self.scatter_body)

    def verify_op(self) -> None:
        allowed = types.with_arithmetic("float", "signed", "unsigned")
        check_elements("operand 0", self.operand, allowed)
        check_padding(self.padding_attr, self._rank)
        for name in ("window", "strides"):
            check_rank(name, getattr(self, name), self._rank)
            check_positive(name, getattr(self, name))
        select = _body_op(self.select_body)
        check(
            isinstance(select, CompareOp)
            and tuple(select.operands) == tuple(self.select_body.block.args)
            and select.direction in ("GE", "GT", "LE", "LT"),
            "the select body must compare its two arguments in order by GE, GT, LE or LT",
        )
        scalar = with_shape(self.operand, ())
        for argument in self.select_body.block.args:
            check_type("body argument", argument.type, scalar)
        check_reducer(self.scatter_body, element_type_of(self.operand), ("add",))
        check_type("init", self.init.type, scalar)
        windows = [
            window_count(size, self.padding[i], 1, self.window[i], self.strides[i])
            for i, size in enumerate(shape_of(self.operand))
        ]
        check_type("source", self.source.type, with_shape(self.operand, windows))
        self._verify_result(tensor_type(self.operand))

    def evaluate(self, *operands: Array) -> Array:
        x, source, init = operands
        return semantics.select_and_scatter(
            x, source, init, self.window, self.strides, self.padding, self.select_direction
        )
