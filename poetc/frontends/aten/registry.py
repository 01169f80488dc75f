"""The table of lowerings, and what they raise."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

MAXIMA = object()
"""In place of the indices that max pooling returns: its gradient finds the maxima again."""


class UnsupportedError(Exception):
    """A form of an operation that is not lowered; the message says which and what would work."""


Lowering = Callable[..., Any]
LOWERINGS: dict[Any, Lowering] = {}


def lowers(*targets: Any) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(targets, function))
        return function

    return register
