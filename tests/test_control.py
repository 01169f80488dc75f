"""Loops and branches: unrolled, kept, and interpreted as they are, in C and by XLA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run
from conftest import more
from test_cases import assert_close
from xdsl.context import Context
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument

from poetc.errors import InputError
from poetc.interpreter import run_func, run_graph
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import graphs
from poetc.ir.kinds import tensor_kinds
from poetc.ir.text import parse_module
from poetc.kernels.analysis import is_sequential, work, workspace_bytes
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.simplify import control
from tests.models.make_results import xla_results


def lowered(step: Any, arguments: list[Any]) -> tuple[str, list[np.ndarray]]:
    """The step in StableHLO, and its flat arguments."""
    jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
    text = jax.jit(step, donate_argnums=0, keep_unused=True).lower(*arguments).as_text()
    return text, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]


def simplified(text: str) -> Any:
    module = parse_module(text)
    StableHLOSimplifyPass().apply(Context(), module)
    module.verify()
    return module


LOOPS = {
    **{"scan_rnn": 2, "accumulation": 1, "map": 2, "nested_scan": 4, "cond_small_loss": 2},
    **{"cond_large_loss": 2, "gru": 2, "train_inside": 3, "windows": 7, "layers": 2, "dropout": 3},
    "averages": 2,
}
"""Loops that are left of each step where none is unrolled."""

KINDS = ("scan_rnn", "nested_scan", "cond_small_loss", "cond_large_loss", "windows", "dropout")


def loops_in(module: Any) -> list[hlo.RepeatOp]:
    return [op for op in module.walk() if isinstance(op, hlo.RepeatOp)]


def same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return [array.tobytes() for array in found] == [array.tobytes() for array in expected]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KINDS, *more(*(name for name in LOOPS if name not in KINDS))])
def test_step_is_that_of_xla(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Unrolled and kept: as text, in the interpreters, and in C, with the same bits."""
    pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
    from control_steps import steps

    text, arguments = lowered(*steps()[name])
    assert any(f"stablehlo.{op}" in text for op in ("while", "case", "if")), text
    expected = xla_results(text, arguments)
    looped = run_func(parse_module(text), arguments)
    assert_close(looped, expected)
    in_c: list[list[np.ndarray]] = []
    for limit in (10**6, 0):
        monkeypatch.setattr(control, "MAX_UNROLLED", limit)
        module = simplified(text)
        assert not any(hlo.is_expanded(op) for op in module.walk())
        assert len(loops_in(module)) == (0 if limit else LOOPS[name])
        again = parse_module(str(module))
        assert str(again) == str(module)
        assert same_bits(run_func(again, arguments), looped)
        scheduled, report = bring(name, module, arguments, expected).schedule(None)
        ran = run_graph(scheduled, arguments)
        assert same_bits(ran.results, looped)
        assert ran.peak_bytes == report.use.peak_bytes
        in_c.append(run(build(scheduled, tmp_path, *SANITIZE), arguments, expected))
        assert_close(in_c[-1], expected)
    assert same_bits(*in_c)


@pytest.mark.slow
def test_each_step_writes_its_part_only(monkeypatch: pytest.MonkeyPatch):
    """Twice the steps are twice the work; the stacks are written once, and not cleared before."""
    from control_steps import _descend, parameters, rnn_loss

    monkeypatch.setattr(control, "MAX_UNROLLED", 0)
    stored: list[int] = []
    for count in (8, 16, 32):
        xs, target = np.ones((count, 3), np.float32), np.ones((count, 2), np.float32)
        text, arguments = lowered(_descend(rnn_loss), [parameters(), xs, target])
        module = bring("rnn", parse_module(text), arguments, []).module
        forward, backward = (
            op for op in module.ops if isinstance(op, FuncOp) and is_sequential(op)
        )
        stored.append(work(forward).store_bytes)
        # In place: each gradient. What is left are rows, of which few live at the same time.
        assert workspace_bytes(backward) <= 6 * xs[0].nbytes
    assert stored[2] - stored[1] == 2 * (stored[1] - stored[0])


