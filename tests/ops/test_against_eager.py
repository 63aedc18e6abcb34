"""Every row against eager: OpInfo's calls, own samples, and their hostile variants, over the dtypes."""

from __future__ import annotations

import pytest
import torch

from sealift.ir.graph.types import OpDef
from tests.ops.own_samples import UNSPECIFIED
from tests.ops.runner import assert_same, run_eager, run_row
from tests.ops.samples import DTYPES, ROWS, Sample, hostile, samples_of

HOSTILE = (torch.float32, torch.int32, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.uint8, torch.complex64)


def check(op: OpDef, sample: Sample, note: str) -> bool:
    """Compares one call; False if the row refuses it."""
    wanted = run_eager(op, sample.args, sample.kwargs)
    try:
        got = run_row(op, sample.args, sample.kwargs)
    except NotImplementedError:
        return False
    if op.name in UNSPECIFIED:
        wanted = [torch.zeros_like(w) for w in wanted]
    assert_same(op, got, wanted, note, (sample.args, sample.kwargs))
    return True


@pytest.mark.parametrize("op", ROWS, ids=str)
def test_matches_eager(op: OpDef) -> None:
    compared = 0
    for dtype in DTYPES:
        for sample in samples_of(op, dtype):
            compared += check(op, sample, f"{op.name}{sample}")
    assert compared, f"{op.name}: no sample; give `samples` the name of an OpInfo, or add calls to own_samples.py"


@pytest.mark.parametrize("op", ROWS, ids=str)
@pytest.mark.parametrize("dtype", HOSTILE, ids=str)
def test_matches_eager_on_hostile_inputs(op: OpDef, dtype: torch.dtype) -> None:
    for name, sample in hostile(op, samples_of(op, dtype)):
        check(op, sample, f"{name}: {op.name}{sample}")
