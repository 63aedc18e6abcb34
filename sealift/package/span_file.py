"""A file written in spans that begin and end at multiples of a huge page.

Linux (ext4 from 6.16 on, XFS, tmpfs as mounted) keeps what one write spans in one block of the page cache, and maps a block of 2 MiB by one
entry. Weights that processes map then take 1/512 of the page table entries and of the faults, and a model that waits for memory, as
one-token decoding does, reads them a tenth faster. Where writes end anywhere else, blocks of every smaller size are left."""

from __future__ import annotations

import os

from sealift.package.crc32c import Buffer

SPAN_BYTES = 2 << 20  # a huge page of x86-64, and of AArch64 with pages of 4 KiB


class SpanFile:
    """Appends to `descriptor`, from its beginning. What was written reaches the file in whole spans, and at `flush`. Error: OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._span = bytearray(SPAN_BYTES)
        self._begin, self._end = 0, 0  # of what waits in the span, as offsets in the file

    def tell(self) -> int:
        return self._end

    def write(self, data: Buffer) -> None:
        left = memoryview(data).cast("B")
        while left:
            at = self._end % SPAN_BYTES
            taken = left[: SPAN_BYTES - at]
            self._span[at : at + len(taken)] = taken
            self._end += len(taken)
            left = left[len(taken) :]
            if self._end % SPAN_BYTES == 0:
                self.flush()

    def patch(self, offset: int, data: bytes) -> None:
        """Replaces bytes that were written before."""
        self.flush()
        _write_all(self._descriptor, memoryview(data), offset)

    def flush(self) -> None:
        at = self._begin % SPAN_BYTES
        _write_all(self._descriptor, memoryview(self._span)[at : at + self._end - self._begin], self._begin)
        self._begin = self._end

    def sync(self) -> None:
        """Waits until the disk has what was written."""
        self.flush()
        os.fsync(self._descriptor)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
