"""One hook stamps every model file, and saves are joined with loads."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import sealift
from sealift import observe
from sealift.observe.metadata import STAMP

pytestmark = pytest.mark.usefixtures("torch_observed")


@pytest.fixture
def hook() -> Iterator[list[observe.FileSaved]]:
    files: list[observe.FileSaved] = []

    def producer(file: observe.FileSaved) -> dict[str, object]:
        files.append(file)
        return {"producer": "build-7", "model_id": "ranker:7"}

    observe.set_metadata_hook(producer)
    yield files
    observe.set_metadata_hook(None)


def said(path: Path) -> object:
    document = observe.read_metadata(path)
    assert document is not None and document["saved_by"]["torch"] == torch.__version__
    return document["metadata"]


def joined(path: Path, file_format: str) -> None:
    events = [e for e in observe.model_events() if e.path == str(path)]
    assert [(e.kind, e.format, e.producer, e.model_id) for e in events] == [(k, file_format, "build-7", "ranker:7") for k in ("saved", "loaded")]
    assert events[0].serialization_id == events[1].serialization_id != ""


def test_torch_save(tmp_path: Path, hook: list[observe.FileSaved]) -> None:
    path, x = tmp_path / "a.pt", torch.arange(4.0)
    torch.save({"x": x}, path)
    assert said(path) == {"producer": "build-7", "model_id": "ranker:7"}
    assert hook == [observe.FileSaved("torch.save", str(path))]
    assert torch.equal(torch.load(path, weights_only=True, mmap=True)["x"], x)
    assert [e.kind for e in observe.model_events() if e.path == str(path)] == ["saved", "loaded"]
    joined(path, "torch.save")
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)["x"], x)
    (tmp_path / "b.pt").write_bytes(buffer.getvalue())
    assert said(tmp_path / "b.pt") == said(path)


def test_torchscript(tmp_path: Path, hook: list[observe.FileSaved]) -> None:
    path = tmp_path / "a.ts"
    script = torch.jit.script(torch.nn.Linear(3, 3))
    torch.jit.save(script, path)
    assert said(path) == {"producer": "build-7", "model_id": "ranker:7"}
    assert hook[0].format == "torchscript" and hook[0].model_type.endswith("Linear")
    extra = {STAMP: ""}
    torch.jit.load(path, _extra_files=extra)
    assert b"build-7" in extra[STAMP]  # type: ignore[operator]
    joined(path, "torchscript")
    script.save(str(tmp_path / "b.ts"))
    assert said(tmp_path / "b.ts") == said(path)
    torch.jit.save(script, tmp_path / "c.ts", _extra_files={STAMP: '{"mine": 1}'})
    extra = {STAMP: ""}
    torch.jit.load(tmp_path / "c.ts", _extra_files=extra)
    assert extra[STAMP] == b'{"mine": 1}'  # a caller's own file wins


def test_torch_export(tmp_path: Path, hook: list[observe.FileSaved]) -> None:
    path = tmp_path / "a.pt2"
    program = torch.export.export(torch.nn.Linear(3, 3), (torch.ones(2, 3),))
    torch.export.save(program, path, extra_files={"mine.txt": "1"})
    assert said(path) == {"producer": "build-7", "model_id": "ranker:7"}
    assert [f.format for f in hook] == ["torch.export"]  # the archives inside are no files of their own
    extra = {"mine.txt": ""}
    torch.export.load(path, extra_files=extra)
    assert extra["mine.txt"] == "1"
    joined(path, "torch.export")


def test_sealift_packages(tmp_path: Path, hook: list[observe.FileSaved]) -> None:
    path = tmp_path / "m.pt2"
    sealift.compile(torch.nn.Linear(3, 3), path, args=(torch.ones(2, 3),))
    assert said(path) == {"producer": "build-7", "model_id": "ranker:7"}
    sealift.load(str(path))
    joined(path, "sealift")
    assert observe.snapshot().models["ranker:7"].path == str(path)


def test_a_hook_that_raises_leaves_the_file_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(file: observe.FileSaved) -> dict[str, object]:
        raise ValueError("broken")

    observe.set_metadata_hook(broken)
    with caplog.at_level(logging.ERROR, "sealift.observe"):
        for name in ("a", "b"):
            torch.save(torch.ones(2), tmp_path / name)
            assert torch.equal(torch.load(tmp_path / name), torch.ones(2)) and observe.read_metadata(tmp_path / name) is None
    assert len(caplog.records) == 1


def test_what_json_cannot_say_is_a_hook_that_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    observe.set_metadata_hook(lambda file: {"x": object()})
    with caplog.at_level(logging.ERROR, "sealift.observe"):
        torch.save(torch.ones(2), tmp_path / "a")
    assert len(caplog.records) == 1 and torch.load(tmp_path / "a").sum() == 2


def test_a_hook_that_writes_a_model_file_itself(tmp_path: Path) -> None:
    asked: list[str] = []

    def copying(file: observe.FileSaved) -> dict[str, object]:
        asked.append(file.path)
        torch.save(torch.ones(1), tmp_path / "of the hook")
        return {"producer": "p"}

    observe.set_metadata_hook(copying)
    try:
        for name in ("a", "b"):
            torch.save(torch.ones(2), tmp_path / name)
    finally:
        observe.set_metadata_hook(None)
    assert asked == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert observe.read_metadata(tmp_path / "a") is not None and observe.read_metadata(tmp_path / "of the hook") is None


def test_describing_a_model() -> None:
    observe.describe_model("m:1", name="ranker", version="1")
    observe.describe_model("m:1", digest="sha256:00")
    assert observe.snapshot().models["m:1"] == observe.ModelInfo("ranker", "1", "sha256:00")
