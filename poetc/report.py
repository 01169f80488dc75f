"""The summary of a compilation: what was asked, what it takes, how good it is.

Everything about RAM is read from the scheduled graph, so graphs that were scheduled elsewhere are
reported in the same way. `docs/report.md` says what each number means.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from poetc.backends.c.layout import static_ram_bytes
from poetc.budget import Budget
from poetc.diagnosis import Tried
from poetc.driver import Compiled
from poetc.errors import InputError
from poetc.ir.graph import GraphView, tensor_bytes, view_scheduled
from poetc.ir.kinds import TENSOR_KINDS, tensor_kinds
from poetc.ir.locations import kernel_location
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    ComputeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutStartOp,
    RunOp,
    WaitOp,
    is_banked,
    runs_of,
    stays_on_storage,
)
from poetc.ir.stream_use import live_moments, moved_in
from poetc.ir.timeline import Timeline, simulate
from poetc.ir.unschedule import unscheduled
from poetc.planning.inplace import inplace_candidates
from poetc.planning.problem import ScheduleOptions, alignment_of, problem_view, storage_of
from poetc.report_rows import as_html, as_text
from poetc.request import Options
from poetc.schedule import strategies
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place

if TYPE_CHECKING:
    from poetc.backends.c.flash import FlashUse
    from poetc.planning.report import ScheduleReport

KINDS = (*TENSOR_KINDS[:4], "workspace", "transfer_buffers", *TENSOR_KINDS[4:])
"""Kinds of live bytes in the arena."""

LEAST_SECONDS = 1.0
"""For each search for the least RAM."""


@dataclass(frozen=True)
class LiveTensor:
    """A tensor that is in RAM at the peak, or the workspace of the kernel. Bytes with padding."""

    name: str
    kind: str
    bytes: int
    type: str | None


@dataclass(frozen=True)
class Peak:
    """The first moment at which most bytes are live.

    `kernel` is the label of the kernel that runs, or of the next one while `paged_in`, the name of
    a tensor, is being paged in. `location` is the place in the input that it comes from, where that
    is known. All are None at the start of the step. `tensors` are all that is live, largest first.
    """

    bytes: int
    paged_in: str | None
    kernel: str | None
    location: str | None
    tensors: tuple[LiveTensor, ...]

    @property
    def at(self) -> str:
        """The moment in words."""
        if self.paged_in is not None:
            return f"page-in of {self.paged_in}"
        return "the start of the step" if self.kernel is None else f'kernel "{self.kernel}"'


@dataclass(frozen=True)
class LeastRam:
    """The least of all RAM with which the step can run, `params` being in RAM or on storage.

    With `known_bytes` a schedule is known (None: none was found), with less than `bound_bytes`
    there is none. `kernel` is what needs that much, None for what is in RAM between steps.
    """

    params: str
    known_bytes: int | None
    bound_bytes: int
    kernel: str | None
    location: str | None


@dataclass(frozen=True)
class RamReport:
    """RAM in bytes. `caller_bytes` are inputs, outputs and what is frozen, in buffers of the caller
    or in flash, not counted.

    `stack_chain` are the calls that take most stack, None if the stack was not measured. `at_peak`
    splits the live bytes at the peak by kind, `most` is the most of each kind at any moment.
    `scope` is what the budget covers: all of it, or activations.
    """

    budget_bytes: int | None
    scope: str
    arena_bytes: int
    static_bytes: int
    stack_bytes: int
    stack_chain: tuple[str, ...] | None
    peak: Peak
    at_peak: dict[str, int]
    most: dict[str, int]
    least: tuple[LeastRam, ...]
    caller_bytes: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """All of the RAM: `.data`, `.bss`, static data and stack of the program."""
        return Budget(None, self.static_bytes, self.stack_bytes).used_bytes(self.arena_bytes)

    @property
    def waste_bytes(self) -> int:
        """What the arena has beyond the peak of live bytes."""
        return self.arena_bytes - self.peak.bytes

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        peak = asdict(self.peak) | {"at": self.peak.at}
        return asdict(self) | {
            "peak": peak,
            "total_bytes": self.total_bytes,
            "peak_live_bytes": self.peak.bytes,
            "waste_bytes": self.waste_bytes,
            "waste": self.waste_bytes / max(1, self.peak.bytes),
        }


@dataclass(frozen=True)
class Summary:
    """Everything the driver reports. Times in ns, energies in nJ, sizes in bytes.

    What only the scheduler knows is None for a graph that was scheduled before and does not say it.
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
    shards: dict[str, int]
    ram: RamReport
    storage_bytes: int
    recomputes: int
    page_ins: int
    page_in_bytes: int
    page_outs: int
    page_out_bytes: int
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
    stack = compiled.stack
    if graph.block_bytes is not None:
        return _summarize_tiles(compiled, input_name)
    view = view_scheduled(graph, align=alignment_of(options.device))
    original = unscheduled(compiled.module)
    least = least_ram_report(original, options) if least_ram else ()
    sizes = {PageIn: [], PageOut: []}
    for step in view.steps:
        if isinstance(step, PageIn | PageOut):
            sizes[type(step)].append(view.problem.tensors[step.tensor].stored_bytes)
    pages = [i for i in range(len(graph.arguments)) if graph.is_stored(i)]
    frozen = [i for i in pages if stays_on_storage(graph, i) and not is_banked(graph, i)]
    return Summary(
        input=input_name,
        device=options.device.title,
        scheduled_before=report is None,
        deadline_ns=report.problem.deadline_ns if report is not None else None,
        kernels=len(original.computes),
        params="storage" if len(pages) > len(frozen) else "ram",
        pages=options.pages,
        frozen_on_storage_bytes=sum(view.problem.tensors[i].bytes for i in frozen),
        shards={
            graph.param_name(i): len(graph.shards(i))
            for i in range(len(graph.arguments))
            if graph.is_first(i) and graph.shard(i) is not None
        },
        ram=ram_report(options, view, least, stack.chain if stack is not None else None),
        storage_bytes=graph.storage_bytes or 0,
        recomputes=len(graph.computes) - len(original.computes),
        page_ins=len(sizes[PageIn]),
        page_in_bytes=sum(sizes[PageIn]),
        page_outs=len(sizes[PageOut]),
        page_out_bytes=sum(sizes[PageOut]),
        solver_seconds=report.solve_s if report is not None else None,
        interrupted=report is not None and report.interrupted,
        ended_by_clock=report is not None and _ended_by_clock(report, options),
        timeline=timeline_of(graph, options),
        entries={e.name: summarize(e.compiled, input_name, False) for e in compiled.entries},
        **_left_by_scheduler(graph),
    )


