"""Scheduled graphs compiled with TVM: the schedule is kept, and so are the bits of the C."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from compiled import bring, build, prepare, run
from conftest import ALL, more
from storage_step import C, V, W, X, storage_module
from storage_step import expected as storage_expected
from test_models import XLA_TOLERANCE
from tvm_support import (
    FILL,
    Run,
    bits,
    broken_promises,
    budgets,
    compiled,
    compiled_calls,
    fresh_store,
    largest_error,
    largest_update_error,
    least_arena_bytes,
    machine_text,
    planned_traffic,
    scheduled,
    training_step,
    tvm,
    within,
)
from xdsl.dialects.func import FuncOp

from poetc.backends.tvm.module import relax_module
from poetc.backends.tvm.pipeline import NOALIAS
from poetc.backends.tvm.runner import Step
from poetc.backends.tvm.stores import FileStore, MemoryStore, PageError, Traffic
from poetc.errors import InputError
from poetc.image import layout_of, unpack
from poetc.ir import mathlib
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import is_sequential
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.planning.memory import plan_graph_memory

STORED = [X, W, C, V]
"""The arguments of the step with parameters on storage."""

MODELS = ("lenet5", "dscnn", "bert_micro")
LARGE = ("dscnn", "bert_micro")
"""In the least RAM compiled plainly: quicker, and the same bits."""

HUGE = ("vgg16",)
"""More of them are in benchmarks/tvm_models.py."""
HUGE_TOLERANCE = 2e-4

UPDATE_TOLERANCE = 1e-4
"""Of the changes of parameters."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_conv", *more(*MODELS)])
def test_every_budget_gives_the_bits_of_c_and_xlas_numbers(name: str, tmp_path: Path) -> None:
    step = training_step(name)
    module = within(name, None)
    executable = compiled(module, plain=not ALL)
    program = Run(module, executable, step.arguments)
    unlimited = program.run()
    assert broken_promises(module, executable, program, None) == []
    assert largest_error(step, unlimited) <= XLA_TOLERANCE
    assert largest_update_error(step, unlimited, program.step.program) <= UPDATE_TOLERANCE
    if name != "dscnn":
        by_c = run(build(module, tmp_path / "c"), step.arguments, step.expected)
        assert bits(unlimited) == bits(by_c)
    possible = budgets(step, module)
    for budget in ("40%", "least") if ALL and name not in LARGE else ("least",):
        ram_bytes = possible[budget]
        module = within(name, ram_bytes)
        executable = compiled(module, plain=name in LARGE)
        program = Run(module, executable, step.arguments)
        assert bits(program.run()) == bits(unlimited), budget
        assert broken_promises(module, executable, program, ram_bytes) == []


@pytest.mark.parametrize("name", more(*HUGE))
def test_the_largest_models_in_the_least_ram(name: str) -> None:
    """At the least RAM as the command line compiles it; with unlimited RAM quickly."""
    pytest.importorskip("jax", reason="XLA makes the results: pip install 'poetc[jax]'")
    step = training_step(name)
    results: list[list[bytes]] = []
    for ram_bytes in (least_arena_bytes(step), None):
        module = within(name, ram_bytes)
        executable = compiled(module, plain=ram_bytes is None)
        program = Run(module, executable, step.arguments)
        got = program.run()
        assert broken_promises(module, executable, program, ram_bytes) == []
        assert largest_error(step, got) <= HUGE_TOLERANCE
        assert largest_update_error(step, got, program.step.program) <= HUGE_TOLERANCE
        results.append(bits(got))
    assert results[0] == results[1]


