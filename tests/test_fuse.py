"""poet-fuse: fewer kernels, the same bits, nothing stored that need not be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import MODELS, load_arrays, more, read_model
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block

from poetc.interpreter import run_func, run_graph
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import graphs
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.stablehlo.bodies import body_key
from poetc.ir.text import make_context, parse_module
from poetc.kernels import lower
from poetc.kernels.known import KernelContext
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.pipeline import front_passes, run_passes, unobserved
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions

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

SMALL = ("gesture_mlp", "kws_conv", "lenet5", "mlp_mnist", "dscnn")

ANCHORS = (
    hlo.ContractionOp,
    hlo.ReduceWindowOp,
    hlo.SelectAndScatterOp,
    hlo.ScatterOp,
    hlo.FoldOp,
)
"""Operations of which a kernel has one at most."""


def _unfused(model: str) -> tuple[ModuleOp, GraphOp]:
    module = read_model(model)
    for step in (StableHLOSimplifyPass(), StableHLOToPoetPass()):
        step.apply(make_context(), module)
    return module, graphs(module)[0]


def _ops(compute: ComputeOp) -> list:
    return [op for op in compute.block.ops if op is not compute.yield_op]


@pytest.mark.slow
@pytest.mark.parametrize("model", [*SMALL, *more(*(name for name in KERNELS if name not in SMALL))])
def test_kernel_counts(model: str) -> None:
    module, graph = _unfused(model)
    PoetFusePass().apply(make_context(), module)
    module.verify()
    assert len(graph.computes) <= KERNELS[model]
    for compute in graph.computes:
        ops = _ops(compute)
        moves_only = all(
            isinstance(op, hlo.MovementOp) or op.name == "stablehlo.constant" for op in ops
        )
        # A kernel of data movement only: a result of the graph, or an update by a copy.
        returned = any(r in graph.return_op.arguments for r in compute.results)
        assert not moves_only or returned, compute.label.data
        assert sum(isinstance(op, ANCHORS) for op in ops) <= 1, compute.label.data


@pytest.mark.parametrize(
    "model", ["gesture_mlp", "kws_conv", "lenet5", *more("dscnn", "resnet8", "bert_micro")]
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


def _step(parameters: str, inputs: str, body: str, results: str) -> str:
    """A step whose first results are the new values of its parameters, all of one type."""
    names = [f"%{p}" for p in parameters.split()]
    types = ", ".join(f"tensor<{inputs}>" for _ in results.split())
    arguments = [
        f"{name}: tensor<{inputs}> {{tf.aliasing_output = {i} : i32}}"
        for i, name in enumerate(names)
    ]
    returned = ", ".join(f"%{r}" for r in results.split())
    return (
        f"func.func public @main({', '.join(arguments)}, %x: tensor<{inputs}>) -> ({types}) {{\n"
        f"{body}\n  return {returned} : {types}\n}}\n"
    )


def _op(result: str, name: str, *operands: str, type: str = "4x4xf32") -> str:
    return f"  %{result} = stablehlo.{name} {', '.join(f'%{o}' for o in operands)} : tensor<{type}>"


_DOT = (
    "  %{0} = stablehlo.dot_general %{1}, %{2}, contracting_dims = [1] x [0] : "
    "(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>"
)
_TRANSPOSE = (
    "  %{0} = stablehlo.transpose %{1}, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>"
)


def _sum(result: str, value: str) -> str:
    """The sum of a value, as wide as the value."""
    wide, reduced = "tensor<4x4xf32>", f"%{result}_sum"
    return (
        f"  %{result}_zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"  {reduced} = stablehlo.reduce(%{value} init: %{result}_zero) applies stablehlo.add "
        f"across dimensions = [0, 1] : ({wide}, tensor<f32>) -> tensor<f32>\n"
        f"  %{result} = stablehlo.broadcast_in_dim {reduced}, dims = [] : (tensor<f32>) -> {wide}"
    )


ENTANGLED = {
    "swap": _step("a b", "4x4xf32", "", "b a"),
    "rotate": _step("a b c", "4x4xf32", "", "b c a"),
    "swap and compute": _step(
        "a b", "4x4xf32", _op("t", "tanh", "b") + "\n" + _op("s", "add", "a", "b"), "t s"
    ),
    "each reads the other": _step(
        "w m",
        "4x4xf32",
        "\n".join(
            (
                _DOT.format("y", "x", "m"),
                _DOT.format("z", "x", "w"),
                _op("w1", "subtract", "w", "y"),
                _op("m1", "subtract", "m", "z"),
            )
        ),
        "w1 m1",
    ),
    "average that reads the old and the new": _step(
        "w e",
        "4x4xf32",
        "\n".join(
            (
                _op("w1", "subtract", "w", "e"),
                _op("e1", "add", "e", "w1"),
                _op("p", "multiply", "e", "w"),
            )
        ),
        "w1 e1 p",
    ),
    "transposed": _step("w", "4x4xf32", _TRANSPOSE.format("t", "w"), "t"),
    "minus its transpose": _step(
        "w", "4x4xf32", _TRANSPOSE.format("t", "w") + "\n" + _op("d", "subtract", "w", "t"), "d"
    ),
    "one value for two": _step("a b", "4x4xf32", _op("t", "add", "a", "x"), "t t"),
    "returned as well": _step("a", "4x4xf32", _op("t", "add", "a", "x"), "t t"),
    "old times new": _step(
        "w",
        "4x4xf32",
        "\n".join(
            (_op("w1", "subtract", "w", "x"), _op("p", "multiply", "w1", "w"), _sum("s", "p"))
        ),
        "w1 s",
    ),
    "old times new, which is a product": _step(
        "w",
        "4x4xf32",
        "\n".join(
            (_op("w1", "multiply", "w", "x"), _op("p", "multiply", "w", "w1"), _sum("s", "p"))
        ),
        "w1 s",
    ),
    "old plus two new": _step(
        "w v",
        "4x4xf32",
        "\n".join(
            (
                _op("w1", "add", "w", "x"),
                _op("v1", "multiply", "v", "w1"),
                _op("k", "multiply", "w1", "v1"),
                _op("p", "add", "k", "w"),
                _sum("s", "p"),
            )
        ),
        "w1 v1 s",
    ),
    "sums of the new and the old": _step(
        "w",
        "4x4xf32",
        "\n".join((_op("w1", "subtract", "w", "x"), _sum("s", "w1"), _sum("t", "w"))),
        "w1 s t",
    ),
}
"""Steps whose updates get in each other's way."""


