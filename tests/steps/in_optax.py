"""Steps with optax: all optimisers and schedules, and what wraps them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from common import LABELS, Array, X, classify, dense, jax, jnp, mlp, normal, sgd
from registry import JaxStep, register, step

optax: Any = pytest.importorskip("optax", reason="pip install 'poetc[steps]'")
contrib: Any = optax.contrib


def trained(
    optimiser: Any,
    loss: Callable[..., Array] = classify,
    params: Any = None,
    batch: tuple[Any, ...] = (X, LABELS),
    with_value: bool = False,
    with_objective: bool = False,
) -> JaxStep:
    """A step of an optimiser, as its documentation has it."""
    params = dense(8, 4) if params is None else params
    optimiser = optax.with_extra_args_support(optimiser)

    def update(params: Any, state: Any, *batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        more: dict[str, Any] = {"value": value} if with_value else {}
        if with_objective:
            more["obj_fn"] = lambda params: loss(params, *batch)
        updates, state = optimiser.update(gradients, state, params, **more)
        return optax.apply_updates(params, updates), state, value

    return JaxStep(update, (params, optimiser.init(params), *batch), state=2)


def optimiser(name: str, make: Callable[[], Any], **options: Any) -> None:
    register(f"optax/{name}", lambda: trained(make(), **options))


# Optimisers. Those that divide by a root of squares take an epsilon above rounding where a
# gradient may be zero but for that.

for _name, _make in {
    "adabelief": lambda: optax.adabelief(1e-2),
    "adadelta": lambda: optax.adadelta(0.5),
    "adafactor": lambda: optax.adafactor(1e-2, min_dim_size_to_factor=4),
    "adagrad": lambda: optax.adagrad(1e-2),
    "adam": lambda: optax.adam(1e-2),
    "adam_with_nesterov": lambda: optax.adam(1e-2, nesterov=True),
    "adamax": lambda: optax.adamax(1e-2),
    "adamaxw": lambda: optax.adamaxw(1e-2),
    "adamw": lambda: optax.adamw(1e-2, weight_decay=0.1),
    "adan": lambda: optax.adan(1e-2),
    "amsgrad": lambda: optax.amsgrad(1e-2),
    "fromage": lambda: optax.fromage(1e-2),
    "lamb": lambda: optax.lamb(1e-2),
    "lars": lambda: optax.lars(1e-2),
    "lion": lambda: optax.lion(1e-3),
    "nadam": lambda: optax.nadam(1e-2),
    "nadamw": lambda: optax.nadamw(1e-2),
    "noisy_sgd": lambda: optax.noisy_sgd(1e-2, key=jax.random.key(3)),
    "novograd": lambda: optax.novograd(1e-2),
    "optimistic": lambda: optax.optimistic_gradient_descent(1e-2),
    "optimistic_adam": lambda: optax.optimistic_adam_v2(1e-2),
    "radam": lambda: optax.radam(1e-2),
    "rmsprop": lambda: optax.rmsprop(1e-2, momentum=0.9, centered=True),
    "rprop": lambda: optax.rprop(1e-2),
    "sgd": lambda: optax.sgd(1e-2),
    "sgd_nesterov": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "sign_sgd": lambda: optax.sign_sgd(1e-3),
    "signum": lambda: optax.signum(1e-3),
    "sm3": lambda: optax.sm3(1e-2),
    "yogi": lambda: optax.yogi(1e-2),
    "acprop": lambda: contrib.acprop(1e-2),
    "ademamix": lambda: contrib.ademamix(1e-2),
    "cocob": lambda: contrib.cocob(),
    "dadapt_adamw": lambda: contrib.dadapt_adamw(),
    "dog": lambda: contrib.dog(1.0),
    "prodigy": lambda: contrib.prodigy(1.0),
    "muon": lambda: contrib.muon(1e-2),
    "schedule_free": lambda: contrib.schedule_free_sgd(1e-2),
}.items():
    optimiser(_name, _make)

optimiser("sophia", lambda: contrib.sophia(1e-2), with_objective=True)
optimiser("polyak_sgd", lambda: optax.polyak_sgd(0.1), with_value=True)

# Schedules

for _name, _schedule in {
    "constant": lambda: optax.constant_schedule(1e-2),
    "cosine": lambda: optax.cosine_decay_schedule(1e-2, 20),
    "cosine_one_cycle": lambda: optax.cosine_onecycle_schedule(20, 1e-2),
    "exponential": lambda: optax.exponential_decay(1e-2, 2, 0.9, staircase=True),
    "joined": lambda: optax.join_schedules(
        [optax.linear_schedule(0.0, 1e-2, 2), optax.constant_schedule(5e-3)], [2]
    ),
    "linear_one_cycle": lambda: optax.linear_onecycle_schedule(20, 1e-2),
    "piecewise": lambda: optax.piecewise_constant_schedule(1e-2, {2: 0.1, 4: 0.5}),
    "polynomial": lambda: optax.polynomial_schedule(1e-2, 1e-3, 2.0, 10),
    "restarts": lambda: optax.sgdr_schedule(
        [
            {"init_value": 0.0, "peak_value": 1e-2, "decay_steps": 3, "warmup_steps": 1},
            {"init_value": 0.0, "peak_value": 5e-3, "decay_steps": 6, "warmup_steps": 2},
        ]
    ),
    "warmup_cosine": lambda: optax.warmup_cosine_decay_schedule(1e-4, 1e-2, 3, 20),
    "warmup_exponential": lambda: optax.warmup_exponential_decay_schedule(1e-4, 1e-2, 3, 5, 0.8),
}.items():
    optimiser(f"schedule_{_name}", partial(lambda make: optax.sgd(make(), 0.9), _schedule))

# What wraps and chains

KERNELS = partial(jax.tree.map, lambda p: p.ndim > 1)
"""Which parameters are matrices."""

for _name, _make in {
    "clipped_norm": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2)),
    "clipped_values": lambda: optax.chain(optax.clip(0.01), optax.sgd(1e-2, 0.9)),
    "clipped_blocks": lambda: optax.chain(optax.clip_by_block_rms(0.1), optax.sgd(1e-2)),
    "clipped_adaptively": lambda: optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(1e-2)),
    "centralised": lambda: optax.chain(optax.centralize(), optax.sgd(1e-2)),
    "noise": lambda: optax.chain(optax.add_noise(0.01, 0.55, 0), optax.sgd(1e-2)),
    "average_of_updates": lambda: optax.chain(optax.sgd(1e-2), optax.ema(0.9)),
    "kept_positive": lambda: optax.chain(optax.sgd(1e-2), optax.keep_params_nonnegative()),
    "nans_as_zero": lambda: optax.chain(optax.zero_nans(), optax.sgd(1e-2)),
    "trust_ratio": lambda: optax.chain(optax.scale_by_trust_ratio(), optax.sgd(1e-2)),
    "multi_steps": lambda: optax.MultiSteps(optax.adam(1e-2), 2),
    "if_finite": lambda: optax.apply_if_finite(optax.sgd(1e-2), 5),
    "every_other": lambda: optax.chain(optax.apply_every(2), optax.sgd(1e-2)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-2),
    "injected_schedule": lambda: optax.inject_hyperparams(optax.sgd)(
        learning_rate=optax.linear_schedule(1e-2, 1e-3, 5), momentum=0.9
    ),
    "masked_decay": lambda: optax.chain(
        optax.add_decayed_weights(1e-2, mask=KERNELS), optax.sgd(1e-2)
    ),
    "masked": lambda: optax.masked(optax.adam(1e-2), KERNELS),
    "partitioned": lambda: optax.partition(
        {"adam": optax.adam(1e-2), "frozen": optax.set_to_zero()},
        [{"w": "adam", "b": "frozen"}],
    ),
    "conditionally": lambda: optax.conditionally_mask(
        optax.adam(1e-2), lambda count: count % 2 == 0
    ),
    "flattened": lambda: optax.flatten(optax.adam(1e-2)),
}.items():
    optimiser(_name, _make)

optimiser(
    "plateau",
    lambda: optax.chain(optax.adam(1e-2), contrib.reduce_on_plateau(patience=1, cooldown=1)),
    with_value=True,
)


@step("optax")
def lookahead() -> JaxStep:
    optimiser = optax.lookahead(optax.sgd(1e-1), sync_period=2, slow_step_size=0.5)

    def update(params: Any, state: Any, x: Array, labels: Array) -> Any:
        value, gradients = jax.value_and_grad(classify)(params.fast, x, labels)
        updates, state = optimiser.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    params = optax.LookaheadParams.init_synced(dense(8, 4))
    return JaxStep(update, (params, optimiser.init(params), X, LABELS), state=2)


@step("optax")
def average_of_parameters() -> JaxStep:
    optimiser = optax.adam(1e-2)

    def update(params: Any, state: Any, average: Any, x: Array, labels: Array) -> Any:
        value, gradients = jax.value_and_grad(classify)(params, x, labels)
        updates, state = optimiser.update(gradients, state)
        params = optax.apply_updates(params, updates)
        return params, state, optax.incremental_update(params, average, 0.1), value

    params = dense(8, 4)
    return JaxStep(update, (params, optimiser.init(params), params, X, LABELS), state=3)


# Losses


def loss(name: str, of: Callable[[Array], Array]) -> None:
    """Registers a step whose loss is a function of the outputs of a perceptron."""
    register(f"optax/{name}", lambda: sgd(lambda p, x: of(mlp(p, x)).mean(), dense(8, 4), X))


TARGET = normal(4, 4, scale=0.5, seed=2)
CHANCES = jax.nn.softmax(TARGET)

loss("huber", lambda z: optax.huber_loss(z, TARGET))
loss("log_cosh", lambda z: optax.log_cosh(z, TARGET))
loss("hinge", lambda z: optax.hinge_loss(z, jnp.sign(TARGET)))
loss("cosine_distance", lambda z: optax.cosine_distance(z, TARGET))
loss("kl_divergence", lambda z: optax.kl_divergence(jax.nn.log_softmax(z), CHANCES))
loss("sigmoid_cross_entropy", lambda z: optax.sigmoid_binary_cross_entropy(z, CHANCES))
loss("focal", lambda z: optax.sigmoid_focal_loss(z, (TARGET > 0).astype(jnp.float32)))
loss(
    "smoothed_labels",
    lambda z: optax.softmax_cross_entropy(z, optax.smooth_labels(jax.nn.one_hot(LABELS, 4), 0.1)),
)


@step("optax")
def ctc() -> JaxStep:
    def loss(params: Any, x: Array) -> Array:
        labels, none = jnp.array([[1, 2], [3, 4]]), jnp.zeros((2, 2))
        return optax.ctc_loss(x @ params["w"], jnp.zeros((2, 4)), labels, none).mean()

    return sgd(loss, {"w": normal(6, 5, scale=0.3)}, normal(2, 4, 6))


@step("optax")
def adam_trains_a_scan() -> JaxStep:
    def loss(params: Any, xs: Array) -> Array:
        def cell(h: Array, x: Array) -> Any:
            return jnp.tanh(x @ params["x"] + h @ params["h"]), None

        return (jax.lax.scan(cell, jnp.zeros(4), xs)[0] ** 2).mean()

    params = {"x": normal(3, 4), "h": normal(4, 4, scale=0.4)}
    return trained(optax.adam(1e-2), loss, params, (normal(4, 3),))


@step("optax")
def bfloat16_state() -> JaxStep:
    return trained(optax.adam(1e-2, mu_dtype=jnp.bfloat16))
