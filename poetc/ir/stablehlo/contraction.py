"""Sums of products: matrix products and convolutions, and such that go on with sums."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IntegerAttr,
    TensorType,
    i1,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir import buffers, dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    Head,
    Padding,
    PrettyOp,
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
    int_attr,
    ints,
    padding_attr,
    padding_pairs,
    parse_operands,
    print_named_dims,
    shape_of,
    window_count,
)
from poetc.ir.stablehlo.sums import Blocks, blocks_of
from poetc.ir.stablehlo_attributes import (
    ConvDims,
    ConvDimsAttr,
    Dims,
    DotAlgorithmAttr,
    DotDims,
    DotDimsAttr,
    PrecisionAttr,
    parse_conv_dims,
    parse_dims,
    print_conv_dims,
    print_dims,
)


def _check_sums(lhs: SSAValue, rhs: SSAValue, result: SSAValue) -> None:
    """Operands of one element type; sums of that one, or of a wider one of the same kind."""
    check_elements("operand 0", lhs, types.with_arithmetic("float", "signed", "unsigned"))
    element = types.ELEMENT_TYPES[element_type_of(lhs)]
    check_elements("operand 1", rhs, (element.mlir,))
    wider = [
        other
        for other in types.with_arithmetic(element.arithmetic)
        if other == element.mlir or buffers.element_bytes(other) > element.dtype.itemsize
    ]
    check_elements("result", result, wider)


def _dot_type(
    lhs: Value, rhs: Value, dims: DotDims, element_type: Attribute | None = None
) -> TensorType:
    left, right = shape_of(lhs), shape_of(rhs)
    lhs_used = {*dims.lhs_batching_dimensions, *dims.lhs_contracting_dimensions}
    rhs_used = {*dims.rhs_batching_dimensions, *dims.rhs_contracting_dimensions}
    return TensorType(
        element_type or element_type_of(lhs),
        [left[d] for d in dims.lhs_batching_dimensions]
        + [n for d, n in enumerate(left) if d not in lhs_used]
        + [n for d, n in enumerate(right) if d not in rhs_used],
    )


def _for_sums(result: SSAValue, operands: Sequence[Array]) -> list[Array]:
    """The operands in the type that the sums are made in."""
    dtype = dense.dtype_of(types.computed_type(element_type_of(result)))
    return [semantics.convert(operand, dtype) for operand in operands]


def _precision_attr() -> ArrayAttr:
    return ArrayAttr([PrecisionAttr("DEFAULT")] * 2)


def _blocks(result: SSAValue, loops: Dims) -> Blocks | None:
    return blocks_of(loops) if types.is_float(dense.dtype_of(element_type_of(result))) else None


def _check_whole(op: "DotFromOp | ConvolutionFromOp") -> None:
    """A part of a sum has all positions of its loops, but perhaps of the outermost."""
    whole = ints(op.whole) or op.loops
    fewer = [i for i, (n, of) in enumerate(zip(op.loops, whole, strict=False)) if n != of]
    check(
        len(whole) == len(op.loops)
        and all(op.loops[i] < whole[i] and math.prod(whole[:i]) == 1 for i in fewer),
        f"a sum over {list(op.loops)} is no part of one over {list(whole)}",
    )


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
        element_type: Attribute | None = None,
    ):
        """`element_type` is that of the result, by default that of the operands."""
        dims = DotDims(tuple(lhs_batch), tuple(rhs_batch), tuple(lhs_contract), tuple(rhs_contract))
        self._init(
            [lhs, rhs],
            _dot_type(lhs, rhs, dims, element_type),
            {"dot_dimension_numbers": DotDimsAttr(dims), "precision_config": _precision_attr()},
        )

    @property
    def loops(self) -> Dims:
        """Extents of the loops of each sum, outermost first."""
        shape = shape_of(self.lhs)
        return tuple(shape[d] for d in self.lhs_contract)

    @property
    def blocks(self) -> Blocks | None:
        """In which each sum is added."""
        return _blocks(self.result, self.loops)

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
        operands = parse_operands(parser, cls.OPERANDS)
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
                print_named_dims(printer, name, lhs)
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
        _check_sums(self.lhs, self.rhs, self.result)
        left, right = shape_of(self.lhs), shape_of(self.rhs)
        check_dims("dimensions of operand 0", self.lhs_batch + self.lhs_contract, len(left))
        check_dims("dimensions of operand 1", self.rhs_batch + self.rhs_contract, len(right))
        for name, lhs, rhs in (
            ("batching", self.lhs_batch, self.rhs_batch),
            ("contracting", self.lhs_contract, self.rhs_contract),
        ):
            if [left[d] for d in lhs] != [right[d] for d in rhs]:
                raise VerifyException(
                    f"{name} dimensions {list(lhs)} of {self.lhs.type} and {list(rhs)} of "
                    f"{self.rhs.type} differ in size"
                )
        element = element_type_of(self.result)
        self._verify_result(_dot_type(self.lhs, self.rhs, self.dot_dimension_numbers.data, element))

    def evaluate(self, *operands: Array) -> Array:
        *init, lhs, rhs = _for_sums(self.result, operands)
        dims = self.lhs_batch, self.rhs_batch, self.lhs_contract, self.rhs_contract
        sums = semantics.dot_general(lhs, rhs, *dims, *init, blocks=self.blocks)
        return semantics.convert(sums, dense.dtype_of(element_type_of(self.result)))


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
    REST: ClassVar[tuple[str, ...]] = ("whole",)

    init = operand_def(TensorType)
    whole = opt_prop_def(INTS)

    @property
    def blocks(self) -> Blocks | None:
        return _blocks(self.result, ints(self.whole) or self.loops)

    def verify_op(self) -> None:
        super().verify_op()
        check_type("init", self.init.type, self.result.type)
        _check_whole(self)


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


class ConvolutionBase(PrettyOp):
    """Sums over kernel positions and the input features of a group."""

    OPERANDS: ClassVar[int] = 2

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    dimension_numbers = prop_def(ConvDimsAttr)
    window_strides = opt_prop_def(INTS)
    padding_attr = opt_prop_def(DenseIntOrFPElementsAttr, prop_name="padding")
    lhs_dilation_attr = opt_prop_def(INTS, prop_name="lhs_dilation")
    rhs_dilation_attr = opt_prop_def(INTS, prop_name="rhs_dilation")
    window_reversal = opt_prop_def(DenseArrayBase.constr(i1))
    feature_group_count = prop_def(IntegerAttr)
    batch_group_count = prop_def(IntegerAttr)
    precision_config = opt_prop_def(ArrayAttr[PrecisionAttr])

    REST: ClassVar[tuple[str, ...]] = (
        "batch_group_count",
        "feature_group_count",
        "precision_config",
        "whole",
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
    def blocks(self) -> Blocks | None:
        """In which each sum is added."""
        return _blocks(self.result, self.loops)

    @property
    def _rank(self) -> int:
        return len(self.dims.input_spatial)

    @property
    def strides(self) -> Dims:
        """Distance between windows in each spatial dimension."""
        return ints(self.window_strides) or (1,) * self._rank

    @property
    def padding(self) -> Padding:
        """Low and high padding of each spatial dimension of lhs; may be negative."""
        return padding_pairs(self.padding_attr, self._rank)

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
            operands = parse_operands(parser, cls.OPERANDS)
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
        _check_sums(self.lhs, self.rhs, self.result)
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
        check_padding(self.padding_attr, rank)
        for name in ("strides", "lhs_dilation", "rhs_dilation"):
            check_rank(name, getattr(self, name), rank)
            check_positive(name, getattr(self, name))
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

    def evaluate(self, *operands: Array) -> Array:
        *init, lhs, rhs = _for_sums(self.result, operands)
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
            *init,
            blocks=self.blocks,
        )
        return semantics.convert(sums, dense.dtype_of(element_type_of(self.result)))


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
    whole = opt_prop_def(INTS)

    @property
    def blocks(self) -> Blocks | None:
        return _blocks(self.result, ints(self.whole) or self.loops)

    def verify_op(self) -> None:
        super().verify_op()
        check_type("init", self.init.type, self.result.type)
        _check_whole(self)
