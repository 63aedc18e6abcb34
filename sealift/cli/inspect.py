"""Show what a package holds: inputs, outputs, kernels and where they come from. Runs nothing of it."""

from __future__ import annotations

import argparse
from typing import Any

from sealift.cli.output import Output, size_text, table
from sealift.package.read import PackageInfo, read_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("--model", help="only this one")
    parser.add_argument("--kernels", action="store_true", help="list every kernel with its origin")
    parser.add_argument("--members", action="store_true", help="list the archive's members")


def run(arguments: argparse.Namespace, output: Output) -> int:
    info = read_package(arguments.package)
    models = [info.model(arguments.model)] if arguments.model else [info.model(name) for name in info.model_names]
    value = {
        "path": str(info.path),
        "bytes": info.path.stat().st_size,
        "schema": list(info.schema),
        **{k: v for k, v in info.manifest.items() if k not in ("models", "schema")},
        "models": models,
        "members": [{"name": m.name, "offset": m.offset, "bytes": m.size_bytes, "digest": m.digest} for m in info.members],
    }
    output.result(value, _text(info, models, arguments))
    return 0


def _text(info: PackageInfo, models: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    made_by = f", by {info.manifest['compiler']}" if info.manifest.get("compiler") else ""
    lines = [f"{info.path}: {size_text(info.path.stat().st_size)}, schema {info.schema[0]}.{info.schema[1]}{made_by}"]
    for model in models:
        kernels = model.get("kernels") or []
        library, weights = model.get("library", {}), model.get("weights", {})
        stored = f"library {size_text(library.get('size_bytes', 0))}, weights {size_text(weights.get('size_bytes', 0))}"
        lines.append(f"\nmodel {model['name']!r}: {len(kernels)} kernels, {stored}")
        sizes = model.get("sizes") or {}
        for title in ("inputs", "outputs"):
            rows = [_tensor(t) for t in model.get(title) or []]
            lines += [f"  {title}", table(rows, "    ")] if rows else []
        if sizes:
            lines.append("  sizes   " + ", ".join(f"{name} {low}..{high}" for name, (low, high) in sizes.items()))
        if arguments.kernels and kernels:
            lines += ["  kernels", table([(k["name"], _joined(k.get("ops")), _joined(k.get("origin"))) for k in kernels], "    ")]
    for key, text in (info.manifest.get("metadata") or {}).items():
        lines.append(f"metadata  {key} = {text}")
    if arguments.members:
        lines += ["members", table([(m.offset, m.size_bytes, m.name) for m in info.members])]
    return "\n".join(lines)


def _tensor(tensor: dict[str, Any] | None) -> tuple[str, str]:
    return ("-", "None") if tensor is None else (tensor["name"], f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]")


def _joined(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
