"""DMA: transfers overlap computing, and that decides whether a deadline is met."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from schedule_dma_oracle import cheapest
from schedule_problems import random_problem

from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Operation, Place, Problem, Tensor
from poetc.schedule.model.rebuild import Load, Run, rebuild
from poetc.schedule.model.transfers import hurried, overlap_transfers
from poetc.schedule.params import DEFAULTS
from poetc.schedule.solve import solve


def test_transfers_are_moved_where_the_steps_miss_the_deadline() -> None:
    """x can come while f runs; just before g, which reads it, is too late for the deadline."""
    tensors = (
        Tensor("x", 1, start=Place.STORAGE, pagein_time_ns=10),
        Tensor("y", 1),
        Tensor("z", 1, end=Place.RAM),
    )
    operations = (
        Operation("f", (), (1,), 10, 1),
        Operation("g", (0, 1), (2,), 10, 1),
    )
    problem = Problem(operations, tensors, ram_bytes=3, deadline_ns=20, dma=True)
    steps = rebuild(Instance(problem), [Run(0), Load(0), Run(1)])
    assert replay(replace(problem, deadline_ns=None), steps).makespan_ns == 30
    order = overlap_transfers(problem, steps)
    assert replay(problem, [steps[at] for at in order]).makespan_ns == 20
    # Where that is not enough, the best order is returned all the same.
    hurried = replace(problem, deadline_ns=19)
    assert overlap_transfers(hurried, steps) == order


@pytest.mark.slow
def test_a_buffer_that_is_being_written_is_not_taken_over_where_that_waits() -> None:
    """y must be written; g could make z in its buffer, but only once the page-out is over."""
    tensors = (
        Tensor("y", 1, end=Place.STORAGE, pageout_time_ns=10),
        Tensor("z", 1, end=Place.RAM),
    )
    operations = (
        Operation("f", (), (0,), 10, 1),
        Operation("g", (0,), (1,), 10, 1, inplace=((1, 0),)),
    )
    problem = Problem(operations, tensors, ram_bytes=2, deadline_ns=20, dma=True)
    steps = rebuild(Instance(problem), [Run(0), Run(1)])
    assert replay(replace(problem, deadline_ns=None), steps).makespan_ns == 30
    assert replay(problem, hurried(problem, steps)).makespan_ns == 20
    # By the model: annealing would go on for seconds where nothing is in time.
    params = replace(DEFAULTS, anneal=False)
    assert solve(problem, params=params).energy_nj == cheapest(problem) == 2
    tight = replace(problem, ram_bytes=1)
    assert hurried(tight, steps) == steps
    with pytest.raises(InfeasibleProblem):
        solve(tight, params=params)


def random_with_dma(seed: int) -> Problem:
    """A tiny problem in which time matters."""
    rng = random.Random(seed)
    problem = random_problem(rng, 4)
    deadline_ns = sum(o.time_ns for o in problem.operations) + rng.randint(0, 5)
    idle = rng.random() < 0.3
    return replace(
        problem,
        dma=True,
        deadline_ns=None if idle and rng.random() < 0.5 else deadline_ns,
        idle_power_nw=10**9 if idle else 0,
    )


@pytest.mark.slow
def test_tiny_problems_are_settled() -> None:
    """Against brute force: whatever there is a schedule for gets the best one, the rest a proof."""
    settled = refused = proven = 0
    for seed in range(100):
        problem = random_with_dma(seed)
        if len(problem.tensors) > 6:
            continue
        best = cheapest(problem)
        try:
            schedule = solve(problem, strategy="milp", gap=0.0, time_limit_s=20)
        except InfeasibleProblem:
            assert best is None
            refused += 1
            continue
        check(problem, schedule)
        assert best is not None
        assert schedule.bound_nj <= best == schedule.energy_nj
        settled += 1
        proven += schedule.bound_nj == best
    assert settled > 30
    assert refused > 5
    # What the model takes for overlapping may not be so.
    assert proven > 0.9 * settled
