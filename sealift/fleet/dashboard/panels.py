"""What a page is made of, before it is HTML: tiles with figures, panels with a chart or a table, and where their data can be had as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import bar


@dataclass(frozen=True)
class Cell:
    text: str
    note: str = ""  # after the text, small: ± 3%
    href: str = ""
    bar: Markup | None = None
    tag: str = ""  # "bad", "good", "warn": how the text is marked
    swatch: int | None = None  # the colour of this row in the chart above
    code: bool = False
    lines: tuple[str, ...] = ()  # below the text, one under the other


@dataclass(frozen=True)
class Column:
    title: str
    number: bool = False
    sort_url: str = ""
    sorted: bool = False
    help: str = ""
    noted: bool = False  # some cell has a note: all leave room for one, so that the numbers stand below one another


@dataclass(frozen=True)
class Grid:
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Tile:
    title: str
    text: str
    note: str = ""
    href: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Legend:
    name: str
    colour: int
    href: str = ""
    note: str = ""


@dataclass(frozen=True)
class Panel:
    id: str
    title: str
    note: str = ""
    chart: Markup | None = None
    legend: Sequence[Legend] = ()
    grid: Grid | None = None
    folded: bool = False  # the table is the chart's alternative, behind "as a table"
    files: Sequence[tuple[str, str]] = ()  # (CSV | Parquet, URL)
    facts: Sequence[tuple[str, Cell]] = ()
    empty: str = ""  # instead of all that, when there is nothing
    hint: str = ""  # a command that would change it
    switch: Sequence[tuple[str, str, bool]] = ()  # (text, URL, is this one)
    wide: bool = True


@dataclass(frozen=True)
class Page:
    title: str
    crumbs: Sequence[tuple[str, str]]  # (text, URL), outermost first, without the page itself
    rows: Sequence[Sequence[Panel]]
    section: str  # of the navigation
    tiles: Sequence[Tile] = ()
    subtitle: str = ""
    form: Mapping[str, Any] | None = None  # of the comparison
    actions: Sequence[tuple[str, str]] = ()
    live: bool = False
    controls: str = "all"  # "all": time range and filters, "filters" or "none"
    notes: Sequence[str] = field(default_factory=tuple)


# (title, right-aligned, cell)
Maker = Callable[[Mapping[str, Any]], Cell]
MEASURES: dict[str, tuple[str, Maker, str]] = {
    "total_ns": ("Total time", lambda r: Cell(numbers.duration(r["total_ns"]), numbers.error(r, "total_ns")), "callees included"),
    "self_ns": ("Self time", lambda r: Cell(numbers.duration(r["self_ns"])), "without callees"),
    "share": ("Share", lambda r: Cell(numbers.percent(r["share"]), bar=bar(r["share"])), "of the total time shown here"),
    "count": ("Calls", lambda r: Cell(numbers.count(r["count"]), numbers.error(r, "count")), ""),
    "mean_ns": ("Mean", lambda r: Cell(numbers.duration(r["mean_ns"])), "time of a call"),
    "p50_ns": ("p50", lambda r: Cell(numbers.duration(r["p50_ns"]), numbers.error(r, "p50_ns")), "half of the calls take less"),
    "p90_ns": ("p90", lambda r: Cell(numbers.duration(r["p90_ns"]), numbers.error(r, "p90_ns")), ""),
    "p99_ns": ("p99", lambda r: Cell(numbers.duration(r["p99_ns"]), numbers.error(r, "p99_ns")), "one call in a hundred takes longer"),
}


def measured(
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[tuple[str, Maker]],
    caption: str,
    measures: Sequence[str] = tuple(MEASURES),
    more: Sequence[tuple[str, bool, Maker]] = (),
    sort: Callable[[str], str] | None = None,
    order: str = "total_ns",
) -> Grid:
    """A table of a `top`'s rows. `sort`: the URL that sorts by a column."""
    columns = [Column(title) for title, _ in keys]
    for name in measures:
        title, _, text = MEASURES[name]
        can = sort is not None and name != "share"
        columns.append(Column(title, True, sort(name) if sort and can else "", name == order and can, text))
    columns += [Column(title, number) for title, number, _ in more]
    makers = [*(make for _, make in keys), *(MEASURES[name][1] for name in measures), *(make for _, _, make in more)]
    return _grid(caption, columns, rows, makers)


def plain(caption: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, bool, Maker]]) -> Grid:
    return _grid(caption, [Column(title, number) for title, number, _ in columns], rows, [make for _, _, make in columns])


def _grid(caption: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], makers: Sequence[Maker]) -> Grid:
    cells = [[make(r) for make in makers] for r in rows]
    noted = [any(row[i].note for row in cells) for i in range(len(columns))]
    return Grid(caption, [replace(c, noted=n) for c, n in zip(columns, noted)], cells)
