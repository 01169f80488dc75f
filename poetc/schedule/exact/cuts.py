"""Cuts: rows that hold for every point of a `SlotModel` with whole values, but not for its LP.

A tensor is written once and for all, so it may be paged in either never or as often as one likes.
The LP writes half of it and then pages in a half before each of several uses; the rows
`load <= write` alone do not forbid that. But follow a live range back from a use of the tensor to
any earlier moment: it was there already, or it was made in between, or it was paged in, which needs
the page. So

    run[use] (1 if obligatory)  <=  keep[moment] + sum of run[slots in between that make it] + write
    keep[after the use]         <=  the same

for every use and every earlier moment. Those are many; `separate` finds the ones that a point
breaks most.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from poetc.schedule.exact.highs import LinearProgram, Outcome, Relaxation, Row
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.reduced_costs import Paths
from poetc.schedule.exact.slots import NONE, Slot
from poetc.schedule.model.clock import Effort

# A cut that a point breaks by less is left alone.
VIOLATION = 1e-3
# Seconds of work to look for cuts and to fix columns, for an entry of the matrix.
SEPARATE = 1e-6


class Tight:
    """The LP relaxation of a model, and the rows that have been found to make it tighter.

    `on_outcome` is told of each optimum.
    """

    def __init__(
        self,
        model: SlotModel,
        on_outcome: Callable[[Outcome], object] = lambda outcome: None,
    ) -> None:
        self.model, self.on_outcome = model, on_outcome
        self.cuts = Cuts(model)
        self.relaxation = Relaxation(model.lp)
        self.rows: list[Row] = []
        self.found: set[Cut] = set()
        self.outcome: Outcome | None = None
        self.lower, self.upper = np.array(model.lp.lower), np.array(model.lp.upper)

    def solve(self, effort: Effort) -> bool:
        """Solves it; False when that takes too much (it is of no more use then)."""
        outcome = self.relaxation.solve(effort)
        if outcome.finished:
            self.outcome = outcome
            self.on_outcome(outcome)
        return outcome.finished

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows that hold for every schedule."""
        self.rows += rows
        self.relaxation.add(rows)

    def rounds(self, effort: Effort, goal: float, patience: int = 1) -> bool:
        """Adds cuts for as long as they bring the bound nearer to the objective `goal`, and until
        so many rounds in a row have not. False when that took too much."""
        params = self.model.instance.params
        before = -np.inf
        idle = 0
        for _ in range(params.cut_rounds):
            effort.spend(SEPARATE * len(self.model.lp.index))
            if not self.solve(effort):
                return False
            outcome = self.outcome
            assert outcome is not None
            # Without a goal, a share of the objective itself.
            wanted = goal - before if before > -np.inf and goal < np.inf else abs(before) / 100
            gained = outcome.objective - before
            idle = idle + 1 if gained < params.cut_progress * wanted else 0
            if outcome.x is None or idle >= patience:
                break
            before = outcome.objective
            if before >= goal or not params.cuts:
                break
            found, new = self.cuts.separate(outcome.x)
            if not new:
                break
            self.found.update(found)
            self.add(new)
        return True

    def fix(self, goal: float) -> int:
        """Fixes the columns that no point better than `goal` without useless runs and page-ins has
        at their other bound; returns how many that are."""
        outcome = self.outcome
        params = self.model.instance.params
        if outcome is None or outcome.duals is None or not params.fixing:
            return 0
        room = goal - outcome.objective + 1e-3
        integer = np.array(self.model.lp.integer, dtype=bool) & (self.lower < self.upper)
        low = np.flatnonzero(integer & (outcome.duals > room))
        high = np.flatnonzero(integer & (outcome.duals < -room))
        if params.paths:
            paths = Paths(self.model, outcome.duals, self.lower, self.upper)
            low, high = np.union1d(low, paths.without(room)), np.union1d(high, paths.kept(room))
        # A column in both says that there is no such point: one of them is enough for that.
        high = np.setdiff1d(high, low).astype(int)
        self.upper[low] = self.lower[low]
        self.lower[high] = self.upper[high]
        return self._fixed(np.concatenate([low, high]))

    def drop(self, columns: Sequence[int]) -> None:
        """Fixes columns at their lower bounds."""
        index = np.array(columns, dtype=int)
        self.upper[index] = self.lower[index]
        self._fixed(index)

    def _fixed(self, columns: np.ndarray) -> int:
        if len(columns):
            self.relaxation.bounds(columns, self.lower[columns], self.upper[columns])
        return len(columns)

    def settled(self) -> LinearProgram:
        """The programme of the model with what is fixed and the rows that matter at the last
        optimum."""
        lp, last = copy.deepcopy(self.model.lp), self.outcome
        lp.lower, lp.upper = array("d", self.lower), array("d", self.upper)
        if last is not None and last.x is not None:
            for row in self.rows:
                if row.whole or row.broken(last.x) > -VIOLATION:
                    lp.row(row.index, row.value, upper=row.upper)
        return lp


