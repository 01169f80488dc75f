"""More RAM, a later deadline or a looser gap: what is never worse."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import more
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_problems import problems

from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import InfeasibleProblem, SolverTimeLimit
from poetc.schedule.model.graphs import load
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.search.infeasibility import fastest, least_ram
from poetc.schedule.solve import solve

GRAPHS = Path(__file__).parent.parent / "benchmarks" / "poet_graphs"


def examples(count: int) -> settings:
    return settings(
        deadline=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def attempt(problem: Problem, gap: float = 0.0, **options) -> Schedule | None:
    try:
        schedule = solve(problem, gap=gap, time_limit_s=30, **options)
    except InfeasibleProblem:
        return None
    check(problem, schedule)
    assert schedule.gap <= gap or schedule.status == "feasible"
    return schedule


def assert_no_worse(problem: Problem, less: Schedule | None, more: Schedule | None) -> None:
    """`more` is the answer for `problem`, which has all that the one of `less` has, and more."""
    if less is None:
        return
    reached("compared")
    # What was found is not lost.
    replay(problem, less.steps)
    assert more is not None
    assert more.energy_nj <= less.energy_nj
    # A proof for the larger budget holds for the smaller one, so it denies nothing found there.
    assert more.bound_nj <= less.energy_nj
    # Both are optimal: the larger bound is the one of the smaller budget.
    assert more.bound_nj <= less.bound_nj


def more_ram(problem: Problem, amount: int) -> Problem:
    assert problem.ram_bytes is not None
    return replace(problem, ram_bytes=problem.ram_bytes + amount)


def more_time(problem: Problem, amount: int) -> Problem:
    if problem.deadline_ns is None:
        problem = replace(problem, deadline_ns=sum(o.time_ns for o in problem.operations) + 5)
    assert problem.deadline_ns is not None
    return replace(problem, deadline_ns=problem.deadline_ns + amount)


def more_storage(problem: Problem, amount: int) -> Problem:
    if problem.storage_bytes is None:
        problem = replace(problem, storage_bytes=6)
    assert problem.storage_bytes is not None
    return replace(problem, storage_bytes=problem.storage_bytes + amount)


@pytest.mark.slow
@must_reach("compared")
@examples(60)
@given(problems(), st.integers(1, 6), st.sampled_from((more_ram, more_time, more_storage)))
def test_larger_budget(
    problem: Problem, amount: int, enlarge: Callable[[Problem, int], Problem]
) -> None:
    small, large = enlarge(problem, 0), enlarge(problem, amount)
    assert_no_worse(large, attempt(small), attempt(large))


@pytest.mark.slow
@must_reach("compared")
@examples(40)
@given(problems(), st.sampled_from(("remat", "paging")))
def test_more_is_allowed(problem: Problem, option: str) -> None:
    assert_no_worse(problem, attempt(problem, **{option: False}), attempt(problem))


@pytest.mark.slow
@must_reach("compared")
@examples(40)
@given(problems(max_operations=7), st.sampled_from((0.01, 0.1, 0.5)))
def test_looser_gap(problem: Problem, gap: float) -> None:
    """The bound is one on the optimum still, and the energy within the gap of it."""
    exact, loose = attempt(problem), attempt(problem, gap)
    assert (exact is None) == (loose is None)
    if exact is None or loose is None:
        return
    reached("compared")
    assert exact.status == loose.status == "optimal"
    assert loose.bound_nj <= exact.energy_nj <= loose.energy_nj
    assert loose.energy_nj * (1 - gap) <= exact.energy_nj + 1e-6


@pytest.mark.slow
@must_reach("compared")
@examples(40)
@given(problems(max_operations=7), st.integers(0, 6), st.sampled_from((0.01, 0.1)))
def test_larger_budget_within_a_gap(problem: Problem, amount: int, gap: float) -> None:
    """With a gap the energy may rise, by less than the gap."""
    large = more_ram(problem, amount)
    less, more = attempt(problem, gap), attempt(large, gap)
    if less is not None:
        reached("compared")
        assert more is not None
        assert more.bound_nj <= less.energy_nj
        assert more.energy_nj * (1 - gap) <= less.energy_nj + 1e-6


@must_reach("least_ram", "fastest")
@examples(30)
@given(problems(), st.integers(1, 6))
def test_limits_fall_with_a_larger_budget(problem: Problem, amount: int) -> None:
    """Least RAM with more storage, fastest time with more RAM."""
    for find, enlarge in ((least_ram, more_storage), (fastest, more_ram)):
        small, large = enlarge(problem, 0), enlarge(problem, amount)
        less, more = (find(Instance(p)) for p in (small, large))
        if less.known is not None:
            reached(find.__name__)
            assert more.known is not None
            assert more.known <= less.known
            assert more.bound <= less.bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "device", "shares"),
    [
        ("linear", "m4", (1.0, 1.25, 2.0)),
        *more(("vgg16_cifar", "a72", (1.05, 1.25)), ("resnet18_cifar", "m4", (1.6, 2.5))),
    ],
)
def test_large_problems(graph: str, device: str, shares: tuple[float, ...]) -> None:
    """A bound for more RAM or time holds for less, and what is found for less is good for more."""
    problem = load(GRAPHS / f"{graph}.json", device)
    least = least_ram(Instance(problem), 2.0).known
    assert least is not None
    total_ns = sum(o.time_ns for o in problem.operations)
    found: list[tuple[Problem, Schedule]] = []
    for share in shares:
        for deadline in (2.0, math.inf):
            limited = replace(
                problem,
                ram_bytes=int(least * share),
                deadline_ns=None if math.isinf(deadline) else int(deadline * total_ns),
            )
            try:
                schedule = solve(limited, time_limit_s=2)
            except (InfeasibleProblem, SolverTimeLimit):
                continue
            check(limited, schedule)
            found.append((limited, schedule))
    assert found
    for small, less in found:
        for large, most in found:
            assert small.ram_bytes is not None and large.ram_bytes is not None
            if small.ram_bytes <= large.ram_bytes and (
                large.deadline_ns is None or small.deadline_ns == large.deadline_ns
            ):
                replay(large, less.steps)
                assert most.bound_nj <= less.energy_nj
