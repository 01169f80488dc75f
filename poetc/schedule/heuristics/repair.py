"""Schedules of large problems in seconds: the sequence that keeps everything is repaired wherever
it exceeds the RAM, and the repairs are improved by taking some out and repairing again.

Where RAM is exceeded most, something is evicted (`evictions.py`): what costs least for the excess
that it takes away, in all stages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from poetc.schedule.heuristics.evictions import Plan, idle, page_price, plans, relief
from poetc.schedule.heuristics.timeline import Repair, Timeline
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.rebuild import Event

# Work for a round of repairs, for each tensor and each candidate in it, for the plans for one, for
# a repair that is taken out on trial, and for taking some out, for each tensor.
ROUND, TENSOR, CANDIDATE, PLAN, CHANGE, RUIN = 5e-5, 1e-7, 5e-6, 6e-5, 1.5e-4, 4e-6


def fit(line: Timeline, rng: random.Random, noise: float, effort: Effort, ceiling: float) -> bool:
    """Repairs until nothing exceeds the RAM. False when it is stuck, out of effort, or dearer than
    `ceiling`. `noise` is the spread of the random factors on the prices."""
    rate = 0.0
    params = line.instance.params
    enough = params.repair_plans
    while not effort.over:
        total = line.total_excess()
        if total <= 0:
            return True
        if line.price >= ceiling:
            return False
        t, key = line.worst()
        excess = line.excess
        candidates = []
        for v, before, after in idle(line, key):
            gone = relief(line, v, before, after, excess)
            if gone <= 0:
                # The run in excess and the next use are in one stage.
                gone = float(min(line.size[v], excess[t]))
            maker = line.instance.producer[v]
            least = min(page_price(line, v), math.inf if maker is None else line.run_price[maker])
            if least < math.inf:
                factor = 1.0 + noise * rng.random()
                candidates.append((least * factor / gone, v, before, after, gone, factor))
        effort.spend(ROUND + TENSOR * len(line.keys) + CANDIDATE * len(candidates))
        candidates.sort()
        chosen: list[tuple[float, Plan]] = []
        for least, v, before, after, gone, factor in candidates:
            # No plan for the rest is cheaper than those there are already.
            if len(chosen) >= enough and least >= chosen[enough - 1][0]:
                break
            most = chosen[enough - 1][0] * gone / factor if len(chosen) >= enough else math.inf
            effort.spend(PLAN)
            for plan in plans(line, v, before, after, 2 * rate or least, excess, most):
                gain = gone - plan.harm
                score = plan.price * factor / gain if gain > 0 else math.inf
                chosen.append((score, plan))
            chosen.sort(key=lambda entry: entry[0])
        done = False
        for score, plan in chosen[:enough]:
            mark = len(line.journal)
            line.add(plan.repairs)
            if line.total_excess() < total and line.storage >= 0:
                rate = score if score < math.inf else rate
                done = True
                break
            line.undo(mark)
        if not done and enough == params.repair_most_plans:
            return False
        enough = params.repair_plans if done else params.repair_most_plans
    return False


def thin(line: Timeline, effort: Effort) -> None:
    """Takes out the repairs, dearest first, that nothing needs any more."""
    found = line.repairs()

    def price(repair: Repair) -> float:
        return line.run_price[repair[1]] if repair[2] < 0 else line.in_price[repair[2]]

    for repair in sorted(found, key=lambda m: (-price(m), m)):
        effort.spend(CHANGE)
        if effort.over:
            return
        mark, before = len(line.journal), line.price
        line.remove([repair])
        if line.total_excess() > 0 or line.price >= before:
            line.undo(mark)


def squeeze(
    instance: Instance,
    least: int,
    found: Callable[[list[Event]], object],
    effort: Effort,
    seed: int = 0,
) -> None:
    """Looks for sequences with less and less RAM, whatever they cost, down to `least` bytes."""
    line = Timeline(instance, math.inf)
    _descend(line, random.Random(seed), least, lambda: found(line.events()), effort)


def _descend(
    line: Timeline,
    rng: random.Random,
    least: float,
    found: Callable[[], object],
    effort: Effort,
) -> bool:
    """Repairs for less and less RAM, down to `least` bytes, and calls `found` at each step. False
    where it does not get there; the repairs are then anything."""
    best = int(line.peak.max())
    # At first all the way; what is left of that is where the search by steps begins.
    step, failures = 1.0, 0
    while best > least and failures < line.instance.params.repair_attempts and not effort.over:
        line.limit = max(least, min(best - 1, int(best - (best - least) * step)))
        mark = len(line.journal)
        enough = fit(line, rng, float(failures > 0), effort, math.inf)
        peak = int(line.peak.max())
        if peak < best:
            best = peak
            found()
            step, failures = min(1.0, step * 1.5) if enough else min(0.1, step / 2), 0
        else:
            line.undo(mark)
            step, failures = min(0.1, step / 2), failures + 1
            _ruin(line, rng)
    return best <= least


def _at_once(line: Timeline, rng: random.Random, effort: Effort) -> bool:
    """Repairs for the limit of the line. False where that does not succeed."""
    for attempt in range(line.instance.params.repair_attempts):
        if fit(line, rng, float(attempt > 0), effort, math.inf):
            return True
        if effort.over:
            return False
        _ruin(line, rng)
    return False


def repair(
    instance: Instance,
    limit: float,
    found: Callable[[list[Event]], object],
    effort: Effort,
    *,
    patience: int | None = None,
    time_weight: float = 0.0,
    gradually: bool = False,
    seed: int = 0,
) -> None:
    """Looks for cheap sequences within `limit` bytes of RAM; calls `found` with each better one.

    Ends after `patience` rounds in a row without a better one, by default those of the parameters,
    or when the effort is at an end.
    `time_weight` is added to the energy (nJ) for each ns. The first sequence is repaired for the
    whole excess at once, or `gradually` for less and less RAM: that is dearer and takes longer, but
    gets to limits that are out of reach at once.
    """
    patience = instance.params.repair_patience if patience is None else patience
    rng = random.Random(seed)
    line = Timeline(instance, limit, time_weight)
    if gradually:
        enough = _descend(line, rng, limit, lambda: None, effort)
        line.limit = limit
    else:
        enough = _at_once(line, rng, effort)
    if not enough:
        return
    thin(line, effort)
    best = present = line.price
    found(line.events())
    unsuccessful = 0
    while unsuccessful < patience and present > 0 and not effort.over:
        unsuccessful += 1
        line.journal.clear()
        effort.spend(RUIN * len(line.keys))
        _ruin(line, rng)
        # A little dearer is taken now and then, to get out of dead ends.
        ceiling = present + (best * 0.02 * rng.random() ** 3 if rng.random() < 0.3 else 0.0)
        if fit(line, rng, 0.5, effort, ceiling * 1.05 + 1e-9):
            thin(line, effort)
        if line.total_excess() > 0 or line.price > ceiling:
            line.undo(0)
            continue
        present = line.price
        if present < best * (1 - 1e-9):
            best = present
            unsuccessful = 0
            found(line.events())


def _ruin(line: Timeline, rng: random.Random) -> None:
    """Takes out some of the repairs: in a few stages in a row, or anywhere."""
    repairs = line.repairs()
    if not repairs:
        return
    if rng.random() < 0.7:
        centre = rng.choice(repairs)[0]
        reach = rng.choice((2, 5, 10, 20, 40))
        share = rng.choice((0.3, 0.6, 1.0))
        chosen = [m for m in repairs if abs(m[0] - centre) <= reach and rng.random() < share]
    else:
        chosen = rng.sample(repairs, max(1, int(len(repairs) * 0.1 * rng.random())))
    line.remove(chosen)
