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

import copy
import os
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from poetc.errors import InputError
from poetc.frontends.files import Exported, check_types, require
from poetc.frontends.jax import export as export_jax
from poetc.frontends.torch.graph import array_of, run, wide_integers
from poetc.frontends.torch.trace import name_places, number_backward, place, trace

OPTIMISERS = ("SGD", "Adam", "AdamW")
"""Of `torch.optim`, with all that they do except what `_check_optimiser` refuses."""

_PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OPTIMISER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")

Tensors = OrderedDict[str, Any]
Slots = Mapping[tuple[str, str], str]
"""Parameter and key in the optimiser's state of it → the name that this state has in the step."""


@dataclass(frozen=True)
class _Training:
    """A module, what trains it, and one batch."""

    module: Any
    loss: Callable[..., Any]
    optimiser: Any
    inputs: tuple[Any, ...]
    targets: tuple[Any, ...]

    def copy(self) -> _Training:
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
        return _Training(module, self.loss, optimiser, inputs, targets)

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


def export(
    module: Any,
    loss: Callable[..., Any],
    optimiser: Any,
    inputs: Any,
    targets: Any,
    path: str | os.PathLike[str],
) -> Exported:
    """Write `NAME.mlir` and `NAME.npz` of a training step for the path `NAME` or `NAME.mlir`.

    The step computes `loss(module(*inputs), *targets)`, a scalar, its gradient, and
    `optimiser.step()`. `inputs` and `targets` are tensors or tuples of them; `targets` may be `()`.
    The module is traced in the mode it is in (`train()` or `eval()`). Neither it nor the optimiser,
    an `SGD`, `Adam` or `AdamW`, is changed; the settings of both become constants of the step.

    Arguments of the step are the parameters, the optimiser's state (as it is, or zeros before its
    first step), the buffers of the module, inputs and targets. Results are the loss and the new
    values of the first three, all of the types that they have in PyTorch.

    Raises InputError for what cannot be exported, and where PyTorch or JAX is missing or a file
    cannot be written. What module, loss or optimiser raise is passed on.
    """
    torch = require("torch", "poetc.frontends.torch.export")
    jax = require("jax", "poetc.frontends.torch.export", "torch")
    _check_module(torch, module, loss)
    given = _Training(module, loss, optimiser, *_tuples(torch, inputs=inputs, targets=targets))
    _check_optimiser(torch, given)
    _check_types(torch, given)
    after = given.copy()
    value = _eager_step(torch, after)
    slots, state = _state(torch, given, after)
    new_state = _gather_state(after.optimiser, after.parameters(), slots)

    parts = (given.parameters(), state, given.buffers())
    batch = (given.inputs, given.targets)
    example = [tensor.detach() for tensor in (*_flat(*parts), *chain(*batch))]
    graph = trace(
        _flat_step(torch, given.copy(), slots),
        example,
        lambda graph: _check_constants(graph, given),
    )

    def step(parameters: Any, optimiser: Any, buffers: Any, inputs: Any, targets: Any) -> Any:
        arrays = [*_flat(parameters, optimiser, buffers), *inputs, *targets]
        new_value, *new = run(graph, arrays)
        return new_value, *_split(new, parts)

    results = [value, *_flat(after.parameters(), new_state, after.buffers())]
    arguments = [OrderedDict((k, array_of(v)) for k, v in part.items()) for part in parts]
    arguments += [tuple(map(array_of, part)) for part in batch]
    with wide_integers():
        return export_jax(
            step,
            jax.tree.map(lambda array: jax.numpy.asarray(array, array.dtype), arguments),
            path,
            donate_argnums={0: 1, 1: 2, 2: 3},
            results=[array_of(tensor) for tensor in results],
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
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _check_optimiser(torch: Any, given: _Training) -> None:
    """Raises an InputError unless `torch.optim`'s step can be traced and begin with zeros."""
    if type(given.optimiser) not in [getattr(torch.optim, name) for name in OPTIMISERS]:
        known = ", ".join(f"torch.optim.{name}" for name in OPTIMISERS)
        raise InputError(f"the optimiser {_type(given.optimiser)} cannot be exported; {known} can")
    hooked = [n for n, p in given.parameters().items() if _has_hooks(p, _PARAMETER_HOOKS)]
    if _has_hooks(given.optimiser, _OPTIMISER_HOOKS):
        hooked.append("the optimiser")
    if hooked:
        raise InputError(
            f"hooks of {', '.join(hooked)} would not be a part of the step; do what they do in the "
            "module or the loss"
        )
    own = {id(parameter): name for name, parameter in given.module.named_parameters()}
    all_trained = chain.from_iterable(group["params"] for group in given.optimiser.param_groups)
    counts = Counter(map(id, all_trained))
    repeated = [name for key, name in own.items() if counts[key] > 1]
    if repeated:
        raise InputError(f"the optimiser has more than once: {', '.join(repeated)}")
    for i, group in enumerate(given.optimiser.param_groups):
        foreign = [tuple(p.shape) for p in group["params"] if id(p) not in own]
        if foreign:
            shapes = ", ".join(map(str, foreign))
            raise InputError(
                f"group {i} of the optimiser has parameters that are not in the module, of the "
                f"shapes {shapes}; make the module one that has all of them"
            )
        fresh = [p for p in group["params"] if not given.optimiser.state.get(p)]
        if group.get("dampening") and group["momentum"] and fresh:
            raise InputError(
                f"group {i} of the optimiser has dampening={group['dampening']}, which PyTorch "
                "leaves out of the first step; take that step before the export, or set it to 0"
            )


def _has_hooks(owner: Any, kinds: Sequence[str]) -> bool:
    return any(getattr(owner, kind, None) for kind in kinds)


def _check_types(torch: Any, given: _Training) -> None:
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
        if tensor.layout != torch.strided:
            return str(tensor.layout).removeprefix("torch.")
        return TYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))

    check_types((name, type_of(tensor)) for name, tensor in named)


