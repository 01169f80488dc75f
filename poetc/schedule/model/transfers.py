"""Moves the transfers of a schedule so that they overlap computing.

Three moves, none of which changes what is computed or how much is transferred: a page-out goes
forward to where it delays nobody; the free that waits for a page-out goes back to where the
page-out has ended; a page-in goes forward to where it must begin to be there for its reader, all
later transfers considered. A move is made only as far as RAM allows, and kept only if the makespan,
by the timeline rule of `schedule/model/checker.py`, does not grow.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from poetc.schedule.model.checker import replay
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Free,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    Variant,
)
from poetc.schedule.model.rebuild import Event, Load, Run, rebuild, resident
from poetc.schedule.params import DEFAULTS


def overlap_transfers(
    problem: Problem,
    steps: Sequence[Step],
    budget_bytes: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[int, ...]:
    """The order in which to run `steps`: `range(len(steps))` where another would not be faster.

    RAM stays within `budget_bytes` (by default `problem.ram_bytes`, without which the peak of
    `steps`), or within the peak of `steps` where that is more. The deadline is left aside: `steps`
    may miss it, and so may the order returned. Once it is to `stop`, no more is moved. Raises
    ScheduleError when `steps` are not legal otherwise.
    """
    unchanged = tuple(range(len(steps)))
    if not problem.dma or not any(isinstance(step, PageIn | PageOut) for step in steps):
        return unchanged
    problem = replace(problem, deadline_ns=None)
    before = replay(problem, steps)
    if budget_bytes is None:
        budget_bytes = problem.ram_bytes or 0
    budget = max(budget_bytes, before.peak_bytes)
    plan = _Plan(problem, budget, tuple(steps), stop)
    plan.page_out_early()
    plan.free_late()
    plan.page_in_early()
    after = replay(replace(problem, ram_bytes=budget), plan.now.steps)
    return plan.now.order if after.makespan_ns < before.makespan_ns else unchanged


def hurried(
    problem: Problem,
    steps: Sequence[Step],
    rounds: int = DEFAULTS.shuffle_rounds,
    most_steps: int = DEFAULTS.shuffle_steps,
) -> tuple[Step, ...]:
    """`steps` with transfers that overlap computing as far as a search of fixed effort finds.

    Beyond `overlap_transfers`, operations do not take over the buffers of tensors that are being
    written where that saves time, and transfers and frees change places at random as long as that
    does not take longer: in so many `rounds` for each step, that go through at most `most_steps`
    steps together. The deadline is left aside. Raises ScheduleError when `steps` are not
    legal otherwise.
    """
    steps = tuple(steps)
    order = overlap_transfers(problem, steps)
    steps = tuple(steps[at] for at in order)
    if not problem.dma or not any(isinstance(step, PageIn | PageOut) for step in steps):
        return steps
    budget = problem.ram_bytes
    plan = _Plan(problem, math.inf if budget is None else budget, steps)
    for other in _without_taking_over(problem, steps):
        trial = _Plan(problem, plan.budget, other)
        if max(trial.now.used) > plan.budget:
            continue
        trial.page_out_early()
        trial.free_late()
        trial.page_in_early()
        if trial.now.makespan_ns < plan.now.makespan_ns:
            plan = trial
    plan.shuffle(random.Random(0), min(most_steps // len(steps), rounds * len(steps)))
    return plan.now.steps


def _without_taking_over(problem: Problem, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """`steps` in which operations leave alone the buffers of tensors that are written: all that
    may, then each in turn."""
    written = {step.tensor for step in steps if isinstance(step, PageOut)}
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Compute):
            pairs = tuple(
                (o, i) for o, i in step.inplace if i in written and problem.tensors[o].replaces != i
            )
            if pairs:
                found[at] = pairs
    alone = [[at] for at in found] if len(found) > 1 else []
    for chosen in (list(found), *alone):
        result: list[Step] = []
        for at, step in enumerate(steps):
            if isinstance(step, Compute) and at in chosen:
                kept = tuple(pair for pair in step.inplace if pair not in found[at])
                result += [replace(step, inplace=kept), *(Free(i) for _, i in found[at])]
            else:
                result.append(step)
        if chosen:
            yield tuple(result)


def without_overlap(instance: Instance, steps: Sequence[Step]) -> tuple[Step, ...]:
    """`steps` with the transfers where they need least RAM: page-ins just before their readers,
    page-outs and frees as soon as possible."""
    events: list[Event] = []
    waiting: dict[int, Load] = {}
    for step in steps:
        match step:
            case PageIn(v):
                waiting[v] = Load(v)
            case Compute(k, _, variant):
                run = Run(k, variant)
                wanted, _ = resident(instance, run)
                events += [waiting.pop(v) for v in list(waiting) if v in wanted]
                events.append(run)
            case _:
                pass
    return rebuild(instance, [*events, *waiting.values()])


@dataclass(frozen=True)
class _Run:
    """An order of the steps, and for each the bytes in RAM during it and when computing reaches it.

    `work_ns` is that time without any waiting. Both have one more entry, for the end.
    """

    order: tuple[int, ...]
    steps: tuple[Step, ...]
    start_ns: tuple[int, ...]
    work_ns: tuple[int, ...]
    used: tuple[int, ...]
    makespan_ns: int


class _Timed(NamedTuple):
    """The effect of a step on the timeline and on the RAM.

    A `transfer` of a tensor takes the bus for `time_ns`; None is what takes the processor for that
    time, after page-ins of the tensors `read` and all transfers of those `ended`; with `both` it
    takes the bus, too. The RAM grows before it and shrinks after it; `beside_bytes` more are in use
    meanwhile.
    """

    transfer: int | None
    arrives: bool
    time_ns: int
    grows_bytes: int = 0
    shrinks_bytes: int = 0
    beside_bytes: int = 0
    read: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    made: tuple[int, ...] = ()
    both: bool = False


def _timed(problem: Problem, step: Step) -> _Timed:
    tensors = problem.tensors
    match step:
        case Compute(k, inplace, variant):
            operation = problem.operations[k]
            way = operation.way(variant)
            made = tuple(way.resident(operation.outputs))
            shared = sum(min(tensors[o].bytes, tensors[i].bytes) for o, i in inplace)
            return _Timed(
                None,
                False,
                way.time_ns,
                grows_bytes=sum(tensors[v].bytes for v in made),
                shrinks_bytes=sum(tensors[i].bytes for _, i in inplace),
                beside_bytes=way.workspace_bytes - shared,
                read=tuple(way.resident(operation.inputs)),
                ended=tuple(i for _, i in inplace),
                made=made,
                both=bool(way.streamed),
            )
        case PageIn(v):
            return _Timed(v, True, tensors[v].pagein_time_ns, grows_bytes=tensors[v].bytes)
        case PageOut(v):
            return _Timed(v, False, tensors[v].pageout_time_ns)
        case Free(v):
            return _Timed(None, False, 0, shrinks_bytes=tensors[v].bytes, ended=(v,))


class _Plan:
    """The steps so far, and moves that may improve on them."""

    def __init__(
        self,
        problem: Problem,
        budget: float,
        steps: tuple[Step, ...],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.problem, self.budget, self.stop = problem, budget, stop
        self.bytes = [t.bytes for t in problem.tensors]
        self.steps = steps
        self.timed = [_timed(problem, step) for step in steps]
        self.now = self.run(range(len(steps)))

    def run(self, order: Iterable[int]) -> _Run:
        """The timeline: transfers queue for the bus; a kernel waits for page-ins of what it reads,
        a free or a reuse of a buffer for every transfer of its tensor."""
        tensors = self.problem.tensors
        live = sum(t.bytes for t in tensors if t.start is Place.RAM)
        clock = bus = work = 0
        # When the last transfer of each tensor ends, and the last page-in; 0: there was none.
        ends, arrives = [0] * len(tensors), [0] * len(tensors)
        starts: list[int] = []
        works: list[int] = []
        used: list[int] = []
        order = tuple(order)
        timed = self.timed
        for index in order:
            starts.append(clock)
            works.append(work)
            step = timed[index]
            live += step.grows_bytes
            used.append(live + step.beside_bytes)
            live -= step.shrinks_bytes
            if step.transfer is None:
                for v in step.read:
                    if arrives[v] > clock:
                        clock = arrives[v]
                for v in step.ended:
                    if ends[v] > clock:
                        clock = ends[v]
                if step.both:
                    clock = max(clock, bus)
                clock += step.time_ns
                work += step.time_ns
                if step.both:
                    bus = clock
                for v in step.made:
                    ends[v] = arrives[v] = 0
            else:
                bus = max(clock, bus) + step.time_ns
                ends[step.transfer] = bus
                if step.arrives:
                    arrives[step.transfer] = bus
        steps = tuple(self.steps[index] for index in order)
        return _Run(order, steps, (*starts, clock), (*works, work), tuple(used), max(clock, bus))

    def way(self, step: Compute) -> Variant:
        return self.problem.operations[step.operation].way(step.variant)

    def duration_ns(self, step: PageIn | PageOut) -> int:
        tensor = self.problem.tensors[step.tensor]
        return tensor.pagein_time_ns if isinstance(step, PageIn) else tensor.pageout_time_ns

    def moved(self, source: int, target: int) -> _Run:
        """The steps with the one at index `source` moved to index `target`."""
        order = list(self.now.order)
        order.insert(target, order.pop(source))
        return self.run(order)

    def move(self, source: int, target: int) -> None:
        """Moves a step, unless that takes longer or needs too much RAM."""
        trial = self.moved(source, target)
        if trial.makespan_ns <= self.now.makespan_ns and max(trial.used) <= self.budget:
            self.now = trial

    def touches(self, step: Step, v: int) -> bool:
        """Whether `step` makes, reads or ends tensor `v` in RAM, or transfers it."""
        if not isinstance(step, Compute):
            return step.tensor == v
        operation = self.problem.operations[step.operation]
        return v in operation.inputs or v in operation.outputs

    def shuffle(self, rng: random.Random, rounds: int) -> None:
        """Moves transfers and frees at random, as far as other uses of their tensors let them, for
        so many rounds or until computing or the bus never waits."""
        busy = self.now.work_ns[-1]
        bus = sum(self.duration_ns(s) for s in self.now.steps if isinstance(s, PageIn | PageOut))
        least = max(busy, bus)
        for _ in range(rounds):
            steps = self.now.steps
            if self.now.makespan_ns <= least:
                return
            at = rng.randrange(len(steps))
            step = steps[at]
            if isinstance(step, Compute):
                continue
            low = high = at
            while low > 0 and not self._bars(steps[low - 1], step):
                low -= 1
            while high + 1 < len(steps) and not self._bars(steps[high + 1], step):
                high += 1
            target = rng.randint(low, high)
            if target != at:
                self.move(at, target)

    def _bars(self, other: Step, step: PageIn | PageOut | Free) -> bool:
        """Whether `step` may not change places with `other`."""
        if isinstance(step, PageOut) and isinstance(other, Compute):
            # It may be read while it is written, but not its page.
            taken = any(i == step.tensor for _, i in other.inplace)
            paged = step.tensor in self.way(other).streamed
            return taken or paged or self._brings(other, step.tensor)
        return self.touches(other, step.tensor)

    def page_out_early(self) -> None:
        """Each page-out where it delays nobody: once its tensor is made, or behind a reader of it.

        The bus may be wanted by a page-in, so sooner is not always better; at equal makespan the
        latest place is taken.
        """
        for at in range(len(self.now.steps)):
            step = self.now.steps[at]
            if not isinstance(step, PageOut):
                continue
            if self.stop():
                return
            best = self.now
            for target in range(at - 1, 0, -1):
                before = self.now.steps[target - 1]
                if isinstance(before, Compute) and self.touches(before, step.tensor):
                    trial = self.moved(at, target)
                    if trial.makespan_ns < best.makespan_ns:
                        best = trial
                if self._brings(before, step.tensor):
                    break
            self.now = best

    def _brings(self, step: Step, v: int) -> bool:
        if isinstance(step, Compute):
            return v in self.problem.operations[step.operation].outputs
        return step == PageIn(v)

    def free_late(self) -> None:
        """Each free behind the steps during which its tensor is still being written to storage."""
        for at in range(len(self.now.steps) - 1, -1, -1):
            step, now = self.now.steps[at], self.now
            if not isinstance(step, Free):
                continue
            if self.stop():
                return
            v = step.tensor
            target, waits = at, self._wait_ns(at)
            while waits > 0 and target + 1 < len(now.steps):
                following = now.steps[target + 1]
                if self.touches(following, v) or now.used[target + 1] + self.bytes[v] > self.budget:
                    break
                if isinstance(following, Compute):
                    waits -= self.way(following).time_ns
                target += 1
            if target > at:
                self.move(at, target)

    def _wait_ns(self, at: int) -> int:
        """How long the free at step `at` keeps computing waiting."""
        return self.now.start_ns[at + 1] - self.now.start_ns[at]

    def page_in_early(self) -> None:
        """Each page-in as late as it can begin to keep nobody waiting, and no later."""
        for index, begin_ns in self._latest_starts():
            if self.stop():
                return
            now, step = self.now, self.steps[index]
            assert isinstance(step, PageIn)
            target = at = now.order.index(index)
            while target > 0 and now.work_ns[target] > begin_ns:
                before = now.steps[target - 1]
                if self.touches(before, step.tensor) or isinstance(before, PageIn):
                    break
                if now.used[target - 1] + self.bytes[step.tensor] > self.budget:
                    break
                target -= 1
            if target < at:
                self.move(at, target)

    def _latest_starts(self) -> list[tuple[int, int]]:
        """The page-ins in order (indices of steps), with the time by which each should begin.

        Seen from the end: a transfer must be over when its reader starts and when the bus is needed
        by the next one. The times are those of computing that never waits.
        """
        now = self.now
        wanted: list[tuple[int, int]] = []
        needed: dict[int, int] = {}  # tensor -> when its next reader starts
        bus = now.work_ns[-1]
        for at in range(len(now.steps) - 1, -1, -1):
            step = now.steps[at]
            if isinstance(step, Compute):
                for v in self.problem.operations[step.operation].inputs:
                    needed[v] = now.work_ns[at]
            elif isinstance(step, PageIn):
                bus = min(bus, needed.get(step.tensor, now.work_ns[at])) - self.duration_ns(step)
                wanted.append((now.order[at], bus))
            elif isinstance(step, PageOut):
                bus -= self.duration_ns(step)
        return wanted[::-1]
