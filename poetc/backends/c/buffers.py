"""The bytes of the arena that each call of a kernel reads and writes. Both backends ask for
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.c.layout import arena_offset
from poetc.backends.c.prepare import stored_arguments
from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import (
    ComputeOp,
    GraphOp,
    SliceInOp,
    StreamOp,
    TileBufferOp,
    TileOp,
    runs_of,
)
from poetc.ir.symbols import named_in


@dataclass(frozen=True)
class Buffer:
    """Bytes in the arena, or in the buffer of the caller that has a `name`."""

    offset: int
    bytes: int
    name: str | None = None

    def overlaps(self, other: Buffer) -> bool:
        """Whether both have a byte in common; buffers of the caller are apart."""
        if self.name is not None or other.name is not None:
            return self.name == other.name
        ends_after = self.offset + self.bytes > other.offset
        return ends_after and other.offset + other.bytes > self.offset


def kernel_symbol(compute: ComputeOp) -> str:
    """The name of the function of a compute. Raises InputError where it was not lowered."""
    if compute.kernel is None:
        raise InputError(
            f'poet.compute "{compute.label.data}" has no kernel; run poet-lower-kernels'
        )
    return compute.kernel.root_reference.data


def kernel_calls(
    module: ModuleOp, graph: GraphOp
) -> Iterator[tuple[FuncOp, list[ComputeOp | TileOp]]]:
    """The kernels and tile functions of a graph, each with the operations that call it. Raises
    InputError for one that has no body."""
    functions = named_in(module, FuncOp)
    callers: dict[str, list[ComputeOp | TileOp]] = {}
    for run in runs_of(graph):
        if isinstance(run, ComputeOp):
            callers.setdefault(kernel_symbol(run), []).append(run)
            continue
        for tile in run.walk():
            if isinstance(tile, TileOp):
                callers.setdefault(tile.function.root_reference.data, []).append(tile)
    for symbol, calls in callers.items():
        function = functions.get(symbol)
        if function is None or not function.body.blocks:
            raise InputError(f"kernel @{symbol} has no definition")
        yield function, calls


def kernel_buffers(
    function: FuncOp, compute: ComputeOp, callers: Mapping[SSAValue, str]
) -> list[Buffer]:
    """The arguments of the kernel: operands, results, workspaces.

    Several workspaces lie one behind the other in the compute's, larger elements first, so that
    all are aligned.
    """
    places = [
        Buffer(
            0 if value in callers else arena_offset(value),
            tensor_bytes(value.type),
            callers.get(value),
        )
        for value in (*compute.operands, *compute.results)
    ]
    types = function.function_type.inputs.data[len(places) :]
    if types and compute.workspace_offset is None:
        raise InputError(
            f'poet.compute "{compute.label.data}" has no place for its workspace; '
            "run poet-plan-memory first"
        )
    start = compute.workspace_offset.value.data if compute.workspace_offset is not None else 0
    places += workspace_buffers(types, start)
    for place, type_ in zip(places, function.function_type.inputs.data, strict=True):
        _check_aligned(place, type_)
    return places


def _check_aligned(place: Buffer, type_: Attribute) -> None:
    if place.offset % _element_bytes(type_):
        raise InputError(f"offset {place.offset} in the arena is not aligned for {type_}")


def workspace_buffers(types: Sequence[Attribute], start: int) -> list[Buffer]:
    """Workspaces of these types in one piece that begins at `start`."""
    found = [Buffer(0, 0)] * len(types)
    for i in sorted(range(len(types)), key=lambda i: -_element_bytes(types[i])):
        found[i] = Buffer(start, _memref_bytes(types[i]))
        start += found[i].bytes
    return found


def _element_bytes(type_: object) -> int:
    assert isa(type_, MemRefType)
    return element_bytes(type_.element_type)


def _memref_bytes(type_: object) -> int:
    assert isa(type_, MemRefType)
    count = 1
    for extent in type_.get_shape():
        count *= extent
    return count * _element_bytes(type_)


def tile_buffers(stream: StreamOp, tile: TileOp, callers: Mapping[SSAValue, str]) -> list[Buffer]:
    """The buffers that a tile of a stream is called with: parts of its workspace, or whole ones."""
    values = (*stream.operands, *stream.results)
    whole: dict[SSAValue, SSAValue] = dict(zip(stream.tiles.block.args, values, strict=True))
    if stream.workspace_bytes and stream.workspace_offset is None:
        raise InputError(f"{stream.where} has no place for its workspace")
    start = stream.workspace_offset.value.data if stream.workspace_offset is not None else 0
    places: list[Buffer] = []
    for buffer in tile.buffers:
        if isinstance(buffer.owner, TileBufferOp | SliceInOp):
            offset = start + buffer.owner.offset.value.data
            places.append(Buffer(offset, _memref_bytes(buffer.type)))
            _check_aligned(places[-1], buffer.type)
            continue
        value = whole[buffer]
        offset = 0 if value in callers else arena_offset(value)
        places.append(Buffer(offset, tensor_bytes(value.type), callers.get(value)))
        _check_aligned(places[-1], buffer.type)
    return places


def overlapping_arguments(function: FuncOp, calls: Sequence[Sequence[Buffer]]) -> frozenset[int]:
    """Arguments that in some call share bytes with another, one of the two being written."""
    stored = stored_arguments(function)
    overlapping: set[int] = set()
    for buffers in calls:
        for a, b in combinations(range(len(buffers)), 2):
            if buffers[a].overlaps(buffers[b]) and (a in stored or b in stored):
                overlapping |= {a, b}
    return frozenset(overlapping)
