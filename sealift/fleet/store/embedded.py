"""The store of one machine: Parquet segments, DuckDB to query them, SQLite for what must change together.

A commit is one segment `as it arrived` (step 0) and one transaction. Maintenance folds those into 10 s rows, these into minutes and minutes into
hours, each in three scopes: "process" has everything, "fleet" knows no host and no process, "host" no series: of a process, all its operators
together, a hundredth of the rows, which is what a question by host reads. A fold's output and the mark on its input appear in one transaction, so at
any moment each point is counted exactly once: at a level, plus whatever finer segments are not folded yet. Late points need nothing special."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sealift.fleet.columns import SCHEMA, Rows, concatenate, merge
from sealift.fleet.errors import QuestionError, StoreFullError
from sealift.fleet.model import Batch, Points, Resource, SeriesKey
from sealift.fleet.patience import limited
from sealift.fleet.store import segments as files
from sealift.fleet.store import select
from sealift.fleet.store.condensed import Condensed, Range
from sealift.fleet.store.control import Control, Segment, insert_resources, insert_segments, insert_series, insert_small
from sealift.fleet.store.interface import RESOURCE_KEYS, SERIES_KEYS, Receipt, Retention, Selection, StoreInfo
from sealift.fleet.store.select import STEPS

SCOPES = ("process", "fleet", "host")
FOLD_ROWS = 2_000_000  # rows read for one fold or compaction: about 400 MB
FRESH_BYTES = 256 << 20  # of rows that have just been written and are about to be folded: what fits need not be read again
CONDENSED_BYTES = 128 << 20  # of ranges added up for the questions about them
FEW_SERIES = 4  # of which every host's rows are added up at once, rather than grouped twice
COMPACT_AT = 8  # segments of one kind and span that are worth merging


class DuckDialect:
    def json_text(self, column: str, name: str) -> str:
        path = self.quoted(f'$."{name}"')
        return f"coalesce(json_extract_string(nullif({column}, ''), {path}), '')"

    def quoted(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def sum_int(self, column: str) -> str:
        return f"CAST(sum({column}) AS BIGINT)"

    def floor_to(self, column: str, step: int) -> str:
        return f"{column} // {step} * {step}"

    def text(self, column: str) -> str:
        return f"CAST({column} AS VARCHAR)"

    def like(self, expression: str, pattern: str) -> str:
        return f"{expression} LIKE {pattern} ESCAPE '\\'"


_SPREAD = (
    "unnest(list_prepend(zero, counts)) AS n, "
    f"unnest(list_prepend({select.ZERO}::BIGINT, range(first::BIGINT, first::BIGINT + len(counts)))) AS bucket"
)


class EmbeddedStore:
    name = "embedded"

    def __init__(
        self,
        folder: Path,
        retention: Retention = Retention(),
        *,
        threads: int | None = None,
        memory_limit: str = "2GB",
        reserve_bytes: int = 64 << 20,
        max_series: int = 1_000_000,
        query_seconds: float = 30.0,
    ) -> None:
        """`reserve_bytes`: the disk's last bytes, which batches do not get, so that folding and the control file still work.
        `max_series`: further ones are counted under the operator "(overflow)"."""
        self.folder = folder
        self.retention = retention
        self._segments_folder = folder / "segments"
        self._segments_folder.mkdir(parents=True, exist_ok=True)
        self._lock_file = files.Lock(folder / "lock")
        try:
            self._control = Control(folder / "control.sqlite")
        except BaseException:
            self._lock_file.release()
            raise
        self._reserve_bytes = reserve_bytes
        self._max_series = max_series
        self._query_seconds = query_seconds
        self._state = threading.RLock()  # of the sets and lists below
        self._writing = threading.Lock()  # one commit or fold writes at a time
        self._segments = {s.name: s for s in self._control.segments()}
        self.damaged = self._recover()
        self._series: dict[int, SeriesKey] = {r[0]: SeriesKey(*r[1:]) for r in self._control.all("SELECT * FROM series")}
        self._resources: dict[int, Resource] = {r[0]: Resource(*r[2:]) for r in self._control.all("SELECT * FROM resource")}
        self._fresh: dict[str, Rows] = {}  # segment's name -> what is in it
        self._condensed = Condensed(CONDENSED_BYTES)
        self._readers = 0
        self._trash: list[str] = []
        self._small: dict[str, tuple[int, pa.Table]] = {}
        self._duck = duckdb.connect(":memory:")
        threads = threads or os.cpu_count() or 1
        temporary = folder / "temporary"
        shutil.rmtree(temporary, ignore_errors=True)
        self._duck.execute(
            f"SET threads = {threads}; SET memory_limit = '{memory_limit}'; SET temp_directory = {DuckDialect().quoted(str(temporary))}"
        )
        self._duck.execute("SET preserve_insertion_order = false; SET parquet_metadata_cache = true")  # a segment never changes
        self._pending_series, self._pending_resources = list(self._series.items()), list(self._resources.items())
        self._duck.execute(f"CREATE TABLE series (id BIGINT, {', '.join(f'{k} VARCHAR' for k in (*SERIES_KEYS, 'labels'))})")
        self._duck.execute(
            f"CREATE TABLE resource (id BIGINT, {', '.join(f'{k} VARCHAR' if k != 'pid' else 'pid BIGINT' for k in (*RESOURCE_KEYS, 'attributes'))})"
        )
        self._horizon = {int(k.rsplit("_", 1)[1]): int(v) for k, v in self._control.all("SELECT key, value FROM meta WHERE key LIKE 'horizon_%'")}
        self.committed_points = 0

    # ---- taking batches -----------------------------------------------------------------------------------------------------------

    def commit(self, batches: Sequence[Batch], now_ns: int) -> Receipt:
        with self._writing:
            if shutil.disk_usage(self.folder).free < self._reserve_bytes:
                raise StoreFullError(
                    f"{self.folder}: less than {self._reserve_bytes >> 20} MiB are free; help: free space or shorten what is kept (--keep)"
                )
            touched: set[tuple[str, str]] = set()
            try:
                return self._commit(batches, now_ns, touched)
            except BaseException:
                self._control.forget(touched)
                raise

    def _commit(self, batches: Sequence[Batch], now_ns: int, touched: set[tuple[str, str]]) -> Receipt:
        fresh: list[tuple[int, Batch]] = []
        for batch in batches:
            if batch.sequence is not None:
                sender = (batch.resource.instance, batch.signal)
                sequences = self._control.sequences(*sender)
                if sequences.has(batch.sequence, batch.digest):
                    continue
                touched.add(sender)
                sequences.add(batch.sequence, batch.digest)
            fresh.append((batch.resource.id, batch))
        if not fresh:
            return Receipt(0, len(batches), 0)
        resources = {i: b.resource for i, b in fresh if i not in self._resources}
        resources |= {r.group.id: r.group for r in resources.values() if r.group.id not in self._resources}
        series = {i: key for _, b in fresh for i, key in b.series.items() if i not in self._series}
        points = Points.concatenate([b.points for _, b in fresh])
        if len(self._series) + len(series) > self._max_series:
            points, series = self._limited(points, series)
        segments: list[Segment] = []
        rows: Rows | None = None
        if len(points):
            resource = np.repeat(np.array([i for i, _ in fresh], np.int64), [len(b.points) for _, b in fresh])
            rows = Rows.of(points, resource)
            segments.append(files.write(self._segments_folder, rows, "process", 0))
        try:
            with self._control.transaction() as connection:
                insert_segments(connection, segments)
                insert_series(connection, series.items())
                insert_resources(connection, resources.items())
                insert_small(connection, fresh, now_ns // 10**9)
                connection.executemany(
                    "INSERT INTO sender (instance) VALUES (?) ON CONFLICT DO NOTHING", [(instance,) for instance in {i for i, _ in touched}]
                )
                for signal in {signal for _, signal in touched}:
                    connection.executemany(
                        f"UPDATE sender SET {signal} = ? WHERE instance = ?",
                        [(self._control.sequences(i, s).text(), i) for i, s in touched if s == signal],
                    )
        except BaseException:
            for segment in segments:
                (self._segments_folder / segment.name).unlink(missing_ok=True)
            raise
        with self._state:
            for segment in segments:
                self._add_arrived(segment, rows)
            self._series |= series
            self._resources |= resources
            self._pending_series += series.items()
            self._pending_resources += resources.items()
            self.committed_points += len(points)
        return Receipt(len(fresh), len(batches) - len(fresh), len(points))

    def append_rows(self, rows: Rows) -> None:
        """Rows of known series and resources as one segment, for bulk loads; a repetition is not recognised."""
        with self._writing:
            segment = files.write(self._segments_folder, rows, "process", 0)
            with self._control.transaction() as connection:
                insert_segments(connection, [segment])
            with self._state:
                self._add_arrived(segment, rows)

    def _add_arrived(self, segment: Segment, rows: Rows | None) -> None:
        self._segments[segment.name] = segment
        if rows is not None and rows.size_bytes + sum(r.size_bytes for r in self._fresh.values()) <= FRESH_BYTES:
            self._fresh[segment.name] = rows

    def _limited(self, points: Points, series: Mapping[int, SeriesKey]) -> tuple[Points, dict[int, SeriesKey]]:
        room = max(self._max_series - len(self._series), 0)
        kept = dict(list(series.items())[:room])
        overflow = SeriesKey("(overflow)")
        over = np.array([i for i in series if i not in kept], np.int64)
        if overflow.id not in self._series:
            kept[overflow.id] = overflow
        return replace(points, series=np.where(np.isin(points.series, over), overflow.id, points.series)), kept

    # ---- questions ----------------------------------------------------------------------------------------------------------------

    def totals(self, selection: Selection) -> pa.Table:
        return self._ask(selection, lambda parts: select.totals(selection, parts, DuckDialect()))

    def buckets(self, selection: Selection) -> pa.Table:
        table = self._ask(replace(selection, quantiles=True), lambda parts: select.buckets(selection, parts, DuckDialect(), _SPREAD))
        return table.filter(pc.greater(table.column("n"), 0))

    def present(self, selection: Selection) -> pa.Table:
        return self._ask(selection, lambda parts: select.present(selection, parts, DuckDialect()))

    def _ask(self, selection: Selection, sql: Any) -> pa.Table:
        with self._reading() as cursor:
            try:
                with limited(self._query_seconds, cursor.interrupt):
                    table = cursor.sql(sql(self._parts(selection, cursor))).to_arrow_table()
            except (duckdb.InterruptException, OSError) as error:
                if isinstance(error, OSError) and "INTERRUPT" not in str(error):  # a stream that is interrupted raises pyarrow's kind
                    raise
                raise QuestionError(f"no answer within {self._query_seconds:g} s; help: a shorter time range or fewer keys") from None
        return table.rename_columns([name.removeprefix("k_") for name in table.column_names])

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor over the dictionaries as they are now; the files named meanwhile stay until the last reader is done."""
        with self._state:
            self._readers += 1
            self._load_dictionaries()
            cursor = self._duck.cursor()
        try:
            yield cursor
        finally:
            cursor.close()
            with self._state:
                self._readers -= 1
                self._empty_trash()

    def _load_dictionaries(self) -> None:
        for name, columns, pending in (
            ("series", ("id", *SERIES_KEYS, "labels"), self._pending_series),
            ("resource", ("id", *RESOURCE_KEYS, "attributes"), self._pending_resources),
        ):
            if pending:
                values = list(zip(*((i, *key) for i, key in pending)))
                table = pa.table({c: pa.array(v, pa.int64() if c in ("id", "pid") else pa.string()) for c, v in zip(columns, values)})
                self._duck.register("arriving", table)
                self._duck.execute(f"INSERT INTO {name} SELECT * FROM arriving")
                self._duck.unregister("arriving")
                pending.clear()

    def _parts(self, selection: Selection, cursor: duckdb.DuckDBPyConnection) -> list[select.Part]:
        scope = "fleet" if not selection.needs_processes else "process" if selection.needs_series else "host"
        condensing, series = self._condensing(selection, scope, cursor)
        parts = []
        with self._state:
            segments = list(self._segments.values())
        for start, end, step in select.split(selection, self._horizon):
            names = [
                s.name
                for s in segments
                if s.time_min < end
                and s.time_max > start
                and (s.step_s == 0 or (s.scope == scope and (s.step_s == step or (s.step_s < step and not s.folded))))
            ]
            if not names:
                continue
            wanted = Range(tuple(sorted(names)), start, end, series)
            table = self._added_up(wanted, condensing == "make", cursor) if condensing else None
            if table is None:
                parts.append(select.Part(self._source(names), start, end))
            else:
                cursor.register(f"condensed_{len(parts)}", table)
                parts.append(select.Part(f"condensed_{len(parts)}", 0, select.EVER_S))
        return parts or [select.Part(self._source([]), 0, 1)]

    def _condensing(self, selection: Selection, scope: str, cursor: duckdb.DuckDBPyConnection) -> tuple[str, tuple[int, ...] | None]:
        """Whether the selection's ranges are added up first ("make"), are used if they have been ("use"), or neither (""); and of which series."""
        if selection.step_s:
            return "", None
        make = "make" if selection.quantiles else "use"
        if scope != "process":
            return make, None
        condition = select.series_condition(selection, DuckDialect())
        if not condition:
            return "", None
        ids = [i for (i,) in cursor.execute(f"SELECT id FROM series WHERE {condition} ORDER BY id LIMIT {FEW_SERIES + 1}").fetchall()]
        if not 0 < len(ids) <= FEW_SERIES:
            return "", None
        # Of few processes the rows themselves are fewer than all processes' sums.
        return make if not select.names_processes(selection) else "use", tuple(ids)

    def _added_up(self, wanted: Range, make: bool, cursor: duckdb.DuckDBPyConnection) -> pa.Table | None:
        if wanted in self._condensed or not make:
            return self._condensed.get(wanted)
        listed = f" AND series IN ({', '.join(map(str, wanted.series))})" if wanted.series else ""
        columns = ", ".join(f.name for f in SCHEMA)
        where = f"time_s >= {wanted.start_s} AND time_s < {wanted.end_s}{listed}"
        found = cursor.sql(f"SELECT {columns} FROM {self._source(wanted.segments)} WHERE {where}")
        return self._condensed.keep(wanted, found.to_arrow_reader(65_536))

    def _source(self, names: Sequence[str]) -> str:
        if not names:
            columns = ", ".join(f"NULL::{_DUCK_TYPES.get(f.name, 'BIGINT')} AS {f.name}" for f in SCHEMA)
            return f"(SELECT {columns} WHERE false) AS nothing"
        return f"read_parquet([{', '.join(DuckDialect().quoted(str(self._segments_folder / n)) for n in names)}])"

    def processes(self) -> pa.Table:
        sql = """SELECT instance, service, version, host, pid, container, attributes, min(first_s), max(last_s), sum(dropped), sum(overflow),
                 max(overhead) FROM process JOIN resource ON resource.id = process.resource GROUP BY 1, 2, 3, 4, 5, 6, 7"""
        texts = ("instance", "service", "version", "host", "pid", "container", "attributes")
        return self._small_table("processes", sql, (*texts, "first_s", "last_s", "dropped", "overflow", "overhead"))

    def api_uses(self) -> pa.Table:
        sql = "SELECT service, version, host, instance, key, first_ns, last_ns, count FROM api_use JOIN resource ON resource.id = api_use.resource"
        return self._small_table("api_uses", sql, ("service", "version", "host", "instance", "key", "first_ns", "last_ns", "count"))

    def model_events(self) -> pa.Table:
        mine = ("kind", "time_ns", "model", "digest", "serialization_id", "path", "format", "producer", "signed")
        names = (*mine, "attributes", "service", "version", "host", "instance")
        sql = f"""SELECT {", ".join(mine)}, model_event.attributes, service, version, host, instance
                  FROM model_event JOIN resource ON resource.id = model_event.resource ORDER BY time_ns, instance, kind, digest, path"""
        return self._small_table("model_events", sql, names)

    def _small_table(self, name: str, sql: str, columns: Sequence[str]) -> pa.Table:
        version = self._control.changes
        held = self._small.get(name)
        if held is None or held[0] != version:
            rows = list(zip(*self._control.all(sql))) or [()] * len(columns)
            held = self._small[name] = (version, pa.table({c: pa.array(v, _small_type(c)) for c, v in zip(columns, rows)}))
        return held[1]

    def time_range(self) -> tuple[int, int]:
        with self._state:
            found = list(self._segments.values())
        return (min(s.time_min for s in found), max(s.time_max for s in found)) if found else (0, 0)

    def sql(self, text: str, limit: int, timeout_s: float) -> pa.Table:
        from sealift.fleet.store.sandbox import answer

        with self._reading():
            with self._state:
                names = list(self._segments.values())
            views = {
                name: self._source(
                    [s.name for s in names if s.step_s == 0 or (s.scope == "process" and (s.step_s == step or (s.step_s < step and not s.folded)))]
                )
                for name, step in (("points", 10), ("minutes", 60), ("hours", 3600))
            }
            series = pa.table({"id": pa.array(list(self._series), pa.int64())} | _columns((*SERIES_KEYS, "labels"), list(self._series.values())))
            resources = pa.table(
                {"id": pa.array(list(self._resources), pa.int64())} | _columns((*RESOURCE_KEYS, "attributes"), list(self._resources.values()))
            )
            tables = {
                "series": series,
                "resource": resources,
                "processes": self.processes(),
                "api_uses": self.api_uses(),
                "model_events": self.model_events(),
            }
            return answer(text, views, tables, self._segments_folder, limit, timeout_s)

    # ---- housekeeping -------------------------------------------------------------------------------------------------------------

    def maintain(self, now_ns: int, expire_ns: int | None = None) -> Mapping[str, int]:
        done: dict[str, int] = defaultdict(int)
        now_s = now_ns // 10**9
        while self._fold_arrived():
            done["folds"] += 1
        for finer, coarser, wait in ((10, 60, 90), (60, 3600, 600)):
            while self._fold(finer, coarser, now_s - wait):
                done["folds"] += 1
        while self._compact():
            done["compactions"] += 1
        done["dropped"] += self._expire(now_s if expire_ns is None else expire_ns // 10**9)
        with self._state:
            self._empty_trash()
        return dict(done)

    def _taken(self, wanted: Sequence[Segment]) -> list[Segment]:
        """As many of them, oldest first, as one fold reads."""
        taken, rows = list[Segment](), 0
        for segment in sorted(wanted, key=lambda s: (s.time_min, s.name)):
            if taken and rows + segment.rows > FOLD_ROWS:
                break
            taken.append(segment)
            rows += segment.rows
        return taken

    def _chosen(self, scope: str, step_s: int, folded: bool | None = None) -> list[Segment]:
        with self._state:
            return [s for s in self._segments.values() if s.step_s == step_s and s.scope == scope and folded in (None, s.folded)]

    def _fold_arrived(self) -> bool:
        taken = self._taken(self._chosen("process", 0))
        if not taken:
            return False
        with self._state:
            fresh = {s.name: self._fresh[s.name] for s in taken if s.name in self._fresh}
        parts = [fresh[s.name] if s.name in fresh else files.read(self._segments_folder, [s]) for s in taken]
        processes = merge(concatenate(parts), 10)
        with self._state:
            group_of = {i: self._resources[i].group.id for i in np.unique(processes.columns["resource"]).tolist()}
        fleet, hosts = merge(processes, 10, group_of), merge(processes.of_one_series(), 10)
        self._replace(taken, [("process", 10, processes), ("fleet", 10, fleet), ("host", 10, hosts)], keep=False)
        return True

    def _fold(self, finer: int, coarser: int, until_s: int) -> bool:
        for scope in SCOPES:
            ready = [s for s in self._chosen(scope, finer, folded=False) if s.time_max <= until_s]
            if ready:
                taken = self._taken(ready)
                self._replace(taken, [(scope, coarser, merge(files.read(self._segments_folder, taken), coarser))], keep=True)
                return True
        return False

    def _compact(self) -> bool:
        groups: dict[tuple[str, int, bool, int], list[Segment]] = defaultdict(list)
        with self._state:
            for s in self._segments.values():
                if s.step_s and s.rows < FOLD_ROWS // 2:
                    groups[s.scope, s.step_s, s.folded, s.time_min // files.SPAN_S[s.step_s]].append(s)
        for (scope, step, folded, _), found in groups.items():
            if len(found) >= COMPACT_AT:
                taken = self._taken(sorted(found, key=lambda s: s.rows)[: 8 * COMPACT_AT])
                if len(taken) < 2:
                    continue
                merged = merge(files.read(self._segments_folder, taken), step)
                self._replace(taken, [(scope, step, merged)], keep=False, folded=folded)
                return True
        return False

    def _replace(self, inputs: Sequence[Segment], outputs: Sequence[tuple[str, int, Rows]], *, keep: bool, folded: bool = False) -> None:
        """In one transaction: the outputs appear, and the inputs go or, with `keep`, are marked as folded. A segment that holds more than one
        fold's rows was written by an older release or by hand and goes through in one piece."""
        written: list[Segment] = []
        try:
            for scope, step, rows in outputs:
                written += files.write_split(self._segments_folder, rows, scope, step)
            written = [replace(s, folded=folded) for s in written]
            names = [(s.name,) for s in inputs]
            with self._control.transaction() as connection:
                insert_segments(connection, written)
                connection.executemany("UPDATE segment SET folded = 1 WHERE name = ?" if keep else "DELETE FROM segment WHERE name = ?", names)
        except BaseException:
            for segment in written:
                (self._segments_folder / segment.name).unlink(missing_ok=True)
            raise
        with self._state:
            self._segments |= {s.name: s for s in written}
            for segment in inputs:
                if keep:
                    self._segments[segment.name] = replace(segment, folded=True)
                else:
                    del self._segments[segment.name]
                    self._fresh.pop(segment.name, None)
                    self._trash.append(segment.name)

    def _expire(self, now_s: int) -> int:
        dropped: list[Segment] = []
        horizons: dict[int, int] = {}
        for step in STEPS:
            keep = self.retention.of(step)
            if keep is None:
                continue
            with self._state:
                old = [s for s in self._segments.values() if s.step_s == step and s.time_max <= now_s - keep and (s.folded or step == STEPS[-1])]
            if old:
                dropped += old
                horizons[step] = max(self._horizon.get(step, 0), max(s.time_max for s in old))
        if dropped:
            with self._control.transaction() as connection:
                connection.executemany("DELETE FROM segment WHERE name = ?", [(s.name,) for s in dropped])
                connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(f"horizon_{k}", str(v)) for k, v in horizons.items()])
            with self._state:
                self._horizon |= horizons
                for segment in dropped:
                    del self._segments[segment.name]
                    self._trash.append(segment.name)
        if self.retention.keep_processes is not None:
            self._forget_processes(now_s - self.retention.keep_processes)
        return len(dropped)

    def _forget_processes(self, before_s: int) -> None:
        old = self._control.all("SELECT resource FROM process WHERE last_s < ? LIMIT 10000", (before_s,))
        if not old:
            return
        with self._writing, self._control.transaction() as connection:
            instances = [r for (i,) in old for r in connection.execute("SELECT instance FROM resource WHERE id = ?", (i,))]
            for table in ("process", "api_use", "model_event"):
                connection.executemany(f"DELETE FROM {table} WHERE resource = ?", old)
            connection.executemany("DELETE FROM sender WHERE instance = ?", instances)
            self._control.forget([(i, signal) for (i,) in instances for signal in ("metrics", "logs")])

    def _empty_trash(self) -> None:
        if not self._readers:
            for name in self._trash:
                (self._segments_folder / name).unlink(missing_ok=True)
            self._trash.clear()

    def _recover(self) -> int:
        """After a crash: files that no transaction named go; named files that are not whole are set aside and no longer counted."""
        for path in self._segments_folder.iterdir():
            if path.is_file() and path.name not in self._segments:
                path.unlink()
        damaged = [s for s in self._segments.values() if not files.is_whole(self._segments_folder / s.name, s.size_bytes)]
        if damaged:
            aside = self.folder / "damaged"
            aside.mkdir(exist_ok=True)
            with self._control.transaction() as connection:
                connection.executemany("DELETE FROM segment WHERE name = ?", [(s.name,) for s in damaged])
            for segment in damaged:
                if (self._segments_folder / segment.name).exists():
                    os.replace(self._segments_folder / segment.name, aside / segment.name)
                del self._segments[segment.name]
        return len(damaged)

    def info(self) -> StoreInfo:
        with self._state:
            found = list(self._segments.values())
            figures: dict[str, float] = {
                "store_segments": len(found),
                "store_bytes": sum(s.size_bytes for s in found),
                "store_series": len(self._series),
                "store_resources": len(self._resources),
                "store_damaged_segments": self.damaged,
                "store_disk_free_bytes": shutil.disk_usage(self.folder).free,
            }
            for step in (0, *STEPS):
                figures[f"store_rows_{step}s"] = sum(s.rows for s in found if s.step_s == step and s.scope == "process")
        return StoreInfo(figures)

    def close(self) -> None:
        end = time.monotonic() + self._query_seconds
        while self._readers and time.monotonic() < end:  # a question under way is answered first
            time.sleep(0.01)
        with self._writing, self._state:
            self._empty_trash()
            with contextlib.suppress(duckdb.Error):  # one that is still running keeps its own connection
                self._duck.close()
            self._control.close()
            self._lock_file.release()


_DUCK_TYPES = {"counts": "BIGINT[]", "first": "SMALLINT", "count_var": "DOUBLE", "total_var": "DOUBLE"}
_TEXTS = {"key", "kind", "model", "digest", "serialization_id", "path", "format", "producer", "signed", "attributes", *RESOURCE_KEYS} - {"pid"}


def _small_type(column: str) -> pa.DataType:
    return pa.string() if column in _TEXTS else pa.float64() if column == "overhead" else pa.int64()


def _columns(names: Sequence[str], keys: Sequence[tuple[Any, ...]]) -> dict[str, pa.Array]:
    values = list(zip(*keys)) or [()] * len(names)
    return {n: pa.array(v, pa.int64() if n == "pid" else pa.string()) for n, v in zip(names, values)}
