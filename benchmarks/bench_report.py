"""docs/performance.md and README's table, from results.json."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from bench_engines import ENGINES
from bench_models import title

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
THREADS = ("1", "2")
Results = dict[str, Any]


def describe_machine() -> dict[str, str]:
    """What the figures depend on."""
    import torch
    from machine import cpu_name

    import sealift
    from sealift import _runtime

    isas = [name for i, name in enumerate(("baseline", "AVX2", "AVX-512", "AMX")) if _runtime.machine_isas() >> i & 1]
    cpu = f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores ({', '.join(isas)})"
    return {"machine": cpu, "versions": f"torch {torch.__version__}, sealift {sealift.__version__}, Python {platform.python_version()}"}


# ---- numbers ----------------------------------------------------------------------------------------------------------------------


def median(entry: Results, *path: str) -> float | None:
    found: Any = entry
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return None if found is None else statistics.median(found) if isinstance(found, list) else float(found)


def duration(seconds: float) -> str:
    if seconds < 1e-4:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def engine_entries(results: Results) -> list[str]:
    measured = {name for model in results["models"].values() for name in model.get("engines", {})}
    return [name for name in ENGINES if name in measured]


# ---- tables -----------------------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def ratios(results: Results, path: Sequence[str], show: Callable[[float], str], engines: Sequence[str]) -> str:
    """A row a model: sealift's figure, then each peer's as a multiple of it; more than 1 is in sealift's favour."""
    rows = []
    for model, entry in results["models"].items():
        if "failed" in entry:
            continue
        ours = median(entry["engines"].get("sealift", {}), *path)
        cells = [title(model), "-" if ours is None else show(ours)]
        for engine in engines:
            if engine != "sealift":
                cells.append(_against(ours, entry["engines"].get(engine), path, show))
        rows.append(cells)
    return table(["", "sealift", *(ENGINES[e].title for e in engines if e != "sealift")], rows)


def _against(ours: float | None, entry: Results | None, path: Sequence[str], show: Callable[[float], str]) -> str:
    if entry is None:
        return ""
    theirs = median(entry, *path)
    if theirs is None:
        return "fails" if "failed" in entry else ""
    if "error_note" in entry:
        return "wrong"
    return show(theirs) if not ours else f"{theirs / ours:.2f}x ({show(theirs)})"


def errors(results: Results, engines: Sequence[str]) -> str:
    def cell(entry: Results | None) -> str:
        if entry is None:
            return ""
        if "failed" in entry:
            return "fails"
        ratio = entry.get("error_ratio")
        return entry.get("error_note", "") if ratio is None else f"{ratio:.2g}"

    rows = [[title(m), *(cell(e["engines"].get(engine)) for engine in engines)] for m, e in results["models"].items() if "failed" not in e]
    return table(["", *(ENGINES[e].title for e in engines)], rows)


def failures(results: Results) -> str:
    lines = []
    for model, entry in results["models"].items():
        if "failed" in entry:
            lines.append(f"- {title(model)}: not measured: `{_cell(entry['failed'])}`")
        for engine, found in entry.get("engines", {}).items():
            if "failed" in found:
                lines.append(f"- {title(model)}, {ENGINES[engine].title}: `{_cell(found['failed'])}`")
            elif "fixed_sizes" in found:
                lines.append(f"- {title(model)}, {ENGINES[engine].title}: measured with the sizes fixed; dynamic: `{_cell(found['fixed_sizes'])}`")
    return "\n".join(lines) or "None."


def apart(results: Results) -> str:
    """Which figures are of another call than sealift's: the machine may have been faster or slower then."""
    lines = []
    for model, entry in results["models"].items():
        engines = entry.get("engines", {})
        ours = engines.get("sealift", {}).get("began")
        others = [ENGINES[e].title for e, found in engines.items() if found.get("began") != ours]
        if others:
            lines.append(f"- {title(model)}: {', '.join(others)}")
    return "\n".join(lines) or "Nothing: all of a model's figures are of one call."


def _cell(text: str) -> str:
    return text.replace("`", "'").replace("|", "/")


