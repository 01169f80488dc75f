"""Attributes of the StableHLO subset: dimension numbers as frozen dataclasses of plain tuples.

Each attribute wraps one Python value (`attr.data`), prints as StableHLO does and reads both the
`#stablehlo.name<...>` and the `#stablehlo<name ...>` spelling.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from xdsl.ir import Data, SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

Dims = tuple[int, ...]


def parse_int(parser: AttrParser) -> int:
    """Parse an integer of 64 bits."""
    position = parser.pos
    value = parser.parse_integer(allow_boolean=False)
    if not -(1 << 63) <= value < 1 << 63:
        parser.raise_error("integer does not fit in i64", position, parser.pos)
    return value


def parse_dims(parser: AttrParser) -> Dims:
    """Parse `[0, 1, -2]`."""
    return tuple(
        parser.parse_comma_separated_list(parser.Delimiter.SQUARE, lambda: parse_int(parser))
    )


def print_dims(printer: Printer, dims: Dims) -> None:
    """Print `[0, 1, -2]`."""
    printer.print_string("[" + ", ".join(map(str, dims)) + "]")


@dataclass(frozen=True)
class DotDims:
    """The batched and the contracted dimensions of both operands of dot_general."""

    lhs_batching_dimensions: Dims = ()
    rhs_batching_dimensions: Dims = ()
    lhs_contracting_dimensions: Dims = ()
    rhs_contracting_dimensions: Dims = ()


@dataclass(frozen=True)
class DotAlgorithm:
    """How products and sums of dot_general are computed: types by name, how many values of them
    stand for an operand, and how many products of these are added up."""

    lhs_precision_type: str
    rhs_precision_type: str
    accumulation_type: str
    lhs_component_count: int
    rhs_component_count: int
    num_primitive_operations: int
    allow_imprecise_accumulation: bool

    @property
    def name(self) -> str:
        """As JAX's `DotAlgorithmPreset` has it, such as BF16_BF16_F32_X3."""
        types = (self.lhs_precision_type, self.rhs_precision_type, self.accumulation_type)
        parts = [type.upper() for type in types]
        if self.num_primitive_operations != 1:
            parts.append(f"X{self.num_primitive_operations}")
        return "_".join(parts)

    @property
    def is_f32(self) -> bool:
        """Whether it is plain f32 arithmetic; sums may be less exact, but need not be."""
        types = (self.lhs_precision_type, self.rhs_precision_type, self.accumulation_type)
        counts = (self.lhs_component_count, self.rhs_component_count, self.num_primitive_operations)
        return types == ("f32",) * 3 and counts == (1,) * 3


@dataclass(frozen=True)
class GatherDims:
    """Dimension numbers of gather, as in the StableHLO specification."""

    offset_dims: Dims = ()
    collapsed_slice_dims: Dims = ()
    operand_batching_dims: Dims = ()
    start_indices_batching_dims: Dims = ()
    start_index_map: Dims = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ScatterDims:
    """Dimension numbers of scatter, as in the StableHLO specification."""

    update_window_dims: Dims = ()
    inserted_window_dims: Dims = ()
    input_batching_dims: Dims = ()
    scatter_indices_batching_dims: Dims = ()
    scatter_dims_to_operand_dims: Dims = ()
    index_vector_dim: int = 0


