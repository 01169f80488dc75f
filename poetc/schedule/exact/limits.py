"""The rows of a model about deadline and storage, and with DMA about the makespan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from poetc.schedule.exact.highs import INF
from poetc.schedule.exact.slots import NONE

if TYPE_CHECKING:
    from poetc.schedule.exact.milp import SlotModel


def limit_rows(model: SlotModel) -> None:
    """Deadline, storage, and with DMA the energy of idling."""
    instance, lp, problem = model.instance, model.lp, model.instance.problem
    if problem.storage_bytes is not None:
        _storage(model, problem.storage_bytes)
    idle = problem.dma and problem.idle_power_nw > 0 and model.minimise == "energy"
    if problem.deadline_ns is None and not idle and not (problem.dma and model.minimise == "time"):
        return
    least_ns = instance.least_run_time_ns
    runs: dict[int, float] = {
        c: least_ns[model.slots[s].operation] for s, c in enumerate(model.run) if c != NONE
    }
    # Variants that stream occupy the bus as long as the processor.
    beside: dict[int, float] = {}
    for s in model.choices.columns:
        for c, way in model.choices.ways(s):
            runs[c] = way.time_ns - least_ns[model.slots[s].operation]
            if way.streamed:
                beside[c] = way.time_ns
    transfers: dict[int, float] = {
        c: problem.tensors[v].pageout_time_ns for v, c in model.write.items()
    }
    for v, uses in enumerate(model.events):
        for use in uses:
            if use.load != NONE:
                transfers[use.load] = problem.tensors[v].pagein_time_ns
    once = sum(least_ns)
    # Time in thousandths of the deadline, or of the least time there is.
    tick = (problem.deadline_ns or instance.base_time_ns or 1) / 1e3
    apart = problem.dma and not model.serial
    share = model.serial if problem.dma else 1.0
    added = {c: share * time for c, time in transfers.items()}
    sums = [(runs, once), (transfers | beside, 0)] if apart else [(runs | added, once)]
    makespan = NONE
    if problem.dma and model.minimise in ("energy", "time"):
        per_tick = problem.idle_power_nw * 1e-9 * tick if model.minimise == "energy" else tick
        upper = 1e3 if problem.deadline_ns is not None else INF
        makespan = lp.column(per_tick / model.scale, 0.0, upper, integer=False)
    if apart and model.hidden:
        # A transfer that does not overlap takes time of its own.
        net = runs | transfers
        for c, time in model.hidden.items():
            net[c] = net.get(c, 0.0) - time
        sums.append((net, once))
    for columns, constant in sums:
        index = [c for c, time in columns.items() if time]
        value = [columns[c] / tick for c in index]
        if makespan != NONE:
            # Neither computing nor the bus can be done before the end.
            model.floor(makespan, index, value, constant / tick)
        elif problem.deadline_ns is not None:
            lp.row(index, value, upper=(problem.deadline_ns - constant) / tick)
    if makespan != NONE and model.minimise == "time":
        _drop_costs(model, makespan)


def _drop_costs(model: SlotModel, makespan: int) -> None:
    """With DMA time does not add up: the makespan alone is the objective."""
    for column in range(model.lp.columns):
        if column != makespan:
            model.lp.cost[column] = 0.0
    model.lp.offset = 0.0


def _storage(model: SlotModel, limit: int) -> None:
    """Pages that are written fit beside the pages that are there at the start."""
    instance = model.instance
    size = instance.stored_bytes
    room = limit - sum(size[v] for v, there in enumerate(instance.stored_at_start) if there)
    unit = math.gcd(*size) or 1
    units = {c: size[v] // unit for v, c in model.write.items()}
    for v, supplies in model.choices.supplies.items():
        for slot, c in supplies:
            if slot in model.choices.columns:
                units[c] = units.get(c, 0) + size[v] // unit
    if units:
        model.lp.row(list(units), list(units.values()), upper=room // unit)
