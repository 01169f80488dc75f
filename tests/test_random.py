"""Steps that draw random numbers from a key, as JAX writes them, against XLA."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run
from kernel_harness import same_bits
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from poetc.errors import InputError
from poetc.interpreter import run_func
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.text import module_text, parse_module
from poetc.ir.types import ui8, ui16, ui32, ui64
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.pipeline import front_passes
from tests.models.make_results import xla_results

jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
jnp = jax.numpy
random = jax.random


def check(step, arguments: list[np.ndarray], folder: Path, *exact: int) -> None:
    """Interpreter and C do the same, and what XLA does: to the bit for the results in `exact`."""
    text = jax.jit(step).lower(*arguments).as_text()
    module = parse_module(text)
    found = run_func(module, arguments)
    for number, (a, b) in enumerate(zip(found, xla_results(text, arguments), strict=True)):
        if number in exact:
            assert same_bits(a, b), number
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(number))
    scheduled, _ = bring("random", module, arguments, found).schedule(None)
    program = build(scheduled, folder, *SANITIZE)
    for number, (a, b) in enumerate(zip(run(program, arguments, found), found, strict=True)):
        assert same_bits(a, b), number


@pytest.mark.slow
def test_dropout_from_a_key(tmp_path: Path):
    """A step of SGD with dropout, that also gives the key of the next step."""

    def step(w, key, x, y):
        next_key, key = random.split(key)

        def loss(w):
            keep = random.bernoulli(key, 0.5, x.shape)
            return jnp.mean((jnp.where(keep, x * 2, 0.0) @ w - y) ** 2)

        return next_key, w - 0.1 * jax.grad(loss)(w)

    rng = np.random.default_rng(0)
    w, x, y = (rng.standard_normal(n).astype(np.float32) for n in ((6, 2), (4, 6), (4, 2)))
    key = np.asarray(random.PRNGKey(7))
    check(step, [w, key, x, y], tmp_path, 0)


@pytest.mark.slow
def test_draws(tmp_path: Path):
    def step(key):
        keys = random.split(key, 4)
        return [
            random.bits(keys[0], (5,)),
            random.uniform(keys[1], (3, 3)),
            random.randint(keys[2], (7,), -4, 9),
            random.permutation(keys[3], 6),
            random.fold_in(key, 3),
        ]

    check(step, [np.asarray(random.PRNGKey(3))], tmp_path, 0, 1, 2, 3, 4)


@pytest.mark.slow
def test_dropout_from_a_key_of_the_device(tmp_path: Path):
    """`rbg` asks the compiler for bits, by a generator whose key is words of 64 bits."""

    def step(w, key, x, y):
        next_key, key = random.split(random.wrap_key_data(key, impl="rbg"))

        def loss(w):
            hidden = jnp.where(random.bernoulli(key, 0.75, x.shape), x / 0.75, 0.0) @ w
            noise = random.normal(random.fold_in(key, 1), hidden.shape)
            return jnp.mean((hidden + jnp.exp(0.1 * hidden) * noise - y) ** 2)

        return random.key_data(next_key), w - 0.1 * jax.grad(loss)(w)

    rng = np.random.default_rng(0)
    w, x, y = (rng.standard_normal(n).astype(np.float32) for n in ((6, 3), (5, 6), (5, 3)))
    key = np.asarray(random.key_data(random.key(7, impl="rbg")))
    check(step, [w, key, x, y], tmp_path, 0)


def test_random_bits_are_not_stored():
    """The mask of a dropout is computed where it is read."""

    def draw(key, x):
        keep = random.bernoulli(random.wrap_key_data(key, impl="rbg"), 0.5, x.shape)
        return jnp.where(keep, x * 2, 0.0)

    key = random.key_data(random.key(1, impl="rbg"))
    module = parse_module(jax.jit(draw).lower(key, np.ones((32, 16), np.float32)).as_text())
    for compile_pass in front_passes(module, "host"):
        compile_pass.apply(Context(), module)
    (graph,) = graphs(module)
    large = [v for c in graph.computes for v in c.results if tensor_bytes(v.type) > 16]
    assert [str(value.type) for value in large] == ["tensor<32x16xf32>"]


_DRAWN = (
    *((ui8, shape) for shape in ((5,), (2, 3))),
    *((ui16, shape) for shape in ((7,), (6, 2))),
    *((ui64, shape) for shape in ((), (3,), (2, 3))),
    *((ui32, shape) for shape in ((), (1,), (4,), (5,), (3, 4), (3, 5), (5, 7, 3), (3, 2, 6))),
    *((ui32, shape) for shape in ((7, 7), (3, 0), (999,))),
)
_LAST = 2**64 - 1
_STATES = (
    ("THREE_FRY", [1, 2], _DRAWN),
    ("THREE_FRY", [0x123456789ABCDEF, _LAST - 1], _DRAWN[-1:]),
    ("PHILOX", [3, _LAST - 1, _LAST], _DRAWN[::3]),
    ("DEFAULT", [0x123456789ABCDEF, _LAST], _DRAWN[1::4]),
    ("DEFAULT", [7, 1, 2], _DRAWN[2::6]),
)


@pytest.mark.slow
def test_bits_of_a_generator():
    """All at once: XLA takes long for each program."""
    arguments = [np.array(state, np.uint64) for _, state, _ in _STATES]
    block = Block(arg_types=[TensorType(ui64, state.shape) for state in arguments])
    draws = [
        hlo.RngBitGeneratorOp(value, TensorType(element, shape), algorithm)
        for value, (algorithm, _, drawn) in zip(block.args, _STATES, strict=True)
        for element, shape in drawn
    ]
    results = [value for op in draws for value in op.results]
    block.add_ops([*draws, ReturnOp(*results)])
    types = [value.type for value in results]
    main = FuncOp("main", (block.arg_types, types), Region(block), visibility="public")
    text = module_text(ModuleOp([main]))
    module = parse_module(text)
    StableHLOSimplifyPass().apply(Context(), module)
    assert not any(hlo.is_expanded(op) for op in module.walk())
    found = run_func(parse_module(text), arguments)
    for op, a, b, c in zip(
        [op for op in draws for _ in range(2)],
        found,
        run_func(module, arguments),
        xla_results(text, arguments),
        strict=True,
    ):
        assert same_bits(a, c) and same_bits(b, c), op


@pytest.mark.parametrize(
    "operation, result, message",
    [
        (
            "rng_bit_generator %x, algorithm = THREE_FRY :",
            "tensor<2xui32>",
            "the state has the shape [3], expected 2 words",
        ),
        (
            "rng_bit_generator %x, algorithm = DEFAULT :",
            "tensor<2xf32>",
            "result 1 has elements of type f32, expected ui8 or ui16 or ui32 or ui64",
        ),
        (
            "bitcast_convert %x :",
            "tensor<3xf32>",
            "elements of [8, 4] bytes, so that tensor<3xf32> should be tensor<3x2xf32>",
        ),
        (
            "bitcast_convert %x :",
            "tensor<2x3xf32>",
            "elements of [8, 4] bytes, so that tensor<2x3xf32> should be tensor<3x2xf32>",
        ),
    ],
)
def test_shapes_and_types_of_bits_are_checked(operation: str, result: str, message: str):
    state = "tensor<3xui64>, " if operation.startswith("rng") else ""
    names = "%state, %found" if state else "%found"
    text = f"""func.func @main(%x: tensor<3xui64>) -> {result} {{
      {names} = stablehlo.{operation} (tensor<3xui64>) -> ({state}{result})
      return %found : {result}
    }}"""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        parse_module(text)
    assert caught.value.location is not None and caught.value.location.line == 2


def test_64_bits_become_32_where_all_values_fit():
    text = """
    func.func @main(%x: tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi64>) {
      %0 = stablehlo.convert %x : (tensor<4xi32>) -> tensor<4xi64>
      %1 = stablehlo.add %0, %0 : tensor<4xi64>
      %2 = stablehlo.convert %1 : (tensor<4xi64>) -> tensor<4xf32>
      %3 = stablehlo.iota dim = 0 : tensor<4xi64>
      %4 = stablehlo.multiply %3, %3 : tensor<4xi64>
      %5 = stablehlo.convert %4 : (tensor<4xi64>) -> tensor<4xf32>
      %6 = stablehlo.multiply %2, %5 : tensor<4xf32>
      return %6, %1 : tensor<4xf32>, tensor<4xi64>
    }"""
    module = parse_module(text)
    x = np.array([2**31 - 1, -(2**31), 5, -1], np.int32)
    expected = [2.0 * x.astype(np.float32) * np.arange(4, dtype=np.float32) ** 2, 2 * x.astype(int)]
    StableHLOSimplifyPass().apply(Context(), module)
    for a, b in zip(run_func(module, [x]), expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    types = {op.name: str(op.results[0].type) for op in module.walk() if op.results}
    assert types["stablehlo.iota"] == "tensor<4xi32>"
    assert types["stablehlo.add"] == "tensor<4xi64>"
