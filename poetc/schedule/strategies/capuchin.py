"""`capuchin`: Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning"
(ASPLOS 2020).

Three phases, as in the paper:

1. measured execution: the unlimited run gives the time of every access to every tensor and the RAM
   in use. (The paper measures under the limit, with paging on demand, and takes transfers out of
   the times.)
2. policy: while the run needs too much somewhere, put a tensor away between two accesses around
   the peak. A swap whose free time (from the access before to the access after, less both
   transfers) is not negative costs nothing: the one with the most free time per second of transfer
   is taken. When there is none, the swap with the least time that is not hidden competes with the
   recompute that saves most bytes per second (MSPS), and the one that takes less time wins. The
   time of a recompute takes into account what else has been evicted by then, as in the
   paper.
3. guided execution: the program runs with these decisions; what still does not fit is made to fit
   on demand by swapping out what was accessed least recently (the paper's passive mode).

Generalised: what may not be paged, or has no place on storage, is evicted only for recompute; what
depends on a replaced parameter is not recomputed. The feedback that moves prefetches from one
iteration to the next is left to the search, which overlaps transfers in any schedule where there
is DMA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from poetc.schedule.model import keep_all
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._runtime import OutOfMemoryError, Runtime


@dataclass(frozen=True)
class Gap:
    """Tensor `v` is not accessed between operations `begin` (−1: the start) and `end` (n: the
    end)."""

    v: int
    begin: int
    end: int


@strategy(turn=5)
def capuchin(search: Search) -> bool:
    """Offers the schedule of the guided execution; True when that runs out of memory."""
    machine = Capuchin(search.instance)
    try:
        machine.decide()
        swaps = sum(machine.plan.values())
        search.note(
            f"capuchin: {swaps} swaps and {len(machine.plan) - swaps} recomputes decided on"
        )
        events = machine.sequence()
    except OutOfMemoryError as error:
        search.note(f"capuchin: {error}")
        return True
    search.offer(events, f"capuchin, {machine.passive} more evicted on demand")
    return search.steps is None


class Capuchin(Runtime):
    """The machine with Capuchin's decisions. `plan` says for each gap whether it is a swap (else a
    recompute); `passive` counts what was evicted on demand."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.plan: dict[Gap, bool] = {}
        self.away: dict[int, list[Gap]] = {}  # the gaps of `plan` by tensor
        self.passive = 0
        self.start_ns, clock = [], 0
        for operation in instance.operations:
            self.start_ns.append(clock)
            clock += operation.time_ns
        self.start_ns.append(clock)
        self.pages = set(self.stored)  # tensors that have a page according to the plan

    # Policy

    def decide(self) -> None:
        """Fills `plan`; may leave a peak that nothing can be done about to the guided execution."""
        used = keep_all.bytes_in_use(self.instance)
        gaps = self._gaps()
        hopeless: set[int] = set()
        while True:
            over = [k for k in range(self.instance.n) if used[k] > self.limit and k not in hopeless]
            if not over:
                return
            peak = max(over, key=lambda k: used[k])
            around = [g for g in gaps if g.begin < peak < g.end and g not in self.plan]
            gap, swap = self._choose(around)
            if gap is None:
                hopeless.add(peak)
                continue
            self.plan[gap] = swap
            self.away.setdefault(gap.v, []).append(gap)
            if swap:
                self._reserve(gap.v)
            for k in range(gap.begin + 1, gap.end):
                used[k] -= self.size[gap.v]

    def _gaps(self) -> list[Gap]:
        """All times in which a tensor is in RAM but not accessed."""
        instance = self.instance
        gaps: list[Gap] = []
        for v, readers in enumerate(instance.readers):
            made = instance.producer[v]
            accesses = [*([] if made is None else [made]), *readers]
            if instance.tensors[v].start is Place.RAM:
                accesses.insert(0, -1)
            if instance.tensors[v].end is Place.RAM:
                accesses.append(instance.n)
            gaps += [Gap(v, a, b) for a, b in pairwise(accesses) if b > a + 1 and self.size[v] > 0]
        return gaps

    def _choose(self, gaps: list[Gap]) -> tuple[Gap | None, bool]:
        """The gap to use next, and whether to swap in it."""
        swaps = {g: self._free_time(g) for g in gaps if self._may_page(g.v)}
        hidden = [g for g, free in swaps.items() if free >= 0]
        if hidden:
            return max(hidden, key=lambda g: swaps[g] / max(self._transfer_ns(g.v), 1)), True
        times = {g: self._recompute_ns(g.v, g.end) for g in gaps if g.begin >= 0}
        times = {g: time for g, time in times.items() if time < math.inf}
        swap = max(swaps, key=lambda g: swaps[g], default=None)
        again = max(times, key=lambda g: self.size[g.v] / max(times[g], 1), default=None)
        if again is None or (swap is not None and -swaps[swap] < times[again]):
            return swap, True
        return again, False

    def _transfer_ns(self, v: int) -> int:
        tensor = self.instance.tensors[v]
        out_ns = 0 if v in self.pages else tensor.pageout_time_ns
        return out_ns + tensor.pagein_time_ns

    def _free_time(self, gap: Gap) -> int:
        """Time between the end of the swap-out and the latest start of the swap-in."""
        begin = 0 if gap.begin < 0 else self.start_ns[gap.begin + 1]
        return self.start_ns[gap.end] - begin - self._transfer_ns(gap.v)

    def _recompute_ns(self, v: int, stage: int) -> float:
        """Time to make `v` again before operation `stage` in the run as decided so far, each
        operation on the way being run once."""
        instance = self.instance
        time_ns, wanted, seen = 0, [v], {v}
        again: set[int] = set()
        while wanted:
            u = wanted.pop()
            k = instance.producer[u]
            if k is None or not self.can_recompute(u) or instance.last_recompute[k] < stage:
                return math.inf
            if k in again:
                continue
            again.add(k)
            time_ns += instance.operations[k].time_ns
            for i in instance.inputs[k]:
                if i in seen or self._resident(i, stage):
                    continue
                seen.add(i)
                if i in self.pages:
                    time_ns += instance.tensors[i].pagein_time_ns
                else:
                    wanted.append(i)
        return time_ns

    def _resident(self, v: int, stage: int) -> bool:
        """Is `v` in RAM just before operation `stage` in the run as decided so far?"""
        if self.instance.producer[v] is None and v not in self.pages:
            return True
        if self.last_use[v] < stage:
            return False
        return not any(g.begin < stage <= g.end for g in self.away.get(v, ()))

    def _may_page(self, v: int) -> bool:
        if not self.instance.pageable[v]:
            return False
        limit = self.instance.problem.storage_bytes
        return (
            v in self.pages
            or limit is None
            or self.storage + self.instance.stored_bytes[v] <= limit
        )

    def _reserve(self, v: int) -> None:
        """Gives `v` a place on storage."""
        if v not in self.pages:
            self.pages.add(v)
            self.storage += self.instance.stored_bytes[v]

    # Guided execution

    def after_first_run(self, k: int) -> None:
        for gap, swap in self.plan.items():
            if gap.begin == k and gap.v in self.ram:
                self._leave(gap.v, swap)

    def sequence(self) -> list[Event]:
        for gap in self.plan:
            if gap.begin < 0:
                self._leave(gap.v, True)
        return super().sequence()

    def _leave(self, v: int, swap: bool) -> None:
        if swap:
            self._reserve(v)
            self.stored.add(v)
            if not self.instance.problem.dma:
                self.clock_ns += self.instance.tensors[v].pageout_time_ns
        self.drop(v)

    def may_put_away(self, v: int) -> bool:
        return self._may_page(v) or super().may_put_away(v)

    def victim(self, candidates: list[int]) -> int:
        return min(candidates, key=lambda v: (not self._may_page(v), self.accessed_ns[v], v))

    def evict(self, v: int) -> None:
        self.passive += 1
        self._leave(v, self._may_page(v))
