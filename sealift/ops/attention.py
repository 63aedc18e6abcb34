"""Scaled dot product attention: the attention family for f32, products and a softmax for the other types."""

from __future__ import annotations

import math

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index
from sealift.ir.loop.prim import Combine
from sealift.ops.arguments import as_int, refuse
from sealift.ops.lang import Builder, S, Tensor, broadcast_shapes, select
from sealift.ops.norms import softmax_of
from sealift.ops.table import op
from sealift.ops.views import expanded, reshaped


@op(
    "aten.scaled_dot_product_attention.default", samples="nn.functional.scaled_dot_product_attention", rtol=5e-5, atol=5e-5
)  # eager's exp is of 20 ULP there
def attention(
    b: Builder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query key^T * scale + attn_mask) value over [*, s, d], [*, t, d], [*, t, e] -> [*, s, e].

    Numerics: the softmax in f32 (f64 for f64). A row whose keys are all masked gives 0. A bool mask keeps where it is true."""
    if dropout_p > 0:
        refuse("attention with dropout: export the model after model.eval()")
    if scale is None:
        scale = 1 / math.sqrt(as_int(query.shape[-1], "the head dimension of attention without a scale"))
    lead = broadcast_shapes([t.shape[:-2] for t in (query, key, value)] if not enable_gqa else [query.shape[:-2]])
    out_shape = (*lead, query.shape[-2], value.shape[-1])
    rank = len(out_shape)
    if query.dtype is DType.F32 and rank in (3, 4):
        operands = {"q": query, "k": key, "v": value}
        if not enable_gqa:
            operands = {role: expanded(t, (*lead, *t.shape[-2:])) for role, t in operands.items()}
        if attn_mask is not None:
            operands["mask"] = attn_mask
        four = {role: _rank_four(t) for role, t in operands.items()}
        made = (*([dim(1)] * (4 - rank)), *out_shape)
        return reshaped(b.call("attention", four, [(made, DType.F32)], scale=float(scale), causal=is_causal)[0], out_shape)
    return _composed(b, query, key, value, attn_mask, float(scale), is_causal, out_shape)


def _rank_four(t: Tensor) -> Tensor:
    return t if t.rank == 4 else reshaped(t, (*([1] * (4 - t.rank)), *t.shape))


def _composed(
    b: Builder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    out_shape: tuple[Dim, ...],
) -> Tensor:
    compute, lead = query.dtype.compute, out_shape[:-2]
    heads = len(lead) - 1
    repeated = 1
    if heads >= 0 and key.rank == query.rank and key.shape[-3] != lead[-1] and key.shape[-3] != dim(1):  # grouped: h_kv divides h
        repeated = as_int(lead[-1], "the number of heads") // as_int(key.shape[-3], "the number of key heads")

    def source(t: Tensor, i: tuple[Dim, ...]) -> S:
        front = list(i[:-2])
        if repeated > 1 and t is not query:
            front[heads] = front[heads] // repeated
        tail = front[len(front) - (t.rank - 2) :]
        return S(t.at([*(dim(0) if s == dim(1) else x for s, x in zip(t.shape, tail)), *i[-2:]])).cast(compute)

    length = key.shape[-2]

    def score(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        return source(query, (*i[:-1], r[0])) * source(key, (*i[:-2], i[-1], r[0]))

    scores = b.pointwise(lambda s: s * scale, b.reduce(Combine.SUM, (*lead, query.shape[-2], length), query.shape[-1:], score))
    if causal:
        whole_scores = scores
        scores = Tensor(
            compute,
            scores.shape,
            lambda i: select(S(Index(i[-1] - i[-2])) <= 0, S(whole_scores.at(i)), -math.inf).e,  # type: ignore[operator]
        )
    if mask is not None:
        full = expanded(mask, scores.shape)
        if mask.dtype is DType.BOOL:
            scores = b.pointwise(lambda s, m: select(m, s, -math.inf), scores, full)
        else:
            scores = b.pointwise(lambda s, m: s + m.cast(compute), scores, full)
    scores = b.materialize(scores)
    weights = b.materialize(softmax_of(b, scores, scores.rank - 1))
    masked = causal or mask is not None

    def mix(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        weight = S(weights.at((*i[:-1], r[0])))
        if masked:  # a row without any key: 0, not NaN
            weight = select(S(top.at(i[:-1])).eq(-math.inf), 0, weight)
        return weight * source(value, (*i[:-2], r[0], i[-1]))

    top = b.reduce(Combine.MAX, scores.shape[:-1], scores.shape[-1:], lambda i, r: S(scores.at((*i, *r)))) if masked else weights
    return b.cast(b.reduce(Combine.SUM, out_shape, (length,), mix), query.dtype)
