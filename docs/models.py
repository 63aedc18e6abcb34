"""Writes docs/models.md: every model of tests/models, compiled and compared with eager at every size it is tried with.

    python docs/models.py [--models mlp,bert_base] [--small] [--budget MINUTES]

A model is a process of its own; what it found is kept in build/models.json, and only models that are named, new or were not reached are run
again. A model that fails stands in the table as failing."""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

PAGE, STORE = ROOT / "docs/models.md", ROOT / "build/models.json"
TIMEOUT_S = 1800


# ---- one model --------------------------------------------------------------------------------------------------------------------


def try_model(name: str) -> dict[str, Any]:
    """Exports, compiles with an empty cache, and compares at every size. What goes wrong is an answer, too."""
    from bench_models import all_cases

    import sealift
    from sealift.frontend import export_module
    from sealift.pipeline import compile

    case = all_cases()[name]
    missing = case.missing()
    if missing:
        return {"note": case.note, "failed": f"not tried: pip install {' '.join(missing)}"}
    module, arguments, dynamic_shapes = case.build()
    found: dict[str, Any] = {"note": case.note, "parameters": sum(p.numel() for p in module.parameters())}
    program = export_module(copy.deepcopy(module), arguments[0], dynamic_shapes=dynamic_shapes)
    with tempfile.TemporaryDirectory(prefix="sealift_models_") as directory:
        start = time.perf_counter()
        path = compile(program, Path(directory) / f"{name}.pt2", options=sealift.Options(cache_dir=""))
        found |= {"compile_s": time.perf_counter() - start, "bytes": path.stat().st_size}
        model = sealift.load(path)
        found["inputs"] = [str(i) for i in model.inputs]
        found["states"] = len(model._entry.get("states", []))
        found["sizes"], found["ratios"], found["errors"] = [], [], []
        for given in arguments:
            ratio, error = compare(module, path, given)
            found["sizes"].append(shapes_text(given))
            found["ratios"].append(ratio)
            found["errors"].append(error)
    return found


def compare(module: Any, path: Path, arguments: Sequence[Any]) -> tuple[float, float]:
    """The worst output's error over what is allowed, and the error; a fresh model, so that a state is at its start everywhere."""
    import numpy as np
    import torch

    import sealift
    from tests.models.cases import error_ratio, outputs_of

    model = sealift.load(path)
    got = [np.asarray(t) for t in model.flatten_outputs(model(*(a.numpy() for a in arguments))) if t is not None]
    with torch.no_grad():
        eager = [t.numpy() for t in outputs_of(copy.deepcopy(module)(*(a.clone() for a in arguments)))]
        wide = copy.deepcopy(module).double()
        exact = [t.numpy() for t in outputs_of(wide(*(a.double() if a.is_floating_point() else a.clone() for a in arguments)))]
    if [g.shape for g in got] != [e.shape for e in eager]:
        raise AssertionError(f"shapes {[list(g.shape) for g in got]}, eager has {[list(e.shape) for e in eager]}")
    ratios = [error_ratio(g, e, x) for g, e, x in zip(got, eager, exact, strict=True)]
    floats = [float(np.abs(g - x).max()) for g, x in zip(got, exact, strict=True) if x.size and np.issubdtype(x.dtype, np.inexact)]
    return max(ratios, default=0.0), max(floats, default=0.0)


def shapes_text(arguments: Sequence[Any]) -> str:
    shapes = ["x".join(map(str, a.shape)) or "scalar" for a in arguments]
    shown = list(dict.fromkeys(shapes))
    return ", ".join(shown[:3]) + (", ..." if len(shown) > 3 else "")


# ---- the page ---------------------------------------------------------------------------------------------------------------------


def row(name: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        reason = found["failed"].replace("|", "/").replace("`", "'").replace("\n", " ")
        return f"| {name} | | | fails | | | `{reason[:300]}` |"
    sizes = "<br>".join(found["sizes"])
    inputs = "<br>".join(found["inputs"][:6]) + ("<br>..." if len(found["inputs"]) > 6 else "")
    worst = max(found["ratios"])
    verdict = f"{worst:.2g} ({max(found['errors']):.1e})" if worst <= 1 else f"**{worst:.2g}** ({max(found['errors']):.1e})"
    states = f"{found['states']} buffers of state" if found["states"] else ""
    notes = "; ".join(n for n in (states, found["note"]) if n)
    megabytes = f"{found['bytes'] / 1e6:.1f} MB"
    return f"| {name} ({found['parameters'] / 1e6:.1f} M) | {inputs} | {sizes} | {verdict} | {found['compile_s']:.1f} s | {megabytes} | {notes} |"


def page(results: dict[str, Any], about: str) -> str:
    good = sum("failed" not in f and max(f["ratios"]) <= 1 for f in results.values())
    head = "| model (parameters) | inputs and their ranges | sizes tried | error over what is allowed (error) | compile | package | |"
    rows = "\n".join(row(name, found) for name, found in results.items())
    return f"""# Models

Written by `python docs/models.py` on {about}. {good} of {len(results)} models are as close to float64 as eager PyTorch is, at every size tried.

The error is max|y - y64| over 2 max|eager - y64| + 1e-6 max|y64|, the worst of all outputs and sizes, y64 being the model in float64: at
most 1 is right. Compilation is of the exported program, with nothing cached. The models are in [tests/models](../tests/models).

{head}
|---|---|---|---|---|---|---|
{rows}
"""


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(try_model(sys.argv[2])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names, joined by commas: run these again")
    parser.add_argument("--small", action="store_true", help="the tests' small variants as well")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further model after this time")
    arguments = parser.parse_args()
    from bench_models import all_cases, full_cases

    cases = all_cases() if arguments.small else full_cases()
    named = arguments.models.split(",") if arguments.models else []
    store = json.loads(STORE.read_text()) if STORE.exists() else {}
    start = time.monotonic()
    for name in cases:
        known = name in store and "failed" not in store[name]
        late = arguments.budget is not None and time.monotonic() - start > 60 * arguments.budget
        if late or (named and name not in named) or (not named and known):
            continue
        store[name] = in_child(name)
        outcome = store[name].get("failed") or f"{max(store[name]['ratios']):.2g}, compiled in {store[name]['compile_s']:.1f} s"
        print(f"{name}: {outcome}", flush=True)
        STORE.parent.mkdir(exist_ok=True)
        STORE.write_text(json.dumps(store, indent=1))
        write_page(cases, store)
    write_page(cases, store)
    return 0


def write_page(cases: Iterable[str], store: dict[str, Any]) -> None:
    from bench_report import describe_machine

    found = {name: store[name] for name in cases if name in store}
    machine = describe_machine()
    PAGE.write_text(page(found, f"{machine['machine']}, {date.today()}, {machine['versions']}"))


def in_child(name: str) -> dict[str, Any]:
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    try:
        command = [sys.executable, str(Path(__file__).resolve()), "--child", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"note": "", "failed": f"not done after {TIMEOUT_S // 60} minutes"}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if not line.startswith(" ") and "Error" in line.partition(":")[0]]
        return {"note": "", "failed": (errors or lines or [f"exit status {done.returncode}"])[-1]}
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