TWICE = """
poet.graph @main(%x: tensor<64xf32> {poet.role = "input"}) -> (tensor<64xf32>, tensor<64xf32>) {
  %h = poet.compute "exp" (%a = %x : tensor<64xf32>) -> tensor<64xf32> {
    %e = stablehlo.exponential %a : tensor<64xf32>
    poet.yield %e : tensor<64xf32>
  }
  %y = poet.compute "negate" (%a = %h : tensor<64xf32>) -> tensor<64xf32> {
    %n = stablehlo.negate %a : tensor<64xf32>
    poet.yield %n : tensor<64xf32>
  }
  %p = poet.pageout %h : tensor<64xf32> -> !poet.page<tensor<64xf32>>
  poet.free %h : tensor<64xf32>
  %unused = poet.pagein %p : !poet.page<tensor<64xf32>> -> tensor<64xf32>
  poet.free %unused : tensor<64xf32>
  %h2 = poet.compute "exp" (%a = %x : tensor<64xf32>) -> tensor<64xf32> {
    %e = stablehlo.exponential %a : tensor<64xf32>
    poet.yield %e : tensor<64xf32>
  }
  poet.free %x : tensor<64xf32>
  %h3 = poet.pagein %p : !poet.page<tensor<64xf32>> -> tensor<64xf32>
  %z = poet.compute "add" (%a = %h2 : tensor<64xf32>, %b = %h3 : tensor<64xf32>) -> tensor<64xf32> {
    %s = stablehlo.add %a, %b : tensor<64xf32>
    poet.yield %s : tensor<64xf32>
  }
  poet.free %h2 : tensor<64xf32>
  poet.free %h3 : tensor<64xf32>
  poet.return %y, %z : tensor<64xf32>, tensor<64xf32>
}
"""


def test_duplicates_order_and_effects_are_kept() -> None:
    """Everything here that looks redundant: a kernel that runs twice on the same input, a page that
    is read twice, once for nothing."""
    module = parse_module(TWICE)
    PoetLowerKernelsPass().apply(make_context(), module)
    plan_graph_memory(graphs(module)[0])
    executable = compiled(module)
    exp, negate = "kernel_exp", "kernel_negate"
    out, in_ = "poetc.page_out", "poetc.page_in"
    assert compiled_calls(executable) == [
        *(exp, negate, out, in_),
        *(exp, in_, "kernel_add"),
    ]
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    program = Run(module, executable, [x])
    y, z = program.run()
    e = mathlib.evaluate("exp", x)
    assert bits([y, z]) == bits([-e, e + e])
    assert program.step.pager.traffic == Traffic(2, 1, 512, 256)
    instructions = machine_text(executable)
    assert "alloc_storage" not in instructions, "the arena is all of the memory"
    assert "alloc_tensor" not in instructions


@pytest.mark.slow
def test_a_page_is_read_as_it_was_written_in_this_step() -> None:
    """Page-outs have no result, which a compiler that takes calls for pure would drop."""
    model = prepare("gesture_mlp")
    module = scheduled(model, 8600, params="ram")
    traffic = planned_traffic(module)
    assert traffic[0] and traffic[1]
    executable = compiled(module)
    twice = [Run(module, executable, model.arguments).run() for _ in range(2)]
    assert bits(twice[0]) == bits(twice[1])
    broken = Run(module, executable, model.arguments)

    def no_write(offset: int, data: bytes) -> None:
        assert data and offset >= 0

    broken.store.write = no_write  # type: ignore[method-assign]
    with pytest.raises(PageError, match="damaged, or was never written"):
        broken.run()


def test_parameters_on_storage_are_updated_in_the_image() -> None:
    module = storage_module()
    program = Run(module, compiled_once(module), STORED)
    for step in range(1, 4):
        assert bits(program.run()) == bits(storage_expected(step))
        layout = layout_of(graphs(module)[0])
        assert layout is not None
        assert unpack(layout, program.store.data)[0] == step


@pytest.mark.parametrize("writes", range(6))
def test_a_step_that_fails_leaves_the_image_as_it_was(writes: int) -> None:
    module = storage_module()
    program = Run(module, compiled_once(module), STORED)
    layout = layout_of(graphs(module)[0])
    assert layout is not None
    before = unpack(layout, program.store.data)
    original, left = program.store.write, [writes]

    def fails(offset: int, data: bytes) -> None:
        if not left[0]:
            raise PageError("no power")
        left[0] -= 1
        original(offset, data)

    program.store.write = fails  # type: ignore[method-assign]
    if writes < 4:  # three pages, then the record
        with pytest.raises(PageError, match="no power"):
            program.run()
        sequence, arrays = unpack(layout, program.store.data)
        assert sequence == before[0]
        assert bits(arrays) == bits(before[1])
    else:
        program.run()


