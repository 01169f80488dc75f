"""A module, what trains it, and one batch."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poetc.errors import InputError

Tensors = OrderedDict[str, Any]


@dataclass(frozen=True)
class Training:
    """A module, what trains it, and one batch."""

    module: Any
    loss: Callable[..., Any]
    optimiser: Any
    inputs: tuple[Any, ...]
    targets: tuple[Any, ...]

    def copy(self) -> Training:
        """With a module, an optimiser and tensors of its own: a step may write into any of them.
        InputError if they cannot be copied."""
        try:
            module, optimiser = copy.deepcopy((self.module, self.optimiser))
        except (RuntimeError, TypeError) as error:
            raise InputError(f"module and optimiser cannot be copied: {error}") from error
        inputs, targets = (
            tuple(tensor.detach().clone() for tensor in part)
            for part in (self.inputs, self.targets)
        )
        return Training(module, self.loss, optimiser, inputs, targets)

    def parameters(self) -> Tensors:
        return OrderedDict(self.module.named_parameters())

    def buffers(self) -> Tensors:
        return OrderedDict(self.module.named_buffers())

    def trained(self) -> list[list[str]]:
        """The names of the parameters in each group of the optimiser."""
        names = {parameter: name for name, parameter in self.module.named_parameters()}
        return [
            [names[parameter] for parameter in group["params"]]
            for group in self.optimiser.param_groups
        ]
