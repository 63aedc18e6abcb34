"""Calls whose structure only a real export has: nested containers, keywords, None, arguments that are no tensors, state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sealift  # noqa: E402
from sealift import errors  # noqa: E402

OPTIONS = sealift.Options(isas=("baseline",))


class Nested(torch.nn.Module):
    def forward(self, pair: Any, scale: int, *, extra: Any) -> Any:
        a, b = pair
        total = a + b["x"] * scale
        return {"sum": total, "parts": [a * 2, None], "extra": (extra - 1,)}


class Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        self.count.add_(x)
        return self.count * 1.0


def test_nested(tmp_path: Path) -> None:
    a, b, extra = torch.randn(2, 3), torch.randn(2, 3), torch.randn(4)
    program = torch.export.export(Nested(), ((a, {"x": b}), 3), {"extra": extra})
    model = sealift.load(sealift.compile(program, tmp_path / "nested.pt2", options=OPTIONS))
    result = model((a, {"x": b}), 3, extra=extra)
    torch.testing.assert_close(result["sum"], a + b * 3)
    assert result["parts"][1] is None and type(result["extra"]) is tuple
    torch.testing.assert_close(result["extra"][0], extra - 1)
    array = model((a.numpy(), {"x": b.numpy()}), 3, extra=extra.numpy())
    np.testing.assert_array_equal(array["sum"], result["sum"].numpy())
    with pytest.raises(errors.InputCountError, match="'y', the model takes the keys 'x'"):
        model((a, {"y": b}), 3, extra=extra)
    with pytest.raises(errors.InputCountError, match="extra"):
        model((a, {"x": b}), 3)


def test_state_belongs_to_the_context(tmp_path: Path) -> None:
    program = torch.export.export(Counter(), (torch.ones(3),))
    model = sealift.load(sealift.compile(program, tmp_path / "counter.pt2", options=OPTIONS))
    x = np.ones(3, np.float32)
    assert [float(model(x)[0]) for _ in range(3)] == [1, 2, 3]
    context = model.context()
    assert [float(context(x)[0]) for _ in range(2)] == [1, 2]
    copy = context.clone()
    assert float(copy(x)[0]) == 3 and float(context(x)[0]) == 3
    context.reset()
    assert float(context(x)[0]) == 1 and float(copy(x)[0]) == 4


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, alpha: float = 1.0, *, flip: bool = False) -> torch.Tensor:
        return -x * alpha if flip else x * alpha


def test_a_constant_of_the_call_must_be_the_one_that_was_exported(tmp_path: Path) -> None:
    program = torch.export.export(Scaled(), (torch.ones(2, 3), 2.0), {"flip": True})
    model = sealift.load(sealift.compile(program, tmp_path / "scaled.pt2", options=OPTIONS))
    x = np.ones((2, 3), np.float32)
    assert float(model(x, 2.0, flip=True)[0, 0]) == -2
    for args, kwargs in (((x, 5.0), {"flip": True}), ((x, 2.0), {"flip": False}), ((x, 2), {"flip": True}), ((x, "2"), {"flip": True})):
        with pytest.raises(errors.InputCountError, match="built in"):
            model(*args, **kwargs)


@pytest.mark.parametrize(("scale", "shift", "good", "bad"), [(2, 0, 8, 9), (1, 1, 9, 70), (3, 2, 11, 12)])
def test_a_size_derived_from_one_that_no_input_has(scale: int, shift: int, good: int, bad: int, tmp_path: Path) -> None:
    part = torch.export.Dim("part", min=2, max=32)
    derived = scale * part + shift if shift else scale * part

    class AddOne(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    program = torch.export.export(AddOne(), (torch.zeros(scale * 4 + shift, 4),), dynamic_shapes={"x": {0: derived}})
    model = sealift.load(sealift.compile(program, tmp_path / "derived.pt2", options=OPTIONS))
    assert model(np.zeros((good, 4), np.float32)).shape == (good, 4)
    with pytest.raises(errors.ShapeError, match="part"):
        model(np.zeros((bad, 4), np.float32))


class Numbers(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return {"y": x + 1, "n": 3, "size": x.shape[1]}


def test_python_numbers_among_the_outputs_stay_numbers(tmp_path: Path) -> None:
    program = torch.export.export(Numbers(), (torch.ones(2, 5),))
    found = sealift.load(sealift.compile(program, tmp_path / "numbers.pt2", options=OPTIONS))(np.ones((2, 5), np.float32))
    assert (found["n"], found["size"]) == (3, 5) and isinstance(found["n"], int)


def test_the_norm_modules_compile(tmp_path: Path) -> None:
    """As modules export them: with every argument given."""
    x = torch.randn(2, 4, 6)
    for module in (
        torch.nn.GroupNorm(2, 4),
        torch.nn.LayerNorm(6),
        torch.nn.BatchNorm1d(4),
        torch.nn.InstanceNorm1d(4, affine=True),
        torch.nn.RMSNorm(6),
    ):
        program = torch.export.export(module.eval(), (x,))
        model = sealift.load(sealift.compile(program, tmp_path / "norm.pt2", options=OPTIONS))
        torch.testing.assert_close(model(x), module(x).detach(), rtol=1e-5, atol=1e-5)


def test_no_memory_for_an_output(tmp_path: Path) -> None:
    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, None] + x

    n = torch.export.Dim("n", min=1, max=1 << 23)  # whose square is no address space
    path = sealift.compile(Pairs(), tmp_path / "m.pt2", args=(torch.ones(4),), dynamic_shapes=({0: n},), options=sealift.Options(isas=("baseline",)))
    with pytest.raises(MemoryError, match=r"E-MEMORY-001.*help"):
        sealift.load(path)(np.ones(1 << 23, np.float32))
