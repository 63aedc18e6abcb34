"""Softmax and the normalisations. Each is a few stages over the same rows, the reduced dimensions last, so that fusion makes one loop
over rows of them. Variance takes two passes: the mean, then the squared differences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sealift.ir.dim import Dim, dim, product
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Index, cast
from sealift.ir.loop.prim import Combine, Prim
from sealift.ops.arguments import Size, as_int, refuse
from sealift.ops.lang import Builder, S, Tensor, broadcast_index, normalize_dim, prim, select
from sealift.ops.reductions import count_of, fold, keep_dims, moments
from sealift.ops.table import op
from sealift.ops.views import reshaped

# ---- softmax ---------------------------------------------------------------------------------------------------------------------


def _computed(t: Tensor, what: str) -> Tensor:
    if not t.dtype.is_float:
        refuse(f"{what} of {t.dtype}")
    return t if t.dtype.compute is t.dtype else Tensor(t.dtype.compute, t.shape, lambda index: cast(t.at(index), t.dtype.compute))


def softmax_of(b: Builder, t: Tensor, along: int) -> Tensor:
    """exp(x - max) / sum, in t's dtype. Empty rows stay empty."""
    if t.rank == 0:
        return b.pointwise(lambda x: prim(Prim.EXP, x - x), t)
    top = keep_dims(fold(b, Combine.MAX, t, (along,)), (along,), t.shape)
    weights = b.materialize(b.pointwise(lambda x, m: prim(Prim.EXP, x - m), t, top))
    total = keep_dims(fold(b, Combine.SUM, weights, (along,)), (along,), t.shape)
    return b.pointwise(lambda w, s: w / s, weights, total)


def log_softmax_of(b: Builder, t: Tensor, along: int) -> Tensor:
    if t.rank == 0:
        return b.pointwise(lambda x: x - x, t)
    top = keep_dims(fold(b, Combine.MAX, t, (along,)), (along,), t.shape)

    def weight(x: S, index: tuple[Dim, ...]) -> S:
        return prim(Prim.EXP, x - S(top.at(broadcast_index(index, top.shape))))

    total = fold(b, Combine.SUM, t, (along,), weight)
    log_total = keep_dims(b.materialize(b.pointwise(lambda s: prim(Prim.LOG, s), total)), (along,), t.shape)
    return b.pointwise(lambda x, m, s: x - m - s, t, top, log_total)


def _softmax_row(b: Builder, self: Tensor, dim: int, dtype: DType, log: bool) -> Tensor:
    if not dtype.is_float:
        refuse(f"softmax of {dtype}")
    along = normalize_dim(dim, self.rank)
    t = b.cast(b.cast(self, dtype), dtype.compute)
    return b.cast((log_softmax_of if log else softmax_of)(b, t, along), dtype)


