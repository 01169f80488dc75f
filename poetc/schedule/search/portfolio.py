"""Our strategy: a greedy schedule at once, then MILPs over more and more slots.

Small problems go straight to the MILP over all slots. For large ones MILPs over the recomputes that
lie close to what they are for (few edges above the operation of the stage) give schedules, and
MILPs over all recomputes in a window of stages improve them. The LP relaxation over all slots,
tightened by cuts and by bounds of blocks of stages, gives the bound, and branch and bound on it
adds to that. Beside it, on the other core, goes branch and bound on the RAM that some stages need.
Each better schedule makes everything that follows smaller, because what costs more than the
schedule's whole overhead cannot be in a better one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from poetc.schedule.exact.slots import slots_where
from poetc.schedule.search.bounding import Bounding, checkpointed, relaxation
from poetc.schedule.search.first import first_schedules, streamed
from poetc.schedule.search.milps import BUILD, Guide, exact, near, no_time_for, windows
from poetc.schedule.search.state import TOLERANCE, Search


def portfolio(search: Search) -> bool:
    """Looks until the gap or the time limit is reached; True when there provably is no schedule."""
    first_schedules(search)
    if search.instance.has_variants and search.instance.recomputes > search.params.tiny:
        _with_variants(search)
    return improve(search)


def _with_variants(search: Search) -> None:
    """Bounds a problem with variants, which is often enough, and improves the schedule at
    random."""
    if search.steps is None or search.finished:
        return
    Bounding(search, Guide()).cut(search.params.relaxation_share)
    if not search.finished:
        streamed(search)


def improve(search: Search, briefly: bool = False) -> bool:
    """Goes on from the first schedules, or from where it was before, as `portfolio` does; `briefly`
    only with the steps of large problems that are enough for most of them."""
    if search.relative_gap <= TOLERANCE or search.content or search.remaining <= 0:
        return False
    optional = sum(slot.optional for slot in slots_where(search.instance, search.affordable()))
    if optional <= search.params.tiny:
        return exact(search, gap=min(search.gap, search.params.tiny_gap))
    if search.finished:
        return False
    if optional > search.params.small:
        if search.large is None:
            search.large = Large(search, optional)
        search.large.begin()
        if briefly and search.steps is not None:
            return False
        bounding = search.large.bounding
        if bounding is not None and bounding.infeasible:
            return search.steps is None
        return not search.large.go_on() and exact(search, search.large.guide)
    return exact(search, Guide())


class Large:
    """The search in a problem too large for the MILP over all slots. It goes on from what is known
    when there is time again."""

    def __init__(self, search: Search, optional: int) -> None:
        self.search, self.optional = search, optional
        self.guide = Guide()
        self.bounding: Bounding | None = None
        self.begun = False
        # Each series of windows is another one.
        self.series = 0

    def begin(self) -> None:
        """The steps that are enough for most problems."""
        search = self.search
        if self.begun:
            return
        self.begun = True
        params = search.params
        if not any(search.instance.pageable) or self.optional > search.params.large:
            relaxation(search)
        if search.instance.recomputes > search.params.huge:
            # To build even one of the models that follow takes too long.
            return
        for depth in params.depths if params.near else ():
            if not search.finished:
                near(search, self.guide, depth)
        if search.finished or self.optional * BUILD >= search.remaining / 2:
            return
        self.bounding = Bounding(search, self.guide)
        if search.steps is None:
            self.bounding.cut(search.params.relaxation_share)
        else:
            self._race()

    def go_on(self) -> bool:
        """The rest; True when there is no time for the MILP over all slots."""
        search, bounding = self.search, self.bounding
        if search.instance.recomputes > search.params.huge or search.finished:
            return True
        if bounding is not None and bounding.infeasible:
            return True
        if bounding is not None and search.steps is not None:
            seed, guide = self.series, self.guide.copy()
            self._together(
                lambda: bounding.branch(1.0), lambda other: windows(other, guide, 1.0, seed=seed)
            )
            self.series += 1
        windows(search, self.guide, 1.0, seed=self.series)
        self.series += 1
        if search.finished:
            return True
        if no_time_for(search, slots_where(search.instance, search.affordable())):
            windows(search, self.guide, 1.0, math.inf, seed=self.series)
            return True
        return False

    def _race(self) -> None:
        """Proves bounds by the relaxation over all slots, and by checkpoints beside it."""
        search, bounding = self.search, self.bounding
        assert bounding is not None
        effort = search.part(search.params.race_share).unless(bounding.halt.is_set)
        bounding.threads = 1

        def side(other: Search) -> None:
            other.within(effort)
            if search.params.ladder:
                checkpointed(other, search.params.ladder_counts, 1.0)
            # The bound of blocks does not depend on how many are solved at a time.
            bounding.threads = search.params.threads

        self._together(lambda: bounding.tighten(effort), side, race=True)

    def _together(
        self, prove: Callable[[], object], side: Callable[[Search], object], race: bool = False
    ) -> None:
        """Proves bounds in this thread while `side` goes on in another one, from what is known now.

        What both find does not depend on how fast each is: the side's schedule is taken when both
        have ended, and not at all where the bound is enough for the present one. In a `race` both
        prove bounds for the same schedule, and who gets to the gap first stops the other; the bound
        is then that of the gap, whoever it was, and no effort counts for it.
        """
        search, bounding = self.search, self.bounding
        assert bounding is not None
        if search.finished:
            return
        if race:
            search.most_nj = search.goal()
        other = search.fork()
        begin = search.clock.work
        failures: list[BaseException] = []

        def run() -> None:
            try:
                side(other)
            except BaseException as error:
                failures.append(error)
            if failures or (race and other.optimal):
                bounding.halt.set()

        thread = threading.Thread(target=run, daemon=True)
        at_once = search.params.threads > 1
        if at_once:
            thread.start()
        interrupted = True
        try:
            prove()
            if not (search.optimal or search.ended()):
                if not at_once:
                    thread.start()
                thread.join()
            interrupted = False
        finally:
            other.stop.set()
            # A thread that does not stop is left behind: it works for `other` only.
            if thread.ident is not None:
                thread.join(search.params.join_s)
            if interrupted or race or not search.optimal:
                search.join(other)
            search.most_nj = math.inf
            if not search.optimal:
                search.clock.work = max(search.clock.work, other.clock.work)
            elif race:
                search.clock.work = begin
        if failures:
            raise failures[0]
