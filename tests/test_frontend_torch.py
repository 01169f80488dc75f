"""Training steps of PyTorch, exported and compiled, against PyTorch itself."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run, worst_error
from conftest import load_arrays, more
from example_scripts import differences, follow
from torch_modules import (
    Transformer,
    dscnn,
    expected_state,
    functional,
    lenet,
    mlp,
    nn,
    resnet8,
    torch,
)

from poetc.compare import rounding_of, tolerance
from poetc.errors import InputError
from poetc.frontends.torch import export
from poetc.frontends.torch.graph import array_of
from poetc.frontends.torch.random import seeded
from poetc.interpreter.functions import run_func
from poetc.interpreter.graphs import run_graph
from poetc.ir.text import parse_module

TOLERANCE = 3e-5
STEPS = 3

SGD, Adam, AdamW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW


def images(*shape: int, labels: int) -> tuple[Any, Any]:
    return torch.randn(shape), torch.randint(0, labels, shape[:1])


def eager(training: tuple[Any, ...], steps: int) -> list[np.ndarray]:
    """What the last of the steps returns."""
    module, loss, optimiser, inputs, targets = copy.deepcopy(training)
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(module(inputs), *targets)
        value.backward()
        optimiser.step()
    return [array_of(tensor) for tensor in (value, *expected_state(module, optimiser))]


TRAININGS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "mlp": lambda: (
        module := mlp(),
        functional.mse_loss,
        Adam(module.parameters(), lr=0.01, weight_decay=0.01, amsgrad=True),
        torch.randn(4, 20),
        (torch.randn(4, 12),),
    ),
    "lenet": lambda: (
        module := lenet(),
        functional.cross_entropy,
        AdamW(module.parameters(), lr=1e-3, eps=1e-4),
        (batch := images(2, 1, 28, 28, labels=10))[0],
        batch[1:],
    ),
    "resnet8": lambda: (
        module := resnet8(),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        SGD(module.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3),
        (batch := images(2, 3, 16, 16, labels=10))[0],
        batch[1:],
    ),
    "dscnn": lambda: (
        module := dscnn(),
        functional.cross_entropy,
        # Without momentum: between two norms, some gradients are 0 but for rounding.
        SGD(module.parameters(), lr=0.01),
        (batch := images(2, 1, 17, 10, labels=12))[0],
        batch[1:],
    ),
    "transformer": lambda: (
        module := Transformer(),
        functional.cross_entropy,
        AdamW(module.parameters(), lr=1e-3, eps=1e-4),
        torch.randint(0, 24, (2, 6)),
        (torch.randint(0, 24, (2, 6)),),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", *more("mlp", "lenet", "resnet8", "dscnn")])
def test_training(name: str, tmp_path: Path) -> None:
    """Exported, scheduled for less RAM than all of it takes, and trained: loss, parameters, state
    of the optimiser and running statistics are what PyTorch gets without poetc."""
    torch.manual_seed(1)
    training = TRAININGS[name]()
    exported = export(*training, path=tmp_path / name)
    # The loss, which is one, comes first; the last two arguments are the batch.
    assert exported.updates == {i: i + 1 for i in range(len(exported.names) - 2)}

    arguments, first = load_arrays(exported.npz)
    expected = eager(training, STEPS)
    assert worst_error(first, eager(training, 1)) == 0
    model = bring(name, parse_module(exported.mlir.read_text()), arguments, expected)
    peak = model.schedule(None)[1].use.peak_bytes
    budget = (model.least_ram_bytes() + 3 * peak) // 4
    scheduled, report = model.schedule(budget)
    assert report.memory is not None and report.memory.arena_bytes <= budget < peak
    program = build(scheduled, tmp_path / "out")
    assert worst_error(run(program, arguments, expected, STEPS), expected) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_types_are_those_of_pytorch(half: Any, tmp_path: Path) -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 5)).to(half)
    training = (
        module,
        lambda y, wanted, scale: functional.cross_entropy(y * scale, wanted),
        SGD(module.parameters(), lr=0.1),
        torch.randint(0, 9, (3, 2)),
        (torch.randint(0, 5, (3,)), torch.tensor(2, dtype=torch.uint8)),
    )
    exported = export(*training, path=tmp_path / "model")
    arguments, expected = load_arrays(exported.npz)
    name = str(half).removeprefix("torch.")
    assert [str(a.dtype) for a in arguments] == [name] * 3 + ["int64", "int64", "uint8"]
    assert worst_error(expected, eager(training, 1)) == 0
    module = parse_module(exported.mlir.read_text())
    scheduled, _ = bring("half", module, arguments, expected).schedule(None)
    found = run(build(scheduled, tmp_path / "out", *SANITIZE), arguments, expected)
    assert worst_error(found, expected) <= tolerance(rounding_of(module))


class Branches(nn.Module):
    """A sum of what the branches make of one input."""

    def __init__(self, *branches: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        return sum(branch(x).square().mean() for branch in self.branches)


class Function(nn.Module):
    """A function of what two linear layers make of the input."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self.a(x), self.b(x))


