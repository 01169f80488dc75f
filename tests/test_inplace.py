"""Which kernels take over the buffer of an operand that dies, and which may not."""

import itertools

import numpy as np
import pytest
from conftest import MODELS, more
from kernel_harness import alias_pairs, compile_functions, interpret, run, same_bits
from test_kernels_bodies import random_case
from xdsl.dialects.builtin import ModuleOp

from poetc.ir.graph import graphs, view_scheduled
from poetc.ir.poet import GraphOp
from poetc.ir.text import make_context, parse_module
from poetc.kernels.lower import lower_kernel
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.poet_schedule import PoetSchedulePass
from poetc.pipeline import front_passes, run_passes
from poetc.schedule.arena.memory import plan_memory
from poetc.schedule.model.checker import replay


def scheduled(module: ModuleOp) -> GraphOp:
    """The graph of a module in the program order, in place wherever that is allowed."""
    PoetSchedulePass().apply(make_context(), module)
    return graphs(module)[0]


def step(text: str) -> GraphOp:
    """A training step in StableHLO through the whole pipeline."""
    module = parse_module(text, "step.mlir")
    run_passes(make_context(), module, front_passes(module, "host"), lambda *_: None)
    return scheduled(module)


SHAPE = "tensor<4x4xf32>"
DOT = f"({SHAPE}, {SHAPE}) -> {SHAPE}"


def kernel(body: str, names: tuple[str, str, str] = ("make", "use", "other")) -> list[list]:
    """The in-place pairs of a kernel on two operands that die in it, made by kernels before.

    `body` reads %a and %b and makes %r.
    """
    first, second, third = names
    text = f"""
    poet.graph @main(%x: {SHAPE}) -> ({SHAPE}) {{
      %p = poet.compute "{first}" (%v = %x : {SHAPE}) -> {SHAPE} {{
        %0 = stablehlo.tanh %v : {SHAPE}
        poet.yield %0 : {SHAPE}
      }}
      %q = poet.compute "{second}" (%v = %x : {SHAPE}) -> {SHAPE} {{
        %0 = stablehlo.abs %v : {SHAPE}
        poet.yield %0 : {SHAPE}
      }}
      %y = poet.compute "{third}" (%a = %p : {SHAPE}, %b = %q : {SHAPE}) -> {SHAPE} {{
        {body}
        poet.yield %r : {SHAPE}
      }}
      poet.return %y : {SHAPE}
    }}"""
    module = parse_module(text, "kernel.mlir")
    PoetLowerKernelsPass().apply(make_context(), module)
    last = list(scheduled(module).computes)[-1]
    return [list(pair) for pair in last.inplace_pairs]


ROW_SUMS = f"""
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : ({SHAPE}, tensor<f32>) -> tensor<4xf32>
  %w = stablehlo.broadcast_in_dim %s, dims = [DIM] : (tensor<4xf32>) -> {SHAPE}
"""  # noqa: E501

LEGAL = {
    "element-wise": f"%r = stablehlo.add %a, %b : {SHAPE}",
    "residual addition behind a matmul": f"""
      %d = stablehlo.dot_general %b, %b, contracting_dims = [1] x [0] : {DOT}
      %r = stablehlo.add %d, %a : {SHAPE}""",
    "softmax": ROW_SUMS.replace("DIM", "0") + f"%r = stablehlo.divide %a, %w : {SHAPE}",
    "gradient of a normalisation": ROW_SUMS.replace("DIM", "0")
    + f"""
      %m = stablehlo.multiply %b, %w : {SHAPE}
      %r = stablehlo.subtract %a, %m : {SHAPE}""",
}
ILLEGAL = {
    "matmul over its operands": f"""
      %r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : {DOT}""",
    "transposed": f"""
      %t = stablehlo.transpose %a, dims = [1, 0] : ({SHAPE}) -> {SHAPE}
      %u = stablehlo.transpose %b, dims = [1, 0] : ({SHAPE}) -> {SHAPE}
      %r = stablehlo.add %t, %u : {SHAPE}""",
    "reversed": f"""
      %t = stablehlo.reverse %a, dims = [1] : {SHAPE}
      %u = stablehlo.reverse %b, dims = [0] : {SHAPE}
      %r = stablehlo.add %t, %u : {SHAPE}""",
    "broadcast of one row": f"""
      %t = stablehlo.slice %a [0:1, 0:4] : ({SHAPE}) -> tensor<1x4xf32>
      %u = stablehlo.broadcast_in_dim %t, dims = [0, 1] : (tensor<1x4xf32>) -> {SHAPE}
      %r = stablehlo.dot_general %u, %b, contracting_dims = [1] x [0] : {DOT}""",
    "sums of rows added to columns": ROW_SUMS.replace("DIM", "1")
    + f"""
      %d = stablehlo.dot_general %b, %b, contracting_dims = [1] x [0] : {DOT}
      %t = stablehlo.transpose %a, dims = [1, 0] : ({SHAPE}) -> {SHAPE}
      %v = stablehlo.add %t, %w : {SHAPE}
      %r = stablehlo.add %d, %v : {SHAPE}""",
}


