"""The techniques of the search: each has a switch, and none is needed for what is said to hold."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import more
from schedule_oracle import cheapest
from schedule_problems import random_problem

from benchmarks.instances import SHAPES, layered, peak_bytes
from poetc.schedule.exact.cuts import Cut, Cuts
from poetc.schedule.exact.highs import Row
from poetc.schedule.model.checker import check
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem, SolverTimeLimit
from poetc.schedule.model.rebuild import Event
from poetc.schedule.params import DEFAULTS, SearchParams
from poetc.schedule.search.portfolio import Large
from poetc.schedule.search.state import Search
from poetc.schedule.solve import solve

AS_LARGE = SearchParams(small=-1, tiny=-1, block_stages=2)
"""Every problem is a large one: nearly all techniques are at work."""


@pytest.mark.parametrize("params", [AS_LARGE, *more(DEFAULTS)], ids=["large", "small"])
@pytest.mark.parametrize("technique", SearchParams.techniques())
def test_a_technique_is_not_needed_for_what_holds(technique: str, params: SearchParams) -> None:
    params = params.without(technique)
    assert not getattr(params, technique)
    scheduled = 0
    for seed in range(5):
        problem = random_problem(random.Random(seed))
        least = cheapest(problem)
        try:
            schedule = solve(problem, gap=0.0, time_limit_s=1, params=params)
        except (InfeasibleProblem, SolverTimeLimit):
            continue
        scheduled += 1
        check(problem, schedule)
        assert schedule.bound_nj <= schedule.energy_nj
        assert least is None or schedule.bound_nj <= least
    assert scheduled


def test_an_unknown_technique_is_refused() -> None:
    with pytest.raises(ValueError, match="no technique 'magic'"):
        DEFAULTS.without("magic")


@pytest.mark.slow
def test_a_slower_machine_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = layered(60, SHAPES["narrow"])
    problem = replace(problem, ram_bytes=int(0.7 * peak_bytes(problem)))
    # So little effort that the gap stays open, and so much time that it is not what ends it.
    params = SearchParams(tiny=0, small=100)
    fast = solve(problem, gap=0.0, time_limit_s=40, effort_s=2, params=params)
    assert fast.status == "feasible"
    rounds = iter(range(10**9))
    separate, offer = Cuts.separate, Search.offer

    def slow_separate(self: Cuts, x: np.ndarray) -> tuple[list[Cut], list[Row]]:
        time.sleep(0.02)
        return separate(self, x)

    def slow_offer(self: Search, events: Sequence[Event], source: str = "") -> bool:
        time.sleep(0.02 * (next(rounds) % 3))
        return offer(self, events, source)

    monkeypatch.setattr(Cuts, "separate", slow_separate)
    monkeypatch.setattr(Search, "offer", slow_offer)
    slow = solve(problem, gap=0.0, time_limit_s=40, effort_s=2, params=params)
    assert next(rounds) > 5
    assert (slow.steps, slow.bound_nj) == (fast.steps, fast.bound_nj)


@pytest.mark.slow
def test_one_core_finds_what_two_find(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = layered(60, SHAPES["narrow"])
    problem = replace(problem, ram_bytes=int(0.9 * peak_bytes(problem)))
    beside: list[bool] = []
    together = Large._together

    def counted(self: Large, *arguments: Any, **options: Any) -> None:
        beside.append(self.search.params.threads > 1)
        together(self, *arguments, **options)

    monkeypatch.setattr(Large, "_together", counted)
    params = SearchParams(tiny=0, small=10)
    two, one = (
        solve(problem, gap=0.0, time_limit_s=60, effort_s=3, params=replace(params, threads=n))
        for n in (2, 1)
    )
    assert beside == [True, False]
    assert (two.steps, two.bound_nj, two.status) == (one.steps, one.bound_nj, one.status)


def test_effort_is_counted_and_ends() -> None:
    effort = Effort(1.0)
    part = effort.part(0.5)
    part.spend(0.25)
    assert part.left == 0.25
    assert effort.left == 0.75
    assert effort.part(1.0, most=0.1).left == pytest.approx(0.1)
    alone = effort.apart(2.0)
    alone.spend(2.0)
    assert alone.over
    assert effort.left == 0.75
    assert effort.unless(lambda: True).over
    assert effort.unless(lambda: True).left == 0.0
