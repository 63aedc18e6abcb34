"""Arguments of operators as their schemas have them: sizes, dimensions, pairs; and the refusal of what a row cannot take."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, dim_max, dim_min, is_at_most
from sealift.ops.lang import normalize_dim
from sealift.ops.refusal import refuse as refuse

Size = int | Dim

# Arguments that say where and how a tensor lies, not what it holds: no row has them, callers leave them out.
PLACEMENT = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit", "sparse", "sparse_grad", "generator"})


def as_int(value: Size, what: str) -> int:
    """The number that an argument must be when the model is compiled."""
    if isinstance(value, Dim):
        if not value.is_const:
            refuse(f"{what} depends on a size ({value}); it must be a number when the model is compiled")
        return value.value
    return int(value)


def as_sizes(values: Sequence[Size]) -> tuple[Dim, ...]:
    return tuple(dim(v) for v in values)


def spread(values: Sequence[Size] | Size, count: int, what: str) -> tuple[int, ...]:
    """One number for all dimensions, or one for each."""
    numbers = [as_int(v, what) for v in (values if isinstance(values, Sequence) else (values,))]
    return tuple(numbers * count if len(numbers) == 1 else numbers)


def normalize_dims(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Sorted, non-negative; None and the empty list are all dimensions."""
    if dims is None or (isinstance(dims, Sequence) and not dims):
        return tuple(range(rank))
    listed = dims if isinstance(dims, Sequence) else (dims,)
    return tuple(sorted({normalize_dim(d, rank) for d in listed})) if rank else ()


def slice_range(start: Size | None, end: Size | None, step: Size, size: Dim) -> tuple[Dim, int, Dim]:
    """(first position, step, number of positions) of self[start:end:step], clamped as eager clamps it."""
    every = as_int(step, "the step of a slice")
    first, last = _position(start, dim(0), size), _position(end, size, size)
    last = dim_max(first, last)
    return first, every, (last - first + (every - 1)) // every


def _position(at: Size | None, default: Dim, size: Dim) -> Dim:
    """A bound of a slice in [0, size]: negative ones count from the end."""
    if at is None:
        return default
    position = dim(at)
    if position.lower >= 0:
        return dim_min(position, size)
    if position.upper < 0:
        return dim_max(position + size, 0)
    if is_at_most(dim(0), position):
        return dim_min(position, size)
    refuse(f"the bound {position} of a slice may be negative or not, depending on sizes")
