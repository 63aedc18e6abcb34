"""Recurrent layers whose number of steps is a size.

torch computes the shapes of aten.lstm, gru and rnn by running their decomposition, which walks the steps one by one and so fixes their
number. The operator itself stays whole in an export; only its shapes have to be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)


def _shapes(num_states: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    def shapes(
        input: torch.Tensor,
        hx: Any,
        params: Sequence[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        states = list(hx) if num_states > 1 else [hx]
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
        out = input.new_empty((steps, batch, width))
        return (out.transpose(0, 1) if batch_first else out, *(torch.empty_like(s) for s in states))

    return shapes


@contextmanager
def recurrent_shapes() -> Iterator[None]:
    """While it lasts, an export or a decomposition takes the shapes of recurrent layers from their arguments:

    with recurrent_shapes():
        program = torch.export.export(tagger, (words,), dynamic_shapes={"words": {0: batch, 1: length}})
    """
    overloads = {
        torch.ops.aten.lstm.input: 2,
        torch.ops.aten.gru.input: 1,
        torch.ops.aten.rnn_tanh.input: 1,
        torch.ops.aten.rnn_relu.input: 1,
    }
    before = {overload: dict(overload.py_kernels) for overload in overloads}
    try:
        for overload, num_states in overloads.items():
            for key in _KEYS:
                overload.py_kernels[key] = _shapes(num_states)
            overload._dispatch_cache.clear()
        yield
    finally:
        for overload, kernels in before.items():
            overload.py_kernels.clear()
            overload.py_kernels.update(kernels)
            overload._dispatch_cache.clear()
