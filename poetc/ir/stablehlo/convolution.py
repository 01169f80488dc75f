"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import (
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
    i1,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir.index import ZERO, Condition, Index, constant
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    Head,
    Value,
    Walk,
    WindowedOp,
    check,
    check_positive,
    check_rank,
    dilated,
    element_type_of,
    i64s,
    int_attr,
    ints,
    padding_attr,
    parse_operands,
    shape_of,
    window_count,
)
from poetc.ir.stablehlo.contraction import Contraction, ContractionOp, precision_attr
from poetc.ir.stablehlo.index_maps import Axis, Indices, Read, tap
from poetc.ir.stablehlo_attributes import (
    ConvDims,
    ConvDimsAttr,
    Dims,
    parse_conv_dims,
    parse_dims,
    print_conv_dims,
)


def _conv_type(
    lhs: Value,
    rhs: Value,
    dims: ConvDims,
    strides: Sequence[int],
    padding: Sequence[Sequence[int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    batch_groups: int,
    element_type: Attribute | None = None,
) -> TensorType:
    source, kernel = shape_of(lhs), shape_of(rhs)
    shape = [0] * len(source)
    shape[dims.output_batch] = source[dims.input_batch] // batch_groups
    shape[dims.output_feature] = kernel[dims.kernel_output_feature]
    for i, d in enumerate(dims.output_spatial):
        extent = dilated(kernel[dims.kernel_spatial[i]], rhs_dilation[i])
        size = source[dims.input_spatial[i]]
        shape[d] = window_count(size, padding[i], lhs_dilation[i], extent, strides[i])
    return TensorType(element_type or element_type_of(lhs), shape)


@irdl_op_definition
class ConvolutionOp(WindowedOp, ContractionOp):
    """Sums over kernel positions and the input features of a group."""

    name = "stablehlo.convolution"

    dimension_numbers = prop_def(ConvDimsAttr)
    lhs_dilation_attr = opt_prop_def(INTS, prop_name="lhs_dilation")
    rhs_dilation_attr = opt_prop_def(INTS, prop_name="rhs_dilation")
    window_reversal = opt_prop_def(DenseArrayBase.constr(i1))
    feature_group_count = prop_def(IntegerAttr)
    batch_group_count = prop_def(IntegerAttr)

    REST: ClassVar[tuple[str, ...]] = (
        "batch_group_count",
        "feature_group_count",
        "precision_config",
    )

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
        reversal: Sequence[bool] | None = None,
        element_type: Attribute | None = None,
    ):
        """`element_type` is that of the result, by default that of the operands."""
        rank = len(dims.input_spatial)
        ones, zeros = (1,) * rank, ((0, 0),) * rank
        properties: dict[str, Attribute | None] = {
            "dimension_numbers": ConvDimsAttr(dims),
            "window_strides": i64s(strides or ones),
            "padding": padding_attr(padding or zeros),
            "lhs_dilation": i64s(lhs_dilation or ones),
            "rhs_dilation": i64s(rhs_dilation or ones),
            "window_reversal": DenseArrayBase.from_list(i1, reversal or (False,) * rank),
            "feature_group_count": int_attr(feature_groups),
            "batch_group_count": int_attr(batch_groups),
            "precision_config": precision_attr(),
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
            element_type,
        )
        self._init([lhs, rhs], result_type, properties)

    @property
    def dims(self) -> ConvDims:
        """Layouts of operands and result."""
        return self.dimension_numbers.data

    @property
    def loops(self) -> Dims:
        """Extents of the loops of each sum, outermost first."""
        kernel = shape_of(self.rhs)
        order = (*self.dims.kernel_spatial, self.dims.kernel_input_feature)
        return tuple(kernel[d] for d in order)

    @property
    def summed(self) -> tuple[tuple[int, int], ...]:
        return ((self.dims.input_feature, self.dims.kernel_input_feature),)

    @property
    def products(self) -> int:
        dims, lhs, rhs, out = self.dims, *map(shape_of, (self.lhs, self.rhs, self.result))
        pairs = out[dims.output_batch] * out[dims.output_feature] * rhs[dims.kernel_input_feature]
        for d, (low, _) in enumerate(self.padding):
            starts = np.arange(out[dims.output_spatial[d]])[:, None] * self.strides[d] - low
            at = starts + np.arange(rhs[dims.kernel_spatial[d]]) * self.rhs_dilation[d]
            dilation = self.lhs_dilation[d]
            last = (lhs[dims.input_spatial[d]] - 1) * dilation
            pairs *= int(((at >= 0) & (at <= last) & (at % dilation == 0)).sum())
        return pairs

    @property
    def _rank(self) -> int:
        return len(self.dims.input_spatial)

    @property
    def lhs_dilation(self) -> Dims:
        """Distance between elements of lhs in each spatial dimension."""
        return ints(self.lhs_dilation_attr) or (1,) * self._rank

    @property
    def rhs_dilation(self) -> Dims:
        """Distance between elements of the kernel in each spatial dimension."""
        return ints(self.rhs_dilation_attr) or (1,) * self._rank

    @property
    def reversal(self) -> tuple[bool, ...]:
        """Whether the kernel is read from its end, in each spatial dimension."""
        return tuple(map(bool, ints(self.window_reversal))) or (False,) * self._rank

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
            operands = parse_operands(parser, 2)
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
                properties[name] = i64s(parse_dims(parser))

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
                flags = ("true" if flag else "false" for flag in ints(attr))
                entries.append(f"{keyword} = [{', '.join(flags)}]")
            elif attr is not None:
                entries.append(f"{keyword} = {list(ints(attr))}")
        printer.print_string(f", window = {{{', '.join(entries)}}}")
        properties = {name: self.properties[name] for name in self.REST if name in self.properties}
        printer.print_op_attributes(properties | self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)

    def verify_op(self) -> None:
        self._verify_sums()
        dims, lhs, rhs = self.dims, shape_of(self.lhs), shape_of(self.rhs)
        rank = self._rank
        for name, spatial, shape in (
            ("input", dims.input_spatial, lhs),
            ("kernel", dims.kernel_spatial, rhs),
            ("output", dims.output_spatial, shape_of(self.result)),
        ):
            check(
                len(spatial) == rank and len(shape) == rank + 2,
                f"{name} dimension numbers do not fit a tensor of rank {len(shape)}",
            )
        self._verify_windows(rank, "strides", "lhs_dilation", "rhs_dilation")
        check_rank("window reversal", self.reversal, rank)
        features, batch = lhs[dims.input_feature], lhs[dims.input_batch]
        outputs = rhs[dims.kernel_output_feature]
        groups, batch_groups = self.feature_groups, self.batch_groups
        check_positive("group counts", (groups, batch_groups))
        check(groups == 1 or batch_groups == 1, "only one of the group counts may exceed 1")
        check(
            rhs[dims.kernel_input_feature] * groups == features,
            f"kernel has {rhs[dims.kernel_input_feature]} input features in {groups} groups, "
            f"input has {features}",
        )
        check(outputs % groups == 0, f"{outputs} output features do not form {groups} groups")
        check(
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
                element_type_of(self.result),
            )
        )

    def along(self, dim: int) -> Walk | None:
        dims = self.dims
        if dim in dims.output_spatial:
            # Windows are where they are: the piece has another padding.
            return None, None
        if self.feature_groups != 1 or self.batch_groups != 1:
            return None
        if dim == dims.output_feature:
            return None, Along(dims.kernel_output_feature)
        return (Along(dims.input_batch), None) if dim == dims.output_batch else None

    def _piece_properties(self, dim: int, start: int, size: int) -> dict[str, Attribute]:
        if dim not in self.dims.output_spatial:
            return {}
        at = self.dims.output_spatial.index(dim)
        kernel = shape_of(self.rhs)[self.dims.kernel_spatial[at]]
        image = shape_of(self.lhs)[self.dims.input_spatial[at]]
        window = dilated(kernel, self.rhs_dilation[at])
        low = self.padding[at][0] - start * self.strides[at]
        high = (size - 1) * self.strides[at] + window - low - dilated(image, self.lhs_dilation[at])
        return self._padded(at, low, high)

    def _padded(self, at: int, low: int, high: int) -> dict[str, Attribute]:
        """The padding with another one in spatial dimension `at`."""
        pairs = [(low, high) if i == at else pair for i, pair in enumerate(self.padding)]
        return {"padding": padding_attr(pairs)}

    def evaluate(self, *operands: Array) -> Array:
        lhs, rhs = self._for_sums(operands)
        pairs = zip(self.dims.kernel_spatial, self.reversal, strict=True)
        rhs = np.flip(rhs, tuple(dim for dim, reverse in pairs if reverse))
        sums = semantics.convolution(
            lhs,
            rhs,
            self.dims,
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            self.feature_groups,
            self.batch_groups,
            shape_of(self.result),
            blocks=self.blocks,
        )
        return self._rounded(sums)

    def reduction(self, at: Indices) -> Contraction:
        return _Convolution(self, at)


