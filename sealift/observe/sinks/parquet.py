"""One Parquet file for each delta, written beside its place and renamed: a reader never sees half of one. DuckDB, pandas and Spark read the
folder as one table (docs/guides/profile.md shows the queries)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from sealift.observe.sinks.sink import import_library
from sealift.observe.snapshot import Series, Snapshot


class ParquetSink:
    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._count = 0

    def write(self, delta: Snapshot) -> None:
        if not delta.series:
            return
        import_library("pyarrow", "parquet")
        table = to_table(delta)
        parquet = import_library("pyarrow.parquet", "parquet")
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{delta.start_unix_ns}-{delta.process.start_id or delta.process.pid}-{self._count}.parquet"
        temporary = self._directory / f".{name}.{secrets.token_hex(4)}.tmp"
        try:
            parquet.write_table(table, temporary, compression="zstd")
            os.replace(temporary, self._directory / name)
        finally:
            temporary.unlink(missing_ok=True)
        self._count += 1

    def close(self) -> None:
        pass


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
