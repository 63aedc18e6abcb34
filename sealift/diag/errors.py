"""The kinds of failure: the user can act on a CompileError, an InputError or a RunError; an InternalError is our bug."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.diag.loc import Loc


class SealiftError(Exception):
    """Base of every error sealift raises. `code` names its page: `sealift explain CODE`."""

    code = "E-INTERNAL-001"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        self.code = code or type(self).code
        super().__init__(message if message.startswith("[") else f"[{self.code}] {message}")


class CompileError(SealiftError):
    """The model or the options cannot be compiled as they are."""

    code = "E-COMPILE-001"

    def __init__(self, message: str, *, code: str, loc: Loc | None = None, node: str = "", help: str = "") -> None:
        lines = [message if message.startswith("[") else f"[{code}] {message}"]
        if node:
            lines.append(f"  node: {node}")
        for place in (loc or Loc()).places:
            where = f"{place.path}:{place.line}" + (f" (in {place.module})" if place.module else "")
            lines.append(f"  at:   {where}: {place.code}" if place.code else f"  at:   {where}")
        if help:
            lines.append(f"  help: {help}")
        super().__init__("\n".join(lines), code=code)


def joined(errors: Sequence[CompileError]) -> CompileError:
    """One error that says all of several, under the first one's code."""
    if len(errors) == 1:
        return errors[0]
    return CompileError("\n".join(str(e) for e in errors), code=errors[0].code)


class InternalError(SealiftError):
    """An invariant of sealift's own does not hold; the message says which and how to report it."""

    code = "E-INTERNAL-001"


class InputError(SealiftError):
    """What a caller gave does not fit what the model declares."""

    code = "E-INPUT-001"


class RunError(SealiftError):
    """The data led a run to where eager raises, too. The codes are contracts/sealift.h's."""

    code = "E-RUN-002"


class IndexOutOfRange(RunError, IndexError):
    """An index out of range inside the model."""

    code = "E-RUN-001"


class DivisionByZero(RunError, ZeroDivisionError):
    """An integer division by zero."""

    code = "E-RUN-003"
