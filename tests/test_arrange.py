"""Arranged kernels against those they were made of: the same operations, in the same order, for
each element; and the same bits from C."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, build
from compiled import run as run_program
from conftest import more
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import alias_pairs, compile_functions, run, same_bits
from symbolic_kernels import Recorder
from test_kernels_bodies import random_case
from test_kernels_ops import conv_case, dot_case, floats, pool_gradient_case
from xdsl.dialects import affine, func
from xdsl.dialects.builtin import MemRefType, ModuleOp, StringAttr
from xdsl.ir import Operation

from poetc.backends.c.printer import Signature, print_function
from poetc.interpreter import run_graph
from poetc.interpreter.kernels import run_kernel
from poetc.ir import mathlib
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, module_text, parse_module
from poetc.kernels.access import linear_address
from poetc.kernels.addresses import extent
from poetc.kernels.analysis import buffers, is_sequential, work
from poetc.kernels.arrange import Machine, arranged, arranged_step
from poetc.kernels.arrange.alike import shared_code
from poetc.kernels.arrange.copies import jam, unroll
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.arrange.peel import peelings
from poetc.kernels.arrange.terms import terms_outside
from poetc.kernels.arrange.together import bring_together
from poetc.kernels.arrange.vectors import in_lanes
from poetc.kernels.lanes import lanes_of
from poetc.kernels.lower import lower_kernel
from poetc.kernels.pieces import pieces
from poetc.kernels.together import Group, accesses_together
from poetc.pipeline import front_passes, run_passes
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions

MACHINE = Machine()


def loops_of(function: func.FuncOp) -> list[affine.ForOp]:
    return [op for op in function.walk() if isinstance(op, affine.ForOp)]


def together(function: func.FuncOp) -> list[Group]:
    """The loads, or stores, that one instruction does."""
    return [group for loop in loops_of(function) for group in accesses_together(loop)]


def assert_same(before: func.FuncOp, after: func.FuncOp) -> None:
    """Both do the same for each element, also where a result is in the buffer of an operand."""
    after.verify()
    recorder = Recorder()
    for pairs in ((), *alias_pairs(before)):
        assert recorder.stored(after, pairs) == recorder.stored(before, pairs)


def kernels(seed: int) -> list[func.FuncOp]:
    rng = np.random.default_rng(seed)
    makers = (conv_case, dot_case, pool_gradient_case, random_case)
    made = [lower_kernel(make(rng).block, f"kernel{i}") for i, make in enumerate(makers)]
    return [kernel.function for kernel in made if not kernel.globals]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_copies_of_any_loops(seed: int, data: st.DataObject):
    for function in kernels(seed):
        if any(op.name.startswith("memref.") for op in function.walk()):
            continue
        copy = function.clone()
        for loop in reversed(loops_of(copy)):
            if loop.lowerBoundOperands or not (loop.inits or may_jam(loop)):
                continue
            (unroll if loop.inits else jam)(loop, data.draw(st.integers(1, 4)))
        assert_same(function, copy)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(1, 1, 0), (2, 1, 0), (4, 1, 0), (8, 1, 0), (1, 4, 10), (1, 8, 10)]),
    st.integers(12, 32),
)
def test_what_is_chosen(seed: int, core: tuple[int, int, int], registers: int):
    load_floats, lanes, latency = core
    machine = replace(
        MACHINE,
        load_floats=load_floats,
        lanes=lanes,
        latency_instructions=latency,
        registers=registers,
    )
    for function in kernels(seed):
        if not any(op.name.startswith("memref.") for op in function.walk()):
            new = arranged(function, machine)
            assert_same(function, new)
            assert all(len(each) <= load_floats for each in together(new))


PRODUCT = """
func.func private @product(%a: memref<{m}x{k}xf32>, %b: memref<{k}x{n}xf32>,
    %w: memref<{m}x{n}xf32>, %o: memref<{m}x{n}xf32>)
    attributes {{poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to {m} {{
    affine.for %j = 0 to {n} {{
      %s = affine.for %r = 0 to {k} iter_args(%acc = %zero) -> (f32) {{
        %x = affine.load %a[%i, %r] : memref<{m}x{k}xf32>
        %y = affine.load %b[%r, %j] : memref<{k}x{n}xf32>
        %p = arith.mulf %x, %y : f32
        %q = arith.addf %acc, %p : f32
        affine.yield %q : f32
      }}
      %v = affine.load %w[%i, %j] : memref<{m}x{n}xf32>
      %n = arith.subf %v, %s : f32
      affine.store %n, %o[%i, %j] : memref<{m}x{n}xf32>
    }}
  }}
  func.return
}}
"""


def product(m: int, n: int, k: int) -> func.FuncOp:
    module = parse_module(PRODUCT.format(m=m, n=n, k=k), "product")
    (function,) = module.ops
    assert isinstance(function, func.FuncOp)
    return function


@pytest.mark.parametrize(("m", "n", "k"), [(8, 8, 9), (7, 9, 5), (1, 64, 30), (64, 1, 30)])
def test_a_product_needs_fewer_loads(m: int, n: int, k: int):
    function = product(m, n, k)
    new = arranged(function, MACHINE)
    assert_same(function, new)
    before, after = work(function), work(new)
    assert (after.adds, after.muls, after.store_bytes) == (
        before.adds,
        before.muls,
        before.store_bytes,
    )
    least = 0.5 if min(m, n) > 1 else 0.7
    assert after.load_bytes <= least * before.load_bytes
    assert after.iterations <= before.iterations / 4


PADDED = """
func.func private @padded(%x: memref<{n}x8xf32>, %w: memref<{k}x8x8xf32>, %y: memref<{n}x8xf32>,
    %o: memref<{n}x8xf32>)
    attributes {{poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to {n} {{
    affine.for %j = 0 to 8 {{
      %s = affine.for %k = 0 to {k} iter_args(%acc = %zero) -> (f32) {{
        %g = "affine.if"(%i, %k) <{{condition = affine_set<(d0, d1) :
            (d0 + d1 - {pad} >= 0, -d0 - d1 + {last} >= 0)>}}> ({{
          %b = affine.for %c = 0 to 8 iter_args(%acc_1 = %acc) -> (f32) {{
            %u = affine.load %x[%i + %k - {pad}, %c] : memref<{n}x8xf32>
            %v = affine.load %w[%k, %c, %j] : memref<{k}x8x8xf32>
            %p = arith.mulf %u, %v : f32
            %q = arith.addf %acc_1, %p : f32
            affine.yield %q : f32
          }}
          affine.yield %b : f32
        }}, {{
          affine.yield %acc : f32
        }}) : (index, index) -> f32
        affine.yield %g : f32
      }}
      %z = affine.load %y[%i, %j] : memref<{n}x8xf32>
      %t = arith.addf %s, %z : f32
      affine.store %t, %o[%i, %j] : memref<{n}x8xf32>
    }}
  }}
  func.return
}}
"""


def padded(n: int, k: int, pad: int) -> func.FuncOp:
    text = PADDED.format(n=n, k=k, pad=pad, last=n + pad - 1)
    (function,) = parse_module(text, "padded").ops
    assert isinstance(function, func.FuncOp)
    return function


def guards_of(op: Operation) -> list[affine.IfOp]:
    return [each for each in op.walk() if isinstance(each, affine.IfOp)]


# Padding of one at both ends, at the first only, at the last only, and of two.
@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "pad"), [(9, 3, 1), (9, 2, 1), (9, 2, 0), (11, 5, 2)])
def test_borders_are_peeled_off(n: int, k: int, pad: int):
    function = padded(n, k, pad)
    (copy,) = peelings(function)
    copy.verify()
    recorder = Recorder()
    assert recorder.stored(copy) == recorder.stored(function)
    loops = [op for op in copy.body.block.ops if isinstance(op, affine.ForOp)]
    *borders, interior = loops
    assert not guards_of(interior) and all(guards_of(border) for border in borders)
    assert extent(interior) == n - k + 1
    new = arranged(function, MACHINE)
    assert_same(function, new)
    assert alias_pairs(function) == alias_pairs(new) == [((0, 2),)]
    assert work(new).load_bytes <= 0.6 * work(function).load_bytes


SHIFTED = """
func.func private @shifted(%x: memref<6x6x6xf32>, %o: memref<6x6x6xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 6 {
    affine.for %j = 0 to 6 {
      affine.for %k = 0 to 6 {
        %g = "affine.if"(%i, %j, %k) <{condition = affine_set<(d0, d1, d2) :
            (d0 - 1 >= 0, d1 - 1 >= 0, d2 - 1 >= 0)>}> ({
          %v = affine.load %x[%i - 1, %j - 1, %k - 1] : memref<6x6x6xf32>
          affine.yield %v : f32
        }, {
          affine.yield %zero : f32
        }) : (index, index, index) -> f32
        affine.store %g, %o[%i, %j, %k] : memref<6x6x6xf32>
      }
    }
  }
  func.return
}
"""


def test_borders_of_loops_in_loops_in_loops():
    (function,) = parse_module(SHIFTED, "shifted").ops
    assert isinstance(function, func.FuncOp)
    recorder = Recorder()
    want = recorder.stored(function)
    copies = list(peelings(function))
    assert len(copies) == 2
    for copy in copies:
        copy.verify()
        assert recorder.stored(copy) == want


def test_there_is_nothing_to_peel():
    assert not list(peelings(product(8, 8, 8)))
    assert not list(peelings(padded(2, 3, 1)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_peeled_loops_do_the_same(seed: int):
    for function in kernels(seed):
        if not any(op.name.startswith("memref.") for op in function.walk()):
            recorder = Recorder()
            want = recorder.stored(function)
            for copy in peelings(function):
                copy.verify()
                assert recorder.stored(copy) == want


def test_a_product_in_c():
    rng = np.random.default_rng(3)
    function = product(7, 10, 13)
    new = arranged(function, MACHINE)
    args = [floats(rng, 7, 13), floats(rng, 13, 10), floats(rng, 7, 10)]
    (want,) = run(compile_functions([function]), function, args)
    library = compile_functions([new])
    for pairs in ((), [(0, 2)]):
        (found,) = run(library, new, args, pairs)
        assert same_bits(found, want)


@pytest.mark.slow
@pytest.mark.parametrize("text", [PRODUCT, PRODUCT.replace("%b[%r, %j]", "%b[%j, %r]")])
def test_accesses_together_in_c(text: str):
    """Numbers that follow each other are loaded by one statement, and become the same bits."""
    rng = np.random.default_rng(4)
    (function,) = parse_module(text.format(m=8, n=12, k=12), "product").ops
    assert isinstance(function, func.FuncOp)
    new = arranged(function, replace(MACHINE, load_floats=4))
    assert_same(function, new)
    assert max(map(len, together(new))) == 4
    for group in together(new):
        at = [address.const for load in group if (address := linear_address(load))]
        assert at == list(range(at[0], at[0] + len(group)))
    assert "POETC_LOAD_4(" in print_function(new, Signature("product"))
    args = [floats(rng, 8, 12), floats(rng, 12, 12), floats(rng, 8, 12)]
    (want,) = run(compile_functions([function]), function, args)
    (found,) = run(compile_functions([new]), new, args)
    assert same_bits(found, want)


@pytest.mark.parametrize("counts", ["2", "1, 9", "-1, 0, 2", "2, 2, 2"])
def test_loads_are_together_only_where_the_attribute_is_true(counts: str):
    """What is written by hand may say so of loads that do not follow each other."""
    text = PRODUCT.format(m=2, n=2, k=2).replace(
        "affine.yield %q : f32\n      }",
        f"affine.yield %q : f32\n      }} {{poet.together = array<i64: {counts}>}}",
    )
    module = parse_module(text, "product")
    (function,) = module.ops
    assert isinstance(function, func.FuncOp)
    assert "poet.together" in module_text(module)
    assert together(function) == []
    assert "POETC_LOAD" not in print_function(function, Signature("product"))


UPDATE = """
func.func private @update(%x: memref<{n}xf32>, %g: memref<{m}xf32>, %w: memref<{m}x{n}xf32>,
    %o: memref<{m}x{n}xf32>)
    attributes {{poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  affine.for %i = 0 to {m} {{
    affine.for %j = 0 to {n} {{
      %a = affine.load %x[%j] : memref<{n}xf32>
      %b = affine.load %g[%i] : memref<{m}xf32>
      %p = arith.mulf %a, %b : f32
      %v = affine.load %w[%i, %j] : memref<{m}x{n}xf32>
      %q = arith.subf %v, %p : f32
      affine.store %q, %o[%i, %j] : memref<{m}x{n}xf32>
    }}
  }}
  func.return
}}
"""


@pytest.mark.slow
def test_stores_together_in_c():
    """Of the gradient of a dense layer, also where the new weights are in the buffer of the old
    ones."""
    rng = np.random.default_rng(5)
    (function,) = parse_module(UPDATE.format(m=4, n=12), "update").ops
    assert isinstance(function, func.FuncOp)
    new = arranged(function, replace(MACHINE, load_floats=4))
    assert_same(function, new)
    assert alias_pairs(new) == alias_pairs(function) == [((0, 2),)]
    stores = [group for group in together(new) if isinstance(group[0], affine.StoreOp)]
    assert stores and all(len(group) == 4 for group in stores)
    assert work(new).spared_stores == 3 * 12
    assert "POETC_STORE_4(" in print_function(new, Signature("update"))
    args = [floats(rng, 12), floats(rng, 4), floats(rng, 4, 12)]
    (want,) = run(compile_functions([function]), function, args)
    library = compile_functions([new])
    for pairs in ((), [(0, 2)]):
        (found,) = run(library, new, args, pairs)
        assert same_bits(found, want)


# A sum whose terms at the ends are outside of the tensor for some of its elements, as in the
# gradient of a padded convolution's weights; padded by one at both ends, at one, and by two.
@pytest.mark.parametrize(("n", "k", "pad"), [(9, 3, 1), (9, 2, 1), (9, 2, 0), (11, 5, 2)])
def test_borders_of_sums_are_peeled_off(n: int, k: int, pad: int):
    text = f"""
