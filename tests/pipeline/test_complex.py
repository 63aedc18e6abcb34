"""Complex numbers from end to end: parameters, buffers, state, inputs and outputs; in NumPy, torch and DLPack; through PyTorch's loader."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import sealift
from sealift.bisect_kernels import bisect_kernels


class Filter(torch.nn.Module):
    """Everything that lies in memory is complex somewhere: a parameter, a buffer that stays conjugated, a state, inputs, outputs."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(4, dtype=torch.complex64, generator=generator))
        self.register_buffer("by", torch.randn(4, dtype=torch.complex64, generator=generator).conj())
        self.register_buffer("total", torch.zeros(4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x * self.w + torch.polar(y, y) * (0.5 + 2j) / self.by
        self.total.add_(z.sum(0))
        views = z.T, torch.view_as_real(z), z.conj().imag
        return z, *views, z.abs(), z.angle(), z.mean(-1), z.prod(1), z == x, torch.cat([z, x]), self.total.clone(), x


X, Y = torch.randn(3, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(1)), torch.rand(3, 4)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    batch = Dim("batch", min=1, max=64)
    program = torch.export.export(Filter(), (X, Y), dynamic_shapes=({0: batch}, {0: batch}))
    yield sealift.compile(program, tmp_path_factory.mktemp("complex") / "filter.pt2")


def check(got: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    with torch.no_grad():
        wanted = copy.deepcopy(Filter())(x, y)
    for position, (g, w) in enumerate(zip(got, wanted, strict=True)):
        found = torch.as_tensor(np.asarray(g))
        assert found.dtype == w.dtype and found.shape == w.shape, position
        torch.testing.assert_close(found, w.resolve_conj().resolve_neg(), rtol=2e-5, atol=2e-5, msg=lambda m, p=position: f"output {p}: {m}")


def test_torch_and_numpy(package: Path) -> None:
    model = sealift.load(package)
    assert (model.inputs[0].dtype, len(model.inputs[0].shape)) == ("complex64", 2)
    got = model(X, Y)
    assert isinstance(got[0], torch.Tensor) and got[1].stride() == (1, 4)
    check(got, X, Y)
    arrays = sealift.load(package)(X[:1].numpy(), Y[:1].numpy())
    assert isinstance(arrays[0], np.ndarray) and arrays[0].dtype == np.complex64
    check(arrays, X[:1], Y[:1])


def test_dlpack_strides_and_the_state(package: Path) -> None:
    class Foreign:
        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

        def __dlpack__(self, **_: Any) -> Any:
            return self.tensor.__dlpack__()

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    model = sealift.load(package).context()
    check([torch.from_dlpack(t) for t in model(Foreign(X), Foreign(Y))], X, Y)
    model.reset()
    strided = torch.randn(4, 6, dtype=torch.complex64)[:, ::2].T
    check(model(strided, Y), strided, Y)


def test_the_callers_memory_is_complex(package: Path) -> None:
    session = sealift.load(package).context()
    outs = [torch.empty_strided(tuple(o.shape), o.stride(), dtype=o.dtype) for o in session(X, Y)]
    session.reset()
    session(X, Y, out=tuple(outs))
    check(outs, X, Y)


def test_what_is_not_in_memory_yet_is_refused(package: Path) -> None:
    model = sealift.load(package)
    for x, y in ((X.conj(), Y), (X, X.conj().imag)):
        with pytest.raises(sealift.SealiftError, match=r"E-INPUT-006.*resolve_neg\(\)\.resolve_conj\(\)"):
            model(x, y)
    with pytest.raises(sealift.SealiftError, match="E-INPUT-002"):
        model(X.to(torch.complex128), Y)


def test_pytorchs_loader(package: Path) -> None:
    loaded = torch._inductor.aoti_load_package(str(package))  # type: ignore[attr-defined]
    check(loaded(X, Y), X, Y)
    for x, y in ((X.conj(), Y), (X, X.conj().imag)):
        with pytest.raises(RuntimeError, match=r"resolve_neg\(\)\.resolve_conj\(\)"):
            loaded(x, y)


def test_bisect_judges_complex_kernels(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            z = torch.exp(x)
            return z, torch.cumsum(z, 0)

    program = torch.export.export(Two(), (X,))
    path = sealift.compile(program, tmp_path / "two.pt2", options=None)
    report = bisect_kernels(path, program)
    assert {r.result.name for r in report.kernels} == {"exp", "cumsum"} and all(r.result.ok for r in report.kernels), report


def test_what_has_no_rule_is_refused_with_its_line(tmp_path: Path) -> None:
    class Arc(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.asin(x)

    with pytest.raises(sealift.CompileError, match=r"(?s)E-OP-002.*aten.asin.default.*asin of complex numbers.*test_complex.py"):
        sealift.compile(torch.export.export(Arc(), (X,)), tmp_path / "arc.pt2")
    with pytest.raises(sealift.CompileError, match=r"(?s)E-DTYPE-001.*complex128 is not supported"):
        sealift.compile(torch.export.export(Filter(), (X.to(torch.complex128), Y)), tmp_path / "wide.pt2")
