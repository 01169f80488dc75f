"""Real training steps through ordering, scheduling and planning, executed in the planned arena."""

import numpy as np
import pytest
from conftest import MODELS, more
from xdsl.dialects.builtin import ModuleOp

from poetc.budget import Budget
from poetc.costmodel.device import load_device
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs, view_unscheduled
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_verify import verify_graph
from poetc.pipeline import front_passes
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions
from poetc.schedule.heuristics.order import footprint

DEVICE = "nrf52840"


def front(name: str, last: str = "poet-order") -> ModuleOp:
    """The model after the passes before scheduling, up to `last`."""
    path = MODELS / f"{name}.mlir"
    module, context = parse_module(path.read_text(), str(path)), make_context()
    for step in front_passes(module, DEVICE):
        step.apply(context, module)
        if step.name == last:
            break
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", "kws_conv"])
def test_same_bits_in_every_arena(name: str):
    data = np.load(MODELS / f"{name}.npz")
    arguments = [data[f"arg{i}"] for i in range(sum(k.startswith("arg") for k in data.files))]
    module = front(name)
    wanted = [a.tobytes() for a in run_graph(module, arguments).results]
    problem = view_unscheduled(graphs(module)[0]).problem
    most = footprint(problem, range(len(problem.operations))).peak_bytes
    start = sum(t.bytes for t in problem.tensors if t.start is not None)
    for share in (1.0, 0.7, 0.5):
        ram = start + int(share * (most - start))
        copy = module.clone()
        options = ScheduleOptions(budget=Budget(ram), device=load_device(DEVICE), time_limit_s=10)
        report = schedule_and_plan(graphs(copy)[0], options)
        verify_graph(graphs(copy)[0])
        assert report.memory is not None and report.memory.arena_bytes <= ram
        run = run_graph(copy, arguments, ram, arena=True)
        assert [a.tobytes() for a in run.results] == wanted
        assert run.peak_bytes == report.use.peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("name", "percent"), [("lenet5", 96), *more(("resnet8", 87))])
def test_order_lowers_the_peak(name: str, percent: int):
    peaks = []
    for last in ("poet-fuse", "poet-order"):
        problem = view_unscheduled(graphs(front(name, last))[0]).problem
        peaks.append(footprint(problem, range(len(problem.operations))).peak_bytes)
    assert 100 * peaks[1] <= percent * peaks[0]
