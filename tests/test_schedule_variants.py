"""Operations with variants: the model, its relaxation, the bounds and the search against brute
force."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
import schedule_dma_oracle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_oracle import cheapest
from schedule_problems import problems_with_variants, random_variants

from poetc.schedule.exact import bounds
from poetc.schedule.exact.highs import solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.slots import all_slots
from poetc.schedule.heuristics.reorder import permuted
from poetc.schedule.heuristics.streaming import stream
from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem, SolverTimeLimit
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Operation,
    Place,
    Problem,
    Schedule,
    Tensor,
    Variant,
    predecessors,
)
from poetc.schedule.model.rebuild import Event, rebuild
from poetc.schedule.params import DEFAULTS, SearchParams
from poetc.schedule.search.infeasibility import fastest, least_ram
from poetc.schedule.search.milps import exact
from poetc.schedule.search.state import Search
from poetc.schedule.solve import solve

AS_LARGE = SearchParams(small=-1, tiny=-1)
"""Every problem is a large one."""


def examples(count: int) -> settings:
    return settings(deadline=None, max_examples=count, suppress_health_check=[HealthCheck.too_slow])


def uses_variants(schedule: Schedule) -> bool:
    return any(step.variant is not None for step in schedule.computes)


def without_variants(problem: Problem) -> Problem:
    operations = (dataclasses.replace(o, variants=()) for o in problem.operations)
    return dataclasses.replace(problem, operations=tuple(operations))


@must_reach("infeasible", "variants", "cheaper", "possible")
@examples(40)
@given(problems_with_variants(), st.booleans(), st.booleans())
def test_the_model_is_exact(problem: Problem, remat: bool, paging: bool) -> None:
    search = Search(Instance(problem, remat, paging), 30, 0.0)
    infeasible = exact(search)
    schedule = search.schedule("milp")
    expected = cheapest(problem, remat=remat, paging=paging)
    assert infeasible or schedule is not None or expected is None
    assert (None if schedule is None else schedule.energy_nj) == expected
    if schedule is None:
        reached("infeasible")
        return
    check(problem, schedule)
    assert schedule.bound_nj == schedule.energy_nj == expected
    if uses_variants(schedule):
        reached("variants")
        without = cheapest(without_variants(problem), remat=remat, paging=paging)
        assert without is None or without >= schedule.energy_nj
        if without is None or without > schedule.energy_nj:
            reached("possible" if without is None else "cheaper")


@pytest.mark.slow
@must_reach("feasible")
@examples(40)
@given(problems_with_variants(), st.booleans(), st.booleans(), st.booleans())
def test_bounds_are_below_the_optimum(
    problem: Problem, remat: bool, paging: bool, dma: bool
) -> None:
    if dma:
        problem = dataclasses.replace(problem, dma=True)
        if len(problem.tensors) > 7:
            return
        expected = schedule_dma_oracle.cheapest(problem)
        remat = paging = True
    else:
        expected = cheapest(problem, remat=remat, paging=paging)
    if expected is None:
        return
    reached("feasible")
    instance = Instance(problem, remat, paging)
    assert problem.ram_bytes is not None
    assert bounds.ram_needed(instance)[0] <= problem.ram_bytes
    assert bounds.ram_needed_in_any_order(instance)[0] <= problem.ram_bytes
    assert problem.deadline_ns is None or bounds.time_needed(instance) <= problem.deadline_ns
    assert instance.least_energy_nj <= expected
    for relaxation in (False, True):
        model = SlotModel(instance, all_slots(instance), relaxation=relaxation)
        outcome = solve_mip(model.lp, Effort())
        assert not outcome.infeasible
        assert model.value(outcome.bound) <= expected + 1e-3


@must_reach("schedule", "infeasible")
@examples(30)
@given(problems_with_variants(), st.booleans(), st.booleans(), st.booleans())
def test_solve(problem: Problem, remat: bool, paging: bool, large: bool) -> None:
    expected = cheapest(problem, remat=remat, paging=paging)
    params = AS_LARGE if large else DEFAULTS
    try:
        schedule = solve(
            problem, gap=0.0, time_limit_s=30, remat=remat, paging=paging, params=params
        )
    except InfeasibleProblem:
        reached("infeasible")
        assert expected is None
        return
    check(problem, schedule)
    reached("schedule")
    assert schedule.bound_nj == schedule.energy_nj
    assert schedule.status == "optimal"
    if expected is not None:
        # It may be less in another order.
        assert schedule.energy_nj <= expected


@pytest.mark.parametrize(("seed", "is_better"), [(210, True), (274, True), (1, False), (2, False)])
def test_the_best_order_of_a_few_operations_is_found(seed: int, is_better: bool) -> None:
    """And the bound holds for all of them."""
    problem = random_variants(random.Random(seed), 4)
    count, before = len(problem.operations), predecessors(problem)
    found = [
        cheapest(permuted(problem, order))
        for order in itertools.permutations(range(count))
        if all(order.index(j) < order.index(k) for k in range(count) for j in before[k])
    ]
    least_nj = min(each for each in found if each is not None)
    in_order_nj = cheapest(problem)
    assert in_order_nj is not None and (least_nj < in_order_nj) == is_better
    schedule = solve(problem, gap=0.0, time_limit_s=30)
    check(problem, schedule)
    assert schedule.bound_nj == schedule.energy_nj == least_nj


@examples(20)
@given(problems_with_variants(max_operations=4))
def test_dma(problem: Problem) -> None:
    problem = dataclasses.replace(problem, dma=True)
    if len(problem.tensors) > 7:
        return
    expected = schedule_dma_oracle.cheapest(problem)
    try:
        schedule = solve(problem, gap=0.0, time_limit_s=0.5)
    except InfeasibleProblem:
        assert expected is None
        return
    except SolverTimeLimit:
        return
    check(problem, schedule)
    if expected is not None:
        assert schedule.bound_nj <= expected
        # It may be less in another order.
        first = list(dict.fromkeys(step.operation for step in schedule.computes))
        assert first != sorted(first) or expected <= schedule.energy_nj


@pytest.mark.slow
@examples(25)
@given(problems_with_variants())
def test_least_ram_and_fastest(problem: Problem) -> None:
    free = dataclasses.replace(problem, deadline_ns=None)
    least = least_ram(Instance(problem))
    assert least.bound <= least.order_bound
    if least.order_bound > 0:
        assert cheapest(dataclasses.replace(free, ram_bytes=least.order_bound - 1)) is None
    if least.steps is not None:
        assert (
            replay(dataclasses.replace(free, ram_bytes=None), least.steps).peak_bytes == least.known
        )
    quick = fastest(Instance(problem))
    if quick.known is not None:
        assert cheapest(dataclasses.replace(problem, deadline_ns=quick.known)) is not None
        if quick.order_bound > 0:
            early = dataclasses.replace(problem, deadline_ns=quick.order_bound - 1)
            assert cheapest(early) is None


def test_baselines_run_operations_as_they_are() -> None:
    """A problem that has a schedule without variants."""
    problem = random_variants(random.Random(3), 5)
    problem = dataclasses.replace(problem, ram_bytes=1000, storage_bytes=None, deadline_ns=None)
    for name in ("keep-all", "chen-sqrt", "dtr", "capuchin"):
        schedule = solve(problem, strategy=name)
        check(problem, schedule)
        assert not uses_variants(schedule)


@must_reach("cheaper")
@examples(30)
@given(problems_with_variants())
def test_monet_chooses_implementations(problem: Problem) -> None:
    """`monet` is the optimum without paging, `checkmate` that of operations as they are."""

    def least(strategy: str) -> int | None:
        try:
            return solve(problem, strategy=strategy, gap=0.0, time_limit_s=30).energy_nj
        except InfeasibleProblem:
            return None

    monet, checkmate = least("monet"), least("checkmate")
    assert monet == cheapest(problem, paging=False)
    assert checkmate == cheapest(without_variants(problem), paging=False)
    if monet is not None and checkmate is not None and monet < checkmate:
        reached("cheaper")


def streamed(problem: Problem) -> int | None:
    """The least energy that the heuristic finds."""
    instance = Instance(problem)
    found: list[int] = []

    def offer(events: list[Event]) -> None:
        found.append(replay(problem, rebuild(instance, events)).energy_nj)

    assert problem.ram_bytes is not None
    stream(instance, problem.ram_bytes, offer, Effort(1.0))
    return found[-1] if found else None


def test_the_heuristic_misses_little() -> None:
    """On random problems, without limits that it does not know of; in all of them together it
    spends a few percent more than is possible."""
    found = optimal = spent = least = 0
    for seed in range(75):
        problem = random_variants(random.Random(seed), 6)
        ample = {"storage_bytes": None, "deadline_ns": None, "idle_power_nw": 0}
        problem = dataclasses.replace(problem, **ample)
        start = sum(t.bytes for t in problem.tensors if t.start is Place.RAM)
        if start > (problem.ram_bytes or 0):
            continue
        expected = cheapest(problem, remat=False)
        energy = streamed(problem)
        # It does without recomputing, and otherwise finds a schedule wherever there is one.
        assert (energy is None) == (expected is None)
        if energy is not None and expected is not None:
            found, optimal = found + 1, optimal + (energy == expected)
            spent, least = spent + energy, least + expected
    assert found > 40
    assert optimal > 0.7 * found
    assert spent < 1.1 * least


def test_variants_make_nothing_dearer() -> None:
    """Where operations can run as they are, there is no dearer schedule than without variants."""
    compared = 0
    for seed in range(20):
        problem = random_variants(random.Random(seed), 6)
        plain = Instance(problem).without_variants().problem
        need, _ = bounds.ram_needed(Instance(dataclasses.replace(plain, ram_bytes=None)))
        try:
            before = solve(dataclasses.replace(plain, ram_bytes=need), time_limit_s=10)
        except (InfeasibleProblem, SolverTimeLimit):
            continue
        problem = dataclasses.replace(problem, ram_bytes=need)
        schedule = solve(problem, time_limit_s=10)
        check(problem, schedule)
        assert schedule.energy_nj <= before.energy_nj
        compared += 1
    assert compared > 7


def test_refusal_says_what_would_do() -> None:
    """The least RAM is that of the variants."""
    a, b = (Tensor(name, 100, end=Place.STORAGE) for name in "ab")
    a = dataclasses.replace(a, start=Place.STORAGE)
    slices = Variant(frozenset((0, 1)), 8, 1, 1, 1)
    operation = Operation("copy", (0,), (1,), 1, 1, variants=(slices,))
    with pytest.raises(InfeasibleProblem, match="the least that works is 8 bytes") as error:
        solve(Problem((operation,), (a, b), ram_bytes=7))
    assert error.value.least_ram_bytes == error.value.ram_bound_bytes == 8
    solve(Problem((operation,), (a, b), ram_bytes=8))