_STORAGE = []


def compiled_once(module):
    """The executable of the step with parameters on storage, compiled by the first who asks."""
    if not _STORAGE:
        _STORAGE.append(compiled(module))
    return _STORAGE[0]


@pytest.mark.slow
def test_buffers_of_the_caller() -> None:
    from xdsl.dialects.builtin import StringAttr

    model = prepare("kws_conv")
    inside = scheduled(model, None)
    expected = Run(inside, compiled(inside), model.arguments).run()
    graphs(model.module)[0].attributes["io"] = StringAttr("caller")
    module = scheduled(model, None)
    program = Run(module, compiled(module), model.arguments)
    places = [*program.step.program.arguments, *program.step.program.results]
    assert any(place.where == "caller" for place in places)
    assert bits(program.run()) == bits(expected)
    assert bits(program.run()) != bits(expected)  # the parameters have moved on


def test_unsigned_numbers_and_tables_of_constants() -> None:
    table = ", ".join(map(str, range(5, 45, 2)))
    module = parse_module(f"""
    func.func @main(%x: tensor<20xui32>, %w: tensor<20xf32>) -> (tensor<20xui32>, tensor<20xf32>) {{
      %c = stablehlo.constant dense<[{table}]> : tensor<20xui32>
      %0 = stablehlo.remainder %x, %c : tensor<20xui32>
      %1 = stablehlo.convert %0 : (tensor<20xui32>) -> tensor<20xf32>
      %2 = stablehlo.remainder %w, %1 : tensor<20xf32>
      return %0, %2 : tensor<20xui32>, tensor<20xf32>
    }}""")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 20, dtype=np.uint32)
    w = (100 * rng.standard_normal(20)).astype(np.float32)
    expected = [x % np.arange(5, 45, 2, dtype=np.uint32)]
    with np.errstate(all="ignore"):
        expected.append(np.fmod(w, expected[0].astype(np.float32)))
    model = bring("unsigned", module, [x, w], expected)
    plan = scheduled(model, None)
    for a, b in zip(Run(plan, compiled(plan), [x, w]).run(), expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.slow
def test_pages_in_a_file(tmp_path: Path) -> None:
    model = prepare("gesture_mlp")
    module = scheduled(model, 8600, params="ram")
    executable = compiled(module)
    expected = Run(module, executable, model.arguments).run()
    store = FileStore(tmp_path / "pages.bin")
    step = Step(executable, store)
    step.write_all(model.arguments)
    step.run()
    store.close()
    assert bits([step.read(i) for i in range(len(expected))]) == bits(expected)
    assert (tmp_path / "pages.bin").stat().st_size == graphs(module)[0].storage_bytes
    with pytest.raises(InputError, match="cannot open"):
        FileStore(tmp_path / "no" / "pages.bin")


LOOP = """
func.func public @main(%w: tensor<24x24xf32>, %h: tensor<24xf32>) -> (tensor<24xf32>, tensor<300x24xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %rows = stablehlo.constant dense<0.0> : tensor<300x24xf32>
  %0:3 = stablehlo.while(%i = %zero, %s = %h, %ys = %rows) : tensor<i32>, tensor<24xf32>, tensor<300x24xf32>
  cond {
    %end = stablehlo.constant dense<300> : tensor<i32>
    %p = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.add %i, %one : tensor<i32>
    %a = stablehlo.dot_general %s, %w, contracting_dims = [0] x [0] : (tensor<24xf32>, tensor<24x24xf32>) -> tensor<24xf32>
    %t = stablehlo.tanh %a : tensor<24xf32>
    %u = stablehlo.reshape %t : (tensor<24xf32>) -> tensor<1x24xf32>
    %y = stablehlo.dynamic_update_slice %ys, %u, %i, %zero : (tensor<300x24xf32>, tensor<1x24xf32>, tensor<i32>, tensor<i32>) -> tensor<300x24xf32>
    stablehlo.return %next, %t, %y : tensor<i32>, tensor<24xf32>, tensor<300x24xf32>
  }
  return %0#1, %0#2 : tensor<24xf32>, tensor<300x24xf32>
}
"""  # noqa: E501


def test_a_kept_loop_has_the_bits_of_c(tmp_path: Path) -> None:
    """Its loops stay as they are; its iterations run in order."""
    module = parse_module(LOOP)
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in ((24, 24), (24,))]
    like = [np.zeros(shape, np.float32) for shape in ((24,), (300, 24))]
    planned, _ = bring("loop", module, arguments, like).schedule(None)
    assert any(is_sequential(op) for op in planned.ops if isinstance(op, FuncOp))
    by_c = run(build(planned, tmp_path), arguments, like)
    assert bits(Run(planned, compiled(planned), arguments).run()) == bits(by_c)


