"""Repairing, orders and the bound from checkpoints, against the checker and the exact model."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from conftest import more
from schedule_problems import random_problem

from benchmarks.instances import SHAPES, layered, peak_bytes
from poetc.schedule.exact.bounds import ram_needed
from poetc.schedule.exact.checkpoints import Checkpoints, choose, relax
from poetc.schedule.heuristics.repair import repair
from poetc.schedule.heuristics.timeline import Timeline
from poetc.schedule.model.checker import replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem
from poetc.schedule.model.rebuild import rebuild
from poetc.schedule.search import first
from poetc.schedule.solve import solve


def batched(seeds: range, size: int) -> list[range]:
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def limited(problem: Problem, share: float) -> Problem:
    return dataclasses.replace(problem, ram_bytes=int(share * peak_bytes(problem)))


def unlimited(problem: Problem) -> Problem:
    return dataclasses.replace(problem, ram_bytes=None, deadline_ns=None, dma=False)


@pytest.mark.parametrize("seeds", batched(range(300), 50))
def test_sequences_keep_to_the_ram(seeds: range) -> None:
    repaired = sum(map(repaired_sequences, seeds))
    assert repaired > len(seeds)


def repaired_sequences(seed: int) -> int:
    """How many sequences repairing finds for a random problem at any RAM; each keeps to it."""
    problem = unlimited(random_problem(random.Random(seed)))
    instance = Instance(problem)
    if instance.pages_of_end() > (problem.storage_bytes or math.inf):
        return 0
    count = 0
    need, _ = ram_needed(instance)
    peak = replay(problem, rebuild(instance, Timeline(instance, math.inf).events())).peak_bytes
    for ram in range(need, peak + 1):
        limit = dataclasses.replace(problem, ram_bytes=ram)
        for gradually in (False, True):
            found = []
            inner = Instance(limit)
            repair(inner, ram, found.append, Effort(), patience=10, gradually=gradually)
            for events in found:
                replay(limit, rebuild(instance, events))
            count += len(found)
    return count


@pytest.mark.slow
def test_gradual_mending_gets_to_limits_that_are_out_of_reach_at_once() -> None:
    problem = limited(layered(60, SHAPES["wide"], seed=4), 0.665)
    instance = Instance(problem)
    assert problem.ram_bytes is not None
    at_once, step_by_step = [], []
    repair(instance, problem.ram_bytes, at_once.append, Effort(ended=lambda: bool(at_once)))
    repair(instance, problem.ram_bytes, step_by_step.append, Effort(), gradually=True)
    assert not at_once and step_by_step
    for events in step_by_step:
        replay(problem, rebuild(instance, events))


@pytest.mark.slow
def test_gradual_mending_where_no_order_has_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first, "first_schedules", lambda search: None)
    problem = limited(layered(250, SHAPES["wide"]), 0.8)
    schedule = solve(problem, time_limit_s=60, progress=lambda now: now.energy_nj == math.inf)
    replay(problem, schedule.steps)
    assert any("repaired" in line for line in schedule.log)


@pytest.mark.parametrize("seed", range(20))
def test_a_timeline_follows_its_repairs(seed: int) -> None:
    problem = limited(layered(40, SHAPES["narrow"], seed), 0.75)
    instance = Instance(problem)
    line = Timeline(instance, 0)
    rng = random.Random(seed)
    untouched = line.peak.copy()
    for _ in range(30):
        k = rng.randrange(instance.n - 1)
        line.add([(rng.randint(k + 1, instance.n - 1), k, -1)])
        if rng.random() < 0.3:
            line.remove([rng.choice(line.repairs())])
        made = Timeline(instance, 0)
        made.add(line.repairs())
        assert (made.peak == line.peak).all() and (made.base == line.base).all()
        assert made.price == pytest.approx(line.price)
    report = replay(unlimited(problem), rebuild(instance, line.events()))
    assert report.peak_bytes <= line.peak.max()
    line.undo(0)
    assert (line.peak == untouched).all() and line.price == pytest.approx(0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(50), *more(range(50, 150))])
def test_the_bound_from_checkpoints_is_one(seeds: range) -> None:
    assert sum(map(bounded_by_checkpoints, seeds)) > len(seeds) // 4


def bounded_by_checkpoints(seed: int) -> bool:
    """Whether a random problem has an optimum, which no bound from checkpoints exceeds."""
    problem = dataclasses.replace(
        random_problem(random.Random(seed)), deadline_ns=None, idle_power_nw=0, dma=False
    )
    assert problem.ram_bytes is not None
    try:
        best = solve(problem, strategy="milp", gap=0.0).energy_nj
    except InfeasibleProblem:
        return False
    instance = Instance(problem)
    for most in (1, 2, 4):
        for depth in (1, 3):
            model = Checkpoints(
                instance, choose(instance, problem.ram_bytes, most), math.inf, depth
            )
            outcome = relax(model, Effort())
            assert not outcome.infeasible
            assert model.value(outcome.bound) <= best + 1e-3
    return True