@dataclass(frozen=True)
class ConvDims:
    """Where batch, feature and spatial dimensions lie in input, kernel and output."""

    input_batch: int
    input_feature: int
    input_spatial: Dims
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: Dims
    output_batch: int
    output_feature: int
    output_spatial: Dims

    @staticmethod
    def nhwc() -> "ConvDims":
        """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
        return ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))


StructT = TypeVar("StructT", DotDims, DotAlgorithm, GatherDims, ScatterDims)


def _parse_bool(parser: AttrParser) -> bool:
    return parser.parse_keyword_in(("true", "false")) == "true"


_FIELDS: dict[Any, tuple[Callable[[AttrParser], Any], Callable[[Any], str]]] = {
    int: (parse_int, str),
    bool: (_parse_bool, lambda value: str(value).lower()),
    str: (lambda parser: parser.parse_identifier(), str),
    Dims: (parse_dims, lambda dims: f"[{', '.join(map(str, dims))}]"),
}
"""How values of fields are read and printed."""


class StructAttr(Data[StructT], Generic[StructT]):
    """`<field = [..], field = n>` with one field for each of the dataclass, defaults left out."""

    struct: ClassVar[type]

    @classmethod
    def parse_parameter(cls, parser: AttrParser):
        """Parse the fields between angle brackets, in any order."""
        known = {field.name: field for field in fields(cls.struct)}
        values: dict[str, Any] = {}

        def parse_field() -> None:
            name = parser.parse_identifier()
            if name not in known:
                parser.raise_error(f"unknown field '{name}' in #{cls.name}")
            if name in values:
                parser.raise_error(f"field '{name}' given twice in #{cls.name}")
            parser.parse_punctuation("=")
            values[name] = _FIELDS[known[name].type][0](parser)

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_field)
        for name, field in known.items():
            if name not in values and field.default is MISSING:
                parser.raise_error(f"field '{name}' is missing in #{cls.name}")
        return cls.struct(**values)

    def print_parameter(self, printer: Printer) -> None:
        """Print the fields that differ from their default."""
        parts = [
            f"{field.name} = {_FIELDS[field.type][1](value)}"
            for field in fields(self.data)
            if (value := getattr(self.data, field.name)) != field.default
        ]
        printer.print_string(f"<{', '.join(parts)}>")


@irdl_attr_definition
class DotDimsAttr(StructAttr[DotDims]):
    """`#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>`."""

    name = "stablehlo.dot"
    struct = DotDims


@irdl_attr_definition
class DotAlgorithmAttr(StructAttr[DotAlgorithm]):
    """`#stablehlo.dot_algorithm<lhs_precision_type = f32, ...>`."""

    name = "stablehlo.dot_algorithm"
    struct = DotAlgorithm


@irdl_attr_definition
class GatherDimsAttr(StructAttr[GatherDims]):
    """`#stablehlo.gather<offset_dims = [1], ..., index_vector_dim = 1>`."""

    name = "stablehlo.gather"
    struct = GatherDims


@irdl_attr_definition
class ScatterDimsAttr(StructAttr[ScatterDims]):
    """`#stablehlo.scatter<update_window_dims = [1], ..., index_vector_dim = 1>`."""

    name = "stablehlo.scatter"
    struct = ScatterDims


def parse_conv_dims(parser: AttrParser) -> ConvDims:
    """Parse `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
    input_batch, input_feature, input_spatial = _parse_layout(parser, "b", "f")
    parser.parse_keyword("x", " between input and kernel dimensions")
    kernel_in, kernel_out, kernel_spatial = _parse_layout(parser, "i", "o")
    parser.parse_punctuation("->")
    output_batch, output_feature, output_spatial = _parse_layout(parser, "b", "f")
    return ConvDims(
        input_batch,
        input_feature,
        input_spatial,
        kernel_in,
        kernel_out,
        kernel_spatial,
        output_batch,
        output_feature,
        output_spatial,
    )


def _parse_layout(parser: AttrParser, first: str, second: str) -> tuple[int, int, Dims]:
    """Positions of the two named dimensions and of spatial dimensions 0, 1, ... in a list."""

    def parse_label() -> int | str:
        number = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
        return parser.parse_identifier() if number is None else number

    labels = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parse_label)
    expected = [first, second, *range(len(labels) - 2)]
    if len(labels) < 2 or set(labels) != set(expected):
        parser.raise_error(f"expected '{first}', '{second}' and 0, 1, ... once each")
    where = labels.index
    return where(first), where(second), tuple(where(i) for i in range(len(labels) - 2))


def print_conv_dims(printer: Printer, dims: ConvDims) -> None:
    """Print `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""

    def layout(first: str, at_first: int, second: str, at_second: int, spatial: Dims) -> str:
        labels = {at_first: first, at_second: second} | {p: str(i) for i, p in enumerate(spatial)}
        return "[" + ", ".join(labels[i] for i in sorted(labels)) + "]"

    printer.print_string(
        layout("b", dims.input_batch, "f", dims.input_feature, dims.input_spatial)
        + "x"
        + layout(
            "i", dims.kernel_input_feature, "o", dims.kernel_output_feature, dims.kernel_spatial
        )
        + "->"
        + layout("b", dims.output_batch, "f", dims.output_feature, dims.output_spatial)
    )


@irdl_attr_definition
class ConvDimsAttr(Data[ConvDims]):
    """`#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""

    name = "stablehlo.conv"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> ConvDims:
        """Parse the layouts between angle brackets."""
        with parser.in_angle_brackets():
            return parse_conv_dims(parser)

    def print_parameter(self, printer: Printer) -> None:
        """Print the layouts between angle brackets."""
        with printer.in_angle_brackets():
            print_conv_dims(printer, self.data)


class KeywordAttr(Data[str], SpacedOpaqueSyntaxAttribute):
    """One keyword out of a fixed set, spelled `#stablehlo<name KEYWORD>`."""

    keywords: ClassVar[tuple[str, ...]]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Parse the keyword, in angle brackets of its own or not."""
        parse: Callable[[], str] = lambda: parser.parse_keyword_in(cls.keywords)  # noqa: E731
        if parser.parse_optional_punctuation("<") is None:
            return parse()
        keyword = parse()
        parser.parse_punctuation(">")
        return keyword

    def print_parameter(self, printer: Printer) -> None:
        """Print the keyword."""
        printer.print_string(self.data)


@irdl_attr_definition
class PrecisionAttr(KeywordAttr):
    """Precision asked for an operand; poetc always computes in float32."""

    name = "stablehlo.precision"
    keywords = ("DEFAULT", "HIGH", "HIGHEST")


@irdl_attr_definition
class ComparisonDirectionAttr(KeywordAttr):
    """Direction of compare."""

    name = "stablehlo.comparison_direction"
    keywords = ("EQ", "NE", "GE", "GT", "LE", "LT")


@irdl_attr_definition
class ComparisonTypeAttr(KeywordAttr):
    """How compare reads its operands."""

    name = "stablehlo.comparison_type"
    keywords = ("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED", "NOTYPE")


@irdl_attr_definition
class RngAlgorithmAttr(KeywordAttr):
    """The algorithm that makes random bits."""

    name = "stablehlo.rng_algorithm"
    keywords = ("DEFAULT", "THREE_FRY", "PHILOX")


ATTRIBUTES = [
    DotDimsAttr,
    DotAlgorithmAttr,
    GatherDimsAttr,
    ScatterDimsAttr,
    ConvDimsAttr,
    PrecisionAttr,
    ComparisonDirectionAttr,
    ComparisonTypeAttr,
    RngAlgorithmAttr,
]