def _summarize_tiles(compiled: Compiled, input_name: str) -> Summary:
    """The same for a step with kernels that run in tiles, which came with its schedule."""
    graph, options = compiled.graph, compiled.options
    stack, moved = compiled.stack, moved_in(graph)
    pages = [i for i in range(len(graph.arguments)) if graph.is_stored(i)]
    return Summary(
        input=input_name,
        device=options.device.title,
        scheduled_before=True,
        deadline_ns=None,
        kernels=len(runs_of(graph)),
        params="storage" if pages else "ram",
        pages=options.pages,
        frozen_on_storage_bytes=0,
        shards={},
        ram=_ram_in_tiles(graph, options, stack.chain if stack is not None else None),
        storage_bytes=graph.storage_bytes or 0,
        recomputes=0,
        **asdict(moved),
    )


def _ram_in_tiles(
    graph: GraphOp, options: Options, stack_chain: tuple[str, ...] | None
) -> RamReport:
    kind_of = tensor_kinds(graph)
    most, at_peak, peak = _nothing(), _nothing(), None
    block_bytes = graph.block_bytes or 0
    for moment in live_moments(graph):
        split = _nothing()
        split["workspace"] = moment.workspace_bytes
        split["transfer_buffers"] = block_bytes
        for value in moment.live:
            split[kind_of[value]] += tensor_bytes(value.type)
        most = {kind: max(most[kind], split[kind]) for kind in KINDS}
        if peak is None or sum(split.values()) > sum(at_peak.values()):
            peak, at_peak = moment, split
    assert peak is not None
    live = [
        LiveTensor(value.name_hint or "tensor", kind_of[value], size, str(value.type))
        for value in peak.live
        if (size := tensor_bytes(value.type))
    ]
    if peak.workspace_bytes:
        live.append(LiveTensor("workspace", "workspace", peak.workspace_bytes, None))
    if block_bytes:
        live.append(LiveTensor("block of a page", "transfer_buffers", block_bytes, None))
    op = peak.op
    return RamReport(
        budget_bytes=options.ram_bytes,
        scope=options.ram_scope,
        arena_bytes=static_ram_bytes(graph),
        static_bytes=options.static_bytes,
        stack_bytes=options.stack_bytes,
        stack_chain=stack_chain,
        peak=Peak(
            bytes=sum(at_peak.values()),
            paged_in=op.tensor.name_hint or "tensor" if isinstance(op, PageInOp) else None,
            kernel=op.label.data if isinstance(op, RunOp) else None,
            location=None,
            tensors=tuple(sorted(live, key=lambda tensor: -tensor.bytes)),
        ),
        at_peak=at_peak,
        most=most,
        least=(),
        caller_bytes=caller_bytes(graph),
    )


