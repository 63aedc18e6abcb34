"""The guide's snippets and the examples run, and say what they should."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sealift

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "large_scale"


def run(*command: object, folder: Path = ROOT, timeout: float = 120) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder, timeout=timeout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_guide(run_python: Callable[..., str], tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "observe.md").read_text(), re.S)
    assert len(snippets) == 7
    out = run_python(f"import os; os.chdir({str(tmp_path)!r})\n" + "\n".join(snippets))
    assert "uses my_service.rerank" in out and "'producer': 'trainer'" in out


@pytest.mark.usefixtures("bridge")
def test_sampled_callback() -> None:
    out = run(sys.executable, EXAMPLES / "sampled_callback.py")
    assert 2000 < int(out.split("seen:")[1]) < 6000
    assert "largest input" in out


@pytest.mark.usefixtures("bridge")
def test_debug_info() -> None:
    out = run(sys.executable, "-W", "ignore", EXAMPLES / "debug_info.py")
    assert re.sub(r" +", " ", out) == "forked: 1\nbackward: True\npool: 1\n"


@pytest.mark.usefixtures("bridge")
def test_api_usage() -> None:
    out = run(sys.executable, EXAMPLES / "api_usage.py").splitlines()
    assert "uses torch.python.import" in out and "uses python.optimizer" in out and out.count("uses my_service.training") == 1


@pytest.mark.usefixtures("bridge")
def test_metadata() -> None:
    out = run(sys.executable, "-W", "ignore", EXAMPLES / "metadata.py")
    assert "in the TorchScript archive: True" in out and "saved and loaded are one file: True" in out and out.count("'build': '2026-11-29.3'") == 2


@pytest.mark.slow
def test_cpp_program_without_python(tmp_path: Path) -> None:
    import torch

    prefix = f"{sealift.cmake_prefix_path};{torch.utils.cmake_prefix_path}"
    run("cmake", "-S", EXAMPLES / "cpp", "-B", tmp_path / "out", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path / "out", "--parallel", "2", timeout=900)
    out = run(tmp_path / "out" / "large_scale_example", tmp_path / "model.ts")
    assert "uses my_service.start" in out and re.search(r"aten::mm +10 calls, .* model ranker:7", out) and "stamps __torch__.Model" in out
    extra = {"producer_info.json": ""}
    torch.jit.load(tmp_path / "model.ts", _extra_files=extra)
    assert b"trainer" in extra["producer_info.json"]  # type: ignore[operator]


@pytest.mark.slow
def test_the_overhead_page_is_made(tmp_path: Path, bridge: Path) -> None:
    page = tmp_path / "page.md"
    run(sys.executable, ROOT / "benchmarks/observe_overhead.py", "--rounds", 3, "--seconds", 1, "--turns", 1, "--write", page, timeout=600)
    assert len(re.findall(r"^\| MiniLM|^\| training", page.read_text(), re.M)) == 3 + 3 * 10  # each model, and its ten operators
