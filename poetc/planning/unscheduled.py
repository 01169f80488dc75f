"""The diagnosis of a search that has found no schedule: the reason and whether it is proven, the
least RAM known to be enough, and remedies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from poetc.diagnosis import Diagnosis, LeastRam, Reason, SplitSearch
from poetc.errors import InputError
from poetc.ir.graph import GraphView
from poetc.ir.poet import GraphOp
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view
from poetc.planning.split_candidates import Candidate, ends_bytes
from poetc.planning.tiles import Step
from poetc.schedule.exact.bounds import ram_needed_in_any_order
from poetc.schedule.search.infeasibility import least_ram
from poetc.splits import splits_text

PATIENCE = 0.5
"""Share of the time after which a search without a schedule leaves the rest to parameters in
shards, or to finer ones."""

LEAST_RAM_S = 0.3
"""Seconds for the least RAM that an error names, where the search has not found it out."""


@dataclass(frozen=True)
class Failure:
    """A search of `spent_s` without a schedule, of a `candidate`, None for parameters as they
    are."""

    candidate: Candidate | None
    diagnosis: Diagnosis
    spent_s: float


def diagnosis_of(
    failures: Sequence[Failure],
    asked: ScheduleOptions,
    unsplit: Candidate,
    least_ns: int,
    is_splittable: bool,
) -> Diagnosis:
    """The diagnosis where there is no schedule, with or without shards, which take `least_ns` at
    least: that of what was tried last without a proof; else, where the deadline is what is missed,
    that of the fastest; else the last. It is a proof if no shards can change what is proven. No
    parameter can be in shards unless that `is_splittable`."""
    first = next(f.diagnosis for f in failures if f.candidate is None)
    total_bytes = asked.budget.total_bytes
    assert total_bytes is not None
    if first.reason is Reason.RAM:
        first = replace(first, whole=("parameters",))
    if asked.deadline_ns is not None and least_ns > asked.deadline_ns and first.proven:
        if least_ns >= (first.time_bound_ns or math.inf):
            return first
        return replace(first, splits=SplitSearch(least_time_ns=least_ns))
    if unsplit.ends_bytes > total_bytes and first.proven:
        return replace(first, splits=SplitSearch(ends_bytes=unsplit.ends_bytes))
    unproven = [f for f in failures if not f.diagnosis.proven]
    late = [f for f in failures if f.diagnosis.is_about_time]
    told = (unproven or failures)[-1]
    fastest = bool(late) and not unproven
    if fastest:
        told = min(late, key=lambda f: _makespan_ns(f.diagnosis))
    if not is_splittable:
        return replace(told.diagnosis, splits=SplitSearch(splittable=False))
    splits = SplitSearch(
        tried=len(failures) - 1,
        shown="" if told.candidate is None else splits_text(told.candidate.splits),
        fastest=fastest,
    )
    return replace(told.diagnosis, proven=False, splits=splits)


def least_ram_known(
    failures: Sequence[Failure],
    step: Step,
    may_split: bool,
    untried: Candidate | None,
    tiled: LeastRam | None,
) -> LeastRam | None:
    """The least RAM known to be enough and the proven bound on it, without regard to the deadline.
    Both are for kernels in tiles where `tiled` is given. They include shards if parameters
    `may_split`, `untried` ones too."""
    asked = step.asked
    if asked.arena_bytes is None:
        return None
    view = _most_frugal(step.graph, asked)
    bound_bytes = ram_needed_in_any_order(instance_of(view.problem, asked))[0]
    if may_split:
        bound_bytes = min(bound_bytes, ends_bytes(view.problem))
    known: list[tuple[int, str]] = []

    def add(candidate: Candidate | None, known_bytes: int | None) -> None:
        graph, options = step.graph, asked
        if candidate is not None:
            graph, options = candidate.graph, candidate.asked
        if known_bytes is None:
            instance = instance_of(_most_frugal(graph, options).problem, options)
            arena_bytes = least_ram(instance, LEAST_RAM_S, other_orders=False).known
            if arena_bytes is None:
                return
            known_bytes = arena_bytes + options.budget.reserved_bytes
        known.append((known_bytes, "" if candidate is None else splits_text(candidate.splits)))

    for failure in failures:
        known_bytes = failure.diagnosis.known_bytes
        if known_bytes is not None or failure.candidate is None or failure is failures[-1]:
            add(failure.candidate, known_bytes)
    if untried is not None:
        add(untried, None)
    known_bytes, splits = min(known, default=(None, ""))
    least = LeastRam(known_bytes, bound_bytes + asked.budget.reserved_bytes, splits)
    if tiled is None:
        return least
    if known_bytes is None or (tiled.known_bytes or math.inf) < known_bytes:
        least = replace(tiled, bound_bytes=least.bound_bytes)
    return replace(least, bound_bytes=min(least.bound_bytes, tiled.bound_bytes))


def _makespan_ns(diagnosis: Diagnosis) -> float:
    """The shortest makespan known where the deadline is missed."""
    return math.inf if diagnosis.fastest_ns is None else diagnosis.fastest_ns


def remedies(asked: ScheduleOptions, seconds: float) -> tuple[str, ...]:
    """The changes to propose after a search of so many seconds that found nothing."""
    changes = ["more --ram"] if asked.arena_bytes is not None else []
    changes += ["a later --deadline"] if asked.deadline_ns is not None else []
    # A search that finds nothing leaves time for others.
    if seconds >= asked.time_limit_s * PATIENCE**2 / 2:
        changes.append("a longer --time-limit")
    return tuple(changes or ["another --strategy"])


def _most_frugal(graph: GraphOp, asked: ScheduleOptions) -> GraphView:
    """The problem with the parameters where they need least RAM, of where they may be."""
    may_be_stored = asked.device is not None and asked.device.storage is not None
    may_be_stored &= asked.ram_scope == "all"
    asked = replace(asked, budget=replace(asked.budget, total_bytes=None), deadline_ns=None)
    if graph.has_shards or (asked.params != "ram" and may_be_stored):
        try:
            return problem_view(graph, replace(asked, params="storage"))
        except InputError:
            if asked.params == "storage":
                raise
    return problem_view(graph, replace(asked, params="ram"))
