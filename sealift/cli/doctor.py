"""Say what this machine can do, and what to install for the rest."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from sealift.cli.output import Output, table
from sealift.diag.errors import SealiftError
from sealift.version import VERSION

_ISAS = ("baseline", "avx2", "avx512", "amx")


@dataclass(frozen=True)
class Finding:
    what: str
    ok: bool
    found: str
    needed_for: str
    help: str = ""  # what to do where it is not ok


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace, output: Output) -> int:
    del arguments
    findings = [_runtime(), _numpy(), _torch(), _compiler(), _kernels(), _bridge(), _start(), _cmake(), _temporary()]
    cores = len(os.sched_getaffinity(0))
    machine = f"sealift {VERSION}, Python {platform.python_version()}, {platform.machine()}, {cores} cores, {' '.join(platform.libc_ver())}"
    rows = [("ok" if f.ok else "--", f.what, f.found, f"for {f.needed_for}") for f in findings]
    helps = [f"{f.what}: {f.help}" for f in findings if not f.ok]
    output.result({"machine": machine, "findings": [asdict(f) for f in findings]}, "\n".join([machine, table(rows), *helps]))
    return 0 if all(f.ok for f in findings if f.needed_for == "running") else 1


def _runtime() -> Finding:
    try:
        from sealift import _runtime
    except ImportError as error:
        return Finding("runtime", False, str(error), "running", "pip install sealift; in a checkout: make dev")
    mask = _runtime.machine_isas()
    return Finding("runtime", True, f"{_runtime.version()}, runs {', '.join(n for i, n in enumerate(_ISAS) if mask >> i & 1)}", "running")


def _numpy() -> Finding:
    try:
        return Finding("numpy", True, importlib.metadata.version("numpy"), "running")
    except importlib.metadata.PackageNotFoundError:
        return Finding("numpy", False, "not installed", "running", "pip install numpy")


def _torch() -> Finding:
    advice = "pip install 'sealift[compile]'"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Finding("torch", False, "not installed", "compiling", advice)
    major, minor = (int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")[:2])
    return Finding("torch", (major, minor) >= (2, 11), version, "compiling", f"torch 2.11 or newer is needed: {advice}")


def _compiler() -> Finding:
    advice = "on Debian and Ubuntu: apt-get install g++; on Fedora: dnf install gcc-c++"
    from sealift.build.toolchain import find_compiler

    try:
        compiler = find_compiler(os.environ)
    except SealiftError as error:
        return Finding("compiler", False, str(error).splitlines()[0], "compiling", advice)
    with tempfile.TemporaryDirectory() as directory:
        command = [compiler, "-std=c++17", "-march=x86-64-v4", "-shared", "-fPIC", "-x", "c++", "-", "-o", f"{directory}/a.so"]
        done = subprocess.run(command, input='#include <math.h>\nextern "C" double f(double x) { return sqrt(x); }', text=True, capture_output=True)
    version = subprocess.run([compiler, "-dumpfullversion"], text=True, capture_output=True).stdout.strip()
    if done.returncode:
        return Finding(
            "compiler",
            False,
            f"{compiler} {version} fails: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else ''}",
            "compiling",
            advice,
        )
    return Finding("compiler", True, f"{compiler} {version}", "compiling")


def _kernels() -> Finding:
    try:
        from sealift.build.resources import find_resources

        resources = find_resources()
    except SealiftError as error:
        return Finding("kernels", False, "libsealift_kernels.a is missing", "compiling", str(error).rsplit("help: ", 1)[-1])
    return Finding("kernels", True, str(resources.kernels_archive), "compiling")


def _bridge() -> Finding:
    from sealift.observe.bridge import BUILD_COMMAND, find_bridge, find_torch

    torch = find_torch()
    if torch is None:
        return Finding("bridge", True, "not needed: no torch", "observing PyTorch")
    bridge = find_bridge(torch)
    found = str(bridge.directory) if bridge.is_there else f"not built for torch {torch.version}"
    return Finding("bridge", bridge.is_there, found, "observing PyTorch", f"{BUILD_COMMAND} (half a minute, once for each version of torch)")


def _start() -> Finding:
    """What sealift profile and SEALIFT_OBSERVE start the recorder with."""
    found = next((p for p in map(Path, sys.path) if (p / "sealift_observe.pth").is_file()), None)
    advice = "install sealift (pip install sealift; in a checkout: make dev); one found through PYTHONPATH alone starts nothing"
    return Finding("start", found is not None, str(found / "sealift_observe.pth" if found else "no sealift_observe.pth"), "profiling", advice)


def _cmake() -> Finding:
    cmake = shutil.which("cmake")
    if cmake is None:
        return Finding("cmake", False, "not found", "C++ projects", "on Debian and Ubuntu: apt-get install cmake")
    version = subprocess.run([cmake, "--version"], text=True, capture_output=True).stdout.split("\n")[0].removeprefix("cmake version ")
    return Finding("cmake", True, version, "C++ projects")


def _temporary() -> Finding:
    directory = tempfile.gettempdir()
    free = shutil.disk_usage(directory).free
    return Finding("temporary space", free > 500e6, f"{free / 1e9:.1f} GB in {directory}", "compiling", f"free space in {directory} or set TMPDIR")
