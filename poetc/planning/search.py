"""The search for a schedule of a step: with kernels whole, with kernels in tiles, and with
parameters split into shards.

Kernels run in tiles, and parameters are split, where that may be of use: where there is no schedule
without, and where one may take less energy. All of it takes one
time limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from xdsl.dialects.builtin import ModuleOp

from poetc.budget import BLOCK
from poetc.diagnosis import Diagnosis, LeastRam, Reason, SplitSearch, Tried
from poetc.errors import InputError, UnscheduledError
from poetc.ir.graph import GraphView
from poetc.ir.poet import GraphOp
from poetc.planning.order import order_graph
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view, storage_of
from poetc.planning.report import ScheduleReport, describe, with_bound
from poetc.planning.solver import ProgressCallback
from poetc.planning.split_bounds import least_energy_nj, least_time_ns
from poetc.planning.split_candidates import (
    Candidate,
    candidates,
    ends_bytes,
    in_time,
)
from poetc.planning.tiles import (
    Step,
    Tiles,
    beside_tiles,
    least_in_tiles_nj,
    least_ram_in_tiles,
    step_of,
    unproven,
)
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram
from poetc.splits import Split, splits_text

PATIENCE = 0.5
"""Share of the time after which a search without a schedule leaves the rest to parameters in
shards, or to finer ones."""

OTHERS_SHARE = 0.2
"""Share of the time that the search with whole kernels and parameters leaves to tiles and shards in
any case."""

BETTER_SHARE = 0.8
"""Share of the time that is left, where there is a schedule, for shards that may be better."""

PROOF_SHARE = 0.8
"""Share of the time that is left for a proof that no shards keep to the limits."""

LEAST_RAM_S = 0.3
"""Seconds for the least RAM that an error names, where the search has not found it out."""


POET_IR = "the input is poet IR"
"""Why parameters are not split."""


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

    def seconds(self, module: ModuleOp | None = None) -> float:
        """What a module takes to become poet IR; None: the step as it is."""
        ...


@dataclass(frozen=True)
class Found:
    """A scheduled step and how it was found."""

    step: Step
    report: ScheduleReport


@dataclass(frozen=True)
class _Failure:
    """A search of `spent_s` without a schedule, of a `candidate`, None for parameters as they
    are."""

    candidate: Candidate | None
    diagnosis: Diagnosis
    spent_s: float


def search(
    step: Step,
    source: Source | None,
    progress: ProgressCallback | None = None,
    tiles: Tiles | None = None,
) -> Found:
    """The schedule of least energy that was found for `step`, for the same with kernels in `tiles`,
    or for `source`, which is the same step, with parameters in shards; None where the input is poet
    IR.

    The graph of what was found is scheduled (`plan_graph`). Raises InfeasibleError where it is
    proven that there is no schedule, and TimeLimitError where none was found; both say how much RAM
    is known to be enough, and how much is needed.
    """
    return _Search(step, source, progress, tiles).run()


class _Search:
    def __init__(
        self,
        step: Step,
        source: Source | None,
        progress: ProgressCallback | None,
        tiles: Tiles | None,
    ) -> None:
        self.step, self.asked, self.progress = step, step.asked, progress
        self.refused = POET_IR if source is None else source.refused
        self.source = None if self.refused else source
        self.tiles = tiles
        self.in_tiles: Diagnosis | None = None
        """Why there is no schedule with kernels in tiles, where that was tried."""
        self.least_in_tiles: LeastRam | None = None
        """The least RAM with kernels in tiles, where that is known, and what it has `reserved`."""
        self.reserved: tuple[tuple[str, int], ...] = ()
        self.clock = step.asked.new_clock()
        self.best: Found | None = None
        self.tried: list[Tried] = []
        self.failures: list[_Failure] = []
        self.is_splittable = True

    @property
    def _left_s(self) -> float:
        """What is left of the time limit, counted by work (`Clock.used_s`); 0 where it has
        passed."""
        if self.clock.left_s <= 0:
            return 0.0
        return max(0.0, self.clock.limit_s - self.clock.used_s)

    def run(self) -> Found:
        """What `search` returns."""
        unsplit = self._unsplit()
        tiles = None if self.tiles is None or self.tiles.refused else self.tiles
        patience = 1.0 if unsplit is None else PATIENCE
        alone = unsplit is None and tiles is None
        self._try(self.step, None, patience, 1.0 if alone else 1 - OTHERS_SHARE)
        failure = self.failures[-1].diagnosis if self.failures else None
        late = self.best is not None and not self._left_s
        if tiles is not None and not late and self._is_less(_least_nj(self.best, unsplit)):
            self._in_tiles(tiles)
        if self.source is not None and unsplit is not None:
            failure = self._in_shards(self.source, unsplit)
        if self.best is not None:
            return self._chosen(self.best)
        assert failure is not None
        may_help = failure.proven and not failure.is_about_time
        if self.refused and may_help and not self.step.graph.has_shards:
            failure = replace(failure, splits=SplitSearch(refused=self.refused))
        if self.tiles is not None and not self.step.graph.has_shards:
            failure = beside_tiles(failure, self.tiles, self.in_tiles, self.asked)
        failure = replace(failure, searched_s=self.clock.seconds)  # By all attempts.
        least = _least_ram(self)
        if least is not None and least.tiles:
            failure = replace(failure, reserved=self.reserved)
        raise UnscheduledError.of(replace(failure, least_ram=least))

    def _unsplit(self) -> Candidate | None:
        """A copy of the step as it is, which stays unscheduled; None where its parameters are not
        split."""
        if self.source is None:
            return None
        try:
            return _candidate((), step_of(self.step.module.clone(), self.asked))
        except InputError as error:
            self.refused = error.message
            return None

    def _chosen(self, best: Found) -> Found:
        """The best that was found, with the bound for all that was tried, on its graph, too."""
        bounds = [tried.bound_nj for tried in self.tried if tried.bound_nj is not None]
        report = with_bound(best.report, min(bounds), self.asked.gap)
        report = replace(
            report,
            tried=tuple(self.tried),
            late=self.clock.left_s <= 0,
            solve_s=self.clock.seconds,  # Of all attempts.
        )
        describe(best.step.graph, report)
        return Found(best.step, report)

    def _is_less(self, energy_nj: float) -> bool:
        """Whether the best schedule takes more, beyond the gap, and the user waits for others."""
        if self.best is None:
            return True
        report = self.best.report
        return not report.interrupted and energy_nj < report.use.energy_nj * (1 - self.asked.gap)

    def _in_tiles(self, tiles: Tiles) -> None:
        """Schedules the step with kernels in tiles, unless they take too much whatever comes of it,
        with pages in blocks of each of the sizes."""
        try:
            step = tiles.build()
            least_nj = least_in_tiles_nj(step)
            smallest = tiles.limited(step, self.asked, tiles.sizes[-1]).asked
            if self._is_less(least_nj):
                self.least_in_tiles = least_ram_in_tiles(step.graph, smallest)
                self.reserved = smallest.budget.reserved
            # Where whole kernels fit, the size of blocks makes little difference.
            sizes = tiles.sizes if self.best is None else tiles.sizes[:1]
            if _is_tight(self, sizes[0]):
                sizes = sizes[::-1]
            for number, block_bytes in enumerate(sizes):
                if not self._is_less(least_nj):
                    return
                if number and not self._left_s:
                    self._add_in_tiles(Tried("storage", "", None, least_nj, False, tiles=True))
                    self.in_tiles = self.in_tiles and unproven(self.in_tiles)
                    return
                if step.graph.is_scheduled:
                    step = tiles.build()
                others = len(sizes) - number - 1 + (self.source is not None)
                self._in_blocks(tiles.limited(step, self.asked, block_bytes), least_nj, others)
        except InputError as error:
            self.tiles = replace(tiles, refused=error.message)

    def _in_blocks(self, step: Step, least_nj: int, others: int) -> None:
        """Schedules the step of tiles with pages in blocks of one size, and takes that if it is
        better by more than the gap. No tiles take less than `least_nj`. Others get as much of the
        time each."""
        limit_s = self._left_s / (1 + others)
        asked = replace(step.asked, time_limit_s=limit_s, clock=self.clock)
        try:
            report = self._planned(replace(step, asked=asked))
        except UnscheduledError as error:
            found = error.diagnosis
            if not found.proven:
                found = replace(found, remedies=_remedies(step.asked, limit_s))
            bound_nj = None if found.proven else least_nj
            self._add_in_tiles(Tried("storage", "", None, bound_nj, True, tiles=True))
            if self.in_tiles is None or self.in_tiles.proven or not found.proven:
                self.in_tiles = found
            return
        if report is not None:
            for tried in report.tried:
                self._add_in_tiles(tried)
            if self._is_less(report.use.energy_nj):
                self._offer(Found(step, replace(report, least_in_tiles=self.least_in_tiles)))

    def _add_in_tiles(self, tried: Tried) -> None:
        """Notes what came of tiles with blocks of one size, as one with those of others."""
        others = [other for other in self.tried if other.tiles]
        self.tried = [other for other in self.tried if not other.tiles]
        self.tried.append(tried if not others else tried.or_else(others[0]))

    def _offer(self, found: Found) -> None:
        """Takes what was found if it is better than what there is."""
        energy_nj = found.report.use.energy_nj
        if self.best is None or energy_nj < self.best.report.use.energy_nj:
            self.best = found

    def _planned(self, step: Step) -> ScheduleReport | None:
        """What `plan_graph` finds; None if the user ended that and there is something already."""
        try:
            return plan_graph(step.graph, step.asked, self.progress)
        except KeyboardInterrupt:
            if self.best is None:
                raise
            best = self.best
            self.best = replace(best, report=replace(best.report, interrupted=True))
            return None

    def _try(
        self, step: Step, candidate: Candidate | None, patience: float, share: float = 1.0
    ) -> None:
        """Schedules one step in a `share` of the time that is left. A search without a schedule
        takes the share `patience` of that and leaves the rest to others."""
        begin_s, left_s = self.clock.used_s, share * self._left_s
        splits = "" if candidate is None else splits_text(candidate.splits)
        try:
            asked = replace(step.asked, time_limit_s=left_s, patience=patience, clock=self.clock)
            report = self._planned(replace(step, asked=asked))
        except UnscheduledError as error:
            spent_s = self.clock.used_s - begin_s
            found = error.diagnosis
            if not found.proven:
                found = replace(found, remedies=_remedies(step.asked, spent_s))
            self.failures.append(_Failure(candidate, found, spent_s))
            if candidate is not None:
                bound_nj = None if found.proven else candidate.least_nj
                self.tried.append(Tried("storage", splits, None, bound_nj, searched=True))
            else:
                self.tried += found.tried
            return
        if report is not None:
            self.tried += [replace(tried, splits=splits) for tried in report.tried]
            self._offer(Found(step, report))

    def _in_shards(self, source: Source, unsplit: Candidate) -> Diagnosis | None:
        """Tries parameters in shards, ever finer ones until there is a schedule, and further as
        long as they may be better than it. The diagnosis if there is no schedule."""
        until_s = self.clock.used_s + BETTER_SHARE * self._left_s
        least_ns = unsplit.least_time_ns

        def over(candidate: Candidate = unsplit) -> bool:
            """Whether this one, and those that are finer, are of no interest."""
            if self.best is None:
                return self._too_late(least_ns) or not self._left_s
            energy_nj = self.best.report.use.energy_nj
            # Transfers of shards take no less than those of the whole.
            late = self.clock.used_s >= until_s or not self._left_s
            late = late or self.best.report.interrupted
            return late or candidate.least_nj >= energy_nj * (1 - self.asked.gap)

        def late(module: ModuleOp | None = None) -> bool:
            """Whether there is no time to make poet IR of it, nor interest."""
            return over() or source.seconds(module) >= self.clock.left_s

        wanted = not over(unsplit)
        skipped = wanted and late()
        if wanted and not skipped:
            splittable = source.splittable()
            self.is_splittable = any(most > 1 for _, most in splittable.values())
            if self.best is None and self.asked.deadline_ns is not None:
                least_ns = self._least_time_ns(source, splittable, unsplit, late)
            for tried in split_candidates(source, splittable, unsplit, late):
                if not tried.splits or over(tried):
                    break
                self._try(Step(tried.module, tried.graph, tried.asked), tried, PATIENCE)
        self._again()
        if self.best is not None and not any(tried.splits for tried in self.tried):
            time_over = skipped or self.clock.used_s >= until_s or not self._left_s
            energy_nj = self.best.report.use.energy_nj
            if time_over and unsplit.least_nj < energy_nj * (1 - self.asked.gap):
                # What is said to be optimal covers them, too.
                least_nj = int(unsplit.least_nj)
                self.tried.append(Tried("storage", "any", None, least_nj, searched=False))
        return None if self.best is not None else _failure(self, unsplit, least_ns)

    def _too_late(self, time_ns: int) -> bool:
        deadline_ns = self.asked.deadline_ns
        return deadline_ns is not None and time_ns > deadline_ns

    def _least_time_ns(
        self,
        source: Source,
        splittable: Mapping[int, tuple[int, int]],
        unsplit: Candidate,
        late: Callable[[ModuleOp | None], bool],
    ) -> int:
        """What the step takes at least in any shards that fit, as far as it is proven by a search
        over them in a share of the time. Those that may be in time are tried."""
        device = self.asked.device
        storage = None if device is None else storage_of(device)
        # There is no work in this that is counted.
        until_s = self.clock.seconds + PROOF_SHARE * self.clock.left_s
        ram_bytes, deadline_ns = self.asked.budget.total_bytes, self.asked.deadline_ns
        assert storage is not None and ram_bytes is not None and deadline_ns is not None

        def build(splits: tuple[Split, ...]) -> Candidate | None:
            if late(None) or self.clock.seconds > until_s:
                return None
            built = source.build(splits, late)
            return None if built is None else _candidate(splits, step_of(*built))

        groups: dict[int, list[int]] = {}
        for argument, (stands, _) in splittable.items():
            groups.setdefault(stands, []).append(argument)
        left = in_time(build, unsplit, groups, storage, ram_bytes, deadline_ns)
        for tried in left.candidates:
            if self.best is None and tried.splits and not late(None):
                order_graph(tried.graph)
                self._try(Step(tried.module, tried.graph, tried.asked), tried, PATIENCE)
        proven = not left.others and not left.candidates
        return left.least_time_ns if proven else unsplit.least_time_ns

    def _again(self) -> None:
        """Schedules what is not settled once more, in the time that is left by others, as long as
        there is no schedule."""
        waiting = [failure for failure in self.failures if not failure.diagnosis.proven]
        while waiting and self.best is None:
            share = 1 / len(waiting)
            failure = waiting.pop(0)
            if self._left_s * share <= failure.spent_s:
                continue
            candidate = failure.candidate
            self.failures.remove(failure)
            splits = "" if candidate is None else splits_text(candidate.splits)
            self.tried = [t for t in self.tried if t.splits != splits]
            step = self.step
            if candidate is not None:
                step = Step(candidate.module, candidate.graph, candidate.asked)
            self._try(step, candidate, share)


def _failure(search: _Search, unsplit: Candidate, least_ns: int) -> Diagnosis:
    """The diagnosis where there is no schedule, with or without shards, which take `least_ns`
    at least: that of what was tried last without a proof; else, where the deadline is what is
    missed, that of the fastest; else the last. It is a proof if no shards can change what is
    proven."""
    first = next(f.diagnosis for f in search.failures if f.candidate is None)
    total_bytes = search.asked.budget.total_bytes
    assert total_bytes is not None
    if first.reason is Reason.RAM:
        first = replace(first, whole=("parameters",))
    if search._too_late(least_ns) and first.proven:
        if least_ns >= (first.time_bound_ns or math.inf):
            return first
        return replace(first, splits=SplitSearch(least_time_ns=least_ns))
    if unsplit.ends_bytes > total_bytes and first.proven:
        return replace(first, splits=SplitSearch(ends_bytes=unsplit.ends_bytes))
    unproven = [f for f in search.failures if not f.diagnosis.proven]
    late = [f for f in search.failures if f.diagnosis.is_about_time]
    told = (unproven or search.failures)[-1]
    fastest = bool(late) and not unproven
    if fastest:
        told = min(late, key=lambda f: _makespan_ns(f.diagnosis))
    if not search.is_splittable:
        return replace(told.diagnosis, splits=SplitSearch(splittable=False))
    splits = SplitSearch(
        tried=len(search.failures) - 1,
        shown="" if told.candidate is None else splits_text(told.candidate.splits),
        fastest=fastest,
    )
    return replace(told.diagnosis, proven=False, splits=splits)


def _is_tight(search: _Search, block_bytes: int) -> bool:
    """Whether there may be no schedule in tiles with pages in such blocks, and there is one
    with the smallest ones."""
    least, ram_bytes = search.least_in_tiles, search.asked.budget.total_bytes
    if least is None or least.known_bytes is None or ram_bytes is None:
        return False
    more_bytes = block_bytes - dict(search.reserved).get(BLOCK, 0)
    return least.known_bytes <= ram_bytes < least.known_bytes + more_bytes


def _least_ram(search: _Search) -> LeastRam | None:
    """What is known and what is proven of the RAM that is needed, whatever time it takes."""
    asked = search.asked
    if asked.arena_bytes is None:
        return None
    view = _most_frugal(search.step.graph, asked)
    bound_bytes = ram_needed_in_any_order(instance_of(view.problem, asked))[0]
    if search.source is not None and search.is_splittable:
        bound_bytes = min(bound_bytes, ends_bytes(view.problem))
    known: list[tuple[int, str]] = []
    for failure in search.failures:
        candidate, bytes = failure.candidate, failure.diagnosis.known_bytes
        if bytes is None and (candidate is None or failure is search.failures[-1]):
            graph, options = search.step.graph, asked
            if candidate is not None:
                graph, options = candidate.graph, candidate.asked
            instance = instance_of(_most_frugal(graph, options).problem, options)
            bytes = least_ram(instance, LEAST_RAM_S, other_orders=False).known
            bytes = None if bytes is None else bytes + options.budget.reserved_bytes
        if bytes is not None:
            known.append((bytes, "" if candidate is None else splits_text(candidate.splits)))
    known_bytes, splits = min(known, default=(None, ""))
    least = LeastRam(known_bytes, bound_bytes + asked.budget.reserved_bytes, splits)
    tiled = search.least_in_tiles
    if tiled is None:
        return least
    if known_bytes is None or (tiled.known_bytes or math.inf) < known_bytes:
        least = replace(tiled, bound_bytes=least.bound_bytes)
    return replace(least, bound_bytes=min(least.bound_bytes, tiled.bound_bytes))


def _least_nj(best: Found | None, unsplit: Candidate | None) -> int:
    """Energy without which there is no schedule with kernels in tiles, as far as that is known from
    that with whole ones: in tiles, parameters are on storage."""
    least_nj = 0 if unsplit is None else int(unsplit.least_nj)
    if best is None or best.report.params != "storage":
        return least_nj
    return max(least_nj, Instance(best.report.problem).least_energy_nj)


def _makespan_ns(diagnosis: Diagnosis) -> float:
    """The shortest makespan known where the deadline is missed."""
    return math.inf if diagnosis.fastest_ns is None else diagnosis.fastest_ns


def _remedies(asked: ScheduleOptions, seconds: float) -> tuple[str, ...]:
    """What to change where a search that took `seconds` found nothing."""
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
        built = None if late(None) else source.build(splits, late)
        return None if built is None else _candidate(splits, step_of(*built))

    for found in candidates(build, unsplit, splittable, total_bytes):
        # What does not fit in any order is for the message only, and needs no order.
        if found.splits and found.needed_bytes <= total_bytes:
            order_graph(found.graph)
        yield found


def split_candidate(source: Source, splits: tuple[Split, ...]) -> Candidate:
    """The step with those splits, ready to be scheduled."""
    built = source.build(splits, lambda module: False)
    assert built is not None
    found = _candidate(splits, step_of(*built))
    order_graph(found.graph)
    return found


def _candidate(splits: tuple[Split, ...], step: Step) -> Candidate:
    """What an unscheduled graph needs at least, with parameters on storage."""
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
