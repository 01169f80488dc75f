"""PyTorch: the training step of a module, written as the files that poetc compiles.

    from poetc.frontends.torch import export

    optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    export(module, torch.nn.functional.cross_entropy, optimiser, images, labels, "model")

writes `model.mlir`, the step, and `model.npz`, its arguments and what PyTorch computes from them.
The step is forward, backward and `optimiser.step()` itself, traced by PyTorch into one graph of
ATen operations without side effects. Each becomes a function of JAX (`poetc.frontends.aten`), and
JAX writes the StableHLO.
"""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from poetc.errors import InputError
from poetc.frontends.files import Exported, Lowered, check_types, require
from poetc.frontends.jax import lower as lower_jax
from poetc.frontends.torch.graph import array_of, run, wide_integers
from poetc.frontends.torch.optimisers import (
    OPTIMISERS,
    Clipping,
    Slots,
    check_optimiser,
    first_state,
    has_started,
    new_state,
    rates,
    state_of,
    update_of,
)
from poetc.frontends.torch.prediction import prediction
from poetc.frontends.torch.random import first_seeds, next_seeds, seeded
from poetc.frontends.torch.trace import name_places, number_backward, place, trace
from poetc.frontends.torch.training import Tensors, Training

__all__ = ["OPTIMISERS", "export", "lower"]


def export(
    module: Any,
    loss: Callable[..., Any],
    optimiser: Any,
    inputs: Any,
    targets: Any,
    path: str | os.PathLike[str],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    seed: int | None = None,
    predict: Any = None,
) -> Exported:
    """Write `NAME.mlir` and `NAME.npz` of a training step for the path `NAME` or `NAME.mlir`.

    The arguments are those of `lower`. Raises InputError as that does, and if a file cannot be
    written.
    """
    return lower(
        module,
        loss,
        optimiser,
        inputs,
        targets,
        clip_norm=clip_norm,
        clip_value=clip_value,
        seed=seed,
        predict=predict,
    ).write(path)


def lower(
    module: Any,
    loss: Callable[..., Any],
    optimiser: Any,
    inputs: Any,
    targets: Any,
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    seed: int | None = None,
    predict: Any = None,
) -> Lowered:
    """A training step in StableHLO, in memory, with its arguments and PyTorch's results.

    The step computes `loss(module(*inputs), *targets)`, a scalar, its gradient, and
    `optimiser.step()`. `inputs` and `targets` are tensors or tuples of them; `targets` may be `()`.
    The module is traced in the mode it is in (`train()` or `eval()`). Neither it nor the optimiser,
    one of `OPTIMISERS`, is changed; the settings of both become constants of the step, except a
    learning rate that is a tensor, which is an argument.

    Before the update, with `clip_value` each number of the gradients of the optimiser's parameters
    is clipped, and with `clip_norm` then the norm of all of them, as `torch.nn.utils` does it.

    With `seed`, random numbers (dropout) depend on an argument that has this value, and that each
    step makes one more; without, they are refused.

    With `predict`, example inputs (a tensor or a tuple of them, also of another batch), there is an
    entry point beside the step, `@predict`: what the module gives for them in the mode `eval()`,
    whatever mode it is in.

    Arguments of the step are the parameters, the optimiser's state (as it is, or as its first step
    makes it), the buffers of the module, the seed, learning rates, inputs and targets. Results are
    the loss and the new values of the first four, all of the types that they have in PyTorch.

    Raises InputError for what cannot be exported, and where PyTorch or JAX is missing. What module,
    loss or optimiser raise is passed on.
    """
    torch = require("torch", "the frontend for PyTorch")
    jax = require("jax", "the frontend for PyTorch", "torch")
    _check_module(torch, module, loss)
    given = Training(module, loss, optimiser, *_tuples(torch, inputs=inputs, targets=targets))
    (asked,) = _tuples(torch, predict=() if predict is None else predict)
    check_optimiser(torch, given)
    _check_types(torch, given)
    clipping = Clipping(clip_norm, clip_value)
    after = given.copy()
    seeds = first_seeds(torch, seed)
    with first_state(torch, after.optimiser) as first:
        value = _eager_step(torch, after, seeds, clipping)
    slots, state = state_of(torch, after, first, has_started(given.optimiser))
    changed = new_state(torch, after.optimiser, after.parameters(), slots, state)

    _, settings = rates(torch, given.optimiser)
    parts = (given.parameters(), state, given.buffers(), seeds)
    rest = (list(settings.values()), given.inputs, given.targets)
    example = [tensor.detach() for tensor in (*_flat(*parts), *chain(*rest))]
    graph = trace(
        _flat_step(torch, given.copy(), slots, parts, clipping),
        example,
        lambda graph: _check_constants(graph, given),
    )
    _check_traced(graph, example, value)

    def step(
        parameters: Any,
        optimiser: Any,
        buffers: Any,
        random: Any,
        settings: Any,
        inputs: Any,
        targets: Any,
    ) -> Any:
        arrays = [*_flat(parameters, optimiser, buffers, random, settings), *inputs, *targets]
        new_value, *new = run(graph, arrays)
        return new_value, *_split(new, parts)

    results = [value, *_flat(after.parameters(), changed, after.buffers(), next_seeds(seeds))]
    arguments = [
        OrderedDict((k, array_of(v)) for k, v in part.items()) for part in (*parts, settings)
    ]
    arguments += [tuple(map(array_of, part)) for part in (given.inputs, given.targets)]
    with wide_integers():
        return lower_jax(
            step,
            jax.tree.map(lambda array: jax.numpy.asarray(array, array.dtype), arguments),
            donate_argnums={i: i + 1 for i in range(len(parts))},
            results=[array_of(tensor) for tensor in results],
            entries={} if predict is None else {"predict": prediction(torch, given, asked)},
        )


