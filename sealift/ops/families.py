"""The kernel families: what each takes, and its naive definition in NumPy, the meaning that kernels and passes are held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sealift.diag.errors import IndexOutOfRange

Array = NDArray[Any]


@dataclass(frozen=True)
class Family:
    """`roles`: operand names, optional ones with a trailing '?', numbered ones (in0, in1, ...) with a '*'.
    `naive(operands, attrs)` gives the outputs."""

    name: str
    roles: tuple[str, ...]
    naive: Callable[[Mapping[str, Array], Mapping[str, Any]], tuple[Array, ...]]


def _clamped(x: Array, top: int) -> Array:
    return np.where(x < 0, np.zeros_like(x), np.where(x > top, np.full_like(x, top), x))


def _activate(x: Array, name: str) -> Array:
    with np.errstate(all="ignore"):
        match name:
            case "none":
                return x
            case "relu":
                return np.where(x < 0, np.zeros_like(x), x)
            case "relu6":
                return _clamped(x, 6)
            case "hardswish":
                return np.asarray(x * _clamped(x + 3, 6) / 6)
            case "hardsigmoid":
                return np.asarray(_clamped(x + 3, 6) / 6)
            case "sigmoid":
                return np.asarray(1 / (1 + np.exp(-x)))
            case "silu":
                return np.asarray(x / (1 + np.exp(-x)))
            case "tanh":
                return np.tanh(x)
            case "gelu":
                erf = np.vectorize(__import__("math").erf, otypes=[x.dtype])
                return np.asarray(x * 0.5 * (1 + erf(x * np.sqrt(0.5).astype(x.dtype))))
            case "gelu_tanh":
                cubic = x + np.asarray(0.044715, x.dtype) * x**3
                return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * cubic)))
    raise ValueError(f"unknown activation {name!r}")


def _gemm(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """out[..., m, n] = post(act(sum_k a[..., m, k] * b + bias[n]) + residual[..., m, n]), b[..., k, n], or b[n, k] with transpose_b."""
    a, b = operands["a"], operands["b"]
    with np.errstate(all="ignore"):
        out = np.matmul(a, np.swapaxes(b, -1, -2) if attrs.get("transpose_b") else b)
        if "bias" in operands:
            out = out + operands["bias"]
        out = _activate(out, attrs.get("activation", "none"))
        if "residual" in operands:
            out = out + operands["residual"]
        return (_activate(out, attrs.get("post_activation", "none")).astype(a.dtype),)


def _attention(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """softmax(q k^T * scale + mask) v over [b, h, s, d] x [b, h_kv, t, d]; causal: key j <= query i; h_kv divides h."""
    q, k, v = (operands[r] for r in ("q", "k", "v"))
    groups = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * attrs["scale"]
        if attrs.get("causal"):
            scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        if "mask" in operands:
            mask = operands["mask"]
            scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = weights.sum(axis=-1, keepdims=True)
        weights = np.where(total == 0, 0, weights / total)
        return (np.matmul(weights, v).astype(q.dtype),)


def _sort(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """Values in order along the last dimension and their positions. Stable both ways; NaN is larger than all. `count` keeps
    only the first."""
    x = operands["x"]
    if attrs["descending"]:
        order = x.shape[-1] - 1 - np.flip(np.argsort(np.flip(x, -1), axis=-1, kind="stable"), -1)
    else:
        order = np.argsort(x, axis=-1, kind="stable")
    order = order[..., : attrs.get("count", x.shape[-1])]
    return np.take_along_axis(x, order, axis=-1), order.astype(np.int64)


def _conv(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """out[n, o, *at] = post(act(sum over c, *tap of x[n, c, *(at * stride + tap * dilation - padding)] * w[o, c, *tap] + bias[o]) + residual);
    positions outside x are 0; w [o, c / groups, *taps]. `transposed`: w [c, o / groups, *taps], and position
    *at of x adds to *(at * stride + tap * dilation - padding) of out. `channels_last`: out[n, *at, o] instead."""
    x, w, groups = operands["x"], operands["w"], attrs["groups"]
    n = x.ndim - 2
    stride, padding, dilation = attrs["stride"], attrs["padding"], attrs["dilation"]
    transposed, taps = attrs.get("transposed", False), w.shape[2:]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, taps)]
    if transposed:
        full = [(s - 1) * st + span for s, st, span in zip(x.shape[2:], stride, spans)]
        space = [f - 2 * p + e for f, p, e in zip(full, padding, attrs["output_padding"])]
        channels = w.shape[1] * groups
    else:
        space = [(s + p + q - span) // st + 1 for s, p, q, span, st in zip(x.shape[2:], padding, attrs.get("padding_end", padding), spans, stride)]
        channels = w.shape[0]
        x = np.pad(x, ((0, 0), (0, 0), *zip(padding, attrs.get("padding_end", padding))))
    ins, outs = x.shape[1] // groups, channels // groups
    with np.errstate(all="ignore"):
        if transposed:
            spread = np.zeros((x.shape[0], channels, *(max(f, p + s) for f, p, s in zip(full, padding, space))), x.dtype)
        out = np.zeros((x.shape[0], channels, *space), x.dtype)
        for tap in np.ndindex(*taps):
            for g in range(groups):
                of, to = slice(g * ins, (g + 1) * ins), slice(g * outs, (g + 1) * outs)
                if transposed:
                    place = tuple(slice(k * d, k * d + (s - 1) * st + 1, st) for k, d, s, st in zip(tap, dilation, x.shape[2:], stride))
                    reached, weights = (slice(None), to, *place), (of, slice(None), *tap)
                    if all(x.shape[2:]):
                        spread[reached] += np.einsum("nc...,co->no...", x[:, of], w[weights])
                else:
                    place = tuple(slice(k * d, k * d + (s - 1) * st + 1, st) for k, d, s, st in zip(tap, dilation, space, stride))
                    reached, weights = (slice(None), of, *place), (to, slice(None), *tap)
                    out[:, to] += np.einsum("nc...,oc->no...", x[reached], w[weights])
        if transposed:
            kept = (slice(None), slice(None), *(slice(p, p + s) for p, s in zip(padding, space)))
            out = spread[kept]
        if "bias" in operands:
            out = out + operands["bias"].reshape(-1, *[1] * n)
        out = _activate(out, attrs.get("activation", "none"))
        if "residual" in operands:
            out = out + operands["residual"]
        out = _activate(out, attrs.get("post_activation", "none")).astype(x.dtype)
        return (np.ascontiguousarray(np.moveaxis(out, 1, -1)) if attrs.get("channels_last") else out,)


RECURRENT_GATES: Mapping[str, int] = MappingProxyType({"lstm": 4, "gru": 3, "tanh": 1, "relu": 1})  # matrices that make one cell


def _unpanelled(w: Array, rows: int, groups: int) -> Array:
    """[rows, k] as it is, or from [groups * ceil(rows / groups / 32), k, 32]."""
    if w.ndim == 2:
        return w
    each = w.reshape(groups, -1, *w.shape[1:]).transpose(0, 1, 3, 2).reshape(groups, -1, w.shape[1])
    return np.asarray(each[:, : rows // groups].reshape(rows, w.shape[1]))


def _recurrent(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """The cell over steps: gates [steps, batch, groups * hidden] are the inputs' share; `_reverse` operands walk from the last step.
    lstm: gates i, f, g, o; c = f c + i g; h = o tanh(c). gru: r, z, n; n = tanh(gates_n + r (h w_n + bias_n)); h = n + z (h - n)."""
    cell, groups = attrs["cell"], attrs["groups"]
    h0 = operands["h0"]
    steps, batch, width = operands["gates"].shape
    hidden, size = width // groups, h0.shape[-1]
    outs: list[Array] = []
    finals: list[Array] = []
    cells: list[Array] = []
    for d, suffix in enumerate(("", "_reverse")[: h0.shape[0]]):
        w = _unpanelled(operands["w" + suffix], width, groups)
        bias = operands.get("bias" + suffix, np.zeros(width, h0.dtype))
        projection = operands.get("w_proj" + suffix)
        h, c = h0[d], operands.get("c0", h0)[d]  # only an lstm has a c
        out = np.zeros((steps, batch, size), h0.dtype)
        for at in range(steps) if d == 0 else reversed(range(steps)):
            given = np.split(operands["gates" + suffix][at], groups, axis=1)
            own = np.split(h @ w.T + bias, groups, axis=1)
            match cell:
                case "lstm":
                    keep, show = _activate(given[1] + own[1], "sigmoid"), _activate(given[3] + own[3], "sigmoid")
                    c = keep * c + _activate(given[0] + own[0], "sigmoid") * np.tanh(given[2] + own[2])
                    h = show * np.tanh(c)
                case "gru":
                    reset, update = (_activate(given[k] + own[k], "sigmoid") for k in (0, 1))
                    fresh = np.tanh(given[2] + reset * own[2])
                    h = (h - fresh) * update + fresh
                case _:
                    h = _activate(given[0] + own[0], cell)
            if projection is not None:
                h = h @ _unpanelled(projection, size, 1).T
            out[at] = h
        outs.append(out)
        finals.append(h)
        cells.append(c)
    joined = np.concatenate(outs, axis=2)
    results = [np.swapaxes(joined, 0, 1) if attrs["batch_first"] else joined, np.stack(finals)]
    if cell == "lstm":
        results.append(np.stack(cells))
    if "w_proj" in operands:
        results.append(np.zeros((h0.shape[0], batch, hidden), h0.dtype))  # room of the kernel's
    return tuple(results)


def _bags(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """out[k] = sum, mean (mode 1) or maximum (2) over p in [offsets[k], offsets[k + 1]) of weights[p] * table[indices[p]], one after
    another, in f32 for half types. Indices of padding_idx are not there; an empty bag is 0."""
    table, indices, offsets = operands["table"], operands["indices"], operands["offsets"]
    ends = offsets[1:] if attrs["include_last_offset"] else np.append(offsets[1:], len(indices))
    if offsets.size and (offsets[0] != 0 or offsets.max() > len(indices) or offsets.min() < 0):
        raise IndexOutOfRange(f"offsets {offsets[:4]}... of bags do not begin with 0 or leave the {len(indices)} indices")
    if indices.size and not (indices.min() >= 0 and indices.max() < len(table)):
        bad = indices[(indices < 0) | (indices >= len(table))][0]
        raise IndexOutOfRange(f"index {bad} is out of range for size {len(table)}")
    wide = table.dtype if table.dtype == np.float64 else np.dtype(np.float32)
    out = np.zeros((len(ends), table.shape[1]), wide)
    with np.errstate(all="ignore"):
        for k, (begin, end) in enumerate(zip(offsets, ends)):
            there = [p for p in range(begin, end) if indices[p] != attrs["padding_idx"]]
            rows = [table[indices[p]].astype(wide) * (operands["weights"][p].astype(wide) if "weights" in operands else 1) for p in there]
            for n, row in enumerate(rows):
                out[k] = row if n == 0 and attrs["mode"] == 2 else np.maximum(out[k], row) if attrs["mode"] == 2 else out[k] + row
            if attrs["mode"] == 1 and rows:
                out[k] /= wide.type(len(rows))
    return (out.astype(table.dtype),)


def _inputs(operands: Mapping[str, Array]) -> list[Array]:
    return [operands[f"in{k}"] for k in range(sum(role.startswith("in") for role in operands))]


def _cond(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """The outputs of `then` or of `otherwise`, both functions of the inputs."""
    return tuple(attrs["then" if operands["pred"] else "otherwise"](_inputs(operands)))


def _while(operands: Mapping[str, Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """While `condition` holds: the first inputs become what `body` makes of all."""
    values = _inputs(operands)
    while attrs["condition"](values)[0].reshape(()):
        after = attrs["body"](values)
        values = [*(np.array(a) for a in after), *values[len(after) :]]
    return tuple(values[: attrs["carried"]])


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        f.name: f
        for f in (
            Family("conv", ("x", "w", "bias?", "residual?"), _conv),
            Family("gemm", ("a", "b", "bias?", "residual?"), _gemm),
            Family("attention", ("q", "k", "v", "mask?"), _attention),
            Family("sort", ("x",), _sort),
            Family("cond", ("pred", "in*"), _cond),
            Family("while", ("in*",), _while),
            Family("bags", ("table", "indices", "offsets", "weights?"), _bags),
            Family(
                "recurrent",
                ("gates", "w", "h0", "bias?", "c0?", "w_proj?", "gates_reverse?", "w_reverse?", "bias_reverse?", "w_proj_reverse?"),
                _recurrent,
            ),
        )
    }
)
