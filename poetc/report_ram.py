"""The RAM of a scheduled step, by kind of tensor, and the least RAM that it can run in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from poetc.backends.c.layout import static_ram_bytes
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.ir.graph import GraphView, tensor_bytes
from poetc.ir.kinds import TENSOR_KINDS, tensor_kinds
from poetc.ir.locations import kernel_location
from poetc.ir.poet import (
    GraphOp,
    PageInStartOp,
    PageOutStartOp,
    RunOp,
    WaitOp,
)
from poetc.planning.inplace import inplace_candidates
from poetc.planning.problem import ScheduleOptions, alignment_of, problem_view
from poetc.planning.report import ScheduleReport
from poetc.request import Options
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place

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
    """The least of all RAM with which the step can run, `params` being in RAM or on storage, and
    kernels whole or in `tiles`.

    With `known_bytes` a schedule is known (None: none was found), with less than `bound_bytes`
    there is none. `kernel` is what needs that much, None for what is in RAM between steps, or
    before the first kernel or after the last one.
    """

    params: str
    known_bytes: int | None
    bound_bytes: int
    kernel: str | None
    location: str | None
    tiles: bool = False


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
        """The bytes of the arena beyond the peak of live bytes."""
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
class Moment:
    """The tensors that are live in the middle of a step, with workspaces and buffers of transfers,
    and the kernel that they are for: the one that runs, or the next one while `paged_in` is being
    paged in."""

    tensors: tuple[LiveTensor, ...]
    kernel: RunOp | None = None
    paged_in: str | None = None

    @cached_property
    def split(self) -> dict[str, int]:
        """Live bytes by kind."""
        found = dict.fromkeys(map(str, KINDS), 0)
        for tensor in self.tensors:
            found[tensor.kind] += tensor.bytes
        return found


def ram_report(
    options: Options,
    graph: GraphOp,
    moments: Iterable[Moment],
    least: tuple[LeastRam, ...],
    stack_chain: tuple[str, ...] | None,
) -> RamReport:
    """The RAM of a scheduled graph with a memory plan, from its moments."""
    most = dict.fromkeys(map(str, KINDS), 0)
    peak_bytes, peak = -1, Moment(())
    for moment in moments:
        most = {kind: max(most[kind], moment.split[kind]) for kind in KINDS}
        if (live_bytes := sum(moment.split.values())) > peak_bytes:
            peak_bytes, peak = live_bytes, moment
    kernel = peak.kernel
    return RamReport(
        budget_bytes=options.ram_bytes,
        scope=options.ram_scope,
        arena_bytes=static_ram_bytes(graph),
        static_bytes=options.static_bytes,
        stack_bytes=options.stack_bytes,
        stack_chain=stack_chain,
        peak=Peak(
            bytes=peak_bytes,
            paged_in=peak.paged_in,
            kernel=None if kernel is None else kernel.label.data,
            location=source_of(kernel),
            tensors=tuple(
                sorted((t for t in peak.tensors if t.bytes), key=lambda tensor: -tensor.bytes)
            ),
        ),
        at_peak=peak.split,
        most=most,
        least=least,
        caller_bytes=caller_bytes(graph),
    )


def _workspace(size_bytes: int) -> LiveTensor:
    return LiveTensor("workspace", "workspace", size_bytes, None)


def moments(view: GraphView) -> Iterator[Moment]:
    """The start of the step and every step that may add live bytes, in order."""
    kind_of, names = tensor_kinds(view.graph), tensor_names(view)
    tensors = [
        LiveTensor(name, kind_of[value], tensor.bytes, str(value.type))
        for name, value, tensor in zip(names, view.values, view.problem.tensors, strict=True)
    ]
    block_bytes = view.graph.block_bytes or 0
    block = LiveTensor("block of a page", "transfer_buffers", block_bytes, None)
    live = {v for v, tensor in enumerate(view.problem.tensors) if tensor.start is Place.RAM}

    def moment(
        kernel: RunOp | None,
        moving: frozenset[int] = frozenset(),
        workspace_bytes: int = 0,
        paged_in: int | None = None,
    ) -> Moment:
        """`moving` are the tensors that are there for a transfer only: those that are being paged
        in, and those that are being paged out and not read any more."""
        here = (
            replace(tensors[v], kind="transfer_buffers") if v in moving else tensors[v]
            for v in sorted(live)
        )
        name = None if paged_in is None else names[paged_in]
        return Moment((*here, _workspace(workspace_bytes), block), kernel, name)

    yield moment(None)
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
            case _, Compute(k, pairs, variant):
                operation = view.problem.operations[k]
                way = operation.way(variant)
                live -= {operand for _, operand in pairs}
                live |= set(operation.outputs) - way.streamed
                yield moment(view.computes[k], moving, way.workspace_bytes)
                following = next(coming, None)
            case _, PageIn(v):
                live.add(v)
                if isinstance(op, PageInStartOp):
                    moves_from[v] = at
                    moving |= {v}
                yield moment(following, moving, paged_in=v)
            case PageOutStartOp(), PageOut(v):
                readers = [u.operation for u in op.tensor.uses]
                reads = (index[r] for r in readers if isinstance(r, RunOp))
                moves_from[v] = max([at, *reads]) + 1
            case _, Free(v):
                live.discard(v)
            case _:
                pass


def source_of(compute: RunOp | None) -> str | None:
    """The place in the input that a kernel is from."""
    location = None if compute is None else kernel_location(compute)
    return None if location is None else str(location)


def tensor_names(view: GraphView) -> list[str]:
    """Names of tensors; the new value of an argument has the name of the argument."""
    tensors = view.problem.tensors
    names: list[str] = []
    for tensor in tensors:
        names.append(tensor.name if tensor.replaces is None else names[tensor.replaces])
    return names


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


def least_ram_of_tiles(report: ScheduleReport | None) -> tuple[LeastRam, ...]:
    """The least RAM with kernels in tiles, as the search found it; nothing where none run so."""
    found = None if report is None else report.least_in_tiles
    if found is None:
        return ()
    kernel, source = (None, None)
    if found.kernel is not None:
        kernel, source = found.kernel.label, found.kernel.source
    return (LeastRam("storage", found.known_bytes, found.bound_bytes, kernel, source, tiles=True),)


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
