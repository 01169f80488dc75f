"""Steps with equinox: models are pytrees, of which the arrays are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import LABELS, Array, X, cross_entropy, filled, jax, jnp, normal
from registry import JaxStep, step

eqx: Any = pytest.importorskip("equinox", reason="pip install 'poetc[steps]'")

import optax  # noqa: E402

equinox = step("equinox")
KEY = jax.random.key(0)


def initialised(make: Callable[[], Any]) -> Any:
    """A model with random numbers for its parameters."""
    shapes = eqx.filter_eval_shape(make)
    arrays, rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return eqx.combine(filled(arrays), rest)


def classification(model: Any, x: Array, labels: Array) -> Array:
    return cross_entropy(jax.vmap(model)(x), labels)


def squares(model: Any, x: Array) -> Array:
    return (jax.vmap(model)(x) ** 2).mean()


def trained(model: Any, tx: Any, *batch: Any, loss: Callable[..., Array]) -> JaxStep:
    """What is no array is partitioned off, and the optimiser sees floats only."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def make_step(arrays: Any, state: Any, *batch: Any) -> Any:
        model = eqx.combine(arrays, static)
        value, gradients = eqx.filter_value_and_grad(loss)(model, *batch)
        updates, state = tx.update(gradients, state, eqx.filter(model, eqx.is_inexact_array))
        model = eqx.apply_updates(model, updates)
        return eqx.filter(model, eqx.is_array), state, value

    state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    return JaxStep(make_step, (arrays, state, *batch), state=2)


@equinox
def perceptron() -> JaxStep:
    model = initialised(lambda: eqx.nn.MLP(8, 4, 6, 2, key=KEY))
    return trained(model, optax.adamw(1e-2), X, LABELS, loss=classification)


@equinox
def filter_jit() -> JaxStep:
    """A jitted function of the whole model inside the step."""
    model = initialised(lambda: eqx.nn.MLP(8, 4, 6, 1, activation=jnp.tanh, key=KEY))
    loss = eqx.filter_jit(classification)
    return trained(model, optax.sgd(0.1), X, LABELS, loss=loss)


@equinox
def convolutions() -> JaxStep:
    def make() -> Any:
        return eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(1, 3, 3, key=KEY),
                eqx.nn.MaxPool2d(2, 2),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.Lambda(jnp.ravel),
                eqx.nn.Linear(12, 3, key=KEY),
            ]
        )

    labels = np.array([0, 2])
    batch = (normal(2, 1, 6, 6), labels)
    return trained(initialised(make), optax.sgd(0.05, 0.9), *batch, loss=classification)


@equinox
def gru() -> JaxStep:
    class Recurrent(eqx.Module):
        cell: Any
        out: Any

        def __call__(self, xs: Array) -> Array:
            def advance(h: Array, x: Array) -> Any:
                return self.cell(x, h), None

            return self.out(jax.lax.scan(advance, jnp.zeros(4), xs)[0])

    model = initialised(
        lambda: Recurrent(eqx.nn.GRUCell(3, 4, key=KEY), eqx.nn.Linear(4, 4, key=KEY))
    )
    return trained(model, optax.adam(1e-2), normal(4, 3, 3), LABELS, loss=classification)


@equinox
def attention() -> JaxStep:
    class Block(eqx.Module):
        attention: Any
        norm: Any

        def __call__(self, x: Array) -> Array:
            y = jax.vmap(self.norm)(x)
            return x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((4, 4), bool)))

    model = initialised(
        lambda: Block(eqx.nn.MultiheadAttention(2, 8, key=KEY), eqx.nn.LayerNorm(8))
    )
    return trained(model, optax.adamw(1e-3), normal(2, 4, 8), loss=squares)


@equinox
def dropout() -> JaxStep:
    class Net(eqx.Module):
        a: Any
        dropout: Any
        b: Any

        def __call__(self, x: Array, key: Any) -> Array:
            return self.b(self.dropout(jax.nn.relu(self.a(x)), key=key))

    model = initialised(
        lambda: Net(eqx.nn.Linear(8, 6, key=KEY), eqx.nn.Dropout(0.3), eqx.nn.Linear(6, 4, key=KEY))
    )
    arrays, static = eqx.partition(model, eqx.is_array)

    def make_step(state: Any, x: Array, labels: Array) -> Any:
        following, key = jax.random.split(state["key"])

        @eqx.filter_value_and_grad
        def loss(model: Any) -> Array:
            keys = jax.random.split(key, len(x))
            return cross_entropy(jax.vmap(model)(x, keys), labels)

        model = eqx.combine(state["model"], static)
        value, gradients = loss(model)
        model = eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradients))
        return {"model": eqx.filter(model, eqx.is_array), "key": following}, value

    return JaxStep(make_step, ({"model": arrays, "key": jax.random.key(1)}, X, LABELS))


@equinox
def batch_norm() -> JaxStep:
    """Running statistics are in a state that goes beside the model."""

    class Net(eqx.Module):
        a: Any
        norm: Any
        b: Any

        def __call__(self, x: Array, state: Any) -> Any:
            x, state = self.norm(self.a(x), state)
            return self.b(jax.nn.relu(x)), state

    model, state = eqx.nn.make_with_state(
        lambda: Net(
            eqx.nn.Linear(8, 6, use_bias=False, key=KEY),
            eqx.nn.BatchNorm(6, axis_name="batch", mode="batch"),
            eqx.nn.Linear(6, 4, key=KEY),
        )
    )()
    arrays, static = eqx.partition(model, eqx.is_inexact_array)

    def make_step(arrays: Any, state: Any, x: Array, labels: Array) -> Any:
        def loss(arrays: Any) -> Any:
            model = eqx.combine(arrays, static)
            apply = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
            logits, changed = apply(x, state)
            return cross_entropy(logits, labels), changed

        (value, changed), gradients = jax.value_and_grad(loss, has_aux=True)(arrays)
        return (
            eqx.apply_updates(arrays, jax.tree.map(lambda g: -0.1 * g, gradients)),
            changed,
            value,
        )

    return JaxStep(make_step, (arrays, state, X, LABELS), state=2)


@equinox
def frozen_layers() -> JaxStep:
    """All but the last layer are partitioned off, and an argument of their own."""
    model = initialised(lambda: eqx.nn.MLP(8, 4, 6, 2, key=KEY))
    spec = jax.tree.map(lambda _: False, model)
    spec = eqx.tree_at(lambda m: m.layers[-1], spec, jax.tree.map(lambda _: True, model.layers[-1]))
    head, rest = eqx.partition(model, spec)
    body, static = eqx.partition(rest, eqx.is_array)

    def make_step(head: Any, body: Any, x: Array, labels: Array) -> Any:
        def loss(head: Any) -> Array:
            return classification(eqx.combine(head, body, static), x, labels)

        value, gradients = eqx.filter_value_and_grad(loss)(head)
        return eqx.apply_updates(head, jax.tree.map(lambda g: -0.1 * g, gradients)), value

    return JaxStep(make_step, (head, body, X, LABELS), frozen="body")


@equinox
def ensemble() -> JaxStep:
    @eqx.filter_vmap
    def make(key: Any) -> Any:
        return eqx.nn.MLP(8, 4, 5, 1, key=key)

    model = initialised(lambda: make(jax.random.split(KEY, 3)))

    def loss(model: Any, x: Array, labels: Array) -> Array:
        every = eqx.filter_vmap(classification, in_axes=(eqx.if_array(0), None, None))
        return every(model, x, labels).mean()

    return trained(model, optax.adam(1e-2), X, LABELS, loss=loss)
