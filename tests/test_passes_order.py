"""poet-order: never a higher peak, always the same results."""

import numpy as np
import pytest
from conftest import MODELS, more
from hypothesis import given, settings
from random_graphs import RandomGraph, random_graphs

from poetc.interpreter import run_graph
from poetc.ir.graph import graphs, view_unscheduled
from poetc.ir.text import make_context, parse_module
from poetc.pipeline import front_passes
from poetc.planning.order import order_graph
from poetc.schedule.heuristics.order import footprint, low_peak_order
from poetc.schedule.model.problem import Operation, Place, Problem, Tensor, predecessors


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(random_graphs(14))
def test_order_keeps_results_and_peak(random: RandomGraph):
    module, graph = random.parse()
    before = run_graph(module, random.arguments())
    problem = view_unscheduled(graph).problem
    given_order = footprint(problem, range(len(problem.operations)))
    order = low_peak_order(problem)
    after_peak = footprint(problem, order)
    assert after_peak.peak_bytes <= given_order.peak_bytes
    position = {k: at for at, k in enumerate(order)}
    for k, earlier in enumerate(predecessors(problem)):
        assert all(position[j] < position[k] for j in earlier)

    order_graph(graph)
    module.verify()
    again = view_unscheduled(graph).problem
    assert footprint(again, range(len(order))).peak_bytes == after_peak.peak_bytes
    after = run_graph(module, random.arguments())
    for a, b in zip(before.results, after.results, strict=True):
        assert a.tobytes() == b.tobytes() and isinstance(a, np.ndarray | np.generic)


def test_gradients_are_applied_as_soon_as_they_exist():
    """A chain of layers whose updates all stand at the end, as JAX writes them."""
    layers = 20
    tensors: list[Tensor] = []
    operations: list[Operation] = []

    def tensor(bytes: int, **more: object) -> int:
        tensors.append(Tensor(f"t{len(tensors)}", bytes, **more))  # type: ignore[arg-type]
        return len(tensors) - 1

    weights = [tensor(1000, start=Place.RAM) for _ in range(layers)]
    acts = [tensor(8, start=Place.RAM)]
    for w in weights:
        acts.append(tensor(8))
        operations.append(Operation("forward", (acts[-2], w), (acts[-1],), 1, 1))
    error = acts[-1]
    gradients = []
    for k in reversed(range(layers)):
        gradients.append((k, tensor(1000)))
        operations.append(Operation("weight", (acts[k], error), (gradients[-1][1],), 1, 1))
        new = tensor(8)
        operations.append(Operation("back", (error, weights[k]), (new,), 1, 1))
        error = new
    for k, g in gradients:
        new = tensor(1000, end=Place.RAM, replaces=weights[k])
        pair = ((new, weights[k]),)
        operations.append(Operation("update", (weights[k], g), (new,), 1, 1, inplace=pair))
    problem = Problem(tuple(operations), tuple(tensors))
    assert footprint(problem, range(len(operations))).peak_bytes > 2000 * layers
    peak = footprint(problem, low_peak_order(problem)).peak_bytes
    assert peak < 1000 * layers + 1000 + 8 * (layers + 5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", *more("dscnn", "resnet8", "bert_micro")])
def test_no_order_of_the_models_needs_less(name: str):
    path = MODELS / f"{name}.mlir"
    module, context = parse_module(path.read_text(), str(path)), make_context()
    for step in front_passes(module, "host"):
        if step.name == "poet-order":
            break
        step.apply(context, module)
    assert order_graph(graphs(module)[0]).optimal
    assert order_graph(graphs(module)[0], store_params=True).optimal
