"""docs/debugging.md does what it says: its script, its commands in order, their output. `make golden` writes the output again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sealift.cli.main import main

PAGE = Path(__file__).resolve().parents[2] / "docs/debugging.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.S)
_NUMBER = re.compile(r"-?\b\d+(\.\d+)?(e[+-]?\d+)?\b|\bnan\b")


def commands(block: str) -> Iterator[tuple[str, str]]:
    """(command, what stands below it)"""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.M)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def run(command: str, capfd: pytest.CaptureFixture[str]) -> str:
    """A sealift command in this process, which has torch already; any other in a shell."""
    match = re.match(r"((?:[A-Z_]+=\S+ )*)sealift (.*)", command)
    if match is None:
        done = subprocess.run(command.replace("python ", f"{sys.executable} ", 1), shell=True, capture_output=True, text=True)
        return done.stdout + done.stderr
    import shlex

    environ = dict(pair.split("=", 1) for pair in match[1].split())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        capfd.readouterr()
        main(shlex.split(match[2]), environ)
    captured = capfd.readouterr()
    return captured.err + captured.out


# Passes come and go; of what lists them only a part is held to the page.
_VARIES = {"SEALIFT_DEBUG=time": ("lower", "build", "total", "block.pt2"), "ls ": ("00_import.graph", "kernels.h", "run.cpp")}


def comparable(command: str, text: str) -> list[str]:
    """Without what differs from run to run: numbers and their units, and the width of columns."""
    lines = [re.sub(r"\s+", " ", _NUMBER.sub("#", line)).strip() for line in text.splitlines() if line.strip()]
    lines = [re.sub(r"# (s|ms|us|kB|MB|bytes)\b", "# unit", line) for line in lines]
    parts = next((parts for start, parts in _VARIES.items() if command.startswith(start)), None)
    return lines if parts is None else [next((line for line in lines if part in line), f"no {part}").split()[0] for part in parts]


def test_the_debugging_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text()
    script = re.search(r"```python\n# model.py\n(.*?)```", page, re.S)
    assert script is not None
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(script[1])
    wrong: list[str] = []

    def fill(block: re.Match[str]) -> str:
        lines = []
        for command, documented in commands(block[1]):
            got = "".join(f"{line.rstrip()}\n" for line in run(command, capfd).splitlines())
            if comparable(command, got) != comparable(command, documented):
                wrong.append(f"$ {command}\n{got}\n  where the page has\n{documented}")
            lines.append(f"$ {command}\n{got}")
        return f"```console\n{''.join(lines)}```"

    filled = _BLOCK.sub(fill, page)
    if os.environ.get("SEALIFT_ACCEPT") == "1":
        PAGE.write_text(filled)
        return
    assert not wrong, "docs/debugging.md is out of date (make golden):\n" + "\n".join(wrong)