@pytest.mark.parametrize("case", ENTANGLED)
def test_entangled_updates(case: str) -> None:
    module = parse_module(ENTANGLED[case])
    entry = next(op for op in module.ops if isinstance(op, FuncOp))
    random = np.random.default_rng(0)
    arguments = [
        random.standard_normal((4, 4)).astype(np.float32) for _ in entry.function_type.inputs
    ]
    expected = run_func(module, arguments)
    run_passes(make_context(), module, front_passes(module, "host"), lambda *_: None)
    schedule_and_plan(graphs(module)[0], ScheduleOptions())
    got = run_graph(graphs(module)[0], arguments, arena=True).results
    assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


def test_a_kernel_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    plan = lower._plan  # pyright: ignore[reportPrivateUsage]

    def counted(block: Block, *rest: Any) -> Any:
        made.append(str(body_key(block)))
        return plan(block, *rest)

    monkeypatch.setattr(lower, "_plan", counted)
    module = parse_module(ENTANGLED["sums of the new and the old"])
    context = KernelContext.of(make_context())
    run_passes(context, module, (StableHLOSimplifyPass(), StableHLOToPoetPass()), unobserved)
    run_passes(context, module, (PoetFusePass(),), unobserved)
    assert made  # to see whether its updates are legal
    run_passes(context, module, (PoetLowerKernelsPass(),), unobserved)
    assert len(made) == len(set(made)) >= len(list(graphs(module)[0].computes))
