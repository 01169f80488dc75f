"""Steps that draw random numbers from a key, as JAX writes them, against XLA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run
from kernel_harness import same_bits
from xdsl.context import Context

from poetc.interpreter import run_func
from poetc.ir.text import parse_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
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
    program = build(scheduled, folder, *SANITIZE, "-O0")
    for number, (a, b) in enumerate(zip(run(program, arguments, found), found, strict=True)):
        assert same_bits(a, b), number


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
