"""What torch offers no hook for: Python functions of its own, wrapped once. Those that write and read model files; and those that compute with
fake tensors, whose operators are no work of the program."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
import torch.export
import torch.jit
import torch.serialization
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from sealift import _runtime
from sealift.observe import metadata

_saving = threading.local()  # .path, .inner: a save that another one makes on its way gets no stamp of its own
_is_installed = _is_quiet = False


def quiet_fake_tensors() -> None:
    """The native filter sees a fake operator that the program calls, but not what the mode itself calls for it: copies, meta kernels,
    decompositions, with the mode switched off."""
    global _is_quiet
    if _is_quiet:
        return
    _is_quiet = True
    FakeTensorMode.__torch_dispatch__ = _quiet(FakeTensorMode.__torch_dispatch__)
    FakeTensorMode.from_tensor = _quiet(FakeTensorMode.from_tensor)
    dispatch = FakeTensor.__dict__["__torch_dispatch__"]
    FakeTensor.__torch_dispatch__ = classmethod(_quiet(dispatch.__func__))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    quiet = _runtime.quiet

    @wraps(function)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        quiet(1)
        try:
            return function(*args, **kwargs)
        finally:
            quiet(-1)

    return unseen


def install() -> None:
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    torch.serialization._save = _stamping(torch.serialization._save)
    torch.save = torch.serialization.save = _saving_to(torch.save, "torch.save", 1)
    torch.jit.save = _saving_to(torch.jit.save, "torchscript", 1)
    torch.load = torch.serialization.load = _loading(torch.load, "torch.save")
    torch.jit.load = _loading(torch.jit.load, "torchscript")
    torch.jit.ScriptModule.save = _saving_to(torch.jit.ScriptModule.save, "torchscript", 1)
    torch.export.save = _export_stamping(torch.export.save)
    torch.export.load = _loading(torch.export.load, "torch.export")


def path_being_saved() -> str:
    return str(getattr(_saving, "path", ""))


def _stamping(save: Callable[..., Any]) -> Callable[..., Any]:
    """torch.serialization._save writes the members of torch.save's archive; the stamp is one more, before the archive is closed."""

    @wraps(save)
    def stamped(obj: Any, zip_file: Any, *args: Any, **kwargs: Any) -> Any:
        result = save(obj, zip_file, *args, **kwargs)
        if not getattr(_saving, "inner", False):
            data = metadata.stamp(metadata.FileSaved("torch.save", path_being_saved()))
            if data is not None:
                zip_file.write_record(f"extra/{metadata.STAMP}", data, len(data))
        return result

    return stamped


def _saving_to(save: Callable[..., Any], file_format: str, position: int) -> Callable[..., Any]:
    @wraps(save)
    def saving(*args: Any, **kwargs: Any) -> Any:
        target = args[position] if len(args) > position else kwargs.get("f")
        path = os.fspath(target) if isinstance(target, (str, os.PathLike)) else ""
        with _save_to(path) as is_outermost:
            result = save(*args, **kwargs)
        if path and is_outermost:
            metadata.note_file("saved", file_format, path)
        return result

    return saving


@contextmanager
def _save_to(path: str, inner: bool = False) -> Iterator[bool]:
    before = getattr(_saving, "path", ""), getattr(_saving, "inner", False), getattr(_saving, "depth", 0)
    if before[2] == 0:
        _saving.path = path
    _saving.inner, _saving.depth = before[1] or inner, before[2] + 1
    try:
        yield before[2] == 0
    finally:
        _saving.path, _saving.inner, _saving.depth = before


def _export_stamping(save: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(save)
    def saving(ep: Any, f: Any, *args: Any, extra_files: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        path = os.fspath(f) if isinstance(f, (str, os.PathLike)) else ""
        data = metadata.stamp(metadata.FileSaved("torch.export", path))
        if data is not None:
            extra_files = {metadata.STAMP: data.decode(), **(extra_files or {})}
        with _save_to(path, inner=True) as is_outermost:
            result = save(ep, f, *args, extra_files=extra_files, **kwargs)
        if path and is_outermost:
            metadata.note_file("saved", "torch.export", path)
        return result

    return saving


def _loading(load: Callable[..., Any], file_format: str) -> Callable[..., Any]:
    @wraps(load)
    def loading(f: Any, *args: Any, **kwargs: Any) -> Any:
        result = load(f, *args, **kwargs)
        if isinstance(f, (str, os.PathLike)):
            metadata.note_file("loaded", file_format, os.fspath(f))
        return result

    return loading
