"""The state guide's code and examples/gpt2_generate.py run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_state_guides_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guides/state.md").read_text(), re.S)
    assert len(blocks) == 3
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), "docs/guides/state.md", "exec"), {"__name__": "guide"})


def test_gpt2_generates(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    small = "--layers 2 --width 32 --heads 2 --vocab 101 --length 48 --tokens 12".split()
    command = [sys.executable, str(ROOT / "examples/gpt2_generate.py"), "--out", str(tmp_path / "gpt2.pt2"), *small]
    done = subprocess.run(command, capture_output=True, text=True, env={"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stdout and done.stdout.count("->") == 2
