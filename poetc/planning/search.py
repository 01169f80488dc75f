"""The search for a schedule of a step: with kernels whole, and with kernels in tiles.

Kernels run in tiles where that may be of use: where there is no schedule without, and where one may
take less energy. Both take one time limit, of which each has a share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from poetc.diagnosis import Tried
from poetc.errors import InputError, UnscheduledError
from poetc.planning.attempts import Attempts, Found
from poetc.planning.report import describe, with_bound
from poetc.planning.solver import ProgressCallback
from poetc.planning.tile_attempts import TileAttempts
from poetc.planning.tiles import Step, Tiles, beside_tiles, least_in_tiles_nj
from poetc.planning.unscheduled import Failure, least_ram_known, remedies
from poetc.schedule.model.instance import Instance

TILES_SHARE = 0.2
"""Share of the time that the search with whole kernels leaves to tiles in any case."""

FIRST_SHARE = 0.65
"""Share of the time that whole kernels leave, for tiles to begin with: those with blocks of one
size may need more than those with blocks of another one have left."""


def search(
    step: Step, progress: ProgressCallback | None = None, tiles: Tiles | None = None
) -> Found:
    """The schedule of least energy that was found for `step`, or for the same with kernels in
    `tiles`.

    The graph of what was found is scheduled (`plan_graph`). Raises InfeasibleError where it is
    proven that there is no schedule, and TimeLimitError where none was found; both say how much RAM
    is known to be enough, and how much is needed.
    """
    return _Search(step, progress, tiles).run()


class _Search(Attempts):
    def __init__(self, step: Step, progress: ProgressCallback | None, tiles: Tiles | None) -> None:
        super().__init__(step.asked, progress)
        self.step = replace(step, asked=self.asked)
        self.tiles = tiles
        self.in_tiles: TileAttempts | None = None
        self.tried: list[Tried] = []
        """The outcomes with whole kernels."""
        self.failure: Failure | None = None
        """Why there is no schedule with whole kernels."""

    def run(self) -> Found:
        """The result of `search`."""
        tiles = None if self.tiles is None or self.tiles.refused else self.tiles
        least_nj = 0 if tiles is None else _least_in_tiles_nj(self.step)
        if tiles is None or not tiles.in_blocks:
            self._try(1.0 if tiles is None else 1 - TILES_SHARE)
        if tiles is not None:
            least_nj = max(least_nj, _least_nj(self.best))
            self.in_tiles = TileAttempts(self, self.step, tiles, least_nj)
        try:
            if self.in_tiles is not None:
                for share in (FIRST_SHARE, 1.0):
                    self.turn_s = self.clock.used_s + share * self.all_left_s
                    self.in_tiles.run()
                self.turn_s = math.inf
            self._again()
        except KeyboardInterrupt:
            self.interrupt()
        if self.best is not None:
            return self._chosen(self.best)
        raise self._error()

    def _error(self) -> UnscheduledError:
        """The error where nothing was found."""
        in_tiles, found = self.in_tiles, self.failure
        if found is None:
            # Pages are in blocks, so that only tiles were tried.
            assert in_tiles is not None
            if in_tiles.failure is None:
                raise InputError(in_tiles.tiles.refused)
            failure, least = in_tiles.failure, in_tiles.least
        else:
            failure = found.diagnosis
            if self.tiles is not None:
                why = None if in_tiles is None else in_tiles.failure
                tiles = self.tiles if in_tiles is None else in_tiles.tiles
                failure = beside_tiles(failure, tiles, why, self.asked)
            tiled = None if in_tiles is None else in_tiles.least
            least = least_ram_known(self.step, found.diagnosis.known_bytes, tiled)
            if in_tiles is not None and least is not None and least.tiles:
                failure = replace(failure, reserved=in_tiles.reserved)
        # The time of all attempts.
        failure = replace(failure, searched_s=self.clock.seconds, least_ram=least)
        return UnscheduledError.of(failure)

    def _chosen(self, best: Found) -> Found:
        """The best that was found, with the bound for all that was tried, on its graph, too."""
        all_tried = self.tried + ([] if self.in_tiles is None else self.in_tiles.tried)
        bounds = [tried.bound_nj for tried in all_tried if tried.bound_nj is not None]
        report = with_bound(best.report, min(bounds), self.asked.gap)
        report = replace(
            report,
            tried=tuple(all_tried),
            late=self.clock.left_s <= 0,
            solve_s=self.clock.seconds,  # Of all attempts.
        )
        describe(best.step.graph, report)
        return Found(best.step, report)

    def _try(self, share: float = 1.0) -> None:
        """Schedules the step with whole kernels in a `share` of the time that is left."""
        begin_s, left_s = self.clock.used_s, share * self.left_s
        try:
            asked = replace(self.asked, time_limit_s=left_s)
            report = self.planned(replace(self.step, asked=asked))
        except UnscheduledError as error:
            spent_s = self.clock.used_s - begin_s
            found = error.diagnosis
            if not found.proven:
                found = replace(found, remedies=remedies(self.asked, spent_s))
            self.failure = Failure(found, spent_s)
            self.tried = list(found.tried)
            return
        if report is not None:
            self.failure = None
            self.tried = list(report.tried)
            self.offer(Found(self.step, report))

    def _again(self) -> None:
        """Schedules the step with whole kernels once more, in the time that tiles have left, where
        there is no schedule and no proof."""
        failure = self.failure
        if failure is None or failure.diagnosis.proven or self.best is not None:
            return
        if self.left_s > failure.spent_s:
            self._try()


def _least_in_tiles_nj(step: Step) -> int:
    """Energy that an unscheduled step takes with kernels in any tiles; 0 where that is not known,
    as there may be none."""
    try:
        return least_in_tiles_nj(step)
    except InputError:
        return 0


def _least_nj(best: Found | None) -> int:
    """Energy without which there is no schedule with kernels in tiles, as far as that is known from
    that with whole ones: in tiles, parameters are on storage."""
    if best is None or best.report.params != "storage":
        return 0
    return Instance(best.report.problem).least_energy_nj
