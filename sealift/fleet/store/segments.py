"""Segment files: immutable Parquet, visible whole or not at all (temporary file, fsync, rename, fsync of the folder)."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sealift.fleet.columns import SCHEMA, Rows, concatenate
from sealift.fleet.errors import StoreBusyError, StoreFullError
from sealift.fleet.store.control import Segment

SPAN_S = {
    0: 1 << 40,
    10: 3600,
    60: 86_400,
    3600: 32 * 86_400,
}  # a segment of that step stays within one such span, so that retention drops whole files


# What arrives is folded within seconds, so it is written fast: 0.5 us and 50 bytes a row of 20 buckets. Roll-ups are kept: 0.9 us and 40 bytes.
# (zstd without either encoding: 1.3 us and 45 bytes.)
_KEYS = ["series", "resource", "time_s"]
_NUMBERS = ["count", "samples", "total_ns", "self_ns", "self_count", "zero", "first", "counts.list.element"]
_ARRIVING: dict[str, Any] = {
    "compression": "lz4",
    "use_dictionary": _KEYS,
    "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
}
_KEPT: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": [*_KEYS, "counts.list.element"],
    "row_group_size": 16_384,  # 2 % larger than a million, and what a question passes over is passed over in such pieces
}


def write(folder: Path, rows: Rows, scope: str, step_s: int) -> Segment:
    """Durable when it returns. On an error nothing is left behind."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows.to_arrow(), sink, **(_KEPT if step_s else _ARRIVING))
    data = sink.getvalue()
    name = f"{scope}-{step_s}-{secrets.token_hex(8)}.parquet"
    temporary = folder / f".{name}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, folder / name)
        sync_folder(folder)
    except OSError as error:
        for path in (temporary, folder / name):
            path.unlink(missing_ok=True)
        raise StoreFullError(f"{folder}: {error.strerror}; help: free space there or shorten what is kept (--keep)") from None
    times = rows.columns["time_s"]
    width = max(step_s, 10)
    return Segment(name, scope, step_s, False, int(times.min()), int(times.max()) + width, len(rows), data.size)


def write_split(folder: Path, rows: Rows, scope: str, step_s: int) -> list[Segment]:
    """One segment for each span of time that the rows touch."""
    if not len(rows):
        return []
    span = rows.columns["time_s"] // SPAN_S[step_s]
    values = np.unique(span)
    if len(values) == 1:
        return [write(folder, rows, scope, step_s)]
    return [write(folder, rows.take(np.flatnonzero(span == value)), scope, step_s) for value in values]


def read(folder: Path, segments: Sequence[Segment]) -> Rows:
    return concatenate([Rows.from_arrow(pq.read_table(folder / s.name, schema=SCHEMA, partitioning=None)) for s in segments])


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_whole(path: Path, size_bytes: int) -> bool:
    """Whether the file has the size it was written with and a footer that can be read."""
    try:
        if path.stat().st_size != size_bytes:
            return False
        pq.read_metadata(path)
        return True
    except (OSError, pa.ArrowInvalid):
        return False


class Lock:
    """Held by the one process that owns the store; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+")  # noqa: SIM115 (held for as long as the store)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise StoreBusyError(
                f"{path.parent} belongs to process {owner}; help: ask that collector (--url), or give this one another --store"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        self._file.close()
