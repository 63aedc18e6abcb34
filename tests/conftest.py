"""Fixtures for the whole suite. `stub_library` is a model library written by hand in C: the boundary of contracts/sealift_model.h without
the compiler, so that packages, loading and the command line are tested alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/load/stub_model.c: inputs x f32[batch 1..1024, 4] -> (x * scale + bias, None), scale and bias from the weights file."""
    library = tmp_path_factory.mktemp("stub") / "stub.so"
    source = ROOT / "tests/load/stub_model.c"
    command = ["gcc", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'contracts'}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: minutes; run with -m slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in config.getoption("markexpr", ""):
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow"))
