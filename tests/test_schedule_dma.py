"""DMA: transfers overlap computing, and that decides whether a deadline is met."""

from __future__ import annotations

from dataclasses import replace

from poetc.schedule.checker import replay
from poetc.schedule.instance import Instance
from poetc.schedule.problem import Operation, Place, Problem, Tensor
from poetc.schedule.rebuild import Load, Run, rebuild
from poetc.schedule.transfers import overlap_transfers


def test_transfers_are_moved_where_the_steps_miss_the_deadline() -> None:
    """x can come while f runs; just before g, which reads it, is too late for the deadline."""
    tensors = (
        Tensor("x", 1, start=Place.STORAGE, pagein_time_ns=10),
        Tensor("y", 1),
        Tensor("z", 1, end=Place.RAM),
    )
    operations = (
        Operation("f", (), (1,), 10, 1),
        Operation("g", (0, 1), (2,), 10, 1),
    )
    problem = Problem(operations, tensors, ram_bytes=3, deadline_ns=20, dma=True)
    steps = rebuild(Instance(problem), [Run(0), Load(0), Run(1)])
    assert replay(replace(problem, deadline_ns=None), steps).makespan_ns == 30
    order = overlap_transfers(problem, steps)
    assert replay(problem, [steps[at] for at in order]).makespan_ns == 20
    # Where that is not enough, the best order is returned all the same.
    hurried = replace(problem, deadline_ns=19)
    assert overlap_transfers(hurried, steps) == order