# The step in PyTorch


def _eager_step(torch: Any, training: _Training) -> Any:
    """Do a step as PyTorch does it; the loss. Random numbers after it are as without it."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        training.optimiser.zero_grad()
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
        training.optimiser.step()
    return value


def _state(torch: Any, given: _Training, after: _Training) -> tuple[Slots, Tensors]:
    """What the optimiser's state is called, and its values before the step.

    A step after it has state for every parameter that has a gradient; before its first one PyTorch
    has none, and then it acts like zeros. Step counters that are equal before and after are one.
    """
    slots: dict[tuple[str, str], str] = {}
    state: Tensors = OrderedDict()
    counters: dict[tuple[float, float], str] = {}
    old, new = given.parameters(), after.parameters()
    for name in chain.from_iterable(given.trained()):
        before = given.optimiser.state.get(old[name], {})
        for key, value in after.optimiser.state.get(new[name], {}).items():
            if not isinstance(value, torch.Tensor):
                continue  # a momentum that SGD does without
            known = before.get(key)
            tensor = torch.zeros_like(value) if known is None else known
            slot = f"{name}.{key}"
            if key == "step":
                first = "step" if not counters else f"step{len(counters) + 1}"
                slot = counters.setdefault((float(tensor), float(value)), first)
            slots[name, key] = slot
            state[slot] = tensor
    return slots, state


def _gather_state(optimiser: Any, parameters: Mapping[str, Any], slots: Slots) -> Tensors:
    """The state of the optimiser by its name in the step."""
    return OrderedDict(
        (slot, optimiser.state[parameters[name]][key]) for (name, key), slot in slots.items()
    )


def _check_constants(graph: Any, given: _Training) -> None:
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


def _flat_step(torch: Any, training: _Training, slots: Slots) -> Callable[..., list[Any]]:
    """The step as a function of tensors that PyTorch can trace."""
    from torch.func import functional_call  # pyright: ignore[reportMissingImports]
    from torch.nn.attention import (  # pyright: ignore[reportMissingImports]
        SDPBackend,
        sdpa_kernel,
    )

    module, optimiser = training.module, training.optimiser
    groups = training.trained()
    like = (training.parameters(), dict.fromkeys(slots.values()), training.buffers())
    trained = [n for n in chain.from_iterable(groups) if like[0][n].requires_grad]
    name_places(module)
    for group in optimiser.param_groups:
        # The variant of the step that keeps its counter a tensor and works one by one.
        group |= {"differentiable": True, "foreach": False, "fused": None, "capturable": False}
        group["lr"] = float(group["lr"])

    def step(*tensors: Any) -> list[Any]:
        own = [tensor.clone() for tensor in tensors]
        parameters, state, buffers = _split(own, like)
        batch = own[len(own) - len(training.inputs) - len(training.targets) :]
        inputs, targets = batch[: len(training.inputs)], batch[len(training.inputs) :]
        leaves = parameters | {name: parameters[name].requires_grad_() for name in trained}
        seen: list[Tensors] = []
        hook = module.register_forward_hook(
            lambda *_: seen.append(OrderedDict(module.named_buffers(remove_duplicate=False)))
        )
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            output = functional_call(module, {**leaves, **buffers}, tuple(inputs))
            hook.remove()
            with place("the loss"):
                value = training.loss(output, *targets)
            number_backward(value)
            gradients = torch.autograd.grad(
                value, [leaves[name] for name in trained], allow_unused=True
            )
        new = OrderedDict((name, tensor.detach()) for name, tensor in leaves.items())
        for name, gradient in zip(trained, gradients, strict=True):
            new[name].grad = gradient
        for group, names in zip(optimiser.param_groups, groups, strict=True):
            group["params"] = [new[name] for name in names]
        optimiser.state = defaultdict(dict)
        for (name, key), slot in slots.items():
            optimiser.state[new[name]][key] = state[slot].clone()
        with torch.no_grad(), place("the optimiser"):
            optimiser.step()
        new_state = _gather_state(optimiser, new, slots)
        new_buffers = OrderedDict((name, seen[0][name].detach()) for name in buffers)
        return [value.detach(), *_flat(new, new_state, new_buffers)]

    return step
