"""`solve`: clock, cancellation, messages, reproducibility."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poetc.schedule.exact.highs import LinearProgram, solve_lp, solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.points import point, sequence, violation
from poetc.schedule.exact.slots import all_slots
from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem, SolverInterrupted, SolverTimeLimit
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Operation, PageIn, Place, Problem, Tensor
from poetc.schedule.model.rebuild import Load, Run, rebuild
from poetc.schedule.search.infeasibility import least_ram
from poetc.schedule.search.state import Progress, Search
from poetc.schedule.solve import solve


def training_step(layers: int, ram_bytes: int | None, **changes) -> Problem:
    """A chain of layers forward and backward: gradient t reads activation t and gradient t + 1."""
    sizes = [40 + 24 * (k * 7 % 5) for k in range(layers)]
    tensors = [Tensor(f"a{k}", size, **transfer(size)) for k, size in enumerate(sizes)]
    tensors += [Tensor(f"g{k}", sizes[k], **transfer(sizes[k])) for k in reversed(range(layers))]
    operations = []
    for k in range(layers):
        before = (k - 1,) if k else ()
        time_ns, energy_nj = 100 + 30 * (k % 3), 1000 + 700 * (k % 4)
        operations.append(Operation(f"f{k}", before, (k,), time_ns, energy_nj))
    for index, k in enumerate(reversed(range(layers))):
        read = {k, k - 1} & set(range(layers)) | ({layers + index - 1} if index else set())
        operations.append(
            Operation(f"b{k}", tuple(sorted(read)), (layers + index,), 200, 2000 + 500 * (k % 3))
        )
    return Problem(tuple(operations), tuple(tensors), ram_bytes=ram_bytes, **changes)


def transfer(size: int) -> dict[str, Any]:
    return {
        "pagein_time_ns": size,
        "pagein_energy_nj": 9 * size,
        "pageout_time_ns": 2 * size,
        "pageout_energy_nj": 11 * size,
    }


def least(problem: Problem) -> int:
    known = least_ram(Instance(problem)).known
    assert known is not None
    return known


def test_enough_ram_needs_nothing() -> None:
    problem = training_step(8, None)
    schedule = solve(problem)
    assert schedule.energy_nj == schedule.bound_nj == sum(o.energy_nj for o in problem.operations)
    assert schedule.status == "optimal"
    assert schedule.gap == 0.0


def test_no_operations() -> None:
    assert solve(Problem((), ())).energy_nj == 0
    kept = Problem((), (Tensor("x", 4, start=Place.STORAGE, end=Place.RAM),), ram_bytes=4)
    assert solve(kept).steps == (PageIn(0),)


def test_training_step_within_one_percent() -> None:
    problem = training_step(20, None)
    tight = replace(problem, ram_bytes=int(least(problem) * 1.1))
    begin = time.process_time()
    schedule = solve(tight, time_limit_s=60)
    assert time.process_time() - begin < 30
    check(tight, schedule)
    assert schedule.status == "optimal"
    assert schedule.gap <= 0.01


def test_same_input_same_schedule() -> None:
    problem = training_step(10, None)
    tight = replace(problem, ram_bytes=int(least(problem) * 1.1))
    assert solve(tight).steps == solve(tight).steps


def test_with_a_gap_of_one_any_schedule_will_do() -> None:
    """A small problem is solved to its optimum for any other gap, with models over all slots."""
    problem = training_step(10, None)
    tight = replace(problem, ram_bytes=least(problem))
    found, best = solve(tight, gap=1.0), solve(tight, gap=0.99)
    check(tight, found)
    assert found.energy_nj > best.energy_nj == best.bound_nj
    assert not any(" slots, " in line for line in found.log)
    assert any(" slots, " in line for line in best.log)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["auto", "poet"])
def test_time_limit_is_kept(strategy: str) -> None:
    problem = training_step(60, None)
    tight = replace(problem, ram_bytes=900)
    begin = time.process_time()
    try:
        schedule = solve(tight, strategy=strategy, gap=0.0, time_limit_s=2)
    except SolverTimeLimit:
        assert strategy == "poet"
    else:
        check(tight, schedule)
        assert schedule.status == "feasible"
        assert schedule.bound_nj < schedule.energy_nj
    assert time.process_time() - begin < 6


def test_time_limit_without_schedule() -> None:
    problem = training_step(12, None)
    tight = replace(problem, ram_bytes=least(problem))
    with pytest.raises(SolverTimeLimit, match="without a schedule, and without a proof") as error:
        solve(tight, strategy="poet", time_limit_s=0)
    assert tight.ram_bytes is not None
    known, proven = error.value.least_ram_bytes, error.value.ram_bound_bytes
    assert known is not None and proven is not None
    assert proven <= tight.ram_bytes <= known
    assert f"less than {proven} bytes of RAM are not enough" in str(error.value)


def test_progress_is_told_and_can_stop() -> None:
    problem = replace(training_step(40, None), ram_bytes=900)
    seen: list[Progress] = []

    def progress(state: Progress) -> bool:
        seen.append(state)
        return len(seen) < 4

    schedule = solve(problem, gap=0.0, progress=progress)
    check(problem, schedule)
    assert len(seen) <= 8
    assert all(a.bound_nj <= b.bound_nj for a, b in pairwise(seen))
    assert all(a.energy_nj >= b.energy_nj for a, b in pairwise(seen))
    assert seen[-1].energy_nj == schedule.energy_nj


@pytest.mark.slow
def test_interrupt_returns_the_best_so_far() -> None:
    problem = replace(training_step(60, None), ram_bytes=900)

    def press_ctrl_c(progress: Progress) -> None:
        if math.isfinite(progress.energy_nj):
            signal.raise_signal(signal.SIGINT)

    begin = time.process_time()
    with pytest.raises(SolverInterrupted) as stop:
        solve(problem, gap=0.0, time_limit_s=60, progress=press_ctrl_c)
    assert time.process_time() - begin < 6
    assert stop.value.schedule is not None
    check(problem, stop.value.schedule)


def test_of_two_schedules_with_equal_energy_the_faster_is_kept() -> None:
    tensors = (Tensor("x", 1, start=Place.RAM, pageout_time_ns=5, pagein_time_ns=5), Tensor("y", 1))
    problem = Problem((Operation("f", (0,), (1,), 1, 1),), tensors)
    search = Search(Instance(problem), 5, 0.0)
    assert search.offer([Load(0), Run(0)])
    slow = search.report
    assert search.offer([Run(0)])
    assert slow is not None and search.report is not None
    assert (slow.energy_nj, slow.makespan_ns) == (1, 11)
    assert (search.report.energy_nj, search.report.makespan_ns) == (1, 1)
    assert not search.offer([Load(0), Run(0)])


def test_unknown_strategy() -> None:
    with pytest.raises(ValueError, match="unknown strategy 'best', there are auto, "):
        solve(training_step(3, None), strategy="best")


@pytest.mark.parametrize("gap", [math.nan, -0.1])
def test_a_gap_that_is_none(gap: float) -> None:
    with pytest.raises(ValueError, match="gap"):
        solve(training_step(3, None), gap=gap)


def test_too_little_ram_names_the_operation() -> None:
    problem = training_step(6, None)
    need = least(problem)
    solve(replace(problem, ram_bytes=need))
    with pytest.raises(InfeasibleProblem) as error:
        solve(replace(problem, ram_bytes=need - 1))
    assert error.value.least_ram_bytes == error.value.ram_bound_bytes == need
    assert error.value.operation is not None
    name = problem.operations[error.value.operation].name
    assert str(error.value) == (
        f"{need - 1} bytes of RAM are too few: the least that works is {need} bytes "
        f"(for operation {name})"
    )


def test_too_little_ram_at_the_start() -> None:
    tensors = (Tensor("x", 4, start=Place.RAM), Tensor("y", 1))
    problem = Problem((Operation("f", (), (1,), 1, 1),), tensors, ram_bytes=3)
    with pytest.raises(InfeasibleProblem, match="for what must be in RAM at the start or the end"):
        solve(problem)


def test_too_short_a_deadline() -> None:
    problem = training_step(4, None)
    total = sum(o.time_ns for o in problem.operations)
    with pytest.raises(InfeasibleProblem) as error:
        solve(replace(problem, deadline_ns=total - 1))
    assert error.value.fastest_ns == error.value.time_bound_ns == total
    assert str(error.value) == (
        f"the deadline of {total - 1} ns is too short: the fastest possible is {total} ns"
    )


@pytest.mark.parametrize("strategy", ["auto", "milp"])
def test_too_short_a_deadline_for_a_transfer_that_is_waited_for(strategy: str) -> None:
    tensors = (
        Tensor("x", 1, start=Place.STORAGE, pagein_time_ns=3),
        Tensor("y", 1, end=Place.STORAGE, pageout_time_ns=2),
    )
    problem = Problem((Operation("f", (0,), (1,), 4, 0),), tensors, deadline_ns=8, dma=True)
    with pytest.raises(InfeasibleProblem) as error:
        solve(problem, strategy=strategy)
    assert error.value.any_order
    assert str(error.value) == "the deadline of 8 ns is too short: the fastest possible is 9 ns"
    solve(replace(problem, deadline_ns=9), strategy=strategy)


@pytest.mark.slow
def test_deadline_too_short_for_the_ram() -> None:
    problem = training_step(6, None)
    tight = replace(problem, ram_bytes=least(problem))
    with pytest.raises(InfeasibleProblem) as error:
        solve(replace(tight, deadline_ns=sum(o.time_ns for o in problem.operations)))
    fastest_ns = error.value.fastest_ns
    assert fastest_ns is not None
    assert fastest_ns == error.value.time_bound_ns
    solve(replace(tight, deadline_ns=fastest_ns))
    with pytest.raises(InfeasibleProblem):
        solve(replace(tight, deadline_ns=fastest_ns - 1))


def test_too_little_storage() -> None:
    tensors = (Tensor("w", 8, start=Place.STORAGE),)
    with pytest.raises(InfeasibleProblem, match="7 bytes of storage are less than the 8 that"):
        solve(Problem((Operation("f", (0,), (), 1, 1),), tensors, storage_bytes=7))


def test_keep_all_says_what_it_needs() -> None:
    problem = training_step(6, None)
    peak = solve(problem, strategy="keep-all").peak_bytes
    with pytest.raises(InfeasibleProblem, match=f"keep-all needs {peak} bytes of RAM"):
        solve(replace(problem, ram_bytes=peak - 1), strategy="keep-all")


def test_options_are_kept() -> None:
    problem = training_step(10, None)
    tight = replace(problem, ram_bytes=int(least(problem) * 1.3))
    no_remat = solve(tight, remat=False)
    assert len(no_remat.computes) == len(problem.operations)
    assert any(isinstance(step, PageIn) for step in no_remat.steps)
    ram = least_ram(Instance(problem, paging=False)).known
    no_paging = solve(replace(problem, ram_bytes=ram), paging=False)
    assert not any(isinstance(step, PageIn) for step in no_paging.steps)


def test_updated_parameter_is_read_before_its_update() -> None:
    """The forward pass reads w, the update replaces it: nothing that reads w runs again later."""
    tensors = (
        Tensor("w", 8, start=Place.STORAGE, **transfer(8)),
        Tensor("h", 8, **transfer(8)),
        Tensor("w2", 8, end=Place.STORAGE, replaces=0, **transfer(8)),
        Tensor("loss", 4, end=Place.RAM),
    )
    operations = (
        Operation("forward", (0,), (1,), 10, 100),
        Operation("update", (0,), (2,), 10, 100, workspace_bytes=8, inplace=((2, 0),)),
        Operation("loss", (1,), (3,), 10, 100),
    )
    problem = Problem(operations, tensors, ram_bytes=16)
    schedule = solve(problem, gap=0.0, strategy="milp")
    check(problem, schedule)
    # h has no room during the update. Remaking it would be cheaper than paging, but w is gone.
    assert PageIn(1) in schedule.steps
    assert [step.operation for step in schedule.computes] == [0, 1, 2]


def test_points_and_sequences_agree() -> None:
    """A point made from a schedule satisfies the model and gives the same schedule back."""
    problem = training_step(8, None)
    tight = replace(problem, ram_bytes=int(least(problem) * 1.1))
    schedule = solve(tight, gap=0.0)
    events = [
        Run(step.operation) if isinstance(step, Compute) else Load(step.tensor)
        for step in schedule.steps
        if isinstance(step, Compute | PageIn)
    ]
    instance = Instance(tight)
    model = SlotModel(instance, all_slots(instance))
    x = point(model, events)
    assert x is not None
    assert violation(model.lp, x) <= 1e-9
    value = model.value(float(x @ np.array(model.lp.cost)) + model.lp.offset)
    assert round(value) == schedule.energy_nj
    assert replay(tight, rebuild(instance, sequence(model, x))).energy_nj == schedule.energy_nj


def test_highs_answers() -> None:
    lp = LinearProgram()
    x, y = lp.column(cost=-3), lp.column(cost=-2)
    lp.row((x, y), (2, 2), upper=3)
    lp.offset = 10.0
    assert solve_lp(lp, Effort()).objective == pytest.approx(6.0)
    outcome = solve_mip(lp, Effort())
    assert outcome.finished
    assert outcome.objective == pytest.approx(7.0)
    # The cutoff counts the offset.
    assert solve_mip(lp, Effort(), cutoff=7.0).objective == pytest.approx(7.0)
    nothing = solve_mip(lp, Effort(), cutoff=6.9)
    assert nothing.infeasible or nothing.bound >= 6.9
    lp.row((x, y), (1, 1), lower=2)
    assert solve_mip(lp, Effort()).infeasible
    assert solve_lp(lp, Effort()).infeasible


def test_highs_answers_where_there_is_nothing_to_decide() -> None:
    lp = LinearProgram()
    lp.offset = 3.0
    for outcome in (solve_lp(lp, Effort()), solve_mip(lp, Effort())):
        assert outcome.finished and not outcome.infeasible
        assert outcome.x is not None
        assert outcome.objective == outcome.bound == 3.0


LEFT_BEHIND = """
import time
import numpy as np
from poetc.schedule.exact import highs
from poetc.schedule.model.clock import Effort

highs.GRACE_S = 0.0  # A HiGHS that is late is left behind at once.
rng = np.random.default_rng(1)
lp = highs.LinearProgram()
for _ in range(3000):
    lp.column(cost=-float(rng.integers(1, 100)))
for _ in range(600):
    index = rng.choice(3000, 60, replace=False)
    lp.row(index.tolist(), rng.integers(1, 50, 60).astype(float).tolist(), upper=300.0)
begin = time.monotonic()
effort = Effort(ended=lambda: time.monotonic() - begin > 0.2)
print(highs.solve_mip(lp, effort).status)
"""


def test_a_solver_that_is_left_behind_does_not_abort_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "did not stop" in ended.stdout
    assert (ended.returncode, ended.stderr) == (0, "")
