"""Image and audio models against eager, as exported with a dynamic batch; the full sizes are marked slow."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import sealift
from tests.models import audio, vision
from tests.models.cases import ModelCase, error_ratio, in_float64, outputs_of, randn

CASES = [pytest.param(c, id=c.name) for c in (*vision.SMALL, *audio.SMALL)]
CASES += [pytest.param(c, id=c.name, marks=pytest.mark.slow) for c in (*vision.FULL, *audio.FULL)]


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_as_close_to_float64_as_eager_is(case: ModelCase, tmp_path: Path) -> None:
    if case.missing():
        pytest.skip(f"needs {', '.join(case.missing())}")
    module, arguments, dynamic_shapes = case.build()
    program = torch.export.export(module, arguments[0], dynamic_shapes=dynamic_shapes)
    path = sealift.compile(program, tmp_path / "model.pt2")
    model, alone = sealift.load(path, num_threads=2), sealift.load(path, num_threads=1)
    double = copy.deepcopy(module).double()
    for given in arguments:
        got = outputs_of(model(*given))
        with torch.no_grad():
            eager = outputs_of(module(*given))
        exact = in_float64(double, given)
        assert len(got) == len(eager)
        for y, e, y64 in zip(got, eager, exact):
            assert y.shape == e.shape and y.dtype == e.dtype
            assert error_ratio(y.numpy(), e.numpy(), y64) <= 1, [tuple(t.shape) for t in given]
            assert np.abs(y64).max() > 1e-4, "the signal died: the error proves nothing"
        for y, other in zip(got, outputs_of(alone(*given))):
            assert torch.equal(y, other), "the number of threads changed a bit"


@pytest.mark.skipif(bool(audio.SMALL[1].missing()), reason="needs silero_vad")
def test_silero_vad_follows_its_own_torchscript_file(tmp_path: Path) -> None:
    """Ten chunks, the state going from call to call."""
    script = audio.silero_script()
    _, arguments, dynamic_shapes = audio.silero_vad()
    program = torch.export.export(audio.silero_vad_of(script), arguments[0], dynamic_shapes=dynamic_shapes)
    model = sealift.load(sealift.compile(program, tmp_path / "vad.pt2"))
    context, state = torch.zeros(2, audio.SileroVad.CONTEXT), torch.zeros(2, 2, 128)
    time = torch.arange(audio.SileroVad.CHUNK) / 16000
    for chunk in range(10):
        tone = 0.3 * torch.sin(2 * torch.pi * 150 * (1 + chunk / 5) * time) * torch.sin(2 * torch.pi * 4 * time)
        x = torch.stack((tone, 0.05 * randn(audio.SileroVad.CHUNK, seed=chunk)))
        with torch.no_grad():
            wanted = script(x, 16000)
        got, state = model(torch.cat((context, x), 1), state)
        context = x[:, -audio.SileroVad.CONTEXT :]
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
