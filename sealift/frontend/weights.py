"""Weights as arrays, and the order in which a tensor's memory holds its dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType, dtype_from_torch_name


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or lifted constant, row-major. bf16 is held as its uint16 bits."""

    dtype: DType
    array: NDArray[Any]


def dense_order(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """Dimensions from outermost to innermost if the strides are those of a dense permutation; None if that is row-major, or if they
    are not. A dimension of size 1 may have any stride."""
    one = dim(1)
    remaining = list(range(len(shape)))
    inner_first: list[int] = []
    expected = one
    while remaining:
        found = [d for d in remaining if strides[d] == expected] or [d for d in remaining if shape[d] == one]
        if not found:
            return None
        here = found[-1]
        remaining.remove(here)
        inner_first.append(here)
        expected = expected * shape[here]
    order = tuple(reversed(inner_first))
    moved = [d for d in order if shape[d] != one]
    return None if moved == sorted(moved) else order


def storage_key(tensor: torch.Tensor) -> Any:
    """Equal for tensors that are the same memory seen the same way; None for an empty one, which shares nothing."""
    if tensor.numel() == 0:
        return None
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def weight_of(tensor: torch.Tensor) -> Weight:
    dtype = dtype_from_torch_name(str(tensor.dtype))
    assert dtype is not None
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if dtype is DType.BF16:
        return Weight(dtype, data.view(torch.int16).numpy().view(np.uint16))
    return Weight(dtype, data.numpy())
