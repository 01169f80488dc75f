"""The table of lowerings, how one is applied, and what it raises."""

# pyright: reportMissingImports=false
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jax import Array
from jax import numpy as jnp

from poetc.ir.types import ELEMENT_TYPES

aten = torch.ops.aten

TYPES: dict[Any, str] = {
    getattr(torch, name): name
    for name in (str(type.dtype) for type in ELEMENT_TYPES.values())
    if hasattr(torch, name)
}
"""Element types: PyTorch's → ours."""


class UnsupportedError(Exception):
    """A form of an operation that is not lowered; the message says which and what would work."""


class Maxima(ABC):
    """The indices that max pooling returns: its gradient finds the maxima without them."""

    @abstractmethod
    def indices(self) -> Array:
        """The indices, for other operators that use them."""


Lowering = Callable[..., Any]
LOWERINGS: dict[Any, Lowering] = {}
TAKE_MAXIMA: set[Lowering] = set()
"""Lowerings that take `Maxima` as they are."""


def lowers(*targets: Any) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(targets, function))
        return function

    return register


def lowering(target: Any) -> Lowering | None:
    """The function for a target of an FX node, if there is one."""
    found = LOWERINGS.get(target)
    return found or LOWERINGS.get(getattr(target, "overloadpacket", None))


def apply(function: Lowering, arguments: Sequence[Any], options: dict[str, Any], meta: Any) -> Any:
    """The result of a lowering for arrays; `meta` is what PyTorch says of it.

    Raises UnsupportedError.
    """
    if function not in TAKE_MAXIMA:
        arguments = [numbers(argument) for argument in arguments]
    return _typed(function(*arguments, **options), meta)


def numbers(value: Any) -> Any:
    """The value itself, or the indices of maxima as an array."""
    return value.indices().astype(jnp.int32) if isinstance(value, Maxima) else value


def _typed(result: Any, meta: Any) -> Any:
    """A result of the type that PyTorch gives it; `meta` is PyTorch's."""
    if isinstance(meta, list | tuple):
        return tuple(_typed(part, like) for part, like in zip(result, meta, strict=True))
    if not isinstance(result, Array) or not isinstance(meta, torch.Tensor):
        return result
    if meta.dtype not in TYPES:
        raise UnsupportedError(f"{meta.dtype} ({', '.join(TYPES.values())} are supported)")
    if not meta.numel():
        return jnp.zeros(tuple(meta.shape), TYPES[meta.dtype])
    assert result.shape == tuple(meta.shape), (result.shape, meta.shape)
    return result.astype(TYPES[meta.dtype])


def absent(meta: Any) -> Any:
    """Takes the place of a result that cannot be computed, to find the problems after it."""
    if isinstance(meta, list | tuple):
        return [absent(part) for part in meta]
    if isinstance(meta, torch.Tensor) and all(isinstance(size, int) for size in meta.shape):
        return jnp.zeros(tuple(meta.shape), TYPES.get(meta.dtype, "float32"))
    return None
