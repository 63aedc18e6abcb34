"""kernels/simd for every instruction set: built with g++ and run where the machine has it, inspected as objects everywhere."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CXXFLAGS = "-std=c++17 -Wall -Wextra -Werror -Wno-psabi -O2 -ffp-contract=off -fno-exceptions -fno-rtti -fno-math-errno -fPIC"
AVX2 = "-mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt -mmovbe"
AVX512 = "-mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl"


@dataclass(frozen=True)
class Target:
    name: str
    flags: str
    needs: frozenset[str] = frozenset()  # words of /proc/cpuinfo's flags

    def runs_here(self) -> bool:
        return self.needs <= cpu_flags()

    def command(self, source: str, output: Path, *more: str) -> list[str]:
        return ["g++", *CXXFLAGS.split(), *self.flags.split(), f"-I{ROOT / 'kernels'}", *more, str(HERE / source), "-o", str(output)]


def cpu_flags() -> frozenset[str]:
    match = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return frozenset(match.group(1).split()) if match else frozenset()


HAS_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi2"})
HAS_AVX512 = HAS_AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
BASELINE = Target("baseline", "-DSEALIFT_TARGET_ISA=0 -march=x86-64")
TARGETS = [
    BASELINE,
    Target("avx2", f"-DSEALIFT_TARGET_ISA=1 {AVX2}", HAS_AVX2),
    Target("avx2-16-lanes", f"-DSEALIFT_TARGET_ISA=1 -DSEALIFT_LANES=16 {AVX2}", HAS_AVX2),
    Target("avx512", f"-DSEALIFT_TARGET_ISA=2 {AVX2} {AVX512}", HAS_AVX512),
]
# What the build may add: neither flag may change a result.
AGGRESSIVE = Target("avx2-O3", f"-DSEALIFT_TARGET_ISA=1 {AVX2} -O3 -fno-trapping-math", HAS_AVX2)


def run_program(target: Target, source: str, tmp_path: Path) -> str:
    if not target.runs_here():
        pytest.skip(f"this machine has no {target.name}")
    program = tmp_path / target.name
    subprocess.run(target.command(source, program), check=True)
    result = subprocess.run([program], capture_output=True, text=True)
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-4000:]
    return result.stdout


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_operations(target: Target, tmp_path: Path) -> None:
    run_program(target, "ops.cc", tmp_path)


@pytest.mark.parametrize("target", [*TARGETS, AGGRESSIVE], ids=lambda t: t.name)
def test_accuracy(target: Target, tmp_path: Path) -> None:
    run_program(target, "accuracy.cc", tmp_path)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_objects(target: Target, tmp_path: Path) -> None:
    """Only the kernels themselves are visible: a weak symbol could bring one instruction set's code to another. And linked, they load with
    glibc 2.28."""
    obj, library = tmp_path / "objects.o", tmp_path / "objects.so"
    subprocess.run(target.command("objects.cc", obj, "-c"), check=True)
    symbols = subprocess.run(["nm", "--format=posix", obj], check=True, capture_output=True, text=True).stdout
    kinds = [line.split()[:2] for line in symbols.splitlines()]
    types = ("float", "double", "int8", "uint8", "int16", "int32", "int64", "storage")
    assert {name for name, kind in kinds if kind.isupper() and kind != "U"} == {f"simd_{t}" for t in types}
    assert not [name for name, kind in kinds if kind in "WVuvw"]

    subprocess.run(["g++", "-shared", obj, "-o", library], check=True)
    versions = subprocess.run(["readelf", "-VW", library], check=True, capture_output=True, text=True).stdout
    found = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", versions)}
    assert found and max(found) <= (2, 28), sorted(found)


def test_includes_no_heavy_header() -> None:
    for header in (ROOT / "kernels/simd").glob("*.h"):
        system = set(re.findall(r"#include <(.*)>", header.read_text()))
        assert system <= {"stdint.h", "stddef.h", "string.h"}, header


def test_print_compile_time(tmp_path: Path) -> None:
    """Printed only: the machine is shared. 0.15 s is what a unit may cost."""
    for target in TARGETS:
        start = time.perf_counter()
        subprocess.run(target.command("small_kernel.cc", tmp_path / "k.o", "-c"), check=True)
        print(f"{target.name}: {time.perf_counter() - start:.3f} s")
