"""A folder imports what the table below lists for it and nothing else; loading and running a package imports no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "sealift"
ALLOWED: dict[str, set[str]] = {
    "diag": set(),
    "ir": {"diag"},
    "ops": {"ir", "diag"},
    "frontend": {"torch", "ops", "ir", "diag"},
    "targets": set(),
    "passes": {"ir", "ops", "targets", "diag"},
    "plan": {"ir", "diag"},
    "backends": {"ir", "plan", "targets", "diag"},
    "build": {"targets", "diag"},
    "package": {"diag"},
    "observe": {"diag", "_runtime"},
    "fleet": {"observe", "diag", "_runtime"},
}
TORCH_FOLDERS = {"frontend", "torch_bridge"}
TORCH_FILES = {"observe/torch.py", "check_package.py", "other_sizes.py", "bisect_kernels.py"}  # only imported where torch's own objects are handled
# Modules of a folder above that hold no pass but what a backend has to know of one.
EXCEPTIONS = {("backends", "sealift.plan.loop_nest"), ("backends", "sealift.ir.loop.operands")}


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if "_vendor" not in p.parts)


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module, line, whether the import runs when the file is imported)"""
    tree = ast.parse(path.read_text())
    package = ("sealift", *path.relative_to(ROOT).parent.parts)
    deferred: set[int] = set()
    for node in ast.walk(tree):
        inside_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if inside_function or for_types:
            deferred |= {id(n) for n in ast.walk(node) if n is not node}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in deferred
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(p for p in (base, node.module or "") if p)
            if module == "sealift":
                for alias in node.names:
                    yield f"sealift.{alias.name}", node.lineno, id(node) not in deferred
            else:
                yield module, node.lineno, id(node) not in deferred


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_layers(path: Path) -> None:
    relative = path.relative_to(ROOT)
    folder = relative.parts[0] if len(relative.parts) > 1 else ""
    wrong: list[str] = []
    for module, line, at_import in imports(path):
        parts = module.split(".")
        if parts[0] == "torch":
            if folder not in TORCH_FOLDERS and str(relative) not in TORCH_FILES and at_import:
                wrong.append(f"{relative}:{line} imports {module} when it is imported")
        elif parts[0] == "sealift" and folder in ALLOWED and len(parts) > 1:
            target = parts[1]
            if (folder, module) in EXCEPTIONS:
                continue
            if target not in (folder, "version") and target not in ALLOWED[folder] and at_import:
                wrong.append(f"{relative}:{line} imports {module}; {folder}/ may import {', '.join(sorted(ALLOWED[folder])) or 'nothing'}")
    assert not wrong, "\n".join(wrong)


def test_every_folder_is_in_the_table() -> None:
    folders = {p.name for p in ROOT.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders <= {*ALLOWED, "cli", "torch_bridge", "__pycache__"}, folders - set(ALLOWED)


def test_importing_and_loading_import_no_torch() -> None:
    program = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sympy", "transformers"):
            raise AssertionError(f"import of {name}")

sys.meta_path.insert(0, NoTorch())
import sealift
for name in ("sealift.load", "sealift.errors", "sealift.package.read", "sealift.options", "sealift.ops", "sealift.pipeline"):
    try:
        __import__(name)
    except ModuleNotFoundError as missing:
        if not str(missing.name).startswith(("sealift", "numpy")):
            raise
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr
