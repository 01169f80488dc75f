"""Operations that move elements and compute nothing."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, var_operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir.index import ZERO, constant, reshape, within
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    FloatFacts,
    Fuses,
    Head,
    IntRange,
    PrettyOp,
    Value,
    Walk,
    check,
    check_dims,
    check_positive,
    check_rank,
    check_type,
    element_type_of,
    hull,
    i64s,
    int_attr,
    ints,
    parse_named_dims,
    parse_operands,
    print_named_dims,
    resized,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.index_maps import Indices, Move, tap
from poetc.ir.stablehlo_attributes import Dims, parse_int


class MovementOp(PrettyOp):
    """An operation whose result has elements of its operands only, of all of them."""

    FUSES: ClassVar = Fuses.VIEW
    ONE_SOURCE: ClassVar[bool] = True
    """Whether all elements are those of the first operand."""

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        return hull(ranges)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return all(map(facts.never_negative_zero, self.operands))

    def moves(self, at: Indices) -> list[Move]:
        """Where the result element `at` comes from: the first move whose conditions hold."""
        raise NotImplementedError


@irdl_op_definition
class BroadcastInDimOp(MovementOp):
    """Operand dimension i becomes result dimension dims[i]; others repeat the operand."""

    name = "stablehlo.broadcast_in_dim"
    operand = operand_def(TensorType)
    broadcast_dimensions = prop_def(INTS)

    def __init__(self, operand: Value, dims: Sequence[int], shape: Sequence[int]):
        self._init([operand], with_shape(operand, shape), {"broadcast_dimensions": i64s(dims)})

    @property
    def dims(self) -> Dims:
        """Result dimension of each operand dimension."""
        return ints(self.broadcast_dimensions)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)
        return operands, {"broadcast_dimensions": i64s(parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        print_named_dims(printer, "dims", self.dims)

    def verify_op(self) -> None:
        source, target = shape_of(self.operand), shape_of(self.result)
        self._verify_result(with_shape(self.operand, target))
        check_rank("dims", self.dims, len(source))
        check_dims("dims", self.dims, len(target))
        for i, d in enumerate(self.dims):
            if source[i] not in (1, target[d]):
                raise VerifyException(
                    f"operand dimension {i} of size {source[i]} cannot become "
                    f"result dimension {d} of size {target[d]}"
                )

    def moves(self, at: Indices) -> list[Move]:
        shape = shape_of(self.operand)
        indices = [
            ZERO if size == 1 else at[dim] for size, dim in zip(shape, self.dims, strict=True)
        ]
        return [Move(self.operand, indices, [])]

    def along(self, dim: int) -> Walk | None:
        if dim not in self.dims:
            return (None,)
        source = self.dims.index(dim)
        repeated = shape_of(self.operand)[source] != shape_of(self.result)[dim]
        return (None,) if repeated else (Along(source),)

    def evaluate(self, *operands: Array) -> Array:
        return semantics.broadcast_in_dim(operands[0], shape_of(self.result), self.dims)


def _same_dim(shape: Sequence[int], dim: int, other: Sequence[int]) -> int | None:
    """The dimension of `other` that is `dim` of `shape`: as long, with as many elements before."""
    before = math.prod(shape[:dim])
    for d, size in enumerate(other):
        if size == shape[dim] and math.prod(other[:d]) == before:
            return d
    return None


@irdl_op_definition
class ReshapeOp(MovementOp):
    """The same elements in row-major order with another shape."""

    name = "stablehlo.reshape"
    operand = operand_def(TensorType)

    def __init__(self, operand: Value, shape: Sequence[int]):
        self._init([operand], with_shape(operand, shape))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 1), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        source, target = shape_of(self.operand), shape_of(self.result)
        self._verify_result(with_shape(self.operand, target))
        check(
            math.prod(source) == math.prod(target),
            f"cannot reshape {math.prod(source)} elements to {math.prod(target)}",
        )

    def moves(self, at: Indices) -> list[Move]:
        indices = reshape(at, shape_of(self.result), shape_of(self.operand))
        return [Move(self.operand, indices, [])]

    def along(self, dim: int) -> Walk | None:
        source = _same_dim(shape_of(self.result), dim, shape_of(self.operand))
        return None if source is None else (Along(source),)

    def evaluate(self, *operands: Array) -> Array:
        return operands[0].reshape(shape_of(self.result))


@irdl_op_definition
class TransposeOp(MovementOp):
    """Result dimension i is operand dimension permutation[i]."""

    name = "stablehlo.transpose"
    operand = operand_def(TensorType)
    permutation_attr = prop_def(INTS, prop_name="permutation")

    def __init__(self, operand: Value, permutation: Sequence[int]):
        shape = shape_of(operand)
        self._init(
            [operand],
            with_shape(operand, [shape[p] for p in permutation]),
            {"permutation": i64s(permutation)},
        )

    @property
    def permutation(self) -> Dims:
        """Operand dimension of each result dimension."""
        return ints(self.permutation_attr)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)
        return operands, {"permutation": i64s(parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        print_named_dims(printer, "dims", self.permutation)

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        check_rank("dims", self.permutation, len(shape))
        check_dims("dims", self.permutation, len(shape))
        self._verify_result(with_shape(self.operand, [shape[p] for p in self.permutation]))

    def moves(self, at: Indices) -> list[Move]:
        indices = [ZERO] * len(at)
        for index, dim in zip(at, self.permutation, strict=True):
            indices[dim] = index
        return [Move(self.operand, indices, [])]

    def along(self, dim: int) -> Walk | None:
        return (Along(self.permutation[dim]),)

    def evaluate(self, *operands: Array) -> Array:
        return operands[0].transpose(self.permutation)


@irdl_op_definition
class ReverseOp(MovementOp):
    """Elements in opposite order along some dimensions."""

    name = "stablehlo.reverse"
    operand = operand_def(TensorType)
    dimensions = prop_def(INTS)
    SHORT_SIGNATURE: ClassVar = True

    def __init__(self, operand: Value, dims: Sequence[int]):
        self._init([operand], tensor_type(operand), {"dimensions": i64s(dims)})

    @property
    def dims(self) -> Dims:
        """The reversed dimensions."""
        return ints(self.dimensions)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)
        return operands, {"dimensions": i64s(parse_named_dims(parser, "dims"))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        print_named_dims(printer, "dims", self.dims)

    def verify_op(self) -> None:
        check_dims("dims", self.dims, len(shape_of(self.operand)))
        self._verify_result(tensor_type(self.operand))

    def moves(self, at: Indices) -> list[Move]:
        indices = list(at)
        for dim in self.dims:
            indices[dim] = constant(shape_of(self.result)[dim] - 1) - at[dim]
        return [Move(self.operand, indices, [])]

    def along(self, dim: int) -> Walk | None:
        return (Along(dim, dim in self.dims),)

    def evaluate(self, *operands: Array) -> Array:
        return np.flip(operands[0], self.dims)


def _slice_shape(starts: Dims, limits: Dims, strides: Dims) -> list[int]:
    return [
        max(0, -(-(limit - start) // stride))
        for start, limit, stride in zip(starts, limits, strides, strict=True)
    ]


@irdl_op_definition
class SliceOp(MovementOp):
    """Elements start, start + stride, ... below limit of each dimension."""

    name = "stablehlo.slice"
    operand = operand_def(TensorType)
    start_indices = prop_def(INTS)
    limit_indices = prop_def(INTS)
    strides_attr = prop_def(INTS, prop_name="strides")

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
            with_shape(operand, _slice_shape(tuple(starts), tuple(limits), tuple(strides))),
            {
                "start_indices": i64s(starts),
                "limit_indices": i64s(limits),
                "strides": i64s(strides),
            },
        )

    @property
    def starts(self) -> Dims:
        """First index of each dimension."""
        return ints(self.start_indices)

    @property
    def limits(self) -> Dims:
        """First index of each dimension that is not taken any more."""
        return ints(self.limit_indices)

    @property
    def strides(self) -> Dims:
        """Distance between indices of each dimension."""
        return ints(self.strides_attr)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)

        def parse_range() -> tuple[int, int, int]:
            start = parse_int(parser)
            parser.parse_punctuation(":")
            limit = parse_int(parser)
            if parser.parse_optional_punctuation(":") is None:
                return start, limit, 1
            return start, limit, parse_int(parser)

        ranges = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_range)
        names = ("start_indices", "limit_indices", "strides")
        return operands, {n: i64s([r[i] for r in ranges]) for i, n in enumerate(names)}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        ranges = [
            f"{start}:{limit}" if stride == 1 else f"{start}:{limit}:{stride}"
            for start, limit, stride in zip(self.starts, self.limits, self.strides, strict=True)
        ]
        printer.print_string(f" [{', '.join(ranges)}]")

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        check_rank("start_indices", self.starts, len(shape))
        check_rank("limit_indices", self.limits, len(shape))
        check_rank("strides", self.strides, len(shape))
        check_positive("strides", self.strides)
        for i, size in enumerate(shape):
            check(
                0 <= self.starts[i] <= self.limits[i] <= size,
                f"slice {self.starts[i]}:{self.limits[i]} is outside dimension {i} of size {size}",
            )
        shape = _slice_shape(self.starts, self.limits, self.strides)
        self._verify_result(with_shape(self.operand, shape))

    def moves(self, at: Indices) -> list[Move]:
        indices = [
            index * stride + start
            for index, start, stride in zip(at, self.starts, self.strides, strict=True)
        ]
        return [Move(self.operand, indices, [])]

    def along(self, dim: int) -> Walk | None:
        whole = shape_of(self.operand)[dim] == shape_of(self.result)[dim]
        return (Along(dim),) if whole else None

    def _piece_properties(self, dim: int, start: int, size: int) -> dict[str, Attribute]:
        return {"limit_indices": resized(self.limits, dim, size)}

    def evaluate(self, *operands: Array) -> Array:
        ranges = zip(self.starts, self.limits, self.strides, strict=True)
        return operands[0][tuple(slice(*range_) for range_ in ranges)]


def _pad_shape(shape: Dims, low: Dims, high: Dims, interior: Dims) -> list[int]:
    return [
        lo + n + max(n - 1, 0) * gap + hi
        for n, lo, hi, gap in zip(shape, low, high, interior, strict=True)
    ]


@irdl_op_definition
class PadOp(MovementOp):
    """Padding around and between elements; a negative low or high pad removes elements."""

    name = "stablehlo.pad"
    ONE_SOURCE: ClassVar[bool] = False
    operand = operand_def(TensorType)
    padding_value = operand_def(TensorType)
    edge_padding_low = prop_def(INTS)
    edge_padding_high = prop_def(INTS)
    interior_padding = prop_def(INTS)

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
            with_shape(operand, shape),
            {
                "edge_padding_low": i64s(low),
                "edge_padding_high": i64s(high),
                "interior_padding": i64s(interior),
            },
        )

    @property
    def low(self) -> Dims:
        """Elements added before the first of each dimension."""
        return ints(self.edge_padding_low)

    @property
    def high(self) -> Dims:
        """Elements added after the last of each dimension."""
        return ints(self.edge_padding_high)

    @property
    def interior(self) -> Dims:
        """Elements added between two elements of each dimension."""
        return ints(self.interior_padding)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 2), {
            "edge_padding_low": i64s(parse_named_dims(parser, "low")),
            "edge_padding_high": i64s(parse_named_dims(parser, "high")),
            "interior_padding": i64s(parse_named_dims(parser, "interior")),
        }

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        print_named_dims(printer, "low", self.low)
        print_named_dims(printer, "high", self.high)
        print_named_dims(printer, "interior", self.interior)

    def verify_op(self) -> None:
        shape = shape_of(self.operand)
        check_rank("low", self.low, len(shape))
        check_rank("high", self.high, len(shape))
        check_rank("interior", self.interior, len(shape))
        check(min(self.interior, default=0) >= 0, "interior padding must not be negative")
        check_type("padding value", self.padding_value.type, with_shape(self.operand, ()))
        padded = _pad_shape(shape, self.low, self.high, self.interior)
        check(min(padded, default=0) >= 0, f"negative padding leaves the shape {padded}")
        self._verify_result(with_shape(self.operand, padded))

    def moves(self, at: Indices) -> list[Move]:
        indices, conditions = [], []
        for index, size, low, gap in zip(
            at, shape_of(self.operand), self.low, self.interior, strict=True
        ):
            position, needed = tap(index, ZERO, size, low=low, base_dilation=gap + 1)
            indices.append(position)
            conditions += needed
        return [
            Move(self.operand, indices, conditions),
            Move(self.padding_value, [], []),
        ]

    def along(self, dim: int) -> Walk | None:
        padded = self.low[dim] or self.high[dim] or self.interior[dim]
        return None if padded else (Along(dim), None)

    def evaluate(self, *operands: Array) -> Array:
        x, value = operands
        return semantics.pad(x, value, self.low, self.high, self.interior)


def _concatenate_type(inputs: Sequence[Value], dim: int) -> TensorType:
    shape = list(shape_of(inputs[0]))
    shape[dim] = sum(shape_of(value)[dim] for value in inputs)
    return with_shape(inputs[0], shape)


@irdl_op_definition
class ConcatenateOp(MovementOp):
    """Tensors one after the other along a dimension."""

    name = "stablehlo.concatenate"
    ONE_SOURCE: ClassVar[bool] = False
    inputs = var_operand_def(TensorType)
    dimension = prop_def(IntegerAttr)

    def __init__(self, inputs: Sequence[Value], dim: int):
        self._init([inputs], _concatenate_type(inputs, dim), {"dimension": int_attr(dim)})

    @property
    def dim(self) -> int:
        """The dimension whose sizes add up."""
        return self.dimension.value.data

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)
        parser.parse_punctuation(",")
        while parser.parse_optional_keyword("dim") is None:
            operands.append(parser.parse_unresolved_operand("expected operand or 'dim'"))
            parser.parse_punctuation(",")
        parser.parse_punctuation("=")
        return operands, {"dimension": int_attr(parse_int(parser))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_string(f", dim = {self.dim}")

    def verify_op(self) -> None:
        check(len(self.inputs) > 0, "expected at least one operand")
        first = shape_of(self.inputs[0])
        check_dims("dim", (self.dim,), len(first))
        for index, value in enumerate(self.inputs):
            shape = list(shape_of(value))
            if len(shape) == len(first):
                shape[self.dim] = first[self.dim]
            check(
                tuple(shape) == first and element_type_of(value) == element_type_of(self.inputs[0]),
                f"operand {index} is {value.type}, which does not fit {self.inputs[0].type}",
            )
        self._verify_result(_concatenate_type(self.inputs, self.dim))

    def moves(self, at: Indices) -> list[Move]:
        moves, start = [], 0
        for operand in self.inputs:
            size = shape_of(operand)[self.dim]
            indices = list(at)
            indices[self.dim] = at[self.dim] - start
            moves.append(Move(operand, indices, list(within(indices[self.dim], size))))
            start += size
        # The last input is what remains.
        moves[-1] = Move(moves[-1].source, moves[-1].indices, [])
        return [move for move in moves if 0 not in shape_of(move.source)] or moves

    def along(self, dim: int) -> Walk | None:
        return None if dim == self.dim else (Along(dim),) * len(self.operands)

    def evaluate(self, *operands: Array) -> Array:
        return np.concatenate(operands, self.dim)
