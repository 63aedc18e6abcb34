"""A walk over protobuf's wire format that never copies and never trusts a length."""

from __future__ import annotations

from collections.abc import Iterator

from sealift.fleet.errors import WireError

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
