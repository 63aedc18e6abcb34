"""The store of a cluster: ClickHouse, through clickhouse-connect. Any number of collectors write into one database.

A commit is one INSERT into `arrival`, one block, so it is there whole or not; its rows carry the numbers of their batches, which is how a batch
is recognised when it comes again, through whichever collector. Materialised views keep the roll-ups, AggregatingMergeTree with sums and sumMap.
The INSERT carries a deduplication token, so that trying it again after an answer that was lost changes nothing, in the views neither."""

from __future__ import annotations

import secrets
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sealift.fleet.columns import SUMMED, Rows
from sealift.fleet.errors import MissingExtraError, QuestionError, StoreDamagedError, StoreFullError, UnreachableError
from sealift.fleet.model import Batch, Points, stable_id
from sealift.fleet.store import select
from sealift.fleet.store.interface import RESOURCE_KEYS, SERIES_KEYS, Receipt, Retention, Selection, StoreInfo
from sealift.fleet.store.select import STEPS

VERSION = 1
_TRIES = 3
_NUMBERS = {c: "Float64" if c.endswith("_var") else "Int64" for c in SUMMED}
_EVENT = ("kind", "time_ns", "model", "digest", "serialization_id", "path", "format", "producer", "signed", "attributes")


def migrations(retention: Retention) -> list[str]:
    """Statements from an empty database to VERSION; each can be run again."""
    plain = ", ".join(f"{c} {t}" for c, t in _NUMBERS.items())
    summed = ", ".join(f"{c} SimpleAggregateFunction(sum, {t})" for c, t in _NUMBERS.items())
    dedup = "non_replicated_deduplication_window = 1000"
    texts = ", ".join(f"{k} LowCardinality(String)" for k in SERIES_KEYS)
    resource = ", ".join(f"{k} {'Int64' if k == 'pid' else 'String'}" for k in RESOURCE_KEYS)
    events = ", ".join(f"{c} {'Int64' if c == 'time_ns' else 'String'}" for c in _EVENT)
    statements = [
        "CREATE TABLE IF NOT EXISTS meta (key String, value String) ENGINE = ReplacingMergeTree ORDER BY key",
        f"CREATE TABLE IF NOT EXISTS series_row (id Int64, {texts}, labels String) ENGINE = ReplacingMergeTree ORDER BY id",
        f"CREATE TABLE IF NOT EXISTS resource_row (id Int64, {resource}, attributes String) ENGINE = ReplacingMergeTree ORDER BY id",
        "CREATE VIEW IF NOT EXISTS series AS SELECT * FROM series_row FINAL",
        "CREATE VIEW IF NOT EXISTS resource AS SELECT * FROM resource_row FINAL",
        f"""CREATE TABLE IF NOT EXISTS arrival (time_s Int64, series Int64, resource Int64, grouped Int64, {plain}, buckets Map(Int16, Int64),
            instance String, signal LowCardinality(String), sequence Int64, digest Int64, arrived_s Int64)
            ENGINE = MergeTree ORDER BY (instance, signal, sequence) TTL toDateTime(arrived_s) + INTERVAL 2 DAY SETTINGS {dedup}""",
        """CREATE TABLE IF NOT EXISTS batch (instance String, signal LowCardinality(String), sequence Int64, digest Int64,
            resource Int64, arrived_s Int64, dropped Int64, overflow Int64, overhead Nullable(Float64))
            ENGINE = ReplacingMergeTree ORDER BY (instance, signal, sequence, digest) TTL toDateTime(arrived_s) + INTERVAL 30 DAY""",
        """CREATE TABLE IF NOT EXISTS process (resource Int64, first_s SimpleAggregateFunction(min, Int64),
            last_s SimpleAggregateFunction(max, Int64), dropped SimpleAggregateFunction(sum, Int64),
            overflow SimpleAggregateFunction(sum, Int64),
            overhead SimpleAggregateFunction(max, Nullable(Float64)))
            ENGINE = AggregatingMergeTree ORDER BY resource""",
        """CREATE MATERIALIZED VIEW IF NOT EXISTS process_of_batch TO process AS
            SELECT resource, min(arrived_s) AS first_s, max(arrived_s) AS last_s, sum(b.dropped) AS dropped, sum(b.overflow) AS overflow,
            max(b.overhead) AS overhead FROM batch AS b GROUP BY resource""",
        """CREATE TABLE IF NOT EXISTS api_use (resource Int64, key String, first_ns SimpleAggregateFunction(min, Int64),
            last_ns SimpleAggregateFunction(max, Int64), count SimpleAggregateFunction(sum, Int64))
            ENGINE = AggregatingMergeTree ORDER BY (resource, key)""",
        f"""CREATE TABLE IF NOT EXISTS model_event (id Int64, resource Int64, {events})
            ENGINE = ReplacingMergeTree ORDER BY id""",
    ]
    for step in STEPS:
        keep = retention.of(step)
        span = 32 * 86_400 if step == 3600 else 86_400
        ttl = f"TTL toDateTime(time_s) + INTERVAL {keep} SECOND" if keep else ""
        for scope, column in (("process", "resource"), ("fleet", "grouped")):
            name = f"{scope}_{step}"
            statements += [
                f"""CREATE TABLE IF NOT EXISTS {name} (time_s Int64, series Int64, resource Int64, {summed},
                    buckets SimpleAggregateFunction(sumMap, Map(Int16, Int64))) ENGINE = AggregatingMergeTree
                    PARTITION BY intDiv(time_s, {span}) ORDER BY (series, time_s, resource) {ttl} SETTINGS {dedup}""",
                f"""CREATE MATERIALIZED VIEW IF NOT EXISTS {name}_of_arrival TO {name} AS
                    SELECT intDiv(a.time_s, {step}) * {step} AS time_s, a.series AS series,
                    a.{column} AS resource, {", ".join(f"sum(a.{c}) AS {c}" for c in SUMMED)}, sumMap(a.buckets) AS buckets
                    FROM arrival AS a GROUP BY time_s, series, resource""",
            ]
    for view, step in (("points", 10), ("minutes", 60), ("hours", 3600)):
        statements.append(f"CREATE VIEW IF NOT EXISTS {view} AS SELECT * FROM process_{step}")
    statements.append(f"INSERT INTO meta VALUES ('version', '{VERSION}')")
    return statements


