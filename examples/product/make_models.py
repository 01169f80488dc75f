"""The two models of the product, and the data that its firmware has in flash.

    pip install 'poetc[jax]'
    python examples/product/make_models.py DIRECTORY

Writes into the directory `gesture`, a step that trains a perceptron on the device and the
prediction with the same weights, `wake`, a prediction with weights that never change, as .mlir and
.npz each, and `inputs.h` with inputs and labels.
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

import numpy as np

from poetc.frontends.jax import export

STEPS, BATCH, INPUTS, HIDDEN, CLASSES = 6, 4, 36, 32, 6
RATE = 0.1


def perceptron(key, *sizes):
    """Weights and biases of layers with these numbers of units."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (a, b)) / a**0.5, "b": jnp.zeros(b)}
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def step(params, x, labels):
    def loss(params):
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(forward(params, x)), labels[:, None], axis=1
        )
        return -picked.mean()

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), value


def predict(params, sample):
    return jax.nn.softmax(forward(params, sample))


def table(name: str, array: np.ndarray) -> str:
    """An array as a constant of C."""
    kind = "float" if array.dtype == np.float32 else "int32_t"
    shape = "".join(f"[{n}]" for n in (array.shape[0], array[0].size))
    rows = (
        "{" + ", ".join(f"{v}f" if kind == "float" else str(v) for v in row.ravel()) + "}"
        for row in array
    )
    return f"static const {kind} {name}{shape} = {{\n" + ",\n".join(rows) + "};\n"


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    keys = jax.random.split(jax.random.key(7), 5)
    params = perceptron(keys[0], INPUTS, HIDDEN, 16, CLASSES)
    samples = jax.random.normal(keys[1], (STEPS, BATCH, INPUTS))
    labels = jax.random.randint(keys[2], (STEPS, BATCH), 0, CLASSES, jnp.int32)
    export(
        step,
        (params, samples[0], labels[0]),
        directory / "gesture",
        predict=(predict, (params, samples[0, :1])),
    )
    wake = perceptron(keys[3], INPUTS, 24, 2)
    # Nothing is updated: the weights are constants, in flash.
    asleep = jax.jit(lambda sample: predict(wake, sample))
    export(asleep, (samples[0, :1],), directory / "wake", donate_argnums=())
    text = "#include <stdint.h>\n\n" + table("samples", np.asarray(samples))
    (directory / "inputs.h").write_text(text + table("labels", np.asarray(labels)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_models.py DIRECTORY")
    main(Path(sys.argv[1]))
