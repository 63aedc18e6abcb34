"""docs/fleet-proof.md names tests that exist, and says what the table in benchmarks/ says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def lines() -> Any:
    spec = importlib.util.spec_from_file_location("fleet_proof_lines", ROOT / "benchmarks/fleet_proof_lines.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_claim_s_tests_exist() -> None:
    for claim, tests in lines().LINES:
        assert claim and tests
        for test in tests:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / "tests/fleet" / file).read_text(), re.MULTILINE), test


def test_the_page_has_every_part() -> None:
    page = (ROOT / "docs/fleet-proof.md").read_text()
    assert "\n".join(lines().section()).strip() in page, "python benchmarks/fleet_proof.py --only lines --write docs/fleet-proof.md"
    for title in ("## 10,000 hosts", "## Quiet weeks", "## Killed at random moments", "## Real peers, and both stores alike"):
        assert title in page