class ClickHouseDialect:
    def json_text(self, column: str, name: str) -> str:
        return f"JSONExtractString({column}, {self.quoted(name)})"

    def quoted(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def sum_int(self, column: str) -> str:
        return f"toInt64(sum({column}))"

    def floor_to(self, column: str, step: int) -> str:
        return f"intDiv({column}, {step}) * {step}"

    def text(self, column: str) -> str:
        return f"toString({column})"

    def like(self, expression: str, pattern: str) -> str:
        return f"{expression} LIKE {pattern}"


_SPREAD = (
    f"arrayJoin(arrayConcat([(toInt64({select.ZERO}), toInt64(zero))], "
    "arrayMap((k, v) -> (toInt64(k), toInt64(v)), mapKeys(buckets), mapValues(buckets)))) AS pair, pair.1 AS bucket, pair.2 AS n"
)


class ClickHouseStore:
    name = "clickhouse"

    def __init__(self, client: Any, retention: Retention = Retention()) -> None:
        """`client`: clickhouse_connect's. Brings the database to VERSION."""
        self._client = client
        self.retention = retention
        self._settings = {"prefer_column_name_to_alias": 1}
        self._known: set[int] = set()  # series and resources that are in the database
        tables = client.query("SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = 'meta'").result_rows
        version = client.query("SELECT max(toInt64(value)) FROM meta WHERE key = 'version'").result_rows[0][0] if tables[0][0] else 0
        if version > VERSION:
            raise StoreDamagedError(f"the database is of version {version}, this sealift reads {VERSION}; help: use the sealift that wrote it")
        if version < VERSION:
            for statement in migrations(retention):
                client.command(statement)
        self.committed_points = 0

    @classmethod
    def connect(cls, url: str, retention: Retention = Retention()) -> ClickHouseStore:
        """`clickhouse://user:password@host:8123/database`; clickhouses:// for TLS."""
        try:
            import clickhouse_connect
        except ImportError as error:
            raise MissingExtraError(f"{error}; help: pip install 'sealift[fleet-clickhouse]'") from None
        parts = urllib.parse.urlsplit(url)
        try:
            client = clickhouse_connect.get_client(
                host=parts.hostname or "127.0.0.1",
                port=parts.port or (8443 if parts.scheme == "clickhouses" else 8123),
                username=urllib.parse.unquote(parts.username or "default"),
                password=urllib.parse.unquote(parts.password or ""),
                database=parts.path.strip("/") or "default",
                secure=parts.scheme == "clickhouses",
                autogenerate_session_id=False,  # sessions serialise, and collectors ask in parallel
            )
        except Exception as error:
            raise UnreachableError(f"{parts.hostname}:{parts.port or 8123}: {_short(error)}; help: is that a ClickHouse's HTTP port?") from None
        return cls(client, retention)

    # ---- taking batches

    def commit(self, batches: Sequence[Batch], now_ns: int) -> Receipt:
        fresh = self._fresh(batches)
        if fresh:
            now_s = now_ns // 10**9
            self._dictionaries(fresh)
            self._arrive(fresh, now_s)
            self._small(fresh, now_s)
        points = sum(len(b.points) for b in fresh)
        self.committed_points += points
        return Receipt(len(fresh), len(batches) - len(fresh), points)

    def _fresh(self, batches: Sequence[Batch]) -> list[Batch]:
        senders = sorted({b.resource.instance for b in batches if b.sequence is not None})
        seen: set[tuple[Any, ...]] = set()
        if senders:
            listed = ", ".join(ClickHouseDialect().quoted(s) for s in senders)
            lowest = min(b.sequence for b in batches if b.sequence is not None)
            where = f"WHERE instance IN ({listed}) AND sequence >= {lowest}"
            columns = "instance, signal, sequence, digest"
            rows = self._query(f"SELECT DISTINCT {columns} FROM arrival {where} UNION ALL SELECT {columns} FROM batch {where}").to_pylist()
            seen = {tuple(r.values()) for r in rows}
        fresh = []
        for b in batches:
            key = (b.resource.instance, b.signal, b.sequence, b.digest)
            if b.sequence is None or key not in seen:
                seen.add(key)
                fresh.append(b)
        return fresh

    def _dictionaries(self, fresh: Sequence[Batch]) -> None:
        series = {i: key for b in fresh for i, key in b.series.items() if i not in self._known}
        resources = {r.id: r for b in fresh for r in (b.resource, b.resource.group) if r.id not in self._known}
        for name, columns, found in (("series_row", (*SERIES_KEYS, "labels"), series), ("resource_row", (*RESOURCE_KEYS, "attributes"), resources)):
            if found:
                values = list(zip(*found.values()))  # type: ignore[call-overload]
                arrays = {c: pa.array(v, pa.int64() if c == "pid" else pa.string()) for c, v in zip(columns, values)}
                self._insert(name, pa.table({"id": pa.array(list(found), pa.int64()), **arrays}))
                self._known |= set(found)

    def _arrive(self, fresh: Sequence[Batch], now_s: int) -> None:
        holding = [b for b in fresh if len(b.points)]
        if not holding:
            return
        sizes = [len(b.points) for b in holding]

        def spread(values: Sequence[Any]) -> Any:
            return np.repeat(np.array(values, dtype=np.int64), sizes)

        rows = Rows.of(Points.concatenate([b.points for b in holding]), spread([b.resource.id for b in holding]))
        index = np.repeat(rows.columns["first"] - rows.offsets[:-1], np.diff(rows.offsets)) + np.arange(len(rows.counts))
        maps = pa.MapArray.from_arrays(pa.array(rows.offsets.astype(np.int32)), pa.array(index.astype(np.int16)), pa.array(rows.counts))
        place = np.repeat(np.arange(len(holding)), sizes)
        table = {
            "time_s": rows.columns["time_s"],
            "series": rows.columns["series"],
            "resource": rows.columns["resource"],
            "grouped": spread([b.resource.group.id for b in holding]),
            **{c: rows.columns[c] for c in SUMMED},
            "buckets": maps,
            "instance": pa.array([b.resource.instance for b in holding]).take(pa.array(place)),
            "signal": pa.array(["metrics"] * len(place)),
            "sequence": spread([-1 if b.sequence is None else b.sequence for b in holding]),
            "digest": spread([b.digest for b in holding]),
            "arrived_s": np.full(len(place), now_s),
        }
        self._insert("arrival", pa.table(table))

    def _small(self, fresh: Sequence[Batch], now_s: int) -> None:
        uses = [(b.resource.id, u.key, u.time_ns, u.time_ns, 1) for b in fresh for u in b.api_uses]
        self._insert_rows("api_use", ("resource", "key", "first_ns", "last_ns", "count"), uses)
        events = [(stable_id(str(b.resource.id), *map(str, e)), b.resource.id, *e) for b in fresh for e in b.model_events]
        self._insert_rows("model_event", ("id", "resource", *_EVENT), events)
        batches = [
            (
                b.resource.instance,
                b.signal,
                -1 if b.sequence is None else b.sequence,
                b.digest,
                b.resource.id,
                now_s,
                b.meters.dropped,
                b.meters.overflow,
                b.meters.overhead,
            )
            for b in fresh
        ]
        names = ("instance", "signal", "sequence", "digest", "resource", "arrived_s", "dropped", "overflow", "overhead")
        self._insert_rows("batch", names, batches)

    def _insert_rows(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._insert(table, pa.table({c: pa.array(v, _type(v)) for c, v in zip(columns, zip(*rows))}))

    def _insert(self, table: str, data: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, data.schema) as writer:
            writer.write_table(data.combine_chunks())
        body = sink.getvalue().to_pybytes()
        settings = {
            "insert_deduplication_token": secrets.token_hex(16),
            "deduplicate_blocks_in_dependent_materialized_views": 1,
            "max_insert_block_size": 10_000_000,
            "min_insert_block_size_rows": 10_000_000,  # one block, whole or not at all
            "min_insert_block_size_bytes": 4 << 30,
        }
        for attempt in range(_TRIES):
            try:
                self._client.raw_insert(table, column_names=data.column_names, insert_block=body, settings=settings, fmt="ArrowStream")
                return
            except Exception as error:
                if attempt == _TRIES - 1:
                    raise StoreFullError(f"ClickHouse, table {table}: {str(error)[:300]}; help: its log says more") from None
                time.sleep(0.2 * 4**attempt)

    # ---- questions

    def totals(self, selection: Selection) -> pa.Table:
        return self._ask(selection, select.totals(selection, self._parts(selection), ClickHouseDialect()))

    def buckets(self, selection: Selection) -> pa.Table:
        sql = select.buckets(selection, self._parts(selection), ClickHouseDialect(), _SPREAD)
        return self._ask(selection, f"SELECT * FROM ({sql}) AS counted WHERE n > 0")

    def present(self, selection: Selection) -> pa.Table:
        return self._ask(selection, select.present(selection, self._parts(selection), ClickHouseDialect()))

    def _parts(self, selection: Selection) -> list[select.Part]:
        scope = "process" if selection.needs_processes else "fleet"
        now = int(time.time())
        horizon = {step: now - keep for step in STEPS if (keep := self.retention.of(step))}
        return [select.Part(f"{scope}_{step}", start, end) for start, end, step in select.split(selection, horizon)]

    def _ask(self, selection: Selection, sql: str) -> pa.Table:
        table = self._query(sql)
        table = table.rename_columns([name.removeprefix("k_") for name in table.column_names])
        for key in selection.by:
            i = table.column_names.index(key)
            table = table.set_column(i, key, table.column(i).cast(pa.string()))
        if not selection.by and not selection.step_s and "bucket" not in table.column_names:
            table = table.filter(pa.array([bool(n) for n in table.column("samples").to_pylist()]))
        return table

    def _query(self, sql: str, **settings: Any) -> pa.Table:
        options = {"output_format_arrow_string_as_string": 1, "output_format_arrow_low_cardinality_as_dictionary": 0, **self._settings, **settings}
        return self._client.query_arrow(sql, settings=options, use_strings=True)

    def processes(self) -> pa.Table:
        return self._query(
            """SELECT instance, service, version, host, pid, container, attributes, min(first_s) AS first_s, max(last_s) AS last_s,
               sum(p.dropped) AS dropped, sum(p.overflow) AS overflow, max(p.overhead) AS overhead
               FROM process AS p JOIN resource ON resource.id = p.resource GROUP BY instance, service, version, host, pid, container, attributes"""
        )

    def api_uses(self) -> pa.Table:
        return self._query(
            """SELECT service, version, host, instance, key, min(u.first_ns) AS first_ns, max(u.last_ns) AS last_ns, sum(u.count) AS count
               FROM api_use AS u JOIN resource ON resource.id = u.resource GROUP BY service, version, host, instance, key"""
        )

    def model_events(self) -> pa.Table:
        mine = ", ".join(f"e.{c} AS {c}" for c in _EVENT)
        return self._query(
            f"""SELECT {mine}, service, version, host, instance FROM (SELECT * FROM model_event FINAL) AS e
                JOIN resource ON resource.id = e.resource ORDER BY time_ns, instance, kind, digest, path"""
        )

    def time_range(self) -> tuple[int, int]:
        sql = " UNION ALL ".join(f"SELECT min(time_s) AS a, max(time_s) + {step} AS b, count() AS n FROM fleet_{step}" for step in STEPS)
        found = self._query(f"SELECT min(a) AS a, max(b) AS b FROM ({sql}) AS steps WHERE n > 0").to_pylist()
        return (int(found[0]["a"]), int(found[0]["b"])) if found and found[0]["b"] else (0, 0)

    def sql(self, text: str, limit: int, timeout_s: float) -> pa.Table:
        try:
            return self._query(
                f"SELECT * FROM (\n{text.rstrip().rstrip(';')}\n) LIMIT {limit}",
                readonly=1,
                max_execution_time=timeout_s,
                prefer_column_name_to_alias=0,
            )
        except Exception as error:
            raise QuestionError(f"{str(error).strip()[:500]}; help: `sealift fleet sql --help` lists the views") from None

    # ---- housekeeping: ClickHouse merges and expires by itself

    def maintain(self, now_ns: int, expire_ns: int | None = None) -> Mapping[str, int]:
        return {}

    def info(self) -> StoreInfo:
        rows = self._query(
            "SELECT count() AS parts, sum(bytes_on_disk) AS bytes, sum(rows) AS n FROM system.parts WHERE active AND database = currentDatabase()"
        ).to_pylist()
        return StoreInfo(
            {"store_segments": float(rows[0]["parts"]), "store_bytes": float(rows[0]["bytes"] or 0), "store_rows": float(rows[0]["n"] or 0)}
        )

    def close(self) -> None:
        self._client.close()


def _short(error: Exception) -> str:
    """The last cause is what says why; the rest is the driver's."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:100]} ... {text[-100:]}"


def _type(values: Sequence[Any]) -> pa.DataType:
    """Of a column of one kind of value; one without any is an overhead that nobody measured."""
    some = next((v for v in values if v is not None), 0.0)
    return pa.string() if isinstance(some, str) else pa.float64() if isinstance(some, float) else pa.int64()
