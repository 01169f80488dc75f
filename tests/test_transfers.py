"""Moves of transfers, against every place that there is for them; timelines against the checker."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from poetc.schedule.model.checker import replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    Tensor,
)
from poetc.schedule.model.transfers import _Plan, hurried, overlap_transfers, without_overlap

MOVED = 0
"""The tensor that is transferred."""


def chain(rng: random.Random, *, start: Place | None, end: Place | None) -> Problem:
    """Kernels one after the other, of which some read `MOVED`, too: the first makes it, or it is
    there from the `start` on. Some may take over the buffer of what the one before has made, and
    the last reader of `MOVED` that of it. Times are multiples of 5 ns: much ends at once."""
    count = rng.randint(2, 5)
    tensors = [
        Tensor(
            "moved",
            4,
            start=start,
            end=end,
            pagein_time_ns=5 * rng.randint(1, 5),
            pageout_time_ns=5 * rng.randint(1, 5),
        )
    ]
    operations: list[Operation] = []
    must_read = rng.randrange(count)
    if start is None:
        operations.append(Operation("make", (), (MOVED,), 5 * rng.randint(1, 2), 1))
    for k in range(count):
        before = (len(tensors) - 1,) if k else ()
        reads = k == must_read or rng.random() < 0.4
        tensors.append(
            Tensor(f"t{k}", rng.randint(1, 4), end=Place.RAM if k == count - 1 else None)
        )
        inputs = (*before, MOVED) if reads else before
        work = rng.choice((0, 0, rng.randint(1, 12)))
        made = len(tensors) - 1
        may = (v for v in inputs if tensors[v].bytes >= tensors[made].bytes)
        pairs = tuple((made, v) for v in may if v == MOVED or rng.random() < 0.5)
        times = 5 * rng.randint(0, 2), 1, work
        operations.append(Operation(f"k{k}", inputs, (made,), *times, inplace=pairs))
    return Problem(tuple(operations), tuple(tensors), dma=True)


def last_reader(problem: Problem) -> int:
    return max(k for k, o in enumerate(problem.operations) if MOVED in o.inputs)


def kernels(problem: Problem) -> list[Step]:
    """All kernels, with frees as soon as may be where nothing is taken over, but of `MOVED`."""
    steps: list[Step] = []
    for k, operation in enumerate(problem.operations):
        pairs = tuple((o, i) for o, i in operation.inplace if i != MOVED)
        taken = {i for _, i in pairs}
        steps.append(Compute(k, pairs))
        steps += [Free(v) for v in operation.inputs if v != MOVED and v not in taken]
    return steps


def reads(problem: Problem, step: Step) -> bool:
    """Whether it is a kernel that reads `MOVED`."""
    return isinstance(step, Compute) and MOVED in problem.operations[step.operation].inputs


def legal(problem: Problem, steps: Sequence[Step]) -> int | None:
    """The makespan, None where the checker refuses the steps."""
    try:
        return replay(problem, steps).makespan_ns
    except ScheduleError:
        return None


def placed(steps: Sequence[Step], moved: Sequence[Step]) -> Iterator[list[Step]]:
    """`steps` with each of `moved` at each place, in that order among themselves."""
    for places in combinations_with_replacement(range(len(steps) + 1), len(moved)):
        found = list(steps)
        for place, step in reversed(list(zip(places, moved, strict=True))):
            found.insert(place, step)
        yield found


def best_ns(problem: Problem, steps: Sequence[Step], moved: Sequence[Step]) -> int:
    found = [legal(problem, trial) for trial in placed(steps, moved)]
    return min(ns for ns in found if ns is not None)


def ordered(problem: Problem, steps: Sequence[Step], budget: int) -> list[Step]:
    order = overlap_transfers(problem, steps, budget)
    assert sorted(order) == list(range(len(steps)))
    return [steps[at] for at in order]


@pytest.mark.parametrize("seed", range(8))
def test_a_page_in_is_where_nobody_waits_for_it(seed: int) -> None:
    """In the best of all places for it that the budget allows, and not sooner than it must be."""
    rng = random.Random(seed)
    gained = 0
    for _ in range(50):
        problem = chain(rng, start=Place.STORAGE, end=None)
        steps = kernels(problem)
        readers = [at for at, step in enumerate(steps) if reads(problem, step)]
        late = [*steps[: readers[0]], PageIn(MOVED), *steps[readers[0] : readers[-1] + 1]]
        late += [Free(MOVED), *steps[readers[-1] + 1 :]]
        before = replay(problem, late)
        budget = before.peak_bytes + rng.choice((0, 2, 4, 8))
        within = replace(problem, ram_bytes=budget)
        found = ordered(problem, late, budget)
        took = replay(within, found).makespan_ns
        rest = [step for step in found if step != PageIn(MOVED)]
        assert took == best_ns(within, rest, [PageIn(MOVED)])
        gained += took < before.makespan_ns
        if found != late:
            # One kernel later it keeps somebody waiting.
            at = found.index(PageIn(MOVED))
            behind = next(i for i, s in enumerate(found) if i > at and isinstance(s, Compute))
            later = [*found[:at], *found[at + 1 : behind + 1], PageIn(MOVED), *found[behind + 1 :]]
            slower = legal(within, later)
            assert (
                slower is None or slower > took or not _takes(problem, found[at + 1 : behind + 1])
            )
    assert gained >= 3


def _takes(problem: Problem, steps: Sequence[Step]) -> int:
    return sum(problem.operations[s.operation].time_ns for s in steps if isinstance(s, Compute))


@pytest.mark.parametrize("seed", range(8))
def test_a_page_out_and_its_free_are_where_nobody_waits_for_them(seed: int) -> None:
    """In the best of all pairs of places, where there is RAM for the tensor until the end."""
    rng = random.Random(seed)
    gained = 0
    for _ in range(25):
        problem = chain(rng, start=None, end=Place.STORAGE)
        steps = kernels(problem)
        at = 1 + max(at for at, step in enumerate(steps) if reads(problem, step))
        late = [*steps[:at], PageOut(MOVED), Free(MOVED), *steps[at:]]
        before = replay(problem, late)
        budget = before.peak_bytes + sum(t.bytes for t in problem.tensors)
        within = replace(problem, ram_bytes=budget)
        took = replay(within, ordered(problem, late, budget)).makespan_ns
        assert took == best_ns(within, steps, [PageOut(MOVED), Free(MOVED)])
        gained += took < before.makespan_ns
        # Without RAM to spare the free may stay, but nothing gets slower or larger.
        tight = ordered(problem, late, 0)
        report = replay(problem, tight)
        assert report.peak_bytes <= before.peak_bytes
        assert took <= report.makespan_ns <= before.makespan_ns
    assert gained >= 3


@pytest.mark.parametrize("seed", range(8))
def test_a_buffer_is_taken_over_only_where_nobody_waits_for_that(seed: int) -> None:
    """The last reader may make its result in the buffer that is being written, or leave it alone,
    which needs a free."""
    rng = random.Random(seed)
    spared = 0
    for _ in range(25):
        problem = chain(rng, start=None, end=Place.STORAGE)
        last = last_reader(problem)
        steps = kernels(problem)
        at = steps.index(next(s for s in steps if isinstance(s, Compute) and s.operation == last))
        others = [v for v in problem.operations[last].inputs if v != MOVED]
        takes = Compute(last, ((problem.operations[last].outputs[0], MOVED),))
        freed = [Free(v) for v in others if Free(v) not in steps]
        taking = [*steps[:at], PageOut(MOVED), takes, *freed, *steps[at + 1 :]]
        before = replay(problem, taking)
        found = hurried(problem, taking)
        took = replay(problem, found).makespan_ns
        rest = [step for step in taking if step != PageOut(MOVED)]
        alone = [Compute(last, ()) if step == takes else step for step in rest]
        both = [PageOut(MOVED), Free(MOVED)]
        assert took == min(best_ns(problem, rest, both[:1]), best_ns(problem, alone, both))
        spared += takes not in found and took < before.makespan_ns
    assert spared >= 2


@pytest.mark.parametrize("seed", range(8))
def test_timelines_are_those_of_the_checker(seed: int) -> None:
    """Of any legal order of a page-out, frees and the page-in that follows."""
    rng = random.Random(seed)
    seen = 0
    for _ in range(25):
        problem = chain(rng, start=rng.choice((None, Place.RAM)), end=Place.STORAGE)
        steps = kernels(problem)
        trips = [PageOut(MOVED), Free(MOVED), PageIn(MOVED), Free(MOVED)]
        for trial in rng.choices([*placed(steps, trips)], k=20):
            try:
                report = replay(problem, trial)
            except ScheduleError:
                continue
            now = _Plan(problem, 10**9, tuple(trial)).now
            seen += 1
            assert now.makespan_ns == report.makespan_ns
            assert max(now.used) == report.peak_bytes
            assert len(now.start_ns) == len(now.work_ns) == len(trial) + 1
            for at in range(len(trial) + 1):
                assert now.work_ns[at] == _takes(problem, trial[:at]) <= now.start_ns[at]
            plain = without_overlap(Instance(problem), trial)
            assert replay(problem, plain).peak_bytes <= report.peak_bytes
            for behind in (plain[at:] for at, step in enumerate(plain) if step == PageIn(MOVED)):
                # Its reader, if there is one, is next.
                assert reads(problem, behind[1]) or not any(reads(problem, s) for s in behind)
            alone = replace(problem, dma=False)
            assert hurried(alone, trial) == tuple(trial)
            faster = hurried(problem, trial)
            assert sorted(map(repr, faster)) == sorted(map(repr, trial))
            assert replay(problem, faster).makespan_ns <= report.makespan_ns
    assert seen >= 10
