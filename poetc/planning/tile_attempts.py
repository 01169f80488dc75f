"""Attempts to schedule a step with kernels in tiles, with pages in blocks of each size."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial, reduce

from poetc.budget import BLOCK
from poetc.diagnosis import Diagnosis, LeastRam, Tried
from poetc.errors import InputError, UnscheduledError
from poetc.planning.attempts import Attempts, Found
from poetc.planning.pairs import pairs, pays
from poetc.planning.solver import diagnosis
from poetc.planning.tiles import Step, Tiles, least_ram_in_tiles, unproven
from poetc.planning.unscheduled import remedies

BUILD = 5e-5
"""Work of making the step that tiles are made of, whose kernels are known from the step with whole
ones, for each operation that it has then."""

LEAST_SHARE = 0.2
"""Share of the time that is left for the least RAM that kernels in tiles need."""


class TileAttempts:
    """The attempts with kernels in `tiles`. `all` are the attempts at the step, `whole` is the step
    with whole kernels. No schedule in tiles takes less than `least_nj`."""

    def __init__(self, all: Attempts, whole: Step, tiles: Tiles, least_nj: int) -> None:
        self.all, self.whole, self.tiles, self.least_nj = all, whole, tiles, least_nj
        self.found: dict[int, Tried] = {}
        """The best schedule for each size of the blocks of pages, in bytes."""
        self.failures: dict[int, Diagnosis] = {}
        """The reason for each size without a schedule."""
        self.least: LeastRam | None = None
        """The least RAM, where that is known, and what it has `reserved`."""
        self.reserved: tuple[tuple[str, int], ...] = ()
        self.spent_s: dict[int, float] = {}

    @property
    def tried(self) -> list[Tried]:
        """The best schedule with blocks of any size, in a list that is empty if there is none."""
        found = list(self.found.values())
        return [reduce(Tried.or_else, found)] if found else []

    @property
    def failure(self) -> Diagnosis | None:
        """The last diagnosis of kernels in tiles, of those without a proof if there are any."""
        found = list(self.failures.values())
        return next((each for each in found[::-1] if not each.proven), found[-1] if found else None)

    def run(self) -> None:
        """Schedules the step with kernels in tiles and pages in blocks of each of the sizes, as
        long as that may take less than the best."""
        sizes = [size for size in self.tiles.sizes if self._is_open(size)]
        if not sizes:
            return
        try:
            step: Step | None = None
            if self.all.left_s:
                step = self._built()
                if _is_tight(self, sizes[0]):
                    sizes = sizes[::-1]
                # Once more: what has found the best goes first.
                sizes.sort(key=self._energy_nj)
            for number, size in enumerate(sizes):
                if not self._is_open(size):
                    continue
                if step is None or (size != sizes[0] and not self.all.left_s):
                    unsearched = Tried("storage", None, self.least_nj, False, tiles=True)
                    self.found.setdefault(size, unsearched)
                    asked = diagnosis(self.whole.graph, self.all.asked)
                    self.failures.setdefault(size, unproven(self.failure or asked))
                    continue
                if step.graph.is_scheduled:
                    step = self._built()
                others = len(sizes) - number - 1
                if not self._in_pairs(step, size, others):
                    self._in_blocks(self.tiles.limited(step, self.all.asked, size), others)
        except InputError as error:
            self.tiles = replace(self.tiles, refused=error.message)

    def _is_open(self, block_bytes: int) -> bool:
        """Whether tiles with such blocks may be better than the best, in what is left of the
        time."""
        if block_bytes not in self.found:
            return self.all.is_less(self.least_nj)
        known_nj = self.found[block_bytes].bound_nj
        spent_s = self.spent_s.get(block_bytes, 0.0)
        return known_nj is not None and self.all.is_less(known_nj) and self.all.left_s > spent_s

    def _energy_nj(self, block_bytes: int) -> float:
        tried = self.found.get(block_bytes)
        return math.inf if tried is None or tried.energy_nj is None else tried.energy_nj

    def _built(self) -> Step:
        """The step that tiles are made of. The least RAM of it is known then."""
        step = self._build(pairs=False)
        if self.least is None:
            smallest = self.tiles.limited(step, self.all.asked, self.tiles.sizes[-1]).asked
            asked = replace(smallest, time_limit_s=self.all.left_s * LEAST_SHARE)
            self.least = least_ram_in_tiles(step.graph, asked)
            self.reserved = smallest.budget.reserved
        return step

    def _build(self, pairs: bool) -> Step:
        """The step that tiles are made of, with pairs of kernels that are one or without. It is a
        copy, and no work, but for the first time."""
        step = self.tiles.build(pairs)
        if not self.tiles.known[pairs].kernels:
            self.all.clock.work += BUILD * sum(1 for _ in step.module.walk())
        return step

    def _in_pairs(self, step: Step, size: int, others: int) -> bool:
        """Schedules the step with blocks of one size and with pairs of kernels that are one, if
        there are any; whether there is a schedule. That there is none says nothing of the step
        without pairs, which is tried then."""
        asked = self.all.asked
        ram_bytes = asked.budget.total_bytes
        if ram_bytes is None or not self.all.left_s:
            return False
        if not any(pairs(step.graph, partial(pays, ram_bytes))):
            return False
        paired = self._build(pairs=True)
        if not self.all.left_s:
            return False
        self._in_blocks(self.tiles.limited(paired, asked, size, pairs=True), others)
        if size not in self.failures:
            return True
        del self.failures[size], self.found[size]
        return False

    def _in_blocks(self, step: Step, others: int) -> None:
        """Schedules the step of tiles with pages in blocks of one size, and takes that if it is
        better by more than the gap. Others get as much of the time each."""
        begin_s, limit_s = self.all.clock.used_s, self.all.left_s / (1 + others)
        size = step.asked.budget.block_bytes
        try:
            asked = replace(step.asked, time_limit_s=limit_s)
            report = self.all.planned(replace(step, asked=asked))
        except UnscheduledError as error:
            found = error.diagnosis
            if not found.proven:
                found = replace(found, remedies=remedies(step.asked, limit_s))
            bound_nj = None if found.proven else self.least_nj
            tried = Tried("storage", None, bound_nj, True, tiles=True)
            self.failures[size] = found
        else:
            if report is None:
                return
            report = replace(report, bound_nj=max(report.bound_nj, self.least_nj))
            (tried,) = report.tried
            tried = replace(tried, bound_nj=report.bound_nj)
            self.failures.pop(size, None)
            if self.all.is_less(report.use.energy_nj):
                self.all.offer(Found(step, replace(report, least_in_tiles=self.least)))
        finally:
            self.spent_s[size] = self.all.clock.used_s - begin_s
        self.found[size] = self.found.get(size, tried).again(tried)


def _is_tight(tiles: TileAttempts, block_bytes: int) -> bool:
    """Whether there may be no schedule in tiles with pages in such blocks, and there is one
    with the smallest ones."""
    least, ram_bytes = tiles.least, tiles.all.asked.budget.total_bytes
    if least is None or least.known_bytes is None or ram_bytes is None:
        return False
    more_bytes = block_bytes - dict(tiles.reserved).get(BLOCK, 0)
    return least.known_bytes <= ram_bytes < least.known_bytes + more_bytes
