"""Histograms by columns: to Arrow and back, and merged by integer addition.

On disk a row's buckets are a dense run, `first` and `counts`, OTLP's own form: of the layouts tried on 2 million rows it was the smallest to
write (19.4 bytes a row, 3.6 s; pairs of index and count 20.3, 5.9 s; MAP 20.3, 6.7 s) and DuckDB sums all of them equally fast. Merging is
done here and in bindings/runs.cpp and not in SQL, which took 32 s for those rows where this takes a tenth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sealift._runtime import add_runs, weigh_runs
from sealift.fleet.model import BUCKET_MAX, BUCKET_MIN, Floats, Ints, Points

SCHEMA = pa.schema(
    [
        ("time_s", pa.int64()),
        ("series", pa.int64()),
        ("resource", pa.int64()),
        ("count", pa.int64()),
        ("samples", pa.int64()),
        ("total_ns", pa.int64()),
        ("self_ns", pa.int64()),  # of the points that know it
        ("self_count", pa.int64()),  # calls in the points that know their self time
        ("zero", pa.int64()),
        ("count_var", pa.float64()),  # variance that sampling leaves in count, and in total_ns: both add
        ("total_var", pa.float64()),
        ("first", pa.int16()),
        ("counts", pa.list_(pa.int64())),
    ]
)
SUMMED = ("count", "samples", "total_ns", "self_ns", "self_count", "zero", "count_var", "total_var")
_MIDDLE_SQUARED = (
    2 * 2 ** (np.arange(BUCKET_MIN, BUCKET_MAX + 1) / 8) * 2 ** (1 / 8) / (1 + 2 ** (1 / 8))
) ** 2  # ns squared, of each bucket's middle


@dataclass(frozen=True)
class Rows:
    """Points with their resource, as a segment holds them."""

    columns: dict[str, Any]  # one array for each of SCHEMA's names but counts
    offsets: Ints
    counts: Ints

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def size_bytes(self) -> int:
        return int(self.counts.nbytes + self.offsets.nbytes + sum(column.nbytes for column in self.columns.values()))

    @classmethod
    def of(cls, points: Points, resource: Ints) -> Rows:
        known = points.self_ns >= 0
        # Choosing each call with probability p leaves a variance of (1 - p) / p a call in the count, and that times its square in the sum.
        factor = points.count / np.maximum(points.samples, 1) - 1
        squares = _sum_of_squares(points.first, points.offsets, points.counts)
        columns = {
            "time_s": points.time_s,
            "series": points.series,
            "resource": resource,
            "count": points.count,
            "samples": points.samples,
            "total_ns": points.total_ns,
            "self_ns": np.where(known, points.self_ns, 0),
            "self_count": np.where(known, points.count, 0),
            "zero": points.zero,
            "count_var": points.count * factor,
            "total_var": squares * factor,
            "first": points.first,
        }
        return cls(columns, points.offsets, points.counts)

    def to_arrow(self) -> pa.Table:
        lists = pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), pa.array(self.counts))
        arrays = [pa.array(self.columns[f.name], f.type) if f.name != "counts" else lists for f in SCHEMA]
        return pa.Table.from_arrays(arrays, schema=SCHEMA)

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Rows:
        columns = {f.name: table.column(f.name).to_numpy() for f in SCHEMA if f.name != "counts"}
        lists = table.column("counts").combine_chunks()
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.chunk(0) if lists.num_chunks else pa.array([], pa.list_(pa.int64()))
        offsets = lists.offsets.to_numpy().astype(np.int64)
        values = lists.values.to_numpy()[offsets[0] : offsets[-1]] if len(offsets) else np.zeros(0, np.int64)
        return cls(columns, offsets - offsets[0] if len(offsets) else np.zeros(1, np.int64), values)

    def of_one_series(self) -> Rows:
        """The same points with nothing said of their series."""
        return Rows(self.columns | {"series": np.zeros(len(self), np.int64)}, self.offsets, self.counts)

    def take(self, order: Ints) -> Rows:
        lengths = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        source = np.repeat(self.offsets[:-1][order] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Rows({name: column[order] for name, column in self.columns.items()}, offsets, self.counts[source])


def _sum_of_squares(first: Ints, offsets: Ints, counts: Ints) -> Floats:
    return np.frombuffer(weigh_runs(_wide(first), _wide(offsets), _wide(counts), _MIDDLE_SQUARED, BUCKET_MIN))


def _wide(values: Ints) -> Ints:
    return np.ascontiguousarray(values, np.int64)


def concatenate(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([p.columns[name] for p in parts]) for name in parts[0].columns}
    starts = np.cumsum([0, *(len(p.counts) for p in parts)])
    offsets = np.concatenate([p.offsets[:-1] + s for p, s in zip(parts, starts)] + [starts[-1:]]).astype(np.int64)
    return Rows(columns, offsets, np.concatenate([p.counts for p in parts]))


def merge(rows: Rows, step_s: int, resource_of: dict[int, int] | None = None) -> Rows:
    """One row for each (time rounded down to step_s, series, resource). `resource_of` renames resources first.

    Sorted by an eighth of the resources, then by series and time: of small row groups a question about one host reads an eighth, one about an
    operator few of each eighth. (5 million rows of 1,000 hosts, sorted by series alone: one operator 0.04 s, one host 0.22 s. So: 0.08, 0.04 s.)"""
    if not len(rows):
        return rows
    columns = dict(rows.columns)
    columns["time_s"] = columns["time_s"] // step_s * step_s
    if resource_of is not None:
        distinct, inverse = np.unique(columns["resource"], return_inverse=True)
        columns["resource"] = np.array([resource_of[r] for r in distinct.tolist()], np.int64)[inverse]
    eighth = (columns["resource"] >> 60).astype(np.uint8)  # resources are hashes of 63 bits
    order = np.lexsort((columns["resource"], columns["time_s"], columns["series"], eighth))
    keys = {name: columns[name][order] for name in ("series", "time_s", "resource")}
    new = np.ones(len(rows), bool)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys.values()])
    starts = np.flatnonzero(new)
    result = {name: key[starts] for name, key in keys.items()}
    result |= {name: np.add.reduceat(columns[name][order], starts) for name in SUMMED}
    bounds = np.append(starts, len(rows))
    merged = add_runs(_wide(columns["first"]), _wide(rows.offsets), _wide(rows.counts), order, bounds, BUCKET_MIN, BUCKET_MAX)
    result["first"], offsets, counts = (np.frombuffer(data, np.int64) for data in merged)
    return Rows({name: result[name] for name in rows.columns}, offsets, counts)
