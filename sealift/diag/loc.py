"""Where something came from: the user's lines and module paths, carried from import to the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Place:
    """One source line. `path` is relative to the directory of compilation where it lies below it."""

    path: str
    line: int
    module: str = ""  # "encoder.layer.0.attention"
    code: str = ""  # the line itself

    def __str__(self) -> str:
        at = f"{self.path}:{self.line}" if self.path else "?"
        return f"{at} {self.module}" if self.module else at


@dataclass(frozen=True)
class Loc:
    """The places that something stands for; fusion unions them."""

    places: tuple[Place, ...] = ()

    def __str__(self) -> str:
        return "; ".join(str(p) for p in self.places)

    def __bool__(self) -> bool:
        return bool(self.places)


def union(locs: Iterable[Loc]) -> Loc:
    """All places, the first mention of each, in order."""
    return Loc(tuple(dict.fromkeys(p for loc in locs for p in loc.places)))
