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
