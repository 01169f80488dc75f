"""Steps of JAX without other libraries: control flow, transformations, random numbers."""

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
    sgd_with_key,
)
from registry import JaxStep, step

lax = jax.lax
plain = step("jax")

# Loops and branches


@plain
def lstm_scan() -> JaxStep:
    units = 5
    params = {
        "w": normal(3 + units, 4 * units, scale=0.4),
        "b": normal(4 * units, scale=0.1),
        "out": normal(units, 4),
    }

    def loss(params: Any, xs: Array, labels: Array) -> Array:
        def cell(carry: Any, x: Array) -> Any:
            h, c = carry
            gates = jnp.concatenate([x, h], -1) @ params["w"] + params["b"]
            i, f, g, o = jnp.split(gates, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((xs.shape[1], units))
        (h, _), _ = lax.scan(cell, (zeros, zeros), xs)
        return cross_entropy(h @ params["out"], labels)

    return sgd(loss, params, normal(4, 4, 3), LABELS)


@plain
def gru_scan_reversed() -> JaxStep:
    units = 4
    params = {"w": normal(2 + units, 3 * units, scale=0.4)}

    def loss(params: Any, xs: Array) -> Array:
        def cell(h: Array, x: Array) -> Any:
            r, z, n = jnp.split(jnp.concatenate([x, h], -1) @ params["w"], 3, -1)
            z = jax.nn.sigmoid(z)
            h = (1 - z) * jnp.tanh(n * jax.nn.sigmoid(r)) + z * h
            return h, h

        _, outputs = lax.scan(cell, jnp.zeros((2, units)), xs, reverse=True)
        return (outputs**2).mean()

    return sgd(loss, params, normal(5, 2, 2))


@plain
def scan_over_layers() -> JaxStep:
    params = {"w": normal(3, 6, 6, scale=0.4), "b": normal(3, 6, scale=0.1)}

    def loss(params: Any, x: Array) -> Array:
        def layer(h: Array, p: Any) -> Any:
            return h + jnp.tanh(h @ p["w"] + p["b"]), None

        return (lax.scan(layer, x, params)[0] ** 2).mean()

    return sgd(loss, params, normal(4, 6))


@plain
def scan_over_checkpointed_layers() -> JaxStep:
    params = {"layers": normal(3, 6, 6, scale=0.4)}

    def loss(params: Any, x: Array) -> Array:
        @jax.checkpoint
        def layer(h: Array, w: Array) -> Any:
            return jax.nn.gelu(h @ w), None

        return (lax.scan(layer, x, params["layers"])[0] ** 2).mean()

    return sgd(loss, params, normal(4, 6))


@plain
def accumulation_in_a_fori_loop() -> JaxStep:
    def update(params: Any, x: Array, labels: Array) -> Any:
        def add(i: Array, sums: Any) -> Any:
            batch = (lax.dynamic_slice_in_dim(a, 2 * i, 2) for a in (x, labels))
            return jax.tree.map(jnp.add, sums, jax.grad(classify)(params, *batch))

        zeros = jax.tree.map(jnp.zeros_like, params)
        return descend(params, lax.fori_loop(0, 2, add, zeros))

    return JaxStep(update, (dense(8, 12, 4), X, LABELS))


@plain
def several_updates_in_a_scan() -> JaxStep:
    def epoch(params: Any, xs: Array, labels: Array) -> Any:
        def update(params: Any, batch: Any) -> Any:
            value, gradients = jax.value_and_grad(classify)(params, *batch)
            return descend(params, gradients), value

        return lax.scan(update, params, (xs, labels))

    xs, labels = normal(3, 4, 8), np.stack([LABELS, LABELS[::-1], LABELS])
    return JaxStep(epoch, (dense(8, 6, 4), xs, labels))


@plain
def map_over_samples() -> JaxStep:
    def loss(params: Any, x: Array, labels: Array) -> Array:
        return cross_entropy(lax.map(lambda row: mlp(params, row), x), labels)

    return sgd(loss, dense(8, 6, 4), X, LABELS)


@plain
def associative_scan() -> JaxStep:
    """A linear recurrence, as state-space models have it."""
    params = {"a": normal(6, scale=0.5), "b": normal(6), "c": normal(6)}

    def loss(params: Any, xs: Array) -> Array:
        def combine(left: Any, right: Any) -> Any:
            return left[0] * right[0], right[0] * left[1] + right[1]

        decay = jnp.broadcast_to(jax.nn.sigmoid(params["a"]), xs.shape)
        _, states = lax.associative_scan(combine, (decay, params["b"] * xs))
        return ((states @ params["c"]) ** 2).mean()

    return sgd(loss, params, normal(7, 6))


@plain
def update_every_other_step() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        params, count = state
        value, gradients = jax.value_and_grad(classify)(params, x, labels)
        params = lax.cond(count % 2 == 0, lambda: descend(params, gradients), lambda: params)
        return (params, count + 1), value

    return JaxStep(update, ((dense(8, 6, 4), jnp.int32(0)), X, LABELS))


@plain
def switch_of_activations() -> JaxStep:
    branches = [jax.nn.relu, jnp.tanh, jax.nn.silu]

    def loss(params: Any, x: Array, kind: Array) -> Array:
        return (lax.switch(kind, branches, x @ params["w"]) ** 2).mean()

    return sgd(loss, {"w": normal(8, 4)}, X, jnp.int32(2))


# Transformations


@plain
def checkpoint() -> JaxStep:
    def loss(params: Any, x: Array, labels: Array) -> Array:
        return jax.checkpoint(classify)(params, x, labels)

    return sgd(loss, dense(8, 12, 12, 4), X, LABELS)


@plain
def checkpoint_policy() -> JaxStep:
    policy = jax.checkpoint_policies.dots_saveable

    def loss(params: Any, x: Array, labels: Array) -> Array:
        return jax.checkpoint(classify, policy=policy)(params, x, labels)

    return sgd(loss, dense(8, 12, 12, 4), X, LABELS)


@plain
def gradients_of_each_sample_clipped() -> JaxStep:
    """Differential privacy without its noise."""

    def update(params: Any, x: Array, labels: Array) -> Any:
        def one(params: Any, x: Array, label: Array) -> Array:
            return classify(params, x[None], label[None])

        each = jax.vmap(jax.grad(one), (None, 0, 0))(params, x, labels)
        squares = [(g.reshape(len(x), -1) ** 2).sum(1) for g in jax.tree.leaves(each)]
        norms = jnp.sqrt(functools.reduce(jnp.add, squares))
        scale = jnp.minimum(1.0, 1.0 / norms) / len(x)
        return descend(params, jax.tree.map(lambda g: jnp.tensordot(scale, g, 1), each)), norms

    return JaxStep(update, (dense(8, 6, 4), X, LABELS))


@plain
def ensemble_by_vmap() -> JaxStep:
    def update(params: Any, x: Array, labels: Array) -> Any:
        values, gradients = jax.vmap(jax.value_and_grad(classify), (0, None, None))(
            params, x, labels
        )
        return descend(params, gradients), values

    members = jax.tree.map(lambda p: jnp.stack([p, -p, p * 0.5]), dense(8, 6, 4))
    return JaxStep(update, (members, X, LABELS))


@plain
def custom_vjp_clips_gradients() -> JaxStep:
    @jax.custom_vjp
    def clipped(x: Array) -> Array:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.05, 0.05),))

    def loss(params: Any, x: Array, labels: Array) -> Array:
        h = clipped(jax.nn.relu(x @ params[0]["w"] + params[0]["b"]))
        return cross_entropy(h @ params[1]["w"] + params[1]["b"], labels)

    return sgd(loss, dense(8, 6, 4), X, LABELS)


