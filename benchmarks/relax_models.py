"""The models in PyTorch through TVM as it comes: torch.export, Relax, its gradients and optimiser,
and the default pipeline. For comparison: nothing of poetc is in it."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.relax.training.loss import CrossEntropyLoss
from tvm.relax.training.optimizer import SGD
from tvm.relax.training.utils import AppendLoss

from benchmarks.torch_models import RATE, Pad, Training

UNSUPPORTED = {"bert_micro": "Relax has no gradient of gelu"}


class Norm(nn.Module):
    """Batch norm in operations that Relax has gradients of."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x):
        centred = x - x.mean((0, 2, 3), keepdim=True)
        variance = (centred * centred).mean((0, 2, 3), keepdim=True)
        shape = (1, -1, 1, 1)
        y = centred / torch.sqrt(variance + self.eps)
        return y * self.weight.reshape(shape) + self.bias.reshape(shape)


class Frame(nn.Module):
    """Padding in operations that Relax has gradients of."""

    def __init__(self, pad: Pad) -> None:
        super().__init__()
        self.widths = pad.widths

    def forward(self, x):
        for axis, before, after in ((3, *self.widths[:2]), (2, *self.widths[2:])):
            sizes = [*x.shape]
            parts = [x]
            if before:
                sizes[axis] = before
                parts.insert(0, torch.zeros(sizes))
            if after:
                sizes[axis] = after
                parts.append(torch.zeros(sizes))
            x = torch.cat(parts, axis)
        return x


_REPLACED = {nn.BatchNorm2d: Norm, Pad: Frame}


def relax_program(
    training: Training, target: tvm.target.Target
) -> tuple[Callable[[], None], Callable[[], list[np.ndarray]]]:
    """A step from where `training` is, and its results as `Training.results` gives them."""
    own = copy.deepcopy(training)
    model = own.model.to(memory_format=torch.contiguous_format)  # pyright: ignore
    for name, module in list(model.named_modules()):
        if (kind := _REPLACED.get(type(module))) is not None:
            outer, _, last = name.rpartition(".")
            setattr(model.get_submodule(outer), last, kind(module))
    data = tuple(tensor.contiguous() for tensor in own.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(model, data)
        module = from_exported_program(
            exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
        )
    module, weights = relax.frontend.detach_params(module)
    label = own.label.argmax(-1) if own.label.is_floating_point() else own.label
    classes = model(*data).shape[-1]
    loss = CrossEntropyLoss(reduction="mean")(
        relax.TensorType((len(label), classes), "float32"),
        relax.TensorType((len(label),), "int64"),
    )
    module = AppendLoss("main", loss, 1, "main_loss")(module)
    parameters = list(module["main_loss"].params)[len(data) : -1]
    module = relax.transform.Gradient("main_loss", require_grads=parameters)(module)
    optimiser = SGD(RATE).init(parameters)
    module["update"] = optimiser.get_function().with_attr("global_symbol", "update")
    machine = relax.VirtualMachine(tvm.compile(module, target, relax_pipeline="default"), tvm.cpu())
    inputs = [tvm.runtime.tensor(tensor.numpy()) for tensor in data]
    classes_ = tvm.runtime.tensor(label.numpy())
    state = {"weights": list(weights["main"]), "optimiser": optimiser.state, "loss": None}

    def step() -> None:
        state["loss"], gradients = machine["main_loss_adjoint"](
            *inputs, *state["weights"], classes_
        )
        new, state["optimiser"] = machine["update"](state["weights"], gradients, state["optimiser"])
        state["weights"] = list(new)

    def results() -> list[np.ndarray]:
        names = [key for key, _ in model.named_parameters()]
        arrays = dict(zip(names, (w.numpy() for w in state["weights"]), strict=True))
        return [state["loss"].numpy(), *own.in_order(arrays)]

    return step, results
