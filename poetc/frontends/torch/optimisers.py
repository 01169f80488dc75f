"""Optimisers of PyTorch: their state and settings in a step, and how their update is traced."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from poetc.errors import InputError
from poetc.frontends.torch.training import Tensors, Training

OPTIMISERS = (
    *("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "Adamax"),
    *("RAdam", "Adadelta", "Rprop", "ASGD"),
)
"""Of `torch.optim`, with all that they do except what `check_optimiser` refuses."""

_PARAMETER_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_OPTIMISER_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")

_STARTED = "started"
"""State of groups with dampening: 0 before their first step, which PyTorch does without it."""

Slots = Mapping[tuple[str, str], str]
"""Parameter and key in the optimiser's state of it → the name that this state has in the step."""


@dataclass(frozen=True)
class Clipping:
    """Clipping of the gradients before the update: every number is at most `value` in size, then
    the norm of all of them is at most `norm`."""

    norm: float | None = None
    value: float | None = None

    def apply(self, torch: Any, optimiser: Any) -> None:
        """Clip the gradients of all parameters of an optimiser, in place."""
        utils = torch.nn.utils
        trained = list(chain.from_iterable(group["params"] for group in optimiser.param_groups))
        if self.value is not None:
            utils.clip_grad_value_(trained, self.value, foreach=False)
        if self.norm is not None:
            utils.clip_grad_norm_(trained, self.norm, foreach=False)