@plain
def custom_jvp() -> JaxStep:
    @jax.custom_jvp
    def log1pexp(x: Array) -> Array:
        return jnp.log(1.0 + jnp.exp(x))

    @log1pexp.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return log1pexp(x), (1 - 1 / (1 + jnp.exp(x))) * t

    return sgd(lambda params, x: log1pexp(mlp(params, x)).mean(), dense(8, 6, 4), X)


@plain
def straight_through_quantisation() -> JaxStep:
    def quantised(w: Array) -> Array:
        scale = jnp.abs(w).max() / 127
        return w + lax.stop_gradient(jnp.round(w / scale) * scale - w)

    def loss(params: Any, x: Array, labels: Array) -> Array:
        return classify(jax.tree.map(quantised, params), x, labels)

    return sgd(loss, dense(8, 6, 4), X, LABELS)


@plain
def meta_learning() -> JaxStep:
    def loss(params: Any, x: Array, labels: Array) -> Array:
        adapted = descend(params, jax.grad(classify)(params, x, labels), 0.1)
        return classify(adapted, x[::-1], labels[::-1])

    return sgd(loss, dense(8, 6, 4), X, LABELS)


@plain
def hessian_times_gradient() -> JaxStep:
    def update(params: Any, x: Array, labels: Array) -> Any:
        def gradient(p: Any) -> Any:
            return jax.grad(classify)(p, x, labels)

        gradients = gradient(params)
        _, curved = jax.jvp(gradient, (params,), (gradients,))
        return descend(params, jax.tree.map(lambda g, h: g + 0.1 * h, gradients, curved))

    return JaxStep(update, (dense(8, 6, 4), X, LABELS))


