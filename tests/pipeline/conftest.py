"""Packages of the three golden models, compiled once a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import Dim

import sealift
from sealift.options import Options
from tests.expect.test_import_golden import Block, Mlp


def programs() -> dict[str, Any]:
    """By model name: the exported program of the golden graph, with random weights."""
    torch.manual_seed(0)
    batch = Dim("batch", min=1, max=1024)
    sizes = {0: Dim("b", min=1, max=64), 1: Dim("seq", min=1, max=128)}
    return {
        "mlp": torch.export.export(Mlp().eval(), (torch.randn(8, 10),), dynamic_shapes={"x": {0: batch}}),
        "block": torch.export.export(
            Block().eval(), (torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.bool)), dynamic_shapes={"x": sizes, "mask": sizes}
        ),
    }


def arguments(name: str, *sizes: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(sum(sizes))
    if name == "mlp":
        return (torch.randn(sizes[0], 10, generator=generator),)
    mask = torch.rand(sizes, generator=generator) < 0.7
    mask[:, 0] = True
    return torch.randn(*sizes, 16, generator=generator), mask


@pytest.fixture(scope="session")
def exported() -> dict[str, Any]:
    return programs()


@pytest.fixture(scope="session")
def both(exported: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One package that holds the MLP and the transformer block."""
    directory = tmp_path_factory.mktemp("packages")
    return sealift.compile(exported, directory / "both.pt2", options=Options(cache_dir=directory / "cache"))


@pytest.fixture(scope="session")
def packages(exported: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A package for each, by model name."""
    directory = tmp_path_factory.mktemp("packages")
    return {n: sealift.compile(p, directory / f"{n}.pt2", options=Options(cache_dir=directory / "cache")) for n, p in exported.items()}
