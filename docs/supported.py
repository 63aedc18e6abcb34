"""Writes what README.md and docs/operators.md say is supported, from the operator table. tests/cli/test_docs.py holds them to it."""

from __future__ import annotations

from pathlib import Path

import torch

from sealift.ops import OPS

ROOT = Path(__file__).resolve().parents[1]


def core_aten() -> set[str]:
    """The operators that PyTorch tags as core ATen."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():  # dir(torch.ops.aten) lists only what was used before
        namespace, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        if namespace == "aten" and torch.Tag.core in getattr(getattr(torch.ops.aten, operator), overload or "default").tags:
            found.add(f"aten.{operator}.{overload or 'default'}")
    return found


def texts() -> dict[Path, str]:
    core = core_aten()
    have = sorted(core & set(OPS))
    counts = f"{len(have)} of the {len(core)} overloads that PyTorch tags as core ATen, and {len(set(OPS) - core)} more"
    line = f"- Operators: {counts}: [docs/operators.md](docs/operators.md)."
    readme = (ROOT / "README.md").read_text()
    before, rest = readme.split("<!-- supported: make golden -->\n")
    after = rest.split("<!-- end of supported -->")[1]
    lacking = sorted(core - set(OPS))
    page = "\n".join(
        [
            "# Operators",
            "",
            "Written by `make golden` from the operator table.",
            "",
            f"## Core ATen, supported: {len(have)}",
            "",
            *(f"- {name}" for name in have),
            "",
            f"## Others, supported: {len(set(OPS) - core)}",
            "",
            *(f"- {name}" for name in sorted(set(OPS) - core)),
            "",
            f"## Core ATen, not yet: {len(lacking)}",
            "",
            *(f"- {name}" for name in lacking),
            "",
        ]
    )
    return {
        ROOT / "README.md": f"{before}<!-- supported: make golden -->\n{line}\n<!-- end of supported -->{after}",
        ROOT / "docs/operators.md": page,
    }


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
