"""Samples of recurrent layers: every cell, one and two directions and layers, with and without biases, with a projection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Calls = Sequence[tuple[Sequence[Any], dict[str, Any]]]
ARRANGEMENTS = ((1, False, False, True), (2, True, True, True), (1, True, False, False), (2, False, True, False))
STEPS, BATCH, INPUT = 3, 2, 5


def _calls(gates: int, num_states: int, dtype: torch.dtype) -> Calls:
    if dtype is not torch.float32:
        return []
    generator = torch.Generator().manual_seed(gates)

    def weight(*shape: int) -> torch.Tensor:
        return (torch.rand(shape, generator=generator) - 0.5) * 0.4

    calls = []
    for hidden, size in ((6, 6),) if num_states == 1 else ((6, 6), (34, 3)):  # 34: past one panel
        for layers, bidirectional, batch_first, has_biases in ARRANGEMENTS:
            directions = 2 if bidirectional else 1
            params: list[torch.Tensor] = []
            for layer in range(layers):
                for _ in range(directions):
                    params += [weight(gates * hidden, INPUT if layer == 0 else directions * size), weight(gates * hidden, size)]
                    params += [weight(gates * hidden), weight(gates * hidden)] if has_biases else []
                    params += [weight(size, hidden)] if size != hidden else []
            states = [weight(layers * directions, BATCH, s) * 4 for s in (size, hidden)[:num_states]]
            x = weight(*((BATCH, STEPS) if batch_first else (STEPS, BATCH)), INPUT) * 10
            hx = states if num_states > 1 else states[0]
            calls.append(([x, hx, params, has_biases, layers, 0.0, False, bidirectional, batch_first], {}))
    return calls


RECURRENT: Mapping[str, Callable[[torch.dtype], Calls]] = {
    "aten.lstm.input": lambda d: _calls(4, 2, d),
    "aten.gru.input": lambda d: _calls(3, 1, d),
    "aten.rnn_tanh.input": lambda d: _calls(1, 1, d),
    "aten.rnn_relu.input": lambda d: _calls(1, 1, d),
}
