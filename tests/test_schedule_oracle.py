"""The solvers against brute force on random small problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_oracle import cheapest, cheapest_of_paper
from schedule_problems import problems

from poetc.schedule.exact.highs import solve_mip
from poetc.schedule.model.checker import check
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem, SolverTimeLimit
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.params import SearchParams
from poetc.schedule.search import portfolio
from poetc.schedule.search.infeasibility import fastest, least_ram
from poetc.schedule.search.milps import exact
from poetc.schedule.search.state import Search
from poetc.schedule.solve import solve
from poetc.schedule.strategies import poet

AS_LARGE = SearchParams(small=-1, tiny=-1, block_stages=2)
"""Every problem is a large one."""


def examples(count: int) -> settings:
    return settings(
        deadline=None,
        max_examples=count,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )


def optimum(problem: Problem, **options) -> Schedule | None:
    """The checked schedule of least energy, or None if proven that there is none."""
    try:
        schedule = solve(problem, **{"gap": 0.0, "time_limit_s": 30, **options})
    except InfeasibleProblem:
        return None
    check(problem, schedule)
    return schedule


def assert_optimal(schedule: Schedule | None, expected: int | None) -> None:
    assert (None if schedule is None else schedule.energy_nj) == expected
    if schedule is not None:
        assert schedule.status == "optimal"
        assert schedule.bound_nj == schedule.energy_nj


@pytest.mark.slow
@examples(120)
@given(problems(), st.booleans(), st.booleans())
def test_least_energy(problem: Problem, remat: bool, paging: bool) -> None:
    expected = cheapest(problem, remat=remat, paging=paging)
    in_order = optimum(problem, strategy="milp", remat=remat, paging=paging)
    assert_optimal(in_order, expected)
    best = optimum(problem, remat=remat, paging=paging)
    assert best is not None or expected is None
    if best is not None:
        assert expected is None or best.energy_nj <= expected
        assert_optimal(best, best.energy_nj)


@pytest.mark.slow
@examples(120)
@given(problems(), st.booleans(), st.booleans())
def test_model_without_a_first_schedule(problem: Problem, remat: bool, paging: bool) -> None:
    search = Search(Instance(problem, remat, paging), 30, 0.0)
    infeasible = exact(search)
    schedule = search.schedule("milp")
    expected = cheapest(problem, remat=remat, paging=paging)
    # What is in RAM at the start, and on storage, is not the model's business.
    assert infeasible or schedule is not None or expected is None
    assert (None if schedule is None else schedule.energy_nj) == expected
    assert schedule is None or schedule.bound_nj == expected


@pytest.mark.slow
@examples(60)
@given(problem=problems(), first_schedules=st.booleans())
def test_way_of_large_problems(
    problem: Problem, first_schedules: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if not first_schedules:
            patch.setattr(portfolio, "first_schedules", lambda search: None)
        schedule = optimum(problem, strategy="milp", params=AS_LARGE)
    assert_optimal(schedule, cheapest(problem))


@pytest.mark.slow
@examples(40)
@given(problem=problems())
def test_other_orders_are_no_worse(problem: Problem) -> None:
    expected = cheapest(problem)
    schedule = optimum(problem, params=AS_LARGE)
    if schedule is not None:
        assert schedule.bound_nj <= schedule.energy_nj
        assert expected is None or schedule.energy_nj <= expected
    else:
        assert expected is None


@pytest.mark.slow
@examples(30)
@given(problems())
def test_dma_is_no_worse(problem: Problem) -> None:
    expected = cheapest(problem)
    with_dma = replace(problem, dma=True)
    try:
        # Where the bound does not tell, the search goes on until its work is done.
        schedule = optimum(with_dma, effort_s=0.5)
    except SolverTimeLimit:
        # What the model takes for fast enough may have no schedule that is.
        schedule = None
    assert (schedule is None) <= (expected is None)
    assert schedule is None or expected is None or schedule.energy_nj <= expected


@pytest.mark.slow
@examples(40)
@given(problems(), st.booleans())
def test_least_ram(problem: Problem, paging: bool) -> None:
    free = replace(problem, deadline_ns=None)
    least = least_ram(Instance(problem, paging=paging))

    def works(ram_bytes: int) -> bool:
        return cheapest(replace(free, ram_bytes=ram_bytes), paging=paging) is not None

    assert least.bound <= least.order_bound
    assert not works(least.order_bound - 1)
    if least.known is None:
        assert not works(10**6)
    else:
        # It may be less in another order.
        assert works(least.known) == (least.known == least.order_bound)
        assert not works(least.known - 1)


@pytest.mark.slow
@examples(40)
@given(problems(), st.booleans())
def test_fastest(problem: Problem, remat: bool) -> None:
    least = fastest(Instance(problem, remat=remat))

    def works(deadline_ns: int) -> bool:
        return cheapest(replace(problem, deadline_ns=deadline_ns), remat=remat) is not None

    if least.known is None:
        assert not works(10**6)
    else:
        assert least.bound <= least.known == least.order_bound
        assert works(least.known)
        assert least.known == 0 or not works(least.known - 1)


@must_reach("compared")
@examples(48)
@given(problems(), st.booleans(), st.booleans())
def test_poet_is_never_better(problem: Problem, remat: bool, paging: bool) -> None:
    schedule = optimum(problem, strategy="poet", remat=remat, paging=paging)
    if schedule is not None:
        best = optimum(problem, remat=remat, paging=paging)
        reached("compared")
        assert best is not None
        assert best.energy_nj <= schedule.energy_nj


@pytest.mark.slow
@examples(40)
@given(problems(max_operations=5, plain=True))
def test_poet_is_the_model_of_the_paper(problem: Problem) -> None:
    model = poet._Model(Instance(problem), transfers_count=False)
    outcome = solve_mip(model.lp, Effort())
    expected = cheapest_of_paper(problem)
    assert outcome.infeasible == (expected is None)
    if expected is not None:
        assert round(outcome.objective * model.scale) == expected


@must_reach("schedule")
@examples(40)
@given(problems())
def test_keep_all_runs_everything_once(problem: Problem) -> None:
    schedule = optimum(problem, strategy="keep-all")
    if schedule is not None:
        reached("schedule")
        runs = [step.operation for step in schedule.computes]
        assert runs == list(range(len(problem.operations)))
