"""Buffers that move on the way, so that an arena fits that no packing without moves reaches."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest
from compiled import prepare
from conftest import more, of_work
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_problems import random_problem

from poetc.budget import Budget
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.passes.poet_verify import verify_graph
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import problem_view
from poetc.schedule.arena.check import check_packing
from poetc.schedule.arena.memory import lay_out, plan_memory
from poetc.schedule.arena.pack import Buffer, pack
from poetc.schedule.arena.relocate import Relocated, relocate
from poetc.schedule.heuristics.order import footprint
from poetc.schedule.model.checker import replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Problem,
    Step,
    Tensor,
)
from poetc.schedule.search.infeasibility import least_ram
from poetc.schedule.solve import solve

# Bytes / 4, first and last step. At most 5 are alive at once; no packing has less than 6.
GAP = ((2, 0, 0), (3, 0, 1), (1, 1, 2), (2, 2, 2), (1, 1, 3), (1, 2, 3), (3, 3, 4), (2, 4, 4))


def in_a_row(buffers: tuple[tuple[int, int, int], ...]) -> Problem:
    """A problem whose operation k makes what begins at step k and reads what ends there."""
    tensors = tuple(
        Tensor(f"t{v}", 4 * size, pagein_energy_nj=size, pageout_energy_nj=size)
        for v, (size, _, _) in enumerate(buffers)
    )
    operations = tuple(
        Operation(
            f"o{k}",
            tuple(v for v, (_, first, last) in enumerate(buffers) if first < last == k),
            tuple(v for v, (_, first, _) in enumerate(buffers) if first == k),
            time_ns=1,
            energy_nj=10,
        )
        for k in range(max(last for _, _, last in buffers) + 1)
    )
    return Problem(operations, tensors)


def kept(problem: Problem) -> tuple[Step, ...]:
    return solve(problem, strategy="keep-all").steps


def never() -> bool:
    return False


def checked(problem: Problem, steps: tuple[Step, ...], arena_bytes: int, found: Relocated) -> int:
    """What moving costs. Checks that nothing else has changed."""
    before = replay(replace(problem, ram_bytes=None), steps)
    after = replay(replace(problem, ram_bytes=arena_bytes), found.steps)
    layout = lay_out(problem, found.steps)
    lifetimes = list(zip(layout.first, layout.last, strict=True))
    check_packing(layout.bytes, lifetimes, found.offsets, arena_bytes, 1, layout.names)

    def computes(of: tuple[Step, ...]) -> list[Step]:
        return [step for step in of if isinstance(step, Compute)]

    assert computes(steps) == computes(found.steps)
    assert after.peak_bytes <= before.peak_bytes
    assert after.page_ins >= before.page_ins and after.page_outs >= before.page_outs
    return after.energy_nj - before.energy_nj


def test_no_packing_but_one_move():
    problem = in_a_row(GAP)
    packing = pack([Buffer(4 * size, *life) for size, *life in GAP])
    assert packing.arena_bytes == packing.bound_bytes == 24
    steps = kept(problem)
    assert replay(problem, steps).peak_bytes == 20
    assert plan_memory(problem, steps).arena_bytes == 24
    found = relocate(Instance(problem), steps, 20, 4, never)
    assert found is not None
    # The cheapest tensor that lives on has one unit: it is written and read once.
    assert checked(problem, steps, 20, found) == 2
    plan = plan_memory(problem, found.steps, offsets=found.offsets)
    assert plan.arena_bytes == plan.arena_bound_bytes == 20


def test_nothing_moves_where_a_packing_exists():
    problem = in_a_row(GAP)
    steps = kept(problem)
    found = relocate(Instance(problem), steps, 24, 4, never)
    assert found is not None and found.steps == steps
    assert checked(problem, steps, 24, found) == 0


def test_cost_and_limits():
    problem = in_a_row(GAP)
    steps = kept(problem)
    assert relocate(Instance(problem), steps, 20, 4, never, most_nj=1.0) is None
    assert relocate(Instance(problem, paging=False), steps, 20, 4, never) is None
    assert relocate(Instance(problem), steps, 16, 4, never) is None
    tensors = tuple(replace(t, pagein_time_ns=5) for t in problem.tensors)
    late = replace(problem, tensors=tensors, deadline_ns=replay(problem, steps).makespan_ns)
    assert relocate(Instance(late), steps, 20, 4, never) is None
    full = replace(problem, storage_bytes=3)
    assert relocate(Instance(full), steps, 20, 4, never) is None


def test_is_deterministic_and_stops():
    problem = in_a_row(GAP)
    steps = kept(problem)
    found = relocate(Instance(problem), steps, 20, 4, never)
    assert found == relocate(Instance(problem), steps, 20, 4, never)
    began = time.process_time()
    relocate(Instance(problem), steps, 16, 4, lambda: True, rounds=10**9)
    assert time.process_time() - began < 5


@must_reach("relocated")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_moved_tensors_keep_their_alignment(seed: int, more: int):
    """Some tensors take whole cache lines, wherever they are paged in."""
    rng = random.Random(seed)
    problem = random_problem(rng, 6)
    tensors = tuple(replace(t, align=rng.choice((1, 4, 8))) for t in problem.tensors)
    problem = replace(
        problem, tensors=tensors, ram_bytes=None, deadline_ns=None, storage_bytes=None
    )
    try:
        steps = kept(problem)
    except ScheduleError:
        return
    arena_bytes = replay(problem, steps).peak_bytes + more
    found = relocate(Instance(problem), steps, arena_bytes, 1, never, rounds=40)
    if found is not None:
        reached("relocated")
        plan = plan_memory(problem, found.steps, align=1, offsets=found.offsets)
        assert plan.arena_bytes <= arena_bytes


def test_each_loop_asks_whether_to_stop():
    """Once it is told to stop, it asks a few times more and is over, whatever is left to do."""
    problem = random_problem(random.Random(3), 60)
    problem = replace(problem, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    steps = kept(problem)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 100

    peak = replay(problem, steps).peak_bytes
    found = relocate(Instance(problem), steps, peak - 1, 1, stop, rounds=10**9)
    assert 100 < asked < 130
    # The first sweeps are not cut short: there is a result.
    assert found is not None and relocate(Instance(problem), steps, peak - 1, 1, lambda: True)


@must_reach("relocated")
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_random_schedules(seed: int, more: int):
    problem = random_problem(random.Random(seed), 6)
    problem = replace(problem, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    try:
        steps = kept(problem)
    except ScheduleError:
        return
    arena_bytes = replay(problem, steps).peak_bytes + more
    found = relocate(Instance(problem), steps, arena_bytes, 1, never, rounds=40)
    if found is not None:
        reached("relocated")
        checked(problem, steps, arena_bytes, found)
    else:
        # Only what may not leave RAM can be in the way.
        assert not all(t.pageable for t in problem.tensors) or more == 0


def test_pages_are_written_as_soon_as_there_is_something_to_write():
    problem = in_a_row(GAP)
    found = relocate(Instance(problem), kept(problem), 20, 4, never)
    assert found is not None
    written = [step for step in found.steps if isinstance(step, PageOut)]
    assert len(written) == 1
    at = found.steps.index(written[0])
    assert isinstance(found.steps[at - 1], Compute)
    v = written[0].tensor
    assert found.steps.index(Free(v)) < found.steps.index(PageIn(v))


# Models


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("gesture_mlp", "ram"),
        ("kws_conv", "storage"),
        *more(("gesture_mlp", "storage"), ("kws_conv", "ram")),
        *more(*((name, params) for name in ("lenet5", "dscnn") for params in ("ram", "storage"))),
    ],
)
def test_least_live_bytes_are_enough_for_the_arena(name: str, params: str):
    model = prepare(name)
    graph = graphs(model.module)[0]
    options = model.options(1, params=params, gap=1.0)
    least = least_ram(Instance(problem_view(graph, options).problem)).known
    assert least is not None
    report = schedule_and_plan(graph, replace(options, budget=Budget(least)))
    assert report.memory is not None and report.memory.arena_bytes == least
    verify_graph(graph)
    assert run_graph(model.module, model.arguments, least, arena=True).peak_bytes == least


@pytest.mark.slow
def test_a_tight_arena_in_time():
    """All of the RAM is alive time and again, around buffers of very different sizes."""
    model = prepare("resnet8")
    graph = graphs(model.module)[0]
    options = model.options(205_824, params="storage", **of_work(4.0))
    assert problem_view(graph, options).problem.ram_bytes == 205_824
    report = schedule_and_plan(graph, options)
    assert report.memory is not None and report.memory.arena_bytes <= 205_824
    verify_graph(graph)


def test_the_order_is_that_for_parameters_on_storage():
    model = prepare("gesture_mlp")
    graph = graphs(model.module)[0]
    for params in ("ram", "storage"):
        view = problem_view(graph, model.options(None, params=params))
        order = [view.computes.index(compute) for compute in graph.computes]
        own, given = (footprint(view.problem, k).peak_bytes for k in (range(len(order)), order))
        assert (own, given) == (9116, 9116) if params == "ram" else (5920, 6468)
