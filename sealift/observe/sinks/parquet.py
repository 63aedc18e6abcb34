"""One Parquet file for each delta, written beside its place and renamed: a reader never sees half of one. DuckDB, pandas and Spark read the
folder as one table (docs/guides/profile.md shows the queries)."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from sealift.observe.sinks.sink import import_library
from sealift.observe.snapshot import Series, Snapshot


class ParquetSink:
    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._count = 0
        self._is_swept = False

    def write(self, delta: Snapshot) -> None:
        if not delta.series:
            return
        import_library("pyarrow", "parquet")
        table = to_table(delta)
        parquet = import_library("pyarrow.parquet", "parquet")
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self._is_swept:
            sweep(self._directory)
            self._is_swept = True
        name = f"{delta.start_unix_ns}-{delta.process.start_id or delta.process.pid}-{self._count}.parquet"
        with _locked(self._directory, name) as file:
            parquet.write_table(table, file, compression="zstd")
            file.flush()
            os.replace(file.name, self._directory / name)
        self._count += 1

    def close(self) -> None:
        pass


@contextmanager
def _locked(directory: Path, name: str) -> Iterator[IO[bytes]]:
    """A new hidden file, locked while this process lives and writes it: whoever gets the lock knows that the writer died."""
    while True:
        path = directory / f".{name}.{secrets.token_hex(4)}.tmp"
        with open(path, "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if not _is_at(file, path):  # swept between the two lines above
                    continue
                yield file
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def sweep(directory: Path) -> None:
    """Removes what processes left that died while they wrote."""
    for path in directory.glob(".*.parquet.*.tmp"):
        with suppress(OSError), open(path, "rb") as file:  # gone meanwhile, or another user's
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def to_table(delta: Snapshot) -> Any:
    """A pyarrow.Table, one row for each series. buckets: OTLP's positive bucket index -> weighted count, scale 3."""
    pa = import_library("pyarrow", "parquet")
    text, number = pa.dictionary(pa.int32(), pa.string()), pa.int64()
    schema = pa.schema(
        [
            pa.field("start_unix_ns", number, nullable=False),
            pa.field("end_unix_ns", number, nullable=False),
            *(pa.field(name, text) for name in ("host", "start_id")),
            pa.field("pid", number),
            *(pa.field(name, text) for name in ("operator", "source", "scope", "model_id", "shapes", "origin")),
            pa.field("labels", pa.map_(pa.string(), pa.string())),
            *(pa.field(name, number) for name in ("count", "samples", "total_ns", "self_ns", "zero_count")),
            pa.field("buckets", pa.map_(pa.int16(), number)),
        ],
        metadata={"sealift.format": "sealift.series/1", "sealift.histogram.scale": "3"},
    )
    return pa.Table.from_pylist([_row(delta, one) for one in delta.series], schema=schema)


def _row(delta: Snapshot, one: Series) -> dict[str, Any]:
    return {
        "start_unix_ns": delta.start_unix_ns,
        "end_unix_ns": delta.end_unix_ns,
        "host": delta.process.host,
        "start_id": delta.process.start_id,
        "pid": delta.process.pid,
        **{name: getattr(one, name) for name in ("operator", "source", "scope", "model_id", "shapes", "origin")},
        **{name: getattr(one, name) for name in ("count", "samples", "total_ns", "self_ns")},
        "labels": list(one.labels),
        "zero_count": one.histogram.zero_count,
        "buckets": sorted(one.histogram.buckets.items()),
    }
