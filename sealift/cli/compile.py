"""Compile a model into a package.

SOURCE is a file written by torch.export.save, or script.py:function: a function without arguments that returns an ExportedProgram, a tuple
(module, args[, kwargs[, dynamic_shapes]]), or a dict of these by model name for several models in one package."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

from sealift.cli.output import Output, duration_text, size_text
from sealift.diag.errors import CompileError, SealiftError
from sealift.diag.steps import StopAfter
from sealift.errors import ArgumentError, FileError
from sealift.ir.graph.types import Graph
from sealift.ir.loop.types import Loops


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="exported.pt2 or script.py:function")
    parser.add_argument("-o", "--output", type=Path, metavar="MODEL.pt2", help="the package (default: NAME.pt2 here)")
    parser.add_argument("--name", default="model", help="the model's name in the package (default: model)")
    parser.add_argument("--isa", action="append", metavar="ISA", help="baseline, avx2 or avx512; repeat for several (default: all)")
    parser.add_argument("--debug-symbols", action="store_true", help="keep debug symbols in the library")
    parser.add_argument("--metadata", action="append", default=[], metavar="KEY=VALUE", help="travels in the package; repeat for more")
    parser.add_argument("--extra", action="append", default=[], metavar="NAME=FILE", help="a file that travels in the package; repeat for more")
    parser.add_argument("--jobs", type=int, default=0, help="compilers run side by side (default: one per core)")
    parser.add_argument("--no-cache", action="store_true", help="compile every unit anew")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write every step's result there")
    parser.add_argument("--skip", action="append", default=[], metavar="PASS", help="leave a pass out; repeat for more")
    parser.add_argument("--stop-after", metavar="PASS", help="the step to end with")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.options import ISAS, Options

    start = time.monotonic()
    with output.progress(f"exporting {arguments.source}"):
        programs = load_source(arguments.source, arguments.name)
    exported = time.monotonic()
    isas = tuple(arguments.isa or ISAS)
    if not set(isas) <= set(ISAS):
        raise ArgumentError(f"--isa {', '.join(isas)}; help: choose from {', '.join(ISAS)}")
    if arguments.jobs < 0:
        raise ArgumentError(f"--jobs {arguments.jobs}; help: how many compilers run side by side, or 0 for one per core")
    options = Options(
        isas=isas,
        dump_dir=arguments.dump,
        skip=frozenset(arguments.skip),
        stop_after=arguments.stop_after,
        debug_symbols=arguments.debug_symbols,
        cache_dir="" if arguments.no_cache else None,
        jobs=arguments.jobs,
        metadata=dict(_pair(text, "--metadata") for text in arguments.metadata),
        extra_files={name: _read(file) for name, file in (_pair(text, "--extra") for text in arguments.extra)},
    )
    target = arguments.output or Path(f"{arguments.name}.pt2")
    if target.suffix != ".pt2":
        raise ArgumentError(f"--output {target}; help: a package's name ends in .pt2")
    from sealift.pipeline import compile

    model = next(iter(programs.values())) if set(programs) == {arguments.name} else programs
    try:
        with output.progress(f"compiling {target}"):
            path = compile(model, target, name=arguments.name, options=options)
    except StopAfter as stop:
        printed = str(stop.value) if isinstance(stop.value, (Graph, Loops)) else ""
        output.result({"stopped_after": stop.step, "result": printed}, printed or f"stopped after {stop.step}")
        return 0
    except ValueError as error:
        if isinstance(error, SealiftError) or "no step called" not in str(error):
            raise
        raise ArgumentError(f"{error}; help: --skip and --stop-after name one of these") from error
    done = time.monotonic()
    size = Path(path).stat().st_size
    answer = {"path": str(path), "bytes": size, "models": list(programs), "export_s": exported - start, "compile_s": done - exported}
    output.result(answer, f"{path}: {size_text(size)}, compiled in {duration_text(done - exported)}")
    return 0


def load_source(source: str, name: str) -> dict[str, Any]:
    """Exported programs by model name. Errors: E-ARG-001, E-FILE-001, E-TOOL-003 without torch."""
    try:
        import torch
    except ImportError as error:
        raise CompileError("compiling needs torch, which is not installed", code="E-TOOL-003", help="pip install 'sealift[compile]'") from error
    script, colon, function = source.rpartition(":")
    if colon and script.endswith(".py"):
        made = _call(Path(script), function)
        return {k: _exported(v) for k, v in made.items()} if isinstance(made, dict) else {name: _exported(made)}
    if source.endswith(".py"):
        raise ArgumentError(f"{source}: which function? help: {_candidates(Path(source))}")
    if not Path(source).is_file():
        raise FileError(f"{source} is no file; help: give a file of torch.export.save, or script.py:function")
    if is_package(source):
        raise ArgumentError(f"{source} is a compiled package already; help: `sealift inspect {source}` shows it")
    try:
        return {name: torch.export.load(source)}
    except Exception as error:  # torch raises what it likes on a foreign file
        raise FileError(f"{source} cannot be read as an exported program: {_first_line(error)}; help: write it with torch.export.save") from error


def is_package(path: str) -> bool:
    from sealift.package.errors import PackageError
    from sealift.package.read import read_package

    try:
        read_package(path)
    except PackageError:
        return False
    return True


def _call(script: Path, function: str) -> Any:
    if not script.is_file():
        raise FileError(f"{script} is no file; help: script.py:function names a Python file")
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(script.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python script.py` has it: the script may import its neighbours, now or when it is called
    spec.loader.exec_module(module)
    if not callable(getattr(module, function, None)):
        raise ArgumentError(f"{script} has no function {function!r}; help: {_candidates(script, function)}")
    return getattr(module, function)()


def _candidates(script: Path, wanted: str = "") -> str:
    """What could have been meant: the script's functions that take no argument, the nearest first. Reads the script, runs nothing of it."""
    try:
        tree = ast.parse(script.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        return f"script.py:function names a function of a Python file; this one cannot be read ({error})"
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and len(n.args.args) == len(n.args.defaults) and not n.args.posonlyargs]
    names = [f.name for f in functions if not f.name.startswith("_") and all(d is not None for d in f.args.kw_defaults)]
    if not names:
        return f"it has no function without arguments; write `def {wanted or 'model'}(): return torch.export.export(...)` into it"
    near = difflib.get_close_matches(wanted, names, len(names), 0) if wanted else []
    shown = ", ".join(f"{script}:{name}" for name in (near or names)[:8])
    return f"choose one of {shown}" if len(names) > 1 else f"{shown} is its only function without arguments"


def _exported(made: Any) -> Any:
    import torch

    if isinstance(made, torch.export.ExportedProgram):
        return made
    if isinstance(made, tuple) and len(made) >= 2 and isinstance(made[0], torch.nn.Module):
        kwargs, dynamic_shapes = (*made[2:4], None, None)[:2]
        return torch.export.export(made[0].eval(), tuple(made[1]), kwargs, dynamic_shapes=dynamic_shapes)
    raise ArgumentError(f"the function returned a {type(made).__name__}; help: return an ExportedProgram or (module, args, kwargs, dynamic_shapes)")


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ArgumentError(f"{option} {text!r}; help: KEY=VALUE")
    return key, value


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}; help: check the path of --extra") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
