"""Constants -> stored arrays: each in the layouts that kernels read it in (contracts/sealift_model.h: sealift_layout)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL = 32
ALIGN_BYTES = 64


def pack(array: NDArray[Any], layout: int, groups: int = 0) -> NDArray[Any]:
    """ROW_MAJOR 0: as it is. PANEL32 1: an [n, k] matrix as ceil(n / 32) panels of [k][32], columns past n zero. PANEL32_T 2: a [k, n] one.
    CONV_PANEL32 3: [out, in / groups, *taps], each group the panels of its [out / groups, (*taps, in / groups)]. CONV_DEPTHWISE 4: [taps][out].
    CONV_TRANSPOSE_PANEL32 5: as 3, of [in, out / groups, *taps] with the groups along in."""
    if layout == 0:
        return np.ascontiguousarray(array)
    if layout == 4:
        return np.ascontiguousarray(array.reshape(array.shape[0], -1).T)
    if layout == 3:
        taps_first = np.moveaxis(array, 1, -1).reshape(groups, array.shape[0] // groups, -1)
        return np.concatenate([_panels(group) for group in taps_first])
    if layout == 5:
        grouped = array.reshape(groups, array.shape[0] // groups, array.shape[1], -1).transpose(0, 2, 3, 1)
        return np.concatenate([_panels(group.reshape(array.shape[1], -1)) for group in grouped])
    return _panels(array if layout == 1 else array.T)


def _panels(matrix: NDArray[Any]) -> NDArray[Any]:
    n, k = matrix.shape
    full, rest = divmod(n, PANEL)
    packed = np.empty((full + (rest > 0), k, PANEL), matrix.dtype)
    packed[:full] = matrix[: full * PANEL].reshape(full, PANEL, k).transpose(0, 2, 1)  # one pass: a view is split, not copied
    if rest:
        packed[full, :, :rest], packed[full, :, rest:] = matrix[full * PANEL :].T, 0
    return packed


def packed_bytes(array: NDArray[Any], layout: int, groups: int = 0) -> int:
    """Of pack(array, layout, groups), without making it."""
    if layout in (0, 4):
        return array.nbytes
    rows = {1: array.shape[0], 2: array.shape[-1], 3: array.shape[0] // max(groups, 1), 5: array.shape[1] if array.ndim > 1 else 0}[layout]
    return array.nbytes // rows * (-(-rows // PANEL) * PANEL) if rows else 0


def padded_size(size_bytes: int) -> int:
    return (size_bytes + ALIGN_BYTES - 1) // ALIGN_BYTES * ALIGN_BYTES
