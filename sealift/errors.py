"""Every error that loading and running a model can raise: one type per code, all of them SealiftError, each also the built-in error it is
closest to. `sealift explain CODE` prints a code's page.

The runtime's codes are contracts/sealift.h's; the compiler adds CompileError and InternalError with codes of their own."""

from __future__ import annotations

from sealift.diag.errors import CompileError, DivisionByZero, IndexOutOfRange, InputError, InternalError, RunError, SealiftError
from sealift.package.errors import DiskFullError, FileError, IntegrityError, ModelNameError, PackageError, VersionError

__all__ = [
    "ArgumentError",
    "AssertionFailedError",
    "BusyError",
    "CompileError",
    "ConstantError",
    "DeviceError",
    "DiskFullError",
    "DivisionByZero",
    "DtypeError",
    "FileError",
    "IndexOutOfRange",
    "InputCountError",
    "InputError",
    "InputTypeError",
    "IntegrityError",
    "InternalError",
    "IsaError",
    "LibraryError",
    "ModelNameError",
    "OutOfMemoryError",
    "OutputError",
    "PackageError",
    "RunError",
    "SealiftError",
    "ShapeError",
    "VersionError",
    "from_code",
]


class ArgumentError(SealiftError, ValueError):
    """A missing or contradictory argument."""

    code = "E-ARG-001"


class IsaError(SealiftError, RuntimeError):
    """Built for no instruction set that this machine has."""

    code = "E-ISA-001"


class LibraryError(SealiftError, RuntimeError):
    """The model library cannot be loaded."""

    code = "E-LIBRARY-001"


class InputCountError(InputError, ValueError):
    """Wrong number of inputs or outputs, or another structure of them."""

    code = "E-INPUT-001"


class DtypeError(InputError, ValueError):
    """Wrong dtype."""

    code = "E-INPUT-002"


class ShapeError(InputError, ValueError):
    """Wrong rank or size, or a size out of the declared range."""

    code = "E-INPUT-003"


class DeviceError(InputError, ValueError):
    """Not on the CPU."""

    code = "E-INPUT-004"


class OutputError(InputError, ValueError):
    """A preallocated output that does not fit."""

    code = "E-INPUT-005"


class InputTypeError(InputError, TypeError):
    """An object that is not a tensor."""

    code = "E-INPUT-006"


class AssertionFailedError(RunError, AssertionError):
    """An assertion of the model failed."""

    code = "E-RUN-002"


class OutOfMemoryError(SealiftError, MemoryError):
    """Out of memory."""

    code = "E-MEMORY-001"


class ConstantError(SealiftError, ValueError):
    """An unknown constant, or a value that does not fit it."""

    code = "E-CONSTANT-001"


class BusyError(SealiftError, RuntimeError):
    """The context is running on another thread."""

    code = "E-CONTEXT-001"


_BY_CODE: dict[str, type[SealiftError]] = {
    kind.code: kind
    for kind in (
        ArgumentError,
        FileError,
        DiskFullError,
        PackageError,
        IntegrityError,
        VersionError,
        ModelNameError,
        IsaError,
        LibraryError,
        InputCountError,
        DtypeError,
        ShapeError,
        DeviceError,
        OutputError,
        InputTypeError,
        IndexOutOfRange,
        AssertionFailedError,
        DivisionByZero,
        OutOfMemoryError,
        ConstantError,
        BusyError,
    )
}


def from_code(code: str, message: str) -> SealiftError:
    """The error of the type that `code` has. The native module calls it."""
    kind = _BY_CODE.get(code, InternalError)
    return kind(message, code=code)