func.func private @gradient(%x: memref<{n}xf32>, %g: memref<{n}xf32>, %o: memref<{k}xf32>)
    attributes {{poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to {k} {{
    %s = affine.for %r = 0 to {n} iter_args(%acc = %zero) -> (f32) {{
      %t = "affine.if"(%i, %r) <{{condition = affine_set<(d0, d1) :
          (d0 + d1 - {pad} >= 0, -d0 - d1 + {n - 1 + pad} >= 0)>}}> ({{
        %a = affine.load %x[%i + %r - {pad}] : memref<{n}xf32>
        %b = affine.load %g[%r] : memref<{n}xf32>
        %p = arith.mulf %a, %b : f32
        %q = arith.addf %acc, %p : f32
        affine.yield %q : f32
      }}, {{
        affine.yield %acc : f32
      }}) : (index, index) -> f32
      affine.yield %t : f32
    }}
    affine.store %s, %o[%i] : memref<{k}xf32>
  }}
  func.return
}}
"""
    (function,) = parse_module(text, "gradient").ops
    assert isinstance(function, func.FuncOp)
    *_, copy = peelings(function)
    copy.verify()
    assert_same(function, copy)
    sums = [loop for loop in loops_of(copy) if loop.inits]
    (interior,) = (loop for loop in sums if not guards_of(loop))
    assert extent(interior) == n - k + 1
    assert sum(map(extent, sums)) == n


@pytest.mark.parametrize("size", [2, 3])
def test_a_small_window_has_no_loops(size: int):
    """Of max pooling, whose windows of 2 by 2 are all that is in the loops around."""
    text = f"""
