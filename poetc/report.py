"""The summary of a compilation: what was asked, what it takes, how good it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from poetc.ir.graph import view_scheduled
from poetc.ir.poet import GraphOp
from poetc.pipeline import Compiled, Options
from poetc.schedule.problem import Compute, Free, PageIn, Place
from poetc.units import format_bytes, format_energy, format_time

KINDS: tuple[str, ...] = ("parameters", "inputs", "results", "intermediates", "workspace")
"""Kinds of arena bytes. New values of parameters count as parameters."""


@dataclass(frozen=True)
class RamReport:
    """RAM in bytes. `at_peak` splits the live bytes at the peak, `peak_at` names the kernel."""

    budget_bytes: int | None
    arena_bytes: int
    static_bytes: int
    stack_bytes: int
    peak_live_bytes: int
    peak_at: str
    at_peak: dict[str, int]

    @property
    def total_bytes(self) -> int:
        return self.arena_bytes + self.static_bytes + self.stack_bytes

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"total_bytes": self.total_bytes}


@dataclass(frozen=True)
class Summary:
    """Everything the driver reports. Times in ns, energies in nJ, sizes in bytes."""

    input: str
    device: str
    deadline_ns: int | None
    kernels: int
    ram: RamReport
    storage_bytes: int
    recomputes: int
    page_ins: int
    page_in_bytes: int
    page_outs: int
    page_out_bytes: int
    time_ns: int
    unlimited_time_ns: int
    energy_nj: int
    unlimited_energy_nj: int
    bound_nj: int
    gap: float
    status: str
    strategy: str
    solver_seconds: float
    interrupted: bool

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"ram": self.ram.to_json()}

    def to_text(self) -> str:
        """The summary for a terminal, one topic a block."""
        ram = self.ram
        rows: list[tuple[str, str]] = [
            ("Input", f"{self.input}, {self.kernels} kernels"),
            ("Device", self.device),
            ("RAM budget", format_bytes(ram.budget_bytes) if ram.budget_bytes else "unlimited"),
            ("Deadline", format_time(self.deadline_ns) if self.deadline_ns else "none"),
            ("", ""),
            ("RAM used", format_bytes(ram.total_bytes)),
            ("  arena", format_bytes(ram.arena_bytes)),
            ("  static data", format_bytes(ram.static_bytes)),
            ("  stack reserve", format_bytes(ram.stack_bytes)),
            ("Peak of live bytes", f"{format_bytes(ram.peak_live_bytes)} at {ram.peak_at}"),
            *(
                (f"  {kind}", format_bytes(ram.at_peak[kind]))
                for kind in KINDS
                if ram.at_peak[kind]
            ),
            ("Storage used", format_bytes(self.storage_bytes)),
            ("", ""),
            ("Recomputed kernels", str(self.recomputes)),
            ("Page-ins", f"{self.page_ins}, {format_bytes(self.page_in_bytes)}"),
            ("Page-outs", f"{self.page_outs}, {format_bytes(self.page_out_bytes)}"),
            ("Time", _against(format_time(self.time_ns), self.time_ns, self.unlimited_time_ns)),
            (
                "Energy",
                _against(format_energy(self.energy_nj), self.energy_nj, self.unlimited_energy_nj),
            ),
            ("Energy bound", f"{format_energy(self.bound_nj)} (gap {self.gap:.2%}, {self.status})"),
            ("Solver", f"{self.strategy}, {self.solver_seconds:.1f} s"),
        ]
        if self.interrupted:
            rows.append(("Note", "interrupted: the best schedule found so far"))
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {text}".rstrip() for label, text in rows)


def _against(text: str, value: int, unlimited: int) -> str:
    return f"{text} ({value / max(1, unlimited):.4f} of unlimited)"


def summarize(compiled: Compiled, options: Options, input_name: str) -> Summary:
    """The summary of a compilation that scheduled its input."""
    report = compiled.report
    assert report is not None
    use, unlimited = report.use, report.unlimited
    return Summary(
        input=input_name,
        device=options.device.name,
        deadline_ns=report.problem.deadline_ns,
        kernels=len(report.problem.operations),
        ram=ram_report(compiled.graph, options),
        storage_bytes=compiled.graph.storage_bytes or 0,
        recomputes=len(use.recomputes),
        page_ins=use.page_ins,
        page_in_bytes=use.page_in_bytes,
        page_outs=use.page_outs,
        page_out_bytes=use.page_out_bytes,
        time_ns=use.makespan_ns,
        unlimited_time_ns=unlimited.makespan_ns,
        energy_nj=use.energy_nj,
        unlimited_energy_nj=unlimited.energy_nj,
        bound_nj=report.bound_nj,
        gap=report.gap,
        status=report.status,
        strategy=report.strategy,
        solver_seconds=report.solve_s,
        interrupted=report.interrupted,
    )


def ram_report(graph: GraphOp, options: Options) -> RamReport:
    """What a scheduled graph with a memory plan keeps in RAM."""
    view = view_scheduled(graph)
    tensors = view.problem.tensors
    params = {i for i in range(len(graph.arguments)) if graph.role(i) == "param"}
    returned = set(graph.return_op.arguments)

    def kind(v: int) -> str:
        if v in params or tensors[v].replaces is not None:
            return "parameters"
        if v < len(graph.arguments):
            return "inputs"
        return "results" if view.values[v] in returned else "intermediates"

    live = {v for v, t in enumerate(tensors) if t.start is Place.RAM}
    best: tuple[int, str, dict[str, int]] = (-1, "the start of the step", {})

    def note(where: str, workspace: int) -> None:
        nonlocal best
        total = sum(tensors[v].bytes for v in live) + workspace
        if total > best[0]:
            split: dict[str, int] = dict.fromkeys(KINDS, 0)
            split["workspace"] = workspace
            for v in live:
                split[kind(v)] += tensors[v].bytes
            best = (total, where, split)

    note(best[1], 0)
    for step in view.steps:
        match step:
            case Compute(k, pairs):
                operation = view.problem.operations[k]
                live -= {operand for _, operand in pairs}
                live |= set(operation.outputs)
                note(f'kernel "{operation.name}"', operation.workspace_bytes)
            case PageIn(v):
                live.add(v)
                note(f"page-in of {tensors[v].name}", 0)
            case Free(v):
                live.discard(v)
            case _:
                pass
    return RamReport(
        budget_bytes=options.ram_bytes,
        arena_bytes=graph.arena_bytes or 0,
        static_bytes=options.static_bytes,
        stack_bytes=options.stack_bytes,
        peak_live_bytes=best[0],
        peak_at=best[1],
        at_peak=best[2],
    )
