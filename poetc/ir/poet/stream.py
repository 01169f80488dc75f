"""Kernels that run in tiles, with operands and results on storage: `poet.stream` and its tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import affine
from xdsl.dialects.builtin import (
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineConstantExpr,
)
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolTable, SymbolUserOpInterface
from xdsl.utils.exceptions import VerifyException

from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.poet.attributes import (
    AllocatesResults,
    CostAttr,
    InGraph,
    PageType,
    content,
    type_list,
    verify_static_tensor,
)
from poetc.ir.poet.compute import (
    RunOp,
    parse_fields,
    parse_head,
    print_fields,
    print_head,
    run_properties,
    symbol_table,
)
from poetc.ir.poet.slices import (
    SliceInOp,
    SliceOutOp,
    TileBufferOp,
    slices_ahead,
    verify_positions,
)


@irdl_op_definition
class StreamOp(RunOp):
    """A kernel that runs as loops over tiles. Operands and results of page type are on storage; of
    them a tile has slices in RAM, in the workspace of this operation.

    The body says what it computes, on whole tensors. `tiles` has an argument for each operand and
    result, a buffer or a page, and says which slices move when, and what runs on them.
    """

    name = "poet.stream"

    inputs = var_operand_def(AnyAttr())
    outputs = var_result_def(AnyAttr())
    body = region_def("single_block")
    tiles = region_def("single_block")

    traits = traits_def(InGraph(), IsolatedFromAbove(), AllocatesResults(), NoTerminator())

    def __init__(
        self,
        label: str,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        body: Region,
        tiles: Region | None = None,
        *,
        inplace: Iterable[tuple[int, int]] = (),
        cost: CostAttr | None = None,
        offsets: Sequence[int] | None = None,
        workspace_offset: int | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """Without `tiles`, the caller fills that block, whose arguments are as they have to be."""
        if tiles is None:
            types = [*(operand.type for operand in operands), *result_types]
            tiles = Region(Block(arg_types=[place_type(type) for type in types]))
        super().__init__(
            operands=[operands],
            result_types=[result_types],
            regions=[body, tiles],
            properties={
                "label": StringAttr(label),
                **run_properties(inplace, cost, offsets, workspace_offset),
            },
            attributes=attributes or {},
        )

    @property
    def workspace_bytes(self) -> int:
        """The size of the workspace with the buffers."""
        return self.cost.workspace if self.cost is not None else 0

    @property
    def block_bytes(self) -> int:
        """The size of the blocks of pages of the graph around; 0 where they are in no blocks."""
        graph = self.parent_op()
        block = graph.attributes.get("block_bytes") if graph is not None else None
        return block.value.data if isinstance(block, IntegerAttr) else 0

    def verify_(self) -> None:
        for kind, types in (("operand", self.operand_types), ("result", self.result_types)):
            for i, type in enumerate(types):
                verify_static_tensor(content(type), f"{self.where}: {kind} {i}")
        self.verify_run(
            list(map(content, self.operand_types)), list(map(content, self.result_types))
        )
        places = [place_type(type) for type in (*self.operand_types, *self.result_types)]
        if list(self.tiles.block.arg_types) != places:
            raise VerifyException(
                f"{self.where}: its tiles take ({type_list(self.tiles.block.arg_types)}), "
                f"operands and results are ({type_list(places)})"
            )
        for result, operand in self.inplace_pairs:
            if isinstance(self.results[result].type, PageType):
                raise VerifyException(
                    f"{self.where}: inplace [{result}, {operand}] of what is on storage"
                )
        if not any(
            isinstance(type, PageType) for type in (*self.operand_types, *self.result_types)
        ):
            raise VerifyException(f"{self.where}: nothing is on storage, so it is a poet.compute")
        self._verify_tiles(self.tiles.block, [], [])
        self._verify_ahead()

    def _verify_ahead(self) -> None:
        """Refuses slices read ahead that are not one run of an operand, or do not have their place
        for themselves in all loops over tiles."""
        block_bytes = self.block_bytes
        for op in slices_ahead(self):
            place = op.ahead_place(block_bytes)
            assert place is not None
            begin, end = place
            if not op.is_one_run or op.page not in self.tiles.block.args[: len(self.operands)]:
                raise VerifyException(
                    f"{op.name}: what is read ahead is one run of an operand of {self.where}"
                )
            if op.parent_op() is self:
                raise VerifyException(f"{op.name}: nothing is read ahead outside of loops")
            if begin < 0 or begin % 4 or not begin < end <= self.workspace_bytes:
                raise VerifyException(
                    f"{op.name}: {begin} to {end}, for what is read ahead, is not in the workspace "
                    f"of {self.where}, of {self.workspace_bytes} bytes, at a multiple of 4"
                )
            for other in self.tiles.walk():
                if isinstance(other, TileBufferOp | SliceInOp):
                    start = other.offset.value.data
                    taken = [(start, start + other.bytes)]
                    if isinstance(other, SliceInOp) and other is not op:
                        taken += [found] if (found := other.ahead_place(block_bytes)) else []
                    if any(begin < last and first < end for first, last in taken):
                        raise VerifyException(
                            f"{op.name}: {begin} to {end}, for what is read ahead, overlaps "
                            f"{other.name} at {start} in {self.where}"
                        )

    def _verify_tiles(
        self,
        block: Block,
        loops: Sequence[affine.ForOp],
        alive: Sequence[TileBufferOp | SliceInOp],
    ) -> None:
        """Refuses other operations in loops over tiles, and buffers that overlap: each lives up to
        its last use in the block that has it."""
        ops = list(block.ops)
        own: list[tuple[TileBufferOp | SliceInOp, int]] = []
        for at, op in enumerate(ops):
            buffers = [*alive, *(buffer for buffer, last in own if last >= at)]
            match op:
                case affine.ForOp():
                    self._verify_loop(op)
                    self._verify_tiles(op.body.block, [*loops, op], buffers)
                case TileBufferOp() | SliceInOp():
                    self._verify_buffer(op, buffers)
                    own.append((op, _last_use(op, ops)))
                case SliceOutOp():
                    if op.page not in self.tiles.block.args[len(self.operands) :]:
                        raise VerifyException(f"{op.name} to what is no result of {self.where}")
                case TileOp():
                    pass
                case affine.YieldOp() if loops and not op.operands:
                    pass
                case _:
                    raise VerifyException(f"{self.where}: {op.name} is not allowed in its tiles")

    def _verify_loop(self, loop: affine.ForOp) -> None:
        low, high = loop.lowerBoundMap.data.results, loop.upperBoundMap.data.results
        bound = high[0] if len(high) == 1 else None
        if low != (AffineConstantExpr(0),) or not isinstance(bound, AffineConstantExpr):
            raise VerifyException(f"{self.where}: a loop over tiles goes from 0 to a constant")
        if loop.inits or not 0 < loop.step.value.data <= bound.value:
            raise VerifyException(
                f"{self.where}: a loop over tiles carries nothing, and its step is a tile"
            )

    def _verify_buffer(
        self, op: TileBufferOp | SliceInOp, alive: Sequence[TileBufferOp | SliceInOp]
    ) -> None:
        type_, begin = op.buffer.type, op.offset.value.data
        assert isinstance(type_, MemRefType)
        if not type_.has_static_shape():
            raise VerifyException(f"{op.name}: a buffer has a static shape, got {type_}")
        size, end = element_bytes(type_.element_type), begin + op.bytes
        if begin < 0 or begin % size or end > self.workspace_bytes:
            raise VerifyException(
                f"{op.name} at {begin} with {op.bytes} bytes is not in the workspace of "
                f"{self.where}, of {self.workspace_bytes} bytes, at a multiple of {size}"
            )
        for other in alive:
            start = other.offset.value.data
            if begin < start + other.bytes and start < end:
                raise VerifyException(
                    f"{op.name} at {begin} with {op.bytes} bytes overlaps {other.name} at {start} "
                    f"with {other.bytes} bytes in {self.where}"
                )

    @classmethod
    def parse(cls, parser: Parser) -> StreamOp:
        head = parse_head(parser)
        fields = parse_fields(parser)
        body = parser.parse_region(head.arguments)
        parser.parse_keyword("tiles")
        arguments = parser.parse_comma_separated_list(
            Parser.Delimiter.PAREN, lambda: parser.parse_argument(expect_type=True)
        )
        tiles = parser.parse_region([a for a in arguments if isinstance(a, Parser.Argument)])
        return cls(head.label, head.operands, head.result_types, body, tiles, **fields)

    def print(self, printer: Printer) -> None:
        print_head(self, printer)
        print_fields(self, printer)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)
        printer.print_string(" tiles ")
        with printer.in_parens():
            printer.print_list(self.tiles.block.args, printer.print_block_argument)
        printer.print_string(" ")
        printer.print_region(self.tiles, print_entry_block_args=False, print_empty_block=False)


def _last_use(op: TileBufferOp | SliceInOp, ops: Sequence[Operation]) -> int:
    """The place of the last of these operations that uses a buffer, or has such a use in it."""
    last = -1
    for use in op.buffer.uses:
        user: Operation | None = use.operation
        while user is not None and user not in ops:
            user = user.parent_op()
        last = max(last, ops.index(user) if user is not None else len(ops))
    return last


def place_type(type: Attribute) -> Attribute:
    """The type of an operand or result of that type in the tiles: a buffer, or a page."""
    return buffer_type(type) if isinstance(type, TensorType) else type


class TileSymbolUse(SymbolUserOpInterface):
    """The function of a tile takes its buffers and positions."""

    def verify(self, op: Operation) -> None:
        assert isinstance(op, TileOp)
        if symbol_table(op) is None:
            return
        function = SymbolTable.lookup_symbol(op, op.function)
        if not isinstance(function, FuncOp):
            raise VerifyException(f"poet.tile: no function {op.function} in the module")
        types = [*op.buffers.types, *op.positions.types]
        if list(function.function_type.inputs.data) != types:
            takes = type_list(function.function_type.inputs.data)
            raise VerifyException(
                f"poet.tile: {op.function} takes ({takes}), got ({type_list(types)})"
            )


@irdl_op_definition
class TileOp(IRDLOperation):
    """Runs one tile: a function on buffers, from positions in the loops over tiles on."""

    name = "poet.tile"

    function = prop_def(SymbolRefAttr)
    buffers = var_operand_def(MemRefType)
    positions = var_operand_def(IndexType)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    traits = traits_def(TileSymbolUse())

    def __init__(
        self,
        function: str | SymbolRefAttr,
        buffers: Sequence[SSAValue],
        positions: Sequence[SSAValue] = (),
    ) -> None:
        name = SymbolRefAttr(function) if isinstance(function, str) else function
        super().__init__(operands=[buffers, positions], properties={"function": name})

    def verify_(self) -> None:
        verify_positions(self, self.positions)

    @classmethod
    def parse(cls, parser: Parser) -> TileOp:
        function = SymbolRefAttr(parser.parse_symbol_name())
        buffers = parser.parse_comma_separated_list(
            Parser.Delimiter.PAREN, parser.parse_unresolved_operand
        )
        positions = parser.parse_comma_separated_list(
            Parser.Delimiter.SQUARE, parser.parse_unresolved_operand
        )
        parser.parse_punctuation(":")
        types = parser.parse_comma_separated_list(Parser.Delimiter.NONE, parser.parse_type)
        return cls(
            function,
            parser.resolve_operands(buffers, types, parser.pos),
            [parser.resolve_operand(position, IndexType()) for position in positions],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_attribute(self.function)
        with printer.in_parens():
            printer.print_list(self.buffers, printer.print_ssa_value)
        printer.print_string(" ")
        with printer.in_square_brackets():
            printer.print_list(self.positions, printer.print_ssa_value)
        printer.print_string(" : ")
        printer.print_list(self.buffers.types, printer.print_attribute)
