"""Compare a package with the program it was compiled from, run by eager PyTorch.

--bisect names the first kernel whose result is off: which operators and lines of yours it stands for, how much it is off and where. It runs
the package's own kernels one after another on one thread, and judges each on what the kernels before it gave."""

from __future__ import annotations

import argparse
from typing import Any

from sealift.cli.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("source", metavar="SOURCE", help="what it was compiled from: exported.pt2 or script.py:function")
    parser.add_argument("--model", help="which model of several")
    parser.add_argument("--threads", type=int, help="threads a run may use (default: every core)")
    parser.add_argument("--isa", help="baseline, avx2, avx512 or amx (default: the best the machine has)")
    parser.add_argument("--bisect", action="store_true", help="name the first kernel that is off")
    parser.add_argument("--kernels", default="*", metavar="PATTERN", help="with --bisect: only kernels whose name fits, as 'k7_*' or '*gelu*'")
    parser.add_argument("--all", action="store_true", help="with --bisect: a line for every kernel compared")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.check_package import check
    from sealift.cli.compile import load_source

    with output.progress("comparing with eager"):
        programs = load_source(arguments.source, arguments.model or "model")
        name = arguments.model or next(iter(programs))
        if arguments.bisect:
            return _bisect(arguments, programs[name], output)
        report = check(arguments.package, programs[name], model=arguments.model, num_threads=arguments.threads, isa=arguments.isa)
    output.result(report.as_dict(), str(report))
    return 0 if report.ok else 1


def _bisect(arguments: argparse.Namespace, program: Any, output: Output) -> int:
    from sealift.bisect_kernels import bisect_kernels

    report = bisect_kernels(arguments.package, program, model=arguments.model, isa=arguments.isa, kernels=arguments.kernels)
    lines = [str(k) for k in report.kernels] if arguments.all else []
    output.result(report.as_dict(), "\n".join([*lines, str(report)]))
    return 0 if report.ok else 1
