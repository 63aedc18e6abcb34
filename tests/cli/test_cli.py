"""The command line, on the stub package and (where torch is there) on real ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sealift.cli.main import main
from sealift.package.write import PackagedModel, write_package

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def package(stub_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    scale, bias = np.full(4, 2, np.float32), np.full(4, 0.5, np.float32)
    manifest = {
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["batch", "4"]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["batch", "4"]}, None],
        "sizes": {"batch": [1, 1024]},
        "kernels": [{"id": 0, "name": "k0_affine", "ops": ["aten.mul", "aten.add"], "origin": ["model.py:3 affine"]}],
    }
    model = PackagedModel("model", stub_library, [(0, memoryview(scale)), (64, memoryview(bias))], manifest, weights_bytes=128)
    return write_package(tmp_path_factory.mktemp("stub") / "stub.pt2", [model], {"origin": "a test"})


def sealift(capsys: pytest.CaptureFixture[str], *argv: Any, code: int = 0) -> str:
    assert main([str(a) for a in argv], {}) == code
    return capsys.readouterr().out


def test_inspect(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = sealift(capsys, "inspect", package, "--kernels", "--members")
    for expected in ("f32[batch, 4]", "batch 1..1024", "model.py:3 affine", "origin = a test", "sealift/seal"):
        assert expected in text
    assert json.loads(sealift(capsys, "inspect", package, "--json"))["models"][0]["name"] == "model"


def test_verify(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "as they were sealed" in sealift(capsys, "verify", package)
    damaged = bytearray(package.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "d.pt2").write_bytes(damaged)
    assert main(["verify", str(tmp_path / "d.pt2")], {}) == 1
    assert re.search(r"\[E-PACKAGE-00[12]\]", capsys.readouterr().err)


def test_run(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(sealift(capsys, "run", package, "--random", "--size", "batch=3", "--json", "--output", tmp_path / "y.npz"))
    assert answer["outputs"]["y"]["shape"] == [3, 4] and answer["outputs"]["nothing"] is None
    assert np.load(tmp_path / "y.npz")["y"].shape == (3, 4)
    np.savez(tmp_path / "x.npz", x=np.ones((1, 4), np.float32))
    assert "2.5 2.5 2.5 2.5" in sealift(capsys, "run", package, "--input", tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.zeros((1, 4), np.float32))
    assert "0.5 0.5 0.5 0.5" in sealift(capsys, "run", package, "--input", tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "--random"),
        (["--random", "--size", "rows=3"], "no size is called rows"),
        (["--random", "--size", "batch"], "NAME=N"),
        (["--random", "--size", "batch=2000"], "E-INPUT-003"),
        (["--random", "--size", "batch=2000000000000"], "E-INPUT-003"),
        (["--random", "--output", "/nonexistent/y.npz"], "E-FILE-001"),
        (["--input", "absent.npz"], "E-FILE-001"),
        (["--random", "--isa", "avx2"], "E-ISA-001"),
        (["--random", "--model", "decoder"], "E-PACKAGE-004"),
    ],
    ids=str,
)
def test_errors_name_the_way_out(package: Path, options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(package), *options], {}) == 1
    captured = capsys.readouterr()
    assert text in captured.err and "help" in captured.err and "Traceback" not in captured.err and not captured.out


def test_json_errors(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(sealift(capsys, "run", package, "--json", code=1))["error"]["code"] == "E-ARG-001"


def test_a_full_disk_behind_stdout(package: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "sealift", "inspect", str(package)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("[E-FILE-002]") and "Traceback" not in done.stderr


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf"])
def test_bench_measures_for_a_while(seconds: str, package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(package), "--seconds", seconds], {}) == 1
    assert "E-ARG-001" in capsys.readouterr().err


def test_bench(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(sealift(capsys, "bench", package, "--seconds", "0.05", "--json"))
    assert 0 < answer["median_s"] < 1 and answer["p10_s"] <= answer["median_s"] <= answer["p90_s"]


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(sealift(capsys, "doctor", "--json"))
    assert {f["what"] for f in answer["findings"]} >= {"runtime", "torch", "compiler", "kernels", "start", "cmake"}


def test_doctor_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "apt-get install g++" in sealift(capsys, "doctor")


def test_interrupts_and_logging(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("sealift.cli.verify.run", interrupt)
    assert main(["verify", str(package)], {}) == 130
    assert main(["inspect", str(package)], {"SEALIFT_LOG": "loud"}) == 2


# ---- error pages ------------------------------------------------------------------------------------------------------------------


def codes_in_the_sources() -> set[str]:
    folders = [ROOT / name for name in ("sealift", "contracts", "runtime", "kernels", "bindings")]
    files = [f for folder in folders for f in folder.rglob("*") if f.suffix in (".py", ".h", ".hpp", ".cpp", ".c")]
    return {code for f in files for code in re.findall(r"\bE-[A-Z]+-\d{3}\b", f.read_text(errors="replace"))}


def test_every_code_has_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    pages = {p.stem for p in (ROOT / "docs/errors").glob("E-*.md")}
    assert codes_in_the_sources() == pages
    for code in sorted(pages):
        assert f"# {code}: " in sealift(capsys, "explain", code)
    assert "E-OP-001  no lowering for an operator" in sealift(capsys, "explain")
    assert main(["explain", "E-NONE-001"], {}) == 1


# ---- with torch -------------------------------------------------------------------------------------------------------------------

SCRIPT = """
import torch
class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
    def forward(self, x):
        return torch.relu(self.linear(x))
