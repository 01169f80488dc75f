"""poet-fuse: fewer kernels, the same bits, nothing stored that need not be."""

from __future__ import annotations

import pytest
from conftest import MODELS, load_arrays, read_model
from xdsl.dialects.builtin import ModuleOp

from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.text import make_context
from poetc.passes.poet_fuse import ANCHORS, VIEWS, PoetFusePass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass

KERNELS = {
    "gesture_mlp": 13,
    "kws_conv": 13,
    "lenet5": 27,
    "mlp_mnist": 12,
    "ae_mnist": 25,
    "dscnn": 60,
    "resnet8": 55,
    "bert_micro": 111,
    "resnet18": 118,
    "vgg16": 74,
    "bert_base": 531,
}
"""At most so many kernels: raising a number needs a reason."""


def _unfused(model: str) -> tuple[ModuleOp, GraphOp]:
    module = read_model(model)
    for step in (StableHLOSimplifyPass(), StableHLOToPoetPass()):
        step.apply(make_context(), module)
    return module, graphs(module)[0]


def _ops(compute: ComputeOp) -> list:
    return [op for op in compute.block.ops if op is not compute.yield_op]


@pytest.mark.parametrize("model", KERNELS)
def test_kernel_counts(model: str) -> None:
    module, graph = _unfused(model)
    PoetFusePass().apply(make_context(), module)
    module.verify()
    assert len(graph.computes) <= KERNELS[model]
    for compute in graph.computes:
        ops = _ops(compute)
        moves_only = all(isinstance(op, VIEWS) or op.name == "stablehlo.constant" for op in ops)
        # A kernel of data movement only: a result of the graph, or an update by a copy.
        returned = any(r in graph.return_op.arguments for r in compute.results)
        assert not moves_only or returned, compute.label.data
        assert sum(isinstance(op, ANCHORS) for op in ops) <= 1, compute.label.data


@pytest.mark.parametrize(
    "model", ["gesture_mlp", "kws_conv", "lenet5", "dscnn", "resnet8", "bert_micro"]
)
def test_same_bits(model: str) -> None:
    module, graph = _unfused(model)
    arguments, _ = load_arrays(MODELS / f"{model}.npz")
    before = run_graph(graph, arguments)
    PoetFusePass().apply(make_context(), module)
    after = run_graph(graph, arguments)
    for expected, got in zip(before.results, after.results, strict=True):
        assert expected.tobytes() == got.tobytes()
    assert after.peak_bytes < before.peak_bytes


def test_fusing_twice_changes_nothing() -> None:
    module, _ = _unfused("gesture_mlp")
    PoetFusePass().apply(make_context(), module)
    once = str(module)
    PoetFusePass().apply(make_context(), module)
    assert str(module) == once
