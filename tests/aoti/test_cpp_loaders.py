"""C++ programs over one package: sealift.h without libtorch, and the program of AOTInductor's documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import sealift  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1), torch.nn.Sigmoid()).eval()
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.export.export(model, (torch.randn(8, 10),), dynamic_shapes=({0: batch},))
    with torch.no_grad():
        return sealift.compile(program, tmp_path_factory.mktemp("mlp") / "model.pt2"), float(model(torch.ones(1, 10)))


def build(source: Path, where: Path, prefix: str, target: str) -> Path:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    configure = ["cmake", "-S", str(source), "-B", str(where), "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}"]
    for command in (configure, ["cmake", "--build", str(where)]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return where / target


def test_cpp_without_libtorch(package: tuple[Path, Any], tmp_path: Path) -> None:
    program = build(EXAMPLES / "cpp", tmp_path, sealift.cmake_prefix_path, "run_mlp")
    for size in ("8", "1"):
        done = subprocess.run([str(program), str(package[0]), size], capture_output=True, text=True, check=True)
        assert float(done.stdout.split()[0]) == pytest.approx(package[1], abs=1e-6)
    assert "torch" not in subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    refused = subprocess.run([str(program), str(package[0]), "1025"], capture_output=True, text=True)
    assert refused.returncode == 1 and "E-INPUT-003" in refused.stderr


# PyTorch's own CMake package refuses to configure where torch was built for CUDA and the toolkit is missing.
@pytest.mark.skipif(torch.version.cuda is not None and shutil.which("nvcc") is None, reason="this torch asks CMake for the CUDA toolkit")
def test_the_documentations_program(package: tuple[Path, Any], tmp_path: Path) -> None:
    program = build(EXAMPLES / "cpp_torch", tmp_path, torch.utils.cmake_prefix_path, "aoti_example")
    done = subprocess.run([str(program), str(package[0])], capture_output=True, text=True, check=True)
    numbers = [float(n) for n in re.findall(r"^\s*(\d\.\d+)", done.stdout, re.M)]
    assert len(numbers) == 9 and numbers == pytest.approx([package[1]] * 9, abs=1e-4), done.stdout
