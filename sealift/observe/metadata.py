"""Which build a model file came from: one hook stamps every model file the process writes, and saves are joined with their loads."""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import re
import socket
import threading
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sealift import _runtime
from sealift.observe import context
from sealift.observe.install import when_imported, when_installed
from sealift.observe.snapshot import ModelEvent, ModelInfo
from sealift.version import VERSION

_LOG = logging.getLogger("sealift.observe")
STAMP = "sealift_metadata.json"
"""The member's name, below extra/ of the archive."""
_FORMAT = "sealift.metadata/1"
_KEPT_EVENTS = 1024


@dataclass(frozen=True)
class FileSaved:
    """A model file that is being written."""

    format: str  # "torchscript" | "torch.save" | "torch.export" | "sealift"
    path: str = ""  # where it is known: not for a file object, nor for TorchScript saved from C++
    model_type: str = ""  # TorchScript: the module's qualified class


Hook = Callable[[FileSaved], Mapping[str, Any] | None]

_hook: Hook | None = None
_lock = threading.Lock()
_in_hook = threading.local()
_events: deque[ModelEvent] = deque(maxlen=_KEPT_EVENTS)
_models: dict[str, ModelInfo] = {}


def set_metadata_hook(hook: Hook | None) -> None:
    """Calls hook(file) for each model file that this process writes, and puts what it returns (JSON's types; None: nothing) into the file,
    with the time, the process and the versions: in torch.jit.save's, torch.save's and torch.export.save's archives and in sealift's packages. They
    load as before, with mmap and weights_only too. `read_metadata(path)` reads it back.

    A hook that raises is reported once and removed; the file is written all the same. What a caller gives in _extra_files or extra_files
    under the same name wins. Code that imported torch.save by name before the hook was set keeps the plain one. PyTorch tells nobody its
    TorchScript hook, so one set before by others is replaced."""
    global _hook
    _hook = hook
    when_imported(_patch)
    when_installed(_set_export_hook)


def stamp(file: FileSaved) -> bytes | None:
    """What the hook has to say of a file, as the member's bytes. None: no hook, or it says nothing."""
    global _hook
    hook = _hook
    if hook is None or getattr(_in_hook, "is_inside", False):
        return None  # a file that the hook itself writes gets no stamp
    _in_hook.is_inside = True
    try:
        said = hook(file)
        if said is None:
            return None
        saved_by = {"host": socket.gethostname(), "pid": os.getpid(), "sealift": VERSION, "torch": _torch_version()}
        document = {"format": _FORMAT, "file_format": file.format, "saved_unix_ns": time.time_ns(), "saved_by": saved_by, "metadata": dict(said)}
        return json.dumps(document, sort_keys=True).encode()
    except Exception:
        _hook = None
        _LOG.exception("the metadata hook raised and is removed; the file is written without")
        return None
    finally:
        _in_hook.is_inside = False


def package_extra_files(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """What a sealift package gets besides its own members: the pipeline asks, if this module was imported."""
    data = stamp(FileSaved("sealift", os.fspath(path)))
    return {} if data is None else {STAMP: data}


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The stamp of a model file of any of the formats, and its serialization id; None without a stamp. Reads the archive's directory and one
    member; no torch. Errors: OSError; zipfile.BadZipFile where the file is no archive."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        member = next((n for n in names if n.endswith(f"/extra/{STAMP}") or n == f"extra/{STAMP}"), None)
        if member is None:
            return None
        document = json.loads(archive.read(member))
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            return None
        document["serialization_id"] = _serialization_id(archive, names)
        return document


def describe_model(model_id: str, *, name: str = "", version: str = "", digest: str = "", path: str = "") -> None:
    """What a `debug_info(model_id=...)` stands for: goes with every snapshot."""
    with _lock:
        _models[model_id] = replace(_models.get(model_id, ModelInfo()), **{k: v for k, v in locals().items() if k in _DESCRIBED and v})


_DESCRIBED = ("name", "version", "digest", "path")


def models() -> dict[str, ModelInfo]:
    with _lock:
        return dict(_models)


def model_events() -> tuple[ModelEvent, ...]:
    """The model files that this process wrote and read, the last 1024."""
    _take_native()
    with _lock:
        return tuple(_events)


def note_file(kind: str, file_format: str, path: str) -> None:
    """A file was saved or loaded by a call that knows its path."""
    try:
        with zipfile.ZipFile(path) as archive:
            serialization_id = _serialization_id(archive, archive.namelist())
        document = read_metadata(path) or {}
    except (OSError, zipfile.BadZipFile, ValueError, KeyError):
        return  # an older format, or gone already
    said = document.get("metadata", {})
    producer = said.get("producer") or said.get("producer_name") or ""
    model_id = str(said.get("model_id") or context.current_info().get("model_id", ""))
    _take_native()
    with _lock:
        # PyTorch told of the same archive already, without its path and format.
        for i in range(len(_events) - 1, -1, -1):
            if serialization_id and _events[i].kind == kind and _events[i].serialization_id == serialization_id and not _events[i].format:
                del _events[i]
                break
        _events.append(ModelEvent(kind, time.time_ns(), model_id, "", serialization_id, path, file_format, str(producer)))
        if model_id:
            _models[model_id] = replace(_models.get(model_id, ModelInfo()), serialization_id=serialization_id, path=path)


def _take_native() -> None:
    """What PyTorch logs of each archive that it writes or reads."""
    for text, unix_ns in _runtime.take_model_files():
        with suppress(ValueError):
            told = json.loads(text)
            kind = {"pytorch.stream.writer.metadata": "saved", "pytorch.stream.reader.metadata": "loaded"}.get(told.get("event", ""))
            if kind and told.get("serialization_id"):
                with _lock:
                    _events.append(ModelEvent(kind, unix_ns, serialization_id=told["serialization_id"], path=told.get("file_name", "")))


def _serialization_id(archive: zipfile.ZipFile, names: list[str]) -> str:
    """PyTorch's own number, a digest of the contents; of a sealift package, which has none, the digest of its seal."""
    member = next((n for n in names if re.fullmatch(r"[^/]+/\.data/serialization_id", n)), None)
    if member:
        return archive.read(member).decode("ascii", "replace").strip()
    seal = next((n for n in names if re.fullmatch(r"[^/]+/sealift/seal", n)), None)
    return f"sha256:{hashlib.sha256(archive.read(seal)).hexdigest()}" if seal else ""


def _torch_version() -> str:
    import sys

    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def _patch() -> None:
    from sealift.observe import torch as patches

    patches.install()


_PUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_EXPORT_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, _PUT, ctypes.c_void_p)


def _export_hook(_: Any, model_type: bytes, put: Any, files: Any) -> None:
    from sealift.observe import torch as patches

    data = stamp(FileSaved("torchscript", patches.path_being_saved(), model_type.decode("utf-8", "replace")))
    if data is not None:
        put(files, STAMP.encode(), data, len(data))


_native_export_hook = _EXPORT_HOOK(_export_hook)  # kept: native code holds its address


def _set_export_hook(library: ctypes.CDLL) -> None:
    import atexit

    library.sealift_torch_bridge_set_export_hook.argtypes = [_EXPORT_HOOK, ctypes.c_void_p]
    library.sealift_torch_bridge_set_export_hook(_native_export_hook, None)
    atexit.register(lambda: library.sealift_torch_bridge_set_export_hook(_EXPORT_HOOK(), None))


def _renew_lock() -> None:
    """In a forked child: whoever held it stayed with the parent."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
