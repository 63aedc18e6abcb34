"""The arrays of a weights file while it is made: each stored once, wherever it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any

from numpy.typing import NDArray

from sealift.package.write import Made

Array = NDArray[Any]
ALIGN_BYTES = 64  # every array begins at a cache line


def _content(array: Array) -> Hashable:
    return array.dtype.str, array.shape, hashlib.sha256(array.data.cast("B") if array.nbytes else b"").digest()


class WeightShelf:
    """Arrays in the order they came, at multiples of 64 bytes. `by_content`: arrays of the same values are one, whichever model they come
    from; else an array is one with itself only, which takes no hash."""

    def __init__(self, by_content: bool = False) -> None:
        self.by_content = by_content
        self.keys: dict[int, tuple[Array, Hashable]] = {}  # by id; the array is kept, so that its id stays its own
        self.arrays: list[tuple[int, Made]] = []  # (offset in bytes, array)
        self.offsets: dict[Hashable, tuple[int, int]] = {}  # key -> (offset, size in bytes)
        self.end_bytes = 0

    def key_of(self, array: Array) -> Hashable:
        """Equal for arrays that are one."""
        if id(array) not in self.keys:
            self.keys[id(array)] = (array, _content(array) if self.by_content else id(array))
        return self.keys[id(array)][1]

    def place(self, key: Hashable, size_bytes: int, make: Callable[[], Array]) -> tuple[int, int]:
        """(offset, size in bytes) of the array called `key`, which is made when it is written."""
        if key not in self.offsets:
            self.offsets[key] = (self.end_bytes, size_bytes)
            self.arrays.append((self.end_bytes, Made(size_bytes, lambda: make().data)))
            self.end_bytes += -(-size_bytes // ALIGN_BYTES) * ALIGN_BYTES
        return self.offsets[key]

    def pieces(self) -> list[tuple[int, Made]]:
        """What write_package takes."""
        return [(offset, array) for offset, array in self.arrays if array.size_bytes]
