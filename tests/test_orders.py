"""Schedules in another order than the program's: found, written into the graph, run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_graphs import RandomGraph, random_graphs

from benchmarks.instances import SHAPES, layered, peak_bytes
from poetc.budget import Budget
from poetc.interpreter import run_graph
from poetc.ir.graph import view_unscheduled, write_schedule
from poetc.passes.poet_verify import verify_graph
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions
from poetc.schedule.heuristics.order import footprint
from poetc.schedule.heuristics.reorder import orders, permuted
from poetc.schedule.heuristics.timeline import Timeline
from poetc.schedule.model.checker import check
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, predecessors
from poetc.schedule.model.rebuild import rebuild
from poetc.schedule.params import SearchParams
from poetc.schedule.search.orders import renamed
from poetc.schedule.solve import solve


def any_order(problem: Problem, seed: int) -> list[int]:
    """An order in which the operations can run."""
    rng = random.Random(seed)
    before = [set(earlier) for earlier in predecessors(problem)]
    order: list[int] = []
    while len(order) < len(before):
        ready = [k for k, left in enumerate(before) if k not in order and left <= set(order)]
        order.append(rng.choice(ready))
    return order


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(random_graphs(9), st.integers(0, 1000))
def test_any_order_can_be_written(random: RandomGraph, seed: int) -> None:
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    view = view_unscheduled(graph)
    order = any_order(view.problem, seed)
    instance = Instance(permuted(view.problem, order))
    steps = rebuild(instance, Timeline(instance, 10**9).events())
    write_schedule(view, [renamed(step, order) for step in steps])
    module.verify()
    verify_graph(graph)
    results = run_graph(module, random.arguments()).results
    assert [a.tobytes() for a in wanted] == [b.tobytes() for b in results]


@pytest.mark.slow
@must_reach("scheduled")
@settings(max_examples=20, deadline=None)
@given(random=random_graphs(9), share=st.floats(0, 1))
def test_graphs_scheduled_in_several_orders(random: RandomGraph, share: float) -> None:
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    problem = view_unscheduled(graph).problem
    start = sum(t.bytes for t in problem.tensors if t.start is not None)
    peak = plan_graph(graph.clone(), ScheduleOptions()).use.peak_bytes
    with pytest.MonkeyPatch.context() as patch:
        defaults = {**(solve.__kwdefaults__ or {}), "params": SearchParams(small=-1)}
        patch.setattr(solve, "__kwdefaults__", defaults)
        ram = round(start + share * (peak - start))
        try:
            plan_graph(graph, ScheduleOptions(budget=Budget(ram), time_limit_s=1, gap=0.0))
        except Exception as error:
            assert type(error).__name__ in ("InfeasibleError", "TimeLimitError")
            return
    reached("scheduled")
    module.verify()
    run = run_graph(module, random.arguments(), ram)
    assert [a.tobytes() for a in wanted] == [b.tobytes() for b in run.results]


@pytest.mark.slow
def test_another_order_where_the_given_one_is_dear() -> None:
    problem = layered(120, SHAPES["wide"])
    problem = replace(problem, ram_bytes=int(0.88 * peak_bytes(problem)))
    given_order = solve(problem, strategy="milp", time_limit_s=60, effort_s=5)
    schedule = solve(problem, time_limit_s=60, effort_s=5)
    check(problem, schedule)
    assert schedule.energy_nj < given_order.energy_nj
    firsts = list(dict.fromkeys(step.operation for step in schedule.computes))
    assert firsts != sorted(firsts)
    assert schedule.bound_nj <= schedule.energy_nj


@pytest.mark.parametrize("seed", range(6))
def test_orders_exceed_the_ram_less(seed: int) -> None:
    problem = layered(80, SHAPES["even"], seed)
    limit = int(0.8 * peak_bytes(problem))

    def excess(order) -> int:
        during = footprint(problem, order).during_bytes
        return sum(max(0, used - limit) for used in during)

    found = orders(Instance(replace(problem, ram_bytes=limit)), Effort())
    assert found and excess(found[0]) < excess(range(80))
    for order in found:
        permuted(problem, order)
