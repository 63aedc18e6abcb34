"""The small tables: which APIs are called, which model files go where, which processes report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.svg import bar
from sealift.fleet.dashboard.pages.common import Asked, bare, files, key_cell, more_rows
from sealift.fleet.dashboard.pages.overview import signed
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, plain
from sealift.fleet.dashboard.view import View

HEARD_S = 60  # a process that reported within so many seconds counts as running


def _ignored(view: View, keys: tuple[str, ...]) -> tuple[str, ...]:
    left_out = [text for text in view.texts if text not in view.texts_of(keys)]
    return (f"Not applied here: {', '.join(left_out)}. This page can be filtered by {', '.join(keys)}.",) if left_out else ()


def apis(asked: Asked) -> Page:
    view, keys = asked.view, ("service", "version", "host", "instance")
    by = view.choice("by")
    by = by if by in ("service", "version", "host") else ""
    rows = questions.apis(asked.store, view.filters_of(keys), (by,) if by else ()).to_pylist()
    page = Page(
        "API census",
        (("Overview", view.to("/")),),
        (),
        "apis",
        subtitle="Which PyTorch APIs the fleet's processes call",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page,
            "No API use reported",
            "Agents report it by themselves; sealift.observe's guide says which keys there are.",
            "docs/guides/observe.md",
        )
    most = max(r["processes"] for r in rows)
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
    panel = Panel(
        "apis",
        numbers.many(len(rows), "row"),
        grid=grid,
        files=files(view, "apis", by=by, where=view.texts_of(keys)),
        switch=(*switch, *more_rows(asked, len(rows), view)),
    )
    return replace(page, rows=((panel,),))


def lineage(asked: Asked) -> Page:
    view, keys = asked.view, ("model", "service", "version", "host", "instance")
    rows = questions.lineage(asked.store, view.filters_of(keys)).to_pylist()
    page = Page(
        "Lineage",
        (("Overview", view.to("/")),),
        (),
        "lineage",
        subtitle="Which model file was written by whom and loaded where",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page, "No model files reported", "Processes report the files that they save and load once they are observed.", "docs/guides/observe.md"
        )
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
    panel = Panel(
        "lineage",
        numbers.many(len(rows), "model file"),
        grid=grid,
        files=files(view, "lineage", where=view.texts_of(keys)),
        switch=more_rows(asked, len(rows), view),
    )
    tiles = [
        Tile("Files", numbers.count(len(rows))),
        Tile("Of concern", numbers.count(concerns), "unsigned or of unknown origin", tag="warn" if concerns else "good"),
        Tile("Loads", numbers.count(sum(r["loads"] for r in rows))),
    ]  # fmt: skip
    return replace(page, tiles=tiles, rows=((panel,),))


def processes(asked: Asked) -> Page:
    view, keys = asked.view, ("service", "version", "host", "instance", "container", "attribute")
    rows = questions.processes(asked.store, view.filters_of(keys)).to_pylist()
    page = Page(
        "Processes",
        (("Overview", view.to("/")),),
        (),
        "processes",
        subtitle="Every process ever heard of, the latest first",
        notes=_ignored(view, keys),
        controls="filters",
    )
    if not rows:
        return bare(
            page,
            "No processes",
            "Let a process of yours report, in two lines or with an environment variable:",
            "SEALIFT_OBSERVE=otlp:http://127.0.0.1:4318 python program.py",
        )
    grid = process_grid(asked, rows[: asked.limit])
    running = sum(is_reporting(asked, r) for r in rows)
    tiles = [
        Tile("Known", numbers.count(len(rows))),
        Tile("Reporting", numbers.count(running), f"within {HEARD_S} s", tag="good" if running else ""),
        Tile("Hosts", numbers.count(len({r["host"] for r in rows}))),
        Tile("Dropped", numbers.count(sum(r["dropped"] for r in rows)), "calls that agents could not keep"),
    ]  # fmt: skip
    panel = Panel(
        "processes",
        numbers.many(len(rows), "process"),
        grid=grid,
        files=files(view, "processes", where=view.texts_of(keys)),
        switch=more_rows(asked, len(rows), view),
    )
    return replace(page, tiles=tiles, rows=((panel,),))


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
