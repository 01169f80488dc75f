"""Annealed schedules, against all states of the machine."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from outcomes import must_reach, reached
from schedule_problems import problems, random_problem

from poetc.schedule.exact.bounds import time_needed
from poetc.schedule.exact.machine import in_time
from poetc.schedule.heuristics.anneal import annealed
from poetc.schedule.model.checker import replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem
from poetc.schedule.search import first
from poetc.schedule.solve import solve

LATE_NS = 10**6
"""More than any of these problems takes."""


@pytest.mark.slow
@must_reach("fastest", "none")
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(problems(max_operations=4))
def test_nothing_is_faster_than_the_fastest(problem: Problem) -> None:
    """It never says that it has what there is not, and mostly finds the shortest makespan."""
    free = replace(problem, dma=True, deadline_ns=None)
    instance = Instance(free, remat=False)
    steps = annealed(instance, Effort(0.05))
    late = Instance(replace(free, deadline_ns=LATE_NS), remat=False)
    best = in_time(late, Effort())
    assert best.proven
    if best.steps is None:
        assert steps is None
        reached("none")
        return
    if steps is None:
        return
    fastest_ns = replay(replace(free, deadline_ns=None), best.steps).makespan_ns
    found_ns = replay(free, steps).makespan_ns
    assert found_ns >= fastest_ns
    if found_ns == fastest_ns:
        reached("fastest")


@must_reach("met")
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(problems(max_operations=4))
def test_all_limits_are_kept(problem: Problem) -> None:
    """What is returned passes the checker with RAM, storage and a deadline that is just met."""
    late = replace(problem, dma=True, deadline_ns=LATE_NS, storage_bytes=None)
    best = in_time(Instance(late, remat=False), Effort())
    if best.steps is None:
        return
    best_use = replay(late, best.steps)
    limits = {"deadline_ns": best_use.makespan_ns, "storage_bytes": best_use.storage_bytes}
    instance = Instance(replace(late, **limits), remat=False)
    steps = annealed(instance, Effort(0.05))
    if steps is not None:
        replay(instance.problem, steps)
        reached("met")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 61])
def test_what_no_schedule_meets_is_refused_before_anything_is_annealed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that is a nanosecond too early for all states, in some order, and for no bound."""
    problem = random_problem(Random(seed), max_operations=5)
    late = replace(problem, dma=True, deadline_ns=LATE_NS, storage_bytes=None)
    best = in_time(Instance(late, remat=False), Effort())
    assert best.proven and best.steps is not None
    early_ns = replay(late, best.steps).makespan_ns - 1
    early = replace(late, deadline_ns=early_ns)
    assert time_needed(Instance(early, remat=False)) <= early_ns
    monkeypatch.setattr(first, "annealed", lambda *_: pytest.fail("annealed before the proof"))
    with pytest.raises(InfeasibleProblem) as refused:
        solve(early, remat=False, time_limit_s=400.0, effort_s=20.0)
    assert refused.value.any_order
