"""Rows that tighten the relaxation cut off no schedule."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_oracle import cheapest
from schedule_problems import problems, random_problem
from test_schedule_solve import training_step

from poetc.schedule.exact import pages
from poetc.schedule.exact.blocks import block_rows
from poetc.schedule.exact.cuts import Cut, Cuts, Tight
from poetc.schedule.exact.highs import solve_lp, solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.slots import all_slots, slots_where
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place, Problem
from poetc.schedule.search.bounding import Bounding
from poetc.schedule.search.first import first_schedules
from poetc.schedule.search.milps import Guide
from poetc.schedule.search.state import Search


def optimum(model: SlotModel) -> float:
    outcome = solve_mip(model.lp, Effort())
    assert outcome.finished
    return model.value(outcome.objective)


@pytest.mark.slow
@must_reach("cut")
@settings(max_examples=60, deadline=None)
@given(problems(), st.booleans(), st.booleans())
def test_cuts_keep_the_optimum(problem: Problem, relaxation: bool, early: bool) -> None:
    expected = cheapest(problem)
    if expected is None:
        return
    instance = Instance(problem)
    model = SlotModel(instance, all_slots(instance), relaxation=relaxation)
    plain = optimum(model)
    tight = Tight(model)
    rows = []
    if early:
        # Every cut there is, whether or not a point breaks it.
        slots = list(dict.fromkeys(model.slots))
        pairs = itertools.combinations(slots, 2)
        cuts = (
            Cut(v, a, b, after) for v in model.write for a, b in pairs for after in (False, True)
        )
        rows = tight.cuts.rows(cut for cut in cuts if _reads(model, cut))
        if rows:
            tight.add(rows)
    assert tight.rounds(Effort(), float("inf"))
    if rows or tight.found:
        reached("cut")
    model.lp = tight.settled()
    assert optimum(model) == pytest.approx(plain, abs=1e-3)
    assert plain <= expected + 1e-3
    if not relaxation and not problem.idle_power_nw:
        assert plain == pytest.approx(expected, abs=1e-3)


def _reads(model: SlotModel, cut: Cut) -> bool:
    """Are both slots events of the tensor, and is the use one that reads it?"""
    events = {model.slots[e.slot]: e.makes for e in model.events[cut.tensor] if e.slot >= 0}
    return cut.moment in events and events.get(cut.use) is False


@pytest.mark.slow
@must_reach("rows")
@settings(max_examples=25, deadline=None)
@given(problems(), st.integers(1, 4))
@example(random_problem(random.Random(37)), 1)
@example(random_problem(random.Random(40)), 2)
def test_bounds_of_blocks_keep_the_optimum(problem: Problem, width: int) -> None:
    if cheapest(problem) is None:
        return
    instance = Instance(problem)
    model = SlotModel(instance, all_slots(instance), relaxation=True)
    plain = optimum(model)
    tight = Tight(model)
    assert tight.rounds(Effort(), float("inf"))
    last = len(model.slots) - 1
    bounds = [(s, min(s + width, last)) for s in range(0, last + 1, width)]
    rows = block_rows(tight, bounds, Effort(), 2)
    if rows:
        reached("rows")
        tight.add(rows)
        assert tight.solve(Effort())
    model.lp = tight.settled()
    assert optimum(model) == pytest.approx(plain, abs=1e-3)


@pytest.mark.slow
@must_reach("fixed")
@settings(max_examples=30, deadline=None)
@given(problems(), st.booleans(), st.booleans(), st.sampled_from((0.0, 0.5, 3.0)))
def test_fixing_keeps_the_optimum(
    problem: Problem, relaxation: bool, cut: bool, above_nj: float
) -> None:
    if cheapest(problem) is None:
        return
    instance = Instance(problem)
    model = SlotModel(instance, all_slots(instance), relaxation=relaxation)
    plain = optimum(model)
    goal = (plain + above_nj) / model.scale
    tight = Tight(model)
    if cut:
        rows = tight.cuts.rows(tight.cuts.lasting())
        if rows:
            tight.add(rows)
    assert tight.rounds(Effort(), float("inf")) if cut else tight.solve(Effort())
    for _ in range(2):
        # The second time with what is fixed already.
        if tight.fix(goal):
            reached("fixed")
        budget = pages.budget(tight, goal, Effort())
        if budget is not None:
            tight.add([budget])
        assert tight.solve(Effort())
    model.lp = tight.settled()
    assert optimum(model) == pytest.approx(plain, abs=1e-3)


@pytest.mark.slow
def test_fixing_follows_what_belongs_together() -> None:
    """Reduced costs of single columns fix less."""
    instance = Instance(training_step(16, 700))
    model = SlotModel(instance, all_slots(instance), relaxation=True)
    tight = Tight(model)
    assert tight.rounds(Effort(), float("inf"))
    assert tight.outcome is not None and tight.outcome.duals is not None
    goal = optimum(model) / model.scale
    alone = np.count_nonzero(np.abs(tight.outcome.duals) > goal - tight.outcome.objective + 1e-3)
    assert tight.fix(goal) > 1.2 * alone


@pytest.mark.slow
@must_reach("bounded")
@settings(max_examples=20, deadline=None)
@given(problems())
def test_what_the_relaxation_leaves_has_the_optimum(problem: Problem) -> None:
    expected = cheapest(problem)
    search = Search(Instance(problem), 30, gap=0.0)
    first_schedules(search)
    if expected is None or search.steps is None or problem.dma:
        return
    reached("bounded")
    bounding = Bounding(search, Guide())
    bounding.cut(1.0)
    bounding.rest(Effort())
    assert search.energy_nj == pytest.approx(expected, abs=1)
    assert search.bound_nj <= expected + 1e-3
    assert search.optimal


def test_the_budget_of_pages_leaves_out_what_is_written_anyway() -> None:
    """So does the model of what the relaxation leaves, which has columns for it all the same."""
    problem = training_step(10, 560)
    ends = {
        v: Place.STORAGE for v, tensor in enumerate(problem.tensors) if tensor.name in ("g3", "g7")
    }
    tensors = (replace(t, end=ends.get(v, t.end)) for v, t in enumerate(problem.tensors))
    instance = Instance(replace(problem, tensors=tuple(tensors)))
    search = Search(instance, 30, gap=0.0)
    first_schedules(search)
    bounding = Bounding(search, Guide())
    bounding.cut(1.0)
    bounding.fix()
    row = pages.budget(bounding.tight, search.goal() / bounding.model.scale, Effort())
    anyway = {bounding.model.write[v] for v in ends}
    assert len(anyway) == 2 and row is not None and anyway.isdisjoint(row.index)
    assert optimum(bounding._left(row)) == pytest.approx(
        optimum(SlotModel(instance, all_slots(instance))), abs=1e-3
    )


def test_cuts_and_blocks_raise_the_bound() -> None:
    problem = training_step(16, 700)
    instance = Instance(problem)
    model = SlotModel(instance, all_slots(instance), relaxation=True)
    whole = SlotModel(instance, all_slots(instance))
    loose = solve_lp(model.lp, Effort()).objective
    assert solve_lp(whole.lp, Effort()).objective <= loose + 1e-6
    tight = Tight(model)
    assert tight.rounds(Effort(), float("inf"))
    assert tight.outcome is not None
    cut = tight.outcome.objective
    assert cut > loose
    rows = block_rows(
        tight, [(0, len(model.slots) // 2), (len(model.slots) // 2, 10**6)], Effort(), 2
    )
    assert rows
    tight.add(rows)
    assert tight.solve(Effort())
    assert tight.outcome.objective > cut


def test_cuts_of_a_smaller_model_hold_in_a_larger_one() -> None:
    instance = Instance(training_step(16, 700))
    small = SlotModel(instance, slots_where(instance, lambda t, k: k in instance.depth[t]))
    tight = Tight(small)
    assert tight.rounds(Effort(), float("inf"))
    assert tight.found
    large = SlotModel(instance, all_slots(instance), relaxation=True)
    rows = Cuts(large).rows(sorted(tight.found, key=Cut.key))
    assert rows
    raised = Tight(large)
    raised.add(rows)
    assert raised.solve(Effort())
    assert raised.outcome is not None
    assert raised.outcome.objective > solve_lp(large.lp, Effort()).objective
