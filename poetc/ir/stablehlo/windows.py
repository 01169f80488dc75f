"""Operations that combine the elements of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, cast

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, region_def

from poetc.errors import InputError
from poetc.ir import types
from poetc.ir.index import ZERO, Condition, Index, constant, within
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    FloatFacts,
    Fuses,
    Value,
    Walk,
    WindowedOp,
    check,
    check_elements,
    check_type,
    dilated,
    element_type_of,
    i64s,
    ints,
    padding_attr,
    shape_of,
    tensor_type,
    window_count,
    with_shape,
)
from poetc.ir.stablehlo.comparison import CompareOp
from poetc.ir.stablehlo.control import ReturnOp
from poetc.ir.stablehlo.index_maps import Axis, Indices, Read, Reduction, ReductionOp, tap
from poetc.ir.stablehlo.reduction import (
    REDUCERS,
    blocks_in,
    body_kind,
    body_op,
    check_reducer,
    identity,
    reducer_body,
)
from poetc.ir.stablehlo.sums import Blocks
from poetc.ir.stablehlo_attributes import Dims


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
class ReduceWindowOp(WindowedOp, ReductionOp):
    """Combines the elements of each window, starting from `init`."""

    FUSES: ClassVar = Fuses.ANCHOR
    name = "stablehlo.reduce_window"
    operand = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = prop_def(INTS)
    base_dilations_attr = opt_prop_def(INTS, prop_name="base_dilations")
    window_dilations_attr = opt_prop_def(INTS, prop_name="window_dilations")
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
    def _rank(self) -> int:
        return len(self.window)

    @property
    def base_dilations(self) -> Dims:
        """Distance between elements of the operand in each dimension."""
        return ints(self.base_dilations_attr) or (1,) * len(self.window)

    @property
    def window_dilations(self) -> Dims:
        """Distance between elements of the window in each dimension."""
        return ints(self.window_dilations_attr) or (1,) * len(self.window)

    @property
    def kind(self) -> str:
        """The key of `REDUCERS` that the body computes."""
        return body_kind(self.body)

    @property
    def blocks(self) -> Blocks | None:
        """In which it adds floats; None where it does not, or not in blocks."""
        return blocks_in(self.kind, element_type_of(self.init), self.window)

    @property
    def starts_anywhere(self) -> bool:
        """Whether any `init` is supported: no window reaches padding or holes, which are `init` to
        StableHLO and are skipped here, which is the same for the identity."""
        return max((*self.base_dilations, 1)) == 1 and not any(
            pad > 0 for pads in self.padding for pad in pads
        )

    def verify_op(self) -> None:
        rank = len(shape_of(self.operand))
        self._verify_windows(rank, "window", "strides", "base_dilations", "window_dilations")
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

    def reduction(self, at: Indices) -> _ReduceWindow:
        return _ReduceWindow(self, at)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # Sums that start from an element which is not -0.0 stay so, as two numbers added do.
        return self.kind == "add" and facts.never_negative_zero(self.init)

    def bodies_key(self) -> Hashable:
        return self.kind

    def reads_each(self, index: int) -> float:
        return super().reads_each(index) * math.prod(self.window)

    def along(self, dim: int) -> Walk | None:
        plain = self.window[dim] == self.strides[dim] == self.base_dilations[dim] == 1
        return (Along(dim), None) if plain and not any(self.padding[dim]) else None

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


class _ReduceWindow(Reduction):
    op: ReduceWindowOp

    def _tap(self, i: int, k: Index) -> tuple[Index, list[Condition]]:
        op = self.op
        return tap(
            self.at[i],
            k,
            shape_of(op.operand)[i],
            stride=op.strides[i],
            low=op.padding[i][0],
            base_dilation=op.base_dilations[i],
            window_dilation=op.window_dilations[i],
        )

    @property
    def axes(self) -> list[Axis]:
        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda k: self._tap(i, k)[1]

        return [Axis((self.op, i), n, "w", guard(i)) for i, n in enumerate(self.op.window)]

    def reads(self, positions: Indices) -> list[Read]:
        return [(self.op.operand, [self._tap(i, k)[0] for i, k in enumerate(positions)])]


def _selector(direction: str, element_type: Attribute) -> Region:
    """Body `compare direction, %a, %b` on scalars."""
    scalar = TensorType(element_type, ())
    block = Block(arg_types=(scalar, scalar))
    compare_type = types.ELEMENT_TYPES[element_type].compare_type
    lhs, rhs = block.args
    op = CompareOp(lhs, rhs, direction, compare_type)
    block.add_ops((op, ReturnOp(op)))
    return Region(block)


@irdl_op_definition
class SelectAndScatterOp(WindowedOp, ReductionOp):
    """Adds each source element to the element of the operand that its window selects."""

    FUSES: ClassVar = Fuses.ANCHOR
    name = "stablehlo.select_and_scatter"
    operand = operand_def(TensorType)
    source = operand_def(TensorType)
    init = operand_def(TensorType)
    window_dimensions = opt_prop_def(INTS)
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
    def select_direction(self) -> str:
        """The comparison under which the current choice is kept: GE, GT, LE or LT."""
        return cast(CompareOp, body_op(self.select_body)).direction

    @property
    def scatter_kind(self) -> str:
        """How source elements that meet are combined."""
        return body_kind(self.scatter_body)

    def verify_op(self) -> None:
        allowed = types.with_arithmetic("float", "signed", "unsigned")
        check_elements("operand 0", self.operand, allowed)
        self._verify_windows(self._rank, "window", "strides")
        select = body_op(self.select_body)
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

    def reduction(self, at: Indices) -> SelectAndScatter:
        return SelectAndScatter(self, at)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return facts.never_negative_zero(self.init)

    def reads_each(self, index: int) -> float:
        return math.inf

    def along(self, dim: int) -> Walk | None:
        plain = self.window[dim] == self.strides[dim] == 1 and not any(self.padding[dim])
        return (Along(dim), Along(dim), None) if plain else None

    def bodies_key(self) -> Hashable:
        return self.select_direction, self.scatter_kind

    def evaluate(self, *operands: Array) -> Array:
        x, source, init = operands
        return semantics.select_and_scatter(
            x, source, init, self.window, self.strides, self.padding, self.select_direction
        )


class SelectAndScatter(Reduction):
    """The axes run over the windows that contain the element, in row-major order of the source.

    Along one dimension, element i is in window s when `0 <= i + low - s*stride < window`: at most
    `ceil(window / stride)` windows, ending with `(i + low) floordiv stride`.
    """

    op: SelectAndScatterOp

    def source_index(self, i: int, t: Index) -> Index:
        """The window that candidate `t` along dimension `i` stands for."""
        op = self.op
        candidates = -(-op.window[i] // op.strides[i])
        last = (self.at[i] + op.padding[i][0]) // op.strides[i]
        return last + t - (candidates - 1)

    def offset(self, i: int, source: Index) -> Index:
        """Where the element lies in window `source` along dimension `i`."""
        return self.at[i] + self.op.padding[i][0] - source * self.op.strides[i]

    @property
    def axes(self) -> list[Axis]:
        op = self.op
        sizes = shape_of(op.source)

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            def conditions(t: Index) -> list[Condition]:
                source = self.source_index(i, t)
                inside = Condition(constant(op.window[i] - 1) - self.offset(i, source))
                return [*within(source, sizes[i]), inside]

            return conditions

        return [
            Axis((op, "source", i), -(-n // op.strides[i]), "s", guard(i))
            for i, n in enumerate(op.window)
        ]

    def reaches_padding(self) -> bool:
        """Whether some window has positions outside the operand."""
        op = self.op
        return any(
            low > 0 or (windows - 1) * stride - low + extent > size
            for windows, size, extent, stride, (low, _) in zip(
                shape_of(op.source),
                shape_of(op.operand),
                op.window,
                op.strides,
                op.padding,
                strict=True,
            )
        )

    def window_axes(self, source: Indices) -> list[Axis]:
        """The scan of the window `source`."""
        op = self.op

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda w: self._tap(i, source, w)[1]

        return [Axis((op, "window", i), n, "w", guard(i)) for i, n in enumerate(op.window)]

    def _tap(self, i: int, source: Indices, w: Index) -> tuple[Index, list[Condition]]:
        op = self.op
        size = shape_of(op.operand)[i]
        return tap(source[i], w, size, stride=op.strides[i], low=op.padding[i][0])

    def window_read(self, source: Indices, window: Indices) -> Read:
        """The element at `window` in the window `source`."""
        return self.op.operand, [self._tap(i, source, w)[0] for i, w in enumerate(window)]

    def reads(self, positions: Indices) -> list[Read]:
        source = [self.source_index(i, t) for i, t in enumerate(positions)]
        # Any position of the window will do for seeing what the reduction depends on.
        return [(self.op.source, source), self.window_read(source, [ZERO] * len(source))]