class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x)
def small():
    torch.manual_seed(0)
    return Small(), (torch.randn(2, 4),), None, {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
def both():
    return {"a": small(), "b": small()}
def odd():
    return Odd(), (torch.randn(3, 3),)
def wrong():
    return 3
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("script") / "model.py"
    path.write_text(SCRIPT)
    return path


def test_compile_check_and_run(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "small.pt2"
    answer = json.loads(sealift(capsys, "compile", f"{script}:small", "-o", target, "--isa", "baseline", "--metadata", "who=me", "--json"))
    assert answer["path"] == str(target) and answer["bytes"] == target.stat().st_size
    assert "ok" in sealift(capsys, "check", target, f"{script}:small")
    assert "who = me" in sealift(capsys, "inspect", target)
    sealift(capsys, "run", target, "--random", "--size", "batch=1")
    assert main(["compile", str(target)], {}) == 1
    assert "compiled package already" in capsys.readouterr().err


def test_a_script_may_import_its_neighbours(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "its_neighbour.py").write_text(script.read_text())
    (tmp_path / "main.py").write_text("def model():\n    import its_neighbour\n    return its_neighbour.small()\n")
    sealift(capsys, "ops", "--missing", f"{tmp_path / 'main.py'}:model")


def test_compile_two_models(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealift(capsys, "compile", f"{script}:both", "-o", tmp_path / "both.pt2", "--isa", "baseline")
    assert main(["run", str(tmp_path / "both.pt2"), "--random"], {}) == 1
    assert "'a', 'b'" in capsys.readouterr().err
    sealift(capsys, "run", tmp_path / "both.pt2", "--random", "--model", "b")


def test_check_says_where_they_differ(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.py"
    other.write_text(SCRIPT.replace("manual_seed(0)", "manual_seed(1)"))
    sealift(capsys, "compile", f"{script}:small", "-o", tmp_path / "small.pt2", "--isa", "baseline")
    assert "DIFFERS at [" in sealift(capsys, "check", tmp_path / "small.pt2", f"{other}:small", code=1)


@pytest.mark.parametrize(("source", "text"), [("absent.pt2", "E-FILE-001"), ("wrong", "E-ARG-001"), ("none", "no function"), ("odd", "E-OP-001")])
def test_compile_errors(script: Path, tmp_path: Path, source: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    full = source if source.endswith(".pt2") else f"{script}:{source}"
    assert main(["compile", full, "-o", str(tmp_path / "m.pt2")], {}) == 1
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_steps_can_be_looked_at(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", f"{script}:small", "-o", tmp_path / "m.pt2", "--isa", "baseline"]
    assert "batch" in sealift(capsys, *command, "--stop-after", "lower")
    assert not (tmp_path / "m.pt2").exists()
    sealift(capsys, *command, "--dump", tmp_path / "dump")
    assert any(f.suffix == ".graph" for f in (tmp_path / "dump").iterdir())
    assert main([str(a) for a in (*command, "--skip", "nothing")], {}) == 1
    assert "no step called nothing" in capsys.readouterr().err


def test_ops(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "aten.relu.default" in sealift(capsys, "ops")
    assert "linalg_eig" in sealift(capsys, "ops", "--missing", f"{script}:odd", code=1)
    assert "nothing is missing" in sealift(capsys, "ops", "--missing", f"{script}:small")
