"""The calls that bursts recorded, as a Chrome trace: open it at ui.perfetto.dev or chrome://tracing.

The format's array form, which needs no closing bracket: a trace that a killed process left opens, too.
Source: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU."""

from __future__ import annotations

import json
import os
from typing import Any

from sealift.observe.sinks.json_lines import expanded
from sealift.observe.sinks.kept_file import KeptFile
from sealift.observe.snapshot import Event, Process, Snapshot


class ChromeTraceSink:
    """Appends events as they come. Times in the file are relative to the first event, since microseconds since 1970 would not keep their
    nanoseconds in a double."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._files: dict[str, _TraceFile] = {}

    def write(self, delta: Snapshot) -> None:
        if not delta.events:
            return
        path = expanded(self._path, delta.process)
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _TraceFile(path, delta.events[0].start_unix_ns)
        file.append(delta)

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


class _TraceFile:
    def __init__(self, path: str, base_unix_ns: int) -> None:
        self._file = KeptFile(path, os.O_RDWR | os.O_TRUNC)
        self._base_unix_ns = base_unix_ns
        self._named: set[tuple[int, int]] = set()  # (pid, thread) that have a name in the file
        self._end = 0  # of what was written whole

    def append(self, delta: Snapshot) -> None:
        """All events or, where the disk is full, none: the next try starts at the same place."""
        new: set[tuple[int, int]] = set()
        lines: list[str] = []
        if (delta.process.pid, -1) not in self._named:
            new.add((delta.process.pid, -1))
            lines.append(_name(delta.process, None, self._base_unix_ns))
        for event in delta.events:
            thread = (delta.process.pid, event.thread)
            if thread not in self._named | new:
                new.add(thread)
                lines.append(_name(delta.process, event.thread, self._base_unix_ns))
            lines.append(self._line(delta.process, event))
        text = ("[\n" if self._end == 0 else ",\n") + ",\n".join(lines)
        self._write(text.encode())
        self._named |= new

    def _line(self, process: Process, event: Event) -> str:
        arguments: dict[str, Any] = {"step": event.step}
        for name in ("model_id", "shapes", "origin"):
            if getattr(event, name):
                arguments[name] = getattr(event, name)
        name, category = json.dumps(event.operator), json.dumps(f"{event.source},{event.scope}")
        start, duration = _microseconds(event.start_unix_ns - self._base_unix_ns), _microseconds(event.dur_ns)
        where = f'"pid":{process.pid},"tid":{event.thread}'
        return f'{{"ph":"X","name":{name},"cat":{category},{where},"ts":{start},"dur":{duration},"args":{json.dumps(arguments)}}}'

    def _write(self, data: bytes) -> None:
        at, file = self._end, self._file.descriptor()
        while data:
            count = os.pwrite(file, data, at)
            data, at = data[count:], at + count
        self._end = at

    def close(self) -> None:
        try:
            if self._end:
                os.ftruncate(self._file.descriptor(), self._end)  # drops what a failed write left
                self._write(b"\n]\n")
        finally:
            self._file.close()


def _name(process: Process, thread: int | None, base_unix_ns: int) -> str:
    kind, name = ("process_name", f"{process.host} {process.pid}") if thread is None else ("thread_name", f"thread {thread}")
    arguments = {"name": name} if thread is not None else {"name": name, "start_id": process.start_id, "base_unix_ns": str(base_unix_ns)}
    return json.dumps({"ph": "M", "name": kind, "pid": process.pid, "tid": thread or 0, "ts": 0, "args": arguments})


def _microseconds(ns: int) -> str:
    """Exact, in decimal."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
