"""The search is never worse than a published strategy."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from pathlib import Path

import compiled
import pytest
from conftest import more
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_problems import problems, random_problem
from test_schedule_solve import training_step

from poetc.ir.graph import graphs
from poetc.planning.plan import plan_graph
from poetc.planning.problem import problem_view
from poetc.schedule.model.checker import check
from poetc.schedule.model.clock import Clock
from poetc.schedule.model.errors import InfeasibleProblem, SolveError
from poetc.schedule.model.graphs import load
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.search.infeasibility import least_ram
from poetc.schedule.solve import solve
from poetc.schedule.strategies import constructive, names

GRAPHS = Path(__file__).parent.parent / "benchmarks" / "poet_graphs"
CHEAP = ("keep-all", *(strategy.name for strategy in constructive()))
SOLVED = ("poet", "checkmate", "paging-only")


def examples(count: int) -> settings:
    return settings(
        deadline=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def attempt(
    problem: Problem, strategy: str, gap: float, seconds: float, clock: Clock | None = None
) -> Schedule | None:
    """A checked schedule, None where there is none or none is found."""
    try:
        schedule = solve(
            problem,
            strategy=strategy,
            gap=gap,
            # The same on a machine with other work, which takes longer.
            time_limit_s=10 * seconds,
            clock=clock,
            effort_s=seconds,
        )
    except SolveError:
        return None
    check(problem, schedule)
    return schedule


def worse_than(problem: Problem, strategies: tuple[str, ...], gap: float, seconds: float) -> list:
    """The strategies that beat the search by more than the gap it was asked for."""
    best = attempt(problem, "auto", gap, seconds)
    found = {s: attempt(problem, s, gap, seconds) for s in strategies}
    if any(found.values()):
        reached("compared")
    return [
        (name, schedule.energy_nj, best and best.energy_nj)
        for name, schedule in found.items()
        if schedule and (best is None or best.energy_nj * (1 - gap) > schedule.energy_nj + 1e-6)
    ]


@pytest.mark.slow
@must_reach("compared")
@examples(48)
@given(problems(max_operations=8))
def test_constructive_strategies(problem: Problem) -> None:
    assert not worse_than(problem, CHEAP, 0.0, 30)


@pytest.mark.slow
@must_reach("compared")
@examples(25)
@given(problems(max_operations=5), st.sampled_from(SOLVED))
def test_models(problem: Problem, strategy: str) -> None:
    assert not worse_than(problem, (strategy,), 0.0, 30)


@pytest.mark.slow
@must_reach("compared")
@examples(20)
@given(problems(max_operations=8), st.sampled_from((0.01, 0.1)))
def test_with_a_gap(problem: Problem, gap: float) -> None:
    assert not worse_than(problem, CHEAP, gap, 30)


@pytest.mark.slow
@must_reach("compared")
@examples(20)
@given(problems(max_operations=6), st.booleans(), st.sampled_from((1.0, 3.0)))
def test_at_any_limit(problem: Problem, dma: bool, seconds: float) -> None:
    """Every strategy there is, with the same time; whatever a problem has, and with transfers
    beside computing. Nothing but a `SolveError` is raised."""
    problem = replace(problem, dma=dma)
    others = tuple(name for name in names() if name != "auto")
    assert not worse_than(problem, others, 0.0, seconds)


@pytest.mark.slow
@pytest.mark.parametrize("dma", [False, True])
def test_the_whole_effort_is_used_while_the_gap_is_open(dma: bool) -> None:
    """Against strategies that search, with less time than the search has."""
    free = training_step(16, None)
    least = least_ram(Instance(free), 2.0).known
    assert least is not None
    changes = {"dma": True, "idle_power_nw": 10**10} if dma else {}
    problem = replace(free, ram_bytes=least * 9 // 8, **changes)
    clock = Clock()
    best = attempt(problem, "auto", 1e-4, 4, clock)
    assert best is not None
    # No end before that of the effort, or of the time, but within the gap.
    assert best.gap <= 1e-4 or clock.used_s >= 3.9 or clock.seconds >= 3.9
    for strategy in ("milp", "checkmate", "paging-only", *CHEAP):
        other = attempt(problem, strategy, 1e-4, 0.5)
        assert other is None or best.energy_nj * (1 - 1e-4) <= other.energy_nj


def test_the_search_goes_on_until_the_time_is_over() -> None:
    free = training_step(16, None)
    least = least_ram(Instance(free), 2.0).known
    assert least is not None
    problem = replace(free, ram_bytes=least * 9 // 8, dma=True, idle_power_nw=10**10)
    clock = Clock(pace=0.1)
    found = solve(problem, gap=0.0, time_limit_s=3, clock=clock)
    assert found.gap > 0.0
    # The work for which the limit stands was done long before.
    assert clock.seconds >= 3
    assert clock.used_s > 3


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["work", "clock"])
def test_a_step_is_planned_until_the_work_is_done_or_the_time_is_over(
    stop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hardly any work for each second, so that the work is done long before the time."""
    pace = 0.02
    monkeypatch.setattr(Clock.__init__, "__defaults__", (math.inf, pace, True))
    step = compiled.prepare("lenet5")
    limit_s = 4.0
    options = step.options(200_000, time_limit_s=limit_s, gap=0.0, stop=stop, params="storage")
    began_s = time.monotonic()
    report = plan_graph(graphs(step.module)[0], options)
    seconds = time.monotonic() - began_s
    assert report.gap > 0
    # A fifth is left to the search for an arena.
    assert (seconds >= 0.8 * limit_s) == (stop == "clock")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [27, 95])
