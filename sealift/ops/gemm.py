"""Operators that are matrix products: the gemm family for f32, loops for the other types."""

from __future__ import annotations

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index
from sealift.ir.loop.prim import Combine
from sealift.ops.lang import (
    Builder,
    Number,
    S,
    Tensor,
    broadcast_index,
    broadcast_shapes,
    checked,
    imaginary_part,
    joined,
    minimum,
    real_part,
    select,
)  # fmt: skip
from sealift.ops.pointwise import plus, scaled, times
from sealift.ops.refusal import refuse
from sealift.ops.table import op
from sealift.ops.views import expanded, squeezed, swapped, unsqueezed


def product_of(b: Builder, left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """left [*, m, k] x right [k, n] (or [*, k, n], of the same leading sizes) + bias [n] -> [*, m, n], in left's dtype."""
    shape = (*left.shape[:-1], right.shape[-1])
    if left.dtype is DType.C64 and right.dtype is DType.C64:
        return _complex_product(b, left, right, bias)
    if left.dtype is DType.F32 and right.dtype is DType.F32:
        operands = {"a": left, "b": right} | ({"bias": bias} if bias is not None else {})
        return b.call("gemm", operands, [(shape, DType.F32)])[0]
    total = _dot(b, left, swapped(right, right.rank - 2, right.rank - 1), shape)
    if bias is not None:
        total = b.pointwise(plus, total, b.cast(bias, total.dtype))
    return b.cast(total, left.dtype)


def _complex_product(b: Builder, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """Four real products."""
    a, c = (b.materialize(real_part(t)) for t in (left, right))
    a_i, c_i = (b.materialize(imaginary_part(t)) for t in (left, right))
    re = b.pointwise(lambda x, y: x - y, product_of(b, a, c), product_of(b, a_i, c_i))
    im = b.pointwise(plus, product_of(b, a, c_i), product_of(b, a_i, c))
    total = joined(b, re, im)
    return total if bias is None else b.pointwise(plus, total, bias)


def _dot(b: Builder, rows: Tensor, columns: Tensor, shape: tuple[Dim, ...]) -> Tensor:
    """out[*, m, n] = sum over k of rows[*, m, k] * columns[*, n, k] in the compute dtype; bool: any of both."""
    compute = rows.dtype.compute
    combine = Combine.ANY if compute is DType.BOOL else Combine.SUM

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        lead, m, n = i[:-2], i[-2], i[-1]
        right = broadcast_index((*lead, n, r[0]), columns.shape)
        return times(S(rows.at((*lead, m, r[0]))).cast(compute), S(columns.at(right)).cast(compute))

    return b.reduce(combine, shape, rows.shape[-1:], term)


@op("aten.linear.default", samples="nn.functional.linear", rtol=1e-5, atol=2e-6)
def linear(b: Builder, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input [*, k] x weight [n, k] (or [k]) + bias [n] -> [*, n]"""
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if input.dtype is DType.F32 and weight.rank == 2 and input.rank >= 2:
        operands = {"a": input, "b": weight} | ({"bias": bias} if bias is not None else {})
        return b.call("gemm", operands, [(shape, DType.F32)], transpose_b=True)[0]
    compute = input.dtype.compute
    rank = input.rank - 1

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        return S(input.at((*i[:rank], *r))).cast(compute) * S(weight.at((*i[rank:], *r))).cast(compute)

    total = b.reduce(Combine.SUM, shape, input.shape[-1:], term)
    if bias is not None:
        total = b.pointwise(lambda x, y: x + y.cast(compute), total, bias)
    return b.cast(total, input.dtype)


@op("aten.mm.default", samples="mm", rtol=1e-5, atol=1e-5)
@op("aten.bmm.default", samples="bmm", rtol=1e-5, atol=1e-5)
def mm(b: Builder, self: Tensor, mat2: Tensor) -> Tensor:
    return product_of(b, self, mat2)


def _with_addend(b: Builder, addend: Tensor, left: Tensor, right: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * addend + alpha * (left x right). beta 0 drops the addend, NaN and all."""
    if not left.dtype.is_float and left.dtype is not DType.C64:  # integers: eager truncates the factors
        beta, alpha = int(beta), int(alpha)
    per_column = addend.rank == 1 and addend.shape[0] == right.shape[-1]
    if alpha == 1 and beta == 1 and per_column:
        return product_of(b, left, right, addend)
    compute = left.dtype.compute
    wide = b.cast(left, compute), b.cast(right, compute)
    product = product_of(b, *wide) if alpha != 0 else b.full((*left.shape[:-1], right.shape[-1]), 0, compute)
    if alpha not in (0, 1):
        product = b.pointwise(lambda x: times(x, alpha), product)
    if beta != 0:
        product = b.pointwise(lambda x, y: plus(x, scaled(y, beta)), product, b.cast(expanded(addend, product.shape), compute))
    return b.cast(product, left.dtype)


@op("aten.addmm.default", samples="addmm", rtol=1e-5, atol=1e-5)
def addmm(b: Builder, self: Tensor, mat1: Tensor, mat2: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _with_addend(b, self, mat1, mat2, beta, alpha)


@op("aten.baddbmm.default", samples="baddbmm", rtol=1e-5, atol=1e-5)
def baddbmm(b: Builder, self: Tensor, batch1: Tensor, batch2: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _with_addend(b, self, batch1, batch2, beta, alpha)


@op("aten.mv.default", samples="mv", rtol=1e-5, atol=1e-5)
def mv(b: Builder, self: Tensor, vec: Tensor) -> Tensor:
    result: Tensor = matmul(b, self, vec)
    return result


@op("aten.dot.default", samples="dot", rtol=1e-5, atol=1e-5)
def dot(b: Builder, self: Tensor, tensor: Tensor) -> Tensor:
    result: Tensor = matmul(b, self, tensor)
    return result


@op("aten.addmv.default", samples="addmv", rtol=1e-5, atol=1e-5)
def addmv(b: Builder, self: Tensor, mat: Tensor, vec: Tensor, beta: Number = 1, alpha: Number = 1) -> Tensor:
    addend = unsqueezed(expanded(self, mat.shape[:1]), 1)
    return squeezed(_with_addend(b, addend, mat, unsqueezed(vec, 1), beta, alpha), [1])


@op("aten.matmul.default", samples="matmul", rtol=1e-5, atol=1e-5)
def matmul(b: Builder, self: Tensor, other: Tensor) -> Tensor:
    """A vector on the left is a row, on the right a column, and that dimension is gone from the result; leading sizes broadcast."""
    left = unsqueezed(self, 0) if self.rank == 1 else self
    right = unsqueezed(other, 1) if other.rank == 1 else other
    if other.rank == 1:  # a reduction: nothing to block
        total = _dot(b, left, unsqueezed(other, 0), (*left.shape[:-1], dim(1)))
        product = b.cast(total, self.dtype)
    else:
        if right.rank > 2:
            lead = broadcast_shapes([left.shape[:-2], right.shape[:-2]])
            left, right = expanded(left, (*lead, *left.shape[-2:])), expanded(right, (*lead, *right.shape[-2:]))
        product = product_of(b, left, right)
    gone = [product.rank - 2] * (self.rank == 1) + [product.rank - 1] * (other.rank == 1)
    return squeezed(product, gone) if gone else product


@op("aten._grouped_mm.default", rtol=1e-5, atol=1e-5)
def grouped_mm(b: Builder, self: Tensor, mat2: Tensor, offs: Tensor | None = None) -> Tensor:
    """self [s, k] x mat2 [g, k, n] -> [s, n]: row i by the first matrix whose end, offs[g], lies behind i; by none: 0. A mixture's experts,
    whose rows are read where they lie, so that a step of a few tokens reads few experts."""
    if offs is None and self.rank == 3 and mat2.rank == 3:
        return product_of(b, self, mat2)
    if offs is None or self.rank != 2 or mat2.rank != 3:
        refuse("_grouped_mm of other than [s, k] x [g, k, n] with offs, or [g, s, k] x [g, k, n]")
    ends, groups, compute = offs, mat2.shape[0], self.dtype.compute
    passed = b.reduce(Combine.SUM, self.shape[:1], [groups], lambda i, r: (S(ends.at(r)).cast(DType.I64) <= S(Index(i[0]))).cast(DType.I64))

    def term(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        group = checked(minimum(S(passed.at(i[:1])), S(Index(groups - 1))), groups)
        return S(self.at((i[0], r[0]))).cast(compute) * S(mat2.at((group, r[0], i[1]))).cast(compute)

    total = b.reduce(Combine.SUM, (self.shape[0], mat2.shape[2]), self.shape[1:], term)
    inside = Tensor(DType.BOOL, self.shape[:1], lambda i: (S(passed.at(i)) < S(Index(groups))).e)
    return b.cast(b.pointwise(lambda x, y: select(x, y, 0), unsqueezed(inside, 1), total), self.dtype)


@op("transformers.grouped_mm_fallback.default", rtol=1e-5, atol=1e-5)
def grouped_mm_fallback(b: Builder, input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """What transformers' mixtures of experts are exported with where the weights are not bfloat16."""
    result: Tensor = grouped_mm(b, input, weight, offs)
    return result
