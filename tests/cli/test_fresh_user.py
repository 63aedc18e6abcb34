"""What people try first, and what they are told."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sealift  # noqa: E402
from sealift.cli.main import main  # noqa: E402
from sealift.errors import ArgumentError, DeviceError, InputTypeError, PackageError  # noqa: E402


class Double(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = torch.export.export(Double(), (torch.ones(2, 3),))
    return sealift.compile(program, tmp_path_factory.mktemp("fresh") / "m.pt2", options=sealift.Options(isas=("baseline",)))


# ---- the command line -------------------------------------------------------------------------------------------------------------

SCRIPT = "raise SystemExit('not to be run to be listed')\ndef small(): ...\ndef large(seed=0): ...\ndef _hidden(): ...\ndef needs(x): ...\n"


def told(capsys: pytest.CaptureFixture[str], *argv: Any) -> str:
    assert main([str(a) for a in argv], {}) == 1
    return capsys.readouterr().err


def test_a_script_without_a_function_lists_its_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "model.py"
    script.write_text(SCRIPT)
    text = told(capsys, "compile", script)
    assert f"which function? help: choose one of {script}:small, {script}:large" in text and "hidden" not in text and "needs" not in text
    script.write_text("def only(): ...\n")
    assert f"{script}:only is its only function without arguments" in told(capsys, "compile", script)
    assert f"has no function 'onyl'; help: {script}:only" in told(capsys, "compile", f"{script}:onyl")
    script.write_text("x = 1\n")
    assert "it has no function without arguments; write `def model()" in told(capsys, "compile", script)
    script.write_text("def broken(:\n")
    assert "cannot be read" in told(capsys, "compile", script)
    assert "cannot be read" in told(capsys, "compile", tmp_path / "absent.py")


def test_explain_names_the_nearest_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the nearest: E-INPUT-00" in told(capsys, "explain", "E-INPUT-03")
    assert "the nearest: E-EXPORT-00" in told(capsys, "explain", "e-exprt-004")
    assert "nearest" not in told(capsys, "explain", "???")


# ---- loading ----------------------------------------------------------------------------------------------------------------------


def test_bytes_and_files_load(package: Path) -> None:
    x = np.ones((2, 3), np.float32)
    data = package.read_bytes()
    with package.open("rb") as file:
        models = [sealift.load(data), sealift.load(bytearray(data)), sealift.load(io.BytesIO(data)), sealift.load(file)]
    for model in models:
        assert (model(x) == 2).all() and model.manifest["models"][0]["name"] == "model"


@pytest.mark.parametrize("source", [3, None, io.StringIO("text"), ["m.pt2"]], ids=lambda v: type(v).__name__)
def test_what_cannot_be_loaded_is_refused(source: Any) -> None:
    with pytest.raises(ArgumentError, match=r"path is a \w+; help: a path, the package's bytes, or a file"):
        sealift.load(source)


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(PackageError, match="E-PACKAGE-001"):
        sealift.load(b"no package")


# ---- inputs -----------------------------------------------------------------------------------------------------------------------

ODD = {
    "sparse": (lambda x: x.to_sparse(), "to_dense"),
    "csr": (lambda x: x.to_sparse_csr(), "to_dense"),
    "quantized": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "dequantize"),
    "negated": (torch._neg_view, "resolve_neg"),
    "masked": (lambda x: np.ma.masked_array(x.numpy(), mask=x.numpy() > 0), "filled"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_that_are_no_plain_memory_are_refused(package: Path, kind: str) -> None:
    make, way_out = ODD[kind]
    with pytest.raises(InputTypeError, match=rf"\[E-INPUT-006\] input 'x' is .*help: .*{way_out}") as refused:
        sealift.load(package)(make(torch.ones(2, 3)))
    assert len(str(refused.value).splitlines()) == 1


def test_a_meta_tensor_has_no_values(package: Path) -> None:
    with pytest.raises(DeviceError, match=r"\[E-INPUT-004\] input 'x' is on meta; help: a meta tensor has no values"):
        sealift.load(package)(torch.ones(2, 3, device="meta"))


def test_plain_subclasses_and_views_still_run(package: Path) -> None:
    model = sealift.load(package)
    assert (model(np.asmatrix(np.ones((2, 3), np.float32))) == 2).all()
    assert torch.equal(model(torch._neg_view(torch.ones(2, 3)).resolve_neg()), torch.full((2, 3), -2.0))
    assert torch.equal(model(torch.nn.Parameter(torch.ones(2, 3))), torch.full((2, 3), 2.0))


# ---- exporting --------------------------------------------------------------------------------------------------------------------


class Sixes(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.view(-1, 6).sum(0)


@pytest.mark.parametrize(("factor", "needed", "top"), [(2, 3, 16), (3, 2, 25), (4, 3, 16)])
def test_the_suggested_factor_is_the_least(factor: int, needed: int, top: int, tmp_path: Path) -> None:
    half = torch.export.Dim("half", min=1, max=50)
    program = torch.export.export(Sixes(), (torch.ones(12 * factor),), dynamic_shapes={"x": {0: factor * half}})
    with pytest.raises(sealift.CompileError, match=rf"make half a multiple of {needed}: write {needed}\*Dim\('half', min=1, max={top}\)"):
        sealift.compile(program, tmp_path / "m.pt2")
    whole = torch.export.Dim("half", min=1, max=top)
    program = torch.export.export(Sixes(), (torch.ones(12 * factor),), dynamic_shapes={"x": {0: factor * needed * whole}})
    model = sealift.load(sealift.compile(program, tmp_path / "m.pt2", options=sealift.Options(isas=("baseline",))))
    assert model(np.ones(2 * factor * needed, np.float32)).sum() == 2 * factor * needed
