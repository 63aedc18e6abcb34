"""The environment variables that sealift reads, what SEALIFT_DEBUG turns on, and a warning for a name that means nothing."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sealift.errors import ArgumentError
from sealift.options import Options

DEBUG_HELP = "any of time, dump[=DIR], symbols, values[=PATTERN], nan, all, joined by commas (docs/debugging.md)"
VARIABLES = {  # what a user may set
    "SEALIFT_LOG": "debug, info, warning or error: what Python's logging shows on stderr",
    "SEALIFT_DEBUG": DEBUG_HELP,
    "SEALIFT_OBSERVE": "what is recorded of runs, and where it goes",
    "SEALIFT_FLEET_URL": "the fleet's collector, for `sealift fleet ...`",
    "SEALIFT_FLEET_TOKEN": "the token that the collector asks for",
}
_OF_THE_TESTS = re.compile(r"SEALIFT_(ACCEPT|ALL_ROWS|FUZZ_\w+|SLOW_TESTS|TEST_\w+|SANITIZE|BENCH_\w+|KERNEL_\w+)\Z")
DEFAULT_DUMP = Path("sealift-debug")


@dataclass(frozen=True)
class Debug:
    """time: each step's milliseconds on stderr.  dump_dir: every step's result and the generated sources.  symbols: in the library.
    values: what kernels of a loaded model leave behind, of those whose name fits.  nan: the first kernel to make a NaN or an infinity."""

    time: bool = False
    dump_dir: Path | None = None
    symbols: bool = False
    values: str | None = None
    nan: bool = False

    @property
    def looks_inside(self) -> bool:
        return self.nan or self.values is not None


def read_debug(environ: Mapping[str, str]) -> Debug:
    """Error: E-ARG-001 for a word that SEALIFT_DEBUG does not know."""
    debug = Debug()
    for word in filter(None, environ.get("SEALIFT_DEBUG", "").replace(" ", ",").split(",")):
        name, _, value = word.partition("=")
        match name:
            case "0" | "off":
                pass
            case "1" | "all":
                debug = replace(debug, time=True, dump_dir=debug.dump_dir or DEFAULT_DUMP, symbols=True, nan=True)
            case "time":
                debug = replace(debug, time=True)
            case "dump":
                debug = replace(debug, dump_dir=Path(value) if value else DEFAULT_DUMP)
            case "symbols":
                debug = replace(debug, symbols=True)
            case "values":
                debug = replace(debug, values=value or "*")
            case "nan":
                debug = replace(debug, nan=True)
            case _:
                raise ArgumentError(f"SEALIFT_DEBUG={environ['SEALIFT_DEBUG']!r}: {word!r} is not known; help: {DEBUG_HELP}")
    return debug


def with_debug(options: Options, debug: Debug) -> Options:
    """What the caller asked for stays; the environment adds to it."""
    dump_dir = options.dump_dir if options.dump_dir is not None else debug.dump_dir
    return replace(options, dump_dir=dump_dir, debug_symbols=options.debug_symbols or debug.symbols)


def warn_of_unknown_names(environ: Mapping[str, str]) -> None:
    """SEALIFT_DEBUGG=... does nothing, and says so."""
    for name in environ:
        if name.startswith("SEALIFT_") and name not in VARIABLES and not _OF_THE_TESTS.match(name):
            near = difflib.get_close_matches(name, VARIABLES, 1)
            known = f"did you mean {near[0]}?" if near else f"known are {', '.join(VARIABLES)}"
            warnings.warn(f"the environment variable {name} means nothing to sealift; {known}", stacklevel=3)
