"""Sums so far, against eager: integers bit for bit, f32 summed in f64 to the last bit but one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch.export import Dim, export

import sealift


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumsum(1), n.cumsum(1), x.cumsum(0), x[:, :1].cumsum(1), x.cumsum(1, dtype=torch.float64).sum(1)


def test_at_every_length(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    length = Dim("length", min=1, max=100000)

    def inputs(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(3, n, generator=generator), torch.randint(-(1 << 62), 1 << 62, (3, n), generator=generator)

    program = export(Sums(), inputs(8), dynamic_shapes=({1: length}, {1: length}))
    model = sealift.load(sealift.compile(program, tmp_path / "sums.pt2"))
    for n in (*range(1, 41), 1000, 65537):
        x, whole = inputs(n)
        x[1, n // 2] = torch.inf  # what comes before stays finite
        x[2, n - 1 - n // 3] = -torch.inf
        x[2, n // 4] = torch.inf
        for position, (got, wanted) in enumerate(zip(model(x.numpy(), whole.numpy()), Sums()(x, whole), strict=True)):
            rtol, atol = (0.0, 0.0) if position == 1 else (2e-7, 1e-9)
            np.testing.assert_allclose(got, wanted.numpy(), rtol=rtol, atol=atol, err_msg=f"output {position} at length {n}")
