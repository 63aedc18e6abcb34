"""A trace on demand: every operator of every thread for some seconds, from a process that goes on running.

Chrome's trace format; opens in ui.perfetto.dev. The calls go to memory taken for it, natively, and are written without holding the GIL."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sealift import _runtime
from sealift.observe.recorder import start_id

_AT_ONCE = 4096  # calls that become text at a time


@dataclass(frozen=True)
class Traced:
    calls: int
    lost: int  # calls after the most that were to be kept


class _Writable(Protocol):
    def write(self, data: bytes, /) -> int: ...


def write_trace(file: _Writable, seconds: float, max_calls: int = 1_000_000) -> Traced:
    """Records for that long, then writes the trace, one JSON object. The recorder must run; what it counts does not change, and its overhead
    tells what this cost: about 0.2 us and 40 bytes a call.

    Errors: ArgumentError where the recorder does not run, BusyError while another trace is recorded."""
    base_ns, base_unix_ns = time.monotonic_ns(), time.time_ns()
    _runtime.begin_trace(max_calls)
    try:
        time.sleep(seconds)
        calls, lost = _runtime.end_trace()
        about = {"start_id": start_id(os.getpid()), "base_unix_ns": str(base_unix_ns), "seconds": seconds, "calls": calls, "lost": lost}
        file.write(b'{"displayTimeUnit":"ns","otherData":' + json.dumps(about).encode() + b',"traceEvents":[\n')
        file.write(",\n".join(_names()).encode())
        for first in range(0, calls, _AT_ONCE):
            file.write(_runtime.trace_json(first, _AT_ONCE, os.getpid(), base_ns))
        file.write(b"\n]}\n")
    finally:
        _runtime.end_trace()
        _runtime.free_trace()
    return Traced(calls, lost)


def trace(path: str | os.PathLike[str], seconds: float = 5.0, max_calls: int = 1_000_000) -> Traced:
    """Writes a trace of this process to a file, compressed if its name ends in .gz."""
    name = Path(path)
    with gzip.open(name, "wb", 1) if name.suffix == ".gz" else open(name, "wb") as file:
        return write_trace(file, seconds, max_calls)


def _names() -> Iterator[str]:
    pid = os.getpid()
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    yield _name("process_name", pid, 0, f"{program} {pid}")
    known = {t.native_id: t.name for t in threading.enumerate()}
    for task in sorted(int(t) for t in os.listdir("/proc/self/task")):
        name = known.get(task)
        if name is None:  # a thread of native code
            with contextlib.suppress(OSError):
                name = Path(f"/proc/self/task/{task}/comm").read_text(errors="replace").strip()
        yield _name("thread_name", pid, task, f"{name or 'thread'} {task}")


def _name(kind: str, pid: int, thread: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": thread, "ts": 0, "args": {"name": name}})
