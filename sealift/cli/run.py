"""Run a package once and show what it answers. This runs its code: run what you trust.

--values shows what every kernel leaves behind on the way, --nan the first kernel that makes a NaN or an infinity of finite numbers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sealift.cli.output import Output, table
from sealift.package.errors import FileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from sealift.cli.arrays import add_input_arguments

    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("--model", help="which model of several")
    parser.add_argument("--threads", type=int, help="threads a run may use (default: every core)")
    parser.add_argument("--isa", help="baseline, avx2, avx512 or amx (default: the best the machine has)")
    parser.add_argument("--output", type=Path, metavar="FILE.npz", help="write the outputs there")
    parser.add_argument("--values", nargs="?", const="*", metavar="PATTERN", help="every kernel's results; of kernels or values whose name fits")
    parser.add_argument("--nan", action="store_true", help="the first kernel that makes a NaN or an infinity")
    add_input_arguments(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    import numpy as np

    from sealift.cli.arrays import by_structure, make_inputs
    from sealift.load import load

    if arguments.values is not None or arguments.nan:
        return _look_inside(arguments, output)
    model = load(arguments.package, arguments.model, arguments.threads, arguments.isa)
    args, kwargs = by_structure(model, make_inputs(model, arguments))
    leaves = model.flatten_outputs(model(*args, **kwargs))
    named = {info.name: leaf for info, leaf in zip(model.outputs, leaves, strict=True)}
    if arguments.output:
        try:
            np.savez(arguments.output, **{k: v for k, v in named.items() if v is not None})
        except OSError as error:
            raise FileError(f"cannot write {arguments.output}: {error.strerror}; help: the directory must exist and be writable") from error
    rows = [(name, *_summary(leaf)) for name, leaf in named.items()]
    value = {
        name: None if leaf is None else {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "values": leaf.ravel()[:64].tolist()}
        for name, leaf in named.items()
    }
    output.result({"model": model.name, "isa": model.isa, "outputs": value}, table([("output", "dtype", "shape", "values"), *rows], ""))
    return 0


def _summary(leaf: Any) -> tuple[str, str, str]:
    if leaf is None:
        return "-", "-", "None"
    first = " ".join(f"{v:.6g}" for v in leaf.ravel()[:6].tolist())
    return str(leaf.dtype), "x".join(map(str, leaf.shape)) or "scalar", first + (" ..." if leaf.size > 6 else "")


def _look_inside(arguments: argparse.Namespace, output: Output) -> int:
    """Runs the kernels one after another on one thread, in a host of its own."""
    from sealift.cli.arrays import make_inputs
    from sealift.intermediate_values import inspect_run
    from sealift.load import load
    from sealift.recorded_run import open_recorded

    model = load(arguments.package, arguments.model, 1, arguments.isa)
    recorded = open_recorded(arguments.package, model.name, arguments.isa)
    found = inspect_run(recorded, make_inputs(model, arguments), arguments.values or "*")
    lines = [found.table] if arguments.values is not None and found.values else []
    if arguments.nan:
        lines.append(found.verdict)
    output.result(found.as_dict(), "\n".join(lines) or f"no kernel or value is called {arguments.values}")
    return 1 if arguments.nan and found.culprit is not None else 0
