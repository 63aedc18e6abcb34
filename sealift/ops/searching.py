"""Places in a sorted sequence: how many of its elements lie before a value. Counted, which for a sorted sequence is what a search finds."""

from __future__ import annotations

from sealift.ir.dim import Dim
from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Combine
from sealift.ops.lang import Builder, Number, S, Tensor, promoted
from sealift.ops.table import op


def _places(b: Builder, values: Tensor | Number | Dim, sequence: Tensor, right: bool, out_int32: bool) -> Tensor:
    """The first place of a value that keeps `sequence` sorted; right: the one after its equals. A sequence of one dimension is everyone's,
    otherwise its rows are the values'. NaN is larger than all."""
    (wanted, line), _ = promoted(b, values, sequence)
    wanted, line = b.materialize(wanted), b.materialize(line)

    def before(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        element, value = S(line.at((*(i[:-1] if line.rank > 1 else ()), *r))), S(wanted.at(i))
        return (~(element > value if right else element >= value)).cast(DType.I64)

    count = b.reduce(Combine.SUM, wanted.shape, line.shape[-1:], before)
    return b.cast(count, DType.I32 if out_int32 else DType.I64)


@op("aten.searchsorted.Tensor", samples="searchsorted")
@op("aten.searchsorted.Scalar")
def searchsorted(
    b: Builder,
    sorted_sequence: Tensor,
    self: Tensor | Number | Dim,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """`sorter` says where the sequence's order lies; a count needs none."""
    return _places(b, self, sorted_sequence, right or side == "right", out_int32)


@op("aten.bucketize.Tensor", samples="bucketize")
@op("aten.bucketize.Scalar")
def bucketize(b: Builder, self: Tensor | Number | Dim, boundaries: Tensor, out_int32: bool = False, right: bool = False) -> Tensor:
    return _places(b, self, boundaries, right, out_int32)
