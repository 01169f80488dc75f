"""The published strategies: legal schedules or a clear refusal, and what their papers promise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from conftest import MODELS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from schedule_problems import problems

from poetc import cli
from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import (
    InfeasibleProblem,
    NoScheduleError,
    StrategyUndefinedError,
)
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    Schedule,
    Tensor,
)
from poetc.schedule.model.rebuild import rebuild
from poetc.schedule.solve import solve
from poetc.schedule.strategies import Strategy, constructive, load, names
from poetc.schedule.strategies._chain import forward_chain
from poetc.schedule.strategies.griewank import advance, revolve

CONSTRUCTIVE = tuple(strategy.name for strategy in constructive())

QUICK = settings(
    deadline=None,
    max_examples=160,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RESTRICTED = ("checkmate", "remat-only", "paging-only")


def chain(
    n: int,
    *,
    reads_result: bool = False,
    time_ns: int = 10,
    page_ns: int = 1,
    page_nj: int = 0,
    **limits,
) -> Problem:
    """n unit steps x[i + 1] = f(x[i]) from x[0], which is in RAM, and their adjoints in reverse,
    which read x[i], and x[i + 1] with `reads_result`."""

    def tensor(name: str, start: Place | None = None) -> Tensor:
        return Tensor(
            name,
            1,
            start,
            pagein_time_ns=page_ns,
            pageout_time_ns=page_ns,
            pagein_energy_nj=page_nj,
            pageout_energy_nj=page_nj,
        )

    tensors = [tensor("x0", Place.RAM)]
    operations = []
    for i in range(n):
        tensors.append(tensor(f"x{i + 1}"))
        operations.append(Operation(f"f{i}", (i,), (i + 1,), time_ns, 1))
    tensors.append(tensor("seed"))
    operations.append(Operation("loss", (n,), (n + 1,), time_ns, 1))
    for i in reversed(range(n)):
        read = (i, i + 1) if reads_result else (i,)
        adjoint = len(tensors)
        operations.append(Operation(f"g{i}", (adjoint - 1, *read), (adjoint,), time_ns, 1))
        tensors.append(tensor(f"d{i}"))
    return Problem(tuple(operations), tuple(tensors), **limits)


def run(problem: Problem, strategy: str) -> Schedule:
    """The schedule of a strategy, checked."""
    schedule = solve(problem, strategy=strategy, time_limit_s=20, gap=0.0)
    check(problem, schedule)
    return schedule


def attempt(problem: Problem, strategy: str) -> Schedule | None:
    """The same, or None where the strategy refuses in the way that it may."""
    try:
        schedule = run(problem, strategy)
        reached(strategy)
        return schedule
    except InfeasibleProblem:
        return None
    except NoScheduleError as error:
        assert strategy in CONSTRUCTIVE
        assert strategy in str(error)
    except StrategyUndefinedError as error:
        assert strategy in ("griewank", "pofo")
        assert strategy in str(error)
    return None


def recomputes(schedule: Schedule) -> int:
    runs = [step.operation for step in schedule.computes]
    return len(runs) - len(set(runs))


def keeps_stage_rules(schedule: Schedule) -> bool:
    """Between two first runs each operation runs again at most once, in the order of the
    program."""
    seen: set[int] = set()
    last = -1
    for step in schedule.computes:
        if step.operation not in seen:
            seen.add(step.operation)
            last = -1
        elif step.operation <= last:
            return False
        else:
            last = step.operation
    return True


@pytest.mark.slow
@must_reach(*CONSTRUCTIVE)
@QUICK
@given(problems(max_operations=10), st.booleans(), st.sampled_from(CONSTRUCTIVE))
def test_legal_or_refused(problem: Problem, dma: bool, strategy: str) -> None:
    attempt(replace(problem, dma=dma, deadline_ns=None), strategy)


@QUICK
@given(problems(max_operations=8), st.sampled_from(("dtr", "capuchin", "chen-greedy")))
def test_unlimited_is_keep_all(problem: Problem, strategy: str) -> None:
    problem = replace(problem, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    assert run(problem, strategy).energy_nj == run(problem, "keep-all").energy_nj


@pytest.mark.slow
@must_reach("compared")
@QUICK
@given(problems(max_operations=6), st.sampled_from((*CONSTRUCTIVE, *RESTRICTED)))
def test_never_better_than_the_optimum(problem: Problem, strategy: str) -> None:
    schedule = attempt(problem, strategy)
    if schedule is None or not keeps_stage_rules(schedule):
        return
    reached("compared")
    assert schedule.energy_nj >= run(problem, "auto").energy_nj


@pytest.mark.slow
@must_reach("compared")
@QUICK
@given(problems(max_operations=6), st.sampled_from(("chen-sqrt", "chen-greedy", "griewank", "dtr")))
def test_recompute_only_is_never_better_than_checkmate(problem: Problem, strategy: str) -> None:
    schedule = attempt(problem, strategy)
    if schedule is None or not keeps_stage_rules(schedule):
        return
    reached("compared")
    assert schedule.energy_nj >= run(problem, "checkmate").energy_nj


def forward_steps(length: int, checkpoints: int) -> int:
    """The closed form of the paper: t(l, c) = r l - β(c + 1, r - 1), for the least r with
    l <= β(c, r)."""
    r = 0
    while math.comb(checkpoints + r, checkpoints) < length:
        r += 1
    return r * length - (math.comb(checkpoints + r, checkpoints + 1) if r else 0)


@given(st.integers(1, 60), st.integers(1, 8))
def test_binomial_number_of_steps(length: int, checkpoints: int) -> None:
    """The splits of revolve reach the number that dynamic programming finds."""
    best: dict[tuple[int, int], int] = {}

    def least(n: int, c: int) -> int:
        if n == 1:
            return 0
        if c == 1:
            return n * (n - 1) // 2
        if (n, c) not in best:
            best[n, c] = min(m + least(n - m, c - 1) + least(m, c) for m in range(1, n))
        return best[n, c]

    def steps(n: int, c: int) -> int:
        if n == 1:
            return 0
        m = advance(n, c)
        rest = steps(n - m, c - 1) if c > 1 else 0
        return m + rest + steps(m, c)

    assert forward_steps(length, checkpoints) == least(length, checkpoints)
    assert steps(length, checkpoints) == least(length, checkpoints)


@pytest.mark.parametrize("n", [2, 3, 7, 20])
@pytest.mark.parametrize("checkpoints", [1, 2, 3, 6])
@pytest.mark.parametrize("reads_result", [False, True])
def test_griewank_on_a_unit_chain(n: int, checkpoints: int, reads_result: bool) -> None:
    """Exactly the binomial number of forward steps.

    Adjoints that read only the state reverse a chain of n steps, of which the last runs once into
    the loss. Where they read the result too, the loss is one more step of the chain, and the result
    is still there from the adjoint before.
    """
    problem = chain(n, reads_result=reads_result)
    instance = Instance(problem)
    blocks = forward_chain(instance)
    assert blocks.cuts == tuple(range(n + 1 + reads_result))
    steps = rebuild(instance, revolve(blocks, checkpoints))
    replay(problem, steps)
    runs = sum(1 for step in steps if isinstance(step, Compute) and step.operation < n)
    if reads_result:
        assert runs == forward_steps(n + 1, checkpoints)
    else:
        assert runs == forward_steps(n, checkpoints) + 1


def test_griewank_uses_all_checkpoints_that_fit() -> None:
    n = 20
    costs = [recomputes(run(chain(n, ram_bytes=ram), "griewank")) for ram in range(6, n + 4)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0


def test_griewank_refuses_what_is_no_chain() -> None:
    """Two branches that meet in the loss."""
    tensors = [Tensor("x", 1, start=Place.RAM)] + [Tensor(f"t{i}", 1) for i in range(4)]
    operations = (
        Operation("left", (0,), (1,), 1, 1),
        Operation("right", (0,), (2,), 1, 1),
        Operation("loss", (1, 2), (3,), 1, 1),
        Operation("back", (1, 2, 3), (4,), 1, 1),
    )
    problem = Problem(operations, tuple(tensors))
    for strategy in ("griewank", "pofo"):
        with pytest.raises(StrategyUndefinedError, match="no articulation point"):
            solve(problem, strategy=strategy)


@pytest.mark.parametrize("n", [9, 25, 64])
def test_chen_sqrt_keeps_about_sqrt_n(n: int) -> None:
    schedule = run(chain(n), "chen-sqrt")
    assert recomputes(schedule) <= n
    root = math.isqrt(n)
    # Checkpoints, one segment, and what an operation needs.
    assert 2 * root - 2 <= schedule.peak_bytes <= 2 * root + 4
    assert max(_runs(schedule).values()) == 2


def _runs(schedule: Schedule) -> dict[int, int]:
    runs: dict[int, int] = {}
    for step in schedule.computes:
        runs[step.operation] = runs.get(step.operation, 0) + 1
    return runs


def test_chen_greedy_recomputes_no_more_than_it_must() -> None:
    n = 25
    costs = []
    for ram in (n + 4, 18, 14, 12):
        schedule = run(chain(n, ram_bytes=ram), "chen-greedy")
        assert max(_runs(schedule).values()) <= 2
        costs.append(schedule.energy_nj)
    assert costs == sorted(costs)


def test_dtr_evicts_only_when_it_must() -> None:
    n = 16
    free = run(chain(n), "dtr")
    assert any("0 evictions" in line for line in free.log)
    assert recomputes(free) == 0
    tight = run(chain(n, ram_bytes=free.peak_bytes - 4), "dtr")
    assert recomputes(tight) > 0
    assert not any(isinstance(step, PageIn | PageOut) for step in tight.steps)


def test_dtr_evicts_the_cheap_and_stale() -> None:
    """Of two tensors as old and as big the one that costs less to make goes."""
    tensors = [Tensor(name, 4) for name in ("cheap", "dear", "c", "d", "e")]
    operations = (
        Operation("cheap", (), (0,), 1, 1),
        Operation("dear", (), (1,), 50, 50),
        Operation("c", (), (2,), 1, 1),
        Operation("d", (2,), (3,), 1, 1),
        Operation("e", (0, 1), (4,), 1, 1),
    )
    schedule = run(Problem(operations, tuple(tensors), ram_bytes=12), "dtr")
    assert _runs(schedule) == {0: 2, 1: 1, 2: 1, 3: 1, 4: 1}


def test_capuchin_pages_where_that_is_hidden() -> None:
    n = 16
    free = run(chain(n), "keep-all")
    tight = run(chain(n, ram_bytes=free.peak_bytes - 6), "capuchin")
    assert recomputes(tight) == 0
    assert any(isinstance(step, PageIn) for step in tight.steps)


def test_capuchin_recomputes_where_paging_takes_longer() -> None:
    n = 16
    free = run(chain(n), "keep-all")
    slow = run(chain(n, page_ns=10_000, ram_bytes=free.peak_bytes - 6), "capuchin")
    assert recomputes(slow) > 0
    assert not any(isinstance(step, PageIn) for step in slow.steps)


def test_pofo_takes_the_cheaper_way() -> None:
    n = 16
    ram = run(chain(n), "keep-all").peak_bytes - 6
    for page_nj in (0, 50):
        schedule = run(chain(n, page_nj=page_nj, ram_bytes=ram), "pofo")
        paged = any(isinstance(step, PageIn) for step in schedule.steps)
        assert paged == (page_nj == 0)
        assert (recomputes(schedule) == 0) == paged
        assert max(_runs(schedule).values()) <= 2


def test_pofo_pages_out_before_the_loss() -> None:
    n = 16
    ram = run(chain(n), "keep-all").peak_bytes - 6
    schedule = run(chain(n, ram_bytes=ram, dma=True), "pofo")
    loss = schedule.steps.index(next(s for s in schedule.computes if s.operation == n))
    assert all(not isinstance(step, PageOut) for step in schedule.steps[loss:])


def test_restricted_searches_do_what_they_say() -> None:
    n = 8
    ram = run(chain(n), "keep-all").peak_bytes - 3
    problem = chain(n, page_nj=1, ram_bytes=ram)
    paged = run(problem, "paging-only")
    assert recomputes(paged) == 0
    again = run(problem, "remat-only")
    assert not any(isinstance(step, PageIn | PageOut) for step in again.steps)
    assert run(problem, "checkmate").energy_nj == again.energy_nj
    assert run(problem, "auto").energy_nj <= min(paged.energy_nj, again.energy_nj)


def test_what_finds_nothing_says_so() -> None:
    with pytest.raises(NoScheduleError, match="chen-sqrt finds no schedule within 6 bytes of RAM"):
        solve(chain(40, ram_bytes=6), strategy="chen-sqrt")
    with pytest.raises(InfeasibleProblem):
        solve(chain(40, ram_bytes=1), strategy="chen-sqrt")


def test_all_strategies_of_the_driver_exist() -> None:
    papers = ("chen-sqrt", "chen-greedy", "griewank", "dtr", "capuchin", "pofo")
    assert papers == CONSTRUCTIVE
    assert {"auto", "milp", "poet", "keep-all", "monet", *papers, *RESTRICTED} == set(names())


@pytest.mark.slow
def test_exit_codes(capsys, monkeypatch) -> None:
    """2 and the reason where a strategy does not apply, 3 where it finds nothing."""
    model = str(MODELS / "kws_conv.mlir")
    assert cli.main([model, "--ram=10KB", "--params=ram", "--strategy=dtr"]) == 3
    assert "strategy dtr has no schedule" in capsys.readouterr().err

    def undefined(search):
        raise StrategyUndefinedError("strategy griewank is defined for chains")

    def replaced(name: str) -> Strategy:
        return Strategy(name, undefined) if name == "griewank" else load(name)

    monkeypatch.setattr("poetc.schedule.solve.load", replaced)
    assert cli.main([model, "--ram=20KB", "--strategy=griewank"]) == 2
    assert "defined for chains" in capsys.readouterr().err