@dataclass(frozen=True)
class Cut:
    """One of the rows above, whatever the model: what `use` of `tensor` wants (to run, or to keep
    the tensor `after` it) was in RAM just before `moment`, or was made from then on, or is
    written."""

    tensor: int
    moment: Slot
    use: Slot
    after: bool

    def key(self) -> tuple[int, ...]:
        """To sort by, as sets have no order of their own."""
        return (self.tensor, *astuple(self.moment), *astuple(self.use), self.after)


class _Uses:
    """The events of a tensor that may be written; columns, `NONE` where there is none."""

    def __init__(self, model: SlotModel, v: int) -> None:
        uses = model.events[v]
        self.tensor, self.write = v, model.write[v]
        self.slot = np.array([use.slot for use in uses])
        self.keep = np.array([use.keep for use in uses])
        self.run = np.array([model.run[use.slot] if use.slot >= 0 else NONE for use in uses])
        self.makes = np.array([use.makes for use in uses])

    def broken(self, x: np.ndarray) -> Iterator[tuple[int, int, bool]]:
        """(event that is the moment, event that is the use, after?) of the cuts that `x` breaks
        most, one for each use and each thing that it wants."""
        write = x[self.write]
        if write >= 1 - VIOLATION:
            return
        keep = np.where(self.keep == NONE, 0.0, x[self.keep])
        run = np.where(self.run == NONE, 1.0, x[self.run])
        # The first event makes the tensor, and any other that does is optional.
        made = np.cumsum(np.where(self.makes, run, 0.0))
        # The tensor kept at the moment, and runs that make it from then on: the least of all.
        moment = np.where(self.keep == NONE, np.inf, keep - made)
        least = np.minimum.accumulate(moment)
        supply = write + made[1:] + least[:-1]
        for wanted, after in ((run[1:], False), (keep[1:], True)):
            for e in np.flatnonzero((wanted > supply + VIOLATION) & ~self.makes[1:]) + 1:
                # Of equals the last one: fewer makers lie in between.
                at = np.flatnonzero(moment[:e] <= least[e - 1] + 1e-9)[-1]
                yield int(at), int(e), after

    def row(self, at: int, e: int, after: bool) -> Row:
        """The row of a cut."""
        makers = self.run[at + 1 : e][self.makes[at + 1 : e]]
        supplies = [int(self.keep[at]), *map(int, makers), self.write]
        column = int(self.keep[e] if after else self.run[e])
        ones = () if column == NONE else (column,)
        return Row(
            (*ones, *supplies),
            (*[1.0] * len(ones), *[-1.0] * len(supplies)),
            0.0 if ones else -1.0,
            int(self.slot[e]),
        )


class Cuts:
    """Finds the cuts of one model that points break."""

    def __init__(self, model: SlotModel) -> None:
        self.slots = model.slots
        self.lasts = model.instance.params.lasting
        self.place = {slot: s for s, slot in enumerate(model.slots)}
        self.tensors = {
            v: _Uses(model, v)
            for v, write in model.write.items()
            if len(model.events[v]) > 2 and model.lp.lower[write] < 1.0
        }

    def separate(self, x: np.ndarray) -> tuple[list[Cut], list[Row]]:
        """For each tensor the cuts that `x` breaks."""
        cuts, rows = [], []
        for v, uses in self.tensors.items():
            for at, e, after in uses.broken(x):
                moment, use = (self.slots[uses.slot[i]] for i in (at + 1, e))
                cuts.append(Cut(v, moment, use, after))
                rows.append(uses.row(at, e, after))
        return cuts, rows

    def lasting(self) -> list[Cut]:
        """The cuts of the tensors that nothing recomputes before a first run reads them: at each
        moment they are in RAM or written."""
        cuts: list[Cut] = []
        if not self.lasts:
            return cuts
        for v, uses in self.tensors.items():
            reads = np.flatnonzero((uses.run == NONE) & ~uses.makes)
            if not len(reads) or uses.makes[1 : reads[-1]].any():
                continue
            use = self.slots[uses.slot[reads[-1]]]
            for at in np.flatnonzero(uses.keep[: reads[-1]] != NONE):
                cuts.append(Cut(v, self.slots[uses.slot[at + 1]], use, False))
        return cuts

    def rows(self, cuts: Iterable[Cut]) -> list[Row]:
        """The rows of cuts that another model has shown to matter, where this one has them."""
        rows = []
        for cut in cuts:
            uses = self.tensors.get(cut.tensor)
            moment, use = self.place.get(cut.moment), self.place.get(cut.use)
            if uses is None or moment is None or use is None:
                continue
            at, e = (int(i) for i in np.searchsorted(uses.slot, (moment, use)))
            kept = np.flatnonzero(uses.keep[:at] != NONE)
            if len(kept) and not (cut.after and uses.keep[e] == NONE):
                rows.append(uses.row(int(kept[-1]), e, cut.after))
        return rows
