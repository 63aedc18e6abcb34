"""sealift.check tries other sizes of the ranges than the example's, and leaves the program as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import sealift  # noqa: E402


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(function: Callable[..., Any], *args: Any, **sizes: tuple[int, int]) -> Any:
    dims = {i: torch.export.Dim(name, min=low, max=high) for i, (name, (low, high)) in enumerate(sizes.items())}
    return torch.export.export(Function(function), args, dynamic_shapes=((dims,) * len(args),))


def sizes_of(report: Any) -> list[dict[str, int]]:
    return [dict(case.sizes) for case in report.cases[1:]]


def test_the_ends_and_the_middle_of_every_range(tmp_path: Path) -> None:
    program = exported(lambda x, mask: (x * mask).softmax(1), torch.randn(2, 5), torch.ones(2, 5), batch=(1, 4), length=(0, 64))
    report = sealift.check(sealift.compile(program, tmp_path / "m.pt2"), program)
    assert report.ok
    assert sizes_of(report) == [
        {"batch": 1, "length": 0},
        {"batch": 1, "length": 1},
        {"batch": 4, "length": 11},
        {"batch": 1, "length": 11},
        {"batch": 4, "length": 1},
    ]
    assert "ok at batch=1, length=0; " in str(report) and len(report.as_dict()["cases"]) == 6


def test_what_is_right_at_the_examples_size_only_is_found(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    package = sealift.compile(exported(lambda x: x.sum(0) / 3, x, rows=(1, 64)), tmp_path / "m.pt2")
    program = exported(lambda x: x.mean(0), x, rows=(1, 64))
    report = sealift.check(package, program)
    assert not report.ok and report.cases[0].ok and [case.ok for case in report.cases[1:]] == [False, False]
    assert "at rows=1: output: DIFFERS" in str(report) and "at rows=7: output: DIFFERS" in str(report)
    assert sealift.check(package, program, other_sizes=False).ok


def test_sizes_that_eager_refuses_are_said(tmp_path: Path) -> None:
    table = torch.randn(4, 2)
    program = exported(lambda x: x[:, None] + torch.nn.functional.embedding(torch.arange(x.shape[0]), table), torch.randn(3), rows=(1, 64))
    report = sealift.check(sealift.compile(program, tmp_path / "m.pt2"), program)
    assert report.ok and [bool(case.refused) for case in report.cases] == [False, False, True]
    assert "at rows=7: not compared, eager refuses these sizes: " in str(report)


def test_a_derived_size_and_constants_among_the_arguments(tmp_path: Path) -> None:
    half = torch.export.Dim("half", min=1, max=64)

    class Fold(torch.nn.Module):
        def forward(self, x: Any, scale: float, more: dict[str, Any]) -> Any:
            return x.view(2, -1).sum(0) * scale + more["y"]

    arguments = (torch.randn(6), 2.0, {"y": torch.randn(3)})
    program = torch.export.export(Fold(), arguments, dynamic_shapes=({0: 2 * half}, None, {"y": {0: half}}))
    report = sealift.check(sealift.compile(program, tmp_path / "m.pt2"), program)
    assert report.ok and sizes_of(report) == [{"half": 1}, {"half": 7}]


def test_state_is_each_runs_own(tmp_path: Path) -> None:
    class Total(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.total += x.sum(0)
            return x + self.total

    rows = torch.export.Dim("rows", min=1, max=64)
    program = torch.export.export(Total(), (torch.randn(3, 4),), dynamic_shapes=({0: rows},))
    package = sealift.compile(program, tmp_path / "m.pt2")
    for _ in range(2):
        assert sealift.check(package, program).ok
    assert not program.state_dict["total"].any()
