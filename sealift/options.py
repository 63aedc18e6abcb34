"""What a compilation may be told. Read once at the edge, frozen, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sealift.errors import ArgumentError

ISAS = ("baseline", "avx2", "avx512")


@dataclass(frozen=True)
class Options:
    """isas: instruction sets built into the library, picked when the model is loaded.
    dump_dir: every step's result is written there.  skip: passes left out.  stop_after: the step to end with.
    debug_symbols: keep them in the library.  cache_dir: compiled units by content (None: ~/.cache/sealift; "" : no cache).
    jobs: compilers run side by side (0: one per core).
    metadata: strings that travel in the package.  extra_files: name -> bytes, found again by load().extra_files.
    """

    isas: tuple[str, ...] = ISAS
    dump_dir: Path | None = None
    skip: frozenset[str] = frozenset()
    stop_after: str | None = None
    debug_symbols: bool = False
    cache_dir: Path | str | None = None
    jobs: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    extra_files: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.dump_dir, str):
            object.__setattr__(self, "dump_dir", Path(self.dump_dir))
        unknown = [i for i in self.isas if i not in ISAS]
        if unknown or not self.isas:
            raise ArgumentError(f"isas {list(self.isas)}: choose from {', '.join(ISAS)}")
        if self.jobs < 0:
            raise ArgumentError(f"jobs {self.jobs}: at least 1, or 0 for one per core")
        object.__setattr__(self, "isas", tuple(dict.fromkeys(self.isas)))  # one named twice is built once
