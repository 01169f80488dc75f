"""The models of the benchmarks in PyTorch: the same layers on the same shapes, trained with SGD.

A step is forward, loss, backward and update. The sizes of all parameters are compared with those
of the StableHLO, so that the work is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

RATE = 0.01


class LeNet5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(1, 6, 5, padding=2)
        self.b = nn.Conv2d(6, 16, 5)
        self.dense = nn.Sequential(
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, x):
        x = functional.max_pool2d(torch.tanh(self.a(x)), 2)
        x = functional.max_pool2d(torch.tanh(self.b(x)), 2)
        return self.dense(x.flatten(1))


class DSCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 64, (10, 4), stride=2, padding=(5, 1), bias=False)
        self.norm = nn.BatchNorm2d(64)
        blocks: list[nn.Module] = []
        for _ in range(4):
            blocks += [
                nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                nn.Conv2d(64, 64, 1, bias=False),
                nn.BatchNorm2d(64),
                nn.ReLU(),
            ]
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(64, 12)

    def forward(self, x):
        x = self.blocks(torch.relu(self.norm(self.first(x))))
        return self.last(x.mean((2, 3)))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, shortcut_norm: bool) -> None:
        super().__init__()
        self.a = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_a, self.norm_b = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride > 1:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            norm = [nn.BatchNorm2d(outputs)] if shortcut_norm else []
            self.shortcut = nn.Sequential(convolution, *norm)

    def forward(self, x):
        y = self.norm_b(self.b(torch.relu(self.norm_a(self.a(x)))))
        return torch.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, widths: Sequence[int], depth: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        blocks: list[nn.Module] = []
        before = widths[0]
        for width in widths:
            for i in range(depth):
                blocks.append(Residual(before, width, 2 if i == 0 and width != before else 1, True))
                before = width
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = self.blocks(torch.relu(self.norm(self.first(x))))
        return self.last(x.mean((2, 3)))


class VGG16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
                before = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.dense = nn.Sequential(
            nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )

    def forward(self, x):
        return self.dense(self.features(x).flatten(1))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape

        def split(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        weights = torch.softmax(q @ k.transpose(2, 3) / (width // self.heads) ** 0.5, -1)
        y = (weights @ v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm_a(x + self.o(y))
        return self.norm_b(x + self.down(functional.gelu(self.up(x))))


class BertMicro(nn.Module):
    """Masked language model with tied output weights."""

    def __init__(self, width: int = 64, words: int = 500) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.kinds = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(Encoder(width, 4), Encoder(width, 4))
        self.dense, self.dense_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1])
        x = self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens))
        x = self.blocks(self.norm(x))
        x = self.dense_norm(functional.gelu(self.dense(x)))
        return (x @ self.words.weight.T + self.bias)[0]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lenet5": LeNet5,
    "dscnn": DSCNN,
    "resnet8": lambda: ResNet((16, 32, 64), 1),
    "bert_micro": BertMicro,
    "resnet18": lambda: ResNet((64, 128, 256, 512), 2),
    "vgg16": VGG16,
}
IMAGES = {"lenet5": (1, 28, 28), "dscnn": (1, 49, 10)}
LABELS = {"dscnn": 12}


def training_step(name: str, shapes: Sequence[tuple[int, ...]]) -> Callable[[], None]:
    """A function that does a step. `shapes` are those of the arguments of the StableHLO."""
    torch.manual_seed(0)
    model = MODELS[name]()
    compare(name, model, shapes)
    if name == "bert_micro":
        data = torch.randint(0, 500, (1, 32))
        label = torch.randint(0, 500, (32,))
    else:
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore
        data = torch.randn(1, *IMAGES.get(name, (3, 32, 32)))
        data = data.to(memory_format=torch.channels_last)
        label = torch.randint(0, LABELS.get(name, 10), (1,))
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(model(data), label).backward()
        optimiser.step()

    return step


def compare(name: str, model: nn.Module, shapes: Sequence[tuple[int, ...]]) -> None:
    """Raises ValueError unless there are as many parameters of each size."""
    ours = Counter(parameter.numel() for parameter in model.parameters())
    theirs = Counter(int(torch.Size(shape).numel()) for shape in shapes)
    missing = ours - theirs
    if missing:
        raise ValueError(f"{name}: PyTorch has parameters of other sizes: {dict(missing)}")