func.func private @pool(%x: memref<32x64xf32>, %o: memref<{32 // size}x{64 // size}xf32>)
    attributes {{poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %low = arith.constant 0xff800000 : f32
  affine.for %i = 0 to {32 // size} {{
    affine.for %j = 0 to {64 // size} {{
      %s = affine.for %a = 0 to {size} iter_args(%m = %low) -> (f32) {{
        %t = affine.for %b = 0 to {size} iter_args(%n = %m) -> (f32) {{
          %v = affine.load %x[%i * {size} + %a, %j * {size} + %b] : memref<32x64xf32>
          %w = arith.maximumf %n, %v : f32
          affine.yield %w : f32
        }}
        affine.yield %t : f32
      }}
      affine.store %s, %o[%i, %j] : memref<{32 // size}x{64 // size}xf32>
    }}
  }}
  func.return
}}
"""
    (function,) = parse_module(text, "pool").ops
    assert isinstance(function, func.FuncOp)
    new = arranged(function, MACHINE)
    assert_same(function, new)
    sums = [loop for loop in loops_of(new) if loop.inits]
    assert sums and {extent(loop) for loop in sums} == ({1} if size == 2 else {1, 3})


def test_numbers_that_several_terms_need_are_loaded_once():
    """A sum over neighbours, several elements at a time: each needs most of what the one before
    does."""
    text = """
func.func private @near(%x: memref<20xf32>, %w: memref<5xf32>, %o: memref<16xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 16 {
    %s = affine.for %r = 0 to 5 iter_args(%acc = %zero) -> (f32) {
      %a = affine.load %x[%i + %r] : memref<20xf32>
      %b = affine.load %w[%r] : memref<5xf32>
      %p = arith.mulf %a, %b : f32
      %q = arith.addf %acc, %p : f32
      affine.yield %q : f32
    }
    affine.store %s, %o[%i] : memref<16xf32>
  }
  func.return
}
"""
    (function,) = parse_module(text, "near").ops
    assert isinstance(function, func.FuncOp)
    new = arranged(function, replace(MACHINE, load_floats=4))
    assert_same(function, new)
    loops = [loop for loop in loops_of(new) if loop.inits]
    assert loops
    for loop in loops:
        loads = [op for op in loop.body.block.ops if isinstance(op, affine.LoadOp)]
        places = {(op.memref, str(linear_address(op))) for op in loads}
        assert len(places) == len(loads)


def test_what_is_alike_but_for_sizes_shares_code():
    alike = [product(4, 5, 6), product(3, 2, 7)]
    (other,) = parse_module(UPDATE.format(m=4, n=12), "update").ops
    assert isinstance(other, func.FuncOp)
    functions = [alike[0], other, alike[1], product(40, 50, 60)]
    first, without, second, large = shared_code(functions, [1, 1, 1, 100])
    assert first is not None and first == second
    assert without is None and large is None
    # Code that is there in any case for another kernel is no reason to arrange one.
    calls = [(function, 1) for function in functions]
    assert arranged_step(calls, replace(MACHINE, growth=0.0, runtime_operations=0))[0] == functions


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], [(0, 4), (4, 2)]),
        ([0, 1, 2, 10, 11, 12, 13, 14], [(0, 3), (10, 4), (14, 1)]),
        ([0, 1, 8, 9], [(0, 1), (1, 1), (8, 1), (9, 1)]),
        ([3, 5, 7], [(3, 1), (5, 1), (7, 1)]),
    ],
)
def test_pieces(addresses: list[int], expected: list[tuple[int, int]]):
    assert pieces(addresses, 4) == expected


def product_of(
    rng: np.random.Generator, m: int, n: int, k: int, across: bool
) -> tuple[str, list[np.ndarray]]:
    """A product, whose columns are not side by side if they are `across`, and its arguments."""
    text = PRODUCT.format(m=m, n=n, k=k)
    args = [floats(rng, m, k), floats(rng, k, n), floats(rng, m, n)]
    if across:
        text = text.replace(f"memref<{k}x{n}xf32>", f"memref<{n}x{k}xf32>")
        text = text.replace("%b[%r, %j]", "%b[%j, %r]")
        args[1] = floats(rng, n, k)
    return text, args


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "k"), [(5, 19, 40), (2, 5, 33), *more((3, 8, 7), (4, 32, 96))])
@pytest.mark.parametrize("lanes", [4, 16, *more(8)])
@pytest.mark.parametrize("across", [False, True])
def test_sums_in_lanes(m: int, n: int, k: int, lanes: int, across: bool):
    """Sums of lanes are those of one number each, whether these are side by side or not."""
    rng = np.random.default_rng(m * n)
    text, args = product_of(rng, m, n, k, across)
    function = next(op for op in parse_module(text, "x").walk() if isinstance(op, func.FuncOp))
    new = arranged(function, replace(MACHINE, lanes=lanes, latency_instructions=10))
    assert_same(function, new)
    wide = [lanes_of(loop) for loop in loops_of(new) if lanes_of(loop) > 1]
    assert wide and all(each <= min(lanes, n) for each in wide)
    (want,) = run(compile_functions([function]), function, args)
    assert not across or k % 4 or "POETC_PICK" in print_function(new, Signature("kernel"))
    for flags in (["-O0"], ["-O2"], ["-O3", "-march=native"]):
        library = compile_functions([new], flags)
        for pairs in ((), [(0, 2)]):
            (found,) = run(library, new, args, pairs)
            assert same_bits(found, want)


@pytest.mark.parametrize("across", [False, True])
def test_blocks_of_columns_stay_in_a_cache(across: bool):
    """What a block of columns loads is small enough for the cache until the next block begins, so
    that what is larger than the cache is loaded from beyond it once."""
    rng = np.random.default_rng(3)
    m, n, k, cache_bytes = 6, 48, 20, 1024
    text, args = product_of(rng, m, n, k, across)
    (function,) = parse_module(text, "x").ops
    assert isinstance(function, func.FuncOp)
    machine = replace(MACHINE, lanes=4, growth=8.0, cache_bytes=cache_bytes)
    new = arranged(function, machine)
    assert_same(function, new)
    (outermost,) = (op for op in new.body.block.ops if isinstance(op, affine.ForOp))
    blocks = extent(outermost)
    assert blocks > 1 and args[1].nbytes / blocks <= cache_bytes < args[1].nbytes
    (want,) = run(compile_functions([function]), function, args)
    (found,) = run(compile_functions([new], ["-O2"]), new, args, [(0, 2)])
    assert same_bits(found, want)
    # A cache that holds all of it, or none, leaves the order of the loops.
    for other in (0, 1 << 20):
        copy = in_lanes(function, 4, other)
        assert copy is not None and [extent(loop) for loop in loops_of(copy)] == [
            extent(loop) for loop in loops_of(function)
        ]


CONVOLUTION = """
    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {{stride = {stride}, pad = {pad}}}
        {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {y}
"""
DOT = """
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {y}
"""
FINISHED = """
    %1 = stablehlo.broadcast_in_dim %b, dims = [{last}] : (tensor<40xf32>) -> {y}
    %2 = stablehlo.add %0, %1 : {y}
    %3 = stablehlo.maximum %2, %1 : {y}
"""
WITH_OTHER = """
    %1 = stablehlo.add %0, %other : {y}
    %3 = stablehlo.multiply %1, %1 : {y}
"""


def read_by_row(product: str, end: str, shapes: tuple[str, str, str], **more: str) -> func.FuncOp:
    """The kernel of a product with weights in rows of 40 numbers, and what is done with it."""
    x, w, y = (f"tensor<{shape}xf32>" for shape in shapes)
    text = (product + end).format(x=x, w=w, y=y, last=shapes[2].count("x"), **more)
    module = parse_module(f"""
      func.func public @main(%x: {x}, %w: {w}, %b: tensor<40xf32>, %other: {y}) -> {y} {{{text}
        func.return %3 : {y}
      }}""")
    passes = front_passes(module, "host", arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    return function


def numbers_for(function: func.FuncOp, kind: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Random numbers for the buffers of a kernel of one kind."""
    types = [buffer.type for buffer in buffers(function, kind)]
    return [floats(rng, *type.get_shape()) for type in types if isinstance(type, MemRefType)]


ROWS = [
    # Guards of padding; positions whose window is cut off, so that the loops are over the input.
    (
        CONVOLUTION,
        ("1x5x4x64", "3x3x64x40", "1x5x4x40"),
        {"stride": "[1, 1]", "pad": "[[1, 1], [1, 1]]"},
    ),
    (
        CONVOLUTION,
        ("1x2x2x64", "3x3x64x40", "1x2x2x40"),
        {"stride": "[1, 1]", "pad": "[[1, 1], [1, 1]]"},
    ),
    (
        CONVOLUTION,
        ("1x7x7x64", "3x3x64x40", "1x3x3x40"),
        {"stride": "[2, 2]", "pad": "[[0, 0], [0, 0]]"},
    ),
    (DOT, ("6x192", "192x40", "6x40"), {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("product", "shapes", "more"), ROWS)
def test_weights_are_read_by_row(product: str, shapes: tuple[str, str, str], more: dict[str, str]):
    """Each sum waits in the result while others are added to, and has its terms in their order."""
    function = read_by_row(product, FINISHED, shapes, **more)
    cache_bytes = 8192
    turned = terms_outside(function, cache_bytes)
    assert turned is not None
    recorder = Recorder(once=False)
    expected = recorder.stored(function)
    new = arranged(function, replace(MACHINE, lanes=8, growth=8.0, cache_bytes=cache_bytes))
    assert is_sequential(new) and any(lanes_of(loop) == 8 for loop in loops_of(new))
    for other in (turned, new):
        other.verify()
        assert recorder.stored(other) == expected
    rng = np.random.default_rng(2)
    inputs, results = (numbers_for(function, kind, rng) for kind in ("inputs", "results"))
    args = [*inputs, *results]
    want = run(compile_functions([function]), function, args)
    for flags in (["-O0"], ["-O3", "-march=native"]):
        found = run(compile_functions([new], flags), new, args)
        assert all(map(same_bits, found, want))
    interpreted = [*inputs, *(np.full_like(result, np.nan) for result in results)]
    run_kernel(new, interpreted)
    assert all(map(same_bits, interpreted[len(inputs) :], want))


@pytest.mark.slow
def test_a_program_that_reads_weights_by_row(tmp_path: Path):
    """With sanitizers: the bits of the step that is not scheduled."""
    module = parse_module("""
      func.func public @main(%x: tensor<4x640xf32>, %w: tensor<640x512xf32>) -> tensor<4x512xf32> {
        %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
            : (tensor<4x640xf32>, tensor<640x512xf32>) -> tensor<4x512xf32>
        %1 = stablehlo.tanh %0 : tensor<4x512xf32>
        func.return %1 : tensor<4x512xf32>
      }""")
    passes = front_passes(module, "host-avx512")
    run_passes(make_context(), module, passes, lambda *_: None)
    (kernel,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    assert is_sequential(kernel)
    rng = np.random.default_rng(3)
    arguments = [floats(rng, 4, 640), floats(rng, 640, 512)]
    expected = run_graph(module.clone(), arguments).results
    schedule_and_plan(graphs(module)[0], ScheduleOptions())
    found = run_program(build(module, tmp_path, *SANITIZE), arguments, expected)
    assert len(found) == 1 and all(map(same_bits, found, expected))


def test_weights_are_not_read_by_row_over_what_is_needed():
    """Where the result may take over the buffer of an operand that is read last, no sum waits
    there; nor where the cache holds the weights, or not even the rows for a block of terms."""
    product, shapes, more = ROWS[0]
    function = read_by_row(product, WITH_OTHER, shapes, **more)
    assert alias_pairs(function) and terms_outside(function, 8192) is not None
    new = arranged(function, replace(MACHINE, lanes=8, cache_bytes=8192))
    assert not is_sequential(new) and alias_pairs(new) == alias_pairs(function)
    function = read_by_row(product, FINISHED, shapes, **more)
    assert terms_outside(function, 4096) is None and terms_outside(function, 1 << 20) is None


BY_ROW = """
func.func private @rows(%x: memref<4x64xf32>, %w: memref<64x40xf32>, %y: memref<4x40xf32>,
    %other: memref<4x40xf32>) attributes
    {poet.inputs = 2 : i64, poet.results = 2 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 40 {
      %s = affine.for %rb = 0 to 2 iter_args(%a = %zero) -> (f32) {
        %t = affine.for %r = 0 to 32 iter_args(%b = %zero) -> (f32) {
          %p = affine.load %x[%i, %rb * 32 + %r] : memref<4x64xf32>
          %q = affine.load %w[%rb * 32 + %r, %j] : memref<64x40xf32>
          %m = arith.mulf %p, %q : f32
          %n = arith.addf %b, %m : f32
          affine.yield %n : f32
        }
        %u = arith.addf %a, %t : f32
        affine.yield %u : f32
      }
      affine.store %s, %y[%i, %j] : memref<4x40xf32>
    }
  }
  func.return
}
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        # The sum is more than added to, or read beside.
        ("addf %a, %t", "mulf %a, %t"),
        ("addf %a, %t", "addf %a, %a"),
        # Another loop of the sum stands beside, or what it needs is before it.
        ("%s = affine.for", "%e = affine.load %x[%i, 0] : memref<4x64xf32>\n%s = affine.for"),
        # There are two stores, one place for all columns, or none in a result.
        (
            "affine.store %s, %y[%i, %j] : memref<4x40xf32>",
            "affine.store %s, %y[%i, %j] : memref<4x40xf32>\n"
            "affine.store %s, %other[%i, %j] : memref<4x40xf32>",
        ),
        ("affine.store %s, %y[%i, %j]", "affine.store %s, %y[%i, 0]"),
        # Its place is a number that is computed.
        (
            "affine.store %s, %y[%i, %j]",
            "%n = affine.apply affine_map<(d0) -> (d0)>(%j)\naffine.store %s, %y[%i, %n]",
        ),
        (
            "poet.results = 2 : i64, poet.workspace = 0",
            "poet.results = 0 : i64, poet.workspace = 2",
        ),
        # Blocks of terms are short, the loops are not around rows of the weights.
        ("%r = 0 to 32", "%r = 0 to 4"),
        ("%w[%rb * 32 + %r, %j]", "%w[%j, %rb * 8 + %r]"),
        ("%w[%rb * 32 + %r, %j]", "%w[%r, %j]"),
    ],
)
def test_what_is_read_by_row(old: str, new: str):
    text = BY_ROW.replace(old, new) if old else BY_ROW
    assert (text == BY_ROW) is not bool(old)
    if "%e" in text:
        text = text.replace("mulf %p, %q", "mulf %e, %q")
    (function,) = parse_module(text, "x").ops
    assert isinstance(function, func.FuncOp)
    turned = terms_outside(function, 8192)
    assert (turned is None) is bool(old)


RELU = """
func.func private @relu(%a: memref<6x40xf32>, %b: memref<40x16xf32>, %o: memref<6x16xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 6 {
    affine.for %j = 0 to 16 {
      %e = affine.load %b[%i, %j] : memref<40x16xf32>
      %c = arith.cmpf ogt, %e, %zero : f32
      %s = affine.for %r = 0 to 40 iter_args(%acc = %zero) -> (f32) {
        %q = "affine.if"(%i, %r) <{condition = affine_set<(d0, d1) : (d0 + d1 - 3 >= 0)>}> ({
          %x = affine.load %a[%i, %r] : memref<6x40xf32>
          %y = affine.load %b[%r, %j] : memref<40x16xf32>
          %p = arith.mulf %x, %y : f32
          %t = arith.addf %acc, %p : f32
          affine.yield %t : f32
        }, {
          affine.yield %acc : f32
        }) : (index, index) -> f32
        affine.yield %q : f32
      }
      %m = arith.maximumf %s, %zero : f32
      %n = arith.select %c, %m, %s : f32
      affine.store %n, %o[%i, %j] : memref<6x16xf32>
    } {poet.lanes = 8 : i64}
  }
  func.return
}
"""


@pytest.mark.slow
def test_what_is_not_done_in_lanes_is_done_for_each():
    """Comparisons, choices and maxima beside a sum with a guard; and no lanes where a loop has
    other bounds than they divide, as it may have in a text."""
    rng = np.random.default_rng(5)
    args = [floats(rng, 6, 40), floats(rng, 40, 16)]
    plain, eight, odd = (
        next(op for op in parse_module(text, "x").walk() if isinstance(op, func.FuncOp))
        for text in (
            RELU.replace(" {poet.lanes = 8 : i64}", ""),
            RELU,
            RELU.replace("lanes = 8", "lanes = 3"),
        )
    )
    (want,) = run(compile_functions([plain]), plain, args)
    for function in (eight, odd, arranged(plain, replace(MACHINE, lanes=8))):
        (found,) = run(compile_functions([function], ["-O2"]), function, args)
        assert same_bits(found, want)
    signature = Signature("kernel")
    assert "lanes8 acc" in print_function(eight, signature)
    assert "lanes" not in print_function(odd, signature)


SCALARS = """
    %0 = arith.negf %x : f32
    %1 = math.absf %y : f32
    %2 = arith.maximumf %x, %y : f32
    %3 = arith.minimumf %x, %y : f32
    %4 = arith.maximumf %x, %zero : f32
    %5 = arith.minimumf %two, %x : f32
    %6 = arith.minimumf %x, %zero : f32
    %less = arith.cmpf olt, %x, %y : f32
    %apart = arith.cmpf one, %x, %y : f32
    %nan = arith.cmpf uno, %x, %y : f32
    %not_less = arith.cmpf uge, %x, %two : f32
    %both = arith.andi %less, %apart : i1
    %any = arith.ori %both, %nan : i1
    %odd = arith.xori %any, %not_less : i1
    %7 = arith.select %odd, %x, %y : f32
    %8 = arith.select %any, %zero, %x : f32
    %9 = arith.select %always, %x, %y : f32
    %half = arith.select %both, %two, %y : f32
    %10 = arith.divf %x, %half : f32
"""


def in_a_row(scalars: str) -> func.FuncOp:
    """A kernel that computes the numbered values of 27 pairs of numbers, which are in rows."""
    values = re.findall(r"%(\d+) =", scalars)
    stores = "".join(
        f"affine.store %{value}, %o[{row}, %j] : memref<{len(values)}x27xf32>\n"
        for row, value in enumerate(values)
    )
    text = f"""
func.func private @row(%a: memref<27xf32>, %b: memref<27xf32>, %o: memref<{len(values)}x27xf32>)
    attributes {{poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %first = affine.load %a[0] : memref<27xf32>
  %always = arith.cmpf une, %first, %two : f32
  affine.for %j = 0 to 27 {{
    %x = affine.load %a[%j] : memref<27xf32>
    %y = affine.load %b[%j] : memref<27xf32>
{scalars}{stores}
  }}
  func.return
}}"""
    return next(op for op in parse_module(text, "row").walk() if isinstance(op, func.FuncOp))


FUNCTIONS = [name for name in mathlib.symbols() if name not in ("pow", "rem", "atan2")]
CALLS = "".join(
    f'    %{i} = "math.{name}"(%x) <{{fastmath = #arith.fastmath<none>}}> : (f32) -> f32\n'
    for i, name in enumerate(FUNCTIONS)
)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [4, 8])
@pytest.mark.parametrize("scalars", [SCALARS, CALLS], ids=["operations", "functions"])
def test_loops_without_sums_are_in_lanes(scalars: str, lanes: int):
    """Against the same loops without lanes, for zeros, infinities, NaN and numbers of any size."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 2.0, -2.0], np.float32)
    rng = np.random.default_rng(lanes)
    function = in_a_row(scalars)
    new = arranged(function, replace(MACHINE, lanes=lanes))
    assert_same(function, new)
    printed = print_function(new, Signature("kernel"))
    assert f"*(place{lanes} *)&o" in printed
    # Three numbers remain.
    assert all(printed.count(f"poetc_{name}f(") <= 3 for name in FUNCTIONS)
    plain = compile_functions([function])
    libraries = [compile_functions([new], flags) for flags in (["-O0"], ["-O3", "-march=native"])]
    sizes = np.exp(rng.uniform(-80, 80, (6, 27)))
    for numbers in (special, *(rng.standard_normal((6, 27)) * sizes).astype(np.float32)):
        args = [rng.choice(numbers, 27) for _ in range(2)]
        (want,) = run(plain, function, args)
        for library in libraries:
            (found,) = run(library, new, args)
            assert same_bits(found, want)


def test_what_is_around_sums_is_together():
    """Numbers that are needed behind sums are loaded there, not before, and sums are stored by one
    instruction."""
    load = "      %v = affine.load %w[%i, %j] : memref<{m}x{n}xf32>\n"
    around = "      %s = affine.for"
    assert load in PRODUCT and around in PRODUCT
    text = PRODUCT.replace(load, "").replace(around, f"{load}{around}").format(m=2, n=4, k=3)
    (function,) = parse_module(text, "product").ops
    assert isinstance(function, func.FuncOp)
    new = function.clone()
    jam(loops_of(new)[1], 4)
    bring_together(new, replace(MACHINE, load_floats=4))
    assert_same(function, new)
    assert alias_pairs(new) == alias_pairs(function) == [((0, 2),)]
    _, around_sum, sums = loops_of(new)
    assert [len(group) for group in accesses_together(sums)] == [4]
    loads, stores = accesses_together(around_sum)
    assert len(loads) == len(stores) == 4
    order = list(around_sum.body.block.ops)
    assert order.index(sums) < order.index(loads[0]) < order.index(stores[0])
    printed = print_function(new, Signature("product"))
    assert (printed.count("POETC_LOAD_4("), printed.count("POETC_STORE_4(")) == (2, 1)


def test_what_is_loaded_before_a_loop_that_stores_there_stays_before_it():
    text = """
func.func private @kept(%a: memref<4x3xf32>, %o: memref<4xf32>, %w: memref<4xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64} {
  affine.for %i = 0 to 4 {
    %first = affine.load %a[%i, 0] : memref<4x3xf32>
    affine.store %first, %w[%i] : memref<4xf32>
  }
  affine.for %i = 0 to 4 {
    %before = affine.load %w[%i] : memref<4xf32>
    affine.for %j = 0 to 3 {
      %each = affine.load %a[%i, %j] : memref<4x3xf32>
      affine.store %each, %w[%i] : memref<4xf32>
    }
    %after = affine.load %w[%i] : memref<4xf32>
    %both = arith.subf %after, %before : f32
    affine.store %both, %o[%i] : memref<4xf32>
  }
  func.return
}
"""
    (function,) = parse_module(text, "kept").ops
    assert isinstance(function, func.FuncOp)
    new = function.clone()
    bring_together(new, replace(MACHINE, load_floats=4))
    assert_same(function, new)


@pytest.mark.slow
def test_as_many_together_as_there_are_macros_for():
    """Loads and stores of 2 to 8 floats, also where the new weights are in the buffer of the old
    ones."""
    made: dict[int, tuple[func.FuncOp, func.FuncOp]] = {}
    for count in range(2, 9):
        text = UPDATE.format(m=2, n=count).replace("@update", f"@update{count}")
        (function,) = parse_module(text, "update").ops
        assert isinstance(function, func.FuncOp)
        new = function.clone()
        new.properties["sym_name"] = StringAttr(f"together{count}")
        jam(loops_of(new)[1], count)
        bring_together(new, replace(MACHINE, load_floats=8))
        assert [len(group) for group in together(new)] == 3 * [count]
        text = print_function(new, Signature("update"))
        assert (text.count(f"POETC_LOAD_{count}("), text.count(f"POETC_STORE_{count}(")) == (2, 1)
        made[count] = function, new
    library = compile_functions([each for pair in made.values() for each in pair])
    rng = np.random.default_rng(6)
    for count, (function, new) in made.items():
        args = [floats(rng, count), floats(rng, 2), floats(rng, 2, count)]
        (want,) = run(library, function, args)
        for pairs in ((), [(0, 2)]):
            (found,) = run(library, new, args, pairs)
            assert same_bits(found, want)


@pytest.mark.parametrize("shape", [(2, 16, 6), (4, 24, 12), (8, 16, 16), (2, 24, 6)])
def test_sums_leave_registers_for_loads_together(shape: tuple[int, int, int]):
    """So many sums, with such terms, are chosen that what is loaded together has registers."""
    machine = replace(MACHINE, load_floats=8)
    function = product(*shape)
    new = arranged(function, machine)
    assert_same(function, new)
    assert max(map(len, together(new)), default=0) > 2
    carried = max(len(loop.inits) for loop in loops_of(new))
    assert carried + max(map(len, together(new))) <= machine.registers


def operations(function: func.FuncOp) -> int:
    return sum(1 for _ in function.walk())


def test_code_goes_where_it_saves_most():
    small, large = product(3, 3, 3), product(32, 32, 33)
    (kept, new), _ = arranged_step([(small, 1), (large, 100)], MACHINE)
    assert kept is small
    assert new is not large
    (kept, new), _ = arranged_step([(small, 1_000_000), (large, 1)], MACHINE)
    assert kept is not small
    assert_same(small, kept)
    assert operations(new) < operations(arranged(large, MACHINE))


def test_code_grows_by_what_it_may():
    functions = [product(n, n, n) for n in (20, 24, 28)]
    calls = [(function, 1) for function in functions]
    before = sum(operations(function) for function in functions)
    none = replace(MACHINE, growth=0.0)
    assert arranged_step(calls, none)[0] == functions
    found: list[int] = []
    for growth in (0.5, 1.0, 2.0):
        machine = replace(MACHINE, growth=growth, runtime_operations=0)
        found.append(sum(operations(new) for new in arranged_step(calls, machine)[0]))
        assert found[-1] <= (1.1 + growth) * before
    assert before < found[0] < found[2]


def test_iterations_that_share_a_workspace_are_apart():
    text = """
func.func private @rows(%a: memref<4x8xf32>, %o: memref<4x8xf32>, %ws: memref<8xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64} {
  affine.for %i = 0 to 4 {
    affine.for %j = 0 to 8 {
      %x = affine.load %a[%i, %j] : memref<4x8xf32>
      affine.store %x, %ws[%j] : memref<8xf32>
    }
    affine.for %k = 0 to 8 {
      %y = affine.load %ws[-%k + 7] : memref<8xf32>
      affine.store %y, %o[%i, %k] : memref<4x8xf32>
    }
  }
  func.return
}
"""
    (function,) = parse_module(text, "rows").ops
    assert isinstance(function, func.FuncOp)
    assert [may_jam(loop) for loop in loops_of(function)] == [False, True, True]
    assert_same(function, arranged(function, MACHINE))


def test_arranged_kernels_are_read_back():
    new = arranged(product(7, 9, 5), replace(MACHINE, load_floats=4))
    module = parse_module(module_text(ModuleOp([new])), "again")
    (again,) = module.ops
    assert isinstance(again, func.FuncOp)
    assert_same(new, again)
    assert work(again) == work(new)
    assert [len(group) for group in together(again)] == [len(group) for group in together(new)]
    assert together(new)
