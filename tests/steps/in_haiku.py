"""Steps with haiku: functions with parameters, transformed to pure ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import LABELS, Array, X, cross_entropy, descend, filled, jax, jnp, normal, sgd
from registry import JaxStep, step

hk: Any = pytest.importorskip("haiku", reason="pip install 'poetc[steps]'")

import optax  # noqa: E402

haiku = step("haiku")


def transformed(function: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """A function without random numbers, and its parameters."""
    pure = hk.without_apply_rng(hk.transform(function))
    return pure.apply, filled(jax.eval_shape(pure.init, jax.random.key(0), *args))


def squares(function: Callable[..., Any], x: Array) -> JaxStep:
    apply, params = transformed(function, x)
    return sgd(lambda params, x: (apply(params, x) ** 2).mean(), params, x)


@haiku
def perceptron() -> JaxStep:
    apply, params = transformed(lambda x: hk.nets.MLP([6, 4])(x), X)
    optimiser = optax.adam(1e-2)

    def update(params: Any, state: Any, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Array:
            return cross_entropy(apply(params, x), labels)

        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradients, state)
        return optax.apply_updates(params, updates), state, value

    return JaxStep(update, (params, optimiser.init(params), X, LABELS), state=2)


@haiku
def convolutions() -> JaxStep:
    def net(x: Array) -> Array:
        x = jax.nn.relu(hk.Conv2D(3, 3)(x))
        x = hk.MaxPool(2, 2, "SAME")(x)
        x = jax.nn.relu(hk.DepthwiseConv2D(2, 3)(x))
        return hk.Linear(3)(hk.Flatten()(x))

    apply, params = transformed(net, x := normal(2, 4, 4, 1))
    labels = np.array([0, 2])
    return sgd(lambda p, x, labels: cross_entropy(apply(p, x), labels), params, x, labels)


@haiku
def batch_norm_state() -> JaxStep:
    def net(x: Array) -> Array:
        x = hk.Linear(6, with_bias=False)(x)
        x = hk.BatchNorm(True, True, 0.9)(x, is_training=True)
        return hk.Linear(4)(jax.nn.relu(x))

    pure = hk.without_apply_rng(hk.transform_with_state(net))
    params, state = filled(jax.eval_shape(pure.init, jax.random.key(0), X))

    def update(params: Any, state: Any, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Any:
            logits, changed = pure.apply(params, state, x)
            return cross_entropy(logits, labels), changed

        (value, changed), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        return descend(params, gradients), changed, value

    return JaxStep(update, (params, state, X, LABELS), state=2)


@haiku
def dropout() -> JaxStep:
    def net(x: Array) -> Array:
        h = jax.nn.relu(hk.Linear(6)(x))
        return hk.Linear(4)(hk.dropout(hk.next_rng_key(), 0.3, h))

    pure = hk.transform(net)
    params = filled(jax.eval_shape(pure.init, jax.random.key(0), X))

    def update(params: Any, key: Any, x: Array, labels: Array) -> Any:
        following, key = jax.random.split(key)

        def loss(params: Any) -> Array:
            return cross_entropy(pure.apply(params, key, x), labels)

        value, gradients = jax.value_and_grad(loss)(params)
        return descend(params, gradients), following, value

    args = (params, jax.random.PRNGKey(1), X, LABELS)
    return JaxStep(update, args, state=2, donate=True)


@haiku
def lstm() -> JaxStep:
    def net(xs: Array) -> Array:
        core = hk.LSTM(4)
        return hk.dynamic_unroll(core, xs, core.initial_state(2))[0]

    return squares(net, normal(3, 2, 3))


@haiku
def gru_unrolled() -> JaxStep:
    def net(xs: Array) -> Array:
        core = hk.GRU(4)
        return hk.static_unroll(core, xs, core.initial_state(2))[0]

    return squares(net, normal(3, 2, 3))


@haiku
def attention() -> JaxStep:
    def net(x: Array) -> Array:
        y = hk.LayerNorm(-1, True, True)(x)
        attention = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())
        return x + attention(y, y, y, mask=jnp.tril(jnp.ones((2, 2, 4, 4))))

    return squares(net, normal(2, 4, 8))


@haiku
def layers_in_a_stack() -> JaxStep:
    def net(x: Array) -> Array:
        return hk.experimental.layer_stack(3)(lambda x: x + jnp.tanh(hk.Linear(6)(x)))(x)

    return squares(net, normal(4, 6))


@haiku
def embedding_and_group_norm() -> JaxStep:
    def net(tokens: Array) -> Array:
        return hk.GroupNorm(2)(hk.Embed(10, 6)(tokens))

    return squares(net, np.array([[1, 5, 2], [0, 3, 3]]))
