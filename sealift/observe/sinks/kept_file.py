"""A file that stays open between writes, in a process that may close or reuse any descriptor: programs that become daemons close them all."""

from __future__ import annotations

import os
from pathlib import Path


class KeptFile:
    """`flags` open it the first time; afterwards it is opened without O_TRUNC. Makes the folder. Error: OSError."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        self._flags = flags
        self._file = -1
        self._identity = (-1, -1)  # device and inode
        self._open(flags)

    def _open(self, flags: int) -> None:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, flags | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._identity = self._identity_now()

    def _identity_now(self) -> tuple[int, int]:
        try:
            status = os.fstat(self._file)
        except OSError:
            return (-1, -1)
        return (status.st_dev, status.st_ino)

    def descriptor(self) -> int:
        """Of this file, certainly: where the number was closed, or is another file's now, it is opened again."""
        if self._identity_now() != self._identity:
            self._open(self._flags & ~os.O_TRUNC)
        return self._file

    def close(self) -> None:
        if self._identity_now() == self._identity:
            os.close(self._file)
