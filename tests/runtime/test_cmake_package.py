"""The installed CMake package, as a user's project finds it: find_package(Sealift) and sealift_add_model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(consumer CXX)
find_package(Sealift 0.1 REQUIRED)
sealift_add_model(mlp models/mlp.pt2 SCRIPT make.py ARGS "{package}" DEPENDS data.txt)
add_executable(app app.cpp)
target_link_libraries(app PRIVATE Sealift::sealift)
add_dependencies(app mlp)
"""

SCRIPT = """
import shutil, sys
shutil.copy(sys.argv[2], sys.argv[1])
"""

PROGRAM = """
#include <sealift.hpp>
int main(int, char **argv) {
  sealift::Context context{sealift::Model(argv[1])};
  std::vector<float> x(4, 1), y(3);
  context.run_into({sealift::view(x, {1, 4})}, {sealift::view(y, {1, 3})});
  return y[0] == 20 ? 0 : 1;
}
"""


def test_a_project_builds_and_runs(build: Path, packages: Path, tmp_path: Path) -> None:
    if os.environ.get("SEALIFT_RUNTIME_BUILD"):
        pytest.skip("a sanitizer's build is not installed")

    def run(*command: object) -> str:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(package=packages / "linear.pt2"))
    (tmp_path / "make.py").write_text(SCRIPT)
    (tmp_path / "app.cpp").write_text(PROGRAM)
    (tmp_path / "data.txt").write_text("1")
    run("cmake", "--install", build, "--prefix", tmp_path / "installed")
    run("cmake", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    assert "Compiling the model package mlp.pt2" in run("cmake", "--build", "out")
    run("out/app", "out/models/mlp.pt2")
    assert os.listdir(tmp_path / "out" / "models") == ["mlp.pt2"]
    assert "Compiling" not in run("cmake", "--build", "out")
    stamp = (tmp_path / "out" / "models" / "mlp.pt2").stat().st_mtime + 5
    os.utime(tmp_path / "data.txt", (stamp, stamp))
    assert "Compiling" in run("cmake", "--build", "out")
