"""Orders of least peak, against brute force over all orders; bounds; storage."""

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_problems import problems

from poetc.schedule.exact.order_bound import peak_bound
from poetc.schedule.heuristics.order import candidates, find_order, footprint
from poetc.schedule.model.problem import Operation, Place, Problem, Tensor, predecessors


def least_peak(problem: Problem) -> int:
    """The lowest peak of all orders, by trying all of them: one prefix after the other.

    What follows a prefix depends on the set of its operations alone, so the sets are remembered.
    """
    before = predecessors(problem)
    count = len(problem.operations)
    position = list(range(count))

    @cache
    def rest(done: frozenset[int]) -> int:
        if len(done) == count:
            return 0
        prefix = sorted(done, key=lambda k: position[k])
        return min(
            max(during(tuple(prefix), k), rest(done | {k}))
            for k in range(count)
            if k not in done and before[k] <= done
        )

    def during(prefix: tuple[int, ...], k: int) -> int:
        # The index order is one of the orders, so it can be followed within any set.
        left = [j for j in range(count) if j not in prefix and j != k]
        return footprint(problem, (*prefix, k, *left)).during_bytes[k]

    start = sum(t.bytes for t in problem.tensors if t.start is Place.RAM)
    return max(start, rest(frozenset()))


def all_orders(problem: Problem) -> list[tuple[int, ...]]:
    before = predecessors(problem)
    orders: list[tuple[int, ...]] = [()]
    for _ in problem.operations:
        orders = [
            (*order, k)
            for order in orders
            for k in range(len(before))
            if k not in order and before[k] <= set(order)
        ]
    return orders


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(problems(6))
def test_least_of_all_orders(problem: Problem):
    peaks = [footprint(problem, order).peak_bytes for order in all_orders(problem)]
    found = find_order(problem)
    assert found.optimal and found.footprint.peak_bytes == min(peaks) == least_peak(problem)
    assert sorted(found.operations) == list(range(len(problem.operations)))


def web(seed: int, count: int, wide: bool = False) -> Problem:
    """Operations that read a few of the tensors made before them, sizes far apart; parameters."""
    rng = random.Random(seed)
    tensors = [Tensor("x", rng.randint(1, 40), start=Place.RAM)]
    operations: list[Operation] = []
    for k in range(count):
        reach = len(tensors) if wide else min(len(tensors), 5)
        usable = [v for v in range(len(tensors)) if not any(t.replaces == v for t in tensors)]
        inputs = set(rng.sample(usable[-reach:], min(len(usable), rng.choice((1, 1, 2, 3)))))
        pairs = []
        if rng.random() < 0.25:
            w = len(tensors)
            size = rng.randint(1, 40)
            tensors.append(Tensor(f"w{k}", size, start=rng.choice((Place.RAM, Place.STORAGE))))
            end = tensors[w].start
            inputs.add(w)
            tensors.append(Tensor(f"n{k}", size, end=end, replaces=w))
            pairs.append((w + 1, w))
            outputs = [w + 1]
        else:
            outputs = [len(tensors)]
            tensors.append(Tensor(f"t{k}", rng.choice((1, 4, 30, 40))))
            same = [v for v in inputs if tensors[v].bytes >= tensors[outputs[0]].bytes]
            pairs = [(outputs[0], v) for v in same if rng.random() < 0.5]
        workspace = rng.choice((0, 0, 0, 9))
        operations.append(
            Operation(f"o{k}", tuple(inputs), tuple(outputs), 1, 1, workspace, inplace=tuple(pairs))
        )
    return Problem(tuple(operations), tuple(tensors))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(7, 12), st.booleans())
def test_least_of_all_sets(seed: int, count: int, wide: bool):
    problem = web(seed, count, wide)
    found = find_order(problem)
    assert found.optimal and found.footprint.peak_bytes == least_peak(problem)
    assert peak_bound(problem) <= found.footprint.peak_bytes


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(18, 25), st.booleans())
def test_proven_up_to_25_operations(seed: int, count: int, wide: bool):
    problem = web(seed, count, wide)
    found = find_order(problem)
    assert found.optimal
    assert footprint(problem, found.operations) == found.footprint
    assert found.footprint.peak_bytes <= candidates(problem)[0][1].peak_bytes