@plain
def gauss_newton_diagonal() -> JaxStep:
    def update(params: Any, x: Array, y: Array) -> Any:
        def residual(w: Array) -> Array:
            return jnp.tanh(x @ w) - y

        jacobian = jax.jacfwd(residual)(params["w"])
        error = residual(params["w"])
        step = (jacobian * error[:, None]).sum(0) / ((jacobian**2).sum(0) + 1e-3)
        return {"w": params["w"] - 0.1 * step}, (error**2).mean()

    return JaxStep(update, ({"w": normal(8, scale=0.3)}, X, normal(4)))


@plain
def penalised_input_gradient() -> JaxStep:
    """As in a critic of a Wasserstein GAN."""

    def loss(params: Any, x: Array) -> Array:
        def critic(row: Array) -> Array:
            return mlp_smooth(params, row)[0]

        slopes = jax.vmap(jax.grad(critic))(x)
        norms = jnp.sqrt((slopes**2).sum(-1) + 1e-6)
        return jax.vmap(critic)(x).mean() + 10.0 * ((norms - 1.0) ** 2).mean()

    return sgd(loss, dense(8, 6, 1), X)


@plain
def sharpness_aware() -> JaxStep:
    def update(params: Any, x: Array, labels: Array) -> Any:
        gradients = jax.grad(classify)(params, x, labels)
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradients)))
        raised = jax.tree.map(lambda p, g: p + 0.05 * g / norm, params, gradients)
        value, gradients = jax.value_and_grad(classify)(raised, x, labels)
        return descend(params, gradients), value

    return JaxStep(update, (dense(8, 6, 4), X, LABELS))


@plain
def exponential_moving_average() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        value, gradients = jax.value_and_grad(classify)(state["params"], x, labels)
        params = descend(state["params"], gradients)
        average = jax.tree.map(lambda a, p: 0.9 * a + 0.1 * p, state["average"], params)
        return {"params": params, "average": average}, value

    params = dense(8, 6, 4)
    return JaxStep(update, ({"params": params, "average": params}, X, LABELS))


@plain
def distillation() -> JaxStep:
    def update(params: Any, teacher: Any, x: Array) -> Any:
        def loss(params: Any) -> Array:
            wanted = jax.nn.softmax(mlp(teacher, x) / 2.0)
            return -(wanted * jax.nn.log_softmax(mlp(params, x) / 2.0)).sum(-1).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        return descend(params, gradients), value

    return JaxStep(update, (dense(8, 6, 4), dense(8, 12, 4), X), frozen="teacher")


@plain
def lora() -> JaxStep:
    def update(adapter: Any, base: Any, x: Array, labels: Array) -> Any:
        def loss(adapter: Any) -> Array:
            h = jax.nn.relu(x @ base["a"] + (x @ adapter["down"]) @ adapter["up"])
            return cross_entropy(h @ base["b"], labels)

        value, gradients = jax.value_and_grad(loss)(adapter)
        return descend(adapter, gradients), value

    adapter = {"down": normal(8, 2), "up": normal(2, 12, scale=0.1)}
    base = {"a": normal(8, 12, scale=0.5), "b": normal(12, 4, scale=0.5)}
    return JaxStep(update, (adapter, base, X, LABELS), frozen="base")


@plain
def accuracy_beside_the_loss() -> JaxStep:
    def update(params: Any, x: Array, labels: Array) -> Any:
        def loss(params: Any) -> Any:
            logits = mlp(params, x)
            return cross_entropy(logits, labels), logits

        (value, logits), gradients = jax.value_and_grad(loss, has_aux=True)(params)
        right = (logits.argmax(-1) == labels).mean()
        return descend(params, gradients), {"loss": value, "accuracy": right}

    return JaxStep(update, (dense(8, 6, 4), X, LABELS))


