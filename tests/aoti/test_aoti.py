"""sealift.aoti: AOTInductor's documented examples with only the import changed, and its signatures."""

from __future__ import annotations

import inspect
import io
import logging
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from sealift import aoti  # noqa: E402
from sealift.errors import ArgumentError, ConstantError  # noqa: E402


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(10, 16)
        self.relu = torch.nn.ReLU()
        self.fc2 = torch.nn.Linear(16, 1)
        self.sigmoid = torch.nn.Sigmoid()

    def forward(self, x: Any) -> Any:
        return self.sigmoid(self.fc2(self.relu(self.fc1(x))))


@pytest.fixture(scope="module")
def exported() -> Any:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=1024)
    return torch.export.export(Model().eval(), (torch.randn(8, 10),), dynamic_shapes={"x": {0: batch}})


def same(model: Any, exported: Any, x: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(model(x), exported.module()(x))


def test_signatures_are_torchs() -> None:
    import torch._inductor
    import torch._inductor.package
    from torch.export.pt2_archive._package import AOTICompiledModel

    def parameters(function: Any) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]

    for ours, theirs in [
        (aoti.aoti_compile_and_package, torch._inductor.aoti_compile_and_package),
        (aoti.aoti_load_package, torch._inductor.aoti_load_package),
        (aoti.aot_compile, torch._inductor.aot_compile),
        (aoti.package_aoti, torch._inductor.package.package_aoti),
        (aoti.load_package, torch._inductor.package.load_package),
        (aoti.CompiledModel.load_constants, AOTICompiledModel.load_constants),
        (aoti.CompiledModel.get_metadata, AOTICompiledModel.get_metadata),
        (aoti.CompiledModel.get_constant_fqns, AOTICompiledModel.get_constant_fqns),
    ]:
        assert parameters(ours) == parameters(theirs), ours


def test_the_documentations_example(exported: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "model.pt2")
    assert aoti.aoti_compile_and_package(exported, package_path=path) == path
    model = aoti.aoti_load_package(path)
    for batch in (8, 1, 1000):
        same(model, exported, torch.randn(batch, 10))
    assert model.get_metadata()["AOTI_DEVICE_KEY"] == "cpu"
    assert sorted(model.get_constant_fqns()) == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]


def test_the_same_package_in_torchs_loader(exported: Any, tmp_path: Path) -> None:
    from torch._inductor import aoti_load_package

    path = aoti.aoti_compile_and_package(
        exported, package_path=str(tmp_path / "model.pt2"), inductor_configs={"aot_inductor.metadata": {"who": "me"}}
    )
    model = aoti_load_package(path)
    same(model, exported, torch.randn(8, 10))
    assert model.get_metadata()["who"] == "me" == aoti.aoti_load_package(path).get_metadata()["who"]


def test_two_models_in_one_archive(exported: Any, tmp_path: Path) -> None:
    other = torch.export.export(torch.nn.Linear(3, 2), (torch.randn(4, 3),))
    options = {"aot_inductor.package": True}
    files1 = aoti.aot_compile(exported.module(), (torch.randn(8, 10),), options=options)
    files2 = aoti.aot_compile(other.module(), (torch.randn(4, 3),), options=options)
    path = str(tmp_path / "two.pt2")
    assert aoti.package_aoti(path, {"model1": files1, "model2": files2}) == path
    same(aoti.load_package(path, "model1"), exported, torch.randn(5, 10))
    same(aoti.load_package(path, "model2"), other, torch.randn(4, 3))
    from torch._inductor.package import load_package

    same(load_package(path, "model1"), exported, torch.randn(5, 10))
    same(load_package(path, "model2"), other, torch.randn(4, 3))
    assert aoti.load_package(path, "model1").model.name == "model1"


def test_buffers(exported: Any) -> None:
    buffer = io.BytesIO()
    assert aoti.aoti_compile_and_package(exported, package_path=buffer) is buffer
    same(aoti.aoti_load_package(buffer), exported, torch.randn(8, 10))


def test_no_path_makes_one(exported: Any) -> None:
    path = aoti.aoti_compile_and_package(exported)
    assert path.endswith(".pt2") and Path(path).exists()


def test_constants(exported: Any, tmp_path: Path) -> None:
    model = aoti.aoti_load_package(aoti.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.pt2")))
    torch.manual_seed(1)
    other = Model().eval()
    model.load_constants(dict(other.state_dict()), check_full_update=True)
    x = torch.randn(8, 10)
    with torch.no_grad():
        torch.testing.assert_close(model(x), other(x))
    with pytest.raises(ConstantError, match=r"fc1\.bias"):
        model.load_constants({"fc1.weight": torch.zeros(16, 10)}, check_full_update=True)


def test_options_that_do_not_apply_are_named(exported: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="sealift.aoti"):
        configs = {"freezing": True, "max_autotune": True, "triton.cudagraphs": True, "aot_inductor.package_constants_in_so": False}
        path = aoti.aoti_compile_and_package(exported, package_path=str(tmp_path / "m.pt2"), inductor_configs=configs)
        aoti.aoti_load_package(path, device_index=1)
    assert "aot_inductor.package_constants_in_so=False, max_autotune=True, triton.cudagraphs=True" in caplog.text and "freezing" not in caplog.text
    assert "device_index=1" in caplog.text


def test_wrong_arguments(exported: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="ExportedProgram"):
        aoti.aoti_compile_and_package(Model())
    with pytest.raises(ArgumentError, match=r"\.pt2"):
        aoti.aoti_compile_and_package(exported, package_path=str(tmp_path / "model.zip"))
    with pytest.raises(ArgumentError, match="aot_compile"):
        aoti.package_aoti(str(tmp_path / "m.pt2"), [str(tmp_path / "a.so")])
