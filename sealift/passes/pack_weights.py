"""Constants -> stored arrays: each in the layouts that kernels read it in (contracts/sealift_model.h: sealift_layout)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PANEL = 32
ALIGN_BYTES = 64


def pack(array: NDArray[Any], layout: int) -> NDArray[Any]:
    """ROW_MAJOR 0: as it is. PANEL32 1: an [n, k] matrix as ceil(n / 32) panels of [k][32], columns past n zero. PANEL32_T 2: a [k, n] one."""
    if layout == 0:
        return np.ascontiguousarray(array)
    matrix = array if layout == 1 else array.T
    n, k = matrix.shape
    panels = -(-n // PANEL)
    padded = np.zeros((panels * PANEL, k), array.dtype)
    padded[:n] = matrix
    return np.ascontiguousarray(padded.reshape(panels, PANEL, k).transpose(0, 2, 1))


def padded_size(size_bytes: int) -> int:
    return (size_bytes + ALIGN_BYTES - 1) // ALIGN_BYTES * ALIGN_BYTES
