"""Intermediate values: a package run kernel by kernel, the first kernel that is off, the first NaN, and what SEALIFT_DEBUG turns on."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sealift  # noqa: E402
from sealift import pipeline  # noqa: E402
from sealift.bisect_kernels import bisect_kernels  # noqa: E402
from sealift.cli.main import main  # noqa: E402
from sealift.diag.steps import Steps  # noqa: E402
from sealift.environment import read_debug, warn_of_unknown_names  # noqa: E402
from sealift.errors import ArgumentError, IndexOutOfRange, ShapeError  # noqa: E402
from sealift.intermediate_values import inspect_run  # noqa: E402
from sealift.ir.loop import expr as ex  # noqa: E402
from sealift.ir.loop.prim import Prim  # noqa: E402
from sealift.ir.loop.types import Loops, Map  # noqa: E402
from sealift.recorded_run import open_recorded  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
BASELINE = sealift.Options(isas=("baseline",))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.up = torch.nn.Linear(32, 64)
        self.down = torch.nn.Linear(64, 32)

    def forward(self, ids: Any, scale: Any) -> Any:
        x = self.embed(ids)
        h = self.norm(x)
        y = x + self.down(torch.nn.functional.gelu(self.up(h)))
        z = torch.softmax(y * scale, -1)
        return {"z": z, "best": z.argmax(-1), "mask": y[..., 0] > 0}


IDS = torch.randint(0, 50, (3, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def program() -> Any:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(Block().eval(), (IDS,), {"scale": torch.tensor([0.7])}, dynamic_shapes={"ids": {0: batch}, "scale": None})


def compile_broken(program: Any, path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str) -> str:
    """Compiles with a pass more, which makes the last stage of the kernel `breaks` stands in wrong by a thousandth. The kernel's name."""
    sound = pipeline.optimize
    broken: list[str] = []

    def optimize(loops: Loops, s: Steps) -> Loops:
        kernels = []
        for i, kernel in enumerate(sound(loops, s).kernels):
            stage = kernel.stages[-1]
            if breaks in kernel.name and not broken:
                assert isinstance(stage, Map)
                wrong = replace(stage, value=ex.apply(Prim.MUL, stage.value, ex.const(1.001, stage.value.dtype)))
                kernel = replace(kernel, stages=(*kernel.stages[:-1], wrong))
                broken.append(f"k{i}_{kernel.name}")
            kernels.append(kernel)
        return replace(sound(loops, s), kernels=tuple(kernels))

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "optimize", optimize)
        sealift.compile(program, path, options=BASELINE)
    (name,) = broken
    return name


def test_a_recorded_run_is_the_same_run(program: Any, tmp_path: Path) -> None:
    path = sealift.compile(program, tmp_path / "m.pt2", options=BASELINE)
    model, recorded = sealift.load(path), open_recorded(path)
    seen: list[str] = []
    for ids in (IDS, IDS[:1], IDS.repeat(4, 1)):
        expected = model(ids.numpy(), scale=np.array([0.7], np.float32))
        got = recorded.run([ids.numpy(), np.array([0.7], np.float32)], lambda kernel, place, array: seen.append(kernel.name))
        for mine, theirs in zip(got, model.flatten_outputs(expected), strict=True):
            assert mine is not None and mine.tobytes() == theirs.tobytes() and mine.shape == theirs.shape
    assert set(seen) == {k.name for k in model.kernels}
    with pytest.raises(ShapeError, match=r"size 65, batch is 1\.\.64"):
        recorded.run([np.zeros((65, 7), np.int64), np.ones(1, np.float32)], lambda *_: None)
    with pytest.raises(IndexOutOfRange, match=r"kernel k0_\w+: value 50, bound 50"):
        recorded.run([np.full((1, 7), 50), np.ones(1, np.float32)], lambda *_: None)


def test_sound_kernels_are_not_blamed(program: Any, tmp_path: Path) -> None:
    path = sealift.compile(program, tmp_path / "m.pt2")
    report = bisect_kernels(path, program)
    assert report and {k.result.name for k in report.kernels} >= {"layer_norm", "gelu", "softmax", "argmax"}
    assert bisect_kernels(path, program, (IDS[:2],), {"scale": torch.tensor([-3.0])}, kernels="*gelu*").kernels[0].kernel == "k1_linear_gelu"


@pytest.mark.parametrize(("breaks", "line"), [("layer_norm", "h = self.norm(x)"), ("softmax", "z = torch.softmax(y * scale, -1)")])
def test_the_broken_kernel_is_named(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str, line: str) -> None:
    path = tmp_path / "m.pt2"
    name = compile_broken(program, path, monkeypatch, breaks)
    report = bisect_kernels(path, program)
    first = report.first
    assert first is not None and not report and first.kernel == name
    assert [k.kernel for k in report.kernels if not k.ok] == [name]  # what follows is judged on what it was given
    assert any(line in place and "test_looking_inside.py" in place for place in first.origin)
    at = first.result.worst
    assert first.result.got == pytest.approx(first.result.expected * 1.001) and len(at) == 3
    text = str(report)
    assert text.startswith(f"{name} is the first kernel that is off") and f"DIFFERS at {list(at)}" in text and "aten." in text


