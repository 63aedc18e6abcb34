"""The small tables: which APIs are called, which model files go where, which processes report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import bar
from sealift.fleet.dashboard.pages.common import Asked, Rows, bare, files, key_cell, more_rows
from sealift.fleet.dashboard.pages.overview import signed
from sealift.fleet.dashboard.panels import Cell, Grid, Page, Panel, Tile, plain

Switch = Sequence[tuple[str, str, bool]]  # (text, URL, is this one)
HEARD_S = 60  # a process that reported within so many seconds counts as running


@dataclass(frozen=True)
class Census:
    """One of the small tables: what its page is called, which filters apply, and what to say while it is empty."""

    question: str  # of the API: also the section and the file's name
    title: str
    subtitle: str
    keys: tuple[str, ...]
    one: str  # of its rows
    empty: tuple[str, str, str]  # (title, text, hint)

    def page(self, asked: Asked, rows: Rows, grid: Grid, tiles: Sequence[Tile] = (), switch: Switch = (), **files_: Any) -> Page:
        view = asked.view
        kept = view.texts_of(self.keys)
        left_out = [text for text in view.texts if text not in kept]
        notes = (f"Not applied here: {', '.join(left_out)}. This page can be filtered by {', '.join(self.keys)}.",) if left_out else ()
        page = Page(self.title, (("Overview", view.to("/")),), (), self.question, subtitle=self.subtitle, notes=notes, controls="filters")
        if not rows:
            return bare(page, *self.empty)
        panel = Panel(
            self.question, numbers.many(len(rows), self.one), grid=grid, files=files(view, self.question, where=kept, **files_),
            switch=(*switch, *more_rows(asked, len(rows), view)),
        )  # fmt: skip
        return replace(page, tiles=tiles, rows=((panel,),))


_APIS = Census(
    "apis", "API census", "Which PyTorch APIs the fleet's processes call", ("service", "version", "host", "instance"), "row",
    ("No API use reported", "Agents report it by themselves; the guide to observing says which keys there are.", "docs/guides/observe.md"),
)  # fmt: skip
_LINEAGE = Census(
    "lineage", "Lineage", "Which model file was written by whom and loaded where", ("model", "service", "version", "host", "instance"), "model file",
    ("No model files reported", "Processes report the files that they save and load once they are observed.", "docs/guides/observe.md"),
)  # fmt: skip
_PROCESSES = Census(
    "processes", "Processes", "Every process ever heard of, the latest first",
    ("service", "version", "host", "instance", "container", "attribute"), "process",
    ("No processes", "Let a process of yours report, in two lines or with an environment variable:",
     "SEALIFT_OBSERVE=sink=fleet:http://127.0.0.1:4318 python program.py"),
)  # fmt: skip


def apis(asked: Asked) -> Page:
    view = asked.view
    by = view.choice("by")
    by = by if by in ("service", "version", "host") else ""
    rows = questions.apis(asked.store, view.filters_of(_APIS.keys), (by,) if by else ()).to_pylist()
    most = max((r["processes"] for r in rows), default=1)
    grid = plain(
        "API use",
        rows[: asked.limit],
        [
            ("API", False, lambda r: Cell(r["api"], code=True)),
            *([(by.capitalize(), False, key_cell(view, by))] if by else []),
            ("Processes", True, lambda r: Cell(numbers.count(r["processes"]), bar=bar(r["processes"] / most))),
            ("Hosts", True, lambda r: Cell(numbers.count(r["hosts"]))),
            ("First seen (UTC)", False, lambda r: Cell(numbers.moment(r["first_s"]))),
            ("Last seen (UTC)", False, lambda r: Cell(numbers.moment(r["last_s"]))),
        ],
    )  # fmt: skip
    switch = [("total", view.choosing(by=""), not by), *((f"by {k}", view.choosing(by=k), k == by) for k in ("service", "version", "host"))]
    return _APIS.page(asked, rows, grid, switch=switch, by=by)


def lineage(asked: Asked) -> Page:
    view = asked.view
    rows = questions.lineage(asked.store, view.filters_of(_LINEAGE.keys)).to_pylist()
    concerns = sum(1 for r in rows if r["concern"])
    grid = plain(
        "Model files",
        rows[: asked.limit],
        [
            ("File", False, lambda r: Cell(r["file"], code=True)),
            ("Model", False, key_cell(view, "model")),
            ("Concern", False, lambda r: Cell(r["concern"], tag="warn") if r["concern"] else Cell("none", tag="good")),
            ("Signature", False, lambda r: signed(r["signed"])),
            ("Format", False, lambda r: Cell(r["format"])),
            ("Producer", False, lambda r: Cell(r["producer"] or "unknown")),
            ("Written by", False, lambda r: Cell(r["written_by"] or "nobody here")),
            ("Loaded by", False, lambda r: Cell(r["loaded_by"] or "nobody")),
            ("Loads", True, lambda r: Cell(numbers.count(r["loads"]))),
            ("Hosts", True, lambda r: Cell(numbers.count(r["load_hosts"]))),
            ("Last seen (UTC)", False, lambda r: Cell(numbers.moment(r["last_s"]))),
        ],
    )  # fmt: skip
    tiles = [
        Tile("Files", numbers.count(len(rows))),
        Tile("Of concern", numbers.count(concerns), "unsigned or of unknown origin", tag="warn" if concerns else "good"),
        Tile("Loads", numbers.count(sum(r["loads"] for r in rows))),
    ]  # fmt: skip
    return _LINEAGE.page(asked, rows, grid, tiles)


def processes(asked: Asked) -> Page:
    rows = questions.processes(asked.store, asked.view.filters_of(_PROCESSES.keys)).to_pylist()
    running = sum(is_reporting(asked, r) for r in rows)
    tiles = [
        Tile("Known", numbers.count(len(rows))),
        Tile("Reporting", numbers.count(running), f"within {HEARD_S} s", tag="good" if running else ""),
        Tile("Hosts", numbers.count(len({r["host"] for r in rows}))),
        Tile("Dropped", numbers.count(sum(r["dropped"] for r in rows)), "calls that agents could not keep"),
    ]  # fmt: skip
    return _PROCESSES.page(asked, rows, process_grid(asked, rows[: asked.limit]), tiles)


def process_grid(asked: Asked, rows: list[dict[str, Any]], caption: str = "Processes") -> Any:
    view = asked.view
    return plain(
        caption,
        rows,
        [
            ("Process", False, lambda r: Cell(r["instance"], href=view.to("/process", instance=r["instance"]), code=True)),
            ("State", False, lambda r: state(asked, r)),
            ("Service", False, key_cell(view, "service")),
            ("Version", False, lambda r: Cell(r["version"])),
            ("Host", False, key_cell(view, "host")),
            ("pid", True, lambda r: Cell(str(r["pid"] or ""))),
            ("Overhead", True, lambda r: Cell(numbers.percent(r["overhead"]))),
            ("Dropped", True, lambda r: Cell(numbers.count(r["dropped"]), tag="warn" if r["dropped"] else "")),
            ("Last heard", True, lambda r: Cell(numbers.ago(r["last_s"], asked.now_s))),
        ],
    )  # fmt: skip


def is_reporting(asked: Asked, row: Mapping[str, Any]) -> bool:
    return bool(row["last_s"] >= asked.now_s - HEARD_S)


def state(asked: Asked, row: Mapping[str, Any]) -> Cell:
    return Cell("reporting", tag="good") if is_reporting(asked, row) else Cell("silent")