def _ended_by_clock(report: ScheduleReport, options: Options) -> bool:
    """Whether a search went on until its time limit, so that another run may differ."""
    searched = not strategies.load(options.strategy).constructs
    return searched and not options.counted and report.status != "optimal"


def timeline_of(graph: GraphOp, options: Options) -> Timeline | None:
    """None for transfers that were scheduled for another device, where this one has no storage."""
    moves = any(isinstance(op, AnyPageIn | AnyPageOut) for op in graph.block.ops)
    storage = storage_of(options.device)
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
    """What the scheduler left on the graph, as far as it is there."""
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
        splits=text("splits"),
        energy_nj=number("energy_nj"),
        bound_nj=number("bound_nj"),
        searched=bool(number("searched")),
    )


def ram_report(
    options: Options,
    view: GraphView,
    least: tuple[LeastRam, ...],
    stack_chain: tuple[str, ...] | None,
) -> RamReport:
    """What the scheduled graph of `view`, which has a memory plan, keeps in RAM."""
    graph = view.graph
    kind_of = tensor_kinds(graph)
    kinds = [kind_of[value] for value in view.values]
    tensors = view.problem.tensors
    most = _nothing()
    peak = -1
    holder: _Moment | None = None
    at_peak = most
    for moment in _moments(view):
        split = _nothing()
        split["workspace"] = moment.workspace_bytes
        for v in moment.live:
            split[_kind(moment, v, kinds)] += tensors[v].bytes
        most = {kind: max(most[kind], split[kind]) for kind in KINDS}
        total = sum(split.values())
        if total > peak:
            peak, holder, at_peak = total, moment, split
    assert holder is not None
    names = tensor_names(view)
    live = [
        LiveTensor(names[v], _kind(holder, v, kinds), tensors[v].bytes, str(view.values[v].type))
        for v in sorted(holder.live)
        if tensors[v].bytes
    ]
    if holder.workspace_bytes:
        live.append(LiveTensor("workspace", "workspace", holder.workspace_bytes, None))
    return RamReport(
        budget_bytes=options.ram_bytes,
        scope=options.ram_scope,
        arena_bytes=static_ram_bytes(graph),
        static_bytes=options.static_bytes,
        stack_bytes=options.stack_bytes,
        stack_chain=stack_chain,
        peak=Peak(
            bytes=peak,
            paged_in=None if holder.paged_in is None else names[holder.paged_in],
            kernel=holder.compute.label.data if holder.compute else None,
            location=source_of(holder.compute),
            tensors=tuple(sorted(live, key=lambda tensor: -tensor.bytes)),
        ),
        at_peak=at_peak,
        most=most,
        least=least,
        caller_bytes=caller_bytes(graph),
    )


def caller_bytes(graph: GraphOp) -> dict[str, int]:
    """Bytes of a graph's inputs and outputs in buffers of the caller, and of what is frozen."""
    callers = graph.caller_values()
    frozen = {a for a in graph.arguments if graph.is_frozen(a.index)}
    inputs = {value for value in graph.arguments if value in callers - frozen}
    return {
        "inputs": sum(tensor_bytes(value.type) for value in inputs),
        "outputs": sum(tensor_bytes(value.type) for value in callers - inputs - frozen),
        "frozen": sum(tensor_bytes(value.type) for value in frozen),
    }


def _nothing() -> dict[str, int]:
    return dict.fromkeys(map(str, KINDS), 0)


