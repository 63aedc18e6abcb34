"""Print what an error code means and what to do about it."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from sealift.cli.output import Output
from sealift.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="E-INPUT-003; without one: the list")


def pages() -> dict[str, Path]:
    """The pages by code: in a checkout docs/errors, in an installed package beside it."""
    import sealift

    places = [Path(__file__).resolve().parents[2] / "docs" / "errors", *(Path(p) / "docs" / "errors" for p in sealift.__path__)]
    return {page.stem: page for place in reversed(places) if place.is_dir() for page in sorted(place.glob("E-*.md"))}


def run(arguments: argparse.Namespace, output: Output) -> int:
    known = pages()
    if not arguments.code:
        titles = {code: page.read_text().split("\n", 1)[0].removeprefix("# ").removeprefix(code).strip(" :") for code, page in sorted(known.items())}
        output.result({"codes": titles}, "\n".join(f"{code}  {title}" for code, title in titles.items()))
        return 0
    code = arguments.code.strip("[]").upper()
    if code not in known:
        near = difflib.get_close_matches(code, known, 3, 0.5)
        nearest = f"the nearest: {', '.join(near)}; " if near else ""
        raise ArgumentError(f"no page on {arguments.code!r}; help: {nearest}`sealift explain` lists the codes")
    text = known[code].read_text()
    output.result({"code": code, "text": text}, text.rstrip())
    return 0
