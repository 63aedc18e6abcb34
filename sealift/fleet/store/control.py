"""The embedded store's control file, in SQLite: which segments count, which batches have been counted, and all that is small.

One transaction makes a commit whole: the segment's name, the numbers of its batches, new series and resources, and the events all appear
together or not at all. A segment file that no row names does not exist."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealift.fleet.errors import StoreDamagedError, StoreFullError
from sealift.fleet.model import Batch, Resource, SeriesKey

VERSION = 2
_RECENT = 64  # sequence numbers below the highest of which the parts' digests are remembered; what is older was counted or is lost
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segment (name TEXT PRIMARY KEY, scope TEXT, step_s INTEGER, folded INTEGER, time_min INTEGER, time_max INTEGER,
  rows INTEGER, bytes INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, operator TEXT, source TEXT, scope TEXT, model TEXT, shapes TEXT, origin TEXT, labels TEXT);
CREATE TABLE IF NOT EXISTS resource (id INTEGER PRIMARY KEY, grouped INTEGER, service TEXT, version TEXT, host TEXT, instance TEXT, pid INTEGER,
  container TEXT, attributes TEXT);
CREATE TABLE IF NOT EXISTS sender (instance TEXT PRIMARY KEY, metrics TEXT, logs TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS process (resource INTEGER PRIMARY KEY, first_s INTEGER, last_s INTEGER, dropped INTEGER, overflow INTEGER, overhead REAL);
CREATE TABLE IF NOT EXISTS api_use (resource INTEGER, key TEXT, first_ns INTEGER, last_ns INTEGER, count INTEGER,
  PRIMARY KEY (resource, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS model_event (id INTEGER PRIMARY KEY, resource INTEGER, kind TEXT, time_ns INTEGER, model TEXT, digest TEXT,
  serialization_id TEXT, path TEXT, format TEXT, producer TEXT, signed TEXT, attributes TEXT);
"""


@dataclass(frozen=True)
class Segment:
    """A Parquet file. `step_s`: 0 as it arrived, else the roll-up's step. `folded`: its rows are in the next coarser roll-up, too."""

    name: str
    scope: str  # "process" | "fleet" | "host", as embedded.py has them
    step_s: int
    folded: bool
    time_min: int  # start of the first slot
    time_max: int  # end of the last
    rows: int
    size_bytes: int


class Sequences:
    """Which batches of one sender and signal have been counted: all up to `floor`, and above it those named with the digests of their parts.

    Parts: a relay between may cut one batch in two; both carry its number, and both count, once each."""

    __slots__ = ("floor", "recent")

    def __init__(self, text: str | None = None) -> None:
        value = json.loads(text) if text else {}
        self.floor: int = value.get("floor", -1)
        self.recent: dict[int, list[int]] = {int(k): v for k, v in value.get("recent", {}).items()}

    def has(self, sequence: int, digest: int) -> bool:
        return sequence <= self.floor or digest in self.recent.get(sequence, ())

    def add(self, sequence: int, digest: int) -> None:
        self.recent.setdefault(sequence, []).append(digest)
        while len(self.recent) > _RECENT:
            lowest = min(self.recent)
            self.floor = max(self.floor, lowest)
            del self.recent[lowest]

    def text(self) -> str:
        return json.dumps({"floor": self.floor, "recent": self.recent}, separators=(",", ":"))


class Control:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
            self._connection.executescript(_SCHEMA)
            found = self._connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        except sqlite3.DatabaseError as error:
            raise StoreDamagedError(
                f"{path}: {error}; help: move the store aside and start an empty one, or restore it from a copy", code="E-FLEET-002"
            ) from None
        if found is None:
            self._connection.execute("INSERT INTO meta VALUES ('version', ?)", (str(VERSION),))
        elif found[0] != str(VERSION):
            raise StoreDamagedError(f"{path} is of version {found[0]}, this sealift reads {VERSION}; help: use the sealift that wrote it")
        self._senders: dict[tuple[str, str], Sequences] = {}
        self.changes = 0  # counts commits of the small tables, so that readers know when to load them anew

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
                self.changes += 1
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and ("full" in str(error) or "I/O" in str(error)):
                    raise StoreFullError(f"{self.path}: {error}; help: free space or shorten what is kept") from None
                raise

    def all(self, sql: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(sql, arguments).fetchall()

    def sequences(self, instance: str, signal: str) -> Sequences:
        """The caller may change what it gets only within the transaction that writes it; `forget` undoes it."""
        key = (instance, signal)
        found = self._senders.get(key)
        if found is None:
            row = self.all(f"SELECT {signal} FROM sender WHERE instance = ?", (instance,))
            found = self._senders[key] = Sequences(row[0][0] if row else None)
        return found

    def forget(self, senders: Iterable[tuple[str, str]]) -> None:
        for key in senders:
            self._senders.pop(key, None)

    def segments(self) -> list[Segment]:
        rows = self.all("SELECT name, scope, step_s, folded, time_min, time_max, rows, bytes FROM segment")
        return [Segment(r[0], r[1], r[2], bool(r[3]), *r[4:]) for r in rows]

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def insert_segments(connection: sqlite3.Connection, segments: Iterable[Segment]) -> None:
    connection.executemany(
        "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(s.name, s.scope, s.step_s, int(s.folded), s.time_min, s.time_max, s.rows, s.size_bytes) for s in segments],
    )


def insert_series(connection: sqlite3.Connection, series: Iterable[tuple[int, SeriesKey]]) -> None:
    connection.executemany("INSERT OR IGNORE INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [(i, *key) for i, key in series])


def insert_resources(connection: sqlite3.Connection, resources: Iterable[tuple[int, Resource]]) -> None:
    connection.executemany("INSERT OR IGNORE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [(i, r.group.id, *r) for i, r in resources])


def insert_small(connection: sqlite3.Connection, batches: Sequence[tuple[int, Batch]], now_s: int) -> None:
    """`batches` with their resource's number: what they say of their process, of APIs and of model files."""
    connection.executemany(
        """INSERT INTO process VALUES (?1, ?2, ?2, ?3, ?4, ?5) ON CONFLICT (resource) DO UPDATE SET last_s = max(last_s, ?2),
           dropped = dropped + ?3, overflow = overflow + ?4, overhead = coalesce(?5, overhead)""",
        [(resource, now_s, b.meters.dropped, b.meters.overflow, b.meters.overhead) for resource, b in batches],
    )
    uses = [(resource, use.key, use.time_ns) for resource, b in batches for use in b.api_uses]
    if uses:
        connection.executemany(
            """INSERT INTO api_use VALUES (?1, ?2, ?3, ?3, 1) ON CONFLICT (resource, key) DO UPDATE SET first_ns = min(first_ns, ?3),
               last_ns = max(last_ns, ?3), count = count + 1""",
            uses,
        )
    events = [(None, resource, *event) for resource, b in batches for event in b.model_events]
    if events:
        connection.executemany("INSERT INTO model_event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", events)
