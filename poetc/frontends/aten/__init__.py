"""ATen operations as functions of JAX arrays: what PyTorch's traced training step becomes.

`LOWERINGS` has one function per operator, or overload of one, with PyTorch's arguments: tensors are
arrays, and so are results, of PyTorch's shapes. `decompositions()` are those of PyTorch that bring
everything else down to these. Only what poetc can compile is here, so that what is missing is
reported with its place in the module rather than with a line of StableHLO.

Gradients of windows and convolutions are those that JAX derives from the forward operation, because
poetc's kernels for them are made for that form. This module needs torch and jax.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jax import Array
from jax import numpy as jnp
from torch._decomp import get_decompositions
from torch.export import default_decompositions

from poetc.frontends.aten import elementwise, indices, reductions, shapes, windows
from poetc.frontends.aten.registry import LOWERINGS, MAXIMA, Lowering, UnsupportedError, aten
from poetc.ir.types import ELEMENT_TYPES

__all__ = [
    "TYPES",
    "UnsupportedError",
    "absent",
    "decompositions",
    "elementwise",
    "indices",
    "lower",
    "lowering",
    "reductions",
    "shapes",
    "windows",
]

TYPES: dict[Any, str] = {
    getattr(torch, name): name
    for name in (str(type.dtype) for type in ELEMENT_TYPES.values())
    if hasattr(torch, name)
}
"""Element types: PyTorch's → ours."""

_RANDOM = (
    "random numbers; a step gives the same results for the same arguments (use p=0 for dropout, or "
    "eval() on that module, or give random numbers as an input)"
)


def lowering(target: Any) -> Lowering | None:
    """The function for a target of an FX node, if there is one."""
    found = LOWERINGS.get(target)
    return found or LOWERINGS.get(getattr(target, "overloadpacket", None))


def lower(target: Any, arguments: Sequence[Any], options: dict[str, Any], meta: Any) -> Any:
    """What an FX node computes from arrays; `meta` is what PyTorch says of its result.

    Raises UnsupportedError.
    """
    function = lowering(target)
    if function is None:
        random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        raise UnsupportedError(_RANDOM if random else "")
    if (
        any(argument is MAXIMA for argument in arguments)
        and function is not windows.max_pool2d_backward
    ):
        raise UnsupportedError("the indices of max_pool2d (only its gradient may use them)")
    return _typed(function(*arguments, **options), meta)


def _typed(result: Any, meta: Any) -> Any:
    """A result of the type that PyTorch gives it; `meta` is PyTorch's."""
    if isinstance(meta, list | tuple):
        return tuple(_typed(part, like) for part, like in zip(result, meta, strict=True))
    if not isinstance(result, Array) or not isinstance(meta, torch.Tensor):
        return result
    if meta.dtype not in TYPES:
        raise UnsupportedError(f"{meta.dtype} ({', '.join(TYPES.values())} are supported)")
    assert result.shape == tuple(meta.shape), (result.shape, meta.shape)
    return result.astype(TYPES[meta.dtype])


def absent(meta: Any) -> Any:
    """Takes the place of a result that cannot be computed, to find the problems after it."""
    if isinstance(meta, list | tuple):
        return [absent(part) for part in meta]
    if isinstance(meta, torch.Tensor) and all(isinstance(size, int) for size in meta.shape):
        return jnp.zeros(tuple(meta.shape), TYPES.get(meta.dtype, "float32"))
    return None


def decompositions() -> dict[Any, Any]:
    """Operator → PyTorch's own decomposition of it, for all that have no lowering here."""
    table = dict(default_decompositions().items())
    table |= get_decompositions(
        [
            aten._log_softmax,
            aten._native_batch_norm_legit,
            aten._native_batch_norm_legit_functional,
            aten._native_batch_norm_legit_no_training,
            aten._softmax,
            aten.addmm,
            aten.gelu,
            aten.native_group_norm,
            aten.native_layer_norm,
        ]
    )
    return {target: function for target, function in table.items() if lowering(target) is None}
