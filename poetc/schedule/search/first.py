"""First schedules: everything is kept, repaired where that exceeds the RAM, and greedy ones."""

from __future__ import annotations

import math

from poetc.schedule.heuristics.greedy import greedy, priorities
from poetc.schedule.heuristics.repair import repair
from poetc.schedule.model import keep_all
from poetc.schedule.search.state import Search


def first_schedules(search: Search) -> None:
    """Offers the schedule that keeps everything, greedy and repaired ones."""
    instance, params = search.instance, search.params
    search.offer(keep_all.sequence(instance), "keep-all")
    limit = instance.problem.ram_bytes
    ram = math.inf if limit is None else limit
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
    weights = [0.0]
    if instance.problem.deadline_ns is not None:
        weights += [w * instance.base_energy / max(instance.base_time_ns, 1) for w in (1.0, 10.0)]
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
