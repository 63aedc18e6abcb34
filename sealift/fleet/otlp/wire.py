"""A walk over protobuf's wire format that never copies and never trusts a length.

Why not protobuf's own classes for the points: reading one histogram point's attributes and counts through them takes 15 us, and a fleet
repeats the same attributes in every batch. The walk hands back the attributes' bytes, which are looked up in a dictionary, and the packed
counts, which numpy decodes for a whole request at once: 3 us a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sealift.fleet.errors import WireError
from sealift.fleet.model import Ints

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(buffer: bytes, pos: int, end: int) -> tuple[int, int]:
    """(value mod 2**64, position after it)"""
    value = shift = 0
    while pos < end:
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, pos
        shift += 7
        if shift > 63:
            break
    raise WireError("a number runs past its message")


def signed(value: int) -> int:
    """sint32, sint64: zig-zag."""
    return (value >> 1) ^ -(value & 1)


def skip(buffer: bytes, pos: int, end: int, kind: int) -> int:
    if kind == VARINT:
        return varint(buffer, pos, end)[1]
    if kind == FIXED64:
        pos += 8
    elif kind == FIXED32:
        pos += 4
    elif kind == BYTES:
        size, pos = varint(buffer, pos, end)
        pos += size
    else:
        raise WireError(f"wire type {kind}")
    if pos > end:
        raise WireError("a field runs past its message")
    return pos


def messages(buffer: bytes, pos: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, start, end) of each length-delimited field; numbers are stepped over."""
    while pos < end:
        tag, pos = varint(buffer, pos, end)
        if tag & 7 == BYTES:
            size, pos = varint(buffer, pos, end)
            if size > end - pos:
                raise WireError("a field runs past its message")
            yield tag >> 3, pos, pos + size
            pos += size
        else:
            pos = skip(buffer, pos, end, tag & 7)


def number(buffer: bytes, pos: int, end: int, field: int) -> int | None:
    """The last varint of that field number; None if there is none."""
    found = None
    while pos < end:
        tag, pos = varint(buffer, pos, end)
        if tag == field << 3:
            found, pos = varint(buffer, pos, end)
        else:
            pos = skip(buffer, pos, end, tag & 7)
    return found


def packed_varints(parts: Sequence[bytes]) -> tuple[Ints, Ints]:
    """(all numbers, offsets of each part's): what `[varint, ...]` of each part would give, a whole request in one go."""
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    data = np.frombuffer(b"".join(parts), np.uint8)
    last = data < 0x80
    ends = np.flatnonzero(last)
    starts_of_parts = np.concatenate([[0], np.cumsum(sizes)])
    nonempty = starts_of_parts[1:][sizes > 0] - 1
    if not last[nonempty].all():
        raise WireError("a number runs past its message")
    offsets = np.concatenate([[0], np.cumsum(last)])[starts_of_parts].astype(np.int64)
    if len(ends) == len(data):
        return data.astype(np.int64), offsets
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    lengths = ends - starts + 1
    longest = int(lengths.max())
    if longest > 9:  # 9 bytes hold 63 bits
        raise WireError("a count of 2**63 or more")
    values = (data[starts] & 0x7F).astype(np.int64)
    for k in range(1, longest):  # most counts take one or two bytes
        more = np.flatnonzero(lengths > k)
        values[more] |= (data[starts[more] + k] & 0x7F).astype(np.int64) << (7 * k)
    return values, offsets
