"""Where the headers and archives that a model's library is built from lie: in the installed package, or in a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sealift.diag.errors import CompileError


@dataclass(frozen=True)
class Resources:
    include_dirs: tuple[Path, ...]
    kernels_archive: Path
    aoti_archive: Path | None
    export_map: Path | None  # the linker's version script: what a model library exports


@lru_cache(maxsize=1)
def find_resources() -> Resources:
    """E-TOOL-002 when sealift was not built."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent
    include = (checkout, checkout / "contracts") if (checkout / "kernels" / "loops" / "loops.h").exists() else (package / "include",)
    for directory in _library_dirs(package, checkout):
        kernels = _find(directory, "libsealift_kernels.a")
        if kernels is not None:
            aoti = _find(directory, "libsealift_aoti.a")
            export_map = _find(directory, "model_library.map") or _find(checkout / "runtime" / "aoti", "model_library.map")
            return Resources(include, kernels, aoti, export_map)
    raise CompileError(
        "the kernel archive libsealift_kernels.a is missing, so models cannot be compiled",
        code="E-TOOL-002",
        help="install the wheel (pip install 'sealift[compile]'), or in a checkout run: make dev",
    )


def _library_dirs(package: Path, checkout: Path) -> list[Path]:
    import sealift

    installed = [Path(p) / "lib" for p in getattr(sealift, "__path__", [])]
    return list(dict.fromkeys([package / "lib", *installed, checkout / "build"]))


def _find(directory: Path, name: str) -> Path | None:
    """The newest file of that name below the directory: a checkout may hold several builds."""
    found = list(directory.glob(f"**/{name}")) if directory.is_dir() else []
    return max(found, key=lambda path: path.stat().st_mtime) if found else None