def from_c(results: Results) -> str:
    c = results.get("c")
    if not c:
        return "Not measured in this run."
    rows = [["C process to the first answer, sealift", duration(c["first_sealift"])]]
    if "first_aoti" in c:
        rows.append(["C++ process to the first answer, AOTInductor", f"{duration(c['first_aoti'])} ({c['first_aoti'] / c['first_sealift']:.1f}x)"])
    rows.append(["a process that does nothing", duration(c["first_floor"])])
    rows += [[f"a call from C, {n} thread{'s' * (n != '1')}, sealift", duration(c[f"c_call_{n}"])] for n in THREADS]
    return table(["MLP 10-16-1, batch 8", ""], rows)


def page(results: Results, command: str, how: str, plot: str) -> str:
    engines = engine_entries(results)
    shipped = [e for e in engines if ENGINES[e].suffix]
    parts = [
        f"# Performance\n\nWritten by `{command}` on {results['machine']}, {date.today()}, {results['versions']}; {results['rounds']} rounds of calls.",
        how,
        "A peer's figure stands behind how many times sealift's it is: more than 1 is in sealift's favour.",
        f"![Latency as a multiple of sealift's]({plot})",
        f"## Calls, 1 thread\n\n{ratios(results, ('calls', '1'), duration, engines)}",
        f"## Calls, 2 threads\n\n{ratios(results, ('calls', '2'), duration, engines)}",
        f"## Compilation\n\n{ratios(results, ('compile_s',), duration, shipped)}",
        f"## Process start to first answer, from Python\n\n{ratios(results, ('first_s',), duration, engines)}",
        f"## From C\n\n{from_c(results)}",
        f"## Peak memory of a serving process\n\n{ratios(results, ('rss_mb',), lambda n: f'{n:.0f} MB', engines)}",
        f"## What is shipped beside the engine\n\n{ratios(results, ('bytes',), size, shipped)}",
        f"## Error, over what is allowed\n\n{errors(results, engines)}",
        f"## Measured apart from sealift, by an earlier or later call\n\n{apart(results)}",
        f"## What could not be measured\n\n{failures(results)}",
    ]
    return "\n\n".join(parts) + "\n"


def print_summary(results: Results) -> None:
    engines = engine_entries(results)
    for threads in THREADS:
        print(f"\n{threads} thread(s):\n{ratios(results, ('calls', threads), duration, engines)}")
    print(f"\ncompilation:\n{ratios(results, ('compile_s',), duration, [e for e in engines if ENGINES[e].suffix])}\n\n{failures(results)}")


# ---- README -----------------------------------------------------------------------------------------------------------------------


def readme_rows(results: Results) -> list[list[str]]:
    """sealift beside AOTInductor on the models of the first page."""
    rows: list[list[str]] = []

    def row(what: str, ours: float | None, theirs: float | None, show: Callable[[float], str]) -> None:
        if ours is not None:
            beside = ["", ""] if theirs is None else [show(theirs), f"{theirs / ours:.1f}x"]
            rows.append([what, show(ours), *beside])

    shown = {m: e["engines"] for m, e in results["models"].items() if m in ("mlp", "minilm", "bert_base", "resnet50") and "failed" not in e}

    def both(model: str, *path: str) -> tuple[float | None, float | None]:
        return median(shown[model].get("sealift", {}), *path), median(shown[model].get("aoti", {}), *path)

    for model in shown:
        row(f"compile, {title(model)}", *both(model, "compile_s"), duration)
    for model in shown:
        for n in THREADS:
            row(f"call from Python, {title(model)}, {n} thread{'s' * (n != '1')}", *both(model, "calls", n), duration)
    c = results.get("c", {})
    if c:
        row("C or C++ process to the first MLP answer", c.get("first_sealift"), c.get("first_aoti"), duration)
        for n in THREADS:
            row(f"call from C, MLP, {n} thread{'s' * (n != '1')}", c.get(f"c_call_{n}"), None, duration)
    for model in shown:
        row(f"package, {title(model)}", *both(model, "bytes"), size)
    return rows


def write_readme(readme: Path, results: Results) -> None:
    before, rest = readme.read_text().split("<!-- figures: make bench -->\n")
    after = rest.split("<!-- end of figures -->")[1]
    figures = table(["", "sealift", "AOTInductor", ""], readme_rows(results))
    about = f"{results['machine']}, {date.today()}, {results['versions']}; how: [docs/performance.md](docs/performance.md)."
    readme.write_text(f"{before}<!-- figures: make bench -->\n{figures}\n\n{about}\n<!-- end of figures -->{after}")
