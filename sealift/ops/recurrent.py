"""Recurrent layers: the inputs' share of the gates as one product over the whole sequence, then the recurrent family's loop over steps."""

from __future__ import annotations

from collections.abc import Sequence

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound
from sealift.ops.arguments import as_int, refuse
from sealift.ops.families import RECURRENT_GATES
from sealift.ops.gemm import linear
from sealift.ops.lang import Builder, IndexEntry, Tensor, guarded
from sealift.ops.table import op
from sealift.ops.views import narrowed, swapped

PANEL = 32  # columns of a packed panel: contracts/sealift_model.h


def _panelled(b: Builder, w: Tensor, groups: int) -> Tensor:
    """[groups * n, k] -> [groups * ceil(n / 32), k, 32], zero past n: what a constant is packed as when the model is compiled."""
    each, k = as_int(w.shape[0], "a recurrent weight's size") // groups, w.shape[1]
    panels = -(-each // PANEL)

    def element(index: tuple[IndexEntry, ...]) -> object:
        panel, row, column = index
        assert isinstance(panel, Dim) and isinstance(column, Dim)
        unit = panel % panels * PANEL + column
        value = w.at((panel // panels * each + unit, row))
        return value if each % PANEL == 0 else guarded(value, [Bound(unit, dim(0), dim(each))], 0)

    return Tensor(w.dtype, (dim(groups * panels), k, dim(PANEL)), element)  # type: ignore[arg-type]


def _is_constant(w: Tensor) -> bool:
    return w.buffer is not None and w.buffer.kind == "weight"


class _Weights:
    """The parameters of a layer's direction, as torch lists them: w_ih, w_hh, then b_ih and b_hh, then w_hr with a projection."""

    def __init__(self, params: Sequence[Tensor], has_biases: bool, projected: bool) -> None:
        self.input, self.hidden = params[0], params[1]
        self.input_bias: Tensor | None = params[2] if has_biases else None
        self.hidden_bias: Tensor | None = params[3] if has_biases else None
        self.projection = params[-1] if projected else None


def _layer(
    b: Builder, cell: str, x: Tensor, directions: Sequence[_Weights], h0: Tensor, c0: Tensor | None, batch_first: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """x [steps, batch, n] (or [batch, steps, n]), h0 and c0 [directions, batch, *] -> (out, hn, cn) of one layer, in x's arrangement."""
    gates = RECURRENT_GATES[cell]
    hidden, size = directions[0].hidden.shape[0] // gates, h0.shape[-1]
    operands: dict[str, Tensor] = {}
    for suffix, weights in zip(("", "_reverse"), directions):
        bias, hidden_bias = weights.input_bias, weights.hidden_bias
        if cell != "gru" and bias is not None and hidden_bias is not None:  # a GRU's reset gate stands between the two
            bias, hidden_bias = b.pointwise(lambda one, other: one + other, bias, hidden_bias), None
        given = linear(b, x, weights.input, None if bias is None else b.materialize(bias))
        operands["gates" + suffix] = swapped(given, 0, 1) if batch_first else given
        operands["w" + suffix] = weights.hidden if _is_constant(weights.hidden) else _panelled(b, weights.hidden, gates)
        if hidden_bias is not None:
            operands["bias" + suffix] = hidden_bias
        if weights.projection is not None:
            operands["w_proj" + suffix] = weights.projection if _is_constant(weights.projection) else _panelled(b, weights.projection, 1)
    operands["h0"] = h0
    count, batch = dim(len(directions)), h0.shape[1]
    outs = [((*x.shape[:2], count * size), DType.F32), ((count, batch, size), DType.F32)]
    if c0 is not None:
        operands["c0"] = c0
        outs.append(((count, batch, hidden), DType.F32))
    if directions[0].projection is not None:
        outs.append(((count, batch, hidden), DType.F32))  # h before the projection
    results = b.call("recurrent", operands, outs, cell=cell, groups=gates, batch_first=batch_first)
    return results[0], results[1], results[2] if c0 is not None else None


def _network(
    b: Builder,
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    if any(t.dtype is not DType.F32 for t in (x, *states, *params)):
        refuse(f"a recurrent layer of {x.dtype}; only float32: let the layer be layer.float(), and cast what goes in and comes out")
    if train and dropout > 0 and num_layers > 1:
        refuse("a recurrent layer with dropout in training: export the model in eval mode")
    directions = 2 if bidirectional else 1
    projected = cell == "lstm" and states[0].shape[-1] != states[1].shape[-1]
    each = 2 + 2 * has_biases + projected
    finals: list[list[Tensor]] = [[] for _ in states]
    out = x
    for layer in range(num_layers):
        weights = [_Weights(params[k * each : (k + 1) * each], has_biases, projected) for k in range(layer * directions, (layer + 1) * directions)]
        started = [narrowed(s, 0, layer * directions, directions) for s in states]
        out, *ends = _layer(b, cell, out, weights, started[0], started[1] if cell == "lstm" else None, batch_first)
        for final, end in zip(finals, ends):
            assert end is not None
            final.append(end)
    return (out, *(f[0] if num_layers == 1 else b.concat(f, 0) for f in finals))


@op("aten.lstm.input", rtol=1e-4, atol=1e-5)
def lstm(
    b: Builder,
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """input [steps, batch, n] (batch first if asked), hx (h [layers * directions, batch, size], c likewise) -> (out, h, c)."""
    return _network(b, "lstm", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


@op("aten.gru.input", rtol=1e-4, atol=1e-5)
def gru(
    b: Builder,
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """input [steps, batch, n], hx [layers * directions, batch, size] -> (out, h)"""
    return _network(b, "gru", input, (hx,), params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


@op("aten.rnn_tanh.input", rtol=1e-4, atol=1e-5)
def rnn_tanh(
    b: Builder,
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _network(b, "tanh", input, (hx,), params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


@op("aten.rnn_relu.input", rtol=1e-4, atol=1e-5)
def rnn_relu(
    b: Builder,
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    return _network(b, "relu", input, (hx,), params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
