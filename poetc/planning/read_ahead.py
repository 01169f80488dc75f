"""Slices of kernels in tiles that are read while tiles before them run, in RAM that is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from xdsl.dialects import affine
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from poetc.costmodel.cost import kernel_cost
from poetc.costmodel.device import Device
from poetc.costmodel.slices import SliceCosts, slice_costs
from poetc.errors import InputError, TimeLimitError
from poetc.ir.graph import GraphView, tensor_bytes, view_scheduled
from poetc.ir.loops import loops_around
from poetc.ir.poet import (
    CostAttr,
    GraphOp,
    PageType,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileOp,
    slices_ahead,
    tile_starts,
)
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import work
from poetc.page import PAGE_TRAILER_BYTES
from poetc.planning.memory import PLANNED, plan_graph_memory, take_offsets
from poetc.planning.problem import idle_power_nw, storage_of
from poetc.planning.transfers import update_schedule
from poetc.schedule.arena.memory import Layout, lay_out
from poetc.schedule.arena.pack import round_up
from poetc.schedule.model.checker import replay

_WORTH = 10
"""The least ratio of the time that is saved to the time that reading in two parts takes more, as it
costs energy."""


def read_graph_ahead(graph: GraphOp, device: Device, align: int) -> None:
    """Lets the streams of a graph whose memory is planned read ahead where there is room, on a
    device with DMA, and sets what they cost then. Memory is planned again. Raises InputError for a
    graph without a plan."""
    streams = [op for op in graph.block.ops if isinstance(op, StreamOp)]
    limit_bytes = graph.ram
    if not device.dma or not streams or limit_bytes is None:
        return
    if graph.arena_bytes is None:
        raise InputError(f"graph @{graph.sym_name.data} has no arena; run poet-plan-memory first")
    unit = graph.storage_unit
    view = view_scheduled(graph, align=align)
    layout = lay_out(view.problem, view.steps)
    costs = [stream.cost for stream in streams]
    functions = named_in(graph, FuncOp)

    @cache
    def tile_ns(function: str) -> float:
        return kernel_cost(work(functions[function]), device).time_ns

    rates = slice_costs(device)
    _grow(view, layout, _free_bytes(layout, limit_bytes, align), rates, tile_ns, align)
    if not any(map(slices_ahead, streams)):
        return
    offsets = take_offsets(graph, align)
    try:
        plan_graph_memory(graph, align, unit)
    except TimeLimitError:
        # There is room, but not in one piece: what is right behind each workspace stays free.
        for stream, cost in zip(streams, costs, strict=True):
            stream.cost = cost
            for op in slices_ahead(stream):
                op.ahead = op.ahead_blocks = None
        _grow(view, layout, _free_behind(layout, offsets, limit_bytes), rates, tile_ns, align)
        graph.attributes[PLANNED] = DenseArrayBase.from_list(i64, list(offsets))
        plan_graph_memory(graph, align, unit)
    storage, power_nw = storage_of(device, graph.block_bytes), idle_power_nw(device)
    view = view_scheduled(graph, storage=storage, idle_power_nw=power_nw, align=align)
    update_schedule(graph, replay(view.problem, view.steps))


def _alive(layout: Layout, buffer: int) -> list[int]:
    """The buffers that live when a workspace does."""
    now = layout.first[buffer]
    lifetimes = zip(layout.first, layout.last, strict=True)
    return [each for each, (first, last) in enumerate(lifetimes) if first <= now <= last]


def _free_bytes(layout: Layout, limit_bytes: int, align: int) -> dict[int, int]:
    """For each workspace, the bytes that are free while it lives, at any place."""
    return {
        buffer: limit_bytes - sum(round_up(layout.bytes[b], align) for b in _alive(layout, buffer))
        for buffer in layout.workspace
        if buffer is not None
    }


def _free_behind(layout: Layout, offsets: Sequence[int], limit_bytes: int) -> dict[int, int]:
    """For each workspace, the bytes that are free right behind it."""
    found: dict[int, int] = {}
    for buffer in layout.workspace:
        if buffer is not None:
            end = offsets[buffer] + layout.bytes[buffer]
            behind = (offsets[b] for b in _alive(layout, buffer) if offsets[b] >= end)
            found[buffer] = min(behind, default=limit_bytes) - end
    return found


def _grow(
    view: GraphView,
    layout: Layout,
    free: Mapping[int, int],
    costs: SliceCosts,
    tile_ns: Callable[[str], float],
    align: int,
) -> None:
    """Lets streams read ahead in what is `free` while their workspaces live. `tile_ns` is the time
    of all tiles of a function."""
    for op, buffer in zip(view.ops, layout.workspace, strict=True):
        if isinstance(op, StreamOp) and buffer is not None:
            _read_ahead(op, layout.bytes[buffer] + free[buffer], costs, tile_ns, align)


def _read_ahead(
    stream: StreamOp,
    room_bytes: int,
    costs: SliceCosts,
    tile_ns: Callable[[str], float],
    align: int,
) -> None:
    """Reads slices ahead of a stream whose workspace may grow to `room_bytes`: one in each nest of
    loops."""
    cost = stream.cost
    if cost is None:
        return
    begin = round_up(cost.workspace, align)
    chosen: list[_Ahead] = []
    for nest in stream.tiles.block.ops:
        most = (room_bytes - begin) // stream.block_bytes
        found = [each for op in nest.walk() for each in _ways(stream, op, most, costs, tile_ns)]
        best = max(found, key=lambda way: way.saved_ns, default=None)
        if best is None or best.saved_ns <= _WORTH * best.again_ns:
            continue
        chosen.append(best)
        begin = best.take_place(begin, stream.block_bytes, align)
    if not chosen:
        return
    again_ns = sum(way.again_ns for way in chosen)
    saved_ns = min(sum(way.saved_ns for way in chosen), cost.read_ns)
    stream.cost = CostAttr(
        cost.energy_nj + math.ceil(again_ns * costs.power_w),
        cost.time_ns - saved_ns,
        begin,
        cost.flops,
        cost.read_ns - saved_ns,
        cost.write_ns,
    )


@dataclass(frozen=True)
class _Ahead:
    """A slice of which so many blocks are read ahead: the time that it saves, in which `again_ns`
    for reading what remains by itself are counted."""

    op: SliceInOp
    blocks: int
    saved_ns: int
    again_ns: int

    def take_place(self, begin: int, block_bytes: int, align: int) -> int:
        """Gives the blocks a place from `begin` on; where it ends."""
        self.op.ahead = IntegerAttr(begin, i64)
        self.op.ahead_blocks = IntegerAttr(self.blocks, i64)
        return round_up(begin + self.blocks * block_bytes, align)


def _ways(
    stream: StreamOp, op: Operation, most: int, costs: SliceCosts, tile_ns: Callable[[str], float]
) -> Iterator[_Ahead]:
    """To read an operation ahead with at most so many blocks."""
    if most < 1 or not isinstance(op, SliceInOp) or not op.is_one_run:
        return
    if op.page not in stream.tiles.block.args[: len(stream.operands)]:
        return
    tile = _tile_after(op)
    if tile is None:
        return
    assert isinstance(op.page.type, PageType)
    payload = stream.block_bytes - PAGE_TRAILER_BYTES
    page_blocks = -(-tensor_bytes(op.page.type.tensor) // payload)
    needed = min((op.bytes - 1) // payload + 2, page_blocks)
    blocks = min(most, needed)
    reads = prod(len(tile_starts(loop)) for loop in loops_around(op))
    block_ns = stream.block_bytes * costs.read.byte_ns
    ahead_ns = costs.read.run_ns + min(blocks, -(-op.bytes // payload)) * block_ns
    hidden_ns = min(ahead_ns, tile_ns(tile.function.string_value()) / reads)
    again_ns = reads * costs.read.run_ns if blocks < needed else 0.0
    yield _Ahead(op, blocks, int((reads - 1) * hidden_ns - again_ns), math.ceil(again_ns))


def _tile_after(op: SliceInOp) -> TileOp | None:
    """The tiles that run before anything else is moved, once a slice has been read in a loop; None
    if something is."""
    if not isinstance(op.parent_op(), affine.ForOp):
        return None
    after = op.next_op
    while after is not None and not isinstance(after, TileOp | affine.ForOp):
        after = after.next_op
    if isinstance(after, TileOp):
        return after
    tiles = [] if after is None else [each for each in after.walk() if isinstance(each, TileOp)]
    moves = after is not None and any(isinstance(e, SliceInOp | SliceOutOp) for e in after.walk())
    return tiles[0] if len(tiles) == 1 and not moves else None
