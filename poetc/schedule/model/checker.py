"""Independent checker: replays a schedule step by step and trusts nothing that a solver said.

Shares no code with the solvers. The rules are those of `docs/schedule.md`; each violation raises
`ScheduleError` with the step, the operation and the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.problem import (
    Compute,
    Free,
    PageIn,
    PageOut,
    Place,
    Problem,
    Schedule,
    Step,
)


@dataclass(frozen=True)
class Report:
    """The RAM, time and energy that a schedule really uses.

    `bytes_at_step[s]` is the RAM in use during step s; `peak_step` is the first step at the peak,
    None when the peak is what is in RAM before the first step. `recomputes` are the steps that run
    an operation again. `busy_ns` is the time spent computing, `bus_ns` the time spent in transfers,
    those of variants too (their time less that of the bus counts as computing); without DMA the
    makespan is their sum. What variants stream is not in `page_in_bytes` and `page_out_bytes`.
    """

    peak_bytes: int
    peak_step: int | None
    bytes_at_step: tuple[int, ...]
    storage_bytes: int
    energy_nj: int
    makespan_ns: int
    busy_ns: int
    bus_ns: int
    recomputes: tuple[int, ...]
    page_ins: int
    page_outs: int
    page_in_bytes: int
    page_out_bytes: int
    streamed_in_bytes: int
    streamed_out_bytes: int


class _Replay:
    """State of the machine between two steps."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        tensors = problem.tensors
        self.ram: set[int] = set()
        self.ram_bytes = 0  # of all of them
        self.hold(v for v, t in enumerate(tensors) if t.start is Place.RAM)
        self.stored = {v for v, t in enumerate(tensors) if t.start is Place.STORAGE}
        self.gone: dict[int, int] = {}  # replaced tensor -> the tensor that replaced it
        self.runs = [0] * len(problem.operations)
        self.energy_nj = self.busy_ns = self.bus_ns = 0
        self.clock_ns = self.bus_free_ns = 0
        self.page_in_end_ns: dict[int, int] = {}
        self.page_out_end_ns: dict[int, int] = {}
        self.counts = {PageIn: 0, PageOut: 0}
        self.moved = {PageIn: 0, PageOut: 0}
        self.streamed_in = self.streamed_out = 0  # bytes

    def hold(self, found: Iterable[int]) -> None:
        """Puts tensors into RAM that are not there."""
        for v in found:
            self.ram.add(v)
            self.ram_bytes += self.problem.tensors[v].bytes

    def drop(self, v: int) -> None:
        """Frees a tensor that is in RAM."""
        self.ram.remove(v)
        self.ram_bytes -= self.problem.tensors[v].bytes

    def on_storage(self) -> int:
        """Bytes of all pages. They stay until the end, those of replaced tensors too."""
        return sum(self.problem.tensors[v].stored_bytes for v in self.stored)

    def wait_to_read(self, v: int) -> None:
        """Computing goes on once `v` has arrived; it may be read while it is being paged out."""
        self.clock_ns = max(self.clock_ns, self.page_in_end_ns.get(v, 0))

    def wait_to_overwrite(self, v: int) -> None:
        """Computing goes on once no transfer uses the buffer of `v`."""
        self.wait_to_read(v)
        self.clock_ns = max(self.clock_ns, self.page_out_end_ns.get(v, 0))

    def name(self, v: int) -> str:
        return f"tensor {self.problem.tensors[v].name}"

    def compute(self, step: Compute, index: int) -> int:
        problem, tensors = self.problem, self.problem.tensors
        if not 0 <= step.operation < len(problem.operations):
            raise ScheduleError(f"operation {step.operation} does not exist", index)
        operation = problem.operations[step.operation]
        what = f"operation {operation.name}"
        if self.runs[step.operation] and not operation.repeatable:
            raise ScheduleError(f"{what} runs again but is not repeatable", index)
        if step.variant is not None and not 0 <= step.variant < len(operation.variants):
            raise ScheduleError(f"{what} has no variant {step.variant}", index)
        way = operation.way(step.variant)
        for v in operation.inputs:
            if v in self.gone:
                new = self.name(self.gone[v])
                raise ScheduleError(f"{what} reads {self.name(v)}, which {new} replaced", index)
            if v in way.streamed and v not in self.stored:
                raise ScheduleError(f"{what} streams {self.name(v)}, not on storage", index)
            if v not in way.streamed and v not in self.ram:
                raise ScheduleError(f"{what} reads {self.name(v)}, which is not in RAM", index)
        for v in operation.outputs:
            if v in self.ram:
                raise ScheduleError(f"{what} makes {self.name(v)}, already in RAM", index)
            if v in way.streamed and v in self.stored:
                raise ScheduleError(f"{what} streams {self.name(v)}, on storage already", index)

        shared = 0
        for o, i in step.inplace:
            if (o, i) not in operation.inplace:
                raise ScheduleError(
                    f"{what} may not make {self.name(o)} in the buffer of {self.name(i)}", index
                )
            if o in way.streamed or i in way.streamed:
                raise ScheduleError(
                    f"{what} streams {self.name(o)} or {self.name(i)}, which share a buffer", index
                )
            shared += min(tensors[o].bytes, tensors[i].bytes)
        for side in zip(*step.inplace, strict=True):
            if len(set(side)) < len(side):
                raise ScheduleError(f"{what} shares a buffer in place twice", index)
        for v in operation.outputs:
            old = tensors[v].replaces
            if old is not None and v not in way.streamed and (v, old) not in step.inplace:
                raise ScheduleError(
                    f"{what} must make {self.name(v)} in place of {self.name(old)}", index
                )

        resident = [v for v in operation.outputs if v not in way.streamed]
        used = self.ram_bytes + sum(tensors[v].bytes for v in resident)
        used += way.workspace_bytes - shared
        for v in operation.inputs:
            if v not in way.streamed:
                self.wait_to_read(v)
        for _, i in step.inplace:
            self.wait_to_overwrite(i)
            self.drop(i)
        self.gone |= {old: v for v in operation.outputs if (old := tensors[v].replaces) is not None}
        self.hold(resident)
        for v in operation.outputs:
            if v in way.streamed:
                self.store(v, f"{what}, which streams {self.name(v)},", index)
        self.runs[step.operation] += 1
        self.energy_nj += way.energy_nj
        self.busy_ns += way.time_ns - way.bus_ns
        self.bus_ns += way.bus_ns
        self.streamed_in += way.read_bytes
        self.streamed_out += way.written_bytes
        if problem.dma and way.streamed:
            # It has the bus, too, which is free only when every page that is read is complete.
            self.clock_ns = max(self.clock_ns, self.bus_free_ns)
        self.clock_ns += way.time_ns
        return used

    def store(self, v: int, what: str, index: int) -> None:
        """Gives a tensor a page."""
        self.stored.add(v)
        limit, used = self.problem.storage_bytes, self.on_storage()
        if limit is not None and used > limit:
            raise ScheduleError(f"{what} uses {used} of {limit} bytes of storage", index)

    def transfer(self, step: PageIn | PageOut, time_ns: int, energy_nj: int) -> int:
        """Queues a transfer; returns the RAM in use while it runs."""
        v = step.tensor
        self.energy_nj += energy_nj
        self.bus_ns += time_ns
        if self.problem.dma:
            ends = self.page_in_end_ns if isinstance(step, PageIn) else self.page_out_end_ns
            start = max(self.clock_ns, self.bus_free_ns)
            self.bus_free_ns = ends[v] = start + time_ns
        else:
            self.clock_ns += time_ns
        self.counts[type(step)] += 1
        self.moved[type(step)] += self.problem.tensors[v].stored_bytes
        return self.ram_bytes

    def page_out(self, step: PageOut, index: int) -> int:
        v, tensor = step.tensor, self.problem.tensors[step.tensor]
        if not tensor.pageable:
            raise ScheduleError(f"{self.name(v)} may not be paged", index)
        if v not in self.ram:
            raise ScheduleError(f"page-out of {self.name(v)}, which is not in RAM", index)
        if v in self.stored:
            raise ScheduleError(f"page-out of {self.name(v)}, which is on storage already", index)
        self.store(v, f"page-out of {self.name(v)}", index)
        return self.transfer(step, tensor.pageout_time_ns, tensor.pageout_energy_nj)

    def page_in(self, step: PageIn, index: int) -> int:
        v, tensor = step.tensor, self.problem.tensors[step.tensor]
        if v in self.gone:
            new = self.name(self.gone[v])
            raise ScheduleError(f"page-in of {self.name(v)}, which {new} replaced", index)
        if v not in self.stored:
            raise ScheduleError(f"page-in of {self.name(v)}, which is not on storage", index)
        if v in self.ram:
            raise ScheduleError(f"page-in of {self.name(v)}, which is in RAM already", index)
        self.hold((v,))
        return self.transfer(step, tensor.pagein_time_ns, tensor.pagein_energy_nj)

    def free(self, step: Free, index: int) -> int:
        v = step.tensor
        if v not in self.ram:
            raise ScheduleError(f"free of {self.name(v)}, which is not in RAM", index)
        used = self.ram_bytes
        self.wait_to_overwrite(v)
        self.drop(v)
        return used

    def run(self, step: Step, index: int) -> int:
        """Runs one step; returns the bytes of RAM in use during it."""
        if isinstance(step, Compute):
            return self.compute(step, index)
        if not 0 <= step.tensor < len(self.problem.tensors):
            raise ScheduleError(f"tensor {step.tensor} does not exist", index)
        if isinstance(step, PageOut):
            return self.page_out(step, index)
        if isinstance(step, PageIn):
            return self.page_in(step, index)
        return self.free(step, index)

    def finish(self) -> None:
        problem = self.problem
        for operation, runs in zip(problem.operations, self.runs, strict=True):
            if not runs:
                raise ScheduleError(f"operation {operation.name} never runs")
        for v, tensor in enumerate(problem.tensors):
            if tensor.end is Place.RAM and v not in self.ram:
                raise ScheduleError(f"{self.name(v)} is not in RAM at the end")
            if tensor.end is Place.STORAGE and v not in self.stored:
                raise ScheduleError(f"{self.name(v)} is not on storage at the end")
            if tensor.end is not Place.RAM and v in self.ram:
                raise ScheduleError(f"{self.name(v)} is never freed")