def tensor_names(view: GraphView) -> list[str]:
    """Names of tensors; the new value of an argument has the name of the argument."""
    tensors = view.problem.tensors
    names: list[str] = []
    for tensor in tensors:
        names.append(tensor.name if tensor.replaces is None else names[tensor.replaces])
    return names


@dataclass(frozen=True)
class _Moment:
    """What is live in the middle of a step, and the kernel that it is for.

    `moving` are the tensors that are there for a transfer only: those that are being paged in, and
    those that are being paged out and not read any more.
    """

    compute: ComputeOp | None
    live: frozenset[int]
    moving: frozenset[int] = frozenset()
    workspace_bytes: int = 0
    paged_in: int | None = None


def _moments(view: GraphView) -> Iterator[_Moment]:
    """The start of the step and every step that may add live bytes, in order."""
    tensors = view.problem.tensors
    live = {v for v, tensor in enumerate(tensors) if tensor.start is Place.RAM}
    yield _Moment(None, frozenset(live))
    coming = iter(view.computes)
    following = next(coming, None)
    ops = list(view.graph.block.ops)
    index = {op: at for at, op in enumerate(ops)}
    steps = dict(zip(view.ops, view.steps, strict=True))
    moves_from: dict[int, int] = {}  # tensor -> from which operation on it is there to be moved

    for at, op in enumerate(ops):
        moving = frozenset(v for v, start in moves_from.items() if start <= at)
        match op, steps.get(op):
            case WaitOp(), _:
                moved = steps[op.start]
                assert isinstance(moved, PageIn | PageOut)
                del moves_from[moved.tensor]
            case _, Compute(k, pairs):
                operation = view.problem.operations[k]
                live -= {operand for _, operand in pairs}
                live |= set(operation.outputs)
                yield _Moment(view.computes[k], frozenset(live), moving, operation.workspace_bytes)
                following = next(coming, None)
            case _, PageIn(v):
                live.add(v)
                if isinstance(op, PageInStartOp):
                    moves_from[v] = at
                    moving |= {v}
                yield _Moment(following, frozenset(live), moving, paged_in=v)
            case PageOutStartOp(), PageOut(v):
                readers = [u.operation for u in op.tensor.uses]
                reads = (index[r] for r in readers if isinstance(r, ComputeOp))
                moves_from[v] = max([at, *reads]) + 1
            case _, Free(v):
                live.discard(v)
            case _:
                pass


def _kind(moment: _Moment, v: int, kinds: list[str]) -> str:
    return "transfer_buffers" if v in moment.moving else kinds[v]


def source_of(compute: ComputeOp | None) -> str | None:
    """Where in the input a kernel is from."""
    location = None if compute is None else kernel_location(compute)
    return None if location is None else str(location)


def least_ram_report(graph: GraphOp, options: Options) -> tuple[LeastRam, ...]:
    """The least RAM of an unscheduled graph on the device, with parameters in RAM and on storage.

    Recomputing, paging and in-place reuse are all allowed, whatever `options` say of them, and
    there is no deadline. Each search ends after `LEAST_SECONDS`.
    """
    from poetc.schedule.model.instance import Instance
    from poetc.schedule.search.infeasibility import least_ram

    places = ("ram", "storage") if options.device.storage is not None else ("ram",)
    used_bytes = options.budget.used_bytes
    may_share = inplace_candidates(graph)
    found: list[LeastRam] = []
    for params in places:
        asked = ScheduleOptions(
            device=options.device, align=alignment_of(options.device), params=params
        )
        try:
            view = problem_view(graph, asked, may_share)
        except InputError:
            # Not every graph can have its parameters on storage.
            continue
        least = least_ram(Instance(view.problem), LEAST_SECONDS)
        known_bytes = None if least.known is None else used_bytes(least.known)
        if found and found[0].known_bytes is not None:
            # All parameters could be paged in before the step, and out after it.
            known_bytes = min(known_bytes or found[0].known_bytes, found[0].known_bytes)
        compute = None if least.operation is None else view.computes[least.operation]
        found.append(
            LeastRam(
                params=params,
                known_bytes=known_bytes,
                bound_bytes=used_bytes(least.bound),
                kernel=None if compute is None else compute.label.data,
                location=source_of(compute),
            )
        )
    return tuple(found)
