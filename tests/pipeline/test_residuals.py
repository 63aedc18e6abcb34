"""A residual that nothing else needs is summed up where it lies; one that is still needed stays whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sealift
from sealift.options import Options


class Net(nn.Module):
    """Two convolutions and two linear layers of the same width, and what `body` makes of them."""

    def __init__(self, body: Callable[[Net, Tensor], Tensor], kernel: int = 1) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(24, 24, kernel, padding=kernel // 2), nn.Conv2d(24, 24, kernel, padding=kernel // 2)
        self.linear, self.other = nn.Linear(24, 24), nn.Linear(24, 24)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def block(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(torch.relu(m.second(m.first(y)) + y))


def read_later(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(m.second(m.first(y)) + y) * m.second(y)


def of_itself(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(m.second(y) + y)


def activation_between(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(torch.relu(m.second(m.first(y))) + y)


def rows(m: Net, x: Tensor) -> Tensor:
    y = F.silu(m.linear(x))
    return torch.exp(F.gelu(m.other(m.linear(y)) + y) * 0.1)


def other_way_round(m: Net, x: Tensor) -> Tensor:
    y = F.silu(m.linear(x))
    return torch.exp((m.other(m.linear(y)) + y.transpose(0, 1)) * 0.1)


IMAGE, ROWS = (2, 24, 7, 9), (24, 24)


@pytest.mark.parametrize(
    ("body", "shape", "in_place"),
    [
        (block, IMAGE, True),
        (read_later, IMAGE, False),
        (of_itself, IMAGE, False),
        (activation_between, IMAGE, False),
        (rows, ROWS, True),
        (other_way_round, ROWS, False),
    ],
)
@pytest.mark.parametrize("kernel", [1, 3])
def test_residuals(body: Callable[[Net, Tensor], Tensor], shape: tuple[int, ...], in_place: bool, kernel: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Net(body, kernel).eval(), torch.randn(shape)
    path = sealift.compile(torch.export.export(net, (x,)), tmp_path / "m.pt2", options=Options(dump_dir=tmp_path / "dump"))
    dumped = {p.name.partition("_")[2]: p.read_text() for p in (tmp_path / "dump").iterdir() if p.suffix in (".plan", ".cpp")}
    assert ("replaces" in dumped["plan.plan"]) == in_place
    assert (".accumulate = true" in dumped["emit.cpp"]) == in_place
    with torch.no_grad():
        torch.testing.assert_close(sealift.load(path)(x), net(x), rtol=1e-5, atol=1e-5)
