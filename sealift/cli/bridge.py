"""Build what lets sealift observe PyTorch's operators, for the torch that is installed.

  sealift bridge build         compile it, once for each version of torch; kept in the user's cache
  sealift bridge status        whether it is there

Nothing is compiled because a program runs: until it was built, observe sees sealift's own kernels only."""

from __future__ import annotations

import argparse
from pathlib import Path

from sealift.cli.output import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("build", "status"), help="build: compile it unless it is there; status: say whether it is")
    parser.add_argument("--force", action="store_true", help="build again what is there")
    parser.add_argument(
        "--into", type=Path, metavar="DIR", help="build into this folder instead of the cache (for a wheel: sealift/lib/torch_bridge)"
    )


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.observe.bridge import BridgeBuildError, build_bridge, find_bridge, find_torch, missing

    torch = find_torch()
    if torch is None:
        raise BridgeBuildError("torch is not installed; help: pip install 'sealift[compile]'")
    if arguments.action == "status":
        bridge = find_bridge(torch)
        text = f"bridge for torch {torch.version}: {bridge.directory}" if bridge.is_there else str(missing(torch))
        output.result({"torch": torch.version, "directory": str(bridge.directory), "is_there": bridge.is_there}, text)
        return 0 if bridge.is_there else 1
    built = build_bridge(into=arguments.into, force=arguments.force)
    how = "it was there" if built.was_there else f"built in {built.seconds:.1f} s"
    output.result(
        {"torch": torch.version, "directory": str(built.bridge.directory), "seconds": built.seconds, "was_there": built.was_there},
        f"bridge for torch {torch.version}: {built.bridge.directory} ({how})",
    )
    return 0