def _tuples(torch: Any, **batch: Any) -> list[tuple[Any, ...]]:
    parts = {
        name: tuple(part) if isinstance(part, tuple | list) else (part,)
        for name, part in batch.items()
    }
    wrong = [
        f"{name}.{i} is of the type {type(tensor).__name__}"
        for name, part in parts.items()
        for i, tensor in enumerate(part)
        if not isinstance(tensor, torch.Tensor)
    ]
    if wrong:
        raise InputError(
            f"inputs and targets are tensors or tuples of tensors, but {', '.join(wrong)}"
        )
    return list(parts.values())


def _flat(*parts: Mapping[str, Any]) -> list[Any]:
    return list(chain.from_iterable(part.values() for part in parts))


def _split(tensors: Iterable[Any], like: Sequence[Mapping[str, Any]]) -> list[Tensors]:
    """The opposite of `_flat`, with the names of `like`."""
    rest = iter(tensors)
    return [OrderedDict(zip(part, islice(rest, len(part)), strict=True)) for part in like]


# Checks


def _check_module(torch: Any, module: Any, loss: Any) -> None:
    """Raises an InputError unless there is a module of Python, with values, and a loss to call."""
    from torch._dynamo import OptimizedModule  # pyright: ignore[reportMissingImports]
    from torch.nn.parameter import is_lazy  # pyright: ignore[reportMissingImports]

    if not isinstance(module, torch.nn.Module):
        raise InputError(f"the module is a torch.nn.Module, not of the type {_type(module)}")
    if not callable(loss):
        raise InputError(
            f"the loss is a function or a torch.nn.Module, not of the type {_type(loss)}"
        )
    made = [
        f"  {name or 'the module itself'}: {_type(part)}"
        for name, part in module.named_modules()
        if isinstance(part, torch.jit.ScriptModule | OptimizedModule)
    ]
    if made:
        raise InputError(
            "\n".join(("modules that are compiled; export those they were made from:", *made))
        )
    tensors = chain(module.named_parameters(), module.named_buffers())
    lazy = [name for name, tensor in tensors if is_lazy(tensor)]
    if lazy:
        raise InputError(
            f"{', '.join(lazy)} have no shapes yet; call the module once, then make the optimiser"
        )


def _type(value: Any) -> str:
    """The name of its class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _check_types(torch: Any, given: Training) -> None:
    """Raises an InputError that lists all tensors that cannot be arguments of a step."""
    from poetc.frontends.aten import TYPES

    parts = {
        "parameters": given.parameters().items(),
        "buffers": given.buffers().items(),
        "inputs": enumerate(given.inputs),
        "targets": enumerate(given.targets),
    }
    named = [(f"{part}.{name}", t) for part, items in parts.items() for name, t in items]

    def type_of(tensor: Any) -> str:
        if tensor.is_meta:
            return "meta, which has no values"
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"a {_type(tensor)}, which has operations of its own (make it a plain tensor)"
        if tensor.layout != torch.strided:
            return str(tensor.layout).removeprefix("torch.")
        return TYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))

    check_types((name, type_of(tensor)) for name, tensor in named)


# The step in PyTorch


def _eager_step(torch: Any, training: Training, seeds: Tensors, clipping: Clipping) -> Any:
    """Do a step as PyTorch does it; the loss. Random numbers after it are as without it."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        training.optimiser.zero_grad()
        with seeded(torch, seeds):
            value = training.loss(training.module(*training.inputs), *training.targets)
        if not isinstance(value, torch.Tensor) or value.shape != ():
            what = f"a tensor of shape {tuple(value.shape)}" if hasattr(value, "shape") else value
            raise InputError(f"the loss must be a scalar tensor, not {what}")
        wanted = [p for p in training.module.parameters() if p.requires_grad]
        if not wanted or not value.requires_grad:
            raise InputError(
                "the loss has no gradient: no parameter that requires one is among what it is "
                "computed from"
            )
        value.backward(inputs=wanted)  # of nothing else that the loss may use
        clipping.apply(torch, training.optimiser)
        training.optimiser.step()
    return value


