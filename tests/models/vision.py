"""Image models with torchvision's architectures, in as few lines as they take, and their weights random by fan-in.

Each builder takes a width and an image size, so that the quick tests run the same code as the full sizes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from tests.models.cases import ModelCase, Parts, randn, scale_by_fan_in


def conv_norm(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] | None = None) -> nn.Sequential:
    layers = [nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    """1x1, 3x3 (which strides), 1x1 to four times the width, and the input added."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = conv_norm(channels, width, 1, act=nn.ReLU)
        self.mix = conv_norm(width, width, 3, stride, act=nn.ReLU)
        self.expand = conv_norm(width, 4 * width, 1)
        self.short = conv_norm(channels, 4 * width, 1, stride) if stride > 1 or channels != 4 * width else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.relu(self.expand(self.mix(self.reduce(x))) + self.short(x))
        return y


class ResNet(nn.Module):
    def __init__(self, width: int = 64, depths: Sequence[int] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, width, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1))
        channels, stages = width, []
        for stage, depth in enumerate(depths):
            for block in range(depth):
                stages.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
                channels = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.flatten(self.pool(self.stages(self.stem(x))), 1))
        return y


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = channels * expand
        layers = [conv_norm(channels, wide, 1, act=nn.ReLU6)] if expand != 1 else []
        self.layers = nn.Sequential(*layers, conv_norm(wide, wide, 3, stride, wide, nn.ReLU6), conv_norm(wide, out, 1))
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return x + y if self.adds else y


