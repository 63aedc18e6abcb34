"""Sums, means and maxima over bags of embeddings: bag k of the indices begins at offsets[k] and ends where the next begins."""

from __future__ import annotations

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index
from sealift.ir.loop.prim import Combine
from sealift.ops.arguments import refuse
from sealift.ops.guards import lowest
from sealift.ops.lang import Builder, S, Tensor, checked, maximum, select
from sealift.ops.table import op
from sealift.ops.views import narrowed, reshaped

SUM, MEAN, MAX = 0, 1, 2


def _bag_of(b: Builder, starts: Tensor, count: Dim) -> Tensor:
    """The bag of each of `count` positions: the number of bags that begin at it or before, less one. Work is linear in both."""
    begun = b.scatter(
        b.full((count + 1,), 0, DType.I64),  # empty bags at the end begin at `count`
        starts.shape,
        lambda at: (checked(S(starts.at(at)), count + 1, negative=False),),
        lambda at: S(Index(dim(1))),
        Combine.SUM,
    )
    return b.pointwise(lambda x: x - 1, b.scan(Combine.SUM, narrowed(begun, 0, 0, count), 0))


@op("aten._embedding_bag.default", rtol=1e-5, atol=1e-5)
@op("aten._embedding_bag_forward_only.default", rtol=1e-5, atol=1e-5)
def embedding_bag(
    b: Builder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """weight [n, d], indices [i], offsets [k] (with include_last_offset [k + 1]) -> [k, d], in one pass over the indices. The other
    results serve the gradient only, as does `sparse`; they are zeros.

    Numerics: a bag's rows are added in their order, in f32 for half types. An index of padding_idx is not there; an empty bag is 0."""
    if weight.rank != 2:
        refuse(f"embedding_bag of a table of rank {weight.rank}")
    rows, width = weight.shape
    flat = reshaped(indices, (indices.numel,))
    count = flat.shape[0]
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    compute = weight.dtype.compute
    bag = b.materialize(_bag_of(b, narrowed(offsets, 0, 0, bags), count))
    absent = lowest(compute) if mode == MAX else 0

    def place(position: Dim) -> S:
        return S(checked(S(bag.at((position,))), bags, negative=False))

    def is_padding(position: Dim) -> S:
        return S(flat.at((position,))).cast(DType.I64).eq(padding_idx)

    def element(at: tuple[Dim, ...]) -> S:
        value = S(weight.at((checked(S(flat.at(at[:1])), rows, negative=False), at[1]))).cast(compute)
        if per_sample_weights is not None:
            value = value * S(per_sample_weights.at(at[:1])).cast(compute)
        return value if padding_idx < 0 else select(is_padding(at[0]), absent, value)

    start = b.full((bags, width), absent, compute)
    total = b.scatter(start, (count, width), lambda at: (place(at[0]).e, at[1]), element, Combine.MAX if mode == MAX else Combine.SUM)
    if mode != SUM:
        one = S(Index(dim(1)))
        sizes = b.scatter(
            b.full((bags,), 0, DType.I64),
            (count,),
            lambda at: (place(at[0]).e,),
            lambda at: one if padding_idx < 0 else select(is_padding(at[0]), 0, one),
            Combine.SUM,
        )
        sizes = Tensor(DType.I64, (bags, width), lambda i, size=sizes: size.at(i[:1]))  # type: ignore[misc]
        if mode == MEAN:
            total = b.pointwise(lambda x, size: x / maximum(size, 1).cast(compute), total, sizes)
        else:
            total = b.pointwise(lambda x, size: select(size.eq(0), 0, x), total, sizes)
    positions = b.full((bags, width) if mode == MAX else (bags,), 0, DType.I64)
    return b.cast(total, weight.dtype), b.full((count,), 0, DType.I64), b.full((bags,), 0, DType.I64), positions


@op("aten.embedding_bag.default", rtol=1e-5, atol=1e-5)
@op("aten.embedding_bag.padding_idx", rtol=1e-5, atol=1e-5)
def embedding_bag_padded(
    b: Builder,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A negative padding_idx counts from the end of the table here."""
    rows = weight.shape[0]
    if padding_idx is not None and padding_idx < 0:
        if not rows.is_const:
            refuse("a padding_idx counted from the end of a table whose size is not known")
        padding_idx += rows.value
    result: tuple[Tensor, Tensor, Tensor, Tensor] = embedding_bag(
        b, weight, indices, offsets, False, mode, False, per_sample_weights, include_last_offset, -1 if padding_idx is None else padding_idx
    )
    return result
