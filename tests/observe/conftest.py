"""PyTorch's operators are watched through the bridge, which is built once into the user's cache."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealift import observe
from sealift.observe.bridge import build_bridge

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bridge() -> Path:
    with open(Path(tempfile.gettempdir()) / f"sealift-bridge-{os.getuid()}.lock", "w") as lock:  # several workers: one builds
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_bridge().bridge.directory


@pytest.fixture
def torch_observed(bridge: Path) -> Iterator[None]:
    """The recorder is stopped afterwards, whatever a test left."""
    observe.install_torch()
    yield
    observe.stop()


@pytest.fixture
def run_python(bridge: Path) -> Callable[..., str]:
    """Runs a program in a process of its own; its output."""

    def run(program: str, *arguments: str, expect: int = 0, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            env={**os.environ, **(environment or {})},
        )
        assert done.returncode == expect, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if expect == 0 else "")

    return run
