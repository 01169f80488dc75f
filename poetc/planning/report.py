"""The decisions for a graph: the report, and the attributes that are left on the graph."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    i64,
)

from poetc.diagnosis import LeastRam, Tried
from poetc.ir.poet import GraphOp
from poetc.planning.problem import ScheduleOptions, mark_cache_line, unit_bytes
from poetc.schedule.arena.memory import MemoryPlan
from poetc.schedule.model.checker import Report
from poetc.schedule.model.problem import Problem, Step
from poetc.schedule.search.state import TOLERANCE


@dataclass(frozen=True)
class ScheduleReport:
    """The schedule of one graph, and its costs.

    `use` is what the checker counted; `unlimited` the same for the program order with unlimited
    RAM, parameters in RAM, without recomputing or paging. `params` says where parameters are
    between steps: "ram" or "storage". `bound_nj`: no schedule within the limits uses less, with the
    parameters in any of the ways that were `tried`.
    `arena_bytes` is the RAM that it was scheduled for, less than asked where the arena would not
    have fitted otherwise; `attempts` counts the tries, `moves` the page-ins that are there only so
    that an arena fits. `memory` is None until memory is planned.
    `interrupted` says that the user stopped the search and this is the best that it had found,
    `late` that the time limit passed before the search had done all that it was to do.
    `predicted_ns` is what the step takes by the profile of the device, the places of pages taken
    into account; None without a profile, and before memory is planned. `least_in_tiles` is the
    least RAM with kernels in tiles, if some run so.
    """

    problem: Problem
    steps: tuple[Step, ...]
    use: Report
    unlimited: Report
    bound_nj: int
    status: str
    strategy: str
    arena_bytes: int | None
    solve_s: float
    log: tuple[str, ...] = ()
    attempts: int = 1
    moves: int = 0
    memory: MemoryPlan | None = None
    interrupted: bool = False
    late: bool = False
    params: str = "ram"
    predicted_ns: int | None = None
    tried: tuple[Tried, ...] = ()
    least_in_tiles: LeastRam | None = None

    @property
    def waste_bytes(self) -> int:
        """Bytes of the arena beyond the most that are alive at once; 0 before memory is planned."""
        return max(0, self.memory.arena_bytes - self.use.peak_bytes) if self.memory else 0

    @property
    def gap(self) -> float:
        """(energy − bound) / energy."""
        energy_nj = self.use.energy_nj
        return (energy_nj - self.bound_nj) / energy_nj if energy_nj else 0.0


def with_makespan(use: Report, makespan_ns: int, idle_power_nw: int) -> Report:
    """The report of the same steps if they take another time."""

    def idle_nj(time_ns: int) -> int:
        return -(-idle_power_nw * time_ns // 10**9)

    energy_nj = use.energy_nj - idle_nj(use.makespan_ns) + idle_nj(makespan_ns)
    return replace(use, makespan_ns=makespan_ns, energy_nj=energy_nj)


def with_bound(report: ScheduleReport, bound_nj: int, gap: float) -> ScheduleReport:
    """`report` with a bound that holds for more than its own search."""
    report = replace(report, bound_nj=min(report.bound_nj, bound_nj))
    if report.status == "optimal" and not within_gap(report.use.energy_nj, report.bound_nj, gap):
        report = replace(report, status="feasible")
    return report


def within_gap(energy_nj: float, bound_nj: float, gap: float) -> bool:
    """Whether nothing that is left out may be better by more than the gap."""
    return energy_nj - bound_nj <= max(gap, TOLERANCE) * max(energy_nj, 1.0)


def describe_asked(graph: GraphOp, options: ScheduleOptions) -> None:
    """Leaves on the graph what it was scheduled for."""
    if options.arena_bytes is not None:
        # A budget for activations alone is not what the verifier means by `ram`.
        name = "ram" if options.ram_scope == "all" else "activations_ram"
        graph.attributes[name] = IntegerAttr(options.arena_bytes, i64)
    if any(graph.is_stored(i) for i in range(len(graph.arguments))):
        # For the memory planner, which knows no device.
        graph.attributes["storage_unit"] = IntegerAttr(unit_bytes(options), i64)
    mark_cache_line(graph, options.device)
    graph.attributes.pop("storage", None)
    if options.device is not None and options.device.chosen_storage is not None:
        graph.attributes["storage"] = StringAttr(options.device.chosen_storage)


def describe(graph: GraphOp, report: ScheduleReport) -> None:
    """Leaves on the graph what was found."""
    use, unlimited = report.use, report.unlimited
    numbers = {
        "energy_nj": use.energy_nj,
        "bound_nj": report.bound_nj,
        "makespan_ns": use.makespan_ns,
        "peak_bytes": use.peak_bytes,
        "recomputes": len(use.recomputes),
        "page_ins": use.page_ins,
        "page_outs": use.page_outs,
        "unlimited_energy_nj": unlimited.energy_nj,
        "unlimited_makespan_ns": unlimited.makespan_ns,
        "unlimited_peak_bytes": unlimited.peak_bytes,
    }
    if report.predicted_ns is not None:
        numbers["predicted_ns"] = report.predicted_ns
    if report.problem.deadline_ns is not None:
        numbers["deadline_ns"] = report.problem.deadline_ns
    graph.attributes["schedule"] = DictionaryAttr(
        {
            "strategy": StringAttr(report.strategy),
            "status": StringAttr(report.status),
            "gap": FloatAttr(round(report.gap, 6), Float64Type()),
            **{name: IntegerAttr(value, i64) for name, value in numbers.items()},
            "params": StringAttr(report.params),
            "tried": ArrayAttr(map(_attribute, report.tried)),
        }
    )


def _attribute(tried: Tried) -> DictionaryAttr:
    numbers = {"energy_nj": tried.energy_nj, "bound_nj": tried.bound_nj}
    return DictionaryAttr(
        {
            "params": StringAttr(tried.params),
            "searched": IntegerAttr.from_bool(tried.searched),
            **({"tiles": IntegerAttr.from_bool(True)} if tried.tiles else {}),
            **{name: IntegerAttr(n, i64) for name, n in numbers.items() if n is not None},
        }
    )
