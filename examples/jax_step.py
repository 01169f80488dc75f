"""Export a training step of JAX for poetc.

    pip install 'poetc[jax]'
    python examples/jax_step.py DIRECTORY

writes DIRECTORY/step.mlir and DIRECTORY/step.npz. Then

    poetc DIRECTORY/step.mlir --ram=7200 --emit=c -o DIRECTORY/out
    make -C DIRECTORY/out
    python examples/run_c.py DIRECTORY/out DIRECTORY/step.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import jax  # pyright: ignore[reportMissingImports]
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[jax]'", file=sys.stderr)
    sys.exit(2)

from poetc.frontends.jax import export

RATE, MOMENTUM = 0.1, 0.9


def loss(params, x, labels):
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["out"]["w"] + params["out"]["b"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


def step(params, velocity, x, labels):
    value, gradients = jax.value_and_grad(loss)(params, x, labels)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradients)
    params = jax.tree.map(lambda p, v: p - RATE * v, params, velocity)
    return params, velocity, value


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/jax_step.py DIRECTORY")
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "hidden": {"w": 0.2 * jax.random.normal(keys[0], (30, 16)), "b": jnp.zeros(16)},
        "out": {"w": 0.3 * jax.random.normal(keys[1], (16, 5)), "b": jnp.zeros(5)},
    }
    velocity = jax.tree.map(jnp.zeros_like, params)
    x = jax.random.normal(keys[2], (8, 30))
    labels = jax.random.randint(keys[3], (8,), 0, 5)

    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    written = export(step, (params, velocity, x, labels), directory / "step", results=True)
    for number, name in enumerate(written.names):
        result = written.updates.get(number)
        print(f"arg{number} {name}{'' if result is None else f', updated by out{result}'}")


if __name__ == "__main__":
    main()
