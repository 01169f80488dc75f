"""Training steps with loops and branches, written in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Step = Callable[..., Any]


def _cell(params: Any, hidden: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["x"] + hidden @ params["h"] + params["b"])


def _descend(loss_of: Step) -> Step:
    """A step of gradient descent: new parameters and the loss."""

    def step(params: Any, *batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    return step


def rnn_loss(params: Any, xs: Any, target: Any) -> Any:
    """Of the last state and of all outputs."""

    def advance(hidden: Any, x: Any) -> Any:
        hidden = _cell(params, hidden, x)
        return hidden, hidden @ params["out"]

    hidden, outputs = jax.lax.scan(advance, jnp.zeros_like(params["b"]), xs)
    return jnp.mean((outputs - target) ** 2) + jnp.sum(hidden**2)


def accumulate(params: Any, xs: Any) -> Any:
    """Gradients of micro-batches are summed by a loop, then applied."""

    def loss_of(params: Any, x: Any) -> Any:
        return jnp.mean(_cell(params, jnp.zeros_like(params["b"]), x) ** 2)

    def add(i: Any, sums: Any) -> Any:
        x = jax.lax.dynamic_index_in_dim(xs, i, keepdims=False)
        return jax.tree.map(jnp.add, sums, jax.grad(loss_of)(params, x))

    zeros = jax.tree.map(jnp.zeros_like, params)
    sums = jax.lax.fori_loop(0, xs.shape[0], add, zeros)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, sums)


def mapped_loss(params: Any, xs: Any, target: Any) -> Any:
    outputs = jax.lax.map(lambda x: _cell(params, x, x) @ params["out"], xs)
    return jnp.mean((outputs - target) ** 2)


def nested_loss(params: Any, xs: Any, target: Any) -> Any:
    """A scan over samples, each with a loop that refines its state."""

    def advance(hidden: Any, x: Any) -> Any:
        def refine(hidden: Any, _: Any) -> Any:
            return _cell(params, hidden, x), None

        hidden, _ = jax.lax.scan(refine, hidden, None, length=2)
        return hidden, jnp.sum(hidden @ params["out"])

    _, sums = jax.lax.scan(advance, jnp.zeros_like(params["b"]), xs, reverse=True)
    return jnp.mean((sums - target[:, 0]) ** 2)


def branching(params: Any, xs: Any, target: Any) -> Any:
    """Parameters are kept where the loss is large; the logarithm is NaN in the other branch."""
    loss, gradients = jax.value_and_grad(mapped_loss)(params, xs, target)

    def update(_: Any) -> Any:
        rate = jnp.log(1.0 - loss)
        return jax.tree.map(lambda p, g: p + 0.1 * rate * g, params, gradients)

    return jax.lax.cond(loss < 1.0, update, lambda _: params, None), loss


def gru_loss(params: Any, xs: Any, target: Any) -> Any:
    """Of all states of gated units; the forward pass is computed again in the backward one."""

    @jax.checkpoint
    def advance(hidden: Any, x: Any) -> Any:
        update = jax.nn.sigmoid(x @ params["x"] + hidden @ params["h"])
        reset = jax.nn.sigmoid(x @ params["x"] - hidden @ params["h"])
        new = jnp.tanh(x @ params["x"] + reset * (hidden @ params["h"]) + params["b"])
        hidden = (1 - update) * new + update * hidden
        return hidden, hidden @ params["out"]

    _, outputs = jax.lax.scan(advance, jnp.zeros_like(params["b"]), xs)
    return jnp.mean((outputs - target) ** 2)


def train_inside(params: Any, xs: Any, target: Any) -> Any:
    """Several steps with momentum, and a rate that depends on the number of the step."""

    def descend(i: Any, state: Any) -> Any:
        params, momentum, old = state
        gradients = jax.grad(mapped_loss)(params, xs, target)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        rate = 0.1 / (1.0 + i.astype(jnp.float32))
        # What is returned at last is of two steps before: three values go round.
        return jax.tree.map(lambda p, m: p - rate * m, params, momentum), momentum, (params, old[0])

    momentum = jax.tree.map(jnp.zeros_like, params)
    params, _, (_, before) = jax.lax.fori_loop(0, 3, descend, (params, momentum, (params, params)))
    return params, before["b"]


def windows(x: Any, y: Any) -> Any:
    """Windows that are written from the end, some twice, beside some that are not written; places
    outside; a tensor that each step reads and writes; steps that depend on the number of a loop
    around; places and flags that are carried; rows that are handed on for as many steps as the
    loop has, so that what it begins with is known in all of them."""

    def write(i: Any, found: Any) -> Any:
        pair = jax.lax.dynamic_slice(y, (2 * i, 0), (2, 3))
        return jax.lax.dynamic_update_slice(found, pair * 2, (4 - i, 0))

    def clamp(i: Any, found: Any) -> Any:
        pair = jax.lax.dynamic_slice(y, (3 * i - 2, 0), (2, 3))
        return jax.lax.dynamic_update_slice(found, pair, (3 * i - 1, 0))

    def triangle(i: Any, found: Any) -> Any:
        return jax.lax.fori_loop(0, i + 1, lambda j, a: a * 0.5 + y[j], found)

    def running(state: Any, row: Any) -> Any:
        was_large, at = state
        large = was_large | (row[0] > 0.3)
        return (large, jnp.where(large, at, at + 1)), (large, at, y[at])

    found = jax.lax.fori_loop(0, 3, write, x) + jax.lax.fori_loop(0, 4, clamp, x)
    found += jax.lax.fori_loop(1, 6, lambda i, a: a.at[i].add(a[i - 1] * a[(i + 2) % 6]), x)
    (_, at), (large, places, rows) = jax.lax.scan(running, (False, 0), y)
    found += jax.lax.fori_loop(0, 3, triangle, x)
    old = jnp.zeros(3)
    late = jax.lax.fori_loop(0, 3, lambda i, s: (s[1], s[2], y[i]), (old, old, old))
    return found, large, places, rows, at, late


def dropped_loss(params: Any, keys: Any, xs: Any, target: Any) -> Any:
    """With a random mask in each step."""

    def advance(hidden: Any, now: Any) -> Any:
        mask = jax.random.bernoulli(jax.random.wrap_key_data(now[0]), 0.5, hidden.shape)
        hidden = _cell(params, hidden, now[1]) * mask
        return hidden, hidden @ params["out"]

    _, outputs = jax.lax.scan(advance, jnp.zeros_like(params["b"]), (keys, xs))
    return jnp.mean((outputs - target) ** 2)


def averages_loss(params: Any, xs: Any) -> Any:
    """States, their running average and a sum that uses both: several are carried on at once."""

    def advance(state: Any, x: Any) -> Any:
        hidden, average, total = state
        new = jnp.tanh(hidden @ params["h"] + x + average * params["b"])
        average = 0.9 * average + 0.1 * hidden * new
        return (new, average, total + jnp.sum(hidden * average)), average

    start = (jnp.zeros_like(params["b"]), jnp.ones_like(params["b"]), 0.0)
    (hidden, _, total), averages = jax.lax.scan(advance, start, xs)
    return jnp.sum(averages[::3]) + jnp.sum(hidden) + total


def layers_loss(params: Any, xs: Any, target: Any) -> Any:
    """A scan over layers, whose parameters are stacked, and so are their gradients."""

    def layer(x: Any, params: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return x + jnp.tanh(centred * scale @ params["w"] + params["b"]), None

    x, _ = jax.lax.scan(layer, xs, params["layers"])
    return jnp.mean((x @ params["out"] - target) ** 2)


def parameters(scale: float = 0.5) -> dict[str, np.ndarray]:
    """Of a cell of three units with as many inputs."""
    rng = np.random.default_rng(1)
    shapes = {"x": (3, 3), "h": (3, 3), "b": (3,), "out": (3, 2)}
    return {k: (scale * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}


def steps() -> dict[str, tuple[Step, list[Any]]]:
    """Each step by its name, with arguments."""
    rng = np.random.default_rng(2)
    xs = rng.standard_normal((4, 3)).astype(np.float32)
    target = rng.standard_normal((4, 2)).astype(np.float32)
    cell = parameters()
    del cell["out"]
    layers = {"w": rng.standard_normal((3, 3, 3)).astype(np.float32), "b": xs[:3] / 2}
    stacked = {"layers": layers, "out": parameters()["out"]}
    return {
        "scan_rnn": (_descend(rnn_loss), [parameters(), xs, target]),
        "accumulation": (accumulate, [cell, np.stack([xs, xs + 1, xs * 2])]),
        "map": (_descend(mapped_loss), [parameters(), xs, target]),
        "nested_scan": (_descend(nested_loss), [parameters(), xs, target]),
        "cond_small_loss": (branching, [parameters(), xs, 0.1 * target]),
        "cond_large_loss": (branching, [parameters(), xs, 5.0 + target]),
        "gru": (_descend(gru_loss), [parameters(), xs, target]),
        "train_inside": (train_inside, [parameters(), xs, target]),
        "windows": (windows, [np.vstack([xs, xs[:2]]), np.vstack([xs[2:], xs])]),
        "averages": (_descend(averages_loss), [parameters(), xs]),
        "layers": (_descend(layers_loss), [stacked, xs, target]),
        "dropout": (
            _descend(dropped_loss),
            [parameters(), np.arange(8, dtype=np.uint32).reshape(4, 2), xs, target],
        ),
    }
