"""An embedding that is a language model's last layer too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from sealift.pipeline import compile

VOCABULARY, WIDTH = 20003, 72  # no multiple of 4 rows, of a panel, or of a vector
TABLE_BYTES = VOCABULARY * WIDTH * 4


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.embedding(token)))


@pytest.mark.parametrize(("tokens", "copies"), [(1, 1), (5, 2)])
def test_one_token_needs_no_second_copy_of_the_table(tmp_path: Path, tokens: int, copies: int) -> None:
    torch.manual_seed(0)
    module = Tied().eval()
    example = torch.randint(VOCABULARY, (1, tokens))
    path = compile(torch.export.export(module, (example,)), tmp_path / "tied.pt2")
    assert copies * TABLE_BYTES <= path.stat().st_size < (copies + 0.9) * TABLE_BYTES + (1 << 20)
    model = sealift.load(path)
    for _ in range(3):
        token = torch.randint(VOCABULARY, (1, tokens))
        with torch.no_grad():
            np.testing.assert_allclose(np.asarray(model(token.numpy())), module(token).numpy(), rtol=1e-5, atol=1e-5)
