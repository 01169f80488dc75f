"""Steps with flax.nnx: modules are split into a graph and a state, which the step takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from common import LABELS, Array, X, jnp, normal
from registry import JaxStep, step

pytest.importorskip("flax", reason="pip install 'poetc[steps]'")

import optax
from flax import nnx

in_nnx = step("nnx")
Loss = Callable[..., Array]


def classification(model: Any, x: Array, labels: Array) -> Array:
    return optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


def trained(
    model: Any, tx: Any, *batch: Any, loss: Loss = classification, wrt: Any = nnx.Param
) -> JaxStep:
    graph, state = nnx.split((model, nnx.Optimizer(model, tx, wrt=wrt)))

    def train_step(state: Any, *batch: Any) -> Any:
        model, optimiser = nnx.merge(graph, state)
        value, gradients = nnx.value_and_grad(loss, argnums=nnx.DiffState(0, wrt))(model, *batch)
        optimiser.update(model, gradients)
        return nnx.state((model, optimiser)), value

    return JaxStep(train_step, (state, *batch))


class Net(nnx.Module):
    def __init__(self, rngs: Any, rate: float = 0.0) -> None:
        self.a = nnx.Linear(8, 6, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.b = nnx.Linear(6, 4, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return self.b(self.dropout(nnx.relu(self.a(x))))


@in_nnx
def perceptron() -> JaxStep:
    return trained(Net(nnx.Rngs(0)), optax.adam(1e-2), X, LABELS)


@in_nnx
def dropout() -> JaxStep:
    return trained(Net(nnx.Rngs(0), 0.3), optax.adam(1e-2), X, LABELS)


@in_nnx
def convolutions_and_batch_norm() -> JaxStep:
    class Images(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.conv = nnx.Conv(1, 3, (3, 3), use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(3, rngs=rngs)
            self.out = nnx.Linear(3, 2, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
            return self.out(x.mean((1, 2)))

    labels = np.array([0, 1])
    return trained(Images(nnx.Rngs(0)), optax.sgd(0.05, 0.9), normal(2, 6, 6, 1), labels)


@in_nnx
def attention_and_norms() -> JaxStep:
    class Block(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.norm = nnx.LayerNorm(8, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(2, 8, use_bias=False, decode=False, rngs=rngs)
            self.rms = nnx.RMSNorm(8, rngs=rngs)
            self.out = nnx.Linear(8, 8, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            x = x + self.attention(self.norm(x))
            return x + self.out(nnx.gelu(self.rms(x)))

    def loss(model: Any, x: Array) -> Array:
        return (model(x) ** 2).mean()

    return trained(Block(nnx.Rngs(0)), optax.adamw(1e-3), normal(2, 4, 8), loss=loss)


@in_nnx
def lstm() -> JaxStep:
    def loss(model: Any, x: Array) -> Array:
        return (model(x) ** 2).mean()

    model = nnx.RNN(nnx.LSTMCell(3, 4, rngs=nnx.Rngs(0)))
    return trained(model, optax.sgd(0.1), normal(2, 3, 3), loss=loss)


@in_nnx
def embedding() -> JaxStep:
    class Words(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.table = nnx.Embed(10, 6, rngs=rngs)
            self.out = nnx.Linear(6, 10, rngs=rngs)

        def __call__(self, tokens: Array) -> Array:
            return self.out(nnx.silu(self.table(tokens)))

    tokens = np.array([[1, 5, 2], [0, 3, 3]])
    return trained(Words(nnx.Rngs(0)), optax.adam(1e-2), tokens, np.roll(tokens, 1, 1))


@in_nnx
def lora() -> JaxStep:
    """Only what is added to the layer is trained."""

    class Adapted(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.layer = nnx.LoRALinear(8, 4, lora_rank=2, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            return self.layer(x)

    model = Adapted(nnx.Rngs(0))
    adapter: Any = model.layer.lora
    adapter.lora_b[...] = normal(2, 4, scale=0.1)
    return trained(model, optax.adam(1e-2), X, LABELS, wrt=nnx.LoRAParam)


@in_nnx
def layers_in_a_scan() -> JaxStep:
    class Layers(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            @nnx.split_rngs(splits=3)
            @nnx.vmap(axis_size=3)
            def make(rngs: Any) -> Any:
                return nnx.Linear(6, 6, rngs=rngs)

            self.layers = make(rngs)

        def __call__(self, x: Array) -> Array:
            @nnx.scan
            def forward(x: Array, layer: Any) -> Any:
                return x + jnp.tanh(layer(x)), None

            return forward(x, self.layers)[0]

    def loss(model: Any, x: Array) -> Array:
        return (model(x) ** 2).mean()

    return trained(Layers(nnx.Rngs(0)), optax.sgd(0.1), normal(4, 6), loss=loss)


@in_nnx
def checkpointed() -> JaxStep:
    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.a = nnx.Linear(8, 6, rngs=rngs)
            self.b = nnx.Linear(6, 4, rngs=rngs)

        def __call__(self, x: Array) -> Array:
            return self.b(nnx.remat(lambda layer, x: nnx.gelu(layer(x)))(self.a, x))

    return trained(Net(nnx.Rngs(0)), optax.sgd(0.1), X, LABELS)


@in_nnx
def metrics() -> JaxStep:
    """Running loss and accuracy are a part of the state."""
    model = Net(nnx.Rngs(0))
    measured = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    optimiser = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    graph, state = nnx.split((model, optimiser, measured))

    def train_step(state: Any, x: Array, labels: Array) -> Any:
        model, optimiser, measured = nnx.merge(graph, state)

        def loss(model: Any) -> Any:
            logits = model(x)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            return losses.mean(), logits

        (value, logits), gradients = nnx.value_and_grad(loss, has_aux=True)(model)
        measured.update(loss=value, logits=logits, labels=labels)
        optimiser.update(model, gradients)
        return nnx.state((model, optimiser, measured)), value

    return JaxStep(train_step, (state, X, jnp.asarray(LABELS)))
