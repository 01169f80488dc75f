"""Gradient accumulation and a learning rate that is set for each step, with JAX.

    pip install 'poetc[jax]'
    python examples/accumulation.py

A batch is given in parts, one a step: each adds to the sums of gradients, which the program keeps
like parameters, and the last one updates the parameters. RAM is that of one part. The learning rate
and whether it is the last part are inputs, scalars like any tensor. What comes out is compared
with a step on the whole batch.
"""

from __future__ import annotations

import sys

import numpy as np

try:
    import jax  # pyright: ignore[reportMissingImports]
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[jax]'", file=sys.stderr)
    sys.exit(2)

import poetc

BATCH, PARTS, STEPS = 16, 8, 3


def loss(params, x, labels):
    x = jax.lax.conv_general_dilated(
        x, params["conv"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    logits = jnp.tanh(x).mean((1, 2)) @ params["out"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


def whole(params, x, labels, rate):
    """A step on the whole batch."""
    value, gradients = jax.value_and_grad(loss)(params, x, labels)
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients), value


def part(params, sums, x, labels, rate, last):
    """A step on a part of it."""
    value, gradients = jax.value_and_grad(loss)(params, x, labels)
    sums = jax.tree.map(lambda s, g: s + g / PARTS, sums, gradients)
    params = jax.tree.map(lambda p, s: jnp.where(last, p - rate * s, p), params, sums)
    sums = jax.tree.map(lambda s: jnp.where(last, jnp.zeros_like(s), s), sums)
    return params, sums, value


def main() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "conv": 0.3 * jax.random.normal(keys[0], (3, 3, 3, 8)),
        "out": 0.3 * jax.random.normal(keys[1], (8, 4)),
    }
    x = np.asarray(jax.random.normal(keys[2], (BATCH, 12, 12, 3)))
    labels = np.asarray(jax.random.randint(keys[3], (BATCH,), 0, 4))
    sums = jax.tree.map(jnp.zeros_like, params)
    size = BATCH // PARTS
    at_once = poetc.compile(whole, (params, x, labels, np.float32(0)))
    in_parts = poetc.compile(
        part, (params, sums, x[:size], labels[:size], np.float32(0), np.bool_(False))
    )
    for step in range(STEPS):
        rate = np.float32(0.5 / (1 + step))
        at_once.step(x, labels, rate)
        for k in range(PARTS):
            batch = slice(k * size, (k + 1) * size)
            in_parts.step(x[batch], labels[batch], rate, np.bool_(k == PARTS - 1))
    print(f"a batch of {BATCH}:  {at_once.ram_bytes:,} B of RAM")
    print(f"{PARTS} parts of {size}:    {in_parts.ram_bytes:,} B of RAM")
    trained, expected = in_parts.tree("params"), at_once.tree("params")
    difference = max(float(np.abs(trained[n] - expected[n]).max()) for n in expected)
    print(f"parameters after {STEPS} updates differ by {difference:.0e}")


if __name__ == "__main__":
    main()
