"""Reductions over some dimensions. Half types accumulate in f32, f32 in f32, var and std in f64, all as eager does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sealift.ir.dim import Dim, dim, is_positive, product
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ops.arguments import as_int, normalize_dims, refuse
from sealift.ops.lang import Builder, Number, S, Tensor, broadcast_index, imaginary_part, joined, maximum, normalize_dim, prim, real_part
from sealift.ops.pointwise import scaled
from sealift.ops.table import op
from sealift.ops.views import narrowed, permuted, reshaped

Dims = Sequence[int] | int | None


def keep_dims(t: Tensor, dims: Sequence[int], shape: Sequence[Dim]) -> Tensor:
    """A reduced tensor with its reduced dimensions back, each of size 1."""
    kept = [d for d in range(len(shape)) if d not in dims]
    return Tensor(t.dtype, tuple(dim(1) if d in dims else s for d, s in enumerate(shape)), lambda index: t.at([index[d] for d in kept]))


def fold(
    b: Builder,
    combine: Combine | ArgCombine,
    t: Tensor,
    dims: Sequence[int],
    term: Callable[[S, tuple[Dim, ...]], S] = lambda x, index: x,
) -> Tensor:
    """t reduced over `dims` (sorted), which are gone from the result. `term` gets each element and its index in t."""
    kept = [d for d in range(t.rank) if d not in dims]

    def element(i: tuple[Dim, ...], r: tuple[Dim, ...]) -> S:
        index = [dim(0)] * t.rank
        for d, at in (*zip(kept, i), *zip(dims, r)):
            index[d] = at
        return term(S(t.at(index)), tuple(index))

    return b.reduce(combine, [t.shape[d] for d in kept], [t.shape[d] for d in dims], element)


def count_of(t: Tensor, dims: Sequence[int]) -> Dim:
    return product(t.shape[d] for d in dims)


def _finished(t: Tensor, source: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    return keep_dims(t, dims, source.shape) if keepdim else t


def _total(b: Builder, combine: Combine, self: Tensor, dims: Sequence[int], keepdim: bool, dtype: DType | None) -> Tensor:
    result = dtype or self.dtype.sums_as
    terms = b.cast(b.cast(self, result), result.compute)
    is_complex_product = result is DType.C64 and combine is Combine.PROD
    total = _complex_product(b, terms, dims) if is_complex_product else fold(b, combine, terms, dims)
    return b.cast(_finished(total, self, dims, keepdim), result)


def _complex_product(b: Builder, t: Tensor, dims: Sequence[int]) -> Tensor:
    """A product whose parts depend on each other: halves are multiplied until one is left."""
    kept = [d for d in range(t.rank) if d not in dims]
    count = as_int(count_of(t, dims), "the number of factors of a complex product")
    shape = [t.shape[d] for d in kept]
    if count == 0:
        return b.full(shape, 1, t.dtype)
    rows = reshaped(permuted(t, [*dims, *kept]), (count, *shape))
    while count > 1:
        half, odd = divmod(count, 2)
        joined = b.pointwise(lambda x, y: x * y, narrowed(rows, 0, 0, half), narrowed(rows, 0, half, half))
        rows = b.concat([joined, narrowed(rows, 0, 2 * half, 1)], 0) if odd else b.materialize(joined)
        count = half + odd
    return reshaped(rows, shape)


@op("aten.sum.dim_IntList", samples="sum", rtol=1e-5, atol=1e-5)
def sum_dims(b: Builder, self: Tensor, dim: Dims, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    return _total(b, Combine.SUM, self, normalize_dims(dim, self.rank), keepdim, dtype)


@op("aten.sum.default", samples="sum", rtol=1e-5, atol=1e-5)
def sum_all(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return _total(b, Combine.SUM, self, range(self.rank), False, dtype)


@op("aten.prod.dim_int", samples="prod", rtol=1e-5)
def prod_dim(b: Builder, self: Tensor, dim: int, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    return _total(b, Combine.PROD, self, normalize_dims(dim, self.rank), keepdim, dtype)


@op("aten.prod.default", samples="prod", rtol=1e-5)
def prod_all(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    return _total(b, Combine.PROD, self, range(self.rank), False, dtype)


@op("aten.mean.dim", samples="mean", rtol=1e-5, atol=1e-6)
def mean_dims(b: Builder, self: Tensor, dim: Dims, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    result = dtype or self.dtype
    if not result.is_float and result is not DType.C64:
        refuse(f"the mean of {result}")
    dims = normalize_dims(dim, self.rank)
    total = fold(b, Combine.SUM, b.cast(b.cast(self, result), result.compute), dims)
    mean = b.pointwise(lambda x: x / S(Index(count_of(self, dims))).cast(x.dtype), _finished(total, self, dims, keepdim))
    return b.cast(mean, result)


@op("aten.mean.default", samples="mean", rtol=1e-5, atol=1e-6)
def mean_all(b: Builder, self: Tensor, dtype: DType | None = None) -> Tensor:
    result: Tensor = mean_dims(b, self, None, False, dtype)
    return result


# ---- extremes --------------------------------------------------------------------------------------------------------------------


def _extreme(b: Builder, self: Tensor, dims: Dims, keepdim: bool, top: bool) -> Tensor:
    over = normalize_dims(dims, self.rank)
    if self.dtype is DType.BOOL:
        return _finished(fold(b, Combine.ANY if top else Combine.ALL, self, over), self, over, keepdim)
    best = fold(b, Combine.MAX if top else Combine.MIN, b.cast(self, self.dtype.compute), over)
    return b.cast(_finished(best, self, over, keepdim), self.dtype)


@op("aten.amax.default", samples="amax")
def amax(b: Builder, self: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return _extreme(b, self, dim, keepdim, top=True)


@op("aten.amin.default", samples="amin")
def amin(b: Builder, self: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    return _extreme(b, self, dim, keepdim, top=False)


@op("aten.max.default", samples="max")
def max_all(b: Builder, self: Tensor) -> Tensor:
    return _extreme(b, self, None, False, top=True)


@op("aten.min.default", samples="min")
def min_all(b: Builder, self: Tensor) -> Tensor:
    return _extreme(b, self, None, False, top=False)


def winner(b: Builder, self: Tensor, dims: Sequence[int], top: bool) -> Tensor:
    """The row-major position among `dims` of the largest or smallest element, i64."""
    comparable = b.cast(self, DType.U8 if self.dtype is DType.BOOL else self.dtype.compute)
    return fold(b, ArgCombine.ARGMAX if top else ArgCombine.ARGMIN, comparable, dims)


def value_and_position(b: Builder, self: Tensor, dim: int, keepdim: bool, top: bool) -> tuple[Tensor, Tensor]:
    along = normalize_dim(dim, self.rank)
    if self.rank == 0:
        return self, b.full((), 0, DType.I64)
    at = winner(b, self, (along,), top)
    value = Tensor(self.dtype, at.shape, lambda i: self.at((*i[:along], at.at(i), *i[along:])))
    return _finished(value, self, (along,), keepdim), _finished(at, self, (along,), keepdim)


@op("aten.max.dim", samples="max")
def max_dim(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return value_and_position(b, self, dim, keepdim, top=True)


@op("aten.min.dim", samples="min")
def min_dim(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return value_and_position(b, self, dim, keepdim, top=False)


def _position(b: Builder, self: Tensor, dim: int | None, keepdim: bool, top: bool) -> Tensor:
    dims = tuple(range(self.rank)) if dim is None else normalize_dims(dim, self.rank)
    return _finished(winner(b, self, dims, top), self, dims, keepdim)


@op("aten.argmax.default", samples="argmax")
def argmax(b: Builder, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _position(b, self, dim, keepdim, top=True)


@op("aten.argmin.default", samples="argmin")
def argmin(b: Builder, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _position(b, self, dim, keepdim, top=False)


# ---- any, all --------------------------------------------------------------------------------------------------------------------


def _truth(b: Builder, combine: Combine, self: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    result = DType.U8 if self.dtype is DType.U8 else DType.BOOL  # uint8 stands for bool here, as in NumPy's early days
    return b.cast(_finished(fold(b, combine, b.cast(self, DType.BOOL), dims), self, dims, keepdim), result)


def _truth_rows(name: str, combine: Combine) -> None:
    @op(f"aten.{name}.default", samples=name)
    def over_all(b: Builder, self: Tensor) -> Tensor:
        return _truth(b, combine, self, range(self.rank), False)

    @op(f"aten.{name}.dim", samples=name)
    def over_dim(b: Builder, self: Tensor, dim: int, keepdim: bool = False) -> Tensor:
        return _truth(b, combine, self, normalize_dims(dim, self.rank), keepdim)

    @op(f"aten.{name}.dims", samples=name)
    def over_dims(b: Builder, self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        """No dimension listed reduces none, None all."""
        dims = () if dim is not None and dim == () else normalize_dims(dim, self.rank)
        return _truth(b, combine, self, dims, keepdim)


_truth_rows("any", Combine.ANY)
_truth_rows("all", Combine.ALL)


# ---- variance --------------------------------------------------------------------------------------------------------------------


def moments(b: Builder, t: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(mean, sum of squared differences) over `dims`, which are kept with size 1; two passes over t, in t's dtype."""
    count = count_of(t, dims)
    total = fold(b, Combine.SUM, t, dims)
    mean = keep_dims(b.materialize(b.pointwise(lambda x: x / S(Index(count)).cast(t.dtype), total)), dims, t.shape)

    def squared(x: S, index: tuple[Dim, ...]) -> S:
        difference = x - S(mean.at(broadcast_index(index, mean.shape)))
        return difference * difference

    return mean, keep_dims(fold(b, Combine.SUM, t, dims, squared), dims, t.shape)


