"""The guide to complex numbers runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_guides_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/complex.md").read_text(), re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "docs/guides/complex.md", "exec"), {"__name__": "guide"})
