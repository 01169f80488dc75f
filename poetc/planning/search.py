"""The search for a schedule of a step: with kernels whole, with kernels in tiles, and with
parameters split into shards.

Kernels run in tiles, and parameters are split, where that may be of use: where there is no schedule
without, and where one may take less energy. All of it takes one time limit, of which each has a
share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain

from xdsl.dialects.builtin import ModuleOp

from poetc.diagnosis import SplitSearch, Tried
from poetc.errors import InputError, UnscheduledError
from poetc.planning.attempts import Attempts, Found
from poetc.planning.order import order_graph
from poetc.planning.problem import storage_of
from poetc.planning.report import describe, with_bound
from poetc.planning.solver import ProgressCallback
from poetc.planning.split_candidates import (
    Candidate,
    InTime,
    in_time,
)
from poetc.planning.split_source import (
    Source,
    built_candidate,
    candidate_of,
    shards_that_fit,
    split_candidates,
)
from poetc.planning.tile_attempts import TileAttempts
from poetc.planning.tiles import (
    Step,
    Tiles,
    beside_tiles,
    least_in_tiles_nj,
    step_of,
)
from poetc.planning.unscheduled import PATIENCE, Failure, diagnosis_of, least_ram_known, remedies
from poetc.schedule.model.instance import Instance
from poetc.splits import Split, splits_text

OTHERS_SHARE = 0.2
"""Share of the time that the search with whole kernels and parameters leaves to tiles and shards in
any case."""

FIRST_SHARE = 0.35
"""Share of the time that is left by whole kernels, for tiles and for shards to begin with."""

BEST_SHARE = 0.8
"""Share of what is left then for those of the two that have found the best."""

LARGE_OPERATIONS = 4000
"""A step with so many operations is large: to make its shards takes too long before tiles were
tried."""

PROOF_SHARE = 0.8
"""Share of the time that is left for a proof that no shards keep to the limits."""

POET_IR = "the input is poet IR"
"""Why parameters are not split."""


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


class _Search(Attempts):
    def __init__(
        self,
        step: Step,
        source: Source | None,
        progress: ProgressCallback | None,
        tiles: Tiles | None,
    ) -> None:
        super().__init__(step.asked, progress)
        self.step = replace(step, asked=self.asked)
        self.refused = POET_IR if source is None else source.refused
        self.source = None if self.refused else source
        self.tiles = tiles
        self.in_tiles: TileAttempts | None = None
        self.spent_s: dict[str, float] = {}
        """The seconds spent, by splits."""
        self.shards: Iterator[Candidate] | None = None
        """Parameters in shards that were not tried yet; None before the first."""
        self.spare: dict[str, tuple[Step, Candidate]] = {}
        """Shards that were tried, as they were before, by their splits."""
        self.least_ns = 0
        """A lower bound on the makespan in any shards, known without a search."""
        self.in_time: InTime | None = None
        """The only shards that may be in time, where that is known."""
        self.tried: list[Tried] = []
        self.failures: list[Failure] = []
        self.is_splittable = True

    def run(self) -> Found:
        """The result of `search`."""
        unsplit = self._unsplit()
        # Before transfers are among them.
        is_large = sum(1 for _ in self.step.module.walk()) >= LARGE_OPERATIONS
        self.least_ns = 0 if unsplit is None else unsplit.least_time_ns
        tiles = None if self.tiles is None or self.tiles.refused else self.tiles
        least_nj = 0 if tiles is None else _least_in_tiles_nj(self.step)
        patience = 1.0 if unsplit is None else PATIENCE
        alone = unsplit is None and tiles is None
        if tiles is None or not tiles.in_blocks:
            self._try(self.step, None, patience, 1.0 if alone else 1 - OTHERS_SHARE)
        least_nj = max(least_nj, _least_nj(self.best, unsplit))
        ways: list[Callable[[], None]] = []
        if tiles is not None:
            self.in_tiles = TileAttempts(self, self.step, tiles, least_nj)
            ways.append(self.in_tiles.run)
        source = self.source
        if source is not None and unsplit is not None:
            ways.append(lambda: self._in_shards(source, unsplit))
        try:
            for share, way in _turns(self, ways, is_large):
                self.turn_s = self.clock.used_s + share * self.all_left_s
                way()
            self.turn_s = math.inf
            self._again()
        except KeyboardInterrupt:
            self.interrupt()
        if unsplit is not None:
            self._cover_shards(unsplit)
        if self.best is not None:
            return self._chosen(self.best)
        if not self.failures:
            raise self._in_blocks_failure()
        failure = self.failures[-1].diagnosis
        if unsplit is not None:
            failure = diagnosis_of(
                self.failures, self.asked, unsplit, self._least_ns, self.is_splittable
            )
        may_help = failure.proven and not failure.is_about_time
        if self.refused and may_help and not self.step.graph.has_shards:
            failure = replace(failure, splits=SplitSearch(refused=self.refused))
        in_tiles = self.in_tiles
        if self.tiles is not None and not self.step.graph.has_shards:
            why = None if in_tiles is None else in_tiles.failure
            tiles = self.tiles if in_tiles is None else in_tiles.tiles
            failure = beside_tiles(failure, tiles, why, self.asked)
        failure = replace(failure, searched_s=self.clock.seconds)  # By all attempts.
        may_split = self.source is not None and self.is_splittable
        untried = None
        if unsplit is not None and self.source is not None and len(self.failures) == 1:
            # The deadline alone is why none were tried.
            untried = shards_that_fit(self.source, unsplit)
        tiled = None if in_tiles is None else in_tiles.least
        least = least_ram_known(self.failures, self.step, may_split, untried, tiled)
        if in_tiles is not None and least is not None and least.tiles:
            failure = replace(failure, reserved=in_tiles.reserved)
        raise UnscheduledError.of(replace(failure, least_ram=least))

    def _in_blocks_failure(self) -> UnscheduledError:
        """The error for a step whose pages are in blocks, so that only tiles were tried."""
        found = self.in_tiles
        assert found is not None
        if found.failure is None:
            raise InputError(found.tiles.refused)
        seconds = self.clock.seconds
        failure = replace(found.failure, searched_s=seconds, least_ram=found.least)
        return UnscheduledError.of(failure)

    def _unsplit(self) -> Candidate | None:
        """A copy of the step as it is, which stays unscheduled; None where its parameters are not
        split."""
        if self.source is None:
            return None
        try:
            return candidate_of((), step_of(self.step.module.clone(), self.asked))
        except InputError as error:
            self.refused = error.message
            return None

    def _chosen(self, best: Found) -> Found:
        """The best that was found, with the bound for all that was tried, on its graph, too."""
        bounds = [tried.bound_nj for tried in self._all_tried if tried.bound_nj is not None]
        report = with_bound(best.report, min(bounds), self.asked.gap)
        report = replace(
            report,
            tried=tuple(self._all_tried),
            late=self.clock.left_s <= 0,
            solve_s=self.clock.seconds,  # Of all attempts.
        )
        describe(best.step.graph, report)
        return Found(best.step, report)

    @property
    def _all_tried(self) -> list[Tried]:
        """The best schedules of all attempts: with whole kernels, in tiles with blocks of any size,
        in shards."""
        whole = [tried for tried in self.tried if not tried.splits]
        return whole + self._tiled + [tried for tried in self.tried if tried.splits]

    @property
    def _tiled(self) -> list[Tried]:
        return [] if self.in_tiles is None else self.in_tiles.tried

    def _try(
        self, step: Step, candidate: Candidate | None, patience: float, share: float = 1.0
    ) -> None:
        """Schedules one step in a `share` of the time that is left. A search without a schedule
        takes the share `patience` of that and leaves the rest to others."""
        begin_s, left_s = self.clock.used_s, share * self.left_s
        splits = "" if candidate is None else splits_text(candidate.splits)
        try:
            asked = replace(step.asked, time_limit_s=left_s, patience=patience, clock=self.clock)
            report = self.planned(replace(step, asked=asked))
        except UnscheduledError as error:
            spent_s = self.clock.used_s - begin_s
            found = error.diagnosis
            if not found.proven:
                found = replace(found, remedies=remedies(step.asked, spent_s))
            self.spent_s[splits] = spent_s
            self.failures = [f for f in self.failures if f.candidate is not candidate]
            self.failures.append(Failure(candidate, found, spent_s))
            if candidate is not None:
                bound_nj = None if found.proven else candidate.least_nj
                self._add(Tried("storage", splits, None, bound_nj, searched=True))
            else:
                self.tried += found.tried
            return
        if report is not None:
            self.spent_s[splits] = self.clock.used_s - begin_s
            for tried in report.tried:
                self._add(replace(tried, splits=splits))
            self.offer(Found(step, report))

    def _add(self, tried: Tried) -> None:
        """Notes what came of a search, beside others for the same."""
        same = [t for t in self.tried if tried.splits and t.splits == tried.splits]
        self.tried = [t for t in self.tried if t not in same]
        self.tried.append(reduce(Tried.again, [*same, tried]))

    def _in_shards(self, source: Source, unsplit: Candidate) -> None:
        """Tries parameters in shards, ever finer ones until there is a schedule, and further as
        long as they may be better than it."""

        def over(candidate: Candidate = unsplit) -> bool:
            """Whether this one, and those that are finer, are of no interest."""
            # Transfers of shards take no less than those of the whole.
            late = self.best is None and self._too_late(self.least_ns)
            return late or not self.all_left_s or not self.is_less(candidate.least_nj)

        def late(module: ModuleOp | None = None) -> bool:
            """Whether there is no time to make poet IR of it, nor interest."""
            return over() or source.seconds(module) >= self.clock.left_s

        if self.shards is None:
            if late():
                return
            splittable = source.splittable()
            self.is_splittable = any(most > 1 for _, most in splittable.values())
            self.shards = self._shards(source, splittable, unsplit, late)
        else:
            self._once_more(source)
        while self.left_s and not over():
            tried = next(self.shards, None)
            if tried is None or not tried.splits or over(tried):
                self.shards = iter(())
                break
            step = Step(tried.module, tried.graph, tried.asked)
            self.spare[splits_text(tried.splits)] = step, tried
            self._try_shards(source, splits_text(tried.splits))

    def _once_more(self, source: Source) -> None:
        """Schedules the best shards once more where the time was over, if that may help."""
        waiting = [
            tried
            for tried in self.tried
            if tried.splits and tried.bound_nj is not None and self.is_less(tried.bound_nj)
        ]
        if waiting:
            best = min(waiting, key=lambda t: (t.energy_nj or math.inf, t.bound_nj or 0))
            if self.left_s > self.spent_s[best.splits]:
                self._try_shards(source, best.splits)

    def _try_shards(self, source: Source, splits: str) -> None:
        """Schedules some shards, and keeps them as they were."""
        step, candidate = self.spare[splits]
        self.spare[splits] = step_of(source.copy(step.module), step.asked), candidate
        self._try(step, candidate, PATIENCE)

    def _cover_shards(self, unsplit: Candidate) -> None:
        """Lets what is said to be optimal cover shards for which there was no time."""
        tried = any(tried.splits for tried in self.tried)
        over = self.shards is None or not self.all_left_s
        if self.best is not None and not tried and over and self.is_less(unsplit.least_nj):
            least_nj = int(unsplit.least_nj)
            self.tried.append(Tried("storage", "any", None, least_nj, searched=False))

    def _too_late(self, time_ns: int) -> bool:
        deadline_ns = self.asked.deadline_ns
        return deadline_ns is not None and time_ns > deadline_ns

    def _shards(
        self,
        source: Source,
        splittable: Mapping[int, tuple[int, int]],
        unsplit: Candidate,
        late: Callable[[ModuleOp | None], bool],
    ) -> Iterator[Candidate]:
        """Shards that may fit. With a deadline, where nothing else is found, first those that are
        left by a search in a share of the time; if that leaves no others, they are all."""
        every = split_candidates(source, splittable, unsplit, late)
        ram_bytes, deadline_ns = self.asked.budget.total_bytes, self.asked.deadline_ns
        if self.best is not None or deadline_ns is None:
            return every
        device = self.asked.device
        storage = None if device is None else storage_of(device)
        until_s = self.clock.used_s + PROOF_SHARE * self.left_s
        assert storage is not None and ram_bytes is not None

        def build(splits: tuple[Split, ...]) -> Candidate | None:
            if late(None) or self.clock.used_s > until_s:
                return None
            return built_candidate(source, splits, unsplit, late)

        groups: dict[int, list[int]] = {}
        for argument, (stands, _) in splittable.items():
            groups.setdefault(stands, []).append(argument)
        left = in_time(build, unsplit, groups, storage, ram_bytes, deadline_ns)
        in_shards = tuple(tried for tried in left.candidates if tried.splits)
        for tried in in_shards:
            order_graph(tried.graph)
        if left.others:
            return chain(in_shards, every)
        self.in_time = replace(left, candidates=in_shards)
        return iter(in_shards)

    @property
    def _least_ns(self) -> int:
        """The proven lower bound on the makespan in any shards."""
        tried = [f.diagnosis for f in self.failures if f.candidate is not None]
        proven = all(found.proven for found in tried)
        if self.in_time is None or len(tried) < len(self.in_time.candidates) or not proven:
            return self.least_ns
        # None of those that were tried is in time.
        deadline_ns = self.asked.deadline_ns or 0
        late_ns = (max(deadline_ns + 1, found.time_bound_ns or 0) for found in tried)
        return min((self.in_time.least_time_ns, *late_ns))

    def _again(self) -> None:
        """Schedules what is not settled once more, in the time that is left by others, as long as
        there is no schedule."""
        waiting = [failure for failure in self.failures if not failure.diagnosis.proven]
        while waiting and self.best is None:
            share = 1 / len(waiting)
            failure = waiting.pop(0)
            if self.left_s * share <= failure.spent_s:
                continue
            candidate = failure.candidate
            self.failures.remove(failure)
            splits = "" if candidate is None else splits_text(candidate.splits)
            self.tried = [t for t in self.tried if t.splits != splits]
            step = self.step
            if candidate is not None:
                step = Step(candidate.module, candidate.graph, candidate.asked)
            self._try(step, candidate, share)


def _turns(
    search: _Search, ways: Sequence[Callable[[], None]], is_large: bool
) -> Iterator[tuple[float, Callable[[], None]]]:
    """The ways, each with its share of what is left of the time: all of them first, then that
    which has found the best, then the other. Of a large step, tiles have most of the time."""
    if len(ways) < 2:
        # Tiles with blocks of one size may need more than others have left.
        shares = (1.0,) if search.in_tiles is None else (1 - FIRST_SHARE, 1.0)
        yield from ((share, way) for way in ways for share in shares)
        return
    if is_large:
        yield 1 - OTHERS_SHARE, ways[0]
        yield from ((1.0, way) for way in ways[::-1])
        return
    yield FIRST_SHARE, ways[0]
    yield FIRST_SHARE / (1 - FIRST_SHARE), ways[1]
    is_tiled = search.best is None or any(
        tried.energy_nj == search.best.report.use.energy_nj for tried in search._tiled
    )
    first, second = ways if is_tiled else ways[::-1]
    yield BEST_SHARE, first
    yield 1.0, second


def _least_in_tiles_nj(step: Step) -> int:
    """Energy that an unscheduled step takes with kernels in any tiles; 0 where that is not known,
    as there may be none."""
    try:
        return least_in_tiles_nj(step)
    except InputError:
        return 0


def _least_nj(best: Found | None, unsplit: Candidate | None) -> int:
    """Energy without which there is no schedule with kernels in tiles, as far as that is known from
    that with whole ones: in tiles, parameters are on storage."""
    least_nj = 0 if unsplit is None else int(unsplit.least_nj)
    if best is None or best.report.params != "storage":
        return least_nj
    return max(least_nj, Instance(best.report.problem).least_energy_nj)
