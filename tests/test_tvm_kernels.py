"""PrimFuncs of kernels: every operation against the interpreter, tilings, mathematics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
import test_kernels_guards
import test_kernels_ops
from conftest import ALL, more
from kernel_harness import Array, Case, alias_pairs, body, interpret, same_bits
from test_arrange import CONVOLUTION, FINISHED, numbers_for, read_by_row
from tvm_support import tvm
from xdsl.dialects import affine, func
from xdsl.dialects.builtin import MemRefType, f32
from xdsl.ir import Operation

from poetc.backends.c.printer import tables_of
from poetc.backends.tvm import mathir, pipeline
from poetc.backends.tvm.build import machine
from poetc.backends.tvm.module import table_values
from poetc.backends.tvm.nest import Vectors
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.runner import aligned
from poetc.backends.tvm.scalars import element_dtype
from poetc.backends.tvm.tiles import Piece, elements_of
from poetc.backends.tvm.tiling import arrange, pieces
from poetc.errors import InputError
from poetc.interpreter.kernels import run_kernel
from poetc.ir import mathlib
from poetc.ir import stablehlo as hlo
from poetc.ir.dense import dtype_of
from poetc.ir.stablehlo import element_type_of
from poetc.ir.stablehlo_attributes import ConvDims
from poetc.ir.text import parse_module
from poetc.ir.types import ELEMENT_TYPES
from poetc.kernels.analysis import buffers, is_sequential
from poetc.kernels.lower import lower_kernel

MARGIN = 16
VECTORS = Vectors(4, 16)
"""Short ones, so that small shapes have whole tiles and remainders."""


def build(functions: Sequence[Any], names: Sequence[str]):
    """The functions as a library for this machine."""
    pipeline.register()
    module = tvm.IRModule(dict(zip(names, functions, strict=True)))
    return tvm.tirx.build(module, target=machine().target, pipeline=pipeline.NAME)


def _tensor(array: Array) -> tuple[Array, Any, Array]:
    """A copy of the array inside larger memory that is filled with a pattern: the memory, the
    tensor at an offset in it, and the array there."""
    flat = array.astype(np.int8) if array.dtype == bool else array
    if array.dtype == np.uint32:
        flat = flat.view(np.int32)
    flat = np.ascontiguousarray(flat).reshape(-1)
    memory = aligned(flat.nbytes + 8 * MARGIN)
    memory[:] = 0xEB
    whole = tvm.runtime.from_dlpack(memory)
    view = whole._create_view((flat.size,), str(flat.dtype), 4 * MARGIN)
    inner = memory[4 * MARGIN : 4 * MARGIN + flat.nbytes].view(flat.dtype)
    inner[:] = flat
    return memory, view, inner


def run(
    library, name: str, function: func.FuncOp, args: Sequence[Array], inplace=()
) -> list[Array]:
    """Results of one run, with the given (result, operand) pairs in one buffer."""
    tensors = [_tensor(arg) for arg in args]
    shared = dict(inplace)
    for number, argument in enumerate(function.body.block.args[len(args) :]):
        assert isinstance(argument.type, MemRefType)
        if number in shared:
            tensors.append(tensors[shared[number]])
            continue
        dtype = element_dtype(argument.type.element_type)
        empty = np.frombuffer(
            b"\xeb" * elements_of(argument.type) * np.dtype(dtype).itemsize, dtype
        )
        tensors.append(_tensor(empty))
    tables = [_tensor(table_values(table)) for table in tables_of(function)]
    library[name](*(view for _, view, _ in (*tensors, *tables)))
    for memory, _, inner in tensors:
        end = 4 * MARGIN + inner.nbytes
        assert (memory[: 4 * MARGIN] == 0xEB).all() and (memory[end:] == 0xEB).all()
    return [
        inner.reshape(argument.type.get_shape()).astype(dtype_of(argument.type.element_type))
        for argument, (_, _, inner) in zip(
            buffers(function, "results"), tensors[len(args) :], strict=False
        )
        if isinstance(argument.type, MemRefType)
    ]


def check(cases: Sequence[Case], vectors: Vectors = VECTORS) -> None:
    """As `kernel_harness.check`, with TVM in place of the C compiler."""
    functions = [lower_kernel(case.block, f"kernel{i}").function for i, case in enumerate(cases)]
    names = [function.sym_name.data for function in functions]
    made = []
    for function, name in zip(functions, names, strict=True):
        arranged, tiling = arrange(function, vectors)
        made.append(prim_func(arranged, name, noalias=False, tiling=tiling))
    library = build(made, names)
    for case, function, name in zip(cases, functions, names, strict=True):
        expected = interpret(case.block, case.args)
        for pairs in [(), *alias_pairs(function)]:
            results = run(library, name, function, case.args, pairs)
            for number, (a, b) in enumerate(zip(results, expected, strict=True)):
                # In kernels unsigned numbers have the signed type.
                a = a.view(b.dtype) if b.dtype == np.uint32 else a
                assert same_bits(a, b), (
                    f"{case.note} result {number} in place {pairs}: {a} expected {b}\n{function}"
                )


QUICK = ("elementwise_integers", "elementwise_booleans", "constants", "reduce", "scatter")


def _operation_tests() -> list[Any]:
    """The tests of the lowering that are lists of cases."""
    return [
        pytest.param(test, marks=() if name[5:] in QUICK else pytest.mark.slow)
        for name, test in vars(test_kernels_ops).items()
        if name.startswith("test_") and "check(" in inspect.getsource(test)
    ]


def _check_known(cases: Sequence[Case]) -> None:
    """Those cases that TVM has code for, of which there are some unless all have other types."""

    def is_known(op: Operation) -> bool:
        types = [element_type_of(value) for value in (*op.operands, *op.results)]
        is_integer_power = isinstance(op, hlo.PowerOp) and types[0] != f32
        return not is_integer_power and all(ELEMENT_TYPES[type].tvm for type in types)

    known = [case for case in cases if all(map(is_known, case.block.ops))]
    if known:
        # Compiling takes longest, and the C is checked with all of them.
        check(known if ALL else known[::3])


@pytest.mark.slow
@pytest.mark.parametrize("test", _operation_tests(), ids=lambda test: test.__name__[5:])
def test_operations(test: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_kernels_ops, "check", _check_known)
    if "seed" in inspect.signature(test).parameters:
        test(0)
    else:
        test()


@pytest.mark.slow
def test_guards_that_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_kernels_guards, "check", _check_known)
    test_kernels_guards.test_sums_go_past_padding_only_where_it_changes_nothing()
    test_kernels_guards.test_scatter_to_counted_places()
    test_kernels_guards.test_scatter_by_rows()
    test_kernels_guards.test_an_embedding_gradient_in_a_large_vocabulary((5, 800), (2, 12))


def convolution(strides: tuple[int, int], dilation: tuple[int, int]) -> Case:
    """A padded convolution over 8x8 pixels, or with holes, as for the gradient of strides."""
    dims = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 8, 8, 5)).astype(np.float32)
    w = rng.standard_normal((3, 3, 5, 6)).astype(np.float32)
    return Case.of(
        lambda a, b: hlo.ConvolutionOp(
            a, b, dims, strides=strides, padding=((1, 1), (1, 1)), lhs_dilation=dilation
        ),
        x,
        w,
    )


@pytest.mark.slow
@pytest.mark.parametrize("dilation", [(2, 2), *more(((1, 1),))])
def test_any_tiling_gives_the_same_bits(dilation: tuple[int, int]) -> None:
    case = convolution((1, 1), dilation)
    function = lower_kernel(case.block, "conv").function
    loops = [op for op in function.walk() if isinstance(op, affine.ForOp) and not op.inits]
    variables = [op.body.block.args[0].name_hint for op in loops]
    assert len(loops) == 4, variables
    expected = interpret(case.block, case.args)[0]
    made, names = [], []
    sizes = case.args[0].shape[0], *expected.shape[1:3], expected.shape[3]
    for number, copies in enumerate(product((1, 2), (1, 3), (1, 4), (1, 2))):
        for lanes in (1, 2, 4):
            tiling = {
                loop: pieces(size, count, lanes if loop is loops[-1] else 1)
                for loop, size, count in zip(loops, sizes, copies, strict=True)
            }
            names.append(f"conv_{number}_{lanes}")
            made.append(prim_func(function, names[-1], tiling=tiling))
    chosen = made[:: 4 if dilation == (1, 1) else 5]
    library = build(chosen, names[:: 4 if dilation == (1, 1) else 5])
    for made_function in chosen:
        name = str(made_function.attrs["global_symbol"])
        (result,) = run(library, name, function, case.args)
        assert same_bits(result, expected), name


@pytest.mark.slow
def test_weights_are_read_by_row() -> None:
    """Where they are larger than a cache: sums wait in the result, under guards, in tiles."""
    shapes = "1x5x4x256", "3x3x256x40", "1x5x4x40"
    function = read_by_row(CONVOLUTION, FINISHED, shapes, stride="[1, 1]", pad="[[1, 1], [1, 1]]")
    arranged, tiling = arrange(function, VECTORS)
    assert is_sequential(arranged) and any(p.lanes > 1 for p in chain(*tiling.values()))
    library = build([prim_func(arranged, "kernel", noalias=False, tiling=tiling)], ["kernel"])
    rng = np.random.default_rng(5)
    arguments = numbers_for(function, "inputs", rng)
    (expected,) = numbers_for(function, "results", rng)
    run_kernel(function, [*arguments, expected])
    (found,) = run(library, "kernel", function, arguments)
    assert same_bits(found, expected)


def test_pieces_cover_an_extent() -> None:
    for extent, copies, lanes in product(range(1, 40), (1, 2, 3, 5), (1, 4, 8)):
        at = 0
        for piece in pieces(extent, copies, lanes):
            assert piece.start == at
            at += piece.tiles * piece.iterations
        assert at == extent
    assert pieces(84, 2, 16) == (Piece(0, 2, 2, 16), Piece(64, 1, 1, 16), Piece(80, 1, 1, 4))


def test_loops_of_hot_kernels_run_along_lanes() -> None:
    """What the rules are for: channels along lanes, sums of many elements under way at once."""
    case = convolution((1, 1), (1, 1))
    arranged, tiling = arrange(lower_kernel(case.block, "conv").function, Vectors(4, 16))
    channels = [p.lanes for loop_pieces in tiling.values() for p in loop_pieces]
    assert max(channels) == 4
    copies = [max(p.copies for p in loop_pieces) for loop_pieces in tiling.values()]
    assert 8 <= np.prod(copies) <= 16
    assert [op.name for op in arranged.body.block.ops][-1] == "func.return"


def test_sums_along_rows_are_loaded_as_vectors_and_transposed() -> None:
    x = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((7, 20)).astype(np.float32)
    case = Case.of(lambda a, b: hlo.DotGeneralOp(a, b, lhs_contract=(1,), rhs_contract=(1,)), x, w)
    arranged, tiling = arrange(lower_kernel(case.block, "kernel0").function, VECTORS)
    assert "T.Shuffle" in prim_func(arranged, "kernel0", tiling=tiling).script()
    check([case])


SOFTMAX = """
    func.func @main(%x: tensor<ROWSx4xf32>) -> tensor<ROWSxf32> {
      %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %top = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
          : (tensor<ROWSx4xf32>, tensor<f32>) -> tensor<ROWSxf32>
      %tops = stablehlo.broadcast_in_dim %top, dims = [0]
          : (tensor<ROWSxf32>) -> tensor<ROWSx4xf32>
      %y = stablehlo.subtract %x, %tops : tensor<ROWSx4xf32>
      %z = stablehlo.exponential %y : tensor<ROWSx4xf32>
      %sum = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [1]
          : (tensor<ROWSx4xf32>, tensor<f32>) -> tensor<ROWSxf32>
      return %sum : tensor<ROWSxf32>
    }