def _check_constants(graph: Any, given: Training) -> None:
    """Raises an InputError if the graph has tensors of the training as constants: those that module
    or loss know from elsewhere, which would have neither new values nor gradients."""
    parts = {
        "parameters": [(n, p) for n, p in given.parameters().items() if p.requires_grad],
        "buffers": given.buffers().items(),
        "inputs": enumerate(given.inputs),
        "targets": enumerate(given.targets),
    }
    names: dict[int, str] = {}
    for part, items in parts.items():
        for name, tensor in items:
            if tensor.numel():
                names.setdefault(tensor.untyped_storage().data_ptr(), f"{part}.{name}")
    constants = [getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    used = {
        names[place]: None
        for tensor in constants
        if (place := tensor.untyped_storage().data_ptr()) in names
    }
    if used:
        raise InputError(
            f"module or loss use {', '.join(used)} otherwise than as arguments, so that their "
            "values would be constants of the step; return from the module what the loss needs of "
            "it, and give what it needs of the batch as inputs or targets"
        )


def _check_traced(graph: Any, example: Sequence[Any], value: Any) -> None:
    """Raises an InputError unless the graph has the loss that the step has: not all of PyTorch's
    own decompositions are right, and Python may do something else the second time."""
    found, value = float(graph(*example)[0]), value.detach()
    most = 1e-3 if value.element_size() >= 4 else 0.1
    if (
        not math.isclose(found, float(value), rel_tol=most, abs_tol=most * 1e-3)
        and value.isfinite()
    ):
        raise InputError(
            f"PyTorch's own graph of the step has the loss {found:.6g}, the step itself "
            f"{float(value):.6g}: module or loss do something else the second time, or one of "
            "PyTorch's decompositions is wrong (multilabel_margin_loss of PyTorch 2.13 is); write "
            "that part with other operations"
        )


def _flat_step(
    torch: Any,
    training: Training,
    slots: Slots,
    like: Sequence[Mapping[str, Any]],
    clipping: Clipping,
) -> Callable[..., list[Any]]:
    """The step as a function of tensors that PyTorch can trace; what it updates is `like`
    those."""
    from torch.nn.attention import (  # pyright: ignore[reportMissingImports]
        SDPBackend,
        sdpa_kernel,
    )
    from torch.nn.utils.stateless import (  # pyright: ignore[reportMissingImports]
        _reparametrize_module,
    )

    module = training.module
    _, settings = rates(torch, training.optimiser)
    shapes = (*like, settings, {str(i): x for i, x in enumerate(training.inputs)})
    names = [n for n in chain.from_iterable(training.trained()) if like[0][n].requires_grad]
    update = update_of(torch, training, slots)
    name_places(module)

    def step(*tensors: Any) -> list[Any]:
        own = [tensor.clone() for tensor in tensors]
        parameters, state, buffers, seeds, settings, inputs = _split(own, shapes)
        targets = own[len(own) - len(training.targets) :]
        leaves = parameters | {name: parameters[name].requires_grad_() for name in names}
        # The backward pass, too: what is checkpointed runs once more in it.
        swapped = _reparametrize_module(module, {**leaves, **buffers}, tie_weights=True)
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), swapped:
            with seeded(torch, seeds):
                output = module(*inputs.values())
                with place("the loss"):
                    value = training.loss(output, *targets)
            number_backward(value)
            gradients = torch.autograd.grad(
                value, [leaves[name] for name in names], allow_unused=True
            )
            after = OrderedDict(module.named_buffers(remove_duplicate=False))
        new = OrderedDict((name, tensor.detach()) for name, tensor in leaves.items())
        for name, gradient in zip(names, gradients, strict=True):
            new[name].grad = gradient
        with torch.no_grad(), place("the optimiser"):
            new_state = update(new, state, settings, clipping)
        new_buffers = OrderedDict((name, after[name].detach()) for name in buffers)
        return [value.detach(), *_flat(new, new_state, new_buffers, next_seeds(seeds))]

    return step
