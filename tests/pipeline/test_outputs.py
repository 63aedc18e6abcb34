"""What outputs look like: eager's strides where they leave no gaps, and a zero's sign where eager has more than one answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sealift
from sealift.options import Options

N = torch.export.Dim("n", min=1, max=64)


class Shapes(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        padded = F.pad(x, (2, 1))
        return x.transpose(1, 2) * 2, x.permute(2, 0, 1) + 1, padded[:, :, :8], F.gelu(x)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sealift.Model:
    program = torch.export.export(Shapes(), (torch.randn(5, 7, 8),), dynamic_shapes={"x": {0: N}})
    path = tmp_path_factory.mktemp("outputs") / "shapes.pt2"
    return sealift.load(sealift.compile(program, Path(path), options=Options(isas=("baseline",))))


@pytest.mark.parametrize("n", (1, 3, 5))
def test_strides_are_eagers_where_they_leave_no_gaps(model: sealift.Model, n: int) -> None:
    x = torch.randn(n, 7, 8)
    got, wanted = model(x), Shapes()(x)
    for position in (0, 1):
        torch.testing.assert_close(got[position], wanted[position], check_stride=n > 1)  # the stride of a dimension of 1 means nothing
    torch.testing.assert_close(got[2], wanted[2], check_stride=False)
    assert got[2].is_contiguous(), "a part of a padded tensor comes without the rest"


def test_gelu_of_a_large_negative_is_the_zero_of_eagers_own_kernel(model: sealift.Model) -> None:
    """Eager has two: 0.0 from oneDNN, -0.0 where a tensor's layout or rank is not oneDNN's."""
    x = torch.full((1, 7, 8), -40.0)
    with torch.backends.mkldnn.flags(enabled=False):
        wanted = F.gelu(x)
    got = model(x)[3]
    assert torch.equal(got, wanted) and torch.equal(got.signbit(), wanted.signbit())
