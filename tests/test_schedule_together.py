"""The two sides of the search in large problems: bounds in one thread, more in another."""

from __future__ import annotations

import threading

import pytest
from test_schedule_solve import least, training_step

from poetc.schedule.model.checker import check
from poetc.schedule.model.errors import SolverInterrupted
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem
from poetc.schedule.params import SearchParams
from poetc.schedule.search import bounding, portfolio
from poetc.schedule.search.first import first_schedules
from poetc.schedule.search.milps import Guide, windows
from poetc.schedule.search.state import Search
from poetc.schedule.solve import solve


@pytest.fixture
def problem() -> Problem:
    """A problem that is small enough for its optimum to be known, searched as if it were large."""
    problem = training_step(14, None)
    return training_step(14, least(problem) * 5 // 4)


AS_LARGE = SearchParams(tiny=0, small=0, near=False)
"""Every problem is a large one, without first steps."""


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What is called, and whether in the main thread."""
    called: list[tuple[str, bool]] = []
    for name in ("checkpointed", "windows"):
        original = getattr(portfolio, name)

        def spy(*arguments, name=name, original=original, **options):
            called.append((name, threading.current_thread() is threading.main_thread()))
            return original(*arguments, **options)

        monkeypatch.setattr(portfolio, name, spy)
    return called


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.02, 1e-6])
def test_both_sides_are_valid_and_repeatable(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, gap: float
) -> None:
    best = solve(problem, strategy="milp", gap=1e-6)
    assert best.status == "optimal"
    called = watched(monkeypatch)
    first, second = (solve(problem, strategy="milp", gap=gap, params=AS_LARGE) for _ in range(2))
    assert ("checkpointed", False) in called
    assert first.steps == second.steps
    assert first.status == second.status == "optimal"
    check(problem, first)
    for found in (first, second):
        assert found.bound_nj <= best.energy_nj <= found.energy_nj
        assert found.energy_nj <= best.energy_nj * (1 + 1.1 * gap)


@pytest.mark.slow
def test_the_bound_of_a_race_does_not_tell_who_was_first(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = solve(problem, strategy="milp", gap=1e-6)
    monkeypatch.setattr(bounding.Bounding, "cut", lambda *_: None)

    def race(main_nj: float, other_nj: float) -> float:
        monkeypatch.setattr(
            bounding.Bounding, "tighten", lambda self, _: self.search.raise_bound(main_nj)
        )
        monkeypatch.setattr(
            portfolio, "checkpointed", lambda other, *_: other.raise_bound(other_nj)
        )
        found = solve(problem, strategy="milp", gap=0.1, params=AS_LARGE)
        assert found.status == "optimal"
        return found.bound_nj

    assert race(best.bound_nj, 0) == race(0, best.bound_nj) == race(0, best.bound_nj - 1)


@pytest.mark.slow
def test_a_fork_hands_over_what_is_better(problem: Problem) -> None:
    search = Search(Instance(problem), 60, 1e-6, lambda state: told.append(state.energy_nj))
    told: list[float] = []
    first_schedules(search)
    before = search.energy_nj
    told.clear()
    fork = search.fork()
    windows(fork, Guide(), 1.0)
    fork.raise_bound(search.bound_nj + 1)
    assert not told and search.energy_nj == before
    search.join(fork)
    assert search.energy_nj == fork.energy_nj <= before
    assert search.bound_nj == fork.bound_nj
    assert told


def test_an_error_in_the_other_thread_is_raised(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:

    def broken(*_arguments) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(portfolio, "checkpointed", broken)
    with pytest.raises(ZeroDivisionError):
        solve(problem, strategy="milp", gap=1e-6, params=AS_LARGE)


def test_interrupt_while_both_search(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []

    def waits(other: Search, *_arguments) -> None:
        stopped.append(other.stop.wait(30))

    def interrupted(*_arguments) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(portfolio, "checkpointed", waits)
    monkeypatch.setattr(bounding.Bounding, "tighten", interrupted)
    with pytest.raises(SolverInterrupted) as error:
        solve(problem, strategy="milp", gap=1e-6, params=AS_LARGE)
    assert stopped == [True]
    assert error.value.schedule is not None
    check(problem, error.value.schedule)
