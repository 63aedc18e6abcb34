"""A table as the client wants it: JSON, CSV, Parquet or Arrow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import without_decimals

FORMATS = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}


def encoded(table: pa.Table, format: str, about: Mapping[str, Any]) -> tuple[bytes, str]:
    """(body, content type). JSON: {"columns": [...], "rows": [{...}], **about}"""
    if format not in FORMATS:
        raise QuestionError(f"format {format!r}; help: one of {', '.join(FORMATS)}")
    table = without_decimals(table)
    if format == "json":
        body = {**about, "columns": table.column_names, "rows": [{k: plain(v) for k, v in row.items()} for row in table.to_pylist()]}
        return json.dumps(body, allow_nan=False, default=str).encode(), FORMATS[format]
    sink = pa.BufferOutputStream()
    if format == "csv":
        pacsv.write_csv(_unlike_formulas(table), sink)
    elif format == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue().to_pybytes(), FORMATS[format]


_FORMULA = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"  # what spreadsheets take for one, in full width as well


def _unlike_formulas(table: pa.Table) -> pa.Table:
    """Texts that a spreadsheet would compute, begun with an apostrophe: names come from the network. The other formats have them as they are."""
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            table = table.set_column(i, field.name, pc.replace_substring_regex(table.column(i), _FORMULA, r"'\0"))
    return table


def plain(value: Any) -> Any:
    """What JSON has no number for is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