def _variance(b: Builder, self: Tensor, dims: Dims, correction: Number, keepdim: bool, root: bool) -> tuple[Tensor, Tensor]:
    """(var or std, mean) of a real tensor; without enough elements for the correction NaN or infinity, as eager divides by 0."""
    if self.dtype is DType.C64:
        return _complex_variance(b, self, dims, correction, keepdim, root)
    if not self.dtype.is_float:
        refuse(f"the variance of {self.dtype}")
    over = normalize_dims(dims, self.rank)
    mean, squares = moments(b, b.cast(self, DType.F64), over)
    count = S(Index(count_of(self, over))).cast(DType.F64)

    def finish(total: S) -> S:
        freedom = maximum(count - float(correction), 0)
        variance = prim(Prim.SELECT, count.eq(0), float("nan"), total / freedom)
        return prim(Prim.SQRT, variance) if root else variance

    shape = tuple(dim(1) if d in over else s for d, s in enumerate(self.shape) if keepdim or d not in over)
    spread = reshaped(b.pointwise(finish, squares), shape)
    return b.cast(spread, self.dtype), b.cast(reshaped(mean, shape), self.dtype)


def _complex_variance(b: Builder, self: Tensor, dims: Dims, correction: Number, keepdim: bool, root: bool) -> tuple[Tensor, Tensor]:
    """The real and the imaginary part's variances, added; the mean is complex."""
    spreads, means = zip(*(_variance(b, part, dims, correction, keepdim, False) for part in (real_part(self), imaginary_part(self))))
    return b.pointwise(lambda x, y: prim(Prim.SQRT, x + y) if root else x + y, *spreads), joined(b, *means)


