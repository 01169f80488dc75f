"""Training steps in plain JAX for the tests of its frontend: small ones of five kinds of network.

Each is a function with arguments for it. Images are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
jnp = jax.numpy
lax = jax.lax


@dataclass(frozen=True)
class Training:
    """A step and its arguments. `state` says how many of these the step returns, updated, as its
    last results in the same order; what comes before them is the loss."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    state: int


class _Weights:
    """Random parameters, the same each time."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)

    def dense(self, inputs: int, outputs: int) -> dict[str, Any]:
        return {"w": self.kernel(inputs, outputs), "b": jnp.zeros(outputs)}

    def kernel(self, *shape: int) -> Any:
        scale = np.sqrt(2 / np.prod(shape[:-1]))
        return jnp.asarray(self.random.normal(0, scale, shape), jnp.float32)

    def images(self, *shape: int) -> Any:
        return jnp.asarray(self.random.normal(0, 1, shape), jnp.float32)

    def labels(self, *shape: int, classes: int) -> Any:
        return jnp.asarray(self.random.integers(0, classes, shape), jnp.int32)


def _dense(p: Any, x: Any) -> Any:
    return x @ p["w"] + p["b"]


def _conv(w: Any, x: Any, stride: int = 1, padding: str = "SAME", groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _cross_entropy(logits: Any, labels: Any) -> Any:
    logs = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(logs, labels[..., None], axis=-1).mean()


def _sgd(params: Any, gradients: Any, rate: float) -> Any:
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients)


class _BatchNorm:
    """Batch norm in training: collects the new running statistics of each place."""

    def __init__(self, params: Any, running: Any) -> None:
        self.params, self.running, self.new = params, running, {}

    @staticmethod
    def initial(channels: dict[str, int], make: _Weights) -> tuple[Any, Any]:
        # With no shift, a scale has no effect where a convolution and another norm follow, and its
        # gradient is rounding errors.
        params = {
            n: {"scale": jnp.ones(c), "shift": make.kernel(1, c)[0]} for n, c in channels.items()
        }
        running = {n: {"mean": jnp.zeros(c), "var": jnp.ones(c)} for n, c in channels.items()}
        return params, running

    def __call__(self, name: str, x: Any) -> Any:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        old, p = self.running[name], self.params[name]
        self.new[name] = {
            "mean": 0.9 * old["mean"] + 0.1 * mean,
            "var": 0.9 * old["var"] + 0.1 * var,
        }
        return (x - mean) * lax.rsqrt(var + 1e-5) * p["scale"] + p["shift"]


def _batch_norm_step(apply: Callable[..., Any], rate: float) -> Callable[..., Any]:
    """SGD with momentum for a network with running statistics."""

    def step(params: Any, momentum: Any, running: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            norm = _BatchNorm(params["norm"], running)
            return _cross_entropy(apply(params, norm, x), y), norm.new

        (value, new_running), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return value, _sgd(params, momentum, rate), momentum, new_running

    return step


def mlp() -> Training:
    """Momentum, with the state nested in the results and in another order than the arguments."""
    make = _Weights()
    params = {"hidden": make.dense(36, 24), "out": make.dense(24, 6)}

    def step(params: Any, momentum: Any, rate: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return _cross_entropy(_dense(p["out"], jnp.tanh(_dense(p["hidden"], x))), y)

        value, gradients = jax.value_and_grad(loss)(params)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return value, _sgd(params, momentum, rate), momentum

    batch = make.images(4, 36), make.labels(4, classes=6)
    return Training(step, (params, jax.tree.map(jnp.zeros_like, params), 0.1, *batch), 2)


def lenet() -> Training:
    make = _Weights()
    params = [make.kernel(5, 5, 1, 6), make.kernel(5, 5, 6, 16)]
    params = {"conv": params, "dense": [make.dense(16 * 9, 32), make.dense(32, 10)]}

    @partial(jax.jit, donate_argnums=0)
    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            h = x
            for w in p["conv"]:
                h = _pool(jnp.tanh(_conv(w, h, padding="SAME")))
            first, last = p["dense"]
            return _cross_entropy(_dense(last, jax.nn.relu(_dense(first, h.reshape(2, -1)))), y)

        value, gradients = jax.value_and_grad(loss)(params)
        return value, _sgd(params, gradients, 0.05)

    return Training(step, (params, make.images(2, 12, 12, 1), make.labels(2, classes=10)), 1)


def resnet8() -> Training:
    make = _Weights()
    widths = (8, 16, 32)
    params: dict[str, Any] = {"first": make.kernel(3, 3, 3, 8), "out": make.dense(32, 10)}
    channels = {"first": 8}
    for i, (old, new) in enumerate(zip((8, *widths), widths, strict=False)):
        params[f"block{i}"] = {"a": make.kernel(3, 3, old, new), "b": make.kernel(3, 3, new, new)}
        if old != new:
            params[f"block{i}"]["short"] = make.kernel(1, 1, old, new)
        channels |= {f"{i}a": new, f"{i}b": new}
    params["norm"], running = _BatchNorm.initial(channels, make)

    def apply(p: Any, norm: _BatchNorm, x: Any) -> Any:
        h = jax.nn.relu(norm("first", _conv(p["first"], x)))
        for i in range(3):
            block = p[f"block{i}"]
            stride = 2 if "short" in block else 1
            left = jax.nn.relu(norm(f"{i}a", _conv(block["a"], h, stride)))
            left = norm(f"{i}b", _conv(block["b"], left))
            right = _conv(block["short"], h, stride) if "short" in block else h
            h = jax.nn.relu(left + right)
        return _dense(p["out"], h.mean((1, 2)))

    args = params, jax.tree.map(jnp.zeros_like, params), running
    batch = make.images(2, 16, 16, 3), make.labels(2, classes=10)
    return Training(_batch_norm_step(apply, 0.05), (*args, *batch), 3)


def dscnn() -> Training:
    make = _Weights()
    width, blocks = 16, 4
    params: dict[str, Any] = {"first": make.kernel(10, 4, 1, width), "out": make.dense(width, 12)}
    channels = {"first": width}
    for i in range(blocks):
        params[f"block{i}"] = {
            "depth": make.kernel(3, 3, 1, width),
            "point": make.kernel(1, 1, width, width),
        }
        channels |= {f"{i}depth": width, f"{i}point": width}
    params["norm"], running = _BatchNorm.initial(channels, make)

    def apply(p: Any, norm: _BatchNorm, x: Any) -> Any:
        h = jax.nn.relu(norm("first", _conv(p["first"], x, 2)))
        for i in range(blocks):
            block = p[f"block{i}"]
            h = jax.nn.relu(norm(f"{i}depth", _conv(block["depth"], h, groups=width)))
            h = jax.nn.relu(norm(f"{i}point", _conv(block["point"], h)))
        return _dense(p["out"], h.mean((1, 2)))

    args = params, jax.tree.map(jnp.zeros_like, params), running
    batch = make.images(2, 25, 10, 1), make.labels(2, classes=12)
    return Training(_batch_norm_step(apply, 0.05), (*args, *batch), 3)


def transformer() -> Training:
    """Two blocks with causal attention, trained with Adam, whose state has a counter."""
    make = _Weights()
    words, length, width, heads = 20, 6, 16, 2

    def norm() -> dict[str, Any]:
        return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}

    def block() -> dict[str, Any]:
        names = ("q", "k", "v", "o")
        attention = {name: make.kernel(width, width) for name in names}
        dense = {"up": make.dense(width, 32), "down": make.dense(32, width)}
        return {"attention": attention, **dense, "norm1": norm(), "norm2": norm()}

    params = {
        "words": make.kernel(words, width),
        "places": make.kernel(length, width),
        "blocks": [block(), block()],
        "norm": norm(),
    }

    def normed(p: Any, x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return centred * scale * p["scale"] + p["shift"]

    def attention(p: Any, x: Any) -> Any:
        q, k, v = ((x @ p[n]).reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3) for n in "qkv")
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(width // heads)
        mask = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        return (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ p["o"]

    def apply(p: Any, tokens: Any) -> Any:
        x = p["words"][tokens] + p["places"]
        for b in p["blocks"]:
            x = x + attention(b["attention"], normed(b["norm1"], x))
            inner = jax.nn.gelu(_dense(b["up"], normed(b["norm2"], x)), approximate=False)
            x = x + _dense(b["down"], inner)
        return normed(p["norm"], x) @ p["words"].T

    def step(params: Any, adam: Any, tokens: Any, targets: Any) -> Any:
        value, gradients = jax.value_and_grad(lambda p: _cross_entropy(apply(p, tokens), targets))(
            params
        )
        count = adam["count"] + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, adam["first"], gradients)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, adam["second"], gradients)

        def update(p: Any, m: Any, v: Any) -> Any:
            t = count.astype(jnp.float32)
            return p - 1e-3 * m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-6)

        params = jax.tree.map(update, params, first, second)
        return value, params, {"count": count, "first": first, "second": second}

    zeros = jax.tree.map(jnp.zeros_like, params)
    adam = {"count": jnp.zeros((), jnp.int32), "first": zeros, "second": zeros}
    batch = (make.labels(2, length, classes=words) for _ in range(2))
    return Training(step, (params, adam, *batch), 2)
