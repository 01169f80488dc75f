"""Conversion of functions to graphs: same results, parameters updated in their own buffers.

A graph is executed here on buffers, as the generated code does it: an in-place result is written
over the operand, so whatever reads a parameter too late sees its new value.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from conftest import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    TensorType,
    f32,
    i32,
)
from xdsl.dialects.func import FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Block, Region, SSAValue

from poetc import interpreter
from poetc.errors import InputError, SourceLocation
from poetc.ir import stablehlo as hlo
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_verify import verify_graph
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass

T = TensorType(f32, [3])


def run_block(block: Block, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The operands of the terminator of `block`."""
    values: dict[SSAValue, np.ndarray] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        inputs = [values[operand] for operand in op.operands]
        match op:
            case hlo.ConstantOp():
                result = op.array()
            case hlo.AddOp():
                result = inputs[0] + inputs[1]
            case hlo.SubtractOp():
                result = inputs[0] - inputs[1]
            case hlo.NegateOp():
                result = -inputs[0]
            case hlo.ReverseOp():
                result = inputs[0][::-1]
            case _:
                return inputs
        values[op.results[0]] = result
    raise AssertionError("no terminator")


def run_graph(graph: GraphOp, buffers: list[np.ndarray]) -> list[np.ndarray]:
    """The buffers that the results are in; those of the arguments are written to."""
    values: dict[SSAValue, np.ndarray] = dict(zip(graph.arguments, buffers, strict=True))
    for op in graph.block.ops:
        if not isinstance(op, ComputeOp):
            break
        outputs = run_block(op.block, [values[operand] for operand in op.operands])
        pairs = dict(op.inplace_pairs)
        for i, (result, output) in enumerate(zip(op.results, outputs, strict=True)):
            values[result] = values[op.operands[pairs[i]]] if i in pairs else np.empty_like(output)
            values[result][...] = output.copy()
    return [values[value] for value in graph.return_op.arguments]


@st.composite
def functions(draw: st.DrawFn) -> FuncOp:
    """A function with any results and any parameters, swaps and all."""
    argument_count = draw(st.integers(1, 4))
    block = Block(arg_types=[T] * argument_count)
    values: list[SSAValue] = list(block.args)
    some = st.deferred(lambda: st.sampled_from(values))
    for _ in range(draw(st.integers(0, 7))):
        match draw(st.integers(0, 4)):
            case 0:
                op = hlo.ConstantOp(np.arange(3, dtype=np.float32))
            case 1:
                op = hlo.AddOp(draw(some), draw(some))
            case 2:
                op = hlo.SubtractOp(draw(some), draw(some))
            case 3:
                op = hlo.NegateOp(draw(some))
            case _:
                op = hlo.ReverseOp(draw(some), [0])
        block.add_op(op)
        values.append(op.results[0])
    results = draw(st.lists(some, min_size=1, max_size=5))
    aliases = draw(st.permutations(range(len(results))))
    attributes = [
        DictionaryAttr({"tf.aliasing_output": IntegerAttr(result, i32)} if keep else {})
        for result, keep in zip(aliases, draw(st.lists(st.booleans(), max_size=4)), strict=False)
    ][:argument_count]
    attributes += [DictionaryAttr({})] * (argument_count - len(attributes))
    block.add_op(FuncReturnOp(*results))
    return FuncOp(
        "main",
        ([T] * argument_count, [T] * len(results)),
        Region(block),
        "public",
        arg_attrs=ArrayAttr(attributes),
    )


def convert(module: ModuleOp) -> GraphOp:
    StableHLOToPoetPass().apply(Context(), module)
    module.verify()
    (graph,) = module.ops
    assert isinstance(graph, GraphOp)
    verify_graph(graph)
    return graph


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(functions())
def test_same_results_with_parameters_updated_in_place(function: FuncOp):
    count = len(function.function_type.inputs)
    arguments = [np.arange(3, dtype=np.float32) * 7**i + i for i in range(count)]
    expected = run_block(function.body.block, arguments)

    graph = convert(ModuleOp([function]))
    buffers = [argument.copy() for argument in arguments]
    results = run_graph(graph, buffers)

    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)
    updates = {graph.updates(i): i for i in range(count) if graph.updates(i) is not None}
    for i, result in enumerate(results):
        shared = [j for j, buffer in enumerate(buffers) if buffer is result]
        assert shared == ([updates[i]] if i in updates else [])
    assert all(a is not b for a, b in combinations(results, 2))


@pytest.mark.parametrize("model", sorted(p.stem for p in MODELS.glob("*.npz")))
def test_real_models(model: str):
    path = MODELS / f"{model}.mlir"
    module = parse_module(path.read_text(), str(path))
    StableHLOSimplifyPass().apply(make_context(), module)
    (main,) = [op for op in module.ops if isinstance(op, FuncOp)]
    ops = [op for op in main.body.block.ops if not isinstance(op, hlo.ConstantOp | FuncReturnOp)]
    graph = convert(module)
    params = [i for i in range(len(graph.arguments)) if graph.role(i) == "param"]
    assert params and all(graph.updates(i) is not None for i in params)
    added = [c for c in graph.computes if c.label.data in ("copy", "update", "constant")]
    assert len(graph.computes) == len(ops) + len(added)
    # w - lr * g is done in place as it is.
    assert not added
    assert all(isinstance(compute.location, type(main.location)) for compute in graph.computes)


def test_each_result_has_a_buffer_of_its_own():
    """Values, constants, arguments and new values of parameters, each returned several times."""
    t = "tensor<3xf32>"
    text = f"""func.func public @main(%w: {t} {{tf.aliasing_output = 3 : i32}}, %x: {t})
    -> ({", ".join([t] * 10)}) {{
  %k = stablehlo.constant dense<[1.0, 2.0, 3.0]> : {t}
  %c = stablehlo.negate %x : {t}
  %b = stablehlo.add %c, %x : {t}
  %new = stablehlo.subtract %w, %c : {t}
  func.return %c, %b, %c, %new, %new, %new, %k, %k, %x, %x : {", ".join([t] * 10)}
}}
"""
    graph = convert(parse_module(text))
    results = graph.return_op.arguments
    assert len(set(results)) == 10
    copies = [c for c in graph.computes if c.label.data == "copy"]
    assert {copy.results[0] for copy in copies} == {results[i] for i in (2, 4, 5, 8, 9)}
    assert all(list(copy.yield_op.operands) == list(copy.block.args) for copy in copies)
    w, x = np.array([[4, 5, 6], [7, 8, 9]], np.float32)
    k, c, new = np.arange(1, 4), -x, w + x
    expected = [c, c + x, c, new, new, new, k, k, x, x]
    for result, value in zip(interpreter.run_graph(graph, [w, x]).results, expected, strict=True):
        np.testing.assert_array_equal(result, value)


def test_errors_say_where():
    text = """func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
func.func private @f(%x: tensor<2xf32>) -> tensor<2xf32> {
  func.return %x : tensor<2xf32>
}
"""
    with pytest.raises(InputError) as error:
        convert(parse_module(text, "step.mlir"))
    assert error.value.location == SourceLocation("step.mlir", 2, 3)
    assert "call of @f is not inlined" in error.value.message