def _variance_rows(name: str, root: bool) -> None:
    @op(f"aten.{name}.correction", samples=name, rtol=1e-5, atol=1e-6)
    def corrected(b: Builder, self: Tensor, dim: Dims = None, correction: Number | None = None, keepdim: bool = False) -> Tensor:
        return _variance(b, self, dim, 1 if correction is None else correction, keepdim, root)[0]

    @op(f"aten.{name}.dim", samples=name, rtol=1e-5, atol=1e-6)
    def over_dims(b: Builder, self: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
        return _variance(b, self, dim, int(unbiased), keepdim, root)[0]

    @op(f"aten.{name}_mean.correction", samples=f"{name}_mean", rtol=1e-5, atol=1e-6)
    def with_mean(b: Builder, self: Tensor, dim: Dims = None, correction: Number | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return _variance(b, self, dim, 1 if correction is None else correction, keepdim, root)


_variance_rows("var", root=False)
_variance_rows("std", root=True)


@op("aten.count_nonzero.dim_IntList", samples="count_nonzero")
@op("aten.count_nonzero.default", samples="count_nonzero")
def count_nonzero(b: Builder, self: Tensor, dim: Dims = None) -> Tensor:
    return _total(b, Combine.SUM, b.cast(self, DType.BOOL), normalize_dims(dim, self.rank), False, DType.I64)


# ---- norms of vectors ------------------------------------------------------------------------------------------------------------


@op("aten.linalg_vector_norm.default", samples="linalg.vector_norm", rtol=1e-5, atol=1e-6)
def vector_norm(b: Builder, self: Tensor, ord: Number = 2, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Tensor:
    result = dtype or self.dtype
    if result is DType.C64:
        result = DType.F32
        self = b.pointwise(lambda x: prim(Prim.ABS, x), self)
    dims = normalize_dims(dim, self.rank)
    size = b.pointwise(lambda x: prim(Prim.ABS, x), b.cast(b.cast(self, result), result.compute))
    if ord == float("inf") or ord == float("-inf"):
        norm = fold(b, Combine.MAX if ord > 0 else Combine.MIN, size, dims)
    elif ord == 0:
        norm = fold(b, Combine.SUM, size, dims, lambda x, index: x.ne(0).cast(x.dtype))
    elif ord == 1:
        norm = fold(b, Combine.SUM, size, dims)
    elif ord == 2:
        norm = b.pointwise(lambda x: prim(Prim.SQRT, x), fold(b, Combine.SUM, size, dims, lambda x, index: x * x))
    else:
        powers = fold(b, Combine.SUM, size, dims, lambda x, index: prim(Prim.POW, x, float(ord)))
        norm = b.pointwise(lambda x: prim(Prim.POW, x, 1.0 / float(ord)), powers)
    return b.cast(_finished(norm, self, dims, keepdim), result)


@op("aten.logsumexp.default", samples="logsumexp", rtol=1e-5, atol=1e-6)
def logsumexp(b: Builder, self: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """Shifted by the maximum, unless that is infinite."""
    if self.dtype is DType.C64:
        refuse("logsumexp of complex numbers")
    result = self.dtype if self.dtype.is_float else DType.F32
    t = b.cast(self, result.compute)
    dims = normalize_dims(dim, self.rank)
    top = fold(b, Combine.MAX, t, dims)
    infinity = float("inf")
    shift = keep_dims(b.materialize(b.pointwise(lambda m: prim(Prim.SELECT, prim(Prim.ABS, m).eq(infinity), 0.0, m), top)), dims, self.shape)
    total = fold(b, Combine.SUM, t, dims, lambda x, index: prim(Prim.EXP, x - S(shift.at(broadcast_index(index, shift.shape)))))
    flat = reshaped(shift, total.shape)
    return b.cast(_finished(b.pointwise(lambda s, m: prim(Prim.LOG, s) + m, total, flat), self, dims, keepdim), result)


@op("aten.diff.default", samples="diff")
def diff(b: Builder, self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Each element less the one before, n times; of bool whether they differ."""
    along = normalize_dim(dim, self.rank)
    parts = [t for t in (prepend, self, append) if t is not None]
    t = self if len(parts) == 1 else b.concat([b.cast(p, self.dtype) for p in parts], along)
    for _ in range(n):
        size = t.shape[along]
        if not is_positive(size):
            if size.is_const:
                return narrowed(t, along, 0, 0)
            refuse(f"the difference along a dimension of {size}, which may be empty")
        before, after = narrowed(t, along, 0, size - 1), narrowed(t, along, 1, size - 1)
        t = b.pointwise(lambda x, y: x.ne(y) if x.dtype is DType.BOOL else y - scaled(x, 1), before, after)
    return t
