"""One model: its file's provenance, where it runs, and its kernels with the user's lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sealift.fleet import questions
from sealift.fleet.dashboard import numbers
from sealift.fleet.dashboard.charts.flame import flame
from sealift.fleet.dashboard.pages.common import Asked, Rows, files, key_cell, nothing, own_time, quantiles, total_tiles, trend
from sealift.fleet.dashboard.pages.operator import comparison, heat
from sealift.fleet.dashboard.pages.overview import signed
from sealift.fleet.dashboard.panels import Cell, Page, Panel, Tile, measured
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question
from sealift.fleet.store.interface import Filter
from sealift.observe.attribution import Frame, parse_origin

_KERNELS = 200


def model(asked: Asked) -> Page:
    name = asked.view.choice("name")
    if not name:
        raise QuestionError("a model's page without its name; help: /model?name=resnet50-v3")
    view = asked.view.also(f"model={name}")
    crumbs = (("Overview", asked.view.to("/")), ("Models", asked.view.to("/models")))
    compare = comparison(replace(asked.view, picked={**asked.view.picked, "model": name}))
    page = Page(name, crumbs, (), "models", actions=(("Compare", compare),))
    lineage = questions.lineage(asked.store, (Filter("model", "=", name),)).to_pylist()
    provenance = _provenance(asked, name, lineage)
    rows = questions.top(asked.store, view.question("operator", "source", "origin", limit=_KERNELS)).to_pylist()
    if not rows:
        return replace(page, rows=((nothing(asked, f"No time in {name}"),), (provenance,)))
    whole = questions.top(asked.store, Question(view.start_s, view.end_s, (), view.filters)).to_pylist()[0]
    over_time = trend(asked, view, "operator", Panel("trend", "Operator time by operator"), wide=False)
    by_host = questions.top(asked.store, view.question("host", limit=12)).to_pylist()
    by_service = questions.top(asked.store, view.question("service", "version", limit=12)).to_pylist()
    plain = asked.view
    few = ("share", "p50_ns", "p99_ns")
    blocks: list[tuple[Panel, ...]] = [(provenance,), (over_time.panel, quantiles(asked, view, wide=False))]
    root, has_modules = flame_of(name, rows)
    title = "Time by module" if has_modules else "Own time by operator"
    text = f"Each frame is as wide as its time, what it contains lies below; {numbers.duration(root.total_ns)} in all. A table has the kernels."
    blocks.append((Panel("flame", title, _flame_note(has_modules, _TORCH in root.children), flame(root, title, text)),))
    kernels = measured(
        rows,
        [("Kernel or operator", key_cell(plain, "operator", over_time.colours)), ("Stands for", _stands_for)],
        "Kernels and operators",
        ("total_ns", "share", "count", "mean_ns", "p50_ns", "p99_ns"),
    )
    by = "operator,source,origin"
    blocks.append((Panel("kernels", "Kernels and operators", "", grid=kernels, files=files(view, "top", by=by, limit=_KERNELS)),))
    services = measured(by_service, [("Service", key_cell(plain, "service")), ("Version", key_cell(plain, "version"))], f"{name} by service", few)
    hosts = measured(by_host, [("Host", key_cell(plain, "host"))], f"{name} by host", few)
    blocks.append(
        (
            Panel("by-service", "Where it runs: services", "", grid=services, files=files(view, "top", by="service,version", limit=12), wide=False),
            Panel(
                "by-host", "Where it runs: hosts", "", grid=hosts, files=files(view, "top", by="host", limit=12), wide=False,
                switch=[("All hosts", plain.picking("/hosts", "model", name), False)],
            ),
        )
    )  # fmt: skip
    blocks.append((heat(asked, view),))
    return replace(page, tiles=[Tile(*texts) for texts in total_tiles(whole)], rows=tuple(blocks), subtitle=_subtitle(lineage))


def _subtitle(lineage: Rows) -> str:
    formats = sorted({r["format"] for r in lineage if r["format"]})
    return f"Model file of format {', '.join(formats)}" if formats else "No file of this model was seen being saved or loaded"


def _provenance(asked: Asked, name: str, lineage: Rows) -> Panel:
    where = [f"model={name}"]
    if not lineage:
        return Panel(
            "provenance", "Provenance", empty="No process reported saving or loading a file of this model. Stamps make that visible:",
            hint="docs/guides/observe.md, 'Model files: which build made this?'",
        )  # fmt: skip
    facts: list[tuple[str, Cell]] = []
    for one in lineage:
        facts += [
            ("File", Cell(one["file"], code=True)),
            ("Signature", signed(one["signed"])),
            ("Concern", Cell(one["concern"], tag="warn") if one["concern"] else Cell("none", tag="good")),
            ("Producer", Cell(one["producer"] or "unknown", tag="" if one["producer"] else "warn")),
            ("Format", Cell(one["format"] or "unknown")),
            ("Written by", Cell(one["written_by"] or "nobody in this fleet")),
            ("Loaded by", Cell(one["loaded_by"] or "nobody")),
            ("Loads", Cell(f"{one['loads']:,} on {one['load_hosts']:,} hosts")),
            ("First and last seen", Cell(f"{numbers.moment(one['first_s'])} … {numbers.moment(one['last_s'])} UTC")),
            ("Paths", Cell(one["paths"] or "unknown", code=True)),
        ]
        if one["serialization_id"]:
            facts.append(("Serialization id", Cell(one["serialization_id"], code=True)))
    note = f"{len(lineage)} files bear this name." if len(lineage) > 1 else ""
    return Panel("provenance", "Provenance", note, facts=facts, files=files(asked.view, "lineage", where=where))


def _stands_for(row: Any) -> Cell:
    """A kernel's operators, and the user's lines that they come from."""
    origin = parse_origin(row["origin"])
    places = [f"{p.path}:{p.line}" + (f"  {p.module}" if p.module else "") for p in origin.places]
    if not origin.ops and not places:
        return Cell("a PyTorch operator" if row["source"] == "torch" else "")
    return Cell("", lines=(", ".join(origin.ops), *places))


_TORCH = "PyTorch operators"


def flame_of(name: str, rows: Rows) -> tuple[Frame, bool]:
    """Kernels by module path, PyTorch's operators by namespace; and whether any kernel knows its module. An operator's caller is not among what
    processes report, so its frame is its own time and nothing lies below it."""
    root, has_modules = Frame(name), False
    for r in rows:
        origin = parse_origin(r["origin"])
        if r["source"] == "sealift" or origin.module:
            modules = origin.module.split(".") if origin.module else []
            has_modules = has_modules or bool(modules)
            path = [(part, "module") for part in modules]
        else:
            namespace = r["operator"].partition("::")[0] if "::" in r["operator"] else "(no namespace)"
            path = [(_TORCH, "by namespace"), (namespace, "own time of its operators")]
        lines = ", ".join(f"{p.path}:{p.line}" for p in origin.places[:3])
        root.add([*path, (r["operator"], lines)], round(own_time(r)))
    return root, has_modules


def _flame_note(has_modules: bool, has_torch: bool) -> str:
    modules = "Modules contain modules and kernels; a frame's width is its time." if has_modules else ""
    torch = "PyTorch's operators do not say which module called them: they lie by namespace, as wide as their own time." if has_torch else ""
    return f"{modules} {torch}".strip()
