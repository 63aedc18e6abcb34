"""A snapshot as a table for a terminal: rich's where rich is installed, aligned text where it is not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

from sealift.observe.snapshot import Series, Snapshot

HEADINGS = ("operator", "model", "calls", "total", "busy", "self", "mean", "p50", "p99", "stands for")
_CUT = {"operator": 24, "model": 8, "stands for": 16}  # how short a name may be cut
_LEFT = (0, 1, 9)  # columns of text; the rest are numbers


@dataclass(frozen=True)
class TableRows:
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def table_rows(snapshot: Snapshot, limit: int = 20, processes: int = 1) -> TableRows:
    """The operators that took longest. Columns that would be empty are left out."""
    window_ns = max(1, snapshot.end_unix_ns - snapshot.start_unix_ns)
    ordered = sorted(snapshot.series, key=lambda s: (-s.total_ns, s.key))
    rows = [_row(s, window_ns) for s in ordered[:limit]]
    used = [i for i in range(len(HEADINGS)) if i == 0 or any(row[i] for row in rows)]
    notes = []
    if len(ordered) > limit:
        rest = ordered[limit:]
        notes.append(f"and {len(rest)} more operators with {duration_text(sum(s.total_ns for s in rest))}")
    if any(s.source == "torch" for s in snapshot.series):
        notes.append("an operator's total holds the operators it calls")
    for count, what in ((snapshot.overflow, "events had no room for an operator of their own"), (snapshot.dropped, "events were lost")):
        if count:
            notes.append(f"{count} {what}")
    samples = sum(s.samples for s in snapshot.series)
    sampling = snapshot.sampling
    title = f"{duration_text(window_ns)}, {processes} process{'es' if processes != 1 else ''}, {samples} samples"
    if sampling.probability < 1 or sampling.duty_cycle < 1:
        title += f" (probability {sampling.probability:g}, duty cycle {sampling.duty_cycle:g})"
    if sampling.overhead:
        title += f", overhead {sampling.overhead:.2%}"
    return TableRows(title, tuple(HEADINGS[i] for i in used), tuple(tuple(row[i] for i in used) for row in rows), tuple(notes))


def _row(s: Series, window_ns: int) -> tuple[str, ...]:
    error = s.count_standard_error
    calls = f"{s.count}" if not error else f"{s.count} ±{100 * 1.96 * error / s.count:.0f}%"
    labels = " ".join(f"{k}={v}" for k, v in s.labels)
    cells = (
        " ".join(filter(None, (s.operator, s.shapes, "" if s.scope in ("function", "kernel") else f"[{s.scope}]"))),
        " ".join(filter(None, (s.model_id, labels))),
        calls,
        duration_text(s.total_ns),
        f"{s.total_ns / window_ns:.1%}",
        "" if s.self_ns is None else duration_text(s.self_ns),
        duration_text(s.mean_ns),
        duration_text(s.histogram.quantile(0.5)),
        duration_text(s.histogram.quantile(0.99)),
        s.origin,
    )
    return tuple("".join(c if c.isprintable() else "?" for c in cell) for cell in cells)  # names are no way to send a terminal commands


def plain_text(table: TableRows, width: int | None = None) -> str:
    """Aligned columns; lines are cut at `width`."""
    if not table.rows:
        return f"{table.title}: no operators"
    widths = [max(len(row[i]) for row in (table.headings, *table.rows)) for i in range(len(table.headings))]
    left = {i for i, heading in enumerate(table.headings) if HEADINGS.index(heading) in _LEFT}
    lines = [table.title]
    for row in (table.headings, *table.rows):
        cells = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
        lines.append("  ".join(cells).rstrip()[:width])
    return "\n".join([*lines, *table.notes])


def fitted(table: TableRows, width: int) -> TableRows:
    """Without the columns that there is no room for, the least telling first; names can be cut, numbers cannot."""
    for spare in ("busy", "p50", "self", "mean", "stands for", "model"):
        needed = sum(_least_width(table, i) + 2 for i in range(len(table.headings))) - 2
        if needed <= width:
            break
        kept = [i for i, heading in enumerate(table.headings) if heading != spare]
        rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
        table = TableRows(table.title, tuple(table.headings[i] for i in kept), rows, table.notes)
    return table


def _least_width(table: TableRows, column: int) -> int:
    widest = max(len(row[column]) for row in (table.headings, *table.rows))
    return min(widest, _CUT.get(table.headings[column], widest))


def rich_table(table: TableRows, width: int = 1000) -> Any:
    """A rich.table.Table for a console of `width` characters. Error: ImportError without rich."""
    from rich.table import Table
    from rich.text import Text

    table = fitted(table, width)
    out = Table(title=table.title, caption="\n".join(table.notes) or None, title_justify="left", caption_justify="left", box=None, pad_edge=False)
    least = [_least_width(table, i) for i in range(len(table.headings))]
    spare = width - sum(least) - 2 * (len(least) - 1)
    for i, heading in enumerate(table.headings):
        more = min(max(0, spare), max(len(row[i]) for row in (table.headings, *table.rows)) - least[i])  # the left ones first
        spare -= more
        justify = "left" if HEADINGS.index(heading) in _LEFT else "right"
        out.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis", width=least[i] + more)  # type: ignore[arg-type]
    for row in table.rows:
        out.add_row(*(Text(cell) for cell in row))
    return out


def print_table(snapshot: Snapshot, stream: TextIO, limit: int = 20, processes: int = 1) -> None:
    """With rich on a terminal that has it, as plain text anywhere else."""
    table = table_rows(snapshot, limit, processes)
    if table.rows and stream.isatty():
        try:
            from rich.console import Console

            console = Console(file=stream)
            console.print(rich_table(table, console.width))
            return
        except ImportError:
            pass
    print(plain_text(table), file=stream, flush=True)


def duration_text(ns: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= scale:
            value = ns / scale
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
    return f"{ns:.0f} ns"


class TableSink:
    """Adds everything up and prints it once, at close."""

    def __init__(self, stream: TextIO | None = None, limit: int = 20) -> None:
        self._stream = stream
        self._limit = limit
        self._total: Snapshot | None = None
        self._processes: set[str] = set()

    def write(self, delta: Snapshot) -> None:
        self._total = delta if self._total is None else self._total.merge(delta)
        if delta.series:
            self._processes.add(delta.process.start_id)

    def close(self) -> None:
        if self._total is not None and self._total.series:
            print_table(self._total, self._stream or sys.stderr, self._limit, len(self._processes))
