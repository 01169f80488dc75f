"""poet-schedule: decides what is kept in RAM, recomputed or paged, and writes it into the graph.

The work is done in `planning/plan.py`: the graph becomes a scheduling problem, the problem is
solved (`schedule/`), the schedule is checked, transfers and memory are planned for it, and the
graph is rewritten to it. Where the arena does not fit, the graph is scheduled again with less RAM.
What was planned of transfers and memory is written by poet-plan-transfers and poet-plan-memory.

With `params=storage` parameters are on auxiliary storage between steps: those arguments and the
results that update them become pages. `params=auto` looks for schedules both ways, as far as the
second may be better than the first, and takes the one that uses less energy.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from poetc.budget import Budget
from poetc.costmodel.device import device_of
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.poet import IO_PLACES
from poetc.options import SEARCH, default
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions, alignment_of


@dataclass(frozen=True)
class PoetSchedulePass(ModulePass):
    """Schedules each graph for `ram` bytes and a `deadline` in nanoseconds.

    `device` is a name or the path of a device file, `profile` the path of a profile (the device is
    then, by default, the one it was measured on), `storage` what takes the place of its own: a
    name, a file, or "none"; `time_limit` is in seconds, `stop` "work" or "clock", `gap` relative,
    `params` one of "auto", "ram" and "storage". `io`, "arena" or "caller", says where inputs and
    results are (default: what the graph says, or in the arena).
    """

    name = "poet-schedule"

    ram: int | None = None
    deadline: int | None = None
    strategy: str = default("strategy")
    paging: bool = default("paging")
    remat: bool = default("remat")
    time_limit: int | float = default("time_limit")
    stop: str = default("stop")
    threads: int = default("threads")
    gap: int | float = default("gap")
    device: str | None = None
    profile: str | None = None
    storage: str | None = None
    ram_scope: str = default("ram_scope")
    params: str = default("params")
    io: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = None
        if self.device or self.profile:
            device = device_of(self.device, self.profile, "host", self.storage)
        elif self.storage:
            raise InputError(f"storage={self.storage} needs a device")
        options = ScheduleOptions(
            budget=Budget(self.ram, scope=self.ram_scope),
            deadline_ns=self.deadline,
            device=device,
            align=alignment_of(device),
            params=self.params,
            **{field: getattr(self, option) for field, option in SEARCH.items()},
        )
        if self.io not in (None, *IO_PLACES):
            raise InputError(f"io is {' or '.join(IO_PLACES)}, not {self.io}")
        for graph in graphs(op):
            if self.io is not None:
                graph.attributes["io"] = StringAttr(self.io)
            plan_graph(graph, options)
