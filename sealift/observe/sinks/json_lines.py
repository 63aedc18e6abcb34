"""One JSON object a line, Snapshot.to_dict's. What a killed process wrote before stays readable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from sealift.observe.sinks.kept_file import KeptFile
from sealift.observe.snapshot import Process, Snapshot


class JsonLinesSink:
    """Appends whole lines to a file. {pid} and {id} in its name stand for the process's, so that several processes can share a folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._files: dict[str, KeptFile] = {}
        self._broken: set[str] = set()  # paths whose last line is cut short

    def write(self, delta: Snapshot) -> None:
        path = expanded(self._path, delta.process)
        kept = self._files.get(path)
        if kept is None:
            kept = self._files[path] = KeptFile(path, os.O_WRONLY | os.O_APPEND)
        file = kept.descriptor()
        line = json.dumps(delta.to_dict(), separators=(",", ":")).encode() + b"\n"
        if path in self._broken:
            line = b"\n" + line
        written = os.write(file, line)
        if written != len(line):  # a full disk: the reader passes over what came so far
            self._broken.add(path)
            os.write(file, line[written:])  # raises what is wrong
            raise OSError(f"{path}: only {written} of {len(line)} bytes written")
        self._broken.discard(path)

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


def expanded(path: str, process: Process) -> str:
    return path.replace("{pid}", str(process.pid)).replace("{id}", process.start_id)


def parse_lines(text: bytes) -> Iterator[Snapshot]:
    """The snapshots of whole lines; lines that are none (cut short by a kill or a full disk) are passed over."""
    for line in text.split(b"\n"):
        if line.strip():
            try:
                yield Snapshot.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue


def read_json_lines(path: str | os.PathLike[str]) -> list[Snapshot]:
    return list(parse_lines(Path(path).read_bytes()))
