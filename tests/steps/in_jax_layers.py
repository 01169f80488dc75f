"""Steps of JAX without other libraries: layers, types, functions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from common import (
    LABELS,
    Array,
    X,
    classify,
    cross_entropy,
    dense,
    descend,
    jax,
    jnp,
    mlp,
    mlp_smooth,
    normal,
    sgd,
)
from registry import JaxStep, register, step

lax = jax.lax
plain = step("jax")

# Layers


@plain
def causal_attention() -> JaxStep:
    params = {name: normal(8, 8, scale=0.3, seed=i) for i, name in enumerate("qkvo")}

    def loss(params: Any, x: Array) -> Array:
        def heads(name: str) -> Array:
            return jnp.einsum("btd,de->bte", x, params[name]).reshape(2, 5, 2, 4)

        scores = jnp.einsum("bqhd,bkhd->bhqk", heads("q"), heads("k")) / 2.0
        scores = jnp.where(jnp.tril(jnp.ones((5, 5), bool)), scores, -1e9)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads("v"))
        return ((y.reshape(x.shape) @ params["o"] - x) ** 2).mean()

    return sgd(loss, params, normal(2, 5, 8))


@plain
def dot_product_attention() -> JaxStep:
    """Grouped queries: two heads of keys and values for four of queries."""
    params = {"q": normal(8, 16, scale=0.3), "k": normal(8, 8, scale=0.3), "v": normal(8, 8)}

    def loss(params: Any, x: Array) -> Array:
        q = (x @ params["q"]).reshape(2, 4, 4, 4)
        k, v = ((x @ params[n]).reshape(2, 4, 2, 4) for n in "kv")
        return (jax.nn.dot_product_attention(q, k, v, is_causal=True) ** 2).mean()

    return sgd(loss, params, normal(2, 4, 8))


@plain
def rotary_embedding_and_rms_norm() -> JaxStep:
    params = {"scale": jnp.ones(8), "w": normal(8, 8, scale=0.3)}

    def loss(params: Any, x: Array) -> Array:
        h = x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6) * params["scale"]
        angle = jnp.arange(5)[:, None] * 10000.0 ** (-jnp.arange(4) / 4)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        a, b = h[..., ::2], h[..., 1::2]
        h = jnp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)
        return (jax.nn.silu(h @ params["w"]) ** 2).mean()

    return sgd(loss, params, normal(2, 5, 8))


@plain
def language_model() -> JaxStep:
    params = {"embedding": normal(12, 8), "out": normal(8, 12, scale=0.2)}

    def loss(params: Any, tokens: Array) -> Array:
        h = params["embedding"][tokens[:, :-1]]
        h = jnp.cumsum(h, 1) / jnp.arange(1, 6)[:, None]
        return cross_entropy(h @ params["out"], tokens[:, 1:])

    return sgd(loss, params, np.arange(12, dtype=np.int32).reshape(2, 6))


@plain
def tied_embedding() -> JaxStep:
    def loss(params: Any, tokens: Array) -> Array:
        h = jnp.tanh(params["table"][tokens[:, :-1]] @ params["w"])
        return cross_entropy(h @ params["table"].T, tokens[:, 1:])

    params = {"table": normal(10, 6), "w": normal(6, 6)}
    return sgd(loss, params, np.array([[1, 5, 5, 2], [9, 0, 1, 3]], np.int32))


@plain
def words_of_a_large_table() -> JaxStep:
    params = {"table": normal(1500, 2), "out": normal(2, 4, scale=0.4)}
    words = np.array([[3, 1499, 3], [0, 71, 3], [8, 8, 8], [71, 0, 1498]], np.int32)

    def loss(params: Any, words: Array, labels: Array) -> Array:
        return cross_entropy(params["table"][words].mean(1) @ params["out"], labels)

    return sgd(loss, params, words, LABELS)


@plain
def mixture_of_experts() -> JaxStep:
    params = {"gate": normal(8, 4), "experts": normal(4, 8, 6, scale=0.3)}

    def loss(params: Any, x: Array) -> Array:
        values, chosen = lax.top_k(x @ params["gate"], 2)
        made = jnp.einsum("bkdf,bd->bkf", params["experts"][chosen], x)
        return ((made * jax.nn.softmax(values)[..., None]).sum(1) ** 2).mean()

    return sgd(loss, params, X)


@plain
def graph_network() -> JaxStep:
    sources, targets = np.array([0, 1, 2, 3, 1]), np.array([1, 2, 3, 0, 0])

    def loss(params: Any, x: Array) -> Array:
        h = x @ params["w"]
        gathered = jnp.zeros_like(h).at[targets].add(h[sources])
        degree = jax.ops.segment_sum(jnp.ones(5), targets, 4)
        return (jnp.tanh(gathered / degree[:, None]) ** 2).mean()

    return sgd(loss, {"w": normal(8, 5)}, X)


@plain
def segments() -> JaxStep:
    kinds = jnp.array([0, 1, 1, 0])

    def loss(params: Any, x: Array) -> Array:
        h = x @ params["w"]
        total, most = jax.ops.segment_sum(h, kinds, 3), jax.ops.segment_max(h, kinds, 2)
        return (total**2).mean() + most.mean()

    return sgd(loss, {"w": normal(8, 5)}, X)


@plain
def convolutions_and_pools() -> JaxStep:
    params = {"a": normal(3, 3, 1, 4, scale=0.3), "b": normal(4, 3)}

    def loss(params: Any, x: Array, labels: Array) -> Array:
        axes = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(x, params["a"], (1, 1), "SAME", dimension_numbers=axes)
        h = lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        return cross_entropy(h.mean((1, 2)) @ params["b"], labels)

    return sgd(loss, params, normal(2, 6, 6, 1), np.array([0, 2], np.int32))


@plain
def convolutional_autoencoder() -> JaxStep:
    params = {"a": normal(3, 3, 1, 4, scale=0.3), "b": normal(3, 3, 4, 1, scale=0.3)}

    def loss(params: Any, x: Array) -> Array:
        axes = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(x, params["a"], (2, 2), "SAME", dimension_numbers=axes)
        y = lax.conv_transpose(jax.nn.relu(h), params["b"], (2, 2), "SAME", dimension_numbers=axes)
        return ((y - x) ** 2).mean()

    return sgd(loss, params, normal(2, 6, 6, 1))


@plain
def depthwise_separable() -> JaxStep:
    params = {"depth": normal(3, 3, 1, 4, scale=0.3), "point": normal(4, 6, scale=0.4)}

    def loss(params: Any, x: Array) -> Array:
        h = lax.conv_general_dilated(
            x,
            params["depth"],
            (1, 1),
            "SAME",
            feature_group_count=4,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return (jax.nn.relu6(h @ params["point"]) ** 2).mean()

    return sgd(loss, params, normal(1, 5, 5, 4))


@plain
def temporal_convolutions() -> JaxStep:
    def loss(params: Any, x: Array) -> Array:
        for i, w in enumerate(params["w"]):
            causal = jnp.pad(x, ((0, 0), (2 << i, 0), (0, 0)))
            axes = ("NWC", "WIO", "NWC")
            y = lax.conv_general_dilated(
                causal, w, (1,), "VALID", rhs_dilation=(1 << i,), dimension_numbers=axes
            )
            x = x + jax.nn.relu(y)
        return (x**2).mean()

    return sgd(loss, {"w": [normal(3, 2, 2, scale=0.3, seed=i) for i in range(2)]}, normal(2, 7, 2))


@plain
def volume_convolution() -> JaxStep:
    def loss(params: Any, x: Array) -> Array:
        axes = ("NDHWC", "DHWIO", "NDHWC")
        y = lax.conv_general_dilated(x, params["w"], (1, 1, 1), "VALID", dimension_numbers=axes)
        return (y**2).mean()

    return sgd(loss, {"w": normal(2, 2, 2, 1, 2)}, normal(1, 4, 4, 4, 1))


@plain
def resized_images() -> JaxStep:
    def loss(params: Any, x: Array) -> Array:
        return ((jax.image.resize(params["w"], (6, 6), "bilinear") - x) ** 2).mean()

    return sgd(loss, {"w": normal(3, 3)}, normal(6, 6))


@plain
def batch_norm_with_running_statistics() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        params, running = state

        def loss(params: Any) -> Any:
            h = x @ params["w"]
            mean, var = h.mean(0), h.var(0)
            h = (h - mean) / jnp.sqrt(var + 1e-5) * params["scale"] + params["shift"]
            return cross_entropy(h, labels), (mean, var)

        (value, found), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        running = jax.tree.map(lambda r, f: 0.9 * r + 0.1 * f, running, found)
        return (descend(params, gradients), running), value

    params = {"w": normal(8, 4), "scale": jnp.ones(4), "shift": jnp.zeros(4)}
    return JaxStep(update, ((params, (jnp.zeros(4), jnp.ones(4))), X, LABELS))


@plain
def siamese() -> JaxStep:
    def loss(params: Any, a: Array, b: Array, same: Array) -> Array:
        u, v = mlp(params, a), mlp(params, b)
        distance = jnp.sqrt(((u - v) ** 2).sum(-1) + 1e-6)
        return jnp.where(same, distance**2, jnp.maximum(0.0, 1.0 - distance) ** 2).mean()

    return sgd(loss, dense(8, 6, 3), X, normal(4, 8, seed=1), np.array([True, False, True, False]))


@plain
def contrastive_image_and_text() -> JaxStep:
    def loss(params: Any, a: Array, b: Array) -> Array:
        u, v = a @ params["a"], b @ params["b"]
        u, v = (t / jnp.linalg.norm(t, axis=-1, keepdims=True) for t in (u, v))
        logits = u @ v.T * jnp.exp(params["temperature"])
        pairs = jnp.arange(len(a))
        return cross_entropy(logits, pairs) + cross_entropy(logits.T, pairs)

    params = {"a": normal(8, 5), "b": normal(6, 5), "temperature": jnp.float32(1.0)}
    return sgd(loss, params, X, normal(4, 6))


@plain
def temporal_difference() -> JaxStep:
    def update(params: Any, target: Any, x: Array, actions: Array, following: Array) -> Any:
        def loss(params: Any) -> Array:
            values = jnp.take_along_axis(mlp(params, x), actions[:, None], 1)[:, 0]
            wanted = 1.0 + 0.9 * mlp(target, following).max(-1)
            error = values - lax.stop_gradient(wanted)
            return jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        params = descend(params, gradients)
        target = jax.tree.map(lambda t, p: 0.99 * t + 0.01 * p, target, params)
        return params, target, value

    nets = (dense(8, 6, 4), dense(8, 6, 4))
    return JaxStep(update, (*nets, X, LABELS, normal(4, 8, seed=1)), state=2)


@plain
def neural_ode() -> JaxStep:
    """Four steps of Runge and Kutta."""

    def loss(params: Any, x: Array, y: Array) -> Array:
        def slope(x: Array) -> Array:
            return mlp_smooth(params, x)

        def advance(x: Array, _: Any) -> Any:
            k1 = slope(x)
            k2 = slope(x + 0.125 * k1)
            return x + 0.25 * k2, None

        return ((lax.scan(advance, x, None, length=4)[0] - y) ** 2).mean()

    return sgd(loss, dense(3, 5, 3), normal(4, 3), normal(4, 3, seed=1))


# Types


@plain
def bfloat16_forward() -> JaxStep:
    def loss(params: Any, x: Array, labels: Array) -> Array:
        half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
        return cross_entropy(mlp(half, x.astype(jnp.bfloat16)).astype(jnp.float32), labels)

    return sgd(loss, dense(8, 6, 4), X, LABELS)


@plain
def float16_with_a_loss_scale() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        params, scale = state

        def loss(params: Any) -> Array:
            half = jax.tree.map(lambda p: p.astype(jnp.float16), params)
            logits = mlp(half, x.astype(jnp.float16)).astype(jnp.float32)
            return cross_entropy(logits, labels) * scale

        value, gradients = jax.value_and_grad(loss)(params)
        gradients = jax.tree.map(lambda g: g / scale, gradients)
        finite = jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
        params = jax.tree.map(
            lambda p, new: jnp.where(finite, new, p), params, descend(params, gradients)
        )
        return (params, jnp.where(finite, scale, scale / 2)), value / scale

    return JaxStep(update, ((dense(8, 6, 4), jnp.float32(1024.0)), X, LABELS))


@plain
def int8_weights_frozen() -> JaxStep:
    def update(params: Any, weights: Array, scale: Array, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Array:
            h = jax.nn.relu(x @ (weights.astype(jnp.float32) * scale))
            return cross_entropy(h @ params["head"], labels)

        value, gradients = jax.value_and_grad(loss)(params)
        return descend(params, gradients), value

    weights = np.random.default_rng(0).integers(-127, 128, (8, 12)).astype(np.int8)
    args = ({"head": normal(12, 4, scale=0.3)}, weights, jnp.float32(0.01), X, LABELS)
    return JaxStep(update, args, frozen="weights")


@plain
def uint8_images() -> JaxStep:
    def loss(params: Any, images: Array, labels: Array) -> Array:
        return classify(params, images.astype(jnp.float32) / 255.0, labels)

    return sgd(loss, dense(8, 6, 4), np.arange(0, 256, 8).astype(np.uint8).reshape(4, 8), LABELS)


@plain
def int64_labels() -> JaxStep:
    """JAX makes them 32 bits."""
    return sgd(classify, dense(8, 6, 4), X, LABELS.astype(np.int64))


# Functions


def function(name: str, of: Any, inputs: int = 4) -> None:
    """Registers a step whose loss is a function of the outputs of a perceptron."""

    def build() -> JaxStep:
        return sgd(lambda params, x: jnp.mean(of(mlp_smooth(params, x))), dense(8, 6, inputs), X)

    register(f"jax/{name}", build)


def _activations(z: Array) -> Array:
    nn = jax.nn
    kinds = (nn.gelu, nn.elu, nn.swish, nn.hard_tanh, nn.hard_swish, nn.softplus, nn.relu6)
    more = (nn.leaky_relu, nn.squareplus, nn.mish, nn.soft_sign, nn.hard_sigmoid, nn.selu, nn.celu)
    return functools.reduce(jnp.add, [f(z) for f in (*kinds, *more)])


def _special(z: Array) -> Array:
    special = jax.scipy.special
    p = jax.nn.sigmoid(z) * 0.9 + 0.05
    return special.erfinv(p) + special.gammaln(p + 1) + special.logit(p) + special.xlogy(p, p)


def _norms(z: Array) -> Array:
    w = z @ z.T
    power = jnp.linalg.matrix_power(w / 10, 3).mean()
    return jnp.linalg.norm(w) + jnp.trace(w) + power + jnp.outer(z[0], z[1]).sum()


function("activations", _activations)
function("exact_gelu", lambda z: jax.nn.gelu(z, approximate=False))
function("glu", lambda z: jax.nn.glu(z))
function("sorted_outputs", lambda z: jnp.sort(z, -1) * jnp.arange(4.0))
function("median", lambda z: jnp.median(z, -1))
function("quantile", lambda z: jnp.quantile(z, 0.3, axis=-1))
function("cumulative", lambda z: jnp.cumsum(z, -1) * jnp.cumprod(1 + 0.1 * z, -1))
function("log_sum_exp", lambda z: jax.nn.logsumexp(z, -1) + jnp.logaddexp(z[:, 0], z[:, 1]))
function("nans_ignored", lambda z: jnp.nanmean(jnp.where(z > 0, z**2, jnp.nan)))
function("interpolated", lambda z: jnp.interp(z, jnp.linspace(-3, 3, 5), jnp.arange(5.0) ** 2))
function("norms_and_powers", _norms)
function("kronecker_roll_pad", lambda z: jnp.kron(z, jnp.eye(2)) * jnp.pad(jnp.roll(z, 1, 0), 2))
function("special_functions", _special)
function("gaussian_likelihood", lambda z: -jax.scipy.stats.norm.logpdf(z, 0.3, 1.5))
function("trigonometry", lambda z: jnp.sin(z) * jnp.cos(z) + jnp.arctan2(z, 1 + z**2))
