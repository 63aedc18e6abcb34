"""The interface of a sink, and how sinks fail."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

from sealift.diag.errors import SealiftError
from sealift.observe.snapshot import Snapshot


class Sink(Protocol):
    """Takes what happened since the write before. Called by one thread at a time, never by the program's own.

    Nothing is opened before the first write. A write that raises did not happen: it is tried again with the same object, later; SinkError
    says that trying again is useless. Several processes may write through one sink: `delta.process` tells them apart.
    A sink may have `open()`, too: called once on its thread when the exporter starts, for imports that cannot wait for the end of a program."""

    def write(self, delta: Snapshot) -> None: ...

    def close(self) -> None: ...


LANE_THREADS = "sealift-sink-"  # what the names of threads that call sinks begin with
SinkFactory = Callable[[], Sink]  # after a fork the child makes sinks of its own


class SinkLibraryError(SealiftError, ImportError):
    """The library that a sink writes with is not installed."""

    code = "E-SINK-001"


class SinkSpecError(SealiftError, ValueError):
    """A sink or a setting that is not known, or a value that does not fit."""

    code = "E-SINK-002"


class SinkError(SealiftError, OSError):
    """The place a sink writes to refuses, and would refuse again."""

    code = "E-SINK-003"


def import_library(module: str, sink: str) -> Any:
    """The module, or the error that names the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkLibraryError(f"sink {sink!r} needs {module.split('.')[0]}: {error}; help: pip install 'sealift[observe]'") from error
