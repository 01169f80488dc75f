"""The summary of a compilation: what was asked, what it takes, how good it is.

Everything about RAM is read from the scheduled graph, so graphs that were scheduled elsewhere are
reported in the same way. `docs/report.md` says what each number means.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from poetc.budget import Budget
from poetc.diagnosis import Tried
from poetc.driver import Compiled
from poetc.ir.graph import view_scheduled
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    GraphOp,
    StreamOp,
    is_banked,
    runs_of,
    stays_on_storage,
)
from poetc.ir.stream_use import moved_in
from poetc.ir.timeline import Timeline, simulate
from poetc.ir.unschedule import origins, unscheduled
from poetc.planning.problem import alignment_of, storage_of
from poetc.report_ram import (
    LeastRam,
    RamReport,
    least_ram_of_tiles,
    least_ram_report,
    moments,
    ram_report,
)
from poetc.report_rows import as_html, as_text
from poetc.request import Options
from poetc.schedule import strategies

if TYPE_CHECKING:
    from poetc.backends.c.flash import FlashUse
    from poetc.planning.report import ScheduleReport


@dataclass(frozen=True)
class Summary:
    """Everything the driver reports. Times in ns, energies in nJ, sizes in bytes.

    What only the scheduler knows is None for a graph that was scheduled before and does not say it.
    `streams` are runs of kernels in tiles; page-ins and page-outs are also those of their slices.
    With `ended_by_clock` the time limit ended the search while the gap was open. `flash` is None if
    it was not measured. `entries` are other entry points by name.
    """

    input: str
    device: str
    scheduled_before: bool
    deadline_ns: int | None
    kernels: int
    params: str
    pages: str
    frozen_on_storage_bytes: int
    ram: RamReport
    storage_bytes: int
    recomputes: int
    page_ins: int
    page_in_bytes: int
    page_outs: int
    page_out_bytes: int
    streams: int = 0
    time_ns: int | None = None
    predicted_time_ns: int | None = None
    timeline: Timeline | None = None
    unlimited_time_ns: int | None = None
    energy_nj: int | None = None
    unlimited_energy_nj: int | None = None
    bound_nj: int | None = None
    gap: float | None = None
    status: str | None = None
    strategy: str | None = None
    tried: tuple[Tried, ...] | None = None
    solver_seconds: float | None = None
    interrupted: bool = False
    ended_by_clock: bool = False
    flash: FlashUse | None = None
    entries: dict[str, Summary] = field(default_factory=dict)

    @property
    def ram_of_all_bytes(self) -> int:
        """The RAM of the step and of other entry points, which share it."""
        rams = [each.ram for each in (self, *self.entries.values())]
        return Budget(None, self.ram.static_bytes, max(r.stack_bytes for r in rams)).used_bytes(
            max(r.arena_bytes for r in rams)
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        timeline = None if self.timeline is None else self.timeline.to_json()
        tried = None if self.tried is None else [asdict(each) for each in self.tried]
        return plain | {
            "ram": self.ram.to_json(),
            "timeline": timeline,
            "tried": tried,
            "flash": None if self.flash is None else self.flash.to_json(),
            "entries": {name: entry.to_json() for name, entry in self.entries.items()},
            "ram_of_all_bytes": self.ram_of_all_bytes,
        }

    def to_text(self) -> str:
        """The summary for a terminal, one topic a block."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """The summary for a notebook."""
        return as_html(self)


def summarize(compiled: Compiled, input_name: str, least_ram: bool = True) -> Summary:
    """The summary of a compilation, also of an input that was scheduled already; without
    `least_ram`, for which it searches, its `ram.least` is empty."""
    graph, report, options = compiled.graph, compiled.report, compiled.options
    stack_chain = None if compiled.stack is None else compiled.stack.chain
    view = view_scheduled(graph, align=alignment_of(options.device))
    runs, origin = runs_of(graph), origins(graph)
    kernels = sum(all(origin[result] is result for result in run.results) for run in runs)
    streams = sum(isinstance(run, StreamOp) for run in runs)
    least: tuple[LeastRam, ...] = ()
    if least_ram and streams:
        # A kernel that runs in tiles is not there as a whole any more.
        least = least_ram_of_tiles(report)
    elif least_ram:
        least = least_ram_report(unscheduled(compiled.module), options)
    pages = [i for i in range(len(graph.arguments)) if graph.is_stored(i)]
    frozen = [i for i in pages if stays_on_storage(graph, i) and not is_banked(graph, i)]
    return Summary(
        input=input_name,
        device=options.device.title,
        scheduled_before=report is None,
        deadline_ns=report.problem.deadline_ns if report is not None else None,
        kernels=kernels,
        streams=streams,
        params="storage" if len(pages) > len(frozen) else "ram",
        pages=options.pages,
        frozen_on_storage_bytes=sum(view.problem.tensors[i].bytes for i in frozen),
        ram=ram_report(options, graph, moments(view), least, stack_chain),
        storage_bytes=graph.storage_bytes or 0,
        recomputes=len(runs) - kernels,
        **asdict(moved_in(graph, alignment_of(options.device))),
        solver_seconds=report.solve_s if report is not None else None,
        interrupted=report is not None and report.interrupted,
        ended_by_clock=report is not None and _ended_by_clock(report, options),
        timeline=timeline_of(graph, options),
        entries={e.name: summarize(e.compiled, input_name, False) for e in compiled.entries},
        **_left_by_scheduler(graph),
    )


def _ended_by_clock(report: ScheduleReport, options: Options) -> bool:
    """Whether a search went on until its time limit, so that another run may differ."""
    searched = not strategies.load(options.strategy).constructs
    return searched and (report.late or not options.counted) and report.status != "optimal"


def timeline_of(graph: GraphOp, options: Options) -> Timeline | None:
    """None for transfers that were scheduled for another device, where this one has no storage."""
    moves = any(isinstance(op, AnyPageIn | AnyPageOut) for op in graph.block.ops)
    storage = storage_of(options.device, graph.block_bytes)
    return (
        None
        if moves and storage is None
        else simulate(graph, storage, alignment_of(options.device))
    )


_SCHEDULE_ATTRIBUTES = {
    "makespan_ns": "time_ns",
    "predicted_ns": "predicted_time_ns",
    "unlimited_makespan_ns": "unlimited_time_ns",
    "energy_nj": "energy_nj",
    "unlimited_energy_nj": "unlimited_energy_nj",
    "bound_nj": "bound_nj",
    "gap": "gap",
    "status": "status",
    "strategy": "strategy",
    "tried": "tried",
}
"""Entries of a graph's `schedule` and the fields of `Summary` that they are."""


def _left_by_scheduler(graph: GraphOp) -> dict[str, Any]:
    """The scheduler's attributes of the graph, as far as they are there."""
    found = graph.attributes.get("schedule")
    entries = found.data if isinstance(found, DictionaryAttr) else {}
    return {name: _plain(entries.get(entry)) for entry, name in _SCHEDULE_ATTRIBUTES.items()}


def _plain(attribute: object) -> int | float | str | tuple[Tried, ...] | None:
    match attribute:
        case IntegerAttr() | FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case ArrayAttr():
            return tuple(_tried(each) for each in attribute)
        case _:
            return None


def _tried(attribute: Attribute) -> Tried:
    assert isinstance(attribute, DictionaryAttr)
    data = attribute.data

    def text(name: str) -> str:
        found = data[name]
        assert isinstance(found, StringAttr)
        return found.data

    def number(name: str) -> int | None:
        found = data.get(name)
        return found.value.data if isinstance(found, IntegerAttr) else None

    return Tried(
        params=text("params"),
        energy_nj=number("energy_nj"),
        bound_nj=number("bound_nj"),
        searched=bool(number("searched")),
        tiles=bool(number("tiles")),
    )
