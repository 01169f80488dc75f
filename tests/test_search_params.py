"""The techniques of the search: each has a switch, and none is needed for what is said to hold."""

from __future__ import annotations

import random

import pytest
from schedule_oracle import cheapest
from schedule_problems import random_problem

from poetc.schedule.model.checker import check
from poetc.schedule.model.errors import InfeasibleProblem, SolverTimeLimit
from poetc.schedule.params import DEFAULTS, SearchParams
from poetc.schedule.solve import solve

AS_LARGE = SearchParams(small=-1, tiny=-1, block_stages=2)
"""Every problem is a large one: nearly all techniques are at work."""


@pytest.mark.parametrize("params", [DEFAULTS, AS_LARGE], ids=["small", "large"])
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