@pytest.mark.parametrize("body", LEGAL.values(), ids=LEGAL)
def test_takes_over_a_dying_operand(body: str):
    assert kernel(body) == [[0, 0]]


@pytest.mark.parametrize("body", ILLEGAL.values(), ids=ILLEGAL)
def test_does_not_overwrite_what_is_still_read(body: str):
    assert kernel(body) == []


def test_names_play_no_role():
    for names in (("x", "y", "matmul"), ("update", "softmax", "conv"), ("a", "a", "a")):
        assert kernel(LEGAL["softmax"], names) == [[0, 0]]
        assert kernel(ILLEGAL["matmul over its operands"], names) == []


def test_a_second_nest_that_reads_the_operand_again():
    """Two results from two nests: the first may not overwrite what the second reads."""
    text = f"""
    poet.graph @main(%x: {SHAPE}) -> ({SHAPE}, {SHAPE}) {{
      %p = poet.compute "p" (%v = %x : {SHAPE}) -> {SHAPE} {{
        %0 = stablehlo.tanh %v : {SHAPE}
        poet.yield %0 : {SHAPE}
      }}
      %y, %z = poet.compute "two" (%a = %p : {SHAPE}) -> ({SHAPE}, {SHAPE}) {{
        %0 = stablehlo.negate %a : {SHAPE}
        %1 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : {DOT}
        poet.yield %0, %1 : {SHAPE}, {SHAPE}
      }}
      poet.return %y, %z : {SHAPE}, {SHAPE}
    }}"""
    module = parse_module(text, "two.mlir")
    PoetLowerKernelsPass().apply(make_context(), module)
    assert list(scheduled(module).computes)[-1].inplace_pairs == ()


UPDATES = """
func.func public @main(%w: tensor<8x8xf32> {tf.aliasing_output = 0 : i32},
                       %m: tensor<8x8xf32> {tf.aliasing_output = 1 : i32},
                       %x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %h = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = stablehlo.tanh %h : tensor<8x8xf32>
  %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %n = stablehlo.add %m, %g : tensor<8x8xf32>
  %v = stablehlo.subtract %w, %n : tensor<8x8xf32>
  return %v, %n : tensor<8x8xf32>, tensor<8x8xf32>
}"""  # noqa: E501


def test_parameter_and_momentum_are_updated_in_their_place():
    graph = step(UPDATES)
    view = view_scheduled(graph)
    plan = plan_memory(view.problem, view.steps)
    index = {value: v for v, value in enumerate(view.values)}
    new = [index[value] for value in graph.return_op.arguments]
    made = {
        v: offset
        for op, offsets in zip(view.ops, plan.made, strict=True)
        for v, offset in zip((index[r] for r in op.results if r in index), offsets, strict=False)
    }
    assert [made[v] for v in new] == [plan.start[0], plan.start[1]]
    # w, m and x, and the activation that never exists beside its gradient.
    assert replay(view.problem, view.steps).peak_bytes == 4 * 8 * 8 * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "others"), [("dscnn", 10), *more(("resnet8", 13), ("bert_micro", 15))]
)
def test_number_of_pairs_in_models(name: str, others: int):
    graph = step((MODELS / f"{name}.mlir").read_text())
    arguments = set(graph.arguments)
    updated = [i for i in range(len(arguments)) if graph.updates(i) is not None]
    counts = {True: 0, False: 0}
    for op in graph.computes:
        for _, operand in op.inplace_pairs:
            counts[op.operands[operand] in arguments] += 1
    print(counts, len(updated))
    assert counts[True] >= len(updated) > 20 and counts[False] >= others


@pytest.mark.parametrize("seed", range(2))
def test_random_kernels_in_place_at_once(seed: int):
    """All results that may, each over another operand: the same bits as without sharing."""
    rng = np.random.default_rng(100 + seed)
    cases = [random_case(rng) for _ in range(25)]
    functions = [lower_kernel(case.block, f"k{i}").function for i, case in enumerate(cases)]
    library = compile_functions(functions)
    shared = 0
    for case, function in zip(cases, functions, strict=True):
        expected = interpret(case.block, case.args)
        allowed = [pair for (pair,) in alias_pairs(function)]
        for chosen in _matchings(allowed):
            results = run(library, function, case.args, chosen)
            assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True)), (
                f"in place {chosen}\n{function}"
            )
            shared += len(chosen)
    assert shared > 10


def _matchings(allowed: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """The biggest sets of pairs in which no result and no operand is twice, a few of them."""
    for count in range(len(allowed), 0, -1):
        found = [
            chosen
            for chosen in itertools.islice(itertools.combinations(allowed, count), 200)
            if all(len(set(side)) == count for side in zip(*chosen, strict=True))
        ]
        if found:
            return found[:3]
    return []
