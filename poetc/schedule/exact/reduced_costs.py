"""Columns that no schedule of interest has, by shortest paths over reduced costs.

A schedule costs at least the optimum of the relaxation plus the reduced costs of all its columns,
so a column whose own reduced cost exceeds the room up to the energy of interest is in no such
schedule. But prices are spread over columns that go together: a tensor that is kept through ten
stages pays a little in each of them, and one that is paged in is written, too. So what a column
brings with it is added up. In a schedule without useless steps whatever is in RAM was made by a
first run, or by a recompute, whose inputs were in RAM before that, or was paged in; and it is read
by a first run, or by a recompute, of which something is read after that. That is a path through the
columns

    (first run | write and load)  ->  keep or run, again and again  ->  first run that reads it

on which no column is twice, so the least sum of reduced costs of a path through a column bounds
what the column costs. Likewise a tensor that a first run reads, and that is not kept at some
moment, comes back after it by the cheapest path.
"""

from __future__ import annotations

import math

import numpy as np

from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.slots import NONE


class Paths:
    """The cheapest paths in a model, at an optimum of its relaxation with the reduced costs `duals`
    and the bounds `lower` and `upper` on the columns. Costs and room are objective values."""

    def __init__(
        self, model: SlotModel, duals: np.ndarray, lower: np.ndarray, upper: np.ndarray
    ) -> None:
        self.model, self.lower, self.upper = model, lower, upper
        # The least cost of a column at 1, and at 0. A fixed column costs nothing.
        one = np.where(lower >= 1, 0.0, np.maximum(duals, 0.0))
        self.one: list[float] = np.where(upper <= 0, math.inf, one).tolist()
        self.zero: list[float] = np.where(upper <= 0, 0.0, np.maximum(-duals, 0.0)).tolist()
        # Of the cheapest path through each column: up to it and with it, and from it on.
        self.to, self.onward = [0.0] * model.lp.columns, [0.0] * model.lp.columns
        self._to()
        self._onward()

    def without(self, room: float) -> np.ndarray:
        """The columns that are free and cost more than `room`."""
        free = self.lower < self.upper
        return np.flatnonzero(free & (np.array(self.to) + np.array(self.onward) > room))

    def _load(self, v: int, load: int) -> float:
        """The cost of paging `v` in by this column."""
        write = self.model.write.get(v)
        return self.one[load] + (self.one[write] if write is not None else 0.0)

    def _to(self) -> None:
        model, one, to = self.model, self.one, self.to
        cost = [math.inf] * len(model.events)  # of having each tensor in RAM now
        place = [0] * len(model.events)  # its next event
        for v, uses in enumerate(model.events):
            if uses and uses[0].slot < 0:
                cost[v], place[v] = 0.0, 1
        for s, slot in enumerate(model.slots):
            inputs, outputs = model.operation_tensors(slot.operation)
            run = model.run[s]
            dearest = 0.0
            for v in (*inputs, *outputs):
                at = place[v]
                if at >= len(model.events[v]):
                    continue
                place[v] = at + 1
                use = model.events[v][at]
                keep = model.events[v][at - 1].keep if at else NONE
                if keep != NONE:
                    cost[v] += one[keep]
                    to[keep] = cost[v]
                if use.makes:
                    cost[v] = min(cost[v], dearest + one[run] if run != NONE else 0.0)
                    continue
                if use.load != NONE:
                    to[use.load] = self._load(v, use.load)
                    cost[v] = min(cost[v], to[use.load])
                dearest = max(dearest, cost[v])
            if run != NONE:
                to[run] = dearest + one[run]

    def _onward(self) -> None:
        model, one, onward = self.model, self.one, self.onward
        cost = [math.inf] * len(model.events)  # until each tensor is of use
        place = [len(uses) - 1 for uses in model.events]
        for s in reversed(range(len(model.slots))):
            inputs, outputs = model.operation_tensors(model.slots[s].operation)
            run = model.run[s]
            touched = [
                v
                for v in (*outputs, *inputs)
                if place[v] >= 0 and model.events[v][place[v]].slot == s
            ]
            best = 0.0
            if run != NONE:
                made = [v for v in touched if model.events[v][place[v]].makes]
                onward[run] = min((cost[v] for v in made), default=math.inf)
                best = onward[run] + one[run]
            for v in touched:
                at = place[v]
                use = model.events[v][at]
                place[v] = at - 1
                if not use.makes:
                    cost[v] = min(cost[v], best)
                    if use.load != NONE:
                        onward[use.load] = cost[v]
                keep = model.events[v][at - 1].keep if at else NONE
                if keep != NONE:
                    onward[keep] = cost[v]
                    cost[v] += one[keep]

    def kept(self, room: float) -> list[int]:
        """The keep columns without which a first run costs more than `room`, as what it reads has
        to come back."""
        model, found = self.model, []
        for v, uses in enumerate(model.events):
            # Of the ways back after this moment, and of keeping what came back before.
            wanted, back, kept = False, math.inf, 0.0
            for use in reversed(uses):
                keep = use.keep
                if wanted and keep != NONE:
                    if self.lower[keep] < self.upper[keep] and back + self.zero[keep] > room:
                        found.append(keep)
                    kept += self.one[keep]
                run = model.run[use.slot] if use.slot >= 0 else NONE
                if use.makes:
                    if run == NONE:
                        wanted = False
                    elif wanted:
                        back = min(back, self.to[run] + kept)
                else:
                    if run == NONE:
                        wanted, back, kept = True, math.inf, 0.0
                    if wanted and use.load != NONE:
                        back = min(back, self._load(v, use.load) + kept)
        return found