"""


@pytest.mark.parametrize("vectors", [Vectors(8, 16), Vectors(16, 32)])
def test_loops_shorter_than_a_vector(vectors: Vectors) -> None:
    rng = np.random.default_rng(0)
    cases = []
    for rows in (1, 3, 7, 8, 9, 17):
        module = parse_module(SOFTMAX.replace("ROWS", str(rows)))
        main = next(op for op in module.ops if isinstance(op, func.FuncOp))
        cases.append(Case(main.body.block, [rng.standard_normal((rows, 4)).astype(np.float32)]))
    check(cases, vectors)


@pytest.mark.parametrize("lanes", [1, 4, 6])
def test_mathematical_functions(lanes: int) -> None:
    """All of them on random bits: denormals, infinities and NaN among them."""
    rng = np.random.default_rng(lanes)
    size = 240
    random = rng.integers(0, 2**32, (2, size), np.uint32).view(np.float32)
    x = np.concatenate([random[0], rng.standard_normal(size).astype(np.float32)])
    y = np.concatenate([random[1], (4 * rng.standard_normal(size)).astype(np.float32)])
    made, names = [], []
    for name, symbol in mathlib.symbols().items():
        arity = len(mathlib.functions()[symbol].body.block.args)
        made.append(_applied(symbol, arity, x.size, lanes))
        names.append(name)
    library = build(made, names)
    for name, symbol in mathlib.symbols().items():
        operands = [x, y][: len(mathlib.functions()[symbol].body.block.args)]
        expected = mathlib.evaluate(name, *operands)
        tensors = [_tensor(array) for array in (*operands, np.zeros_like(x))]
        library[name](*(view for _, view, _ in tensors))
        assert same_bits(tensors[-1][2], expected), name


def _applied(symbol: str, arity: int, size: int, lanes: int) -> Any:
    tirx, dtype = tvm.tirx, "float32" if lanes == 1 else f"float32x{lanes}"
    *inputs, output = (
        tirx.decl_buffer((size,), "float32", f"b{i}", data_alignment=4, offset_factor=1)
        for i in range(arity + 1)
    )
    i = tirx.Var("i", "int32")
    place = i if lanes == 1 else tirx.Ramp(i * lanes, tirx.IntImm("int32", 1), lanes)
    values = [tirx.BufferLoad(buffer, [place]) for buffer in inputs]
    called = tirx.call_pure_extern(dtype, mathir.function_name(symbol, lanes), *values)
    store = tirx.BufferStore(output, called, [place])
    loop = tirx.For(i, 0, size // lanes, tirx.ForKind.SERIAL, store)
    text = tvm.ir.StringImm(mathir.module_text([(symbol, lanes)]))
    whole = tirx.AttrStmt(tvm.ir.StringImm(""), "pragma_import_llvm", text, loop)
    name = next(name for name, found in mathlib.symbols().items() if found == symbol)
    return tirx.PrimFunc([*inputs, output], whole).with_attr("global_symbol", name)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_chains_of_choices(dtype: type) -> None:
    """Each choice uses the one before several times: what is written out for each use of it would
    be 3^40 long."""

    most = hlo.OrOp if dtype is np.bool_ else hlo.MaximumOp

    def chain(a, b):
        for i in range(40):
            test = hlo.CompareOp(a, b, "LT" if i % 2 else "GE", None)
            a, b = hlo.SelectOp(test, most(a, b), a), a
        return hlo.XorOp(a, b) if dtype is not np.float32 else hlo.AddOp(a, b)

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 10, 11).astype(dtype) for _ in range(2))
    check([Case.of(chain, x, y)])


def test_what_is_not_a_kernel_is_refused() -> None:
    unknown = parse_module("""
        func.func private @k(%x: memref<4xf32>, %y: memref<4xf32>) {
          affine.for %i = 0 to 4 {
            %a = affine.load %x[%i] : memref<4xf32>
            %b = math.erf %a : f32
            affine.store %b, %y[%i] : memref<4xf32>
          }
          func.return
        }
    """)
    with pytest.raises(InputError, match=r"does not know math\.erf"):
        prim_func(next(op for op in unknown.ops if isinstance(op, func.FuncOp)), "k")


def test_a_body_is_used() -> None:
    """The helpers above agree with the harness about the order of arguments."""
    block = body(lambda a, b: hlo.SubtractOp(a, b), [np.ones(3, "f"), np.ones(3, "f")])
    check([Case(block, [np.full(3, 5, "f"), np.full(3, 2, "f")])])