def replay(problem: Problem, steps: Sequence[Step]) -> Report:
    """Runs `steps` and returns what they use; raises `ScheduleError` at the first broken rule."""
    state = _Replay(problem)
    limit = problem.ram_bytes
    peak_bytes, peak_step = state.ram_bytes, None
    if limit is not None and peak_bytes > limit:
        raise ScheduleError(f"{peak_bytes} bytes are in RAM at the start, {limit} are available")
    bytes_at_step, recomputes = [], []
    for index, step in enumerate(steps):
        if isinstance(step, Compute) and step.operation < len(state.runs):
            recomputes += [index] if state.runs[step.operation] else []
        used = state.run(step, index)
        if limit is not None and used > limit:
            what = _describe(problem, step)
            raise ScheduleError(f"{what} needs {used} bytes of RAM, {limit} are available", index)
        bytes_at_step.append(used)
        if used > peak_bytes:
            peak_bytes, peak_step = used, index
    state.finish()
    stored = state.on_storage()
    if problem.storage_bytes is not None and stored > problem.storage_bytes:
        raise ScheduleError(f"{stored} of {problem.storage_bytes} bytes of storage are used")

    makespan_ns = max(state.clock_ns, state.bus_free_ns)
    if problem.deadline_ns is not None and makespan_ns > problem.deadline_ns:
        raise ScheduleError(f"takes {makespan_ns} ns, the deadline is {problem.deadline_ns} ns")
    # nW · ns = 1e-9 nJ, rounded up.
    idle_nj = -(-problem.idle_power_nw * makespan_ns // 10**9)
    return Report(
        peak_bytes=peak_bytes,
        peak_step=peak_step,
        bytes_at_step=tuple(bytes_at_step),
        storage_bytes=stored,
        energy_nj=state.energy_nj + idle_nj,
        makespan_ns=makespan_ns,
        busy_ns=state.busy_ns,
        bus_ns=state.bus_ns,
        recomputes=tuple(recomputes),
        page_ins=state.counts[PageIn],
        page_outs=state.counts[PageOut],
        page_in_bytes=state.moved[PageIn],
        page_out_bytes=state.moved[PageOut],
        streamed_in_bytes=state.streamed_in,
        streamed_out_bytes=state.streamed_out,
    )


def check(problem: Problem, schedule: Schedule) -> Report:
    """Replays `schedule` and compares what it says about itself with what the replay finds."""
    report = replay(problem, schedule.steps)
    for name in ("energy_nj", "makespan_ns", "peak_bytes"):
        claimed, found = getattr(schedule, name), getattr(report, name)
        if claimed != found:
            raise ScheduleError(f"the schedule claims {name} = {claimed}, it is {found}")
    if schedule.bound_nj > report.energy_nj:
        raise ScheduleError(
            f"the schedule uses {report.energy_nj} nJ, its lower bound is {schedule.bound_nj} nJ"
        )
    return report


def _describe(problem: Problem, step: Step) -> str:
    if isinstance(step, Compute):
        return f"operation {problem.operations[step.operation].name}"
    verb = {PageOut: "page-out", PageIn: "page-in", Free: "free"}[type(step)]
    return f"{verb} of tensor {problem.tensors[step.tensor].name}"
