"""First schedules: everything is kept, repaired where that exceeds the RAM, greedy and annealed
ones."""

from __future__ import annotations

import math

from poetc.schedule.exact import bounds, machine
from poetc.schedule.heuristics.anneal import annealed
from poetc.schedule.heuristics.greedy import greedy, priorities
from poetc.schedule.heuristics.repair import repair
from poetc.schedule.heuristics.streaming import stream
from poetc.schedule.model import keep_all
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.state import Search


def first_schedules(search: Search) -> None:
    """Offers the schedule that keeps everything, greedy and repaired ones."""
    instance, params = search.instance, search.params
    search.offer(keep_all.sequence(instance), "keep-all")
    limit = instance.problem.ram_bytes
    ram = math.inf if limit is None else limit
    if instance.has_variants:
        streamed(search, patience=0)
        if not fits_as_it_is(instance):
            return
    if params.repair:
        repaired(search)
    if not params.greedy:
        return
    effort = search.part(params.greedy_share, params.greedy_work).unless(lambda: search.optimal)
    for priority in priorities(instance):
        if effort.over:
            break
        events = greedy(instance, ram, priority, effort)
        if events is not None:
            search.offer(events, f"greedy {priority}")


def streamed(search: Search, patience: int | None = None) -> None:
    """Offers sequences in which operations run in their variants, changed at random until so many
    changes in a row, `patience` or those of the parameters, have saved nothing."""
    instance, params = search.instance, search.params
    limit = instance.problem.ram_bytes
    for weight in _time_weights(instance):
        effort = search.part(params.stream_share, params.stream_work)
        stream(
            instance,
            math.inf if limit is None else limit,
            lambda events: search.offer(events, "streamed"),
            effort.unless(lambda: search.optimal),
            time_weight=weight,
            patience=params.stream_patience if patience is None else patience,
        )


def fits_as_it_is(instance: Instance) -> bool:
    """May each operation run as it is within the RAM?"""
    limit = instance.problem.ram_bytes
    return limit is None or bounds.ram_needed(instance.without_variants())[0] <= limit


def _time_weights(instance: Instance) -> list[float]:
    """Prices of a nanosecond to try, in nanojoules: nothing, and where there is a deadline more."""
    if instance.problem.deadline_ns is None:
        return [0.0]
    per_ns = instance.base_energy / max(instance.base_time_ns, 1)
    return [0.0, per_ns, 10 * per_ns]


def in_time(search: Search) -> bool:
    """Looks for any schedule that meets a deadline, in any order, where none does and transfers run
    beside computing; True when it is proven that there is none."""
    instance, params, problem = search.instance, search.params, search.instance.problem
    if search.steps is not None or not problem.dma or problem.deadline_ns is None:
        return False
    if params.machine:
        # A small part of what an impossible deadline would take otherwise.
        found = machine.in_time(instance, search.part(params.machine_share, params.machine_work))
        search.none_in_time = found.proven and found.steps is None
        if found.steps is not None:
            search.adopt(found.steps, instance.base_energy)
            search.note(f"schedule {search.energy_nj} nJ of all states")
        if found.steps is not None or found.proven:
            return search.none_in_time
    for seed in range(params.anneal_turns if params.anneal else 0):
        effort = search.part(params.anneal_share, params.anneal_work)
        steps = annealed(instance, effort, seed)
        if steps is not None:
            search.adopt(steps, instance.base_energy)
            search.note(f"schedule {search.energy_nj} nJ annealed")
            break
    return False


def repaired(
    search: Search,
    gradually: bool = False,
    share: float | None = None,
    seed: int = 0,
) -> None:
    """Offers sequences that keep everything but for what exceeds the RAM, repaired at once or
    `gradually`."""
    instance = search.instance
    limit = instance.problem.ram_bytes
    share = search.params.repair_share if share is None else share
    if limit is None:
        return
    weights = _time_weights(instance)
    for weight in weights:
        limited = search.part(share / len(weights))
        # A first schedule may take all of the effort.
        effort = search.part().unless(
            lambda limited=limited: search.optimal or (search.steps is not None and limited.over)
        )
        repair(
            instance,
            limit,
            lambda events: search.offer(events, "repaired"),
            effort,
            time_weight=weight,
            gradually=gradually,
            seed=seed,
        )
