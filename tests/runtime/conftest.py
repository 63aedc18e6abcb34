"""Builds the runtime, its test programs and packages once for the session, out of the source tree.

SEALIFT_RUNTIME_BUILD names a finished build folder to test instead (as `make` does for the sanitizers).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))  # pack_package.py, whatever the import mode


@pytest.fixture(scope="session")
def build() -> Path:
    named = os.environ.get("SEALIFT_RUNTIME_BUILD")
    if named:
        return Path(named)
    folder = REPOSITORY / "build" / "runtime-tests"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    commands = [
        ["cmake", "-S", str(REPOSITORY / "runtime"), "-B", str(folder), *generator, "-DSEALIFT_RUNTIME_TESTS=ON"],
        ["cmake", "--build", str(folder), "--parallel", str(os.cpu_count() or 1)],
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:  # several workers: one builds, the others wait and find everything made
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-8000:]}{done.stderr[-8000:]}"
    return folder


@pytest.fixture(scope="session")
def packages(build: Path) -> Path:
    return build / "tests" / "packages"


@pytest.fixture(scope="session")
def libraries(build: Path) -> Path:
    return build / "tests" / "libraries"