def check_optimiser(torch: Any, given: Training) -> None:
    """Raises an InputError unless `torch.optim`'s step can be traced and begin with zeros."""
    kind = type(given.optimiser)
    if kind not in [getattr(torch.optim, name) for name in OPTIMISERS]:
        known = ", ".join(f"torch.optim.{name}" for name in OPTIMISERS)
        raise InputError(
            f"the optimiser {kind.__module__}.{kind.__qualname__} cannot be exported; {known} can"
        )
    hooked = [n for n, p in given.parameters().items() if _has_hooks(p, _PARAMETER_HOOKS)]
    if _has_hooks(given.optimiser, _OPTIMISER_HOOKS):
        hooked.append("the optimiser")
    if hooked:
        raise InputError(
            f"hooks of {', '.join(hooked)} would not be a part of the step, because they are lost "
            "where it is copied; do what they do in the module or the loss, or clip gradients with "
            "clip_value and clip_norm of export"
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
        states = [bool(given.optimiser.state.get(p)) for p in group["params"] if p.requires_grad]
        if group.get("dampening") and group["momentum"] and len({*states}) == 2:
            raise InputError(
                f"group {i} of the optimiser has dampening={group['dampening']}, which PyTorch "
                "leaves out of the first step of a parameter; only some of the group have had "
                "theirs: give them groups of their own, or set it to 0"
            )


def _has_hooks(owner: Any, kinds: Sequence[str]) -> bool:
    return any(getattr(owner, kind, None) for kind in kinds)


# State


@contextmanager
def first_state(torch: Any, optimiser: Any) -> Iterator[dict[Any, Tensors]]:
    """In it, the state of each parameter before a step of the optimiser is put down: as it is, or
    as the optimiser makes it in its first step."""
    found: dict[Any, Tensors] = {}
    initialise = optimiser._init_group

    def record(group: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        result = initialise(group, *arguments, **options)
        for parameter in group["params"]:
            state = optimiser.state.get(parameter, {})
            found[parameter] = OrderedDict(
                (k, v.detach().clone()) for k, v in state.items() if isinstance(v, torch.Tensor)
            )
        return result

    optimiser._init_group = record
    yield found
    del optimiser._init_group


def state_of(
    torch: Any, after: Training, first: Mapping[Any, Tensors], started: bool
) -> tuple[Slots, Tensors]:
    """The names of the optimiser's state, and its values before the step.

    A step after it has state for every parameter that has a gradient; what the optimiser has not
    made before its first update acts like zeros. Step counters that are equal before and after are
    one.
    """
    slots: dict[tuple[str, str], str] = {}
    state: Tensors = OrderedDict()
    counters: dict[tuple[float, float], str] = {}
    new = after.parameters()
    for name in chain.from_iterable(after.trained()):
        before = first.get(new[name], {})
        for key, value in after.optimiser.state.get(new[name], {}).items():
            if not isinstance(value, torch.Tensor):
                continue  # a momentum that SGD does without
            known = before.get(key)
            tensor = torch.zeros_like(value) if known is None else known
            slot = f"{name}.{key}"
            if key == "step":
                first_name = "step" if not counters else f"step{len(counters) + 1}"
                slot = counters.setdefault((float(tensor), float(value)), first_name)
            slots[name, key] = slot
            state[slot] = tensor
    if not started:
        state[_STARTED] = torch.zeros(())
    return slots, state


def new_state(
    torch: Any, optimiser: Any, parameters: Mapping[str, Any], slots: Slots, like: Mapping[str, Any]
) -> Tensors:
    """The state of the optimiser after a step, by its name in the step."""
    state = OrderedDict(
        (slot, optimiser.state[parameters[name]][key]) for (name, key), slot in slots.items()
    )
    if _STARTED in like:
        state[_STARTED] = torch.ones(())
    return state


def has_started(optimiser: Any) -> bool:
    """Whether no group waits for its first step to have dampening after it."""
    return not any(_waits(optimiser, group) for group in optimiser.param_groups)


def _waits(optimiser: Any, group: Mapping[str, Any]) -> bool:
    fresh = not any(optimiser.state.get(parameter) for parameter in group["params"])
    return bool(group.get("dampening") and group["momentum"] and fresh)


def rates(torch: Any, optimiser: Any) -> tuple[list[str | None], Tensors]:
    """Learning rates that are tensors, which are arguments of the step: what that of each group is
    called, and their values."""
    names: dict[int, str] = {}
    values: Tensors = OrderedDict()
    groups: list[str | None] = []
    for group in optimiser.param_groups:
        rate, name = group["lr"], None
        if isinstance(rate, torch.Tensor):
            name = names.setdefault(id(rate), f"lr{len(names) + 1}" if names else "lr")
            values[name] = rate
        groups.append(name)
    return groups, values


# The update


def update_of(torch: Any, training: Training, slots: Slots) -> Callable[..., Tensors]:
    """The update as a function that PyTorch can trace: new parameters with their gradients, which
    it writes to, state and learning rates → the new state."""
    optimiser, groups = training.optimiser, training.trained()
    names, _ = rates(torch, optimiser)
    dampening = [
        group["dampening"] if _waits(optimiser, group) else None for group in optimiser.param_groups
    ]
    for group in optimiser.param_groups:
        # The variant of the step that keeps its counter a tensor and works one by one.
        group |= {"differentiable": False, "foreach": False, "fused": None, "capturable": True}
        group["lr"] = float(group["lr"])

    def update(new: Tensors, state: Tensors, settings: Tensors, clipping: Clipping) -> Tensors:
        parts = zip(optimiser.param_groups, groups, names, dampening, strict=True)
        for group, own, rate, damping in parts:
            group["params"] = [new[name] for name in own]
            if rate is not None:
                group["lr"] = settings[rate]
            if damping is not None:
                group["dampening"] = damping * state[_STARTED]
        optimiser.state = defaultdict(dict)
        for (name, key), slot in slots.items():
            optimiser.state[new[name]][key] = state[slot].clone()
        with _as_compiled(torch), _tensor_settings(torch):
            clipping.apply(torch, optimiser)
            optimiser.step()
        return new_state(torch, optimiser, new, slots, state)

    return update


@contextmanager
def _as_compiled(torch: Any) -> Iterator[None]:
    """In it, optimisers take no numbers out of tensors."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _tensor_settings(torch: Any) -> Any:
    """A context in which the factor of an addition (`alpha`, `value`) may be a tensor, of which
    PyTorch would take the number."""
    from torch.overrides import TorchFunctionMode  # pyright: ignore[reportMissingImports]

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Any,
            types: Any,
            arguments: Sequence[Any] = (),
            options: Mapping[str, Any] | None = None,
        ) -> Any:
            options = dict(options or {})
            for name in ("alpha", "value"):
                if isinstance(options.get(name), torch.Tensor):
                    first, second, *rest = arguments
                    arguments = (first, second * options.pop(name), *rest)
            return function(*arguments, **options)

    return Mode()
