"""Products of matrices and of batches of them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    TensorType,
)
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    Along,
    Array,
    Head,
    Value,
    Walk,
    check_dims,
    element_type_of,
    parse_operands,
    print_named_dims,
    shape_of,
)
from poetc.ir.stablehlo.contraction import Contraction, ContractionOp, precision_attr
from poetc.ir.stablehlo.index_maps import Axis, Indices, Read
from poetc.ir.stablehlo_attributes import (
    Dims,
    DotAlgorithmAttr,
    DotDims,
    DotDimsAttr,
    PrecisionAttr,
    parse_dims,
    print_dims,
)


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


@irdl_op_definition
class DotGeneralOp(ContractionOp):
    """Sums of products over pairs of contracting dimensions, for each index of the batch pairs."""

    name = "stablehlo.dot_general"

    dot_dimension_numbers = prop_def(DotDimsAttr)
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
            {"dot_dimension_numbers": DotDimsAttr(dims), "precision_config": precision_attr()},
        )

    @property
    def loops(self) -> Dims:
        """Extents of the loops of each sum, outermost first."""
        shape = shape_of(self.lhs)
        return tuple(shape[d] for d in self.lhs_contract)

    @property
    def summed(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.lhs_contract, self.rhs_contract, strict=True))

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
        operands = parse_operands(parser, 2)
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
        self._verify_sums()
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

    def along(self, dim: int) -> Walk | None:
        batch = len(self.lhs_batch)
        if dim < batch:
            return Along(self.lhs_batch[dim]), Along(self.rhs_batch[dim])
        left, right = (
            [d for d in range(len(shape_of(operand))) if d not in used]
            for operand, used in (
                (self.lhs, self.lhs_batch + self.lhs_contract),
                (self.rhs, self.rhs_batch + self.rhs_contract),
            )
        )
        place = dim - batch
        if place < len(left):
            return Along(left[place]), None
        return None, Along(right[place - len(left)])

    def evaluate(self, *operands: Array) -> Array:
        lhs, rhs = self._for_sums(operands)
        dims = self.lhs_batch, self.rhs_batch, self.lhs_contract, self.rhs_contract
        sums = semantics.dot_general(lhs, rhs, *dims, blocks=self.blocks)
        return self._rounded(sums)

    def reduction(self, at: Indices) -> Contraction:
        return _Dot(self, at)


class _Dot(Contraction):
    op: DotGeneralOp

    @property
    def axes(self) -> list[Axis]:
        shape = shape_of(self.op.lhs)
        return [Axis((self.op, dim), shape[dim], "r") for dim in self.op.lhs_contract]

    def reads(self, positions: Indices) -> list[Read]:
        op = self.op
        batch = self.at[: len(op.lhs_batch)]
        free = iter(self.at[len(op.lhs_batch) :])
        reads: list[Read] = []
        for operand, batch_dims, contract in (
            (op.lhs, op.lhs_batch, op.lhs_contract),
            (op.rhs, op.rhs_batch, op.rhs_contract),
        ):
            known = dict(zip(batch_dims, batch, strict=True))
            known |= dict(zip(contract, positions, strict=True))
            rank = len(shape_of(operand))
            reads.append((operand, [known[d] if d in known else next(free) for d in range(rank)]))
        return reads
