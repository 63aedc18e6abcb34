"""Files that hold what a test printed when someone last looked: SEALIFT_ACCEPT=1 (`make golden`) writes them anew, for the diff to be read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path

DIRECTORY = Path(__file__).parent / "golden"


def assert_golden(name: str, files: Mapping[str, str], directory: Path = DIRECTORY) -> None:
    """The files of golden/`name`, all of them and no other, by file name."""
    target = directory / name
    if os.environ.get("SEALIFT_ACCEPT"):
        target.mkdir(parents=True, exist_ok=True)
        for stale in {p.name for p in target.iterdir()} - set(files):
            (target / stale).unlink()
        for file, text in files.items():
            (target / file).write_text(text)
        return
    kept = {p.name: p.read_text() for p in target.iterdir()} if target.is_dir() else {}
    differences: list[str] = []
    for file in sorted({*kept, *files}):
        before, now = kept.get(file, "").splitlines(), files.get(file, "").splitlines()
        differences += difflib.unified_diff(before, now, f"golden/{name}/{file}", "now", lineterm="", n=2)
    assert kept == dict(files), "\n".join([*differences, "if this is what you want: make golden"])
