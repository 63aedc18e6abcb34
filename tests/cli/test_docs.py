"""The documentation says what is so. `make golden` writes it again."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_supported_expect() -> None:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("supported", ROOT / "docs/supported.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path, text in module.texts().items():
        if os.environ.get("SEALIFT_ACCEPT") == "1":
            path.write_text(text)
        assert path.read_text() == text, f"{path.name} is out of date: make golden"


def test_the_readmes_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert example is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(example[1], "README.md", "exec"), {"__name__": "readme"})
    assert (tmp_path / "model.pt2").exists()


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "docs/README.md", ROOT / "docs/architecture.md", *(ROOT / "docs/guides").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
            if target != "docs/performance.md":  # make bench writes it
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_architecture_expect() -> None:
    """The page shows what the pipeline prints."""
    spec = importlib.util.spec_from_file_location("architecture_example", ROOT / "docs/architecture_example.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.filled(module.PAGE.read_text())
    if os.environ.get("SEALIFT_ACCEPT") == "1":
        module.PAGE.write_text(text)
    assert module.PAGE.read_text() == text, "docs/architecture.md is out of date: make golden"
