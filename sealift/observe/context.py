"""Debug info: which model, request or tenant the operators belong to.

The labels live in a context variable, so they follow asyncio's tasks and whatever else copies contexts; the native runtime carries them to
sealift's threads, to torch.jit.fork and to backward (which has what was current when backward() was called). A plain thread starts without:
start it through Thread, ThreadPoolExecutor or carry()."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from sealift import _runtime

P = ParamSpec("P")
R = TypeVar("R")

_CURRENT: contextvars.ContextVar[_runtime.DebugInfo | None] = contextvars.ContextVar("sealift_debug_info")
_runtime.set_context_var(_CURRENT)
# The blocks that this context is inside of. One variable for all: contexts never forget a variable.
_INNERMOST: contextvars.ContextVar[_Layer | None] = contextvars.ContextVar("sealift_debug_info_blocks", default=None)


@dataclass(frozen=True)
class _Layer:
    block: debug_info
    info: _runtime.DebugInfo  # with the labels of the blocks around it
    outer: _Layer | None

    def without(self, block: debug_info) -> _Layer | None:
        """What remains when the block ends (of several entries the last one). It need not be the innermost: a generator's ends when the
        generator does, wherever its consumer is then."""
        inside: list[debug_info] = []
        layer: _Layer | None = self
        while layer is not None and layer.block is not block:
            inside.append(layer.block)
            layer = layer.outer
        if layer is None:
            return self  # it began in another context, which alone can forget it
        rest = layer.outer
        for one in reversed(inside):
            rest = one._inside(rest)
        return rest


class debug_info:
    """`with debug_info(model_id="ranker:7", request="r-17"): ...`; nested blocks add to and override the outer ones.

    The recorder keeps numbers apart by `model_id`, and by those labels that observe.start(labels=...) names; callbacks see them all. Values
    are turned into text. May be entered again, also at the same time on several threads; and blocks may overlap, as those of generators do."""

    def __init__(self, **labels: Any) -> None:
        self._labels = [(_text(k), _text(v)) for k, v in labels.items()]

    def _inside(self, outer: _Layer | None) -> _Layer:
        return _Layer(self, _runtime.DebugInfo(None if outer is None else outer.info, self._labels), outer)

    def __enter__(self) -> debug_info:
        _enter(self._inside(_INNERMOST.get()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        innermost = _INNERMOST.get()
        if innermost is not None:
            _enter(innermost.without(self))


def _enter(layer: _Layer | None) -> None:
    info = None if layer is None else layer.info
    _INNERMOST.set(layer)
    _CURRENT.set(info)
    _runtime.enter_info(info)


def _text(value: Any) -> str:
    """As C can hold it: UTF-8 without NUL. Python keeps bytes of a file's name that are no UTF-8 as lone surrogates."""
    return str(value).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


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
