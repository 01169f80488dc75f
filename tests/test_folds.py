"""Reductions of several operands, sorting and scatters by any combination, against XLA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run
from kernel_harness import same_bits
from xdsl.context import Context

from poetc.errors import InputError
from poetc.interpreter import run_func
from poetc.ir.text import module_text, parse_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from tests.models.make_results import xla_results

jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
jnp = jax.numpy
lax = jax.lax


def awkward(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Floats with ties, both zeros, infinities and NaN of both signs."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.5], np.float32)
    return np.where(rng.random(shape) < 0.3, rng.choice(special, shape), x).astype(np.float32)


def check(step: Callable, arguments: list[np.ndarray], folder: Path, *, exact: bool = True) -> None:
    """Interpreter and generated C do what XLA does, to the bit if `exact`, and both the same."""
    text = jax.jit(step).lower(*arguments).as_text()
    expected = xla_results(text, arguments)
    module = parse_module(text)
    found = run_func(module, arguments)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        if exact:
            assert same_bits(a, b), (number, a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=2e-6, err_msg=str(number))
    scheduled, _ = bring("folds", module, arguments, found).schedule(None)
    program = build(scheduled, folder, *SANITIZE)
    for number, (a, b) in enumerate(zip(run(program, arguments, found), found, strict=True)):
        assert same_bits(a, b), (number, a, b)


@pytest.mark.slow
def test_extreme_places(tmp_path: Path):
    x = [awkward((5, 7)), awkward((4, 3, 6), 1), np.full((2, 3), -np.inf, np.float32)]
    i = np.random.default_rng(2).integers(-2, 3, (6, 5)).astype(np.int32)

    def step(*args):
        both = [f(a, axis) for f in (jnp.argmax, jnp.argmin) for a in args for axis in (0, 1)]
        return [*both, jnp.argmax(args[0]), jnp.nanargmax(args[0], 1)]

    check(step, [*x, i], tmp_path)


@pytest.mark.slow
def test_several_values_are_carried(tmp_path: Path):
    def together(x, y, dims):
        """Sum and largest product so far, and how often it grew."""

        def body(old, new):
            product = lax.max(old[1], new[0] * new[1])
            grew = lax.convert_element_type(product > old[1], jnp.int32)
            return old[0] + new[0], product, old[2] + grew + new[2]

        zeros = jnp.zeros(x.shape, jnp.int32)
        inits = (np.float32(0), np.float32(0), np.int32(0))
        return lax.reduce((x, y, zeros), inits, body, dims)

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (3, 4, 5)).astype(np.float32) for _ in range(2))
    check(lambda x, y: [*together(x, y, (1,)), *together(x, y, (0, 2))], [x, y], tmp_path)


@pytest.mark.slow
def test_sorting(tmp_path: Path):
    x, y = awkward((4, 9)), awkward((9, 4, 2), 1)
    i = np.random.default_rng(2).integers(-2, 3, (4, 9)).astype(np.int32)

    def step(x, y, i):
        return [
            jnp.sort(x, 1),
            jnp.sort(y, 0),
            jnp.sort(i, 0),
            -jnp.sort(-i, 1),
            jnp.argsort(x, 1),
            jnp.argsort(y, 1, descending=True),
            *lax.sort((i, x, x), dimension=1, num_keys=2),
            *lax.sort((i, x), dimension=0, num_keys=1),
            *lax.top_k(x, 4),
            *lax.top_k(i, 9),
            jnp.median(i, 1),
            jnp.sort(x[:, :1], 1),
        ]

    check(step, [x, y, i], tmp_path)


@pytest.mark.slow
def test_scatters(tmp_path: Path):
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (6, 3)).astype(np.float32)
    i = rng.integers(-8, 8, (9,)).astype(np.int32)
    u = rng.integers(-3, 3, (9, 3)).astype(np.float32)

    def step(x, i, u):
        whole = [x.astype(jnp.int32), u.astype(jnp.int32)]
        return [
            getattr(a.at[i], name)(b)
            for a, b in ((x, u), whole)
            for name in ("add", "subtract", "multiply", "min", "max")
        ] + [x.at[i].apply(lambda old: old * old - 1)]

    check(step, [x, i, u], tmp_path)


def test_convolution_with_a_reversed_kernel(tmp_path: Path):
    x, y = (np.arange(n, dtype=np.float32) % 5 for n in (12, 4))
    check(lambda x, y: [jnp.convolve(x, y), jnp.correlate(x, y)], [x, y], tmp_path)


@pytest.mark.slow
def test_gradient_of_sorting(tmp_path: Path):
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)

    def loss(x):
        return (jnp.sort(x, 1)[:, 2:] ** 2).sum() + lax.top_k(x, 3)[0].sum() + jnp.max(x)

    check(jax.value_and_grad(loss), [x], tmp_path, exact=False)


def test_text_of_general_reductions_is_read_again():
    def step(x):
        return jnp.argmax(x, 1), jnp.sort(x, 0), lax.top_k(x, 2)

    x = awkward((3, 4))
    module = parse_module(jax.jit(step).lower(x).as_text())
    again = parse_module(module_text(module))
    assert module_text(again) == module_text(module)
    for a, b in zip(run_func(again, [x]), run_func(module, [x]), strict=True):
        assert same_bits(a, b)


def test_a_body_that_is_no_arithmetic_is_refused_by_name():
    text = """
    func.func @main(%x: tensor<4xf32>, %i: tensor<f32>) -> tensor<f32> {
      %0 = stablehlo.reduce(%x init: %i) across dimensions = [0]
        : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
       reducer(%a: tensor<f32>, %b: tensor<f32>) {
        %1 = stablehlo.subtract %a, %b : tensor<f32>
        %2 = stablehlo.reshape %1 : (tensor<f32>) -> tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }
      return %0 : tensor<f32>
    }"""
    with pytest.raises(InputError, match=r"stablehlo.reduce: stablehlo.reshape in its body is not"):
        StableHLOSimplifyPass().apply(Context(), parse_module(text))
