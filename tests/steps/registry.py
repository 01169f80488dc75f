"""The register of training steps: their names, how each is made, and how its framework runs it.

The modules `in_<library>.py` beside this one have the steps, each written as users of the library
write them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from poetc.frontends.files import Exported

jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")

Results = dict[int, list[np.ndarray]]
"""What the last of so many steps returns, in flat order."""


UNOPTIMISED = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""Options with which XLA compiles soon."""


class Made(Protocol):
    """A step with its data."""

    def export(self, path: Path) -> Exported:
        """The step as the files that poetc compiles."""
        ...

    def results(self, counts: Sequence[int]) -> Results:
        """What the framework computes in so many steps."""
        ...


@dataclass(frozen=True)
class Step:
    """A training step. `build` makes it with its data, the same each time."""

    name: str
    build: Callable[[], Made]


STEPS: dict[str, Step] = {}
"""All steps by name, which begins with that of the library."""


def register(name: str, build: Callable[[], Made]) -> None:
    """Puts a step into `STEPS`; the name must be new."""
    assert name not in STEPS, name
    STEPS[name] = Step(name, build)


def step(library: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """A decorator that registers a function that builds a step, by its name."""

    def decorate(build: Callable[[], Made]) -> Callable[[], Made]:
        register(f"{library}/{build.__name__}", build)
        return build

    return decorate


@dataclass(frozen=True)
class JaxStep:
    """A function and its arguments. The first `state` arguments come back as the first results,
    with new values; what follows, the batch, is the same in all steps. `donate` says so where one
    of them is a single array; `frozen` names arguments that no step changes."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    state: int = 1
    donate: bool = False
    frozen: str | Sequence[str] = ()

    def export(self, path: Path) -> Exported:
        from poetc.frontends.jax import export

        donated = tuple(range(self.state)) if self.donate else None
        exported = export(self.step, self.args, path, donate_argnums=donated, frozen=self.frozen)
        count = len(jax.tree.leaves(self.args[: self.state]))
        assert exported.updates == {i: i for i in range(count)}
        return exported

    def results(self, counts: Sequence[int]) -> Results:
        run = jax.jit(self.step).lower(*self.args).compile(UNOPTIMISED)
        args, found = self.args, {}
        for number in range(1, max(counts) + 1):
            returned = run(*args)
            returned = returned if type(returned) is tuple else (returned,)
            args = (*returned[: self.state], *self.args[self.state :])
            if number in counts:
                found[number] = [_array(leaf) for leaf in jax.tree.leaves(returned)]
        return found


def _array(leaf: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


@dataclass(frozen=True)
class TorchStep:
    """What `poetc.frontends.torch.export` takes; `options` are the named ones."""

    module: Any
    loss: Callable[..., Any]
    optimiser: Any
    inputs: Any
    targets: Any = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def export(self, path: Path) -> Exported:
        from poetc.frontends.torch import export

        return export(
            self.module,
            self.loss,
            self.optimiser,
            self.inputs,
            self.targets,
            path,
            **self.options,
        )

    def results(self, counts: Sequence[int]) -> Results:
        from torch_modules import expected_state

        from poetc.frontends.torch.graph import array_of

        # One copy of all: the optimiser has the parameters of the module.
        module, loss, optimiser = copy.deepcopy((self.module, self.loss, self.optimiser))
        inputs, targets = _tuple(self.inputs), _tuple(self.targets)
        seed, found = self.options.get("seed"), {}
        for number in range(1, max(counts) + 1):
            optimiser.zero_grad()
            with nullcontext() if seed is None else _random(seed + number - 1):
                value = loss(module(*inputs), *targets)
            value.backward()
            self._clip(module)
            optimiser.step()
            if number in counts:
                state = expected_state(module, optimiser)
                tensors = [array_of(tensor).copy() for tensor in (value, *state)]
                following = [] if seed is None else [np.array(seed + number, np.int32)]
                found[number] = tensors + following
        return found

    def _clip(self, module: Any) -> None:
        from torch.nn import utils

        if "clip_value" in self.options:
            utils.clip_grad_value_(module.parameters(), self.options["clip_value"])
        if "clip_norm" in self.options:
            utils.clip_grad_norm_(module.parameters(), self.options["clip_norm"])


def _random(seed: int) -> Any:
    """Random numbers are those that the seed of a step gives."""
    import torch

    from poetc.frontends.torch.random import first_seeds, seeded

    return seeded(torch, first_seeds(torch, seed))


def _tuple(part: Any) -> tuple[Any, ...]:
    return tuple(part) if isinstance(part, tuple | list) else (part,)
