"""The wheel in an environment of its own: no torch, no compiler, NumPy alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sealift.package.write import PackagedModel, write_package

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import json, sys
import numpy as np
import sealift
model = sealift.load(sys.argv[1])
y, nothing = model(np.ones((2, 4), np.float32))
assert not {"torch", "sympy", "rich"} & set(sys.modules), sorted(sys.modules)
print(json.dumps({"y": y.tolist(), "file": sealift.__file__, "cmake": sealift.cmake_prefix_path}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("sealift-*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A new virtual environment with the wheel; this one's NumPy is lent to it, so that the test needs no network."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
    python = home / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    lent = home / "lent"
    lent.mkdir()
    site = Path(np.__file__).parents[1]
    for name in site.iterdir():
        if name.name.split("-")[0] in ("numpy", "numpy.libs"):
            (lent / name.name).symlink_to(name)
    return python, {"PATH": "", "PYTHONPATH": str(lent), "HOME": str(home)}


def test_the_wheel_holds_what_it_should(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    for name in (
        "sealift/lib/libsealift.so",
        "sealift/lib/libsealift_kernels.a",
        "sealift/lib/cmake/Sealift/SealiftConfig.cmake",
        "sealift/include/sealift.h",
        "sealift/include/sealift.hpp",
        "sealift/include/sealift_model.h",
        "sealift/include/dlpack/dlpack.h",
        "sealift/contracts/PACKAGE.md",
        "sealift/docs/errors/E-INPUT-003.md",
        "sealift/fleet/dashboard/static/dashboard.js",
        "sealift/fleet/dashboard/static/style.css",
        "sealift/fleet/dashboard/templates/base.html",
        "sealift/include/sealift_observe.h",
        "sealift/share/torch_bridge/bridge.cpp",
        "sealift/py.typed",
        "sealift/_runtime.pyi",
        "sealift_observe.pth",
    ):
        assert name in names
    assert "License-Expression: Apache-2.0" in metadata
    requires = [line for line in metadata.split("\n") if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert len(requires) == 1 and "numpy" in requires[0]
    assert os.path.getsize(wheel) < 10e6


def test_it_runs_a_package_with_numpy_alone(environment: tuple[Path, dict[str, str]], stub_library: Path, tmp_path: Path) -> None:
    python, variables = environment
    scale, bias = np.full(4, 2, np.float32), np.full(4, 0.5, np.float32)
    model = PackagedModel("model", stub_library, [(0, memoryview(scale)), (64, memoryview(bias))], weights_bytes=128)
    package = write_package(tmp_path / "stub.pt2", [model])
    done = subprocess.run([str(python), "-c", PROGRAM, str(package)], env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["y"] == [[2.5] * 4] * 2 and str(python.parents[1]) in answer["file"] and answer["cmake"]
    command = [str(python.parent / "sealift"), "run", str(package), "--random"]
    assert "float32" in subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


def test_what_it_cannot_do_it_says(environment: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    python, variables = environment
    for command, text in [
        (["compile", "model.py:f"], "[E-TOOL-003]"),
        (["explain", "E-TOOL-001"], "apt-get install g++"),
        (["doctor"], "sealift[compile]"),
    ]:
        done = subprocess.run([str(python), "-m", "sealift", *command], env=variables, cwd=tmp_path, capture_output=True, text=True)
        assert text in done.stdout + done.stderr and "Traceback" not in done.stderr, done.stderr


COMPILE = """
import sys, torch, sealift
program = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),))
path = sealift.compile(program, sys.argv[1], options=sealift.Options(isas=("baseline",), cache_dir=""))
print(sealift.__file__, sealift.check(path, program))
"""


def test_with_torch_it_compiles(environment: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """The installed package's own headers and archives: nothing of the checkout."""
    pytest.importorskip("torch")
    python, variables = environment
    lent = tmp_path / "lent"
    lent.mkdir()
    for entry in Path(np.__file__).parents[1].iterdir():
        if "sealift" not in entry.name and entry.suffix != ".pth":
            (lent / entry.name).symlink_to(entry)
    variables = {**variables, "PYTHONPATH": str(lent), "PATH": os.environ["PATH"]}
    done = subprocess.run([str(python), "-c", COMPILE, str(tmp_path / "m.pt2")], env=variables, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(python.parents[1]) in done.stdout and "ok" in done.stdout


OBSERVE = """
import torch
from sealift import observe
observe.install_torch()
observe.start(1, 1, budget=0, burst_duty_cycle=0)
torch.sin(torch.ones(2))
print({s.operator: s.count for s in observe.stop().series}["aten::sin"])
"""


def test_a_bridge_in_the_wheel_needs_no_compiler(environment: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """As `make wheel` puts it there."""
    pytest.importorskip("torch")
    from sealift.observe.bridge import find_bridge, find_torch

    torch = find_torch()
    assert torch is not None
    built = find_bridge(torch)
    if not built.is_there:
        pytest.skip("no bridge is built: sealift bridge build")
    python, variables = environment
    package = next(python.parents[1].glob("lib/python*/site-packages/sealift"))
    shutil.copytree(built.directory, package / "lib" / "torch_bridge" / built.directory.name)
    lent = tmp_path / "lent"
    lent.mkdir()
    for entry in Path(np.__file__).parents[1].iterdir():
        if "sealift" not in entry.name and entry.suffix != ".pth":
            (lent / entry.name).symlink_to(entry)
    done = subprocess.run([str(python), "-c", OBSERVE], env={**variables, "PYTHONPATH": str(lent)}, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
