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
GENERATES = "generate:"  # before a generative model's name: its decoding, beside its two programs' rows


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


def try_generation(name: str) -> dict[str, Any]:
    """Greedy decoding at full size: up to 1,000 steps in one session, then two texts at once, then the same from eager."""
    import resource

    import bench_models

    import sealift
    from tests.models.generation import Compiled, Eager, generate, generate_at_once, prompt_of

    case = bench_models.generative_models()[name]
    modules = case.modules()
    with tempfile.TemporaryDirectory(prefix="sealift_models_") as directory:
        package = sealift.load_package(sealift.compile(case.programs(modules), Path(directory) / f"{name}.pt2"))
        prompts = [prompt_of(case, 16, seed) for seed in (1, 2)]
        steps = min(1000, case.length - 24)
        one = Compiled(case, package.session())
        generate(case, one, prompts[0], 50)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        text = generate(case, one, prompts[0], steps)
        took = time.perf_counter() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        both = generate_at_once(case, [Compiled(case, package.session()) for _ in prompts], prompts, steps // 4)
    wanted = [generate(case, Eager(modules), prompts[0], steps), generate(case, Eager(modules), prompts[1], steps // 4)]
    equal = sum(a == b for a, b in zip(text, wanted[0], strict=True))
    apart = both == [wanted[0][: len(both[0])], wanted[1]] and both[0] != both[1]
    return {
        "steps": steps,
        "equal": equal,
        "tokens": len(text),
        "distinct": len(set(text)),
        "grown_kb": grown,
        "step_s": took / steps,
        "apart": apart,
    }


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


def generation_row(name: str, found: dict[str, Any]) -> str:
    if "failed" in found:
        return f"| {name} | fails: `{found['failed'][:300]}` | | | | |"
    equal = f"{found['equal']} of {found['tokens']}" if found["equal"] == found["tokens"] else f"**{found['equal']} of {found['tokens']}**"
    apart = "as alone" if found["apart"] else "**mixed**"
    return f"| {name} | {found['steps']} | {equal} | {found['distinct']} | {found['grown_kb']} KiB | {apart} |"


def generation(results: dict[str, Any]) -> str:
    if not results:
        return ""
    rows = "\n".join(generation_row(name, found) for name, found in results.items())
    return f"""
## Greedy decoding

One session's text of as many steps as the cache has room for, 1,000 at most, beside eager's over the same prompt; what the process's memory
grew by after the first 50 steps; and two other sessions that decode a text each at the same time, on two threads.

| model | steps | tokens that eager says | different tokens | memory grew by | two texts at once |
|---|---|---|---|---|---|
{rows}
"""


def page(results: dict[str, Any], generations: dict[str, Any], about: str) -> str:
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
{generation(generations)}"""


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        name = sys.argv[2]
        print(json.dumps(try_generation(name.removeprefix(GENERATES)) if name.startswith(GENERATES) else try_model(name)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="names, joined by commas: run these again")
    parser.add_argument("--small", action="store_true", help="the tests' small variants as well")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further model after this time")
    arguments = parser.parse_args()
    from bench_models import all_cases, full_cases, generative_models

    cases = [*(all_cases() if arguments.small else full_cases()), *(GENERATES + name for name in generative_models(small=arguments.small))]
    named = arguments.models.split(",") if arguments.models else []
    store = json.loads(STORE.read_text()) if STORE.exists() else {}
    start = time.monotonic()
    for name in cases:
        known = name in store and "failed" not in store[name]
        late = arguments.budget is not None and time.monotonic() - start > 60 * arguments.budget
        if late or (named and name not in named) or (not named and known):
            continue
        found = in_child(name)
        print(f"{name}: {outcome_of(found)}", flush=True)
        STORE.parent.mkdir(exist_ok=True)
        store = {**(json.loads(STORE.read_text()) if STORE.exists() else {}), name: found}  # another run may have written its own
        STORE.write_text(json.dumps(store, indent=1))
        write_page(cases, store)
    write_page(cases, store)
    return 0


def outcome_of(found: dict[str, Any]) -> str:
    if "failed" in found:
        return str(found["failed"])
    if "steps" in found:
        return f"{found['equal']} of {found['tokens']} tokens are eager's, {found['distinct']} different; {1e3 * found['step_s']:.1f} ms a step"
    return f"{max(found['ratios']):.2g}, compiled in {found['compile_s']:.1f} s"


def write_page(cases: Iterable[str], store: dict[str, Any]) -> None:
    from bench_report import describe_machine

    found = {name: store[name] for name in cases if name in store and not name.startswith(GENERATES)}
    generations = {name.removeprefix(GENERATES): store[name] for name in cases if name in store and name.startswith(GENERATES)}
    machine = describe_machine()
    PAGE.write_text(page(found, generations, f"{machine['machine']}, {date.today()}, {machine['versions']}"))


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
