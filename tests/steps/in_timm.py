"""Steps of networks of timm: the classes of the library with few channels and layers."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from in_torchvision import network as classifier

network = functools.partial(classifier, library="timm")


def _resnet() -> Any:
    resnet: Any = importlib.import_module("timm.models.resnet")
    return resnet.ResNet(resnet.BasicBlock, (1, 1, 1, 1), 3, stem_width=4, channels=(4, 4, 6, 6))


def _vision_transformer() -> Any:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(8, 4, num_classes=3, embed_dim=8, depth=1, num_heads=2, mlp_ratio=2)


def _mixer() -> Any:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(3, 8, patch_size=4, num_blocks=1, embed_dim=8)


def _convmixer() -> Any:
    from timm.models.convmixer import ConvMixer

    return ConvMixer(6, 1, 3, 4, num_classes=3)


def _efficientnet() -> Any:
    from timm.models._efficientnet_builder import decode_arch_def
    from timm.models.efficientnet import EfficientNet

    blocks = decode_arch_def([["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r1_k3_s2_e2_c8_se0.25"]])
    return EfficientNet(blocks, 3, stem_size=8, num_features=12)


network("resnet", _resnet, 32)
network("vision_transformer", _vision_transformer, 8)
network("mixer", _mixer, 8)
network("convmixer", _convmixer, 12)
network("efficientnet", _efficientnet)