def written(a: Any, b: Any) -> Any:
    """Assignment to parts of a tensor."""
    c = a * 1
    c[:, 1] = b[:, 0]
    c[1:, ::2] += b[1:, 1::2]
    return c


class Recurrent(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer(6, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x[None])[0][:, -1]


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.layer = nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.weight(x)[None]
        return self.layer(y, y.flip(1), tgt_mask=CAUSAL, tgt_is_causal=True)


CAUSAL = torch.ones(3, 3).tril().log()


def grouped(a: Any, b: Any) -> Any:
    """Four heads of queries, two of keys and values, with places that are masked out."""
    q = torch.stack((a, b, a * b, a + b))[None]
    k, v = torch.stack((a, b))[None], torch.stack((b, a))[None]
    mask = torch.tensor([[True, False, True]])
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def relu_like(a: Any, b: Any) -> Any:
    return functional.leaky_relu(a) + functional.relu6(b) * functional.hardswish(a)


def smooth(a: Any, b: Any) -> Any:
    return functional.elu(a) + functional.mish(b) * functional.silu(a)


def logistic(a: Any, b: Any) -> Any:
    return functional.softplus(a) * functional.sigmoid(b) + functional.logsigmoid(a)


def gaussian(a: Any, b: Any) -> Any:
    return functional.gelu(a) + functional.gelu(b, approximate="tanh")


INDICES = torch.tensor([0, 2, 2, -1])

OPERATIONS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "relus": lambda: (Function(relu_like), Function(smooth)),
    "sigmoids": lambda: (Function(logistic), Function(gaussian)),
    "arithmetic": lambda: (
        Function(lambda a, b: torch.where(a > b, a, b * b) / (1 + b.abs())),
        Function(lambda a, b: a.clamp(-0.3, 0.4) + torch.maximum(a, b).clamp(min=0.1)),
        Function(lambda a, b: (a * a + 0.1) ** 1.5 + b**3 + (b * b + 0.1).rsqrt()),
        Function(lambda a, b: torch.expm1(a) + torch.log1p(b * b)),
    ),
    "reductions": lambda: (
        Function(lambda a, b: a.var(0, keepdim=True) + b.amax(1)[:, None]),
        Function(lambda a, b: a.lerp(b, 0.7) + torch.addcmul(a, a, b, value=0.5).std(1)[:, None]),
        Function(lambda a, b: (a @ b.T @ b).tril().masked_fill(a > 0.5, 0.25).log_softmax(0)),
        Function(lambda a, b: functional.normalize(a) + b.max(1)[0][:, None] * a.norm(p=1)),
        nn.Sequential(nn.RMSNorm(6), nn.Linear(6, 4), nn.PReLU()),
    ),
    "places": lambda: (
        Function(written),
        Function(lambda a, b: torch.cat((a[:, 1:-2], b.flip(1)[::2].repeat(2, 1)[:3]), 1)),
        Function(lambda a, b: torch.stack((a, b)).permute(1, 2, 0).reshape(-1, 4).unbind(1)[2]),
    ),
    "indices": lambda: (
        Function(lambda a, b: a[:, INDICES] + functional.pad(b, (1, -2, 0, 0), value=0.5)[:, :4]),
        Function(lambda a, b: a.gather(1, torch.tensor([[1], [5], [0]])) + b),
        Function(lambda a, b: a * functional.one_hot(b.argmax(1), 6)),
        Function(lambda a, b: torch.einsum("ij,kj->ki", a, b).mean((0, 1)) + b.sum(1)),
    ),
    "recurrent": lambda: (Recurrent(nn.LSTM), Recurrent(partial(nn.GRU, bidirectional=True))),
    "attention": lambda: (
        Function(lambda a, b: functional.scaled_dot_product_attention(a, b, a, attn_mask=CAUSAL)),
        Function(grouped),
        Decoder(),
    ),
    "images": lambda: (
        nn.Sequential(nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect"), nn.MaxPool2d(3, 2)),
        nn.Sequential(nn.Conv2d(4, 2, 1), nn.Upsample(scale_factor=2, mode="bilinear")),
        nn.Sequential(nn.Conv2d(4, 2, 1), nn.LocalResponseNorm(2), nn.AdaptiveAvgPool2d(3)),
        nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv3d(1, 2, 2), nn.MaxPool3d(2)),
        nn.Sequential(nn.Conv2d(4, 2, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Hardswish()),
    ),
    "convolutions": lambda: (
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        nn.Sequential(nn.Conv2d(4, 3, 1), nn.ConvTranspose2d(3, 2, 3, 2, 1, output_padding=1)),
        nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 3, 5), nn.BatchNorm1d(3), nn.MaxPool1d(2)),
        nn.Sequential(nn.Conv2d(4, 4, 2, bias=False), nn.PixelShuffle(2)),
    ),
    "windows": lambda: (
        nn.Sequential(nn.Conv2d(4, 4, 3, padding="same", dilation=2), nn.AvgPool2d(2)),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.MaxPool2d(3, 2, 1)),
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.AdaptiveAvgPool2d(2), nn.Dropout(0.0)),
        nn.Sequential(nn.Conv2d(4, 4, 1), nn.AvgPool2d(2, padding=1, count_include_pad=False)),
    ),
}


