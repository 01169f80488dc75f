"""The solvers against brute force on random small problems."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_oracle import cheapest
from schedule_problems import problems

from poetc.schedule.checker import check
from poetc.schedule.errors import InfeasibleProblem
from poetc.schedule.problem import Problem, Schedule
from poetc.schedule.solve import solve

SLOW = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def optimum(problem: Problem, **options) -> Schedule | None:
    """The checked schedule of least energy, or None if proven that there is none."""
    try:
        schedule = solve(problem, gap=0.0, time_limit_s=30, **options)
    except InfeasibleProblem:
        return None
    check(problem, schedule)
    assert schedule.status == "optimal"
    assert schedule.bound_nj == schedule.energy_nj
    return schedule


@SLOW
@given(problems(), st.booleans(), st.booleans())
def test_least_energy(problem: Problem, remat: bool, paging: bool) -> None:
    expected = cheapest(problem, remat=remat, paging=paging)
    schedule = optimum(problem, remat=remat, paging=paging)
    assert (None if schedule is None else schedule.energy_nj) == expected
