"""Slow tests run with `-m slow` only (`make fuzz`)."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: minutes; run with -m slow (make fuzz)")
    config.addinivalue_line("markers", "golden: compares printed text; accepted by make golden")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" in config.getoption("markexpr", ""):
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow: run with -m slow (make fuzz)"))
