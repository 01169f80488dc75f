"""Slices of pages, and their buffers, in the tiles of a `poet.stream`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xdsl.dialects import affine
from xdsl.dialects.builtin import (
    I64,
    AffineMapAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.loops import loops_around
from poetc.ir.poet.attributes import PageType

if TYPE_CHECKING:
    import numpy as np


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
        """The number of positions in each dimension: of the tensor, or of a list of rows."""
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

    def is_run(self, type: Attribute) -> bool:
        """Whether the slice, in a buffer of this type, is a stretch of adjacent bytes of the page,
        wherever it begins."""
        assert isinstance(type, MemRefType)
        sizes = type.get_shape()
        inner, starts = len(sizes), self.starts.data.results
        while (
            inner > 0
            and sizes[inner - 1] == self.extents()[inner - 1]
            and starts[inner - 1] == AffineConstantExpr(0)
        ):
            inner -= 1
        return all(size == 1 for size in sizes[: max(inner - 1, 0)])

    def starts_in_turn(self) -> list[np.ndarray]:
        """The places where slices begin, an array for each dimension of the page, in the order in
        which the loops around move them: each array has a dimension for each loop, of one element
        where the loop makes no difference."""
        import numpy as np

        loops = loops_around(self)
        each = (np.asarray(tile_starts(loop)) for loop in loops)
        grid = np.meshgrid(*each, indexing="ij", sparse=True)
        variables = (loop.body.block.args[0] for loop in loops)
        values: dict[SSAValue, np.ndarray] = dict(zip(variables, grid, strict=True))
        arrays, map = [values[position] for position in self.positions], self.starts.data
        split = arrays[: map.num_dims], arrays[map.num_dims :]
        return [np.asarray(expr.eval(*split)) for expr in map.results]  # pyright: ignore[reportArgumentType]

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


def tile_starts(loop: affine.ForOp) -> range:
    """The positions at which tiles of a loop over tiles begin, up to its end."""
    (end,) = loop.upperBoundMap.data.results
    assert isinstance(end, AffineConstantExpr)
    return range(0, end.value, loop.step.value.data)


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
        return cls(parse_memref(parser), offset)

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

    With `ahead`, an offset in the workspace, up to `ahead_blocks` blocks of the slice are read
    before its turn, to there: those of the first one before the loops over tiles, those of the next
    one while tiles run.
    """

    name = "poet.slice_in"

    rows = opt_operand_def(MemRefType)
    row_dim = opt_prop_def(IntegerAttr[I64])
    ahead = opt_prop_def(IntegerAttr[I64])
    ahead_blocks = opt_prop_def(IntegerAttr[I64])

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        page: SSAValue,
        starts: AffineMap,
        positions: Sequence[SSAValue],
        type: MemRefType,
        offset: int,
        rows: tuple[int, SSAValue] | None = None,
        ahead: tuple[int, int] | None = None,
    ) -> None:
        """`ahead` is the offset and the number of blocks that are read ahead."""
        super().__init__(
            operands=[[rows[1]] if rows is not None else [], page, positions],
            result_types=[type],
            properties={
                "starts": AffineMapAttr(starts),
                "offset": IntegerAttr(offset, i64),
                "row_dim": IntegerAttr(rows[0], i64) if rows is not None else None,
            },
        )
        if ahead is not None:
            self.ahead, self.ahead_blocks = (IntegerAttr(number, i64) for number in ahead)

    @property
    def is_one_run(self) -> bool:
        """Whether the slice is a stretch of adjacent bytes of the page, wherever it begins."""
        return self.rows is None and self.is_run(self.buffer.type)

    def ahead_place(self, block_bytes: int) -> tuple[int, int] | None:
        """The bytes of the workspace, from and to, that it is read ahead into; None if it is
        not."""
        if self.ahead is None or self.ahead_blocks is None:
            return None
        begin = self.ahead.value.data
        return begin, begin + self.ahead_blocks.value.data * block_bytes

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
        if (self.ahead is None) != (self.ahead_blocks is None):
            raise VerifyException(f"{self.name}: what is read ahead are blocks")
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
        ahead = None
        if parser.parse_optional_keyword("ahead") is not None:
            begin = parser.parse_integer(allow_boolean=False)
            parser.parse_keyword("blocks")
            ahead = begin, parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(":")
        operand = parser.resolve_operand(page, parser.parse_type())
        rows = None
        if named is not None:
            parser.parse_punctuation(",")
            rows = named[0], parser.resolve_operand(named[1], parse_memref(parser))
        parser.parse_punctuation("->")
        return cls(operand, starts, positions, parse_memref(parser), offset, rows, ahead)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        _print_slice(self, printer)
        if self.rows is not None and self.row_dim is not None:
            printer.print_string(f" rows {self.row_dim.value.data} of ")
            printer.print_ssa_value(self.rows)
        printer.print_string(f" buffer {self.offset.value.data}")
        if self.ahead is not None and self.ahead_blocks is not None:
            ahead, blocks = self.ahead.value.data, self.ahead_blocks.value.data
            printer.print_string(f" ahead {ahead} blocks {blocks}")
        printer.print_string(" : ")
        printer.print_attribute(self.page.type)
        if self.rows is not None:
            printer.print_string(", ")
            printer.print_attribute(self.rows.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.buffer.type)


def slices_ahead(op: Operation) -> list[SliceInOp]:
    """The slices within an operation that are read ahead."""
    return [each for each in op.walk() if isinstance(each, SliceInOp) and each.ahead is not None]


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

    @property
    def is_in_order(self) -> bool:
        """Whether the slices that the loops around write are the bytes of the page from its first
        to its last one, if each is written once."""
        import numpy as np

        assert isinstance(self.buffer.type, MemRefType)
        sizes, extents = self.buffer.type.get_shape(), self.extents()
        first, empty = np.zeros((), np.int64), np.zeros((), np.bool_)
        for start, size, extent in zip(self.starts_in_turn(), sizes, extents, strict=True):
            low, high = np.clip(start, 0, extent), np.clip(start + size, 0, extent)
            first, empty = first * extent + low, empty | (high <= low)
        counts = [len(tile_starts(loop)) for loop in loops_around(self)]
        firsts = np.broadcast_to(first, counts)[~np.broadcast_to(empty, counts)]
        return self.is_run(self.buffer.type) and bool((np.diff(firsts) > 0).all())

    def verify_(self) -> None:
        if not isinstance(self.buffer.owner, TileBufferOp | SliceInOp):
            raise VerifyException(f"{self.name} of what is no buffer of tiles")
        self.verify_slice(self.buffer.type)

    @classmethod
    def parse(cls, parser: Parser) -> SliceOutOp:
        buffer = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        page, starts, positions = _parse_slice(parser)
        parser.parse_punctuation(":")
        type_ = parse_memref(parser)
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


def parse_memref(parser: Parser) -> MemRefType:
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
"""An operation that moves a slice of `.page`, from or to `.buffer`."""
