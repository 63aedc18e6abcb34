"""What waits on disk while the collector is away: one file for each request, oldest first, bounded in bytes.

A file is written aside, synced and renamed, so a reader sees it whole or not at all; it is removed only once the collector has acknowledged it.
A process's own number is in its name: several processes may share a folder, and one that starts later delivers what an earlier one left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple


class Spooled(NamedTuple):
    path: Path
    signal: str
    size_bytes: int


class Spool:
    """Safe for several threads of one process. A folder `folder/OWNER` per process start, held by a lock while the process lives."""

    def __init__(self, folder: Path, owner: str, limit_bytes: int = 64 << 20) -> None:
        self._root = folder
        self._folder = folder / owner
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._number = 0
        self._held: IO[str] | None = _hold(self._folder)
        self.dropped = 0  # requests that the bound pushed out, the oldest first

    def put(self, signal: str, body: bytes) -> Path | None:
        """None: it is larger than the whole spool, or the disk refuses; counted as dropped."""
        with self._lock:
            if len(body) > self._limit_bytes:
                self.dropped += 1
                return None
            found = self._entries(self._folder)
            size = sum(e.size_bytes for e in found) + len(body)
            for entry in found:
                if size <= self._limit_bytes:
                    break
                entry.path.unlink(missing_ok=True)
                size -= entry.size_bytes
                self.dropped += 1
            self._number += 1
            path = self._folder / f"{time.time_ns():020d}-{self._number:08d}.{signal}"
            temporary = path.with_suffix(".part")
            try:
                with open(temporary, "wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, path)
            except OSError:
                temporary.unlink(missing_ok=True)
                self.dropped += 1
                return None
            return path

    def waiting(self) -> list[Spooled]:
        """This process's, oldest first."""
        with self._lock:
            return self._entries(self._folder)

    def _entries(self, folder: Path) -> list[Spooled]:
        found = []
        for path in sorted(folder.iterdir()):
            if path.suffix in (".metrics", ".logs"):
                with contextlib.suppress(FileNotFoundError):
                    found.append(Spooled(path, path.suffix[1:], path.stat().st_size))
        return found

    def orphans(self) -> Iterator[list[Spooled]]:
        """What processes that have ended left in the same root, of one process after the other; taken by one process at a time."""
        for folder in sorted(p for p in self._root.iterdir() if p.is_dir() and p != self._folder):
            held = _hold(folder)
            if held is None:
                continue
            try:
                yield self._entries(folder)
                with contextlib.suppress(OSError):
                    for part in (*folder.glob("*.part"), folder / "lock"):
                        part.unlink(missing_ok=True)
                    folder.rmdir()  # fails while something is left, and is tried again at the next start
            finally:
                held.close()

    def close(self) -> None:
        """Leaves what waits for the next process."""
        with self._lock:
            if self._held is not None:
                if not self._entries(self._folder):
                    with contextlib.suppress(OSError):
                        (self._folder / "lock").unlink(missing_ok=True)
                        self._folder.rmdir()
                self._held.close()
                self._held = None


def _hold(folder: Path) -> IO[str] | None:
    """The folder's lock, or None if a living process has it."""
    file = open(folder / "lock", "a")  # noqa: SIM115 (held for as long as the process)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