def test_one_way_to_save_ram_may_be_better_than_both(seed: int) -> None:
    """Paging a little less, or none at all, where energy depends on what overlaps."""
    free = random_problem(random.Random(seed), 45)
    free = replace(free, dma=True, idle_power_nw=2 * 10**9, ram_bytes=None, deadline_ns=None)
    least = least_ram(Instance(free), 1.0).known
    assert least is not None
    problem = replace(free, ram_bytes=least * 5 // 4)
    others = ("remat-only", "paging-only", "milp")
    found = {name: attempt(problem, name, 1e-3, 2.0) for name in ("auto", *others)}
    best = found.pop("auto")
    assert best is not None
    assert any(found.values())
    for schedule in found.values():
        assert schedule is None or best.energy_nj * (1 - 1e-3) <= schedule.energy_nj


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "device", "share"),
    [
        ("linear", "m4", 1.25),
        ("transformer", "m4", 1.1),
        *more(("vgg16_cifar", "a72", 1.25), ("resnet18_cifar", "m4", 2.5), ("bert", "a72", 1.25)),
    ],
)
def test_graphs(graph: str, device: str, share: float) -> None:
    problem = load(GRAPHS / f"{graph}.json", device)
    least = least_ram(Instance(problem), 2.0).known
    assert least is not None
    limited = replace(problem, ram_bytes=int(share * least))
    assert not worse_than(limited, CHEAP, 0.01, 4)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["linear", "transformer"])
def test_small_graphs_against_the_paper(graph: str) -> None:
    problem = load(GRAPHS / f"{graph}.json", "m4")
    least = least_ram(Instance(problem), 2.0).known
    assert least is not None
    assert not worse_than(replace(problem, ram_bytes=int(1.25 * least)), SOLVED, 0.01, 4)


@pytest.mark.parametrize(("graph", "device"), [("vgg16_cifar", "m4"), ("bert", "a72")])
def test_refusals_say_why(graph: str, device: str) -> None:
    """One byte or nanosecond less than is needed: the number, and the operation."""
    problem = load(GRAPHS / f"{graph}.json", device)
    need, wanting = max(
        (sum(problem.tensors[v].bytes for v in {*o.inputs, *o.outputs}), -k)
        for k, o in enumerate(problem.operations)
    )
    with pytest.raises(InfeasibleProblem) as error:
        solve(replace(problem, ram_bytes=need - 1))
    assert error.value.ram_bound_bytes == need
    assert error.value.least_ram_bytes is not None
    assert error.value.least_ram_bytes >= need
    assert error.value.operation is not None
    named = problem.operations[error.value.operation].name
    assert f"for operation {named}" in str(error.value)
    assert f"{need} " in str(error.value)
    if error.value.least_ram_bytes == need:
        assert error.value.operation == -wanting

    total_ns = sum(o.time_ns for o in problem.operations)
    with pytest.raises(InfeasibleProblem) as error:
        solve(replace(problem, deadline_ns=total_ns - 1))
    assert error.value.fastest_ns == error.value.time_bound_ns == total_ns
    assert str(total_ns) in str(error.value)


def test_a_deadline_that_the_best_schedule_meets_costs_nothing() -> None:
    """Neither energy nor what is proven of it, nor more than a little work."""
    step = compiled.prepare("gesture_mlp")
    free = problem_view(graphs(step.module)[0], step.options(8544, params="ram")).problem
    best = attempt(free, "auto", 0.01, 1)
    assert best is not None and best.status == "optimal"
    unlimited = attempt(replace(free, ram_bytes=None), "keep-all", 0.01, 1)
    assert unlimited is not None and unlimited.makespan_ns < best.makespan_ns
    in_time = attempt(replace(free, deadline_ns=best.makespan_ns), "auto", 0.01, 5)
    assert in_time is not None
    assert (in_time.energy_nj, in_time.bound_nj) == (best.energy_nj, best.bound_nj)
