"""Which optimisers of PyTorch and of optax can be a part of a step: a small one is compiled with
each."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from pathlib import Path
from typing import Any

from coverage_operations import refusal

from poetc.errors import InputError

TORCH_HEAD = ("| optimiser of PyTorch | |", "|---|---|")
OPTAX_HEAD = ("| optimiser of optax | |", "|---|---|")


def torch_rows() -> list[str]:
    """A row for each optimiser of `torch.optim`."""
    import torch

    kinds = [
        kind
        for kind in vars(torch.optim).values()
        if isinstance(kind, type)
        and issubclass(kind, torch.optim.Optimizer)
        and kind is not torch.optim.Optimizer
    ]
    return _rows({kind.__name__: _torch_refusal(torch, kind) for kind in kinds})


def _torch_refusal(torch: Any, kind: Any) -> str | None:
    from poetc.frontends.torch import export

    module = torch.nn.Linear(2, 2, bias=False)
    optimiser = kind(module.parameters(), lr=0.1)
    numbers = torch.ones(2, 2)
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = export(
                module,
                torch.nn.functional.mse_loss,
                optimiser,
                numbers,
                numbers,
                Path(folder, "step"),
            )
        except InputError as error:
            # What can be exported is in the other rows.
            return error.message.split(";")[0]
        return refusal(done.mlir.read_text())


def optax_rows() -> list[str]:
    """A row for each of the functions of optax that make an optimiser."""
    import optax
    from optax._src import alias

    names = [
        name
        for name, function in vars(alias).items()
        if inspect.isfunction(function) and function.__module__ == alias.__name__
    ]
    return _rows({name: _optax_refusal(optax, name) for name in names if hasattr(optax, name)})


def _optax_refusal(optax: Any, name: str) -> str | None:
    import jax
    import jax.numpy as jnp

    make = getattr(optax, name)
    rate = {"learning_rate": 0.1} if "learning_rate" in inspect.signature(make).parameters else {}
    given = optax.with_extra_args_support(make(**rate))

    def step(parameters: Any, state: Any, x: Any) -> Any:
        def loss(parameters: Any) -> Any:
            return jnp.mean((x @ parameters) ** 2)

        value, slope = jax.value_and_grad(loss)(parameters)
        found = {"value": value, "grad": slope, "value_fn": loss}
        change, state = given.update(slope, state, parameters, **found)
        return optax.apply_updates(parameters, change), state

    parameters = jnp.ones((2, 2))
    with warnings.catch_warnings():
        # Keys that are not given.
        warnings.simplefilter("ignore")
        donating = jax.jit(step, donate_argnums=(0, 1))
        return refusal(donating.lower(parameters, given.init(parameters), parameters).as_text())


def _rows(found: dict[str, str | None]) -> list[str]:
    lines = [
        f"| `{name}` | {'yes' if why is None else f'refused: {why}'} |"
        for name, why in sorted(found.items(), key=lambda row: row[0].lower())
    ]
    count = sum(why is None for why in found.values())
    return [*lines, f"| {count} of {len(found)} | |"]
