"""The C and C++ test programs, and what the built libraries need and export."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

GLIBC_LIMIT = (2, 28)


@pytest.mark.parametrize("program", ["runtime_test", "parts_test", "damage_test", "hpp_test", "hpp_static_test", "c_header_test"])
def test_program_passes(build: Path, program: str) -> None:
    done = subprocess.run([str(build / "tests" / program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def run(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def needed(library: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", library)))


def newest_glibc(library: Path) -> tuple[int, ...]:
    versions = re.findall(r"GLIBC_([0-9.]+)", run("readelf", "-V", library))
    return max(tuple(int(part) for part in version.split(".")) for version in versions)


def exported(library: Path) -> set[str]:
    return {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", library).splitlines()}


def test_libsealift_stands_alone(build: Path) -> None:
    library = build / "libsealift.so.0"
    assert needed(library) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
    assert newest_glibc(library) <= GLIBC_LIMIT
    contracts = Path(__file__).resolve().parents[2] / "contracts"
    header = (contracts / "sealift.h").read_text() + (contracts / "sealift_observe.h").read_text()
    declared = set(re.findall(r"SEALIFT_API [\w *]*?\b(sealift_\w+)\(", header))
    assert exported(library) == declared


@pytest.mark.parametrize("name", ["linear", "state", "errors", "shapes"])
def test_model_library_stands_alone(libraries: Path, name: str) -> None:
    library = libraries / f"{name}.so"
    assert needed(library) <= {"libc.so.6", "libm.so.6"}
    assert newest_glibc(library) <= GLIBC_LIMIT
    symbols = exported(library)
    assert "sealift_model_get_api" in symbols
    assert all(symbol.startswith("AOTInductor") for symbol in symbols - {"sealift_model_get_api"})
    # An initializer or a destructor of ours would run in whoever loads the library; crtbegin's own is one entry of each.
    sizes = dict(re.findall(r"\.(init_array|fini_array)\s+\w+\s+\w+ \w+ (\w+)", run("readelf", "-SW", library)))
    assert sizes == {"init_array": "000008", "fini_array": "000008"}
