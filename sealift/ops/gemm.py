"""Operators that are matrix products: the gemm family for f32, loops for the other types."""

from __future__ import annotations

from sealift.ir.dtype import DType
from sealift.ir.loop.prim import Combine
from sealift.ops.lang import Builder, S, Tensor
from sealift.ops.table import op


@op("aten.linear.default", samples="nn.functional.linear", rtol=2e-6, atol=1e-6)
def linear(b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input [*, k] x weight [n, k] (or [k]) + bias [n] -> [*, n]"""
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if input.dtype is DType.F32 and weight.rank == 2 and input.rank >= 1:
        operands = {"a": input, "b": weight} | ({"bias": bias} if bias is not None else {})
        return b.call("gemm", operands, [(shape, DType.F32)], transpose_b=True)[0]
    compute = input.dtype.compute
    rank = input.rank - 1

    def term(i: tuple, r: tuple) -> S:  # type: ignore[type-arg]
        return S(input.at((*i[:rank], *r))).cast(compute) * S(weight.at((*i[rank:], *r))).cast(compute)

    total = b.reduce(Combine.SUM, shape, input.shape[-1:], term)
    if bias is not None:
        total = b.pointwise(lambda x, y: x + y.cast(compute), total, bias)
    return b.cast(total, input.dtype)
