"""The diagnosis of a search that has found no schedule: the reason and whether it is proven, the
least RAM known to be enough, and remedies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poetc.diagnosis import Diagnosis, LeastRam
from poetc.errors import InputError
from poetc.ir.graph import GraphView
from poetc.ir.poet import GraphOp
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view
from poetc.planning.tiles import Step
from poetc.schedule.exact.bounds import ram_needed_in_any_order
from poetc.schedule.search.infeasibility import least_ram

LONG_SHARE = 1 / 8
"""A search without a schedule that takes this share of the time limit may need a longer one. It
leaves time for others."""

LEAST_RAM_S = 0.3
"""Seconds for the least RAM that an error names, where the search has not found it out."""


@dataclass(frozen=True)
class Failure:
    """A search of `spent_s` that found no schedule."""

    diagnosis: Diagnosis
    spent_s: float


def least_ram_known(step: Step, known_bytes: int | None, tiled: LeastRam | None) -> LeastRam | None:
    """The least RAM known to be enough, without regard to the deadline, and the proven bound on it.
    With whole kernels `known_bytes` are, where that is known; both are for kernels in tiles where
    `tiled` is given."""
    asked = step.asked
    if asked.arena_bytes is None:
        return None
    instance = instance_of(_most_frugal(step.graph, asked).problem, asked)
    reserved_bytes = asked.budget.reserved_bytes
    bound_bytes = ram_needed_in_any_order(instance)[0] + reserved_bytes
    if known_bytes is None:
        arena_bytes = least_ram(instance, LEAST_RAM_S, other_orders=False).known
        known_bytes = None if arena_bytes is None else arena_bytes + reserved_bytes
    least = LeastRam(known_bytes, bound_bytes)
    if tiled is None:
        return least
    if known_bytes is None or (tiled.known_bytes or math.inf) < known_bytes:
        least = replace(tiled, bound_bytes=least.bound_bytes)
    return replace(least, bound_bytes=min(least.bound_bytes, tiled.bound_bytes))


def remedies(asked: ScheduleOptions, seconds: float) -> tuple[str, ...]:
    """The changes to propose after a search of so many seconds that found nothing."""
    changes = ["more --ram"] if asked.arena_bytes is not None else []
    changes += ["a later --deadline"] if asked.deadline_ns is not None else []
    if seconds >= asked.time_limit_s * LONG_SHARE:
        changes.append("a longer --time-limit")
    return tuple(changes or ["another --strategy"])


def _most_frugal(graph: GraphOp, asked: ScheduleOptions) -> GraphView:
    """The problem with the parameters where they need least RAM, of where they may be."""
    may_be_stored = asked.device is not None and asked.device.storage is not None
    may_be_stored &= asked.ram_scope == "all"
    asked = replace(asked, budget=replace(asked.budget, total_bytes=None), deadline_ns=None)
    if asked.params != "ram" and may_be_stored:
        try:
            return problem_view(graph, replace(asked, params="storage"))
        except InputError:
            if asked.params == "storage":
                raise
    return problem_view(graph, replace(asked, params="ram"))
