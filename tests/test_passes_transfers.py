"""Overlapping transfers with computing: an example by hand, and the rules of the pass."""

from collections.abc import Iterable

import pytest

from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module
from poetc.passes.poet_plan_transfers import PoetPlanTransfersPass
from poetc.planning.memory import plan_graph_memory
from poetc.schedule.arena.memory import plan_memory
from poetc.schedule.model import transfers
from poetc.schedule.model.checker import replay
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
from poetc.schedule.model.transfers import overlap_transfers


def chain(dma: bool = True) -> Problem:
    """Four layers forward, four backward; kernels take 50 ns, page-outs 40, page-ins 30."""
    tensors = [Tensor("x", 64, start=Place.RAM)]
    tensors += [Tensor(f"a{i}", 64, pagein_time_ns=30, pageout_time_ns=40) for i in range(1, 5)]
    tensors += [Tensor(f"g{i}", 64) for i in (3, 2, 1)]
    tensors += [Tensor("out", 64, end=Place.RAM)]
    operations = [Operation(f"f{i}", (i,), (i + 1,), 50, 1) for i in range(4)]
    operations += [
        Operation("b3", (3, 4), (5,), 50, 1),
        Operation("b2", (2, 5), (6,), 50, 1),
        Operation("b1", (1, 6), (7,), 50, 1),
        Operation("b0", (7,), (8,), 50, 1),
    ]
    return Problem(tuple(operations), tuple(tensors), dma=dma)


STEPS: list[Step] = [
    Compute(0), Free(0),
    Compute(1), PageOut(1), Free(1),
    Compute(2), PageOut(2), Free(2),
    Compute(3), Compute(4), Free(4), Free(3),
    PageIn(2), Compute(5), Free(5), Free(2),
    PageIn(1), Compute(6), Free(6), Free(1),
    Compute(7), Free(7),
]  # fmt: skip


def test_all_transfers_hide_behind_computing():
    problem = chain()
    assert replay(problem, STEPS).makespan_ns == 8 * 50 + 2 * 40 + 2 * 30
    order = overlap_transfers(problem, STEPS, 256)
    report = replay(problem, [STEPS[i] for i in order])
    assert report.makespan_ns == 8 * 50 and report.peak_bytes <= 256
    assert sorted(order) == list(range(len(STEPS)))


@pytest.mark.parametrize("budget", [0, 192, 200, 255])
def test_never_more_ram_than_the_budget(budget: int):
    problem = chain()
    steps = [STEPS[i] for i in overlap_transfers(problem, STEPS, budget)]
    report = replay(problem, steps)
    assert report.peak_bytes <= max(budget, replay(problem, STEPS).peak_bytes)
    assert report.makespan_ns <= 540
    assert plan_memory(problem, steps).arena_bytes == report.peak_bytes


def test_a_free_goes_behind_the_kernels_beside_its_page_out():
    """The page-out takes longer than the last reader: what is freed stays, if there is RAM."""
    tensors = [Tensor("a", 1, pageout_time_ns=25, end=Place.STORAGE), Tensor("b", 1)]
    tensors += [Tensor("c", 1), Tensor("d", 1, end=Place.RAM)]
    operations = [Operation("f0", (), (0,), 10, 1)]
    operations += [Operation(f"f{i}", (i - 1,), (i,), 10, 1) for i in (1, 2, 3)]
    problem = Problem(tuple(operations), tuple(tensors), dma=True)
    steps = [Compute(0), Compute(1), PageOut(0), Free(0), Compute(2), Free(1), Compute(3), Free(2)]
    # Written from 20 to 45, or from 10 to 35; the free waits for the end, or comes after f3.
    for budget, makespan_ns in ((2, 55), (3, 40)):
        order = overlap_transfers(problem, steps, budget)
        report = replay(problem, [steps[i] for i in order])
        assert (report.makespan_ns, report.peak_bytes) == (makespan_ns, budget)
    assert replay(problem, steps).makespan_ns == 65


def test_nothing_to_gain_without_dma_or_transfers():
    assert overlap_transfers(chain(dma=False), STEPS, 256) == tuple(range(len(STEPS)))
    still = [Compute(0), Free(0), Compute(1), Compute(2), Compute(3), Compute(4), Free(4), Free(3)]
    still += [Compute(5), Free(5), Free(2), Compute(6), Free(6), Free(1), Compute(7), Free(7)]
    assert overlap_transfers(chain(), still, 512) == tuple(range(len(still)))


def test_broken_graphs_are_named():
    text = """
    poet.graph @main(%x: tensor<8xf32>) -> (tensor<8xf32>) {
      poet.free %x : tensor<8xf32>
      %y = poet.compute "negate" (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
        %r = stablehlo.negate %a : tensor<8xf32>
        poet.yield %r : tensor<8xf32>
      }
      poet.return %y : tensor<8xf32>
    }"""
    module = parse_module(text, "broken.mlir")
    message = "@main: step 1: operation negate reads tensor x, which is not in RAM"
    with pytest.raises(InputError, match=message):
        plan_graph_memory(graphs(module)[0])
    with pytest.raises(InputError, match=message):
        PoetPlanTransfersPass(device="nrf52840").apply(None, module)  # type: ignore[arg-type]


def test_the_clock_ends_the_moves(monkeypatch: pytest.MonkeyPatch):
    """What has been moved by then is an order like any other."""
    runs: list[None] = []
    run = transfers._Plan.run

    def counted(plan: transfers._Plan, order: Iterable[int]):
        runs.append(None)
        return run(plan, order)

    monkeypatch.setattr(transfers._Plan, "run", counted)
    problem = chain()
    best = replay(problem, [STEPS[i] for i in overlap_transfers(problem, STEPS, 256)]).makespan_ns
    times = []
    for most in range(1, len(runs)):
        runs.clear()
        order = overlap_transfers(problem, STEPS, 256, lambda most=most: len(runs) >= most)
        # A page-out has few places to go to before the clock is looked at again.
        assert len(runs) <= most + 2
        times.append(replay(problem, [STEPS[i] for i in order]).makespan_ns)
    assert times == sorted(times, reverse=True)
    assert times[0] == 540 and best == 400
