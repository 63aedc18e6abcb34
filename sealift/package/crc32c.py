"""CRC-32C (Castagnoli), which seals weights: the processor's instruction through the native module, else numpy.

The fallback serves a checkout whose extension is not built. It cuts the bytes into equal lanes, runs the byte-wise table over all lanes at
once, and joins the lanes' results: appending n zero bytes to a message is a linear map of its CRC over GF(2), so lanes join by that map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

Buffer = Any  # anything with the buffer protocol (collections.abc.Buffer is Python 3.12's)

_POLYNOMIAL = 0x82F63B78  # reflected
_LANES = 1 << 11  # a megabyte: 512 steps over the lanes and 2,048 joins, about the same time each
_SERIAL_BYTES = 1 << 16  # below this the lanes cost more than they save


def _find_native() -> Callable[[Buffer, int], int] | None:
    try:
        from sealift import _runtime  # type: ignore[attr-defined, unused-ignore]
    except ImportError:
        return None
    return cast("Callable[[Buffer, int], int]", _runtime.crc32c)


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()
_NATIVE = _find_native()


def _apply(matrix: list[int], vector: int) -> int:
    result, column = 0, 0
    while vector:
        if vector & 1:
            result ^= matrix[column]
        vector >>= 1
        column += 1
    return result


def _zeros_map(count: int) -> list[int]:
    """The map that `count` zero bytes apply to a CRC register, by squaring the one-byte map; column i is the image of bit i."""
    step = [_TABLE[(1 << i) & 0xFF] ^ ((1 << i) >> 8) for i in range(32)]
    result = [1 << i for i in range(32)]
    while count:
        if count & 1:
            result = [_apply(step, column) for column in result]
        step = [_apply(step, column) for column in step]
        count >>= 1
    return result


def crc32c_reference(data: Buffer, crc: int = 0) -> int:
    """Byte by byte: what the other two are tested against."""
    register = crc ^ 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        register = _TABLE[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def crc32c_numpy(data: Buffer, crc: int = 0) -> int:
    view = memoryview(data).cast("B")
    if len(view) < _SERIAL_BYTES:
        return crc32c_reference(view, crc)
    import numpy as np

    lane_bytes = len(view) // _LANES
    body = np.frombuffer(view, np.uint8, _LANES * lane_bytes).reshape(_LANES, lane_bytes)
    table = np.array(_TABLE, np.uint32)
    register = np.zeros(_LANES, np.uint32)
    for column in np.ascontiguousarray(body.T):
        register = table[(register ^ column) & 0xFF] ^ (register >> 8)
    shift = _zeros_map(lane_bytes)
    joined = crc ^ 0xFFFFFFFF
    for lane in register.tolist():
        joined = _apply(shift, joined) ^ lane
    return crc32c_reference(view[_LANES * lane_bytes :], joined ^ 0xFFFFFFFF)


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The CRC of `data`, going on from `crc`, the CRC of what came before."""
    return _NATIVE(data, crc) if _NATIVE is not None else crc32c_numpy(data, crc)
