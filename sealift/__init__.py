"""Sealift: compile PyTorch models ahead of time into sealed packages that run without PyTorch.

    path = sealift.compile(exported_program, "model.pt2")     # needs sealift[compile]
    model = sealift.load("model.pt2")                         # NumPy alone
    y = model(x)

Nothing is imported before it is used: `import sealift` costs no torch, and loading a package never imports it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sealift.diag.errors import CompileError, InternalError, SealiftError
from sealift.version import VERSION

if TYPE_CHECKING:
    cmake_prefix_path: str
    from sealift.check_package import check
    from sealift.load import Context, Model, Package, Session, load, load_package
    from sealift.options import Options
    from sealift.pipeline import compile

__version__ = VERSION
__all__ = [
    "CompileError",
    "Context",
    "InternalError",
    "Model",
    "Options",
    "Package",
    "SealiftError",
    "Session",
    "check",
    "cmake_prefix_path",
    "compile",
    "load",
    "load_package",
]

_HOMES = {
    "Context": "sealift.load",
    "Model": "sealift.load",
    "Options": "sealift.options",
    "Package": "sealift.load",
    "Session": "sealift.load",
    "check": "sealift.check_package",
    "compile": "sealift.pipeline",
    "load_package": "sealift.load",
}


class _Package(ModuleType):
    """`sealift.load` is the function, though a module of that name lies in the package: importing a submodule binds its name here, so the
    name is a property that keeps the function."""

    @property
    def load(self) -> Any:
        return importlib.import_module("sealift.load").load

    @load.setter
    def load(self, module: ModuleType) -> None:
        pass

    @property
    def cmake_prefix_path(self) -> str:
        """For CMake: -DCMAKE_PREFIX_PATH=<this>, then find_package(Sealift)."""
        import pathlib

        places = [pathlib.Path(p) for p in self.__path__]
        return next((str(p) for p in places if (p / "lib/cmake/Sealift").is_dir()), "")


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
