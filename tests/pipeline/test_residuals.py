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

    def __init__(self, body: Callable[[Net, Tensor], Tensor], kernel: int, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, kernel, padding=kernel // 2) for _ in range(2))
        self.linear, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self, x)


def block(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(torch.relu(m.second(m.first(y)) + y))


def padded_behind(m: Net, x: Tensor) -> Tensor:
    y = torch.relu(m.first(x))
    return torch.sigmoid(m.second(F.pad(torch.exp(m.first(y))[:, :, :, :-1], (0, 1))) + y)


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


def plain_rows(m: Net, x: Tensor) -> Tensor:
    y = F.silu(m.linear(x))
    return torch.exp(torch.relu(m.other(m.linear(y)) + y) * 0.1)


def other_way_round(m: Net, x: Tensor) -> Tensor:
    y = F.silu(m.linear(x))
    return torch.exp((m.other(m.linear(y)) + y.transpose(0, 1)) * 0.1)


@pytest.mark.parametrize(
    ("body", "kernel", "width", "in_place"),
    [
        (block, 1, 24, True),
        (block, 1, 192, True),
        (block, 1, 193, False),  # several blocks of k: partial sums would lie where the residual does
        (block, 3, 24, False),  # as they do at the border
        (padded_behind, 1, 24, False),
        (read_later, 1, 24, False),
        (of_itself, 1, 24, False),
        (activation_between, 1, 24, False),
        (rows, 1, 24, False),  # an activation after the sum that is no ReLU
        (plain_rows, 1, 24, True),
        (plain_rows, 1, 192, True),
        (plain_rows, 1, 193, False),
        (other_way_round, 1, 24, False),
    ],
)
@pytest.mark.parametrize("count", [2, 24])
def test_residuals(body: Callable[[Net, Tensor], Tensor], kernel: int, width: int, in_place: bool, count: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    is_image = body not in (rows, plain_rows, other_way_round)
    shape = (count, width, 5, 9) if is_image else (width if body is other_way_round else count, width)
    net, x = Net(body, kernel, width).eval(), torch.randn(shape)
    path = sealift.compile(torch.export.export(net, (x,)), tmp_path / "m.pt2", options=Options(dump_dir=tmp_path / "dump"))
    (plan,) = (tmp_path / "dump").glob("*_plan.plan")
    assert ("replaces" in plan.read_text()) == in_place
    with torch.no_grad():
        torch.testing.assert_close(sealift.load(path)(x), net(x), rtol=1e-5, atol=1e-5)
