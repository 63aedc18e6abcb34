"""Marks of the pass tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "golden: compares printed text; accepted by make golden")
