"""A training step of MobileNet v1 in JAX: depthwise and pointwise convolutions with batch norm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Stride of the depthwise convolution and output features at full width, of each block.
_BLOCKS = (
    *((1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512)),
    *((1, 512),) * 5,
    *((2, 1024), (1, 1024)),
)
_EPSILON = 1e-3


def _convolution(x: Any, w: Any, stride: int = 1, groups: int = 1) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=layout, feature_group_count=groups
    )


def _norm(x: Any, p: dict[str, Any]) -> Any:
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return jax.nn.relu((x - mean) * lax.rsqrt(variance + _EPSILON) * p["scale"] + p["bias"])


def _loss(params: dict[str, Any], x: Any, label: Any) -> Any:
    x = _norm(_convolution(x, params["stem"]["w"], 2), params["stem"])
    for (stride, _), block in zip(_BLOCKS, params["blocks"], strict=True):
        depth, point = block["depth"], block["point"]
        x = _norm(_convolution(x, depth["w"], stride, x.shape[-1]), depth)
        x = _norm(_convolution(x, point["w"]), point)
    logits = x.mean((1, 2)) @ params["head"]["w"] + params["head"]["b"]
    return -(jax.nn.log_softmax(logits) * label).sum() / len(label)


def step_and_arguments(
    width: float = 0.25, pixels: int = 96, classes: int = 2, batch: int = 1, seed: int = 0
) -> tuple[Any, tuple[Any, ...]]:
    """`step(params, x, label) -> (params, loss)` by SGD, and its arguments, seeded."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Any:
        scale = (2 / np.prod(shape[:-1])) ** 0.5
        return jnp.asarray(random.standard_normal(shape) * scale, jnp.float32)

    def layer(*shape: int) -> dict[str, Any]:
        scale, bias = (jnp.asarray(random.standard_normal(shape[-1]) * 0.1) for _ in range(2))
        return {"w": weights(*shape), "scale": 1 + scale, "bias": bias}

    features = int(32 * width)
    params: dict[str, Any] = {"stem": layer(3, 3, 3, features), "blocks": []}
    for _, full in _BLOCKS:
        after = int(full * width)
        block = {"depth": layer(3, 3, 1, features), "point": layer(1, 1, features, after)}
        params["blocks"].append(block)
        features = after
    params["head"] = {"w": weights(features, classes), "b": jnp.zeros(classes)}
    x = jnp.asarray(random.standard_normal((batch, pixels, pixels, 3)), jnp.float32)
    label = jnp.asarray(np.eye(classes)[random.integers(classes, size=batch)], jnp.float32)

    def step(params: Any, x: Any, label: Any) -> Any:
        loss, gradients = jax.value_and_grad(_loss)(params, x, label)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients), loss

    return step, (params, x, label)