@pytest.mark.slow
def test_many_steps_are_those_of_jax(tmp_path: Path):
    """A thousand steps of a scan, with their gradients, are a few kernels."""
    from control_steps import _descend, gru_loss, parameters

    rng = np.random.default_rng(3)
    xs = rng.standard_normal((1000, 3)).astype(np.float32)
    target = rng.standard_normal((1000, 2)).astype(np.float32)
    text, arguments = lowered(_descend(gru_loss), [parameters(), xs, target])
    expected = xla_results(text, arguments)
    model = bring("gru", parse_module(text), arguments, expected)
    graph = graphs(model.module)[0]
    assert len(graph.computes) < 20
    kinds = tensor_kinds(graph)
    stacked = [v for v in kinds if not isinstance(v, BlockArgument) and hlo.shape_of(v) == xs.shape]
    assert {kinds[value] for value in stacked} == {"activations"}
    scheduled, _ = model.schedule(None)
    assert_close(run(build(scheduled, tmp_path, *SANITIZE), arguments, expected), expected)


def test_a_loop_that_is_filled_is_one_concatenation():
    """The states that the backward pass reads are no slices of a tensor of all of them."""
    from control_steps import steps

    text, _ = lowered(*steps()["scan_rnn"])
    found = [type(op) for op in simplified(text).walk()]
    assert hlo.GatherOp not in found
    assert found.count(hlo.ConcatenateOp) <= 2


BRANCHES = """
func.func public @main(%x: tensor<2xf32>, %i: tensor<i32>) -> tensor<2xf32> {
  %0 = "stablehlo.case"(%i) ({
    %a = stablehlo.log %x : tensor<2xf32>
    stablehlo.return %a : tensor<2xf32>
  }, {
    stablehlo.return %x : tensor<2xf32>
  }, {
    %b = stablehlo.negate %x : tensor<2xf32>
    stablehlo.return %b : tensor<2xf32>
  }) : (tensor<i32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
"""


@pytest.mark.parametrize("index", [-(2**31), -1, 0, 1, 2, 3, 2**31 - 1])
def test_a_number_that_no_branch_has_is_that_of_the_last(index: int):
    arguments = [np.array([-1.0, -0.0], np.float32), np.array(index, np.int32)]
    looped = run_func(parse_module(BRANCHES), arguments)
    with np.errstate(all="ignore"):
        choices = {0: np.log(arguments[0]), 1: arguments[0]}
    np.testing.assert_array_equal(looped[0], choices.get(index, -arguments[0]))
    assert run_func(simplified(BRANCHES), arguments)[0].tobytes() == looped[0].tobytes()


