"""A kernel that runs in tiles, in C: loops around slices that move and calls of tile functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue

from poetc.backends.c.buffers import tile_buffers
from poetc.backends.c.indexing import NO_FACTS, Index, Variable, mapped, to_c
from poetc.backends.c.layout import arena_offset
from poetc.backends.c.text import wrapped
from poetc.errors import InputError
from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    PageInOp,
    PageOutOp,
    PageType,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileBufferOp,
    TileOp,
    tile_starts,
)
from poetc.ir.poet.stream import AnySlice

MOST_DIMENSIONS = 8
"""Of a slice: `POETC_SLICE_DIMENSIONS` in `poetc_slice.h`."""


@dataclass
class StreamPrinter:
    """Prints one stream.

    `functions` are the C names of tile functions by their symbols, `pages` the initialisers of
    `poetc_block_page` for operands and results on storage. `at` gives a place in the arena, and
    `checked` a call whose failure ends the step.
    """

    stream: StreamOp
    functions: Mapping[str, str]
    pages: Mapping[SSAValue, Sequence[str]]
    callers: Mapping[SSAValue, str]
    at: Callable[[int], str]
    checked: Callable[[str, Sequence[str]], list[str]]
    indices: dict[SSAValue, Index] = field(default_factory=dict)
    slices: dict[tuple[str, ...], str] = field(default_factory=dict)
    depth: int = 0

    def lines(self) -> list[str]:
        """The stream, as a block of the step."""
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
            page = self.pages[own[argument]]
            begin += wrapped(f"    const poetc_block_page {name} = {{", page, "};")
        outs = [op for op in self.stream.tiles.walk() if isinstance(op, SliceOutOp)]
        body = [line for op in outs for line in self._clear(op)]
        body += self._block(self.stream.tiles.block)
        for fields, name in self.slices.items():
            begin += wrapped(f"    static const poetc_slice {name} = {{", fields, "};")
        return ["    {", *_deeper([*begin, *body]), "    }"]

    def _block(self, block: Block) -> list[str]:
        lines: list[str] = []
        for op in block.ops:
            match op:
                case affine.ForOp():
                    inside = op.body.block
                    lines += self._loop(op, lambda inside=inside: self._block(inside))
                case SliceInOp():
                    lines += self._slice(op, "in", op.buffer)
                case SliceOutOp():
                    lines += self._slice(op, "out", op.buffer)
                case TileOp():
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
        """What comes before a result is written in slices; nothing where it is one slice."""
        assert isinstance(op.page.type, PageType) and isinstance(op.buffer.type, MemRefType)
        if op.buffer.type.get_shape() == buffer_type(op.page.type.tensor).get_shape():
            return []
        loops: list[affine.ForOp] = []
        around = op.parent_op()
        while isinstance(around, affine.ForOp):
            loops.append(around)
            around = around.parent_op()

        def lines() -> list[str]:
            return self._loop(loops.pop(), lines) if loops else self._slice(op, "clear", op.buffer)

        return lines()

    def _slice(self, op: AnySlice, direction: str, buffer: SSAValue) -> list[str]:
        """A call of `poetc_slice_` and the direction: `in`, `out`, or `clear`."""
        assert isinstance(op.page.type, PageType) and isinstance(buffer.type, MemRefType)
        extents = buffer_type(op.page.type.tensor).get_shape()
        if len(extents) > MOST_DIMENSIONS:
            raise InputError(
                f'poet.stream "{self.stream.label.data}" has slices of {len(extents)} dimensions; '
                f"the C backend can do {MOST_DIMENSIONS}"
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
        slice_ = self.slices.setdefault(fields, f"slice{len(self.slices)}")
        indices = [self.indices[position] for position in op.positions]
        starts = [to_c(index) for index in mapped(op.starts.data, indices, NO_FACTS)]
        owner = buffer.owner
        assert isinstance(owner, TileBufferOp | SliceInOp)
        assert self.stream.workspace_offset is not None
        where = self.at(self.stream.workspace_offset.value.data + owner.offset.value.data)
        arguments = ["store", f"&{self.names[op.page]}", f"&{slice_}", "start"]
        arguments += [where] if direction != "clear" else []
        if isinstance(op, SliceInOp) and rows is not None and op.row_dim is not None:
            return self._rows(op, op.row_dim.value.data, rows, starts, arguments)
        lines = [
            *wrapped("    const int32_t start[] = {", starts or ["0"], "};"),
            *self.checked(f"poetc_slice_{direction}", arguments),
        ]
        return ["    {", *_deeper(lines), "    }"]

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
        assert isinstance(owner, TileBufferOp) and self.stream.workspace_offset is not None
        place = self.at(self.stream.workspace_offset.value.data + owner.offset.value.data)
        inside = [
            *wrapped("    const int32_t start[] = {", starts, "};"),
            *self.checked("poetc_slice_in", [*arguments[:-1], f"to + k * {size}"]),
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


def whole_page(
    op: AnyPageOut | AnyPageIn,
    page: Sequence[str],
    at: Callable[[int], str],
    checked: Callable[[str, Sequence[str]], list[str]],
) -> list[str]:
    """The transfer of all of a page in blocks, whose fields are `page`."""
    if not isinstance(op, PageOutOp | PageInOp):
        raise InputError(f"{op.name}: pages in blocks are transferred by one operation")
    verb = "out" if isinstance(op, PageOutOp) else "in"
    lines = [
        *wrapped("    const poetc_block_page page = {", page, "};"),
        *checked(f"poetc_blocks_{verb}", ["store", "&page", at(arena_offset(op.tensor))]),
    ]
    return ["    {", *_deeper(lines), "    }"]


def _numbers(values: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, values)) or '0'}}}"


def _deeper(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]
