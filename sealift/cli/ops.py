"""List the operators that sealift compiles, or those that a model needs and sealift lacks."""

from __future__ import annotations

import argparse

from sealift.cli.output import Output
from sealift.diag.errors import CompileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--missing", metavar="SOURCE", help="what this model needs and lacks: exported.pt2 or script.py:function")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.ops import OPS

    if not arguments.missing:
        names = sorted(OPS)
        output.result({"operators": names, "count": len(names)}, "\n".join([*names, f"{len(names)} operators"]))
        return 0
    from sealift.cli.compile import load_source
    from sealift.frontend import from_export

    found: list[str] = []
    with output.progress(f"reading {arguments.missing}"):
        for name, program in load_source(arguments.missing, "model").items():
            try:
                from_export(program, name, OPS)
            except CompileError as error:
                found.append(str(error))
    output.result({"missing": found}, "\n".join(found) or "nothing is missing")
    return 1 if found else 0
