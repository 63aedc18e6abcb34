"""What every family of test models gives: a name, a builder, and what it needs from PyPI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

Arguments = tuple[torch.Tensor, ...]
Parts = tuple[torch.nn.Module, list[Arguments], Any]


@dataclass(frozen=True)
class ModelCase:
    """A model as a user would write and export it.

    `build()` gives the module in eval mode, the arguments to try (one tuple per size; the first is what it is exported with) and
    dynamic_shapes for torch.export. `pip` names the packages that build() imports or reads, as their import names.
    """

    name: str
    build: Callable[[], Parts]
    note: str = ""
    pip: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        return [package for package in self.pip if find_spec(package) is None]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scale_by_fan_in(module: torch.nn.Module, seed: int = 0, gain: float = 2.0) -> torch.nn.Module:
    """Random weights under which the signal lives: variance gain / fan-in; biases and running statistics that are not 0 and 1."""
    generator = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        if isinstance(layer, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d | torch.nn.Linear):
            fan_in = layer.weight[0].numel()
            torch.nn.init.normal_(layer.weight, std=(gain / fan_in) ** 0.5, generator=generator)
        elif isinstance(layer, torch.nn.ConvTranspose1d | torch.nn.ConvTranspose2d | torch.nn.ConvTranspose3d):
            # every output element sums in_channels / groups inputs for the taps of its phase
            taps = layer.weight[0, 0].numel() / float(np.prod(layer.stride))
            fan_in = layer.in_channels // layer.groups * max(taps, 1.0)
            torch.nn.init.normal_(layer.weight, std=(gain / fan_in) ** 0.5, generator=generator)
        elif isinstance(layer, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
            for tensor, low, high in ((layer.running_mean, -0.2, 0.2), (layer.running_var, 0.5, 1.5), (weight, 0.5, 1.5)):
                if tensor is not None:
                    torch.nn.init.uniform_(tensor, low, high, generator=generator)
        bias = getattr(layer, "bias", None)
        if isinstance(bias, torch.nn.Parameter):
            torch.nn.init.uniform_(bias, -0.1, 0.1, generator=generator)
    return module


def outputs_of(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]


def in_float64(module: torch.nn.Module, arguments: Arguments) -> list[np.ndarray]:
    """The outputs of `module`, already in double, for these arguments."""
    with torch.no_grad():
        return [t.numpy() for t in outputs_of(module(*(t.double() if t.is_floating_point() else t for t in arguments)))]


def error_ratio(got: np.ndarray, eager: np.ndarray, exact: np.ndarray) -> float:
    """max|y - y64| over 2 max|eager - y64| + 1e-6 max|y64|: at most 1 for a model that computes as well as eager does."""
    if not exact.size:
        return 0.0
    if not np.issubdtype(exact.dtype, np.floating):
        return 0.0 if np.array_equal(got, exact) else float("inf")
    bound = 2 * np.abs(eager - exact).max() + 1e-6 * np.abs(exact).max()
    error = np.abs(got - exact).max()
    return 0.0 if error == 0 else float(error / bound) if bound > 0 else float("inf")
