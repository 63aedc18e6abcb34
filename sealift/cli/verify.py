"""Check every member of a package against its seal. Runs nothing of it."""

from __future__ import annotations

import argparse

from sealift.cli.output import Output, size_text
from sealift.package.read import verify_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("--code", action="store_true", help="only what is sealed by SHA-256: leave out the weights")


def run(arguments: argparse.Namespace, output: Output) -> int:
    with output.progress(f"verifying {arguments.package}"):
        info = verify_package(arguments.package, weights=not arguments.code)
    members = [m for m in info.members if m.digest and not (arguments.code and m.digest.startswith("crc32c:"))]
    size = sum(m.size_bytes for m in members)
    value = {"path": str(info.path), "ok": True, "members": len(members), "bytes": size, "schema": list(info.schema)}
    output.result(value, f"{info.path}: {len(members)} members, {size_text(size)}, as they were sealed")
    return 0
