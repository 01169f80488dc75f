"""Fine-tuning in little RAM: what is not trained is read from flash.

    pip install 'poetc[jax]'
    python examples/fine_tuning.py [DIRECTORY]

The model is a convolutional network for spectrograms of 32 x 16. Its step is written in several
ways (DIRECTORY/NAME.mlir and .npz) and compiled for unlimited RAM. Printed is what each takes: RAM,
weights that are read where they are, and time on the default device relative to training
everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import jax  # pyright: ignore[reportMissingImports]
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[jax]'", file=sys.stderr)
    sys.exit(2)

from poetc.frontends.jax import export

RATE, RANK = 0.05, 4
AXES = ("NHWC", "HWIO", "NHWC")


def forward(params, x, adapter=None):
    x = jax.lax.conv_general_dilated(x, params["c1"]["w"], (2, 2), "SAME", dimension_numbers=AXES)
    x = jax.nn.relu(x + params["c1"]["b"])
    x = jax.lax.conv_general_dilated(x, params["c2"]["w"], (2, 2), "SAME", dimension_numbers=AXES)
    x = jax.nn.relu(x + params["c2"]["b"]).reshape(x.shape[0], -1)
    y = x @ params["hidden"]["w"] + params["hidden"]["b"]
    if adapter is not None:
        y = y + (x @ adapter["down"]) @ adapter["up"]
    return jnp.tanh(y) @ params["head"]["w"] + params["head"]["b"]


def loss_of(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


def everything(params, x, labels):
    loss, gradients = jax.value_and_grad(lambda p: loss_of(forward(p, x), labels))(params)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), loss


def last_layer(params, x, labels):
    def loss(head):
        return loss_of(forward(params | {"head": head}, x), labels)

    value, gradients = jax.value_and_grad(loss)(params["head"])
    head = jax.tree.map(lambda p, g: p - RATE * g, params["head"], gradients)
    return params | {"head": head}, value


def quantised(body):
    """Weights of 8 bits, with a scale for each channel; biases as they are."""

    def layer(layer):
        scale = jnp.max(jnp.abs(layer["w"]), tuple(range(layer["w"].ndim - 1))) / 127
        return {
            "q": jnp.round(layer["w"] / scale).astype(jnp.int8),
            "scale": scale,
            "b": layer["b"],
        }

    return {name: layer(body[name]) for name in body}


def last_layer_int8(head, body, x, labels):
    """The kernels decode a weight element by element, where they read it."""
    decoded = {
        name: {"w": layer["q"].astype(jnp.float32) * layer["scale"], "b": layer["b"]}
        for name, layer in body.items()
    }
    params, value = last_layer(decoded | {"head": head}, x, labels)
    return params["head"], value


def lora(adapter, base, x, labels):
    value, gradients = jax.value_and_grad(lambda a: loss_of(forward(base, x, a), labels))(adapter)
    return jax.tree.map(lambda p, g: p - RATE * g, adapter, gradients), value


def main() -> None:
    if len(sys.argv) > 2:
        sys.exit("usage: python examples/fine_tuning.py [DIRECTORY]")
    keys = iter(jax.random.split(jax.random.key(0), 8))

    def layer(*shape):
        fan_in = jnp.prod(jnp.array(shape[:-1]))
        return {
            "w": jax.random.normal(next(keys), shape) / jnp.sqrt(fan_in),
            "b": jnp.zeros(shape[-1]),
        }

    params = {
        "c1": layer(3, 3, 1, 8),
        "c2": layer(3, 3, 8, 16),
        "hidden": layer(8 * 4 * 16, 32),
        "head": layer(32, 6),
    }
    adapter = {
        "down": jax.random.normal(next(keys), (8 * 4 * 16, RANK)) / 20,
        "up": jnp.zeros((RANK, 32)),
    }
    body = {name: params[name] for name in params if name != "head"}
    x = jax.random.normal(next(keys), (4, 32, 16, 1))
    labels = jnp.array([0, 3, 5, 1])
    ways = {
        "everything": (everything, (params, x, labels), {}, []),
        "last layer": (last_layer, (params, x, labels), {}, []),
        "last layer, f16": (last_layer, (params, x, labels), {}, ["--pages=f16"]),
        "last layer, int8": (
            last_layer_int8,
            (params["head"], quantised(body), x, labels),
            {"frozen": "body"},
            [],
        ),
        "last layer, on storage": (
            last_layer,
            (params, x, labels),
            {},
            ["--frozen=storage", "--ram=80KB"],
        ),
        "LoRA, rank 4": (lora, (adapter, params, x, labels), {"frozen": "base"}, []),
        "biases": (everything, (params, x, labels), {}, ["--train=*.b"]),
        "head, 4 channels of c2": (
            everything,
            (params, x, labels),
            {},
            ["--train=params.head,params.c2.w@3:0:4"],
        ),
    }
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(sys.argv[1] if len(sys.argv) == 2 else scratch)
        directory.mkdir(parents=True, exist_ok=True)
        print(f"{'trained':24}{'RAM':>12}{'frozen':>12}{'time':>8}")
        whole_ns = 0
        for name, (step, args, options, flags) in ways.items():
            written = export(
                step, args, directory / name.replace(",", "").replace(" ", "_"), **options
            )
            command = [
                "poetc",
                str(written.mlir),
                *flags,
                "--json",
                "-o",
                str(directory / "ir.mlir"),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            report = json.loads(done.stderr)
            whole_ns = whole_ns or report["time_ns"]
            ram, frozen = report["ram"]["total_bytes"], report["ram"]["caller_bytes"]["frozen"]
            frozen += report["frozen_on_storage_bytes"]
            print(f"{name:24}{ram:10,} B{frozen:10,} B{report['time_ns'] / whole_ns:8.2f}")


if __name__ == "__main__":
    main()
