"""Python callbacks around operators.

They run on the operator's thread under the GIL; an operator that is not drawn touches no Python at all. What a callback runs itself is reported
to nobody. One that raises is reported once, through logging, and removed: it never breaks the model."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sealift import _runtime
from sealift.observe.install import install_torch_when_imported

Record = _runtime.Record
TensorMeta = _runtime.TensorMeta

_LOG = logging.getLogger("sealift.observe")
SCOPES: tuple[str, ...] = tuple(_runtime.scope_name(i) for i in range(11))
"""The kinds of events, as in PyTorch's at::RecordScope, and "kernel" for sealift's own."""
_DEFAULT_SCOPES = ("function", "kernel")
_SECONDS_AT_EXIT = 2.0

OnEnter = Callable[[Record], Any]
OnExit = Callable[[Record], None]


class Handle:
    """A callback that was added. `remove()` ends it; so does `with handle: ...` at its end."""

    def __init__(self) -> None:
        self._id: int | None = None
        self.error: BaseException | None = None
        """What the callback raised, if it was removed for that."""

    def remove(self) -> None:
        """No event that begins after this is reported; again does nothing. Not from inside a callback: there it raises BusyError."""
        if self._id is None:
            return
        status = _runtime.remove_observer(self._id)
        if status == _BUSY:
            from sealift.errors import BusyError

            raise BusyError("a callback cannot be removed inside a callback; help: remove it outside")
        self._id = None

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _failed(self, error: BaseException) -> None:
        self.error = error
        _LOG.error("a callback raised and is removed; the model is not affected", exc_info=(type(error), error, error.__traceback__))
        # It cannot be removed from inside itself. Daemonic: a program that ends need not wait for it.
        threading.Thread(target=self.remove, name="sealift-remove", daemon=True).start()


_BUSY = 19  # SEALIFT_ERROR_BUSY


def add_global_callback(
    on_enter: OnEnter | None = None,
    on_exit: OnExit | None = None,
    needs_inputs: bool = False,
    sampling_prob: float = 1.0,
    scopes: Iterable[str] = _DEFAULT_SCOPES,
) -> Handle:
    """Calls on_enter(record) before and on_exit(record) after operators, on every thread; `record.entered` is what on_enter returned.

    sampling_prob: each operator is drawn by itself; `record.weight` says how many a drawn one stands for.
    needs_inputs: fills `record.inputs`, tensors as TensorMeta (shape, strides, dtype, device), never the data. PyTorch then packs the
    inputs of every operator that any callback sees, so ask for them where they are used.
    scopes: of SCOPES. "function" alone is much the cheapest in training.
    At most 16 callbacks at a time. Errors: ArgumentError, OutOfMemoryError where there is no room, BusyError inside a callback."""
    return _add(on_enter, on_exit, needs_inputs, sampling_prob, scopes, False)


def add_thread_local_callback(
    on_enter: OnEnter | None = None,
    on_exit: OnExit | None = None,
    needs_inputs: bool = False,
    sampling_prob: float = 1.0,
    scopes: Iterable[str] = _DEFAULT_SCOPES,
) -> Handle:
    """As add_global_callback, for the calling thread's operators alone. PyTorch must be imported before, if its operators are wanted."""
    return _add(on_enter, on_exit, needs_inputs, sampling_prob, scopes, True)


def _add(
    on_enter: OnEnter | None, on_exit: OnExit | None, needs_inputs: bool, sampling_prob: float, scopes: Iterable[str], this_thread: bool
) -> Handle:
    for name, function in (("on_enter", on_enter), ("on_exit", on_exit)):
        if function is not None and not callable(function):
            raise _argument(f"{name} is {function!r}; help: a function of one record, or None")
    mask = scope_mask(scopes)
    install_torch_when_imported()
    handle = Handle()
    # handle._failed keeps the handle for as long as the callback is there: also one that nobody kept is removed when it raises.
    handle._id = _runtime.add_observer(on_enter, on_exit, handle._failed, float(sampling_prob), mask, bool(needs_inputs), this_thread)
    if handle.error is not None:  # on another thread, before there was an id to remove it by
        handle.remove()
    return handle


def scope_mask(scopes: Iterable[str]) -> int:
    chosen = [scopes] if isinstance(scopes, str) else list(scopes)
    unknown = [s for s in chosen if s not in SCOPES]
    if unknown or not chosen:
        raise _argument(f"scopes {unknown or chosen}; help: some of {', '.join(SCOPES)}")
    return sum({1 << SCOPES.index(s) for s in chosen})


def _argument(message: str) -> Exception:
    from sealift.errors import ArgumentError

    return ArgumentError(message)


def enable(enabled: bool = True) -> bool:
    """Whether callbacks and the recorder see the calling thread. Returns what it was."""
    return _runtime.enable_thread(enabled)


@contextmanager
def disabled() -> Iterator[None]:
    """Inside, nobody sees the calling thread's operators."""
    before = _runtime.enable_thread(False)
    try:
        yield
    finally:
        _runtime.enable_thread(before)


# A thread that asked for the GIL while the interpreter ends would never come back, so callbacks end before it does.
atexit.register(_runtime.end_callbacks, _SECONDS_AT_EXIT)
