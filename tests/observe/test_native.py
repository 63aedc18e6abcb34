"""The recorder's parts on a virtual clock: tests/observe/native_test.cpp, against the installed runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import sealift

ROOT = Path(__file__).resolve().parents[2]


def test_native_parts(tmp_path: Path) -> None:
    archive = next((p for d in sealift.__path__ for p in Path(d).glob("lib/libsealift_static.a")), None)
    if archive is None:
        pytest.skip("no libsealift_static.a beside the installed package")
    program = tmp_path / "native_test"
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{ROOT / 'contracts'}",
        str(ROOT / "tests/observe/native_test.cpp"),
        str(archive),
    ]
    built = subprocess.run([*command, "-ldl", "-lm", "-lpthread", "-o", str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("fine\n")


@pytest.mark.parametrize("header", ["contracts/sealift_observe.h", "torch_bridge/sealift_torch_bridge.h"])
def test_headers_are_c99(header: str, tmp_path: Path) -> None:
    source = tmp_path / "use.c"
    source.write_text(
        f'#include "{ROOT / header}"\nint use(void);\nint use(void) {{ SEALIFT_LOG_API_USAGE_ONCE("k"); return SEALIFT_OBSERVE_VERSION; }}\n'
    )
    command = ["gcc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT / 'contracts'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
