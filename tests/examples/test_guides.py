"""The guides do what they say: their programs run in their order, their commands succeed, their C and C++ compiles and answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs/guides"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((GUIDES / page).read_text())


def run_commands(text: str, directory: Path) -> str:
    """Every line that begins with `$ `, in a shell that has this Python and its programs first."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    printed = ""
    for line in text.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                ["sh", "-c", line[2:]], cwd=directory, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            printed += done.stdout
    return printed


def follow(page: str, directory: Path) -> str:
    """What the page's programs and commands, one after the other, print."""
    names: dict[str, object] = {"__name__": "guide"}
    printed = ""
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, page, "exec"), names)
        elif language == "console":
            printed += run_commands(text, directory)
    return printed


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the guide to compiling was followed: the others begin with its package."""
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("guide")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        printed = follow("compile.md", directory)
    assert "batch" in printed
    return directory


def test_compiling_then_python(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(compiled)
    assert "words" in follow("python.md", compiled)


def test_c_and_cpp(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "classifier.pt2").symlink_to(compiled / "classifier.pt2")
    sources = {language: text for language, text in blocks("cpp.md") if language != "console"}
    with_cmake, by_hand = (text for language, text in blocks("cpp.md") if language == "console")
    (tmp_path / "CMakeLists.txt").write_text(sources["cmake"])
    (tmp_path / "classify.cpp").write_text(sources["cpp"])
    printed = run_commands(with_cmake, tmp_path)
    answer = re.search(r"^0\.\d+$", printed, re.M)
    assert answer is not None and "batch, 1 to 64" in printed and "E-INPUT-003" in printed

    (tmp_path / "classify.c").write_text(sources["c"])
    project = sources["cmake"].replace("CXX", "C").replace("classify.cpp", "classify.c").replace("cxx_std_17", "c_std_99")
    (tmp_path / "CMakeLists.txt").write_text(project)
    run_commands("$ rm -r build", tmp_path)
    assert run_commands(with_cmake, tmp_path).splitlines()[-1] == answer[0]
    assert run_commands(by_hand, tmp_path).splitlines()[-1] == answer[0]


def test_coming_from_aotinductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    follow("from_aotinductor.md", tmp_path)
    assert (tmp_path / "aoti.pt2").exists()
