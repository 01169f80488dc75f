"""Data, a perceptron and losses that the steps of several JAX libraries share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from registry import JaxStep, jax

jnp: Any = jax.numpy
Array = Any


def normal(*shape: int, scale: float = 1.0, seed: int = 0) -> Array:
    """Random numbers, the same each time."""
    numbers = np.random.default_rng((seed, *shape)).normal(0.0, scale, shape)
    return jnp.asarray(numbers, jnp.float32)


def filled(shapes: Any, scale: float = 0.3) -> Any:
    """Random numbers for the floats of a tree of shapes (`jax.eval_shape`), which takes less time
    than to initialise a network; what is called scale is near one, variances are positive, integers
    are zero."""

    def fill(path: Any, leaf: Any) -> Any:
        seed = sum(map(ord, jax.tree_util.keystr(path)))
        name = jax.tree_util.keystr(path[-1:])
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        numbers = normal(*leaf.shape, scale=scale, seed=seed)
        if "var" in name:
            return abs(numbers) + 0.5
        return 1.0 + numbers if "scale" in name else numbers

    return jax.tree_util.tree_map_with_path(fill, shapes)


X = normal(4, 8)
LABELS = np.array([0, 1, 3, 2], np.int32)


def dense(*sizes: int) -> list[dict[str, Array]]:
    """Parameters of `mlp`."""
    return [
        {"w": normal(a, b, scale=(2 / a) ** 0.5, seed=i), "b": normal(b, scale=0.1, seed=i)}
        for i, (a, b) in enumerate(pairwise(sizes))
    ]


def mlp(params: list[dict[str, Array]], x: Array) -> Array:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def mlp_smooth(params: list[dict[str, Array]], x: Array) -> Array:
    """One hidden layer, without corners."""
    return jnp.tanh(x @ params[0]["w"] + params[0]["b"]) @ params[1]["w"] + params[1]["b"]


def cross_entropy(logits: Array, labels: Array) -> Array:
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -picked.mean()


def classify(params: Any, x: Array, labels: Array) -> Array:
    return cross_entropy(mlp(params, x), labels)


def descend(params: Any, gradients: Any, rate: float = 0.05) -> Any:
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients)


def sgd(loss: Callable[..., Array], params: Any, *batch: Any) -> JaxStep:
    """A step of gradient descent."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        return descend(params, gradients), value

    return JaxStep(step, (params, *batch))


def sgd_with_key(loss: Callable[..., Array], params: Any, *batch: Any) -> JaxStep:
    """The same of a loss that takes random numbers; the key, which each step splits, comes after
    the parameters."""

    def step(params: Any, key: Any, *batch: Any) -> Any:
        following, key = jax.random.split(key)
        value, gradients = jax.value_and_grad(loss)(params, key, *batch)
        return descend(params, gradients), following, value

    return JaxStep(step, (params, jax.random.PRNGKey(0), *batch), state=2, donate=True)
