"""Debug info: which model, request or tenant the operators belong to.

The labels live in a context variable, so they follow asyncio's tasks and whatever else copies contexts; the native runtime carries them to
sealift's threads, to torch.jit.fork and to backward (which has what was current when backward() was called). A plain thread starts without:
start it through Thread, ThreadPoolExecutor or carry()."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from sealift import _runtime

P = ParamSpec("P")
R = TypeVar("R")

_CURRENT: contextvars.ContextVar[_runtime.DebugInfo | None] = contextvars.ContextVar("sealift_debug_info")
_runtime.set_context_var(_CURRENT)
# What was before each block that this context is inside of, as nested pairs. One variable for all blocks: contexts never forget a variable.
_OUTER: contextvars.ContextVar[tuple[Any, Any] | None] = contextvars.ContextVar("sealift_outer_debug_info", default=None)


class debug_info:
    """`with debug_info(model_id="ranker:7", request="r-17"): ...`; nested blocks add to and override the outer ones.

    The recorder keeps numbers apart by `model_id`, and by those labels that observe.start(labels=...) names; callbacks see them all. Values
    are turned into text. May be entered again, also at the same time on several threads."""

    def __init__(self, **labels: Any) -> None:
        self._labels = [(str(k), str(v)) for k, v in labels.items()]

    def __enter__(self) -> debug_info:
        before = _CURRENT.get(None)
        info = _runtime.DebugInfo(before, self._labels)
        _CURRENT.set(info)
        _OUTER.set((before, _OUTER.get()))
        _runtime.enter_info(info)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        before, outer = _OUTER.get() or (None, None)
        _OUTER.set(outer)
        _CURRENT.set(before)
        _runtime.enter_info(before)


def current_info() -> dict[str, str]:
    """The labels of this point of the program."""
    info = _CURRENT.get(None)
    if info is None:
        info = _runtime.current_info()
    return {} if info is None else info.labels


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run with the debug info (and every other context variable) of the moment of this call, on whatever thread."""
    context = contextvars.copy_context()

    @wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return context.copy().run(function, *args, **kwargs)  # a copy: one context cannot run twice at the same time

    return carried


class Thread(threading.Thread):
    """threading.Thread that starts with the debug info of the place where it is started."""

    def start(self) -> None:
        context = contextvars.copy_context()
        run = self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
        super().start()


class ThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """concurrent.futures.ThreadPoolExecutor whose work has the debug info of the place where it was submitted."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[R]:
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)
