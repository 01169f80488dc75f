"""Steps of networks of torchvision: the classes and blocks of the library, on small images and with
as few channels and layers as their arguments allow."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from registry import TorchStep, register
from torch_modules import functional, nn, torch

_defined: list[Any] = []
"""What is defined goes with the object that has defined it."""


def load() -> None:
    """Imports torchvision. A wheel for another build of PyTorch than the one that is installed has
    no compiled operators, but asks for two of them; no network here has any."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _defined.append(library)
        importlib.import_module("torchvision")


def network(
    name: str, make: Callable[[], Any], side: int = 16, library: str = "torchvision"
) -> None:
    """Registers a step of a classifier of four images."""

    def build() -> TorchStep:
        torch.manual_seed(0)
        load()
        module = make()
        x, labels = torch.randn(4, 3, side, side), torch.tensor([0, 2, 1, 0])
        optimiser = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        return TorchStep(module, functional.cross_entropy, optimiser, x, labels)

    register(f"{library}/{name}", build)


def _resnet() -> Any:
    from torchvision.models.resnet import BasicBlock

    return nn.Sequential(
        *(nn.Conv2d(3, 4, 7, 2, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
        nn.MaxPool2d(3, 2, 1),
        BasicBlock(4, 4),
        BasicBlock(4, 6, 2, nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6))),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
    )


def _mobilenet_v2() -> Any:
    from torchvision.models import MobileNetV2

    settings = [[1, 8, 1, 1], [2, 8, 2, 2]]
    net = MobileNetV2(3, 0.25, settings, dropout=0.0)
    # Its last layer has 1,280 channels whatever the width is.
    net.features[-1] = nn.Sequential(
        nn.Conv2d(8, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6()
    )
    net.classifier = nn.Linear(12, 3)
    return net


def _mobilenet_v3() -> Any:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    settings = [
        InvertedResidualConfig(8, 3, 8, 8, True, "RE", 1, 1, 1.0),
        InvertedResidualConfig(8, 3, 16, 8, False, "HS", 2, 1, 1.0),
    ]
    return MobileNetV3(settings, 12, 3, dropout=0.0)


def _squeezenet() -> Any:
    from torchvision.models.squeezenet import Fire

    return nn.Sequential(
        *(nn.Conv2d(3, 6, 3, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True)),
        *(Fire(6, 2, 4, 4), Fire(8, 2, 4, 4), nn.Conv2d(8, 3, 1), nn.ReLU(inplace=True)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


def _efficientnet() -> Any:
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    settings = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(2, 3, 2, 8, 8, 1)]
    return EfficientNet(settings, 0.0, 0.0, 3, last_channel=12)


def _shufflenet() -> Any:
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([1, 1, 1], [4, 8, 8, 8, 12], 3)


def _densenet() -> Any:
    models: Any = importlib.import_module("torchvision.models")
    return models.DenseNet(2, (2, 2), 4, 2, num_classes=3)


def _convnext() -> Any:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(4, 6, 1), CNBlockConfig(6, None, 1)], 0.0, 1.0, 3)


def _swin() -> Any:
    from torchvision.models import SwinTransformer

    return SwinTransformer([2, 2], 8, [2], [2], [2, 2], 2.0, 0.0, 0.0, 0.0, 3)


network("resnet", _resnet)
network("mobilenet_v2", _mobilenet_v2)
network("mobilenet_v3", _mobilenet_v3)
network("squeezenet", _squeezenet)
network("efficientnet", _efficientnet)
network("shufflenet", _shufflenet, 64)
network("densenet", _densenet)
network("convnext", _convnext)
network("swin", _swin, 8)
