"""Tensors that can be evicted where RAM is exceeded, and how they come back.

The tensors that lie idle there are candidates: one is evicted until its next reader, for which it
is paged in or recomputed, with a chain of its ancestors where its operands are not there and cannot
be kept.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from poetc.schedule.heuristics.timeline import READ, Repair, Timeline


@dataclass(frozen=True)
class Plan:
    """Repairs that belong together; what they cost, and the excess (bytes × stages) they cause."""

    price: float
    harm: float
    repairs: tuple[Repair, ...]


def idle(line: Timeline, key: int) -> list[tuple[int, int, int]]:
    """(tensor, keys of its uses before and after) of what only lies in RAM at `key`."""
    found = []
    for v, keys in enumerate(line.keys):
        if not keys or keys[0] >= key or keys[-1] <= key or not line.size[v]:
            continue
        index = bisect_left(keys, key)
        if keys[index] != key and line.kinds[v][index] == READ:
            found.append((v, keys[index - 1], keys[index]))
    return found


def relief(line: Timeline, v: int, before: int, after: int, excess: np.ndarray) -> float:
    """Excess that goes when `v` is away between two uses."""
    first, last = before // line.width + 1, after // line.width
    # In the last stage it is away only until it is brought back.
    inside = excess[first : max(last, first + 1)]
    return float(np.minimum(inside[inside > 0], line.size[v]).sum())


def page_price(line: Timeline, v: int) -> float:
    """Price of paging `v` in once more."""
    if not line.instance.pageable[v]:
        return math.inf
    if line.loads[v] or line.stored[v]:
        return line.in_price[v]
    fits = line.instance.stored_bytes[v] <= line.storage
    return line.in_price[v] + line.out_price[v] if fits else math.inf


def plans(
    line: Timeline,
    v: int,
    before: int,
    after: int,
    rate: float,
    excess: np.ndarray,
    most: float,
) -> list[Plan]:
    """Ways to have `v` again at `after` when it is evicted until then. `rate` is what an excess of
    one byte is worth; plans that are dearer than `most` need not be found."""
    t, k = divmod(after, line.width)
    found = []
    page = page_price(line, v)
    if page < math.inf:
        found.append(Plan(page, 0.0, ((t, k, v),)))
    maker = line.instance.producer[v]
    if maker is not None and before >= 0:
        stage = _Stage(line, t, rate, excess)
        plan = stage.recompute(maker, most, line.instance.params.repair_chain)
        if plan is not None:
            found.append(plan)
    return found


def _harm(size: int, first: int, last: int, excess: np.ndarray) -> float:
    """Excess that `size` more bytes in the stages `first` to `last` make."""
    if first > last:
        return 0.0
    inside = excess[first : last + 1]
    more = inside + size
    if more.max() <= 0:
        return 0.0
    return float((np.maximum(more, 0) - np.maximum(inside, 0)).sum())


class _Stage:
    """Finds out how operations can run again in one stage."""

    def __init__(self, line: Timeline, t: int, rate: float, excess: np.ndarray) -> None:
        self.line, self.t, self.rate, self.excess = line, t, rate, excess
        self.known: dict[int, Plan] = {}
        self.dearer: dict[int, float] = {}  # operations whose plan is known to cost at least this
        self.keep: dict[int, float] = {}

    def value(self, plan: Plan) -> float:
        return plan.price + self.rate * plan.harm

    def recompute(self, k: int, most: float, depth: int) -> Plan | None:
        """How to run `k` again, or None where that is impossible or worth more than `most`. What
        two operands need is paid for twice."""
        line, t = self.line, self.t
        if k in self.known:
            return self.known[k] if self.value(self.known[k]) < most else None
        price = line.run_price[k]
        if max(price, self.dearer.get(k, 0.0)) >= most:
            return None
        if depth == 0 or k >= t or line.instance.last_recompute[k] < t or k in line.recomputes[t]:
            return None
        key = t * line.width + k
        value, harm = price, 0.0
        repairs: dict[Repair, None] = {}
        for i in line.instance.inputs[k]:
            keys = line.keys[i]
            index = bisect_left(keys, key)
            if 0 < index < len(keys) and line.kinds[i][index] == READ:
                continue
            best: Plan | None = None
            if index:
                best = Plan(0.0, self._kept(i, keys[index - 1]), ())
            page = page_price(line, i)
            if page < math.inf and (best is None or page < self.value(best)):
                best = Plan(page, 0.0, ((t, k, i),))
            maker = line.instance.producer[i]
            if maker is not None:
                room = most - value if best is None else min(most - value, self.value(best))
                best = self.recompute(maker, room, depth - 1) or best
            if best is None:
                self.dearer[k] = max(self.dearer.get(k, 0.0), most)
                return None
            value += self.value(best)
            if value >= most:
                self.dearer[k] = max(self.dearer.get(k, 0.0), most)
                return None
            price += best.price
            harm += best.harm
            repairs |= dict.fromkeys(best.repairs)
        repairs[t, k, -1] = None
        plan = self.known[k] = Plan(price, harm, tuple(repairs))
        return plan

    def _kept(self, v: int, last: int) -> float:
        """Harm of keeping `v` until this stage from its last use on."""
        harm = self.keep.get(v)
        if harm is None:
            line = self.line
            harm = _harm(line.size[v], last // line.width + 1, self.t, self.excess)
            self.keep[v] = harm
        return harm
