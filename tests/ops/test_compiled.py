"""Every row against eager once more, through fusion and the C++ backend: the samples of a row are compiled into one library."""

from __future__ import annotations

import pytest
import torch

from sealift.ir.graph.types import OpDef
from tests.ops.own_samples import UNSPECIFIED
from tests.ops.runner import Lowered, assert_same, loops_of, lower_row, output_of, run_eager
from tests.ops.samples import DTYPES, ROWS, Sample, hostile, samples_of
from tests.support_native import NativeBatch, optimize

PER_DTYPE = 3  # samples compiled for each dtype; the interpreter sees them all


def cases_of(op: OpDef) -> list[tuple[str, Sample]]:
    found: list[tuple[str, Sample]] = []
    for dtype in DTYPES:
        samples = samples_of(op, dtype)
        step = max(len(samples) // PER_DTYPE, 1)
        found += [(f"{op.name}{s}", s) for s in samples[::step][:PER_DTYPE]]
    for dtype in (torch.float32, torch.int32, torch.bfloat16, torch.complex64):
        found += [(f"{name}: {op.name}{s}", s) for name, s in hostile(op, samples_of(op, dtype))]
    return found


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_compiled_matches_eager(op: OpDef) -> None:
    cases: list[tuple[str, Sample, Lowered]] = []
    for note, sample in cases_of(op):
        try:
            cases.append((note, sample, lower_row(op, sample.args, sample.kwargs)))
        except NotImplementedError:
            continue
    batch = NativeBatch([optimize(loops_of(lowered)) for _, _, lowered in cases])
    for position, (note, sample, lowered) in enumerate(cases):
        wanted = run_eager(op, sample.args, sample.kwargs)
        if op.name in UNSPECIFIED:
            wanted = [torch.zeros_like(w) for w in wanted]
        arrays = batch.run(position, lowered.env)
        got = [output_of(t, a, {}) for a, t in zip(arrays, lowered.outputs)]
        assert_same(op, got, wanted, note, (sample.args, sample.kwargs))
