"""Ordinary modules of PyTorch for the tests of its frontend: five kinds of network, small."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is optional: pip install 'poetc[torch]'")
pytest.importorskip("jax", reason="the frontend of PyTorch needs JAX: pip install 'poetc[torch]'")
nn = torch.nn
functional = nn.functional

# Thousands of lines for each step that is traced, in the report of a test that fails.
logging.getLogger("torch.__trace").addFilter(lambda _: False)


def mlp() -> Any:
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 12), nn.ReLU())


def lenet() -> Any:
    """LeNet-5 for images of 28 by 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )
        self.second = nn.Sequential(
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        )
        self.shortcut = nn.Identity()
        if stride > 1:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet8(widths: Sequence[int] = (16, 32, 64)) -> Any:
    """Three residual blocks of two convolutions each."""
    before = (widths[0], *widths)
    blocks = (Residual(a, b, 1 if a == b else 2) for a, b in zip(before, widths, strict=False))
    return nn.Sequential(
        nn.Conv2d(3, widths[0], 3, padding=1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(inplace=True),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], 10),
    )


def dscnn(width: int = 64) -> Any:
    """Four depthwise separable convolutions, for key words."""

    def separable() -> Any:
        depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False)
        pointwise = nn.Conv2d(width, width, 1, bias=False)
        norms = (nn.BatchNorm2d(width), nn.BatchNorm2d(width))
        return nn.Sequential(depthwise, norms[0], nn.ReLU(), pointwise, norms[1], nn.ReLU())

    return nn.Sequential(
        nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 1), bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *(separable() for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 12),
    )


class Transformer(nn.Module):
    """A small language model: one causal block, and the words at both ends are the same weights."""

    def __init__(self, words: int = 24, width: int = 16, length: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        # A bias of the keys has the gradient 0 but for rounding, which Adam would make large.
        self.block = nn.TransformerEncoderLayer(
            width, 2, 32, dropout=0.0, activation="gelu", batch_first=True, bias=False
        )
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.ones(length, length).triu(1).bool())

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        x = self.norm(self.block(x, src_mask=self.mask, is_causal=True))
        return (x @ self.words.weight.T).transpose(1, 2)


def expected_state(module: Any, optimiser: Any) -> list[Any]:
    """Parameters, state of the optimiser and buffers in the order in which they are exported; of
    equal step counters, one."""
    state: dict[Any, Any] = {}
    for parameter in chain.from_iterable(group["params"] for group in optimiser.param_groups):
        for key, value in optimiser.state.get(parameter, {}).items():
            if key == "step":
                state[float(value), parameter.requires_grad] = value
            elif value is not None:
                state[parameter, key] = value
    return [*module.parameters(), *state.values(), *module.buffers()]
