"""When the bridge is loaded: at once where torch is imported, else at its import; never where nobody imports it."""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from sealift.observe.bridge import BridgeError, find_bridge, find_torch, load_bridge, load_early

_LOG = logging.getLogger("sealift.observe")
_lock = threading.RLock()
_library: ctypes.CDLL | None = None
_finder: _TorchFinder | None = None
_when_installed: list[Callable[[ctypes.CDLL], None]] = []
_when_imported: list[Callable[[], None]] = []
_was_reported = False


def install_torch() -> ctypes.CDLL:
    """Loads the bridge into this process, and torch if it is not imported yet. Error: BridgeError names the command where it is not built."""
    global _library
    import torch  # noqa: F401

    with _lock:
        if _library is None:
            installed = find_torch()
            if installed is None:
                raise BridgeError("torch is imported, but where it is installed cannot be found; help: `sealift doctor`")
            _library = load_bridge(find_bridge(installed), installed)
            from sealift.observe import torch as patches

            patches.quiet_fake_tensors()
            while _when_installed:
                _when_installed.pop(0)(_library)
        return _library


def torch_is_observed() -> bool:
    return _library is not None


def when_installed(action: Callable[[ctypes.CDLL], None]) -> None:
    """Now, or when the bridge is loaded."""
    with _lock:
        if _library is not None:
            action(_library)
        else:
            _when_installed.append(action)


def when_imported(action: Callable[[], None]) -> None:
    """Now, or when torch is imported, with a bridge or without."""
    with _lock:
        if _is_imported():
            action()
        else:
            _when_imported.append(action)
    install_torch_when_imported()


def install_torch_when_imported() -> None:
    """What every entry point of observe calls: loads the bridge now if torch is imported, else waits for that. A bridge that is missing is
    reported once, through logging: all else works without."""
    global _finder
    if _library is not None:
        return
    with _lock:
        if _is_imported():
            _install_or_report()
        elif _finder is None:
            _finder = _TorchFinder()
            sys.meta_path.insert(0, _finder)


def _is_imported() -> bool:
    module = sys.modules.get("torch")
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def _install_or_report() -> None:
    global _was_reported
    try:
        install_torch()
    except BridgeError as error:
        if not _was_reported:
            _was_reported = True
            _LOG.warning("%s", error)


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Stands in for the finder that finds torch, once, to act before and after its import."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        global _finder
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        _finder = None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _TorchLoader(spec.loader)
        return spec


class _TorchLoader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        try:
            torch = find_torch()
            if torch is not None and (bridge := find_bridge(torch)).is_there:
                load_early(bridge, torch)
        except Exception:
            _LOG.exception("the keys of torch's own import are not seen")
        self._loader.exec_module(module)
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with _lock:
            try:
                _install_or_report()
                while _when_imported:
                    _when_imported.pop(0)()
            except Exception:
                _LOG.exception("PyTorch is not observed whole")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def _renew_lock() -> None:
    """In a forked child: whoever held it stayed with the parent."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)
