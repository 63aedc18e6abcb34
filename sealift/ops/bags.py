"""Sums, means and maxima over bags of embeddings: bag k of the indices begins at offsets[k] and ends where the next begins."""

from __future__ import annotations

from sealift.ir.dtype import DType
from sealift.ops.arguments import refuse
from sealift.ops.lang import Builder, Tensor
from sealift.ops.table import op
from sealift.ops.views import reshaped

SUM, MEAN, MAX = 0, 1, 2


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
    if weight.rank != 2 or not weight.dtype.is_float:
        refuse(f"embedding_bag of a table of rank {weight.rank} and dtype {weight.dtype}")
    flat = reshaped(indices, (indices.numel,))
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    operands = {"table": weight, "indices": flat, "offsets": offsets}
    if per_sample_weights is not None:
        operands["weights"] = b.cast(reshaped(per_sample_weights, flat.shape), weight.dtype)
    (out,) = b.call(
        "bags", operands, [((bags, weight.shape[1]), weight.dtype)], mode=mode, padding_idx=padding_idx, include_last_offset=include_last_offset
    )
    positions = b.full(out.shape if mode == MAX else (bags,), 0, DType.I64)
    return out, b.full(flat.shape, 0, DType.I64), b.full((bags,), 0, DType.I64), positions


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
