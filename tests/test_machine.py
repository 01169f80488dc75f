"""All states of the machine, against brute force in every order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from outcomes import must_reach, reached
from schedule_dma_oracle import cheapest
from schedule_problems import problems

from poetc.cli import main
from poetc.schedule.exact.machine import in_time
from poetc.schedule.heuristics.reorder import permuted
from poetc.schedule.model.checker import replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, predecessors


def shortest_ns(problem: Problem) -> int | None:
    """The shortest makespan by the stage rules in any order: what idle power costs, all else being
    free."""
    free = replace(
        problem,
        idle_power_nw=10**9,
        operations=tuple(replace(o, energy_nj=0) for o in problem.operations),
        tensors=tuple(replace(t, pagein_energy_nj=0, pageout_energy_nj=0) for t in problem.tensors),
    )
    before = predecessors(problem)
    found = [
        cheapest(permuted(free, order))
        for order in itertools.permutations(range(len(before)))
        if all(order.index(j) < order.index(k) for k, each in enumerate(before) for j in each)
    ]
    return min((ns for ns in found if ns is not None), default=None)


@pytest.mark.slow
@must_reach("found", "none")
@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(problems(max_operations=4))
def test_what_is_proven_is_so(problem: Problem) -> None:
    problem = replace(problem, dma=True, deadline_ns=None, storage_bytes=None)
    known_ns = shortest_ns(problem)
    deadline_ns = 10**6 if known_ns is None else known_ns
    found = in_time(Instance(replace(problem, deadline_ns=deadline_ns)), Effort())
    assert found.proven
    if found.steps is None:
        assert known_ns is None
        reached("none")
        return
    reached("found")
    # Without the stage rules it may be even faster, and nothing is faster than that.
    fastest_ns = replay(replace(problem, deadline_ns=None), found.steps).makespan_ns
    assert fastest_ns <= deadline_ns
    if fastest_ns:
        earlier = replace(problem, deadline_ns=fastest_ns - 1)
        assert in_time(Instance(earlier), Effort()).steps is None


@pytest.mark.slow
def test_a_deadline_that_no_order_meets_is_refused_with_a_proof(capsys) -> None:
    words = ["examples/gesture_mlp.mlir", "--ram=9600", "--stream=never", "-q", "-o", "/dev/null"]
    assert main([*words, "--deadline=1.05x"]) == 3
    text = capsys.readouterr().err
    assert "no schedule meets the deadline of" in text and "within 9,600 B" in text
    assert main([*words, "--deadline=1.3x"]) == 0
