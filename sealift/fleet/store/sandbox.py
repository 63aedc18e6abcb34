"""The user's own SQL, in a DuckDB that can read the segments and nothing else: no other file, no network, no extension, no settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from sealift.fleet.errors import QuestionError
from sealift.fleet.patience import limited


def answer(text: str, views: Mapping[str, str], tables: Mapping[str, pa.Table], folder: Path, limit: int, timeout_s: float) -> pa.Table:
    """`views`: name -> FROM clause. At most `limit` rows and `timeout_s` seconds."""
    connection = duckdb.connect(":memory:")
    try:
        statements = connection.extract_statements(text)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QuestionError("one SELECT, please; help: the views are points, minutes, hours, series, resource, processes, api_uses, model_events")
        connection.execute("SET memory_limit = '1GB'; SET temp_directory = ''")
        for name, table in tables.items():
            connection.register(f"_{name}", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM _{name}")
            connection.unregister(f"_{name}")
        connection.execute("SET allowed_directories = [$folder]".replace("$folder", "'" + str(folder).replace("'", "''") + "'"))
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        for name, source in views.items():
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")
        with limited(timeout_s, connection.interrupt):
            return connection.sql(statements[0].query.rstrip().rstrip(";")).limit(limit).to_arrow_table()
    except duckdb.InterruptException:
        raise QuestionError(f"no answer within {timeout_s:g} s; help: fewer rows, or ask `hours` instead of `points`") from None
    except duckdb.Error as error:
        raise QuestionError(f"{str(error).strip()}; help: `sealift fleet sql --help` lists the views") from None
    finally:
        connection.close()
