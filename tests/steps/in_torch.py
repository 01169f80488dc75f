"""Steps of PyTorch without other libraries: layers, optimisers, training of parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from registry import TorchStep, register, step
from torch_modules import functional, nn, torch

plain = step("torch")
Module = nn.Module
cross_entropy = functional.cross_entropy


def squares(y: Any) -> Any:
    return y.square().mean()


def sgd(module: Any, rate: float = 0.05, **options: Any) -> Any:
    trained = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=rate, **options)


def classifier(module: Any, x: Any, classes: int = 3, **options: Any) -> TorchStep:
    labels = torch.arange(len(x)) % classes
    return TorchStep(module, cross_entropy, sgd(module), x, labels, options)


def regression(module: Any, *inputs: Any) -> TorchStep:
    return TorchStep(module, squares, sgd(module), inputs)


def perceptron(inputs: int = 8, outputs: int = 4) -> Any:
    return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs))


# Optimisers


def optimiser(name: str, make: Callable[[list[Any]], Any], **options: Any) -> None:
    def build() -> TorchStep:
        torch.manual_seed(0)
        module, x = perceptron(), torch.randn(4, 8)
        labels = torch.tensor([0, 1, 3, 2])
        return TorchStep(module, cross_entropy, make(list(module.parameters())), x, labels, options)

    register(f"torch/{name}", build)


optim = torch.optim
for _name, _make in {
    "adadelta": lambda p: optim.Adadelta(p),
    "adagrad": lambda p: optim.Adagrad(p, lr_decay=0.1),
    "adam": lambda p: optim.Adam(p, amsgrad=True),
    "adamax": lambda p: optim.Adamax(p),
    "adamw": lambda p: optim.AdamW(p, weight_decay=0.1),
    "asgd": lambda p: optim.ASGD(p),
    "nadam": lambda p: optim.NAdam(p),
    "radam": lambda p: optim.RAdam(p),
    "rmsprop": lambda p: optim.RMSprop(p, momentum=0.9),
    "rprop": lambda p: optim.Rprop(p),
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd_nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "groups": lambda p: optim.AdamW([{"params": p[:2], "lr": 1e-2}, {"params": p[2:]}]),
}.items():
    optimiser(_name, _make)

optimiser("clipped", lambda p: optim.Adam(p), clip_norm=0.5, clip_value=0.2)

# Recurrent layers


class Recurrent(Module):
    """The last output of a recurrent layer, classified."""

    def __init__(self, layer: Any, units: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(units, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


@plain
def lstm() -> TorchStep:
    return classifier(Recurrent(nn.LSTM(3, 4, batch_first=True), 4), torch.randn(2, 4, 3))


@plain
def lstm_of_two_layers() -> TorchStep:
    return classifier(Recurrent(nn.LSTM(3, 4, 2, batch_first=True), 4), torch.randn(2, 3, 3))


@plain
def gru() -> TorchStep:
    return classifier(Recurrent(nn.GRU(3, 4, batch_first=True), 4), torch.randn(2, 4, 3))


@plain
def bidirectional_lstm() -> TorchStep:
    layer = nn.LSTM(3, 3, batch_first=True, bidirectional=True)
    return classifier(Recurrent(layer, 6), torch.randn(2, 3, 3))


@plain
def elman() -> TorchStep:
    layer = nn.RNN(3, 4, batch_first=True, nonlinearity="relu")
    return classifier(Recurrent(layer, 4), torch.randn(2, 4, 3))


@plain
def lstm_cell_in_a_loop() -> TorchStep:
    class Cells(Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = nn.LSTMCell(3, 4), nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            state = None
            for at in range(x.shape[1]):
                state = self.cell(x[:, at], state)
            assert state is not None
            return self.head(state[0])

    return classifier(Cells(), torch.randn(2, 3, 3))


# Transformers


@plain
def encoder() -> TorchStep:
    layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
    return regression(nn.TransformerEncoder(layer, 2), torch.randn(2, 3, 8))


@plain
def encoder_norm_first_with_padding() -> TorchStep:
    class Encoder(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(
                8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True
            )

        def forward(self, x: Any, padding: Any) -> Any:
            return self.layer(x, src_key_padding_mask=padding)

    padding = torch.tensor([[False, False, False], [False, False, True]])
    return regression(Encoder(), torch.randn(2, 3, 8), padding)


@plain
def decoder() -> TorchStep:
    class Decoder(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True)

        def forward(self, x: Any, memory: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.layer(x, memory, tgt_mask=mask, tgt_is_causal=True)

    return regression(Decoder(), torch.randn(2, 3, 8), torch.randn(2, 4, 8))


@plain
def language_model() -> TorchStep:
    class Model(Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(11, 8), nn.Embedding(4, 8)
            self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.token.weight

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            return self.head(self.block(x, mask, is_causal=True)).flatten(0, 1)

    module = Model()
    tokens = torch.tensor([[1, 5, 5, 2], [9, 0, 1, 3]])
    targets = tokens.roll(-1, 1).flatten()
    return TorchStep(module, cross_entropy, sgd(module), tokens, targets)


@plain
def attention_by_function() -> TorchStep:
    class Attention(Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(8, 24, bias=False), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(x.shape))

    return regression(Attention(), torch.randn(2, 4, 8))


# Images


@plain
def lenet() -> TorchStep:
    module = nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 3)),
    )
    return classifier(module, torch.randn(2, 1, 8, 8))


@plain
def residual_block() -> TorchStep:
    class Residual(Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2), nn.ReLU()),
                *(nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2)),
            )

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.body(x)).mean((2, 3))

    return classifier(Residual(), torch.randn(2, 2, 5, 5), 2)


@plain
def unet() -> TorchStep:
    class UNet(Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(1, 2, 3, padding=1)
            self.middle = nn.Conv2d(2, 3, 3, padding=1)
            self.up = nn.ConvTranspose2d(3, 2, 2, 2)
            self.out = nn.Conv2d(4, 1, 1)

        def forward(self, x: Any) -> Any:
            high = torch.relu(self.down(x))
            low = torch.relu(self.middle(functional.max_pool2d(high, 2)))
            return self.out(torch.cat((high, self.up(low)), 1))

    module = UNet()
    loss = functional.binary_cross_entropy_with_logits
    x = torch.randn(1, 1, 6, 6)
    return TorchStep(module, loss, sgd(module), x, (x > 0).float())


@plain
def squeeze_and_excitation() -> TorchStep:
    class Block(Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 3, groups=2)
            self.squeeze, self.excite = nn.Linear(4, 2), nn.Linear(2, 4)

        def forward(self, x: Any) -> Any:
            x = functional.hardswish(self.conv(x))
            scale = self.excite(functional.relu(self.squeeze(x.mean((2, 3)))))
            return x * functional.hardsigmoid(scale)[..., None, None]

    return regression(Block(), torch.randn(2, 2, 5, 5))


@plain
def upsampling_and_group_norm() -> TorchStep:
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"),
        nn.GroupNorm(2, 4),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.LeakyReLU(0.1),
        nn.AvgPool2d(3, 2, 1),
    )
    return regression(module, torch.randn(1, 2, 4, 4))


@plain
def sound_in_one_dimension() -> TorchStep:
    module = nn.Sequential(
        *(nn.Conv1d(1, 3, 5, 2, bias=False), nn.BatchNorm1d(3), nn.GELU()),
        *(nn.Conv1d(3, 4, 3, dilation=2), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(4, 3)),
    )
    return classifier(module, torch.randn(2, 1, 20))


@plain
def autoencoder() -> TorchStep:
    module = nn.Sequential(nn.Linear(8, 3), nn.SELU(), nn.Linear(3, 8), nn.Sigmoid())
    x = torch.rand(4, 8)
    return TorchStep(module, nn.BCELoss(), sgd(module), x, x)


# Training of parts


class LoRA(Module):
    """A frozen layer and what is learned beside it."""

    def __init__(self, layer: Any, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(rank))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Any) -> Any:
        return self.layer(x) + x @ self.down.T @ self.up.T


@plain
def lora() -> TorchStep:
    module = nn.Sequential(LoRA(nn.Linear(8, 6), 2), nn.ReLU(), LoRA(nn.Linear(6, 3), 2))
    return classifier(module, torch.randn(4, 8))


@plain
def frozen_layers() -> TorchStep:
    module = perceptron(outputs=3)
    module[0].requires_grad_(False)
    return classifier(module, torch.randn(4, 8))


@plain
def frozen_batch_norm() -> TorchStep:
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 3)
    )
    module[1].eval().requires_grad_(False)
    return classifier(module, torch.randn(2, 1, 5, 5))


@plain
def biases_only() -> TorchStep:
    module = perceptron(outputs=3)
    for layer in (module[0], module[2]):
        layer.weight.requires_grad_(False)
    return classifier(module, torch.randn(4, 8))


@plain
def distillation() -> TorchStep:
    class Student(Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = nn.Linear(8, 3), perceptron(outputs=3)
            self.teacher.requires_grad_(False)

        def forward(self, x: Any) -> Any:
            wanted = (self.teacher(x) / 2).softmax(1)
            return functional.kl_div(
                (self.student(x) / 2).log_softmax(1), wanted, reduction="batchmean"
            )

    module = Student()
    return TorchStep(module, lambda value: value, sgd(module), torch.randn(4, 8))


# Other modules and losses


@plain
def dropout() -> TorchStep:
    module = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))
    return classifier(module, torch.randn(4, 8), seed=1)


@plain
def variational_autoencoder() -> TorchStep:
    class Autoencoder(Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Linear(8, 6), nn.Linear(3, 8)

        def forward(self, x: Any) -> Any:
            mean, spread = self.encoder(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (spread / 2).exp()
            divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(1)
            return (self.decoder(z) - x).square().mean() + 0.1 * divergence.mean()

    module = Autoencoder()
    x = torch.randn(4, 8)
    return TorchStep(module, lambda value: value, sgd(module), x, options={"seed": 3})


@plain
def bag_of_words() -> TorchStep:
    class Bag(Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.out = nn.EmbeddingBag(12, 6, mode="mean"), nn.Linear(6, 3)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.bag(tokens))

    return classifier(Bag(), torch.tensor([[1, 5, 2], [0, 3, 3]]))


@plain
def parametrised_weights() -> TorchStep:
    weight_norm = nn.utils.parametrizations.weight_norm
    module = nn.Sequential(weight_norm(nn.Linear(8, 6)), nn.PReLU(), nn.Linear(6, 3))
    return classifier(module, torch.randn(4, 8))


@plain
def triplets() -> TorchStep:
    class Triplets(Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = perceptron()

        def forward(self, *images: Any) -> Any:
            return nn.TripletMarginLoss()(*(self.net(image) for image in images))

    module = Triplets()
    images = tuple(torch.randn(3, 8) for _ in range(3))
    return TorchStep(module, lambda value: value, sgd(module), images)


@plain
def smoothed_labels_and_weights() -> TorchStep:
    module = perceptron()
    loss = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5, 1.0]), label_smoothing=0.1)
    return TorchStep(module, loss, sgd(module), torch.randn(4, 8), torch.tensor([0, 1, 3, 2]))


@plain
def quantiles() -> TorchStep:
    module = perceptron()

    def pinball(y: Any, wanted: Any) -> Any:
        error = wanted - y
        return torch.maximum(0.9 * error, -0.1 * error).mean()

    return TorchStep(module, pinball, sgd(module), torch.randn(4, 8), torch.randn(4, 4))


@plain
def bfloat16() -> TorchStep:
    return classifier(perceptron(outputs=3).bfloat16(), torch.randn(4, 8).bfloat16())


@plain
def checkpointed() -> TorchStep:
    class Net(Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x: Any) -> Any:
            from torch.utils.checkpoint import checkpoint

            return self.b(checkpoint(lambda x: self.a(x).tanh(), x, use_reentrant=False))

    return classifier(Net(), torch.randn(4, 8))
