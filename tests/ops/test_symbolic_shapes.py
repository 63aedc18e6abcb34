"""Rows lowered once with a symbol for a size, interpreted and compiled, and run at several values of it, 0 and 1 included: shapes, dtypes
and values are eager's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from sealift.ir.dim import Dim, sym
from sealift.ir.graph.types import OpDef
from tests.ops.own_samples import UNSPECIFIED
from tests.ops.runner import Lowered, assert_same, bind, loops_of, lower_row, map_tensors, output_of, overload_of, run_eager, run_symbolic, to_numpy
from tests.ops.samples import DEVIATIONS, ROWS, Sample, accepts, samples_of, tensors_in
from tests.support_native import NativeBatch, optimize

OTHER_SIZES = (0, 1, 7)
TRIED = 2  # samples of a row


def tensor_sizes(bound: dict[str, Any]) -> list[int]:
    return sorted({s for v in bound.values() for t in tensors_in(v) for s in t.shape if s > 1})


def resized(op: OpDef, bound: dict[str, Any], old: int, new: int) -> dict[str, Any] | None:
    """The call with every size `old`, in tensors and SymInt arguments, replaced by `new`; None where that is no call."""
    types = {a.name: str(a.real_type) for a in overload_of(op.name)._schema.arguments}

    def tensor(t: torch.Tensor) -> torch.Tensor:
        shape = [new if s == old else s for s in t.shape]
        count = torch.Size(shape).numel()
        return t.reshape(-1)[torch.arange(count) % max(t.numel(), 1)].reshape(shape)

    def number(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [number(v) for v in value]
        return new if isinstance(value, int) and not isinstance(value, bool) and value == old else value

    call = {k: number(v) if "SymInt" in types[k] else map_tensors(v, tensor) for k, v in bound.items()}
    return _with_bags_inside(call) if "offsets" in call else call


def _with_bags_inside(call: dict[str, Any]) -> dict[str, Any] | None:
    """Bags that begin in order, within the indices, which are within the table: eager checks none of it and reads wild memory."""
    rows, indices, offsets = call["weight"].shape[0], call["indices"], call["offsets"]
    bags = offsets.numel() - bool(call.get("include_last_offset"))
    if indices.numel() and (rows == 0 or bags < 1):
        return None
    return {**call, "indices": indices % max(rows, 1), "offsets": offsets.sort().values.clamp(max=indices.numel())}


@dataclass(frozen=True)
class Case:
    """A call lowered with a symbol for one of its sizes, and calls at values of that symbol."""

    note: str
    template: Lowered
    calls: dict[int, dict[str, Any]]


@cache
def cases_of(op: OpDef) -> list[Case]:
    found: list[Case] = []
    samples = samples_of(op, torch.float32) or samples_of(op, torch.int64)
    for sample in samples[:: max(len(samples) // TRIED, 1)][:TRIED]:
        bound = bind(overload_of(op.name), sample.args, sample.kwargs)
        for old in tensor_sizes(bound)[:2]:
            symbols: dict[int, Dim] = {old: sym("s")}
            try:
                template = lower_row(op, (), bound, symbols)
            except NotImplementedError:
                continue
            calls = {old: bound}
            for new in OTHER_SIZES:
                call = resized(op, bound, old, new) if f"size {new}" not in DEVIATIONS.get(op.name, {}) else None
                if call is not None and accepts(overload_of(op.name), Sample((), call)):
                    calls[new] = call
            found.append(Case(f"{op.name}{sample} with {old}", template, calls))
    return found


def check(op: OpDef, case: Case, size: int, got: Sequence[torch.Tensor]) -> None:
    wanted = run_eager(op, (), case.calls[size])
    if op.name in UNSPECIFIED:
        wanted = [torch.zeros_like(w) for w in wanted]
    assert_same(op, got, wanted, f"{case.note} -> {size}")


def arrays_of(call: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    return {f"in{k}": to_numpy(t) for k, t in enumerate(t for v in call.values() for t in tensors_in(v))}


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_symbolic_sizes(op: OpDef) -> None:
    for case in cases_of(op):
        for size, call in case.calls.items():
            check(op, case, size, run_symbolic(op, case.template, arrays_of(call), {"s": size}))


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_symbolic_sizes_compiled(op: OpDef) -> None:
    cases = cases_of(op)
    batch = NativeBatch([optimize(loops_of(case.template)) for case in cases])
    for position, case in enumerate(cases):
        for size, call in case.calls.items():
            found = batch.run(position, arrays_of(call), {"s": size})
            check(op, case, size, [output_of(t, array, {"s": size}) for t, array in zip(case.template.outputs, found)])
