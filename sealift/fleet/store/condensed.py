"""A time range's rows added up once, for all the questions that a page asks of it.

A page or a program asks several questions about one range: by operator, by model, the same for an hour more. Each would read the range's buckets
from disk and spread them, of 100 million raw rows about a million cells that come down to twenty thousand. So the first one adds the rows up over
time, keeping series and resource apart, with the code that folds do (columns.merge), and the others group what is left.

An answer never goes stale: it belongs to the names of its segments, which do not change, and a commit or a fold makes other names."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from sealift.fleet.columns import Rows, concatenate, merge

EVER = 1 << 41  # a step that holds all times, so that merge() leaves one row for each series and resource
WORTH = 2  # rows that must become one, or the range is read as it is
CHUNK_ROWS = 500_000  # added up at once: about 130 MB


@dataclass(frozen=True)
class Range:
    segments: tuple[str, ...]  # names
    start_s: int
    end_s: int
    series: tuple[int, ...] | None = None  # only these


class Condensed:
    """The latest ranges, at most `limit_bytes` of them. None for one that is not worth it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held: OrderedDict[Range, pa.Table | None] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __contains__(self, wanted: Range) -> bool:
        with self._lock:
            return wanted in self._held

    def get(self, wanted: Range) -> pa.Table | None:
        with self._lock:
            found = self._held.get(wanted)
            if wanted in self._held:
                self._held.move_to_end(wanted)
            return found

    def keep(self, wanted: Range, batches: Iterable[pa.RecordBatch]) -> pa.Table | None:
        rows, read = _added_up(batches)
        table = None if rows is None else rows.to_arrow()
        size = 0 if table is None else table.nbytes
        worth = table is not None and len(table) * WORTH <= read and size <= self._limit_bytes // 2
        with self._lock:
            if wanted not in self._held:
                self._held[wanted] = table if worth else None
                self._bytes += size if worth else 0
            while self._bytes > self._limit_bytes or len(self._held) > 1000:
                _, oldest = self._held.popitem(last=False)
                self._bytes -= oldest.nbytes if oldest is not None else 0
        return table


def _added_up(batches: Iterable[pa.RecordBatch]) -> tuple[Rows | None, int]:
    """(one row for each series and resource, how many there were)"""
    sums: Rows | None = None
    waiting: list[pa.RecordBatch] = []
    read = 0

    def add() -> None:
        nonlocal sums
        rows = merge(Rows.from_arrow(pa.Table.from_batches(waiting)), EVER)
        sums = rows if sums is None else merge(concatenate([sums, rows]), EVER)
        waiting.clear()

    for batch in batches:
        waiting.append(batch)
        read += batch.num_rows
        if sum(b.num_rows for b in waiting) >= CHUNK_ROWS:
            add()
    if any(b.num_rows for b in waiting):
        add()
    return sums, read