@pytest.mark.slow
def test_errors_of_the_runner() -> None:
    model = prepare("gesture_mlp")
    module = scheduled(model, None)
    program = Run(module, compiled(module), model.arguments)
    with pytest.raises(InputError, match=r"argument .* is float32 \(32,\), not float64 \(32,\)"):
        program.step.write(0, np.zeros(32))
    stored = storage_module()
    with pytest.raises(InputError, match="parameter w is on storage: see poetc pack"):
        Run(stored, compiled_once(stored), STORED).step.write(1, np.zeros(4, "f"))
    empty = Step(compiled_once(stored), MemoryStore(graphs(stored)[0].storage_bytes or 0))
    with pytest.raises(PageError, match="no image with the layout"):
        empty.run()
    small = MemoryStore(3)
    with pytest.raises(PageError, match="beyond the end"):
        small.write(0, b"four")


def test_graphs_that_are_not_ready() -> None:
    model = prepare("gesture_mlp")
    with pytest.raises(InputError, match="run poet-plan-memory first"):
        relax_module(model.module)
    module = scheduled(model, None)
    compute = next(iter(graphs(module)[0].computes))
    assert compute.kernel is not None
    compute.kernel = None
    with pytest.raises(InputError, match="has no kernel; run poet-lower-kernels"):
        relax_module(module)


def test_element_types_that_only_c_has() -> None:
    text = """
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xi8>, tensor<4xi64>) {
      %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi8>
      %1 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xi64>
      return %0, %1 : tensor<4xi8>, tensor<4xi64>
    }"""
    module, _ = bring("small", parse_module(text, "small.mlir"), [], []).schedule(None)
    with pytest.raises(InputError) as error:
        relax_module(module)
    for found in (r"small.mlir:3:7: .*type i8; --emit=c has", "small.mlir:4:7: .*type i64"):
        assert re.search(found, str(error.value)), error.value


@pytest.mark.slow
def test_nothing_is_promised_of_buffers_where_some_overlap() -> None:
    """Parameters are updated in place. TVM would let LLVM take what one kernel promises for all."""
    module = scheduled(prepare("gesture_mlp"), None)
    made = relax_module(module).functions  # pyright: ignore[reportAttributeAccessIssue]
    kernels = [f for f in made.values() if NOALIAS in f.attrs]
    assert len(kernels) == 13
    assert not any(kernel.attrs[NOALIAS] for kernel in kernels)
    (code,) = compiled(module).mod.imports
    assert not re.findall(r"^define .*\bnoalias\b", code.inspect_source("ll"), re.MULTILINE)


def test_a_fresh_store_is_full_of_nothing() -> None:
    module = storage_module()
    layout = layout_of(graphs(module)[0])
    assert layout is not None
    store = fresh_store(module, STORED)
    assert set(store.data[layout.parameters_end :]) == {FILL}
    assert tvm.__version__
