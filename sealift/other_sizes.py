"""A program's example inputs at other sizes of their ranges: tried by check(), since what is right at one size may be wrong at another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sealift.ir.dim import Dim, parse_dim, sym
from sealift.load import Model

_MOST_ELEMENTS = 1 << 22  # of all inputs together; a larger case is left out
_GROWTH = 2  # a larger size is this many times the example's, and one more, so that it divides into no vector


@dataclass(frozen=True)
class SizedInputs:
    sizes: Mapping[str, int]  # by the name of the dynamic dimension
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def inputs_at_other_sizes(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[SizedInputs]:
    """No elements where the ranges allow it, ones, larger sizes, and each dimension at one beside large others. Nothing where no dimension is
    dynamic. Values are the example's, repeated or cut off, so an index stays one that the model takes."""
    leaves, spec = torch.utils._pytree.tree_flatten((args, dict(kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    ranges = {name: (int(low), int(high)) for name, (low, high) in model._entry.get("sizes", {}).items()}
    if not ranges or len(tensors) != len(model.inputs):
        return
    symbols = {name: sym(name, low, high) for name, (low, high) in ranges.items()}
    shapes = [[parse_dim(d.text, symbols) for d in info.shape] for info in model.inputs]
    example = _sizes_of(tensors, shapes)
    if example.keys() != ranges.keys():
        return
    for sizes in _combinations(example, ranges):
        wanted = [[d.evaluate(sizes) for d in shape] for shape in shapes]
        if sum(torch.Size(shape).numel() for shape in wanted) > _MOST_ELEMENTS:
            continue
        resized = iter([_resized(tensor, shape) for tensor, shape in zip(tensors, wanted)])
        made = [next(resized) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        its_args, its_kwargs = torch.utils._pytree.tree_unflatten(made, spec)
        yield SizedInputs(sizes, tuple(its_args), dict(its_kwargs))


def _sizes_of(tensors: list[torch.Tensor], shapes: list[list[Dim]]) -> dict[str, int]:
    """The symbols' values, read where a dimension is a symbol alone or a multiple of one."""
    found: dict[str, int] = {}
    for tensor, shape in zip(tensors, shapes):
        for actual, declared in zip(tensor.shape, shape):
            if len(declared.symbols) != 1:
                continue
            (symbol,) = declared.symbols
            linear = declared.linear_in(symbol)
            if linear is not None and linear[0].is_const and linear[1].is_const and linear[0].value:
                found[symbol.name] = (actual - linear[1].value) // linear[0].value
    return found


def _combinations(example: Mapping[str, int], ranges: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    least = {name: low for name, (low, _) in ranges.items()}
    small = {name: max(low, min(1, high)) for name, (low, high) in ranges.items()}
    large = {name: min(high, _GROWTH * max(example[name], 1) + 1) for name, (_, high) in ranges.items()}
    mixed = [{**large, name: small[name]} for name in ranges] if len(ranges) > 1 else []
    seen = [dict(example)]
    for sizes in (least, small, large, *mixed):
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


def _resized(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Repeated or cut off along each axis; where there was nothing to repeat, zeros."""
    for axis, size in enumerate(shape):
        old = tensor.shape[axis]
        if size != old and old:
            tensor = tensor.index_select(axis, torch.arange(size) % old)
    return tensor if list(tensor.shape) == shape else torch.zeros(shape, dtype=tensor.dtype)
