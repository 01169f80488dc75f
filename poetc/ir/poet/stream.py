"""Kernels that run in tiles, with operands and results on storage: `poet.stream` and its tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from xdsl.dialects import affine
from xdsl.dialects.builtin import (
    I64,
    AffineMapAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    StringAttr,
    SymbolRefAttr,
    TensorType,
    i32,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
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
    type_list,
    verify_static_tensor,
)
from poetc.ir.poet.compute import (
    RunOp,
    content,
    parse_fields,
    parse_head,
    print_fields,
    print_head,
    run_properties,
)
from poetc.ir.symbols import symbol_table


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
        """Of the buffers in it."""
        return self.cost.workspace if self.cost is not None else 0

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

    def _verify_tiles(
        self,
        block: Block,
        loops: Sequence[affine.ForOp],
        alive: Sequence[TileBufferOp | SliceInOp],
    ) -> None:
        """What is in loops over tiles, and that buffers do not overlap: each lives up to its last
        use in the block that has it."""
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


def tile_starts(loop: affine.ForOp) -> range:
    """The positions at which tiles of a loop over tiles begin, up to its end."""
    (end,) = loop.upperBoundMap.data.results
    assert isinstance(end, AffineConstantExpr)
    return range(0, end.value, loop.step.value.data)


def place_type(type: Attribute) -> Attribute:
    """What an operand or result of that type is in the tiles: a buffer, or a page."""
    return buffer_type(type) if isinstance(type, TensorType) else type


class _Buffer(IRDLOperation):
    """Bytes of the workspace of the stream around, from `offset` on."""

    offset = prop_def(IntegerAttr[I64])
    buffer = result_def(MemRefType)

    @property
    def bytes(self) -> int:
        type_ = self.buffer.type
        assert isinstance(type_, MemRefType)
        return element_bytes(type_.element_type) * type_.element_count()


class _Slice(IRDLOperation):
    """A slice of a page, which begins at `starts` of the loops over tiles in `positions`."""

    page = operand_def(PageType)
    positions = var_operand_def(IndexType)
    starts = prop_def(AffineMapAttr)

    def extents(self) -> tuple[int, ...]:
        """Of each dimension how many positions there are: in the tensor, or in a list of rows."""
        assert isinstance(self.page.type, PageType)
        return buffer_type(self.page.type.tensor).get_shape()

    def inside(self, at: Mapping[SSAValue, int], shape: Sequence[int]) -> list[tuple[int, range]]:
        """Of each dimension where the slice begins, of so many elements and `at` these positions of
        the loops, and which of these are in the tensor, or list of rows."""
        map, positions = self.starts.data, [at[position] for position in self.positions]
        starts = map.eval(positions[: map.num_dims], positions[map.num_dims :])
        found: list[tuple[int, range]] = []
        for start, size, extent in zip(starts, shape, self.extents(), strict=True):
            low = min(max(start, 0), extent)
            found.append((start, range(low, max(low, min(start + size, extent)))))
        return found

    def verify_slice(self, type: Attribute) -> None:
        """Raises VerifyException unless a buffer of this type can have the slice."""
        assert isinstance(self.page.type, PageType)
        whole = buffer_type(self.page.type.tensor)
        if not isinstance(type, MemRefType) or (
            (len(type.get_shape()), type.element_type)
            != (len(whole.get_shape()), whole.element_type)
        ):
            raise VerifyException(f"{self.name}: {type} is no slice of {self.page.type}")
        if any(size > n for size, n in zip(type.get_shape(), whole.get_shape(), strict=True)):
            raise VerifyException(f"{self.name}: {type} is larger than {self.page.type}")
        map = self.starts.data
        inputs = map.num_dims + map.num_symbols
        if len(map.results) != len(whole.get_shape()) or inputs != len(self.positions):
            raise VerifyException(f"{self.name}: {type} needs a start in each dimension")
        verify_positions(self, self.positions)


def verify_positions(op: Operation, positions: Iterable[SSAValue]) -> None:
    """Raises VerifyException unless all are starts of tiles."""
    for position in positions:
        owner = position.owner
        if not isinstance(owner, Block) or not isinstance(owner.parent_op(), affine.ForOp):
            raise VerifyException(f"{op.name}: a position is the variable of a loop over tiles")


@irdl_op_definition
class TileBufferOp(_Buffer):
    """A buffer for what tiles make: a slice of a result, or sums that are interrupted."""

    name = "poet.tile_buffer"

    def __init__(self, type: MemRefType, offset: int) -> None:
        super().__init__(result_types=[type], properties={"offset": IntegerAttr(offset, i64)})

    @classmethod
    def parse(cls, parser: Parser) -> TileBufferOp:
        offset = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(":")
        return cls(_memref(parser), offset)

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.offset.value.data} : ")
        printer.print_attribute(self.buffer.type)


@irdl_op_definition
class SliceInOp(_Slice, _Buffer):
    """Reads a slice of a page into a buffer in the workspace, at each place where it stands.

    Only what is in the tensor is moved: a slice may begin before it, or end behind. What is outside
    keeps its place in the buffer, which no tile reads.

    With `rows`, a list of positions in the dimension `row_dim`, the slice has those in the list,
    from its start there on, as far as the list goes.
    """

    name = "poet.slice_in"

    rows = opt_operand_def(MemRefType)
    row_dim = opt_prop_def(IntegerAttr[I64])

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        page: SSAValue,
        starts: AffineMap,
        positions: Sequence[SSAValue],
        type: MemRefType,
        offset: int,
        rows: tuple[int, SSAValue] | None = None,
    ) -> None:
        super().__init__(
            operands=[[rows[1]] if rows is not None else [], page, positions],
            result_types=[type],
            properties={
                "starts": AffineMapAttr(starts),
                "offset": IntegerAttr(offset, i64),
                "row_dim": IntegerAttr(rows[0], i64) if rows is not None else None,
            },
        )

    def extents(self) -> tuple[int, ...]:
        found = list(super().extents())
        if self.rows is not None and self.row_dim is not None:
            assert isinstance(self.rows.type, MemRefType)
            found[self.row_dim.value.data] = self.rows.type.element_count()
        return tuple(found)

    def verify_(self) -> None:
        self.verify_slice(self.buffer.type)
        if (self.rows is None) != (self.row_dim is None):
            raise VerifyException(f"{self.name}: a list of rows is for a dimension")
        if self.rows is None or self.row_dim is None:
            return
        type_, dim = self.rows.type, self.row_dim.value.data
        assert isinstance(type_, MemRefType) and isinstance(self.buffer.type, MemRefType)
        if not isinstance(self.rows.owner, TileBufferOp) or type_.element_type != i32:
            raise VerifyException(
                f"{self.name}: rows are a list of i32 in a poet.tile_buffer, got {type_}"
            )
        sizes = self.buffer.type.get_shape()
        if not 0 <= dim < len(sizes):
            raise VerifyException(f"{self.name}: {self.buffer.type} has no dimension {dim}")
        if sizes[dim] > 1 and any(size > 1 for size in sizes[:dim]):
            raise VerifyException(
                f"{self.name}: rows in dimension {dim} are not side by side in {self.buffer.type}"
            )

    @classmethod
    def parse(cls, parser: Parser) -> SliceInOp:
        page, starts, positions = _parse_slice(parser)
        named = None
        if parser.parse_optional_keyword("rows") is not None:
            dim = parser.parse_integer(allow_boolean=False)
            parser.parse_keyword("of")
            named = dim, parser.parse_unresolved_operand()
        parser.parse_keyword("buffer")
        offset = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(":")
        operand = parser.resolve_operand(page, parser.parse_type())
        rows = None
        if named is not None:
            parser.parse_punctuation(",")
            rows = named[0], parser.resolve_operand(named[1], _memref(parser))
        parser.parse_punctuation("->")
        return cls(operand, starts, positions, _memref(parser), offset, rows)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_slice(self, printer)
        if self.rows is not None and self.row_dim is not None:
            printer.print_string(f" rows {self.row_dim.value.data} of ")
            printer.print_ssa_value(self.rows)
        printer.print_string(f" buffer {self.offset.value.data} : ")
        printer.print_attribute(self.page.type)
        if self.rows is not None:
            printer.print_string(", ")
            printer.print_attribute(self.rows.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.buffer.type)


@irdl_op_definition
class SliceOutOp(_Slice):
    """Writes a slice of a result from its buffer to its page: what is in the tensor of it."""

    name = "poet.slice_out"

    buffer = operand_def(MemRefType)

    def __init__(
        self, buffer: SSAValue, page: SSAValue, starts: AffineMap, positions: Sequence[SSAValue]
    ) -> None:
        super().__init__(
            operands=[buffer, page, positions], properties={"starts": AffineMapAttr(starts)}
        )

    def verify_(self) -> None:
        if not isinstance(self.buffer.owner, TileBufferOp):
            raise VerifyException(f"{self.name} of what is no poet.tile_buffer")
        self.verify_slice(self.buffer.type)

    @classmethod
    def parse(cls, parser: Parser) -> SliceOutOp:
        buffer = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        page, starts, positions = _parse_slice(parser)
        parser.parse_punctuation(":")
        type_ = _memref(parser)
        parser.parse_punctuation("->")
        page_type = parser.parse_type()
        return cls(
            parser.resolve_operand(buffer, type_),
            parser.resolve_operand(page, page_type),
            starts,
            positions,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.buffer)
        printer.print_string(", ")
        _print_slice(self, printer)
        printer.print_string(" : ")
        printer.print_attribute(self.buffer.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.page.type)


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


def _memref(parser: Parser) -> MemRefType:
    position = parser.pos
    type_ = parser.parse_type()
    if not isinstance(type_, MemRefType):
        parser.raise_error("expected a memref", position, parser.pos)
    return type_


def _parse_slice(parser: Parser) -> tuple[Any, AffineMap, Sequence[SSAValue]]:
    page = parser.parse_unresolved_operand()
    starts, positions = parser.parse_affine_map_of_ssa_ids()
    return page, starts, positions


def _print_slice(op: _Slice, printer: Printer) -> None:
    printer.print_ssa_value(op.page)
    with printer.in_square_brackets():
        printer.print_list(
            op.starts.data.results, lambda expr: _print_start(expr, op, printer, False)
        )


def _print_start(expr: AffineExpr, op: _Slice, printer: Printer, inside: bool) -> None:
    match expr:
        case AffineConstantExpr():
            printer.print_string(str(expr.value))
        case AffineDimExpr():
            printer.print_ssa_value(op.positions[expr.position])
        case AffineSymExpr():
            printer.print_ssa_value(op.positions[op.starts.data.num_dims + expr.position])
        case AffineBinaryOpExpr():
            printer.print_string("(" if inside else "")
            _print_start(expr.lhs, op, printer, True)
            printer.print_string(f" {expr.kind.get_token()} ")
            _print_start(expr.rhs, op, printer, True)
            printer.print_string(")" if inside else "")


AnySlice = SliceInOp | SliceOutOp
"""What moves a slice of `.page`, from or to `.buffer`."""