class MobileNetV2(nn.Module):
    ROWS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )  # expand, channels, blocks, stride

    def __init__(self, width: float = 1.0, classes: int = 1000) -> None:
        super().__init__()

        def scaled(c: float) -> int:
            return max(8, int(c * width + 4) // 8 * 8)

        channels = scaled(32)
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU6)]
        for expand, c, blocks, stride in self.ROWS:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, scaled(c), stride if block == 0 else 1, expand))
                channels = scaled(c)
        last = scaled(1280 * max(1.0, width))
        self.features = nn.Sequential(*layers, conv_norm(channels, last, 1, act=nn.ReLU6))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(nn.functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return y


class SqueezeExcite(nn.Module):
    """Channels scaled by what their means say: two small products and a hard sigmoid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(8, channels // 4)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), nn.ReLU(), nn.Conv2d(inner, channels, 1), nn.Hardsigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x * self.gate(x)
        return y


class MobileNetV3(nn.Module):
    """The small one: kernels of 3 and 5, squeeze and excite, hard swish."""

    ROWS = (  # kernel, expanded, out, squeeze, swish, stride
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1), (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1),
        (5, 240, 40, True, True, 1), (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2), (5, 576, 96, True, True, 1),
        (5, 576, 96, True, True, 1),
    )  # fmt: skip

    class Block(nn.Module):
        def __init__(self, channels: int, kernel: int, wide: int, out: int, squeeze: bool, swish: bool, stride: int) -> None:
            super().__init__()
            act = nn.Hardswish if swish else nn.ReLU
            layers: list[nn.Module] = [conv_norm(channels, wide, 1, act=act)] if wide != channels else []
            layers.append(conv_norm(wide, wide, kernel, stride, wide, act))
            if squeeze:
                layers.append(SqueezeExcite(wide))
            self.layers = nn.Sequential(*layers, conv_norm(wide, out, 1))
            self.adds = stride == 1 and channels == out

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.layers(x)
            return y + x if self.adds else y

    def __init__(self, blocks: int = 11, classes: int = 1000) -> None:
        super().__init__()
        channels = 16
        layers: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.Hardswish)]
        for kernel, wide, out, squeeze, swish, stride in self.ROWS[:blocks]:
            layers.append(self.Block(channels, kernel, wide, out, squeeze, swish, stride))
            channels = out
        self.features = nn.Sequential(*layers, conv_norm(channels, 6 * channels, 1, act=nn.Hardswish))
        self.head = nn.Sequential(nn.Linear(6 * channels, 1024), nn.Hardswish(), nn.Linear(1024, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.features(x).mean((2, 3)))
        return y


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.grow, self.act, self.shrink = nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.shrink(self.act(self.grow(self.norm(self.mix(x).permute(0, 2, 3, 1)))))
        return x + self.scale * y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 96, depths: Sequence[int] = (3, 3, 9, 3), classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), LayerNorm2d(width, eps=1e-6)]
        for stage, depth in enumerate(depths):
            if stage:
                layers += [LayerNorm2d(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [ConvNeXtBlock(width) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), LayerNorm2d(width, eps=1e-6), nn.Flatten(1), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.features(x))
        return y


class UNet(nn.Module):
    """Three levels down and up; `upsample` is "transposed" (a learned one) or "bilinear"."""

    def __init__(self, width: int = 32, upsample: str = "transposed", classes: int = 2) -> None:
        super().__init__()

        def twice(channels: int, out: int) -> nn.Sequential:
            return nn.Sequential(conv_norm(channels, out, 3, act=nn.ReLU), conv_norm(out, out, 3, act=nn.ReLU))

        widths = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList([twice(c, out) for c, out in zip([3, *widths], widths)])
        self.bottom = twice(widths[-1], 2 * widths[-1])
        self.pool = nn.MaxPool2d(2)
        self.up, self.merge = nn.ModuleList(), nn.ModuleList()
        channels = 2 * widths[-1]
        for out in reversed(widths):
            learned = nn.ConvTranspose2d(channels, out, 2, 2)
            resized = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), nn.Conv2d(channels, out, 1))
            self.up.append(learned if upsample == "transposed" else resized)
            self.merge.append(twice(2 * out, out))
            channels = out
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
            x = merge(torch.cat([skip, up(x)], 1))
        y: torch.Tensor = self.head(x)
        return y


class First(nn.Module):
    """The first output of a transformers model, as a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.model(x)[0]
        return y


def vit(**config: Any) -> nn.Module:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import ViTConfig, ViTModel

    return First(ViTModel(ViTConfig(**config), add_pooling_layer=False))


BATCH = Dim("batch", min=1, max=64)


def images(make: Callable[[], nn.Module], size: int, batches: Sequence[int] = (2, 1, 3), dynamic: bool = True, gain: float = 2.0) -> Parts:
    module = scale_by_fan_in(make(), gain=gain).eval()
    return module, [(randn(n, 3, size, size, seed=n),) for n in batches], ({0: BATCH},) if dynamic else None


def case(name: str, make: Callable[[], nn.Module], size: int, note: str = "", pip: tuple[str, ...] = (), **options: Any) -> ModelCase:
    return ModelCase(name, partial(images, make, size, **options), note, pip)


SMALL = (
    case("resnet_small", partial(ResNet, 16, (1, 2, 1), 10), 64),
    case("mobilenet_v2_small", partial(MobileNetV2, 0.35, 10), 64),
    case("mobilenet_v3_small", partial(MobileNetV3, 6, 10), 64),
    case("convnext_small", partial(ConvNeXt, 16, (1, 2, 1), 10), 64, gain=1.0),
    case("unet_small", partial(UNet, 8), 48),
    case("unet_bilinear_small", partial(UNet, 8, "bilinear"), 48),
    case(
        "vit_small",
        partial(vit, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=64),
        64,
        pip=("transformers",),
        gain=1.0,
    ),
)
FULL = (
    case("resnet50", ResNet, 224),
    case("mobilenet_v2", MobileNetV2, 224),
    case("mobilenet_v3", MobileNetV3, 224),
    case("convnext_tiny", ConvNeXt, 224, gain=1.0),
    case("unet", UNet, 192),
    case("unet_bilinear", partial(UNet, 32, "bilinear"), 192),
    case("vit_b16", vit, 224, pip=("transformers",), gain=1.0),
)
