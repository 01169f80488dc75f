"""Steps with flax.linen, most with a TrainState."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from common import LABELS, Array, X, cross_entropy, filled, jax, jnp, normal, sgd
from registry import JaxStep, step

flax: Any = pytest.importorskip("flax", reason="pip install 'poetc[steps]'")

import optax  # noqa: E402
from flax import linen as nn  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

linen = step("linen")


def initialised(model: nn.Module, *args: Any, **options: Any) -> Any:
    """Variables of a model for its arguments."""
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    return filled(jax.eval_shape(lambda: model.init(keys, *args, **options)))


def training(model: nn.Module, tx: Any, *args: Any, **options: Any) -> TrainState:
    """Of a model without other variables than parameters."""
    params = initialised(model, *args, **options)["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


def classifier(model: nn.Module, tx: Any, x: Array, labels: Any = LABELS) -> JaxStep:
    def train_step(state: TrainState, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Array:
            logits = state.apply_fn({"params": params}, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    return JaxStep(train_step, (training(model, tx, x), x, labels))


@linen
def perceptron() -> JaxStep:
    model = nn.Sequential([nn.Dense(6), nn.relu, nn.Dense(4)])
    return classifier(model, optax.adam(1e-2), X)


@linen
def convolutions() -> JaxStep:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            x = nn.max_pool(nn.relu(nn.Conv(3, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Conv(4, (3, 3), padding="VALID")(x))
            return nn.Dense(3)(x.reshape(x.shape[0], -1))

    return classifier(Net(), optax.sgd(0.05, 0.9), normal(2, 8, 8, 1), np.array([0, 2]))


class Normed(nn.Module):
    """Norms of three kinds."""

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        x = nn.Conv(4, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
        x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.gelu(nn.GroupNorm(2)(nn.Conv(4, (3, 3), strides=2, use_bias=False)(x)))
        return nn.Dense(3)(nn.LayerNorm()(x.mean((1, 2))))


class State(TrainState):
    batch_stats: Any
    key: Any


@linen
def batch_norm() -> JaxStep:
    model, x = Normed(), normal(2, 6, 6, 1)
    variables = initialised(model, x, True)
    state = State.create(
        apply_fn=model.apply,
        params=variables["params"],
        tx=optax.sgd(0.01, 0.9),
        batch_stats=variables["batch_stats"],
        key=None,
    )

    def train_step(state: State, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Any:
            logits, changed = state.apply_fn(
                {"params": params, "batch_stats": state.batch_stats},
                x,
                True,
                mutable=["batch_stats"],
            )
            return cross_entropy(logits, labels), changed

        (value, changed), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
        state = state.apply_gradients(grads=gradients)
        return state.replace(batch_stats=changed["batch_stats"]), value

    return JaxStep(train_step, (state, x, np.array([0, 2])))


@linen
def dropout() -> JaxStep:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            x = nn.Dropout(0.3, deterministic=False)(nn.relu(nn.Dense(6)(x)))
            return nn.Dense(4)(x)

    model = Net()
    params = initialised(model, X)["params"]
    state = State.create(
        apply_fn=model.apply,
        params=params,
        tx=optax.adam(1e-2),
        batch_stats=None,
        key=jax.random.key(2),
    )

    def train_step(state: State, x: Array, labels: Array) -> Any:
        key = jax.random.fold_in(state.key, state.step)

        def loss(params: Any) -> Array:
            return cross_entropy(
                state.apply_fn({"params": params}, x, rngs={"dropout": key}), labels
            )

        value, gradients = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=gradients), value

    return JaxStep(train_step, (state, X, LABELS))


def regression(model: nn.Module, x: Array, y: Array) -> JaxStep:
    return sgd(
        lambda variables, x, y: ((model.apply(variables, x) - y) ** 2).mean(),
        initialised(model, x),
        x,
        y,
    )


@linen
def lstm() -> JaxStep:
    return regression(nn.RNN(nn.LSTMCell(4)), normal(2, 3, 3), normal(2, 3, 4))


@linen
def gru_both_ways() -> JaxStep:
    model = nn.Bidirectional(nn.RNN(nn.GRUCell(3)), nn.RNN(nn.GRUCell(3)))
    return regression(model, normal(2, 2, 2), normal(2, 2, 6))


@linen
def attention() -> JaxStep:
    model, x = nn.MultiHeadDotProductAttention(2, qkv_features=8), normal(2, 4, 8)
    return regression(model, x, normal(2, 4, 8, seed=1))


@linen
def language_model() -> JaxStep:
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
            x = x + nn.SelfAttention(2, use_bias=False)(nn.LayerNorm()(x), mask=mask)
            return x + nn.Dense(8)(nn.gelu(nn.Dense(16)(nn.RMSNorm()(x))))

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens: Array) -> Array:
            embed = nn.Embed(10, 8)
            x = embed(tokens) + self.param("place", nn.initializers.normal(), (5, 8))
            return embed.attend(Block()(x))

    tokens = np.array([[1, 5, 2, 2, 9], [0, 3, 7, 1, 1]])
    return classifier(Net(), optax.adamw(1e-3), tokens, np.roll(tokens, -1, 1))


@linen
def layers_in_a_scan() -> JaxStep:
    """Three of the same, checkpointed, with their parameters in one tensor."""

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x: Array, _: Any) -> Any:
            return x + jnp.tanh(nn.Dense(6)(x)), None

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            layers = nn.scan(
                nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3
            )
            return layers()(x, None)[0]

    return regression(Net(), normal(4, 6), normal(4, 6, seed=1))


@linen
def spectral_and_weight_norm() -> JaxStep:
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Array) -> Array:
            return nn.WeightNorm(nn.Dense(4))(nn.tanh(nn.WeightNorm(nn.Dense(5))(x)))

    return regression(Net(), X, normal(4, 4))


@linen
def bfloat16_layers() -> JaxStep:
    """Parameters are float32."""
    model = nn.Sequential([nn.Dense(6, dtype=jnp.bfloat16), nn.relu, nn.Dense(4)])
    return classifier(model, optax.sgd(0.05), X)
