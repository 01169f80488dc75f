"""Bounds on parts of the problem, as rows for the relaxation of the whole.

Take the rows of a model that are about a few slots in a row, a *block*, and the optimum of the
relaxation with its prices of all rows. With the prices of the rows outside the block put on the
columns, what remains is a small MILP over the rows of the block. Its least value holds for every
schedule: whatever the costs on the columns are, a point that keeps to all rows keeps to those of
the block. So

    sum cost·x  >=  bound of the MILP

is a valid row, which the present optimum breaks if it mixes schedules inside the block. The LP then
sees what whole decisions cost there, and the gains of blocks add up, where branch and bound over
the whole would have to combine their cases. (Lagrangian relaxation by blocks of rows.)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from poetc.schedule.exact.cuts import Tight
from poetc.schedule.exact.highs import INF, LinearProgram, Row, solve_mip
from poetc.schedule.model.clock import Effort

# Costs are rounded to whole multiples of this, and what HiGHS may be wrong by is left out.
GRAIN = 2.0**-20
SAFETY = 2e-6


class Blocks:
    """The rows of a tightened relaxation, in the order of their slots."""

    def __init__(self, tight: Tight) -> None:
        self.tight = tight
        lp = tight.model.lp
        more = tight.rows
        self.labels = np.concatenate([np.array(lp.labels), [r.label for r in more]]).astype(int)
        self.row_lower = np.concatenate([np.array(lp.row_lower), np.full(len(more), -INF)])
        self.row_upper = np.concatenate([np.array(lp.row_upper), [r.upper for r in more]])
        lengths = np.concatenate([np.diff(np.array(lp.starts)), [len(r.index) for r in more]])
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
        self.index = np.concatenate([np.array(lp.index), *(r.index for r in more)]).astype(int)
        self.value = np.concatenate([np.array(lp.value), *(r.value for r in more)])
        outcome = tight.outcome
        assert outcome is not None and outcome.x is not None
        assert outcome.duals is not None and outcome.prices is not None
        self.x, self.duals = outcome.x, outcome.duals
        self.prices = outcome.prices

    def row(self, first: int, last: int, effort: Effort) -> Row | None:
        """The row of the block of slots `first` to `last`, None where the optimum does not break
        it."""
        chosen = np.flatnonzero((self.labels >= first) & (self.labels <= last))
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        offsets = np.repeat(self.starts[chosen] - np.cumsum(lengths) + lengths, lengths)
        entries = offsets + np.arange(lengths.sum())
        columns, local = np.unique(self.index[entries], return_inverse=True)
        x = self.x[columns]
        if np.all(np.minimum(x, 1 - x) < 1e-6):
            return None
        priced = self.value[entries] * np.repeat(self.prices[chosen], lengths)
        cost = self.duals[columns] + np.bincount(local, priced, len(columns))
        cost = np.round(cost / GRAIN) * GRAIN
        lp = LinearProgram()
        lp.cost.extend(cost)
        lp.lower.extend(self.tight.lower[columns])
        lp.upper.extend(self.tight.upper[columns])
        lp.integer.extend(np.array(self.tight.model.lp.integer)[columns])
        lp.row_lower.extend(self.row_lower[chosen])
        lp.row_upper.extend(self.row_upper[chosen])
        lp.starts.extend(np.cumsum(lengths))
        lp.index.extend(local)
        lp.value.extend(self.value[entries])
        now = float(cost @ x)
        gap = max(1e-2, 1e-3 * abs(now))
        params = self.tight.model.instance.params
        # Not searched further: its bound is then not the best there is.
        options = {"mip_max_nodes": params.block_nodes}
        outcome = solve_mip(lp, effort, absolute_gap=gap, options=options)
        if not np.isfinite(outcome.bound):
            return None
        bound = outcome.bound - SAFETY * max(1.0, abs(outcome.bound))
        if bound < now + 1e-2:
            return None
        used = np.flatnonzero(cost)
        return Row(tuple(columns[used].tolist()), tuple((-cost[used]).tolist()), -bound)


def block_rows(
    tight: Tight, bounds: Sequence[tuple[int, int]], effort: Effort, threads: int
) -> list[Row]:
    """The rows of blocks (first and last slot) that the optimum breaks, as far as the effort goes,
    so many `threads` at a time; what they find does not depend on how many."""
    blocks = Blocks(tight)
    most = effort.left * tight.model.instance.params.one_block_share
    halt = threading.Event()

    def row(block: tuple[int, int]) -> tuple[Row | None, float]:
        alone = effort.apart(most).unless(lambda: halt.is_set() or effort.over)
        begin = alone.clock.work
        return blocks.row(*block, alone), alone.clock.work - begin

    rows: list[Row] = []
    with ThreadPoolExecutor(threads) as pool:
        try:
            for found, work in pool.map(row, bounds):
                # A solve that began before the effort was at an end may be late.
                if effort.over:
                    break
                effort.spend(work)
                rows += [found] if found is not None else []
        except BaseException:
            # Ctrl-C: the threads are not waited for longer than HiGHS takes to stop.
            halt.set()
            raise
        halt.set()
    return rows