@op("aten.softmax.int", samples="softmax", rtol=2e-6, atol=1e-7)
def softmax(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _softmax_row(b, self, dim, dtype or self.dtype, log=False)


@op("aten._softmax.default", samples="softmax", rtol=2e-6, atol=1e-7)
def _softmax(b: Builder, self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _softmax_row(b, self, dim, DType.F32 if half_to_float else self.dtype, log=False)


@op("aten.log_softmax.int", samples="log_softmax", rtol=2e-6, atol=2e-6)
def log_softmax(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    return _softmax_row(b, self, dim, dtype or self.dtype, log=True)


@op("aten._log_softmax.default", samples="log_softmax", rtol=2e-6, atol=2e-6)
def _log_softmax(b: Builder, self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _softmax_row(b, self, dim, DType.F32 if half_to_float else self.dtype, log=True)


# ---- layer and group norm ----------------------------------------------------------------------------------------------------------


def _inverse_deviation(b: Builder, squares: Tensor, count: Dim, eps: float) -> Tensor:
    """1 / sqrt(squares / count + eps), computed once a row."""

    def inverse(total: S) -> S:
        return 1 / prim(Prim.SQRT, total / S(Index(count)).cast(total.dtype) + eps)

    flat = reshaped(squares, [s for s in squares.shape if s != dim(1)])
    return reshaped(b.materialize(b.pointwise(inverse, flat)), squares.shape)


def _last_dims(t: Tensor, normalized_shape: Sequence[Size]) -> range:
    if len(normalized_shape) > t.rank:
        refuse(f"normalization over {len(normalized_shape)} dimensions of a tensor of rank {t.rank}")
    return range(t.rank - len(normalized_shape), t.rank)


def _affine(b: Builder, normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """normal * weight + bias in normal's dtype, both broadcast."""
    if weight is not None:
        normal = b.pointwise(lambda x, w: x * w, normal, b.cast(weight, normal.dtype))
    if bias is not None:
        normal = b.pointwise(lambda x, c: x + c, normal, b.cast(bias, normal.dtype))
    return normal


def _statistics_dtype(input: Tensor, weight: Tensor | None) -> DType:
    return DType.F32 if weight is not None and weight.dtype is DType.F32 else input.dtype


@op("aten.native_layer_norm.default", samples="native_layer_norm", rtol=2e-5, atol=2e-6)
def native_layer_norm(
    b: Builder, input: Tensor, normalized_shape: Sequence[Size], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Over the last len(normalized_shape) dimensions; also the mean and 1 / deviation of each row."""
    t = _computed(input, "layer norm")
    dims = _last_dims(input, normalized_shape)
    mean, squares = moments(b, t, dims)
    inverse = _inverse_deviation(b, squares, count_of(input, dims), eps)
    normal = b.pointwise(lambda x, m, r: (x - m) * r, t, mean, inverse)
    statistics = _statistics_dtype(input, weight)
    return b.cast(_affine(b, normal, weight, bias), input.dtype), b.cast(mean, statistics), b.cast(inverse, statistics)


@op("aten.layer_norm.default", samples="nn.functional.layer_norm", rtol=2e-5, atol=2e-6)
def layer_norm(
    b: Builder,
    input: Tensor,
    normalized_shape: Sequence[Size],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    result: Tensor = native_layer_norm(b, input, normalized_shape, weight, bias, eps)[0]
    return result


@op("aten._fused_rms_norm.default", rtol=2e-5, atol=2e-6)
def fused_rms_norm(b: Builder, input: Tensor, normalized_shape: Sequence[Size], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """Without a mean; also 1 / root mean square of each row, in the dtype that is computed in."""
    if eps is None:  # the epsilon of the dtype that is computed in
        eps = {DType.F64: 2.0**-52}.get(input.dtype, 2.0**-23)
    t = _computed(input, "RMS norm")
    dims = _last_dims(input, normalized_shape)
    squares = keep_dims(fold(b, Combine.SUM, t, dims, lambda x, index: x * x), dims, t.shape)
    inverse = _inverse_deviation(b, squares, count_of(input, dims), eps)
    return b.cast(_affine(b, b.pointwise(lambda x, r: x * r, t, inverse), weight, None), input.dtype), inverse


@op("aten.rms_norm.default", samples="nn.functional.rms_norm", rtol=2e-5, atol=2e-6)
def rms_norm(b: Builder, input: Tensor, normalized_shape: Sequence[Size], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    result: Tensor = fused_rms_norm(b, input, normalized_shape, weight, eps)[0]
    return result


@op("aten.native_group_norm.default", samples="native_group_norm", rtol=2e-5, atol=2e-6)
def native_group_norm(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """input [n, c, *] in `group` groups of channels; also the mean and 1 / deviation [n, group]."""
    count, channels, *space = input.shape
    inside = channels // group
    t = reshaped(_computed(input, "group norm"), (count, group, inside, *space))
    dims = range(2, t.rank)
    mean, squares = moments(b, t, dims)
    inverse = _inverse_deviation(b, squares, inside * product(space), eps)
    normal = b.pointwise(lambda x, m, r: (x - m) * r, t, mean, inverse)
    per_channel: list[Size] = [group, inside, *[1] * len(space)]
    by_group = [None if p is None else reshaped(p, per_channel) for p in (weight, bias)]
    statistics = _statistics_dtype(input, weight)
    out = reshaped(_affine(b, normal, *by_group), input.shape)
    rows = (count, dim(group))
    return b.cast(out, input.dtype), b.cast(reshaped(mean, rows), statistics), b.cast(reshaped(inverse, rows), statistics)


@op("aten.group_norm.default", samples="nn.functional.group_norm", rtol=2e-5, atol=2e-6)
def group_norm(
    b: Builder,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    n, c, *space = input.shape
    if any(size == dim(0) for size in input.shape):
        return b.full(input.shape, 0, input.dtype)
    result: Tensor = native_group_norm(b, input, weight, bias, n, c, product(space), num_groups, eps)[0]
    return result


# ---- batch norm ----------------------------------------------------------------------------------------------------------------------


def _by_channel(t: Tensor, rank: int) -> Tensor:
    return reshaped(t, (1, -1, *[1] * (rank - 2)))


@op("aten._native_batch_norm_legit_no_training.default", samples="", rtol=1e-5, atol=2e-6)
def batch_norm_no_training(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """x * scale + shift with scale = weight / sqrt(var + eps) and shift = bias - mean * scale of each channel."""
    t = _computed(input, "batch norm")
    compute = t.dtype
    mean, var = b.cast(running_mean, compute), b.cast(running_var, compute)
    scale = b.pointwise(lambda v: 1 / prim(Prim.SQRT, v + eps), var)
    if weight is not None:
        scale = b.pointwise(lambda s, w: s * w, scale, b.cast(weight, compute))
    scale = b.materialize(scale)
    shift = b.pointwise(lambda m, s: -(m * s), mean, scale)
    if bias is not None:
        shift = b.pointwise(lambda m, s, c: c - m * s, mean, scale, b.cast(bias, compute))
    shift = b.materialize(shift)
    channels = [_by_channel(t, input.rank) for t in (scale, shift)]
    out = b.pointwise(lambda x, s, c: x * s + c, t, *channels)
    none = b.full((dim(0),), 0, _statistics_dtype(input, weight))
    return b.cast(out, input.dtype), none, none


@op("aten.batch_norm.default", samples="nn.functional.batch_norm", rtol=1e-5, atol=2e-6)
def batch_norm(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        result: Tensor = batch_norm_no_stats(b, input, weight, bias, True, momentum, eps)[0]
        if running_mean is not None:
            refuse("batch norm in training: export the model after model.eval()")
        return result
    result = batch_norm_no_training(b, input, weight, bias, running_mean, running_var, momentum, eps)[0]
    return result


@op("aten._native_batch_norm_legit.no_stats", rtol=2e-5, atol=2e-6)
def batch_norm_no_stats(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Over the batch's own statistics (instance norm is this, with batch and channels as one); also mean and 1 / deviation [c]."""
    t = _computed(input, "batch norm")
    dims = [d for d in range(input.rank) if d != 1]
    mean, squares = moments(b, t, dims)
    inverse = _inverse_deviation(b, squares, count_of(input, dims), eps)
    normal = b.pointwise(lambda x, m, r: (x - m) * r, t, mean, inverse)
    by_channel = [None if p is None else _by_channel(p, input.rank) for p in (weight, bias)]
    statistics = _statistics_dtype(input, weight)
    flat = [b.cast(reshaped(s, (input.shape[1],)), statistics) for s in (mean, inverse)]
    return b.cast(_affine(b, normal, *by_channel), input.dtype), flat[0], flat[1]


@op("aten._native_batch_norm_legit.default", rtol=1e-5, atol=2e-6)
def batch_norm_legit(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if training:
        refuse("batch norm in training: export the model after model.eval()")
    result: tuple[Tensor, Tensor, Tensor] = batch_norm_no_training(b, input, weight, bias, running_mean, running_var, momentum, eps)
    return result


@op("aten._safe_softmax.default", samples="softmax", rtol=2e-6, atol=1e-7)
def safe_softmax(b: Builder, self: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """softmax, but 0 in a row of nothing but -inf."""
    result = dtype or self.dtype
    t = b.cast(b.cast(self, result), result.compute)
    if self.rank == 0:
        return b.cast(b.pointwise(lambda x: select(x.eq(-math.inf), 0, prim(Prim.EXP, x - x)), t), result)
    along = normalize_dim(dim, self.rank)
    top = keep_dims(fold(b, Combine.MAX, t, (along,)), (along,), t.shape)
    weights = softmax_of(b, t, along)
    return b.cast(b.pointwise(lambda w, m: select(m.eq(-math.inf), 0, w), weights, top), result)


def _scaled_to_norm(b: Builder, v: Tensor, g: Tensor, dim_: int) -> tuple[Tensor, Tensor]:
    """v * (g / |v|) with the norm over all dimensions but one, and the norm in g's shape. dim_ -1: over all."""
    t = b.cast(v, v.dtype.compute)
    dims = [d for d in range(v.rank) if dim_ == -1 or d != normalize_dim(dim_, v.rank)]
    squares = keep_dims(fold(b, Combine.SUM, t, dims, lambda x, index: x * x), dims, v.shape)
    norm = b.materialize(b.pointwise(lambda x: prim(Prim.SQRT, x), squares))
    scaled = b.pointwise(lambda x, m, n: x * (m / n), t, b.cast(g, t.dtype), norm)
    return b.cast(scaled, v.dtype), reshaped(norm, g.shape)


@op("aten._weight_norm.default", rtol=2e-6, atol=1e-6)
def weight_norm(b: Builder, v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    return _scaled_to_norm(b, v, g, dim)[0]


@op("aten._weight_norm_interface.default", rtol=2e-6, atol=1e-6)
def weight_norm_interface(b: Builder, v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    return _scaled_to_norm(b, v, g, dim)


@op("aten.instance_norm.default", samples="nn.functional.instance_norm", rtol=2e-5, atol=2e-6)
def instance_norm(
    b: Builder,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """A group norm with a channel a group; in eval with running statistics, a batch norm."""
    if not use_input_stats:
        result: Tensor = batch_norm(b, input, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled)
        return result
    if running_mean is not None:
        refuse("an instance norm that updates its running statistics")
    channels = as_int(input.shape[1], "the number of channels of an instance norm")
    result = group_norm(b, input, channels, weight, bias, eps)
    return result