def test_bisect_on_the_command_line(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.export.save(program, tmp_path / "program.pt2")
    name = compile_broken(program, tmp_path / "m.pt2", monkeypatch, "layer_norm")
    command = ["check", str(tmp_path / "m.pt2"), str(tmp_path / "program.pt2"), "--bisect"]
    assert main(command, {}) == 1
    assert f"{name} is the first kernel that is off" in capsys.readouterr().out
    assert main([*command, "--kernels", "*gelu*", "--all", "--json"], {}) == 0
    assert [k["kernel"] for k in json.loads(capsys.readouterr().out)["kernels"]] == ["k1_linear_gelu"]


def test_bisect_refuses_another_program(program: Any, tmp_path: Path) -> None:
    path = sealift.compile(program, tmp_path / "m.pt2", options=BASELINE)
    other = torch.export.export(torch.nn.Linear(3, 3), (torch.zeros(1, 3),))
    with pytest.raises(ArgumentError, match="compiled from"):
        bisect_kernels(path, other)


class Logarithm(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        hidden = x.cumsum(0)
        low = torch.log(hidden.cumsum(0))
        return low.cumsum(0)


def test_the_first_nan_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sealift.compile(torch.export.export(Logarithm(), (torch.ones(4),)), tmp_path / "m.pt2", options=BASELINE)
    recorded = open_recorded(path)
    assert inspect_run(recorded, [np.ones(4, np.float32)]).culprit is None
    found = inspect_run(recorded, [np.array([1, -5, 1, 1], np.float32)])
    assert found.culprit is not None and any("torch.log" in str(p) or "test_looking_inside" in str(p) for p in found.culprit.origin)
    assert "aten.log.default" in found.verdict and "NaN" in found.verdict and "cumsum" in found.table
    assert inspect_run(recorded, [np.array([np.nan, 1, 1, 1], np.float32)]).verdict == "NaN or infinity in input 0 already"
    np.save(tmp_path / "x.npy", np.array([1, -5, 1, 1], np.float32))
    assert main(["run", str(path), "--input", str(tmp_path / "x.npy"), "--nan", "--values", "*cumsum*"], {}) == 1
    out = capsys.readouterr().out
    assert "is the first to make a NaN" in out and out.startswith("kernel")


# ---- SEALIFT_DEBUG ----------------------------------------------------------------------------------------------------------------


def test_debug_words() -> None:
    assert not read_debug({}).looks_inside
    debug = read_debug({"SEALIFT_DEBUG": "time, dump=out,values=*gelu*"})
    assert debug.time and debug.dump_dir == Path("out") and debug.values == "*gelu*" and not debug.nan
    assert read_debug({"SEALIFT_DEBUG": "1"}).nan
    with pytest.raises(ArgumentError, match=r"'tiem' is not known; help: any of time"):
        read_debug({"SEALIFT_DEBUG": "tiem"})


def test_debug_while_compiling(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SEALIFT_DEBUG", f"time,dump={tmp_path / 'dump'},symbols")
    path = sealift.compile(program, tmp_path / "m.pt2", options=BASELINE)
    dumped = {p.name.partition("_")[2] for p in (tmp_path / "dump").iterdir()}
    assert {"import.graph", "lower.loops", "plan.plan", "emit.cpp"} <= dumped
    assert "k1_linear_gelu" in (tmp_path / "dump/src/baseline_run.cpp").read_text() or "linear_gelu" in (tmp_path / "dump/src/run.cpp").read_text()
    assert "lower" in capsys.readouterr().err
    assert b".debug_info" in path.read_bytes()


def test_debug_while_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    path = sealift.compile(torch.export.export(Logarithm(), (torch.ones(4),)), tmp_path / "m.pt2", options=BASELINE)
    expected = sealift.load(path)(torch.ones(4))
    monkeypatch.setenv("SEALIFT_DEBUG", "nan,values=*cumsum*")
    model = sealift.load(path)
    with caplog.at_level(logging.WARNING, "sealift.debug"):
        assert torch.equal(model(torch.ones(4)), expected)
        assert "cumsum" in caplog.text and "is the first" not in caplog.text
        model(np.array([1, -5, 1, 1], np.float32))
    assert "is the first to make a NaN" in caplog.text


def test_unknown_names_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="SEALIFT_DEBUGG means nothing to sealift; did you mean SEALIFT_DEBUG"):
        warn_of_unknown_names({"SEALIFT_DEBUGG": "1", "SEALIFT_LOG": "info", "PATH": ""})
