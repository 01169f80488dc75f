"""The kernels of a graph: `poet.compute` and the `poet.yield` that ends its body."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, NamedTuple

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import (
    IsolatedFromAbove,
    IsTerminator,
    ReturnLike,
    SymbolTable,
    SymbolUserOpInterface,
)
from xdsl.utils.exceptions import VerifyException

from poetc.ir.poet.attributes import (
    NO_OFFSET,
    AllocatesResults,
    CostAttr,
    InGraph,
    content,
    i64_or_none,
    int_or_none,
    type_list,
    verify_offset,
    verify_static_tensor,
)
from poetc.ir.symbols import symbol_table


class KernelSymbolUse(SymbolUserOpInterface):
    """The `kernel` of a compute is a function beside the graph that takes its buffers."""

    def verify(self, op: Operation) -> None:
        assert isinstance(op, ComputeOp)
        if op.kernel is None or symbol_table(op) is None:
            return
        kernel = SymbolTable.lookup_symbol(op, op.kernel)
        if not isinstance(kernel, FuncOp):
            raise VerifyException(
                f'poet.compute "{op.label.data}": no function {op.kernel} in the module'
            )
        buffers = len(op.operands) + len(op.results)
        if len(kernel.function_type.inputs) < buffers:
            raise VerifyException(
                f'poet.compute "{op.label.data}": kernel {op.kernel} takes '
                f"{len(kernel.function_type.inputs)} buffers, {buffers} needed"
            )


class RunOp(IRDLOperation):
    """A kernel call: the unit of schedules, costs and generated code.

    The body says what it computes, on tensors; its block arguments are the operands. It has no side
    effects and depends on nothing else, so that running it again gives the same bits.

    `inplace` lists pairs [result, operand]: the result takes over the operand's buffer, and the
    operand's live range ends here. `offsets` has the offset of each result, in the arena or in
    storage, and `workspace_offset` that of the scratch memory, in bytes.
    """

    if TYPE_CHECKING:
        # Each of them defines its own: regions are in the order in which a class has them.
        body: Region

    label = prop_def(StringAttr)
    inplace = opt_prop_def(ArrayAttr[DenseArrayBase[I64]])
    cost = opt_prop_def(CostAttr)
    offsets = opt_prop_def(DenseArrayBase[I64])
    workspace_offset = opt_prop_def(IntegerAttr[I64])

    @property
    def block(self) -> Block:
        """The one block of the body."""
        return self.body.block

    @property
    def yield_op(self) -> YieldOp:
        op = self.body.block.last_op
        assert isinstance(op, YieldOp)
        return op

    @property
    def inplace_pairs(self) -> tuple[tuple[int, int], ...]:
        """(result, operand) pairs: the result takes over the buffer of the operand."""
        if self.inplace is None:
            return ()
        pairs = (pair.get_values() for pair in self.inplace)
        return tuple((result, operand) for result, operand in pairs)

    @inplace_pairs.setter
    def inplace_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.inplace = _pairs(pairs)

    @property
    def result_offsets(self) -> tuple[int, ...] | None:
        """Arena offset of each result in bytes, once memory is planned.

        NO_OFFSET for one in a buffer of the caller.
        """
        return None if self.offsets is None else tuple(self.offsets.get_values())

    @result_offsets.setter
    def result_offsets(self, offsets: Sequence[int] | None) -> None:
        self.offsets = None if offsets is None else DenseArrayBase.from_list(i64, offsets)

    @property
    def where(self) -> str:
        """The operation, for messages."""
        return f'{self.name} "{self.label.data}"'

    def verify_run(self, inputs: Sequence[Attribute], outputs: Sequence[Attribute]) -> None:
        """The checks that all of them share; they compute on tensors of these types."""
        where = self.where
        if self.block.arg_types != tuple(inputs):
            raise VerifyException(
                f"{where}: block arguments ({type_list(self.block.arg_types)}) "
                f"must have the types of the operands ({type_list(inputs)})"
            )
        if not isinstance(self.block.last_op, YieldOp):
            raise VerifyException(f"{where} must end with poet.yield")
        if tuple(self.yield_op.operand_types) != tuple(outputs):
            raise VerifyException(
                f"{where} yields ({type_list(self.yield_op.operand_types)}) "
                f"but has results ({type_list(outputs)})"
            )
        self._verify_inplace(where)
        verify_offset(int_or_none(self.workspace_offset), f"{where}: workspace offset")
        if self.result_offsets is not None:
            if len(self.result_offsets) != len(self.results):
                raise VerifyException(
                    f"{where} has {len(self.results)} results "
                    f"but {len(self.result_offsets)} offsets"
                )
            for offset in self.result_offsets:
                if offset != NO_OFFSET:
                    verify_offset(offset, f"{where}: offset")

    def _verify_inplace(self, where: str) -> None:
        for pair in self.inplace or ():
            if len(pair) != 2:
                raise VerifyException(f"{where}: inplace takes pairs [result, operand]")
        pairs = self.inplace_pairs
        for result, operand in pairs:
            if not (0 <= result < len(self.results) and 0 <= operand < len(self.operands)):
                raise VerifyException(
                    f"{where}: inplace [{result}, {operand}] out of range, there are "
                    f"{len(self.results)} results and {len(self.operands)} operands"
                )
            if self.results[result].type != self.operands[operand].type:
                raise VerifyException(
                    f"{where}: inplace [{result}, {operand}] joins types "
                    f"{self.results[result].type} and {self.operands[operand].type}"
                )
        if len({result for result, _ in pairs}) != len(pairs):
            raise VerifyException(f"{where}: a result is in place of two operands")
        if len({self.operands[operand] for _, operand in pairs}) != len(pairs):
            raise VerifyException(f"{where}: two results are in place of one operand")


@irdl_op_definition
class ComputeOp(RunOp):
    """One kernel, whose operands and results are in RAM."""

    name = "poet.compute"

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")
    kernel = opt_prop_def(SymbolRefAttr)

    traits = traits_def(InGraph(), IsolatedFromAbove(), AllocatesResults(), KernelSymbolUse())

    def __init__(
        self,
        label: str,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        body: Region | None = None,
        *,
        kernel: str | SymbolRefAttr | None = None,
        inplace: Iterable[tuple[int, int]] = (),
        cost: CostAttr | None = None,
        offsets: Sequence[int] | None = None,
        workspace_offset: int | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """Without a body, the caller fills `block`, whose arguments are the operands."""
        if body is None:
            body = Region(Block(arg_types=[operand.type for operand in operands]))
            for argument, letter in zip(body.block.args, ascii_lowercase, strict=False):
                argument.name_hint = letter
        super().__init__(
            operands=[operands],
            result_types=[result_types],
            regions=[body],
            properties={
                "label": StringAttr(label),
                "kernel": SymbolRefAttr(kernel) if isinstance(kernel, str) else kernel,
                **run_properties(inplace, cost, offsets, workspace_offset),
            },
            attributes=attributes or {},
        )

    def verify_(self) -> None:
        for kind, types in (("operand", self.operand_types), ("result", self.result_types)):
            for i, type in enumerate(types):
                verify_static_tensor(type, f"{self.where}: {kind} {i}")
        self.verify_run(self.operand_types, self.result_types)

    @classmethod
    def parse(cls, parser: Parser) -> ComputeOp:
        head = parse_head(parser)
        kernel = None
        if parser.parse_optional_keyword("kernel"):
            kernel = SymbolRefAttr(parser.parse_symbol_name())
        fields = parse_fields(parser)
        body = parser.parse_region(head.arguments)
        return cls(head.label, head.operands, head.result_types, body, kernel=kernel, **fields)

    def print(self, printer: Printer) -> None:
        print_head(self, printer)
        if self.kernel is not None:
            printer.print_string(" kernel ")
            printer.print_attribute(self.kernel)
        print_fields(self, printer)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


class Head(NamedTuple):
    """The beginning of the text of a run."""

    label: str
    arguments: Sequence[Parser.Argument]
    operands: Sequence[SSAValue]
    result_types: Sequence[Attribute]


def parse_head(parser: Parser) -> Head:
    """Label, operands with the names that they have in the body, and types of results."""
    label = parser.parse_str_literal()

    def parse_binding() -> tuple[Parser.Argument, SSAValue]:
        argument = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        operand = parser.parse_unresolved_operand()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        return argument.resolve(content(type)), parser.resolve_operand(operand, type)

    bindings = parser.parse_comma_separated_list(Parser.Delimiter.PAREN, parse_binding)
    parser.parse_punctuation("->")
    result_types = parser.parse_optional_comma_separated_list(
        Parser.Delimiter.PAREN, parser.parse_type
    )
    if result_types is None:
        result_types = [parser.parse_type()]
    arguments, operands = zip(*bindings, strict=True) if bindings else ((), ())
    return Head(label, arguments, operands, result_types)


def parse_fields(parser: Parser) -> dict[str, Any]:
    """Parses the fields up to the body, as arguments of the constructors."""
    fields: dict[str, Any] = {}

    def parse_integers() -> list[int]:
        return parser.parse_comma_separated_list(
            Parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
        )

    def parse_pair() -> tuple[int, int]:
        position = parser.pos
        pair = parse_integers()
        if len(pair) != 2:
            parser.raise_error("expected a pair [result, operand]", position, parser.pos)
        return pair[0], pair[1]

    if parser.parse_optional_keyword("inplace"):
        fields["inplace"] = parser.parse_comma_separated_list(Parser.Delimiter.SQUARE, parse_pair)
    if parser.parse_optional_keyword("cost"):
        position = parser.pos
        fields["cost"] = cost = parser.parse_attribute()
        if not isinstance(cost, CostAttr):
            parser.raise_error("expected #poet.cost<...>", position, parser.pos)
    if parser.parse_optional_keyword("offsets"):
        fields["offsets"] = parse_integers()
    if parser.parse_optional_keyword("workspace_offset"):
        fields["workspace_offset"] = parser.parse_integer(allow_boolean=False)
    attributes = parser.parse_optional_attr_dict_with_keyword()
    if attributes:
        fields["attributes"] = dict(attributes.data)
    return fields


def print_head(op: RunOp, printer: Printer) -> None:
    """Prints the text that `parse_head` reads."""

    def print_binding(binding: tuple[BlockArgument, SSAValue]) -> None:
        argument, operand = binding
        printer.print_ssa_value(argument)
        printer.print_string(" = ")
        printer.print_ssa_value(operand)
        printer.print_string(" : ")
        printer.print_attribute(operand.type)

    printer.print_string(" ")
    printer.print_string_literal(op.label.data)
    printer.print_string(" ")
    with printer.in_parens():
        printer.print_list(zip(op.block.args, op.operands, strict=True), print_binding)
    printer.print_string(" -> ")
    if len(op.results) == 1:
        printer.print_attribute(op.results[0].type)
    else:
        with printer.in_parens():
            printer.print_list(op.result_types, printer.print_attribute)


def print_fields(op: RunOp, printer: Printer) -> None:
    """Prints the text that `parse_fields` reads."""
    if op.inplace_pairs:
        printer.print_string(f" inplace {[list(pair) for pair in op.inplace_pairs]}")
    if op.cost is not None:
        printer.print_string(" cost ")
        printer.print_attribute(op.cost)
    if op.result_offsets is not None:
        printer.print_string(f" offsets {list(op.result_offsets)}")
    if op.workspace_offset is not None:
        printer.print_string(f" workspace_offset {int_or_none(op.workspace_offset)}")
    printer.print_op_attributes(op.attributes, print_keyword=True)


def run_properties(
    inplace: Iterable[tuple[int, int]],
    cost: CostAttr | None,
    offsets: Sequence[int] | None,
    workspace_offset: int | None,
) -> dict[str, Attribute | None]:
    """The properties of a run, but for its label."""
    return {
        "inplace": _pairs(inplace),
        "cost": cost,
        "offsets": None if offsets is None else DenseArrayBase.from_list(i64, offsets),
        "workspace_offset": i64_or_none(workspace_offset),
    }


def _pairs(pairs: Iterable[tuple[int, int]]) -> ArrayAttr[DenseArrayBase[I64]] | None:
    array = [DenseArrayBase.from_list(i64, pair) for pair in pairs]
    return ArrayAttr(array) if array else None


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends the body of a compute or stream, and names its results."""

    name = "poet.yield"

    arguments = var_operand_def(TensorType)

    traits = traits_def(IsTerminator(), ReturnLike())

    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"

    def __init__(self, *arguments: SSAValue) -> None:
        super().__init__(operands=[arguments])

    def verify_(self) -> None:
        parent = self.parent_op()
        if parent is not None and not isinstance(parent, RunOp):
            raise VerifyException("'poet.yield' expects parent op 'poet.compute' or 'poet.stream'")
