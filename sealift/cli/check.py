"""Compare a package with the program it was compiled from, run by eager PyTorch."""

from __future__ import annotations

import argparse

from sealift.cli.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("source", metavar="SOURCE", help="what it was compiled from: exported.pt2 or script.py:function")
    parser.add_argument("--model", help="which model of several")
    parser.add_argument("--threads", type=int, help="threads a run may use (default: every core)")
    parser.add_argument("--isa", help="baseline, avx2, avx512 or amx (default: the best the machine has)")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.check_package import check
    from sealift.cli.compile import load_source

    with output.progress("comparing with eager"):
        programs = load_source(arguments.source, arguments.model or "model")
        name = arguments.model or next(iter(programs))
        report = check(arguments.package, programs[name], model=arguments.model, num_threads=arguments.threads, isa=arguments.isa)
    output.result(report.as_dict(), str(report))
    return 0 if report.ok else 1
