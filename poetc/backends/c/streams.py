"""A kernel that runs in tiles, in C: loops around slices that move and calls of tile functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue

from poetc.backends.c.buffers import tile_buffers
from poetc.backends.c.indexing import mapped, to_c
from poetc.backends.c.text import wrapped
from poetc.errors import InputError
from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.index import NO_FACTS, ZERO, Index, Variable
from poetc.ir.loops import loops_around
from poetc.ir.poet import (
    AnySlice,
    PageType,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileBufferOp,
    TileOp,
    slices_ahead,
    tile_starts,
)
from poetc.page import MOST_SLICE_DIMENSIONS

Shapes = dict[tuple[str, ...], str]
"""The shapes of the slices of a file: the fields of each `poetc_slice`, and its name."""


RETURN = "return status;"
"""Ends a function where a call in it failed."""


def if_failed(end: str) -> list[str]:
    """Lines that do `end` where `status` says that a call failed."""
    return ["    if (status != POETC_OK) {", f"        {end}", "    }"]


def checked_call(function: str, arguments: Sequence[str], end: str) -> list[str]:
    """A call, and `end` where it fails."""
    return [*wrapped(f"    status = {function}(", arguments, ");"), *if_failed(end)]


def shapes_lines(shapes: Shapes) -> list[str]:
    """The definitions of the shapes of slices, with an empty line behind them if there are any."""
    lines: list[str] = []
    for fields, name in shapes.items():
        lines += wrapped(f"static const poetc_slice {name} = {{", fields, "};")
    return [*lines, ""] if lines else []


@dataclass
class StreamPrinter:
    """Prints one stream.

    `functions` are the C names of tile functions by their symbols. `page` gives the initialiser of
    a `poetc_block_page` for an operand or result on storage, in lines, `at` a place in the arena,
    and `failed` is the statement that ends the step where a call fails. `shapes` are those of
    slices that are there already, to which its own are added, with names that begin with `prefix`.
    """

    stream: StreamOp
    functions: Mapping[str, str]
    page: Callable[[SSAValue, str], list[str]]
    callers: Mapping[SSAValue, str]
    at: Callable[[int], str]
    failed: str
    shapes: Shapes
    prefix: str
    indices: dict[SSAValue, Index] = field(default_factory=dict)
    depth: int = 0

    def lines(self) -> list[str]:
        """The stream, as statements of a function."""
        own: dict[SSAValue, SSAValue] = dict(
            zip(
                self.stream.tiles.block.args,
                (*self.stream.operands, *self.stream.results),
                strict=True,
            )
        )
        # A new value has the old one among its operands, whether tiles read that or not.
        used = {op.page for op in self.stream.tiles.walk() if isinstance(op, AnySlice)}
        pages = [argument for argument in own if argument in used]
        self.names: dict[SSAValue, str] = {
            argument: f"page{number}" for number, argument in enumerate(pages)
        }
        begin: list[str] = []
        for argument, name in self.names.items():
            begin += self.page(own[argument], f"    const poetc_block_page {name} = ")
        outs = [op for op in self.stream.tiles.walk() if isinstance(op, SliceOutOp)]
        self.in_order = {op for op in outs if op.is_in_order}
        body = [line for op in outs if op not in self.in_order for line in self._clear(op)]
        body += self._block(self.stream.tiles.block)
        return [*begin, *body]

    def _block(self, block: Block) -> list[str]:
        lines: list[str] = []
        for op in block.ops:
            match op:
                case affine.ForOp():
                    lines += self._start_ahead(block, op)
                    inside = op.body.block
                    lines += self._loop(op, lambda inside=inside: self._block(inside))
                case SliceInOp():
                    lines += self._slice(op, "in" if op.ahead is None else "in_ahead")
                case SliceOutOp():
                    direction = "append" if op in self.in_order else "out"
                    lines += self._slice(op, direction)
                case TileOp():
                    lines += self._start_ahead(block, op)
                    buffers = tile_buffers(self.stream, op, self.callers)
                    places = [buffer.name or self.at(buffer.offset) for buffer in buffers]
                    places += [to_c(self.indices[position]) for position in op.positions]
                    function = self.functions[op.function.string_value()]
                    lines += wrapped(f"    {function}(", places, ");")
                case TileBufferOp() | affine.YieldOp():
                    pass
                case _:
                    raise InputError(f"the C backend does not know {op.name} in tiles")
        return lines

    def _loop(self, loop: affine.ForOp, body: Callable[[], list[str]]) -> list[str]:
        starts = tile_starts(loop)
        end, step = starts.stop, starts.step
        name = f"i{self.depth}"
        self.indices[loop.body.block.args[0]] = Index.of(Variable(name, 0, end - 1))
        self.depth += 1
        lines = _deeper(body())
        self.depth -= 1
        head = f"    for (int32_t {name} = 0; {name} < {end}; {name} += {step}) {{"
        return [head, *lines, "    }"]

    def _clear(self, op: SliceOutOp) -> list[str]:
        """The lines that clear a page before its result is written in slices."""
        loops = loops_around(op)

        def lines() -> list[str]:
            if loops:
                return self._loop(loops.pop(0), lines)
            return self._slice(op, "clear")

        return lines()

    def _start_ahead(self, block: Block, before: Operation) -> list[str]:
        """The starts of what is read ahead before a loop or tile of a block: the first slices of
        loops that begin here, and the next ones of those that have been taken in this block."""
        lines: list[str] = []
        if block is self.stream.tiles.block:
            for op in slices_ahead(before):
                self.indices.update((position, ZERO) for position in op.positions)
                lines += self._slice(op, "ahead")
            return lines
        op = block.first_op
        while op is not None and op is not before:
            if isinstance(op, SliceInOp) and op.ahead is not None:
                lines += self._next_ahead(op)
            elif isinstance(op, TileOp | affine.ForOp):
                return []
            op = op.next_op
        return lines

    def _next_ahead(self, op: SliceInOp) -> list[str]:
        """The start of the slice in the next tile, if there is one."""
        loops = loops_around(op)
        here = dict(self.indices)
        lines: list[str] = []
        for depth, loop in enumerate(loops):
            variable = loop.body.block.args[0]
            step = f" + {loop.step.value.data}" if loop is loops[-1] else ""
            lines.append(f"    int32_t n{depth} = {to_c(here[variable])}{step};")
            self.indices[variable] = Index.of(Variable(f"n{depth}", 0, tile_starts(loop).stop - 1))
        for depth in range(len(loops) - 1, 0, -1):
            lines += [
                f"    if (n{depth} >= {tile_starts(loops[depth]).stop}) {{",
                f"        n{depth} = 0;",
                f"        n{depth - 1} += {loops[depth - 1].step.value.data};",
                "    }",
            ]
        lines += [
            f"    if (n0 < {tile_starts(loops[0]).stop}) {{",
            *_deeper(self._slice(op, "ahead")),
            "    }",
        ]
        self.indices = here
        return ["    {", *_deeper(lines), "    }"]

    def _place(self, offset: int) -> str:
        """A place in the workspace."""
        assert self.stream.workspace_offset is not None
        return self.at(self.stream.workspace_offset.value.data + offset)

    def _slice(self, op: AnySlice, direction: str) -> list[str]:
        """A call of `poetc_slice_` and the direction: `in`, `out`, `append`, `clear`, `ahead`,
        `in_ahead`."""
        buffer = op.buffer
        assert isinstance(op.page.type, PageType) and isinstance(buffer.type, MemRefType)
        extents = buffer_type(op.page.type.tensor).get_shape()
        if len(extents) > MOST_SLICE_DIMENSIONS:
            raise InputError(
                f'poet.stream "{self.stream.label.data}" has slices of {len(extents)} dimensions; '
                f"the C backend can do {MOST_SLICE_DIMENSIONS}"
            )
        sizes = list(buffer.type.get_shape())
        rows = op.rows if isinstance(op, SliceInOp) else None
        if isinstance(op, SliceInOp) and op.row_dim is not None:
            sizes[op.row_dim.value.data] = 1
        fields = (
            str(element_bytes(buffer.type.element_type)),
            str(len(extents)),
            _numbers(extents),
            _numbers(sizes),
        )
        slice_ = self.shapes.setdefault(fields, f"{self.prefix}_slice{len(self.shapes)}")
        indices = [self.indices[position] for position in op.positions]
        starts = [to_c(index) for index in mapped(op.starts.data, indices, NO_FACTS)]
        owner = buffer.owner
        assert isinstance(owner, TileBufferOp | SliceInOp)
        where = self._place(owner.offset.value.data)
        arguments = ["store", f"&{self.names[op.page]}", f"&{slice_}", "start"]
        if "ahead" in direction:
            arguments += self._ahead(op)
        arguments += [where] if direction not in ("clear", "ahead") else []
        if isinstance(op, SliceInOp) and rows is not None and op.row_dim is not None:
            return self._rows(op, op.row_dim.value.data, rows, starts, arguments)
        lines = [
            *wrapped("    const int32_t start[] = {", starts or ["0"], "};"),
            *checked_call(f"poetc_slice_{direction}", arguments, self.failed),
        ]
        return ["    {", *_deeper(lines), "    }"]

    def _ahead(self, op: AnySlice) -> list[str]:
        """The transfer of a slice that is read ahead, the place of its blocks, and their number."""
        assert isinstance(op, SliceInOp) and op.ahead is not None and op.ahead_blocks is not None
        transfer = f"&transfer[{slices_ahead(loops_around(op)[0]).index(op)}]"
        return [transfer, self._place(op.ahead.value.data), f"{op.ahead_blocks.value.data}u"]

    def _rows(
        self,
        op: SliceInOp,
        dim: int,
        rows: SSAValue,
        starts: list[str],
        arguments: list[str],
    ) -> list[str]:
        """One slice for each position in a list of rows, each behind the one before."""
        assert isinstance(op.buffer.type, MemRefType) and isinstance(rows.type, MemRefType)
        shape, length = op.buffer.type.get_shape(), rows.type.element_count()
        size = element_bytes(op.buffer.type.element_type) * prod(shape[dim + 1 :])
        first, starts[dim] = starts[dim], "rows[first + k]"
        owner = rows.owner
        assert isinstance(owner, TileBufferOp)
        place = self._place(owner.offset.value.data)
        inside = [
            *wrapped("    const int32_t start[] = {", starts, "};"),
            *checked_call("poetc_slice_in", [*arguments[:-1], f"to + k * {size}"], self.failed),
        ]
        return [
            "    {",
            f"        const int32_t *rows = {place};",
            f"        uint8_t *to = {arguments[-1]};",
            f"        const int32_t first = {first};",
            f"        for (int32_t k = 0; k < {shape[dim]} && first + k < {length}; ++k) {{",
            *_deeper(_deeper(inside)),
            "        }",
            "    }",
        ]


def most_ahead(stream: StreamOp) -> int:
    """How many slices are being read ahead at once at most."""
    return max((len(slices_ahead(nest)) for nest in stream.tiles.block.ops), default=0)


def slots_begin(transfers: int) -> list[str]:
    """The declarations of so many transfers, before the first of them starts."""
    if not transfers:
        return []
    return [
        # Not zero-initialised: compilers call memset for that.
        f"    poetc_transfer transfer[{transfers}];",
        f"    poetc_transfers_init(transfer, {transfers});",
    ]


def slots_end(transfers: int) -> list[str]:
    """Where a failure goes that must end them first."""
    if not transfers:
        return []
    return [
        "",
        "failed:",
        "    /* Nothing uses the arena any more when the step is over. */",
        f"    return poetc_pages_abandon(store, transfer, {transfers}, status);",
    ]


def _numbers(values: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, values)) or '0'}}}"


def _deeper(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]
