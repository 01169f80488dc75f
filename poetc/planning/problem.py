"""The scheduling problem of a graph: what it is scheduled for, and its view for the solver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import IntegerAttr, i64

from poetc.budget import Budget, Deadline
from poetc.costmodel.cost import pagein_cost, pageout_cost
from poetc.costmodel.device import DEFAULT_WRITE_UNIT_BYTES, NO_CACHE_LINE_BYTES, Device
from poetc.errors import InputError
from poetc.ir.graph import ALIGN_BYTES, GraphView, MayShare, Storage, Transfer, view_unscheduled
from poetc.ir.poet import GraphOp
from poetc.options import SearchOptions
from poetc.page import page_bytes
from poetc.planning.inplace import inplace_candidates
from poetc.planning.variants import KnownTiles, with_variants
from poetc.schedule.heuristics.order import low_peak_order
from poetc.schedule.heuristics.reorder import permuted
from poetc.schedule.model.clock import Clock, Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Problem, Step
from poetc.units import check_limit

NO_LIMIT = Budget(None)

VARIANTS_SHARE = 0.5
"""The share of the time limit in which ways to run kernels in tiles are looked for."""

LEAST_SHARE = 0.8
"""The same for one way to run each kernel that does not fit as it is: without it, there is no
schedule."""


@dataclass(frozen=True)
class ScheduleOptions(SearchOptions):
    """The limits and aims of a schedule, and the effort to find one.

    A `budget` without a limit means the program order with frees. `deadline_ns` bounds the
    makespan. Without a `device` there is no auxiliary storage. `gap` is the optimality gap to
    stop at, relative to the energy. `params` is "ram", "storage", or "auto": where that takes less
    energy within the limits. The `clock` counts the work of all searches; without one each call has
    its own. Where the budget has a block of a page, kernels may run in tiles; what is found out of
    them is kept in `known_tiles`. Pages are in blocks if any does, or, with `in_blocks`, in any
    case.
    """

    budget: Budget = NO_LIMIT
    deadline_ns: int | None = None
    device: Device | None = None
    align: int = ALIGN_BYTES
    params: str = "ram"
    in_blocks: bool = False
    clock: Clock | None = field(default=None, compare=False)
    known_tiles: KnownTiles | None = field(default=None, compare=False)

    @property
    def arena_bytes(self) -> int | None:
        """The RAM of the arena; None is no limit."""
        return self.budget.arena_bytes

    @property
    def block_bytes(self) -> int | None:
        """The size of the blocks of pages, where kernels may run in tiles; None where they may
        not."""
        return self.budget.block_bytes or None

    def new_clock(self) -> Clock:
        """A clock of the time limit."""
        return Clock(self.time_limit_s, counted=self.counted)

    def part(self, share: float) -> Effort:
        """The effort of such a share of the time limit, from now on."""
        clock = self.clock or self.new_clock()
        until_s = clock.used_s + share * self.time_limit_s
        return Effort(clock=clock, ended=lambda: clock.used_s >= until_s or clock.left_s <= 0)

    @property
    def now_s(self) -> float:
        """The seconds of the time limit that were used (`Clock.used_s`)."""
        return 0.0 if self.clock is None else self.clock.used_s

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return self.clock is not None and self.clock.left_s <= 0


def alignment_of(device: Device | None) -> int:
    """The alignment in bytes of tensors in the arena."""
    return max(ALIGN_BYTES, device.alignment_bytes if device is not None else 1)


def storage_of(device: Device, block_bytes: int | None = None) -> Storage | None:
    """The storage of `device`, None if it has none. A page is its tensor and a trailer, or blocks
    with one each, which the processor moves itself."""
    if device.storage is None:
        return None

    def read(bytes: int) -> Transfer:
        return Transfer(*pagein_cost(page_bytes(bytes, block_bytes=block_bytes), device))

    def write(bytes: int) -> Transfer:
        return Transfer(*pageout_cost(page_bytes(bytes, block_bytes=block_bytes), device))

    dma = device.dma and block_bytes is None
    # A processor that moves pages itself does so through its cache.
    line_bytes = device.cache_line_bytes if dma else NO_CACHE_LINE_BYTES
    return Storage(read, write, dma, line_bytes=line_bytes)


def problem_view(
    graph: GraphOp, options: ScheduleOptions, may_share: MayShare | None = None
) -> GraphView:
    """The scheduling problem of an unscheduled graph under `options`.

    For `params="auto"` it is that with parameters in RAM. With parameters on storage the operations
    are in the order that `poet-order{params=storage}` would give them, and have variants where
    kernels may run in tiles: those that pay within the RAM, or, without a limit, those that need
    least. `may_share` saves proving again which results may take over which
    buffers.
    """
    limited = options.arena_bytes is not None or options.deadline_ns is not None
    missing = next((op for op in graph.computes if op.cost is None), None)
    if limited and missing is not None:
        raise InputError(
            f'poet.compute "{missing.label.data}" has no cost: poet-annotate comes before '
            "poet-schedule"
        )
    for name, limit in (("ram", options.arena_bytes), ("deadline", options.deadline_ns)):
        if limit is not None:
            check_limit(limit, name)
    device = options.device
    store_params = options.params == "storage"
    if store_params and (device is None or device.storage is None):
        which = f"; {device.title} has none" if device else ", and no device is given"
        raise InputError(f"parameters on storage need a device with storage{which}")
    block_bytes = options.block_bytes if store_params else None
    view = view_unscheduled(
        graph,
        storage=storage_of(device, block_bytes) if device else None,
        ram_bytes=options.arena_bytes,
        deadline_ns=options.deadline_ns,
        idle_power_nw=idle_power_nw(device),
        align=options.align,
        ram_scope=options.ram_scope,
        store_params=store_params,
        may_share=may_share or inplace_candidates(graph),
    )
    if not store_params:
        return view
    # The graph was ordered for parameters that are always there.
    order = low_peak_order(view.problem)
    computes = tuple(view.computes[k] for k in order)
    view = replace(view, problem=permuted(view.problem, order), computes=computes)
    if block_bytes is None:
        return view
    assert device is not None
    known = options.known_tiles or KnownTiles()
    efforts = options.part(VARIANTS_SHARE), options.part(LEAST_SHARE)
    return with_variants(view, device, options.arena_bytes, options.align, known, *efforts)


def deadline_of(graph: GraphOp, deadline: Deadline | None) -> int | None:
    """A deadline in ns; the unlimited step runs each kernel once."""
    if deadline is None:
        return None
    return deadline.within_ns(sum(c.cost.time_ns for c in graph.computes if c.cost is not None))


def unit_bytes(options: ScheduleOptions) -> int:
    """Unit of the storage image."""
    storage = options.device.storage if options.device else None
    return storage.write_unit_bytes if storage else DEFAULT_WRITE_UNIT_BYTES


def idle_power_nw(device: Device | None) -> int:
    return round(device.idle_power_w * 1e9) if device else 0


def block_bytes_of(options: ScheduleOptions, steps: Iterable[Step]) -> int | None:
    """The size of the blocks of pages, if any of the steps runs in tiles, or they are `in_blocks`
    in any case; else a page is in one piece."""
    tiles = any(isinstance(step, Compute) and step.variant is not None for step in steps)
    return options.block_bytes if tiles or options.in_blocks else None


def mark_cache_line(graph: GraphOp, device: Device | None) -> None:
    """Leaves on the graph that pages do not go through the cache of `device`, if that is so."""
    storage = storage_of(device, graph.block_bytes) if device else None
    if storage is not None and storage.line_bytes > NO_CACHE_LINE_BYTES:
        graph.attributes["cache_line_bytes"] = IntegerAttr(storage.line_bytes, i64)


def instance_of(problem: Problem, options: SearchOptions) -> Instance:
    """A problem with what the options allow."""
    return Instance(problem, remat=options.remat, paging=options.paging)
