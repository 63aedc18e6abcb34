"""`sealift VERB ...`: parses, runs the verb, turns an error into one line and an exit code.

Exit codes: 0 done; 1 it failed, and the line says why; 2 wrong usage; 130 interrupted."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from sealift.cli import bench, bridge, check, compile, doctor, explain, fleet, inspect, ops, profile, run, verify
from sealift.cli.output import Output
from sealift.diag.errors import SealiftError
from sealift.environment import VARIABLES
from sealift.version import VERSION

_VERBS = (compile, inspect, run, bench, profile, fleet, check, verify, ops, bridge, doctor, explain)

_DESCRIPTION = """Compile PyTorch models ahead of time into sealed packages that run without PyTorch.

  sealift compile exported.pt2 -o model.pt2     from torch.export.save's file, or from script.py:function
  sealift inspect model.pt2                     what goes in, what comes out, which kernels, from which lines
  sealift run model.pt2 --random                one answer
  sealift bench model.pt2                       how fast
  sealift profile -- python train.py            which operators a program spends its time in, PyTorch's and sealift's
"""


def parser() -> argparse.ArgumentParser:
    epilog = "environment:\n" + "\n".join(f"  {name}  {text}" for name, text in VARIABLES.items())
    top = argparse.ArgumentParser(
        prog="sealift", description=_DESCRIPTION, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"sealift {VERSION}")
    verbs = top.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in _VERBS:
        text = (verb.__doc__ or "").strip()
        name = verb.__name__.rsplit(".", 1)[-1]
        one = verbs.add_parser(
            name, help=text.split("\n")[0].rstrip("."), description=text, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        one.add_argument("--json", action="store_true", help="print one JSON object on stdout")
        one.add_argument("-v", "--verbose", action="store_true", help="log what happens on stderr")
        verb.add_arguments(one)
        one.set_defaults(verb=verb)
    return top


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    arguments = parser().parse_args(argv)
    output = Output(as_json=arguments.json, out=sys.stdout, err=sys.stderr)
    level = "info" if arguments.verbose else environ.get("SEALIFT_LOG", "warning").lower()
    if level not in ("debug", "info", "warning", "error"):
        output.note(f"[E-ARG-001] SEALIFT_LOG={level!r}; help: {VARIABLES['SEALIFT_LOG']}")
        return 2
    logging.basicConfig(stream=sys.stderr, level=level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        return int(arguments.verb.run(arguments, output))
    except SealiftError as error:
        return _failed(output, error.code, str(error))
    except KeyboardInterrupt:
        output.note("interrupted; nothing half-written was left behind")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away (`| head`): so do we, silently
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _failed(output, "E-FILE-002", "[E-FILE-002] no room for what is printed; help: free space where stdout goes")


def _failed(output: Output, code: str, text: str) -> int:
    output.note(text)
    if output.as_json:
        output.result({"error": {"code": code, "message": text}}, "")
    return 1


def run_command() -> None:
    sys.exit(main(sys.argv[1:], os.environ))
