"""The most that the pages of a schedule of interest cost.

The relaxation pages in a bit of one tensor and a bit of another, where a schedule writes a tensor
as a whole or not at all. So it is asked how much can go into pages: the most that writing and
paging in once cost, over all that is written, where everything together costs no more than the
schedules of interest. Where that is less than two pages cost, the row says that there is one at
most, and a tensor whose page costs more is not written.
"""

from __future__ import annotations

import math

import numpy as np

from poetc.schedule.exact.cuts import Tight
from poetc.schedule.exact.highs import Row, solve_lp
from poetc.schedule.exact.slots import NONE
from poetc.schedule.model.clock import Effort


def budget(tight: Tight, goal: float, effort: Effort) -> Row | None:
    """The row that says so, over the write columns, for every schedule better than the objective
    `goal`; None where there are no pages or HiGHS takes too much."""
    model = tight.model
    _, in_cost, out_cost = model.costs
    lp = tight.settled()
    cost = np.array(lp.cost)
    spent = np.flatnonzero(cost)
    lp.row(spent.tolist(), cost[spent].tolist(), upper=goal - lp.offset)
    price: dict[int, float] = {}
    for v, write in model.write.items():
        if lp.lower[write] >= 1:
            continue
        price[write] = (in_cost[v] + out_cost[v]) / model.scale
        # A page that is written is read.
        loads = [use.load for use in model.events[v] if use.load != NONE]
        lp.row((write, *loads), (1, *[-1] * len(loads)), upper=0)
    if not any(price.values()):
        return None
    lp.offset = 0.0
    for column in range(lp.columns):
        lp.cost[column] = -price.get(column, 0.0)
    outcome = solve_lp(lp, effort)
    if not outcome.finished or outcome.infeasible:
        return None
    # HiGHS may be wrong by a little.
    most = -outcome.objective + 1e-4 * max(1.0, math.fabs(outcome.objective))
    return Row(tuple(price), tuple(price.values()), most, whole=True)