MAPPED = """
func.func public @main(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %s: tensor<f32>)
    -> tensor<2x3xf32> {
  %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %two = stablehlo.constant dense<2.0> : tensor<f32>
    %c = stablehlo.multiply %a, %two : tensor<f32>
    %p = stablehlo.compare LT, %c, %s, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %d = stablehlo.select %p, %c, %b : tensor<i1>, tensor<f32>
    stablehlo.return %d : tensor<f32>
  }) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""


def test_a_map_is_its_body_on_whole_tensors():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 2, 3)).astype(np.float32)
    s = np.array(0.5, np.float32)
    expected = np.where(x * 2 < s, x * 2, y)
    np.testing.assert_array_equal(run_func(parse_module(MAPPED), [x, y, s])[0], expected)
    np.testing.assert_array_equal(run_func(simplified(MAPPED), [x, y, s])[0], expected)
    clamped = MAPPED.replace(
        "%d = stablehlo.select %p, %c, %b : tensor<i1>, tensor<f32>",
        "%d = stablehlo.clamp %b, %c, %s : tensor<f32>",
    )
    expected = np.minimum(np.maximum(x * 2, y), s)
    np.testing.assert_array_equal(run_func(simplified(clamped), [x, y, s])[0], expected)
    with pytest.raises(InputError, match="reshape in its body is not supported"):
        simplified(
            MAPPED.replace(
                "%d = stablehlo.select %p, %c, %b : tensor<i1>, tensor<f32>",
                "%d = stablehlo.reshape %c : (tensor<f32>) -> tensor<f32>",
            )
        )


COUNTING = """
func.func public @main(%x: tensor<f32>, %n: tensor<i32>) -> tensor<f32> {{
  %c = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.while(%i = %c, %a = %x) : tensor<i32>, tensor<f32>
  cond {{
    %limit = stablehlo.constant dense<{limit}> : tensor<i32>
    %p = stablehlo.compare LT, %i, {compared}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %one = stablehlo.constant dense<{step}> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %b = stablehlo.add %a, %a : tensor<f32>
    stablehlo.return %next, %b : tensor<i32>, tensor<f32>
  }}
  return %0#1 : tensor<f32>
}}
"""


def refused(limit: int, compared: str = "%limit", step: int = 1) -> InputError:
    with pytest.raises(InputError) as caught:
        simplified(COUNTING.format(limit=limit, compared=compared, step=step))
    location = caught.value.location
    assert location is not None and location.line == 4
    return caught.value


def test_a_loop_that_data_ends_is_refused():
    message = refused(5, "%n").message
    assert "step 1 is done depends on data" in message
    assert "jax.lax.fori_loop or jax.lax.scan" in message


def test_a_loop_is_unrolled_up_to_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control, "MAX_OPERATIONS", 100)
    module = simplified(COUNTING.format(limit=100, compared="%limit", step=1))
    (main,) = module.ops
    assert sum(isinstance(op, hlo.AddOp) for op in main.body.block.ops) == 100
    monkeypatch.setattr(control, "MAX_UNROLLED", 50)
    (loop,) = loops_in(simplified(COUNTING.format(limit=100, compared="%limit", step=1)))
    assert loop.trips == 100
    monkeypatch.setattr(control, "MAX_STEPS", 1000)
    assert "it has more than 1000 steps" in refused(10**9).message
    assert "it has more than 1000 steps" in refused(5, step=0).message  # it does not end


def test_a_loop_in_one_that_counts_for_it_is_unrolled(monkeypatch: pytest.MonkeyPatch):
    """Its steps are known only if those of the other are; with too many, both are refused."""
    jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")

    def triangle(x: Any) -> Any:
        inner = lambda i, a: jax.lax.fori_loop(0, i, lambda j, b: b * 0.5 + j, a)  # noqa: E731
        return jax.lax.fori_loop(0, 40, inner, x)

    text, arguments = lowered(triangle, [np.ones(3, np.float32)])
    module = simplified(text)
    assert not loops_in(module)
    assert same_bits(run_func(module, arguments), run_func(parse_module(text), arguments))
    monkeypatch.setattr(control, "MAX_OPERATIONS", 100)
    monkeypatch.setattr(control, "MAX_UNROLLED", 20)
    message = "not kept as a loop: how many steps a loop inside has depends on the step"
    with pytest.raises(InputError, match=message):
        simplified(text)


def test_a_refusal_names_the_line_of_python():
    jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")

    def unreadable(x: Any) -> Any:
        return jax.lax.real(jax.lax.complex(x, x))

    def endless(x: Any) -> Any:
        return jax.lax.while_loop(lambda y: y[0] < 3.0, lambda y: y + 1.0, x)

    for step in (unreadable, endless):
        lowered = jax.jit(step).lower(np.zeros(3, np.float32))
        with pytest.raises(InputError) as caught:
            simplified(lowered.as_text(debug_info=True))
        line = step.__code__.co_firstlineno + 1
        assert f"({__file__}:{line}): stablehlo." in str(caught.value)
        with pytest.raises(InputError) as caught:
            simplified(lowered.as_text())
        assert __file__ not in str(caught.value)


def test_faults_in_regions_are_listed():
    text = COUNTING.format(limit=3, compared="%limit", step=1)
    text = text.replace("%b = stablehlo.add %a, %a", "%b = stablehlo.nonesuch %a, %a")
    text = text.replace("add %i, %one : tensor<i32>", "add %i, %a : tensor<i32>")
    with pytest.raises(InputError) as caught:
        parse_module(text, "step.mlir")
    assert all(f"step.mlir:{line}:" in caught.value.message for line in (11, 12))
