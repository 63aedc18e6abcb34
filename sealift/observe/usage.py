"""API usage: which features a process has used, each told once."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from sealift import _runtime
from sealift.observe.install import install_torch_when_imported

_LOG = logging.getLogger("sealift.observe")


class _Delivery:
    """Tells the handler each key once. PyTorch logs from places where Python must not run, so the native side only asks for a delivery, and the
    interpreter's main thread makes it."""

    def __init__(self) -> None:
        self.handler: Callable[[str], None] | None = None
        self.told: set[str] = set()
        self.lock = threading.RLock()

    def __call__(self) -> None:
        if not self.lock.acquire(blocking=False):  # another thread is telling, and looks again when it is done
            return
        try:
            while self.handler is not None and (new := [k for k in _runtime.api_usage() if k not in self.told]):
                for key in new:
                    self.told.add(key)
                    self._tell(key)
        finally:
            self.lock.release()

    def _tell(self, key: str) -> None:
        handler = self.handler
        try:
            if handler is not None:
                handler(key)
        except Exception:
            self.handler = None
            _LOG.exception("the API usage handler raised and is removed")


_delivery = _Delivery()


def _renew_lock() -> None:
    """In a forked child: whoever held it stayed with the parent."""
    _delivery.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def set_api_usage_handler(handler: Callable[[str], None] | None) -> None:
    """Calls handler(key) once for each API that the process uses: PyTorch's own keys ("torch.python.import", "python.optimizer", "torch.save",
    ...), sealift's, and those of log_api_usage_once. Keys used before are told at once.

    It replaces the handler before and PyTorch's own logger of API usage. PyTorch's keys are told by the main thread, as soon as it runs
    Python. A handler that raises is reported once and removed. None: no handler."""
    install_torch_when_imported()
    with _delivery.lock:
        _delivery.handler = handler
        _delivery.told = set()
    _runtime.set_deliver(_delivery if handler is not None else None)
    _delivery()


def log_api_usage_once(key: str) -> bool:
    """Notes that an API of yours was used. True for its first time in this process."""
    is_new = _runtime.log_api_usage_once(key)
    if is_new and _delivery.handler is not None:
        _delivery()
    return is_new


def api_usage() -> dict[str, int]:
    """Every key used so far, and when first, in unix nanoseconds."""
    return _runtime.api_usage()
