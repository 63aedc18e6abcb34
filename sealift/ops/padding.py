"""Padding: a constant, the mirrored inside, or the edge. Pads are given from the last dimension on, two for each; negative ones crop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sealift.ir.dim import Dim, dim, dim_max, dim_min
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Expr, Index
from sealift.ir.loop.prim import Prim
from sealift.ops.arguments import Size, as_sizes
from sealift.ops.guards import clamped_entry, read_inside
from sealift.ops.lang import Builder, IndexEntry, Number, S, Tensor, prim, shifted
from sealift.ops.table import op


def _before_and_shape(self: Tensor, pad: Sequence[Size]) -> tuple[list[Dim], tuple[Dim, ...]]:
    """What comes before each dimension, and the padded shape."""
    sizes = as_sizes(pad)
    before, shape = [dim(0)] * self.rank, list(self.shape)
    for k in range(len(sizes) // 2):
        d = self.rank - 1 - k
        before[d] = sizes[2 * k]
        shape[d] = shape[d] + sizes[2 * k] + sizes[2 * k + 1]
    return before, tuple(shape)


@op("aten.constant_pad_nd.default", samples="constant_pad_nd")
def constant_pad_nd(b: Builder, self: Tensor, pad: Sequence[Size], value: Number = 0) -> Tensor:
    before, shape = _before_and_shape(self, pad)
    other = value if self.dtype.is_float or self.dtype is DType.C64 else int(value)

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        return read_inside(self, [shifted(i, -p) for i, p in zip(index, before)], other)

    return Tensor(self.dtype, shape, element)


def _mapped(self: Tensor, pad: Sequence[Size], place: Callable[[IndexEntry, Dim], IndexEntry]) -> Tensor:
    """Padded dimensions read at place(position, size)."""
    before, shape = _before_and_shape(self, pad)
    first = self.rank - len(pad) // 2

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        at = [i if d < first else place(shifted(i, -p), s) for d, (i, p, s) in enumerate(zip(index, before, self.shape))]
        return self.at(at)

    return Tensor(self.dtype, shape, element)


def _reflected(i: IndexEntry, size: Dim) -> IndexEntry:
    """-1 is 1, size is size - 2."""
    last = size - 1
    if isinstance(i, Dim):
        positive = dim_max(i, -i)
        return dim_min(positive, 2 * last - positive)
    positive_value = prim(Prim.ABS, S(i))
    return prim(Prim.MINIMUM, positive_value, S(Index(2 * last)) - positive_value).e


def _nearest(i: IndexEntry, size: Dim) -> IndexEntry:
    return dim_min(dim_max(i, 0), size - 1) if isinstance(i, Dim) else clamped_entry(i, dim(0), size - 1)


def _padding_rows(name: str, place: Callable[[IndexEntry, Dim], IndexEntry]) -> None:
    for rank in (1, 2, 3):

        @op(f"aten.{name}_pad{rank}d.default", samples="nn.functional.pad")
        def padded(b: Builder, self: Tensor, padding: Sequence[Size]) -> Tensor:
            return _mapped(self, padding, place)


_padding_rows("reflection", _reflected)
_padding_rows("replication", _nearest)


def _around(i: IndexEntry, size: Dim) -> IndexEntry:
    """-1 is the last, size is 0."""
    return i % size if isinstance(i, Dim) else prim(Prim.REMAINDER, S(i), S(Index(size))).e


@op("aten.pad.default", samples="nn.functional.pad")
def pad(b: Builder, self: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> Tensor:
    if mode == "constant":
        result: Tensor = constant_pad_nd(b, self, pad, 0 if value is None else value)
        return result
    place = {"reflect": _reflected, "replicate": _nearest, "circular": _around}[mode]
    return _mapped(self, pad, place)
