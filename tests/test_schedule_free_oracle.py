"""`solve` and the limits against the optimum without stages: what each may claim."""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_free_oracle import (
    FREE,
    FREE_ONCE,
    ORDERED,
    ORDERED_ONCE,
    STAGES,
    Rules,
    cheapest,
    least_ram,
    orders,
    permuted,
)
from schedule_oracle import cheapest as cheapest_by_stages
from schedule_problems import problems, random_problem

from poetc.schedule.exact import bounds
from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import InfeasibleProblem, ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    Tensor,
)
from poetc.schedule.search import infeasibility
from poetc.schedule.solve import solve
from poetc.schedule.strategies import constructive

CONSTRUCTIVE = tuple(strategy.name for strategy in constructive())

NONE = float("inf")


def examples(count: int) -> settings:
    return settings(
        deadline=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def energy(problem: Problem, rules: Rules) -> float:
    """The optimum, infinite where there is no schedule; its schedule passes the checker."""
    found = cheapest(problem, rules)
    if found is None:
        return float("inf")
    assert replay(problem, found.steps).energy_nj == found.energy_nj
    runs = [step.operation for step in found.steps if isinstance(step, Compute)]
    if rules.ordered:
        assert list(dict.fromkeys(runs)) == list(range(len(problem.operations)))
    return found.energy_nj


def solved(problem: Problem, **options):
    try:
        schedule = solve(problem, gap=0.0, time_limit_s=30, **options)
    except InfeasibleProblem:
        return None
    check(problem, schedule)
    return schedule


@pytest.mark.slow
@examples(60)
@given(problems())
def test_fewer_rules_cost_less(problem: Problem) -> None:
    by_stages = energy(problem, STAGES)
    assert energy(problem, FREE) <= energy(problem, ORDERED) <= by_stages
    expected = cheapest_by_stages(problem)
    assert by_stages == (float("inf") if expected is None else expected)


@examples(30)
@given(problems(max_operations=5))
def test_rules_between(problem: Problem) -> None:
    problem = dataclasses.replace(problem, deadline_ns=None)
    once = energy(problem, ORDERED_ONCE)
    assert energy(problem, ORDERED) <= once <= energy(problem, STAGES)
    assert energy(problem, FREE) <= energy(problem, FREE_ONCE) <= once


@pytest.mark.slow
@examples(48)
@given(problems())
def test_solve_is_between_no_rules_and_the_stage_rules(problem: Problem) -> None:
    free, by_stages = energy(problem, FREE), energy(problem, STAGES)
    schedule = solved(problem)
    if schedule is None:
        assert by_stages == float("inf")
        return
    assert free <= schedule.energy_nj <= by_stages
    assert schedule.bound_nj <= min(schedule.energy_nj, by_stages)


@examples(30)
@given(problems(max_operations=5))
def test_the_best_order(problem: Problem) -> None:
    """No order with the stage rules beats having no rules; `solve` finds the best one."""
    energies = [energy(permuted(problem, order), STAGES) for order in orders(problem)]
    assert energy(problem, FREE) <= min(energies) <= energies[0] == energy(problem, STAGES)
    schedule = solved(problem)
    assert (NONE if schedule is None else schedule.energy_nj) <= min(energies)


@pytest.mark.slow
@must_reach("refusal")
@examples(60)
@given(problems())
def test_refusals(problem: Problem) -> None:
    """What a refusal says is proven is true, with and without rules."""
    for strategy in ("auto", "milp"):
        try:
            solve(problem, gap=0.0, time_limit_s=30, strategy=strategy)
            continue
        except InfeasibleProblem as error:
            refusal = error
        reached("refusal")
        rules = FREE if refusal.any_order else STAGES
        assert cheapest(problem, rules) is None
        assert ("in this order of the operations" in str(refusal)) == (not refusal.any_order)
        free = dataclasses.replace(problem, deadline_ns=None)
        if (bound := refusal.ram_bound_bytes) is not None:
            assert cheapest(dataclasses.replace(free, ram_bytes=bound - 1), rules) is None
        if (known := refusal.least_ram_bytes) is not None:
            assert cheapest(dataclasses.replace(free, ram_bytes=known), FREE) is not None
        if (bound := refusal.time_bound_ns) is not None and bound > 0:
            assert cheapest(dataclasses.replace(problem, deadline_ns=bound - 1), rules) is None


@pytest.mark.parametrize("seed", [53, 426, 471])
def test_only_another_order_keeps_to_the_limits(seed: int) -> None:
    problem = random_problem(random.Random(seed), 6)
    with pytest.raises(InfeasibleProblem, match="in this order of the operations") as refusal:
        solve(problem, strategy="milp")
    assert not refusal.value.any_order
    schedule = solved(problem)
    assert schedule is not None
    assert schedule.energy_nj == energy(problem, FREE) < energy(problem, STAGES)


@pytest.mark.slow
@must_reach(*CONSTRUCTIVE)
@examples(30)
@given(problems())
def test_baselines_are_never_better_than_no_rules(problem: Problem) -> None:
    """They may break the stage rules; their bound is still below what they find."""
    free = energy(problem, FREE)
    for strategy in CONSTRUCTIVE:
        try:
            schedule = solve(problem, strategy=strategy, time_limit_s=30)
        except Exception as error:
            assert type(error).__module__ == "poetc.schedule.model.errors", error
            continue
        reached(strategy)
        assert free <= schedule.energy_nj
        assert schedule.bound_nj <= schedule.energy_nj


@pytest.mark.slow
@examples(30)
@given(problems())
def test_least_ram(problem: Problem) -> None:
    problem = dataclasses.replace(problem, deadline_ns=None, ram_bytes=None)
    instance = Instance(problem)
    free, ordered = least_ram(problem, FREE), least_ram(problem, ORDERED)
    by_stages = least_ram(problem, STAGES)
    claimed = infeasibility.least_ram(instance)
    if by_stages is None:
        assert claimed.known is None
        return
    assert free is not None and ordered is not None and claimed.known is not None
    assert bounds.ram_needed(instance)[0] <= by_stages
    assert free <= ordered <= by_stages
    # With the least RAM that is known there is a schedule; with less than the bound there is none.
    assert claimed.bound <= free <= claimed.known <= by_stages
    assert claimed.order_bound <= by_stages


@must_reach("tight")
@examples(60)
@given(problems(), st.booleans(), st.booleans())
def test_the_ram_that_any_order_needs(problem: Problem, paging: bool, remat: bool) -> None:
    problem = dataclasses.replace(problem, deadline_ns=None, ram_bytes=None)
    instance = Instance(problem, remat=remat, paging=paging)
    tensors = (
        dataclasses.replace(t, pageable=pageable)
        for t, pageable in zip(problem.tensors, instance.pageable, strict=True)
    )
    operations = (
        dataclasses.replace(o, repeatable=o.repeatable and remat) for o in problem.operations
    )
    allowed = Problem(tuple(operations), tuple(tensors), None, None, problem.storage_bytes)
    least = least_ram(allowed, FREE)
    bound, _ = bounds.ram_needed_in_any_order(instance)
    assert least is None or bound <= least
    if bound == least:
        reached("tight")


def test_a_buffer_that_every_order_keeps() -> None:
    """A parameter and its new value, beside what does not read them."""
    tensors = (
        Tensor("w", 5, start=Place.RAM, pageable=False),
        Tensor("x", 1, pageable=False),
        Tensor("y", 3, pageable=False, end=Place.RAM),
        Tensor("w2", 5, pageable=False, end=Place.RAM, replaces=0),
    )
    operations = (
        Operation("x", (), (1,), 1, 1, repeatable=False),
        Operation("y", (1,), (2,), 1, 1),
        Operation("w2", (0, 1), (3,), 1, 1, inplace=((3, 0),)),
    )
    instance = Instance(Problem(operations, tensors))
    # w or w2, x for the one of y and w2 that runs last, and y.
    assert bounds.ram_needed_in_any_order(instance) == (9, 1)
    assert least_ram(instance.problem, FREE) == 9


def graph(ram: int, edges: dict[str, str], sizes: dict[str, int]) -> Problem:
    """One result an operation, for 1 nJ; nothing is paged; what nothing reads must be in RAM at the
    end."""
    names = list(edges)
    read = "".join(edges.values())
    tensors = tuple(
        Tensor(name, sizes[name], pageable=False, end=None if name in read else Place.RAM)
        for name in names
    )
    operations = tuple(
        Operation(name, tuple(map(names.index, edges[name])), (k,), 1, 1)
        for k, name in enumerate(names)
    )
    return Problem(operations, tensors, ram_bytes=ram)


@pytest.mark.parametrize(
    ("problem", "by_stages", "once", "ordered", "free"),
    [
        pytest.param(
            # a is read by b and e, but there is no room for it beside c.
            graph(
                6,
                {"a": "", "b": "a", "c": "", "d": "c", "e": "a"},
                {"a": 3, "b": 1, "c": 3, "d": 1, "e": 1},
            ),
            *(6, 6, 6, 5),
            id="another order of the first runs",
        ),
        pytest.param(
            # After e, which needs a, d is recomputed from a, and b in the room that a had.
            graph(
                4,
                {"a": "", "b": "", "c": "", "d": "a", "e": "ac"},
                {"a": 1, "b": 1, "c": 2, "d": 2, "e": 1},
            ),
            *(NONE, 8, 8, 5),
            id="recomputes in another order",
        ),
        pytest.param(
            # Nothing can stay beside z. For e both x and y are recomputed from p, which has no room
            # while x is made from r.
            graph(
                6,
                {"p": "", "r": "p", "x": "r", "q": "p", "y": "q", "z": "", "w": "z", "e": "xyw"},
                {"p": 2, "r": 3, "x": 1, "q": 1, "y": 1, "z": 5, "w": 1, "e": 1},
            ),
            *(NONE, NONE, 14, 9),
            id="an operation twice in a stage",
        ),
    ],
)
def test_what_each_rule_costs(
    problem: Problem, by_stages: float, once: float, ordered: float, free: float
) -> None:
    rules = (STAGES, ORDERED_ONCE, ORDERED, FREE)
    assert [energy(problem, rule) for rule in rules] == [by_stages, once, ordered, free]


def test_what_is_written_is_written_when_it_is_made() -> None:
    tensors = (
        Tensor("x", 2, start=Place.RAM, pagein_energy_nj=1, pageout_energy_nj=10),
        Tensor("y", 2, pageable=False),
        Tensor("z", 1, end=Place.RAM),
    )
    operations = (
        Operation("y", (), (1,), 1, 1, workspace_bytes=1),
        Operation("z", (0,), (2,), 1, 1),
    )
    found = cheapest(Problem(operations, tensors, ram_bytes=3), FREE)
    assert found is not None
    # z can run first: nothing has to be paged. With the order given, x is written at the start.
    assert found.energy_nj == 2
    ordered = cheapest(Problem(operations, tensors, ram_bytes=3), ORDERED)
    assert ordered is not None
    assert ordered.steps[0] == PageOut(0)
    assert ordered.energy_nj == 13


def fastest_with_dma(problem: Problem) -> int:
    """The least makespan of all sequences that run each operation once and move only what starts or
    must end on storage, once, with unlimited RAM."""
    tensors, operations = problem.tensors, problem.operations
    read = {v for o in operations for v in o.inputs}
    read |= {v for v, t in enumerate(tensors) if t.end is Place.RAM}
    moves: list[PageIn | PageOut] = []
    for v, tensor in enumerate(tensors):
        if tensor.start is Place.STORAGE and v in read:
            moves.append(PageIn(v))
        if tensor.end is Place.STORAGE and tensor.start is not Place.STORAGE:
            moves.append(PageOut(v))
    best = NONE
    for order in orders(problem):
        for places in itertools.product(range(len(operations) + 1), repeat=len(moves)):
            for queue in itertools.permutations(range(len(moves))):
                steps: list[Step] = []
                there = {v for v, t in enumerate(tensors) if t.start is Place.RAM}
                for at in range(len(operations) + 1):
                    steps += [moves[i] for i in queue if places[i] == at]
                    there |= {moves[i].tensor for i in queue if places[i] == at}
                    if at < len(operations):
                        k = order[at]
                        pairs = tuple(
                            (o, i) for o, i in operations[k].inplace if tensors[o].replaces == i
                        )
                        steps.append(Compute(k, pairs))
                        there |= set(operations[k].outputs)
                        there -= {i for _, i in pairs}
                kept = {v for v in there if tensors[v].end is Place.RAM}
                steps += [Free(v) for v in sorted(there - kept)]
                try:
                    best = min(best, replay(problem, steps).makespan_ns)
                except ScheduleError:
                    continue
    return int(best)


def test_time_that_is_needed_with_dma() -> None:
    exact = seen = 0
    for seed in range(200):
        rng = random.Random(seed)
        problem = random_problem(rng, 3)
        free = dataclasses.replace(
            problem, ram_bytes=None, deadline_ns=None, storage_bytes=None, dma=True
        )
        moved = sum(Place.STORAGE in (t.start, t.end) for t in problem.tensors)
        if not 1 <= moved <= 3:
            continue
        found, needed = fastest_with_dma(free), bounds.time_needed(Instance(free))
        assert needed <= found
        seen += 1
        exact += needed == found
    assert seen > 25
    assert exact > 0.9 * seen


def test_computing_beside_the_last_page_out() -> None:
    """Two parameters with an update each, and a loss that nothing on storage depends on."""
    stored: dict[str, Any] = {"pagein_time_ns": 3, "pageout_time_ns": 4}
    tensors = (
        Tensor("v", 1, start=Place.STORAGE, **stored),
        Tensor("w", 1, start=Place.RAM, **stored),
        Tensor("h", 1, **stored),
        Tensor("v1", 1, end=Place.STORAGE, replaces=0, **stored),
        Tensor("w1", 1, end=Place.STORAGE, replaces=1, **stored),
        Tensor("loss", 1, end=Place.RAM, **stored),
    )
    operations = (
        Operation("h", (0,), (2,), 4, 1),
        Operation("v1", (0, 2), (3,), 4, 1, inplace=((3, 0),)),
        Operation("w1", (1, 2), (4,), 4, 1, inplace=((4, 1),)),
        Operation("loss", (2,), (5,), 1, 1),
    )
    problem = Problem(operations, tensors, dma=True)
    # A page-in, what updates need, and the last page-out, beside which the loss is computed.
    assert fastest_with_dma(problem) == 3 + 4 + 4 + 4 + 4
    assert bounds.time_needed(Instance(problem)) == 3 + 4 + 4 + 4 + 4