class _Convolution(Contraction):
    op: ConvolutionOp

    def _tap(self, i: int, k: Index) -> tuple[Index, list[Condition]]:
        op, dims = self.op, self.op.dims
        return tap(
            self.at[dims.output_spatial[i]],
            k,
            shape_of(op.lhs)[dims.input_spatial[i]],
            stride=op.strides[i],
            low=op.padding[i][0],
            base_dilation=op.lhs_dilation[i],
            window_dilation=op.rhs_dilation[i],
        )

    @property
    def axes(self) -> list[Axis]:
        dims, kernel = self.op.dims, shape_of(self.op.rhs)
        names = ("kh", "kw") if len(dims.kernel_spatial) == 2 else ("k",) * len(dims.kernel_spatial)

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda k: self._tap(i, k)[1]

        spatial = [
            Axis((self.op, i), kernel[dim], names[i], guard(i))
            for i, dim in enumerate(dims.kernel_spatial)
        ]
        return [*spatial, Axis((self.op, "c"), kernel[dims.kernel_input_feature], "c")]

    def reads(self, positions: Indices) -> list[Read]:
        op, dims = self.op, self.op.dims
        *taps, channel = positions
        image, kernel = shape_of(op.lhs), shape_of(op.rhs)
        feature = self.at[dims.output_feature]
        features = kernel[dims.kernel_output_feature]
        lhs = [ZERO] * len(image)
        rhs = [ZERO] * len(kernel)
        lhs[dims.input_batch] = self.at[dims.output_batch]
        lhs[dims.input_feature] = channel
        if op.feature_groups > 1:
            group = feature // (features // op.feature_groups)
            lhs[dims.input_feature] += group * kernel[dims.kernel_input_feature]
        if op.batch_groups > 1:
            group = feature // (features // op.batch_groups)
            lhs[dims.input_batch] += group * (image[dims.input_batch] // op.batch_groups)
        rhs[dims.kernel_input_feature] = channel
        rhs[dims.kernel_output_feature] = feature
        for i, k in enumerate(taps):
            lhs[dims.input_spatial[i]] = self._tap(i, k)[0]
            dim = dims.kernel_spatial[i]
            rhs[dim] = constant(kernel[dim] - 1) - k if op.reversal[i] else k
        return [(op.lhs, lhs), (op.rhs, rhs)]
