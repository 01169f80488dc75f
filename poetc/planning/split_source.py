"""A step before its parameters are split, and the step with its parameters in shards, as candidates
for the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from xdsl.dialects.builtin import ModuleOp

from poetc.planning.order import order_graph
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view, storage_of
from poetc.planning.split_bounds import least_energy_nj, least_time_ns
from poetc.planning.split_candidates import Candidate, candidates, ends_bytes
from poetc.planning.tiles import Step, step_of
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.splits import Split

BUILD = 1.5e-4
"""Work of making poet IR of a module, for each operation that it has then."""


class Source(Protocol):
    """A step before its parameters are split."""

    refused: str
    """Why parameters are not split; empty if they may be."""

    def splittable(self) -> Mapping[int, tuple[int, int]]:
        """For each parameter the argument that stands for those split alike, and in how many shards
        these can be had."""
        ...

    def build(
        self, splits: tuple[Split, ...], late: Callable[[ModuleOp], bool]
    ) -> tuple[ModuleOp, ScheduleOptions] | None:
        """Annotated poet IR with those splits, and what to schedule it for. None where it becomes
        too `late` for it once it is known how large the module is in shards."""
        ...

    def copy(self, module: ModuleOp) -> ModuleOp:
        """A copy of a module that was built, which can be scheduled in its place."""
        ...

    def seconds(self, module: ModuleOp | None = None) -> float:
        """The seconds that it takes to turn a module into poet IR; for None, those of the step as
        it is."""
        ...


def split_candidates(
    source: Source,
    splittable: Mapping[int, tuple[int, int]],
    unsplit: Candidate,
    late: Callable[[ModuleOp | None], bool] = lambda module: False,
) -> Iterator[Candidate]:
    """The step with its parameters in shards and on storage so that it may fit into the RAM; see
    `split_candidates.candidates`. The search ends when it is too `late` to begin or go on with a
    module."""
    total_bytes = unsplit.asked.budget.total_bytes
    assert total_bytes is not None

    def build(splits: tuple[Split, ...]) -> Candidate | None:
        return None if late(None) else built_candidate(source, splits, unsplit, late)

    for found in candidates(build, unsplit, splittable, total_bytes):
        # A candidate that fits in no order is for the message only, and needs no order.
        if found.splits and found.needed_bytes <= total_bytes:
            order_graph(found.graph)
        yield found


def shards_that_fit(source: Source, unsplit: Candidate) -> Candidate | None:
    """The first shards that may fit into the RAM, if there is time to make them."""
    clock = unsplit.asked.clock
    assert clock is not None

    def late(module: ModuleOp | None = None) -> bool:
        return source.seconds(module) >= clock.left_s

    if late():
        return None
    found = next(split_candidates(source, source.splittable(), unsplit, late), None)
    return found if found is not None and found.splits else None


def built_candidate(
    source: Source,
    splits: tuple[Split, ...],
    unsplit: Candidate,
    late: Callable[[ModuleOp | None], bool],
) -> Candidate | None:
    """The step with those splits; None where it became too `late` for it. The clock of `unsplit`
    counts that."""
    built = source.build(splits, late)
    if built is None:
        return None
    spend_building(built[0], unsplit.asked)
    return candidate_of(splits, step_of(*built))


def spend_building(module: ModuleOp, asked: ScheduleOptions, work: float = BUILD) -> None:
    """Counts the work of making poet IR, of so much for each operation."""
    if asked.clock is not None:
        asked.clock.work += work * sum(1 for _ in module.walk())


def split_candidate(source: Source, splits: tuple[Split, ...]) -> Candidate:
    """The step with those splits, ready to be scheduled."""
    built = source.build(splits, lambda module: False)
    assert built is not None
    found = candidate_of(splits, step_of(*built))
    order_graph(found.graph)
    return found


def candidate_of(splits: tuple[Split, ...], step: Step) -> Candidate:
    """The step in these shards, with a lower bound on the RAM that it needs with parameters on
    storage."""
    unlimited = replace(step.asked.budget, total_bytes=None)
    asked = replace(step.asked, budget=unlimited, deadline_ns=None, params="storage")
    view = problem_view(step.graph, asked)
    device = asked.device
    assert device is not None
    storage = storage_of(device)
    assert storage is not None
    instance = instance_of(view.problem, asked)
    needed_bytes, operation = ram_needed_in_any_order(instance)
    used_bytes = unlimited.used_bytes
    return Candidate(
        splits,
        step.module,
        step.graph,
        step.asked,
        used_bytes(needed_bytes),
        used_bytes(ends_bytes(view.problem)),
        None if operation is None else view.computes[operation],
        least_time_ns(view, storage, device),
        least_energy_nj(view, device),
        lambda still_open: max(
            least_time_ns(view, storage, device, still_open),
            0 if still_open else time_needed(instance),
        ),
    )
