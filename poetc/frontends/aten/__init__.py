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

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.export import default_decompositions

from poetc.frontends.aten import (
    bags,
    convolutions,
    distances,
    elementwise,
    indices,
    reductions,
    resampling,
    shapes,
    windows,
)
from poetc.frontends.aten.refusals import REFUSED, VALUES, reason
from poetc.frontends.aten.registry import (
    TYPES,
    UnsupportedError,
    absent,
    apply,
    aten,
    lowering,
    numbers,
)

__all__ = [
    "TYPES",
    "VALUES",
    "UnsupportedError",
    "absent",
    "bags",
    "convolutions",
    "core_operators",
    "decompositions",
    "distances",
    "elementwise",
    "indices",
    "lower",
    "lowering",
    "numbers",
    "reductions",
    "refusal",
    "resampling",
    "shapes",
    "windows",
]


def lower(target: Any, arguments: Sequence[Any], options: dict[str, Any], meta: Any) -> Any:
    """The result of an FX node for arrays; `meta` is what PyTorch says of it.

    Raises UnsupportedError.
    """
    function = lowering(target)
    if function is None:
        raise UnsupportedError(reason(target))
    return apply(function, arguments, options, meta)


def refusal(target: Any) -> str | None:
    """Why an operator cannot be in a step, and what to do instead; None if it can."""
    if target in REFUSED or getattr(target, "overloadpacket", None) in REFUSED:
        return reason(target)
    return None if lowering(target) or target in decompositions() else reason(target)


def core_operators() -> Iterator[Any]:
    """PyTorch's own list of Core ATen: all overloads that have its tag."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if space == "aten":
            operator = getattr(getattr(aten, packet), overload or "default")
            if torch.Tag.core in operator.tags:
                yield operator


@cache
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
            aten.bucketize,
            aten.gelu,
            aten.hypot,
            aten.native_group_norm,
            aten.native_layer_norm,
        ]
    )
    return {target: function for target, function in table.items() if lowering(target) is None}