IMAGES = ("convolutions", "images", "windows")
LAYERS = ("recurrent", "attention", "images", "convolutions")
"""What has parameters; operators by themselves are in `test_torch_operators.py`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*LAYERS, *more(*(name for name in OPERATIONS if name not in LAYERS))]
)
def test_operations(name: str, tmp_path: Path) -> None:
    """Values and gradients of what the models above do not have."""
    torch.manual_seed(3)
    module = Branches(*OPERATIONS[name]())
    inputs = torch.randn(2, 4, 8, 8) if name in IMAGES else torch.randn(3, 6)
    optimiser = SGD(module.parameters(), lr=1.0)
    exported = export(module, lambda value: value, optimiser, inputs, (), tmp_path / name)
    compare_step(exported)


def compare_step(exported: Any) -> None:
    """One step of poetc's kernels, against the results in the file."""
    arguments, expected = load_arrays(exported.npz)
    model = bring("step", parse_module(exported.mlir.read_text()), arguments, expected)
    results = run_graph(model.module, arguments).results
    assert all(np.isfinite(array).all() for array in results)
    assert worst_error(results, expected) <= TOLERANCE


LOSSES: dict[str, tuple[Any, Any]] = {
    "weights": (
        nn.CrossEntropyLoss(torch.tensor([0.5, 1.0, 2.0, 0.1]), ignore_index=1),
        torch.tensor([3, 1, 0]),
    ),
    "soft": (functional.cross_entropy, torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(3, 1)),
    "logits": (functional.binary_cross_entropy_with_logits, torch.full((3, 4), 0.3)),
    "smooth": (functional.smooth_l1_loss, torch.zeros(3, 4)),
    "absolute": (functional.l1_loss, torch.zeros(3, 4)),
    "none": (lambda output: output.logsumexp(1).sum(), ()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    module = nn.Linear(5, 4)
    loss, targets = LOSSES[name]
    optimiser = SGD(module.parameters(), lr=1.0)
    compare_step(export(module, loss, optimiser, torch.randn(3, 5), targets, tmp_path / name))


class Everything(nn.Module):
    """Parameters that are shared, frozen, unused; buffers that change by assignment or not at all;
    norms in both modes; two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen, self.unused = nn.Linear(4, 4), nn.Linear(2, 2)
        self.frozen.requires_grad_(False)
        self.norm, self.still = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.register_buffer("count", torch.tensor(3.0), persistent=False)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: Any, y: Any) -> Any:
        self.count = self.count * 2
        x = self.norm(torch.tanh(self.first(x))) + self.still(self.second(y * self.scale))
        return self.frozen(x) * self.count


@pytest.mark.slow
def test_state_goes_on(tmp_path: Path) -> None:
    """Training that is under way is exported as it is: groups with settings of their own, momenta
    and counters, which differ for parameters that are or were frozen."""
    torch.manual_seed(5)
    module = Everything()
    module.still.eval()
    optimiser = Adam(
        [
            {"params": [module.first.weight, module.first.bias], "lr": 0.1},
            {"params": [*module.norm.parameters(), *module.still.parameters()], "lr": 0.01},
            {"params": [module.second.bias, *module.unused.parameters()], "betas": (0.5, 0.9)},
        ],
        weight_decay=0.1,
        eps=1e-3,
        maximize=True,
    )
    # A scheduler replaces the method `step` of the optimiser.
    torch.optim.lr_scheduler.StepLR(optimiser, 1)
    inputs, target = (torch.randn(3, 4), torch.randn(3, 4)), torch.randn(3, 4)

    def step(module: Any, optimiser: Any) -> Any:
        optimiser.zero_grad()
        value = functional.mse_loss(module(*inputs), target)
        value.backward()
        optimiser.step()
        return value

    module.second.bias.requires_grad_(False)
    step(module, optimiser)
    module.second.bias.requires_grad_(True)
    step(module, optimiser)
    module.norm.bias.requires_grad_(False)
    before = [copy.deepcopy(part.state_dict()) for part in (module, optimiser)]
    random = torch.get_rng_state()
    exported = export(module, functional.mse_loss, optimiser, inputs, target, tmp_path / "step")

    torch.testing.assert_close(module.state_dict(), before[0], rtol=0, atol=0)
    assert str(optimiser.state_dict()) == str(before[1])
    assert torch.equal(random, torch.get_rng_state())
    names = [name for name in exported.names if "step" in name or "second" in name]
    assert names == [
        "parameters.second.bias",
        "optimiser.step",
        "optimiser.step2",
        "optimiser.step3",
        "optimiser.second.bias.exp_avg",
        "optimiser.second.bias.exp_avg_sq",
    ]
    assert not any("optimiser.unused" in name for name in exported.names)
    # A name for each that is updated, and all but the three tensors of the batch are.
    assert exported.updates == {i: i + 1 for i in range(len(exported.names) - 3)}
    compare_step(exported)
    _, results = load_arrays(exported.npz)
    value = step(module, optimiser)
    expected = [value, *expected_state(module, optimiser)]
    for result, tensor in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, tensor.detach().numpy())


# Refusals


class Unsupported(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3))

    def forward(self, x: Any) -> Any:
        x = torch.special.i0(self.inner(x))
        return torch.special.i0e(x) + x.double().float()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.inner(x)
        return x * 2 if x.sum() > 0 else x


class Selecting(nn.Linear):
    def forward(self, x: Any) -> Any:
        x = super().forward(x)
        return x[x > 0]


def refusal(path: Path, module: Any, optimiser: Any = None, *more: Any) -> str:
    loss, inputs, targets = more or (torch.mean, torch.ones(3, 4), ())
    with pytest.raises(InputError) as caught:
        export(module, loss, optimiser or SGD(module.parameters()), inputs, targets, path / "step")
    assert list(path.iterdir()) == []
    return caught.value.message


def test_unsupported_operations(tmp_path: Path) -> None:
    """All at once, with module and line; so are those that only the gradient has."""
    message = refusal(tmp_path, Unsupported())
    code = Unsupported.forward.__code__
    bessel, last = (f"({code.co_filename}:{code.co_firstlineno + i})" for i in (1, 2))
    lines = message.splitlines()
    assert lines[0] == "operations that poetc cannot compile:"
    assert lines[1].startswith(
        f"  aten.native_dropout.default in inner.1 {bessel}: random numbers;"
    )
    other = "not lowered; docs/coverage.md has the operations that are"
    assert f"  aten.i0.default in Unsupported {bessel}: {other}" in lines
    assert f"  aten.special_i0e.default in Unsupported {last}: {other}" in lines
    assert any(f"Unsupported {last}: torch.float64 (float32," in line for line in lines)
    place = f"in the gradient of Unsupported {bessel}"
    assert f"  aten.special_i1.default {place}: {other}" in lines


@pytest.mark.slow
def test_what_depends_on_values(tmp_path: Path) -> None:
    message = refusal(tmp_path, Branching())
    line = Branching.forward.__code__.co_firstlineno + 2
    assert message.startswith("the step does something else for other values of its tensors")
    assert f"({__file__}:{line}); a step" in message
    assert "in Selecting" in (message := refusal(tmp_path, Selecting(4, 4)))
    assert "depends on the values of tensors" in message
    average = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None))
    assert "values of its tensors" in refusal(tmp_path, average)


def test_what_depends_on_lengths_that_are_data(tmp_path: Path) -> None:
    """An operator that is refused for a reason of its own says that, whatever PyTorch says."""
    targets = torch.tensor([[1, 2, 3], [2, 2, 4]])

    def loss(logits: Any, targets: Any) -> Any:
        return functional.ctc_loss(logits.log_softmax(-1), targets, (10, 9), (3, 2))

    module = nn.Linear(8, 5)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(InputError, match=r"aten._ctc_loss.*frame-wise cross-entropy"):
        export(module, loss, optimiser, torch.ones(10, 2, 8), targets, tmp_path / "m")


def test_forms_of_operations(tmp_path: Path) -> None:
    """What an operation is lowered for says what would work."""

    class Assigning(nn.Linear):
        def forward(self, x: Any) -> Any:
            y = super().forward(x) * 1
            y[x[:, 0] > 0, torch.tensor([1])] = 2.0
            return y

    message = refusal(tmp_path, Assigning(4, 4))
    assert "(use torch.where)" in message


def test_refused_optimisers(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    message = refusal(tmp_path, module, torch.optim.LBFGS(module.parameters()))
    assert message.startswith("the optimiser torch.optim.lbfgs.LBFGS cannot be exported; ")
    assert "torch.optim.SGD, torch.optim.Adam, " in message
    assert "not in the module, of the shapes (2,)" in refusal(
        tmp_path, module, SGD([nn.Parameter(torch.ones(2))])
    )
    with pytest.warns(UserWarning, match="duplicate parameters"):
        twice = SGD([module.bias, module.weight, module.bias])
    assert refusal(tmp_path, module, twice) == "the optimiser has more than once: bias"
    damped = SGD(module.parameters(), momentum=0.9, dampening=0.1)
    damped.state[module.bias]["momentum_buffer"] = torch.ones(4)
    assert "dampening=0.1" in refusal(tmp_path, module, damped)


OPTIM = torch.optim
OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "damped": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "rate": lambda p: SGD(p, lr=torch.tensor(0.1), momentum=0.9, nesterov=True, maximize=True),
    "rates": lambda p: AdamW(
        [{"params": p[:2], "lr": torch.tensor(0.1)}, {"params": p[2:], "lr": torch.tensor(0.02)}]
    ),
    "Adagrad": lambda p: OPTIM.Adagrad(p, torch.tensor(0.1), 0.1, initial_accumulator_value=0.3),
    "RMSprop": lambda p: OPTIM.RMSprop(p, weight_decay=0.1, momentum=0.9, centered=True),
    "NAdam": lambda p: OPTIM.NAdam(p, torch.tensor(0.01), weight_decay=0.1),
    "Adamax": lambda p: OPTIM.Adamax(p, weight_decay=0.1),
    "RAdam": lambda p: OPTIM.RAdam(p, weight_decay=0.1),
    "Adadelta": lambda p: OPTIM.Adadelta(p, torch.tensor(0.5), weight_decay=0.1),
    "Rprop": lambda p: OPTIM.Rprop(p, lr=0.05),
    "ASGD": lambda p: OPTIM.ASGD(p, torch.tensor(0.5), t0=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str, tmp_path: Path) -> None:
    """From its first step on, with learning rates as arguments and clipped gradients, the
    interpreter trains as PyTorch does."""
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    x, y = torch.randn(3, 4), torch.randn(3, 2)
    optimiser = OPTIMISERS[name](list(module.parameters()))
    loss = functional.mse_loss
    exported = export(
        module, loss, optimiser, x, y, tmp_path / "step", clip_norm=0.3, clip_value=0.2
    )
    step = parse_module(exported.mlir.read_text())
    arguments, expected = load_arrays(exported.npz)
    rates = [i for i, known in enumerate(exported.names) if known.startswith("settings.lr")]
    tensors = [g for g in optimiser.param_groups if isinstance(g["lr"], torch.Tensor)]
    assert len(rates) == len(tensors)
    for number in range(3):
        if number == 2:  # as a schedule does
            for i, group in zip(rates, tensors, strict=True):
                group["lr"].mul_(0.5)
                arguments[i] = array_of(group["lr"])
        optimiser.zero_grad()
        loss(module(x), y).backward()
        nn.utils.clip_grad_value_(module.parameters(), 0.2)
        nn.utils.clip_grad_norm_(module.parameters(), 0.3)
        optimiser.step()
        results = run_func(step, arguments)
        assert number or worst_error(results, expected) <= TOLERANCE
        for i, result in exported.updates.items():
            arguments[i] = results[result]
    got = arguments[: len(list(module.parameters()))]
    assert worst_error(got, [array_of(p) for p in module.parameters()]) <= TOLERANCE


def test_hooks_are_refused(tmp_path: Path) -> None:
    """They are lost where a module or an optimiser is copied."""
    module = nn.Linear(4, 4)
    module.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    module.bias.register_post_accumulate_grad_hook(lambda parameter: None)
    assert refusal(tmp_path, module).startswith("hooks of weight, bias would not be a part")
    module = nn.Linear(4, 4)
    optimiser = SGD(module.parameters())
    optimiser.register_step_pre_hook(lambda *_: None)
    assert refusal(tmp_path, module, optimiser).startswith("hooks of the optimiser would")


def test_hooks_of_modules(tmp_path: Path) -> None:
    """They are copied with the module, and are a part of the step."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    module[0].register_forward_hook(lambda _module, _inputs, output: output * 2)
    module[1].register_full_backward_hook(lambda _module, inputs, _outputs: (inputs[0] * 3,))
    module[1].register_full_backward_pre_hook(lambda _module, outputs: (outputs[0] * 5,))
    optimiser = SGD(module.parameters(), lr=0.1)
    arguments = (torch.mean, optimiser, torch.ones(3, 4), ())
    compare_step(export(module, *arguments, tmp_path / "step"))


def test_graph_of_another_step(tmp_path: Path) -> None:
    """Where PyTorch decomposes an operation wrongly, or Python counts."""
    targets = torch.tensor([[3, 0, -1, 1]] * 3)
    message = refusal(
        tmp_path,
        nn.Linear(4, 4),
        None,
        functional.multilabel_margin_loss,
        torch.ones(3, 4),
        targets,
    )
    assert "PyTorch's own graph of the step has the loss" in message


class Wrapped(torch.Tensor):
    pass


def test_refused_tensors(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    module.register_buffer("wrapped", torch.ones(1).as_subclass(Wrapped))
    assert "Wrapped, which has operations of its own" in refusal(tmp_path, module)
    module = nn.Linear(4, 4).double()
    module.register_buffer("coarse", torch.ones(1, dtype=torch.float8_e5m2))
    batch = (torch.mean, torch.ones(3, 4, dtype=torch.complex64), torch.tensor([1 << 40]))
    message = refusal(tmp_path, module, None, *batch)
    assert message.startswith("types that poetc does not have (it has float32, bfloat16, float16,")
    assert message.endswith(
        "  parameters.weight: float64\n  parameters.bias: float64\n"
        "  buffers.coarse: float8_e5m2\n  inputs.0: complex64"
    )
    module = nn.Linear(4, 4)
    assert refusal(tmp_path, module, None, torch.mean, "images", (torch.ones(1), None)) == (
        "inputs and targets are tensors or tuples of tensors, but inputs.0 is of the type str, "
        "targets.1 is of the type NoneType"
    )
    assert "must be a scalar tensor, not a tensor of shape (3, 4)" in refusal(
        tmp_path, module, None, lambda y: y, torch.ones(3, 4), ()
    )


@pytest.mark.slow
def test_refused_modules(tmp_path: Path) -> None:
    module = nn.Linear(4, 4)
    optimiser = SGD(module.parameters())
    assert "not of the type builtins.function" in refusal(tmp_path, lambda x: x, optimiser)
    batch = (torch.ones(3, 4), ())
    assert "not of the type builtins.NoneType" in refusal(tmp_path, module, optimiser, None, *batch)
    compiled = nn.Sequential(torch.compile(module))
    assert "\n  0: torch._dynamo.eval_frame.OptimizedModule" in refusal(tmp_path, compiled)
    assert "weight, bias have no shapes yet" in refusal(tmp_path, nn.LazyLinear(4))
    module.made = module.weight * 2
    assert "cannot be copied: Only Tensors created explicitly" in refusal(tmp_path, module)
    empty = nn.Linear(4, 4, device="meta")
    assert "parameters.bias: meta, which has no values" in refusal(tmp_path, empty)
    frozen = nn.Linear(4, 4).requires_grad_(False)
    assert "the loss has no gradient" in refusal(tmp_path, frozen)


def test_tensors_from_elsewhere(tmp_path: Path) -> None:
    """What module or loss know otherwise than as arguments is refused if the step changes it or
    takes it; constants are constants, and the gradients that tensors have are left alone."""
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    scale = nn.Parameter(torch.ones(4))

    def decayed(y: Any) -> Any:
        return y.square().mean() + module.weight.square().sum() + functional.mse_loss(y, x)

    message = refusal(tmp_path, module, None, decayed, x, ())
    assert "use parameters.weight, inputs.0 otherwise than as arguments" in message
    optimiser = SGD(module.parameters(), lr=0.1)
    exported = export(
        module, lambda y: (y * scale).square().mean(), optimiser, x, (), tmp_path / "step"
    )
    compare_step(exported)
    assert scale.grad is None and module.weight.grad is None


def test_batch_is_not_written_to(tmp_path: Path) -> None:
    """The first layer assigns to its input, which is the target as well: each is a tensor of its
    own in the step."""
    module, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)), torch.randn(3, 4)
    before = x.clone()
    optimiser = SGD(module.parameters(), lr=0.1)
    exported = export(module, functional.mse_loss, optimiser, x, x, tmp_path / "step")
    assert torch.equal(x, before)
    arguments, results = load_arrays(exported.npz)
    np.testing.assert_array_equal(arguments[-2:], [before.numpy()] * 2)
    value = functional.mse_loss(module(x.clone()), x)
    np.testing.assert_allclose(results[0], value.item(), rtol=1e-6)
    compare_step(exported)


@pytest.mark.parametrize("missing", ["torch", "jax"])
def test_without(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"needs {missing} .*pip install 'poetc\[torch\]'"):
        export(None, None, None, None, None, tmp_path / "step")  # pyright: ignore


def test_importing_costs_nothing() -> None:
    code = "import sys, poetc.frontends.torch; sys.exit(bool({'jax', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    """The script, and the commands in it, as they are written there."""
    found = differences(follow("torch_step.py", tmp_path / "out"))
    assert len(found) == 14 and max(found) <= TOLERANCE


class Noisy(nn.Module):
    """Dropout of several kinds, and noise of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.AlphaDropout(0.2))
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)

    def forward(self, x: Any) -> Any:
        x = self.layer(x) + torch.randn(8) * 0.1 + torch.rand_like(x[..., :1])
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.slow
def test_random_numbers(tmp_path: Path) -> None:
    """From a seed that each step makes one more: PyTorch's results have the same numbers."""
    torch.manual_seed(8)
    module, x = Noisy(), torch.randn(2, 3, 6)
    optimiser = SGD(module.parameters(), lr=0.1)
    arguments = (module, lambda y: y.square().mean(), optimiser, x, ())
    losses = []
    for seed in (1, 2):
        exported = export(*arguments, tmp_path / "step", seed=seed)
        given, expected = load_arrays(exported.npz)
        results = run_func(parse_module(exported.mlir.read_text()), given)
        assert worst_error(results, expected) <= TOLERANCE
        losses.append(float(results[0]))
        assert results[-1] == seed + 1 and exported.names[-2] == "random.seed"
    assert losses[0] != losses[1]
    scheduled, _ = bring(
        "noisy", parse_module(exported.mlir.read_text()), given, expected
    ).schedule(None)
    found = run(build(scheduled, tmp_path / "out", *SANITIZE), given, expected)
    assert all(map(np.array_equal, found, results))
    with pytest.raises(InputError, match="32 bits with sign, not 4294967296"):
        export(*arguments, tmp_path / "step", seed=1 << 32)
    with seeded(torch, OrderedDict(seed=torch.tensor(3, dtype=torch.int32))):
        dropped = functional.dropout(torch.ones(200, 200), 0.3)
        uniform, normal, order = torch.rand(200, 200), torch.randn(200, 200), torch.randperm(50)
        dice = torch.randint(1, 7, (6000,))
    assert abs((dropped == 0).float().mean() - 0.3) < 0.01 and abs(dropped.mean() - 1) < 0.02
    assert abs(uniform.mean() - 0.5) < 0.01 and 0 <= uniform.min() < 0.001 < 0.999 < uniform.max()
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02
    assert abs(torch.corrcoef(torch.stack((uniform.ravel(), normal.ravel())))[0, 1]) < 0.02
    assert sorted(order.tolist()) == list(range(50)) != order.tolist()
    assert torch.bincount(dice).tolist()[0] == 0 and min(torch.bincount(dice)[1:]) > 900
