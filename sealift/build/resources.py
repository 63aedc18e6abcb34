"""Where the headers and archives that a model's library is built from lie: in the installed package, or in a checkout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sealift.diag.errors import CompileError

ARCHIVES = ("libsealift_kernels.a", "libsealift_aoti.a")


@dataclass(frozen=True)
class Resources:
    include_dirs: tuple[Path, ...]
    kernels_archive: Path
    aoti_archive: Path | None


@lru_cache(maxsize=1)
def find_resources() -> Resources:
    """E-TOOL-002 when sealift was not built."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent
    include = (checkout, checkout / "contracts") if (checkout / "kernels" / "loops" / "loops.h").exists() else (package / "include",)
    for directory in _library_dirs(package, checkout):
        kernels = _find(directory, "libsealift_kernels.a")
        if kernels is not None:
            return Resources(include, kernels, _find(directory, "libsealift_aoti.a"))
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
    return next(iter(sorted(directory.glob(f"**/{name}"))), None) if directory.is_dir() else None
