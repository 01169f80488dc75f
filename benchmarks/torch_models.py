"""The models of the benchmarks in PyTorch: the same step, with the same parameters and results.

Modules are called as JAX calls the parameters of the StableHLO, so that the arguments of one are
those of the other. A step is forward, loss, backward and an update by SGD; batch norm has no
running averages, as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

RATE = 0.01


class LeNet5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5, padding=2)
        self.c2 = nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = functional.max_pool2d(torch.tanh(self.c1(x)), 2)
        x = functional.max_pool2d(torch.tanh(self.c2(x)), 2)
        # Pixels outside, channels inside.
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.f3(torch.tanh(self.f2(torch.tanh(self.f1(x)))))


class Pad(nn.Module):
    """Zeros around images: columns left and right, rows above and below."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.widths = widths

    def forward(self, x):
        return functional.pad(x, self.widths)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, track_running_stats=False)


class Separable(nn.Module):
    """A depthwise and a pointwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.dw = nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False)
        self.n1 = _norm(64)
        self.pw = nn.Conv2d(64, 64, 1, bias=False)
        self.n2 = _norm(64)

    def forward(self, x):
        x = torch.relu(self.n1(self.dw(x)))
        return torch.relu(self.n2(self.pw(x)))


class DSCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pad = Pad(1, 1, 4, 5)
        self.stem = nn.Conv2d(1, 64, (10, 4), stride=2, bias=False)
        self.sbn = _norm(64)
        self.blk = nn.Sequential(*(Separable() for _ in range(4)))
        self.fc = nn.Linear(64, 12)

    def forward(self, x):
        x = self.stem(self.pad(x))
        x = self.blk(torch.relu(self.sbn(x)))
        return self.fc(x.mean((2, 3)))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride = 1 if inputs == outputs else 2
        padding = 1 if self.stride == 1 else 0
        self.w1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding, bias=False)
        self.w2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.n1, self.n2 = _norm(outputs), _norm(outputs)
        if self.stride > 1:
            self.pad = Pad(0, 1, 0, 1)
            self.ws = nn.Conv2d(inputs, outputs, 1, self.stride, bias=False)
            self.ns = _norm(outputs)

    def forward(self, x):
        padded, shortcut = x, x
        if self.stride > 1:
            padded, shortcut = self.pad(x), self.ns(self.ws(x))
        y = self.n2(self.w2(torch.relu(self.n1(self.w1(padded)))))
        return torch.relu(y + shortcut)


class ResNet(nn.Module):
    def __init__(self, widths: Sequence[int], depth: int) -> None:
        super().__init__()
        self.stem = nn.ModuleDict(
            {"w": nn.Conv2d(3, widths[0], 3, padding=1, bias=False), "n": _norm(widths[0])}
        )
        self.names: list[str] = []
        before = widths[0]
        for stage, width in enumerate(widths):
            for block in range(depth):
                self.names.append(f"s{stage}b{block}")
                self.add_module(self.names[-1], Residual(before, width))
                before = width
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = torch.relu(self.stem["n"](self.stem["w"](x)))
        for name in self.names:
            x = self.get_submodule(name)(x)
        return self.fc(x.mean((2, 3)))


class VGG16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        self.pooled: set[int] = set()
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers.append(nn.Conv2d(before, width, 3, padding=1))
                before = width
            self.pooled.add(len(layers) - 1)
        self.c = nn.ModuleList(layers)
        self.f1, self.f2, self.f3 = nn.Linear(512, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        for i, layer in enumerate(self.c):
            x = torch.relu(layer(x))
            if i in self.pooled:
                x = functional.max_pool2d(x, 2)
        x = x.flatten(1)
        return self.f3(torch.relu(self.f2(torch.relu(self.f1(x)))))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.n1, self.n2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, x, mask):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        weights = torch.softmax(q @ k.transpose(2, 3) / (width // self.heads) ** 0.5 + mask, -1)
        y = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = self.n1(x + self.o(y))
        return self.n2(x + self.f2(functional.gelu(self.f1(x))))


class BertMicro(nn.Module):
    """Masked language model with tied output weights."""

    def __init__(self, width: int = 64, words: int = 500) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(words, width), nn.Embedding(512, width)
        self.typ = nn.Embedding(2, width)
        self.eln, self.hn = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.blk = nn.ModuleList([Encoder(width, 2), Encoder(width, 2)])
        self.hd = nn.Linear(width, width)
        self.hb = nn.Parameter(torch.zeros(words))

    def forward(self, tokens, kinds, attended):
        places = torch.arange(tokens.shape[1])
        x = self.eln(self.tok(tokens) + self.pos(places) + self.typ(kinds))
        mask = ((1 - attended) * -1e9)[:, None, None, :]
        for block in self.blk:
            x = block(x, mask)
        x = self.hn(functional.gelu(self.hd(x)))
        return (x @ self.tok.weight.T + self.hb).flatten(0, 1)


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "lenet5": LeNet5,
    "dscnn": DSCNN,
    "resnet8": lambda: ResNet((16, 32, 64), 1),
    "bert_micro": BertMicro,
    "resnet18": lambda: ResNet((64, 128, 256, 512), 2),
    "vgg16": VGG16,
}
_OTHERS = {"b1": "c1.bias", "b2": "c2.bias"}


class Training:
    """A model, and a step on the arguments of the StableHLO."""

    def __init__(
        self, name: str, names: Mapping[int, str], arguments: Sequence[np.ndarray]
    ) -> None:
        """`names` are what JAX calls the parameters, by argument. Raises ValueError unless they are
        those of the model."""
        self.model = MODELS[name]()
        self.places = {argument: self._place(path) for argument, path in names.items()}
        left = {key for key, _ in self.model.named_parameters()} - {*self.places.values()}
        if left:
            raise ValueError(f"{name}: PyTorch has other parameters: {sorted(left)}")
        with torch.no_grad():
            for argument, key in self.places.items():
                self.model.get_parameter(key).copy_(self._turned(key, arguments[argument], True))
        inputs = [torch.from_numpy(a) for i, a in enumerate(arguments) if i not in names]
        *self.data, label = inputs
        if name != "bert_micro":
            self.model.to(memory_format=torch.channels_last)  # pyright: ignore
            (images,) = self.data
            self.data = [images.permute(0, 3, 1, 2)]
        # Classes by number; some models take them as a distribution.
        self.label = label if label.is_floating_point() else label.long().flatten()
        self.loss = torch.zeros(())
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=RATE)

    def step(self) -> None:
        """Forward, loss, backward, update."""
        self.optimiser.zero_grad()
        self.loss = functional.cross_entropy(self.model(*self.data), self.label)
        self.loss.backward()
        self.optimiser.step()

    def results(self) -> list[np.ndarray]:
        """The loss, and the parameters in the order and with the dimensions of the StableHLO."""
        arrays = {key: value.detach().numpy() for key, value in self.model.named_parameters()}
        return [self.loss.detach().numpy().copy(), *self.in_order(arrays)]

    def in_order(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Parameters by PyTorch's names, in the order and with the dimensions of the StableHLO."""
        turned = (self._turned(key, arrays[key], False) for key in self.places.values())
        return [tensor.numpy().copy() for tensor in turned]

    def _place(self, path: str) -> str:
        """What PyTorch calls the parameter that is `['s0b0']['n1']['g']` in JAX."""
        *outer, last = re.findall(r"\w+", path)
        whole, kind = ".".join([*outer, last]), "bias" if last == "b" else "weight"
        known = {key for key, _ in self.model.named_parameters()}
        options = (whole, f"{whole}.weight", ".".join([*outer, kind]), _OTHERS.get(last, ""))
        found = next((key for key in options if key in known), None)
        if found is None:
            raise ValueError(f"PyTorch has no parameter for {path}")
        return found

    def _turned(self, key: str, array: np.ndarray, to_torch: bool) -> torch.Tensor:
        """With the dimensions in PyTorch's order, or in that of the StableHLO."""
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if tensor.dim() == 4:
            return tensor.permute((3, 2, 0, 1) if to_torch else (2, 3, 1, 0))
        layer = self.model.get_submodule(key.rpartition(".")[0])
        return tensor.T if isinstance(layer, nn.Linear) and tensor.dim() == 2 else tensor