@plain
def generative_adversarial() -> JaxStep:
    def update(params: Any, noise: Array, real: Array) -> Any:
        def score(d: Any, x: Array) -> Array:
            return mlp(d, x)[:, 0]

        def of_discriminator(d: Any) -> Array:
            made = mlp(params["g"], noise)
            return (jax.nn.softplus(-score(d, real)) + jax.nn.softplus(score(d, made))).mean()

        def of_generator(g: Any) -> Array:
            return jax.nn.softplus(-score(params["d"], mlp(g, noise))).mean()

        losses, gradients = {}, {}
        losses["d"], gradients["d"] = jax.value_and_grad(of_discriminator)(params["d"])
        losses["g"], gradients["g"] = jax.value_and_grad(of_generator)(params["g"])
        return descend(params, gradients), losses

    params = {"g": dense(3, 6, 8), "d": dense(8, 6, 1)}
    return JaxStep(update, (params, normal(4, 3), X))


# Random numbers


@plain
def dropout() -> JaxStep:
    def loss(params: Any, key: Any, x: Array, labels: Array) -> Array:
        h = jax.nn.relu(x @ params[0]["w"] + params[0]["b"])
        h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h / 0.5, 0.0)
        return cross_entropy(h @ params[1]["w"] + params[1]["b"], labels)

    return sgd_with_key(loss, dense(8, 6, 4), X, LABELS)


@plain
def dropout_with_a_typed_key_in_the_state() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        following, key = jax.random.split(state["key"])

        def loss(params: Any) -> Array:
            keep = jax.random.bernoulli(key, 0.8, x.shape)
            return classify(params, jnp.where(keep, x / 0.8, 0.0), labels)

        value, gradients = jax.value_and_grad(loss)(state["params"])
        return {"params": descend(state["params"], gradients), "key": following}, value

    state = {"params": dense(8, 6, 4), "key": jax.random.key(1)}
    return JaxStep(update, (state, X, LABELS))


@plain
def key_folded_with_the_count() -> JaxStep:
    def update(state: Any, x: Array, labels: Array) -> Any:
        params, count = state
        key = jax.random.fold_in(jax.random.key(7), count)
        noisy = x + 0.1 * jax.random.uniform(key, x.shape, minval=-1.0)
        value, gradients = jax.value_and_grad(classify)(params, noisy, labels)
        return (descend(params, gradients), count + 1), value

    return JaxStep(update, ((dense(8, 6, 4), jnp.int32(0)), X, LABELS))


@plain
def variational_autoencoder() -> JaxStep:
    params = {"e": normal(8, 6, scale=0.3), "d": normal(3, 8, scale=0.3)}

    def loss(params: Any, key: Any, x: Array) -> Array:
        mean, spread = jnp.split(x @ params["e"], 2, -1)
        z = mean + jnp.exp(spread / 2) * jax.random.normal(key, mean.shape)
        divergence = -0.5 * (1 + spread - mean**2 - jnp.exp(spread)).sum(-1)
        return ((z @ params["d"] - x) ** 2).mean() + 0.1 * divergence.mean()

    return sgd_with_key(loss, params, X)


@plain
def policy_gradient() -> JaxStep:
    def loss(params: Any, key: Any, x: Array, rewards: Array) -> Array:
        logits = mlp(params, x)
        actions = jax.random.categorical(key, logits)
        gained = jnp.take_along_axis(rewards, actions[:, None], 1)[:, 0]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], 1)[:, 0]
        return -(chosen * gained).mean()

    return sgd_with_key(loss, dense(8, 6, 4), X, normal(4, 4))


@plain
def gumbel_softmax() -> JaxStep:
    def loss(params: Any, key: Any, x: Array) -> Array:
        logits = mlp(params, x)
        soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / 0.5)
        return ((soft @ jnp.arange(4.0)) ** 2).mean()

    return sgd_with_key(loss, dense(8, 6, 4), X)


@plain
def diffusion() -> JaxStep:
    def loss(params: Any, key: Any, x: Array) -> Array:
        noise_key, time_key = jax.random.split(key)
        t = jax.random.randint(time_key, (len(x),), 0, 100)
        kept = jnp.cos(t / 100 * jnp.pi / 2)[:, None]
        noise = jax.random.normal(noise_key, x.shape)
        seen = kept * x + jnp.sqrt(1 - kept**2) * noise
        guess = mlp(params, jnp.concatenate([seen, t[:, None] / 100], -1))
        return ((guess - noise) ** 2).mean()

    return sgd_with_key(loss, dense(9, 8, 8), X)


@plain
def shuffled_contrast() -> JaxStep:
    def loss(params: Any, key: Any, x: Array) -> Array:
        a, b = x @ params["w"], x[jax.random.permutation(key, len(x))] @ params["w"]
        return jnp.maximum(0.0, 1.0 - ((a - b) ** 2).sum(-1)).mean()

    return sgd_with_key(loss, {"w": normal(8, 3, scale=0.2)}, X)
