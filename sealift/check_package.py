"""check(): a package against eager PyTorch, at the sizes of the example inputs and at others of their ranges.

The rule: for each output, max|y - y64| is at most 2 max|eager - y64| + 1e-6 max|y64|, y64 being the model run in float64; integers and
booleans are exact. Where the program cannot run in float64 (it names float32 itself), eager stands for y64."""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from sealift.errors import ArgumentError
from sealift.load import Model, load
from sealift.other_sizes import SizedInputs, inputs_at_other_sizes

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputReport:
    name: str
    ok: bool
    max_error: float  # of the package, against y64
    eager_error: float  # of eager, against y64
    allowed: float
    worst: tuple[int, ...]  # where the package's error is largest
    got: float
    expected: float  # y64 there
    note: str = ""  # a difference in kind, shape, dtype, NaN or infinity

    def __str__(self) -> str:
        if self.note:
            return f"{self.name}: DIFFERS: {self.note}"
        verdict = "ok" if self.ok else f"DIFFERS at {list(self.worst)}: {self.got!r} where {self.expected!r} is right"
        return f"{self.name}: {verdict}, error {self.max_error:.3g} (eager {self.eager_error:.3g}, allowed {self.allowed:.3g})"


@dataclass(frozen=True)
class CheckedCase:
    """What was compared at one choice of sizes; `refused` is why eager does not run there, if it does not."""

    sizes: Mapping[str, int]  # of the dynamic dimensions, by name; empty: as the inputs were given
    outputs: tuple[OutputReport, ...]
    refused: str = ""

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs)

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.sizes.items())


@dataclass(frozen=True)
class CheckReport:
    cases: tuple[CheckedCase, ...]  # first the inputs as they were given

    @property
    def outputs(self) -> tuple[OutputReport, ...]:
        """Of the inputs as they were given."""
        return self.cases[0].outputs

    @property
    def ok(self) -> bool:
        return all(case.ok for case in self.cases)

    def as_dict(self) -> dict[str, Any]:
        cases = [{"sizes": dict(c.sizes), "refused": c.refused, "outputs": [asdict(o) for o in c.outputs]} for c in self.cases]
        return {"ok": self.ok, "outputs": cases[0]["outputs"], "cases": cases}

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines = list(map(str, self.outputs))
        for case in self.cases[1:]:
            if case.refused:
                lines.append(f"at {case}: not compared, eager refuses these sizes: {case.refused}")
            lines += [f"at {case}: {o}" for o in case.outputs if not o.ok]
        right = [str(case) for case in self.cases[1:] if case.ok and not case.refused]
        return "\n".join([*lines, *([f"ok at {'; '.join(right)}"] if right else [])])


def check(
    path: str | os.PathLike[str],
    exported_program: Any,
    inputs: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    model: str | None = None,
    num_threads: int | None = None,
    isa: str | None = None,
    other_sizes: bool = True,
) -> CheckReport:
    """Runs both on `inputs` (default: the program's example inputs) and, where dimensions are dynamic, on the same values at other sizes of
    their ranges, and says where they differ. The report is true if they agree."""
    if inputs is None:
        if exported_program.example_inputs is None:
            raise ArgumentError("the program has no example inputs; help: pass inputs=(...)")
        inputs, kwargs = exported_program.example_inputs
    args, named = tuple(inputs), dict(kwargs or {})
    compiled = load(path, model, num_threads, isa)
    cases = [CheckedCase({}, _compare_with(_eager(exported_program, args, named), compiled, exported_program, args, named))]
    for case in inputs_at_other_sizes(compiled, args, named) if other_sizes else ():
        cases.append(_at_sizes(compiled, exported_program, case))
    return CheckReport(tuple(cases))


def _eager(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Each run has inputs and a state of its own: a model may write into both."""
    with torch.no_grad():
        return _module(program)(*_copied(args), **_copied(kwargs))


def _compare_with(result: Any, compiled: Model, program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[OutputReport, ...]:
    """The package, and the program in float64, beside eager's `result`."""
    with torch.no_grad():
        wide = _in_double(program, args, kwargs)
    eager = compiled.flatten_outputs(result)
    got = compiled.flatten_outputs(compiled.context()(*_copied(args), **_copied(kwargs)))
    exact = compiled.flatten_outputs(wide) if wide is not None else eager
    names = [o.name for o in compiled.outputs]
    return tuple(compare(n, g, e, x) for n, g, e, x in zip(names, got, eager, exact, strict=True))


def _at_sizes(compiled: Model, program: Any, case: SizedInputs) -> CheckedCase:
    try:
        result = _eager(program, case.args, case.kwargs)
    except Exception as error:  # the model's own code: anything may come of sizes that it was not meant for
        return CheckedCase(case.sizes, (), (str(error).strip().splitlines() or [type(error).__name__])[0])
    return CheckedCase(case.sizes, _compare_with(result, compiled, program, case.args, case.kwargs))


def _module(program: Any) -> torch.nn.Module:
    """The program as a module. Its buffers are its own, so that a run leaves the program's state alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`isinstance.treespec", FutureWarning)  # torch's own use of its pytrees
        try:
            module: torch.nn.Module = program.module(check_guards=False)
        except TypeError:  # an older torch
            module = program.module()
    own: dict[int, torch.Tensor] = {}  # one buffer may have several names
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = own.setdefault(id(buffer), buffer.detach().clone())
    return module


def _copied(value: Any, dtype: torch.dtype | None = None) -> Any:
    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().to(dtype) if dtype is not None and leaf.is_floating_point() else leaf.detach().clone()

    return torch.utils._pytree.tree_map(copy, value)


def _in_double(program: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`isinstance.treespec", FutureWarning)
            module = copy.deepcopy(_module(program)).double()
        return module(*_copied(args, torch.float64), **_copied(kwargs, torch.float64))
    except Exception as error:  # dtypes written into the program: anything may come of it
        _LOG.info("the program does not run in float64 (%s); comparing with eager", error)
        return None


def compare(name: str, got: Any, eager: Any, exact: Any, slack: float = 1.0) -> OutputReport:
    """The rule, `slack` times as wide."""
    if not isinstance(eager, torch.Tensor):
        same = got is eager or got == eager
        return _different(name, f"{got!r}, eager has {eager!r}") if not same else OutputReport(name, True, 0.0, 0.0, 0.0, (), 0.0, 0.0)
    if not isinstance(got, torch.Tensor):
        return _different(name, f"{got!r}, eager has a tensor")
    if got.shape != eager.shape or got.dtype != eager.dtype:
        return _different(name, f"{got.dtype} {list(got.shape)}, eager has {eager.dtype} {list(eager.shape)}")
    if got.numel() == 0:
        return OutputReport(name, True, 0.0, 0.0, 0.0, (), 0.0, 0.0)
    y, e = (t.detach().to(torch.complex128 if t.is_complex() else torch.float64) for t in (got, eager))
    x = exact.detach().to(y.dtype)
    odd = (torch.isnan(y) != torch.isnan(e)) | (torch.isinf(y) & torch.isinf(e) & (y != e)) | (torch.isinf(y) & ~torch.isinf(e) & torch.isfinite(x))
    if bool(odd.any()):
        at = tuple(int(i) for i in odd.nonzero()[0])
        return _different(name, f"{y[at].item()!r} at {list(at)}, eager has {e[at].item()!r}")
    finite = torch.isfinite(y) & torch.isfinite(e) & torch.isfinite(x)
    zero = torch.zeros((), dtype=torch.float64)
    error = torch.where(finite, (y - x).abs(), zero)
    eager_error = float(torch.where(finite, (e - x).abs(), zero).max())
    is_float = eager.is_floating_point() or eager.is_complex()
    allowed = slack * (2 * eager_error + 1e-6 * float(torch.where(finite, x.abs(), zero).max())) if is_float else 0.0
    worst = tuple(int(i) for i in torch.unravel_index(error.argmax(), error.shape))
    largest = float(error.max())
    return OutputReport(name, largest <= allowed, largest, eager_error, allowed, worst, float(y[worst].real), float(x[worst].real))


def _different(name: str, note: str) -> OutputReport:
    return OutputReport(name, False, float("inf"), 0.0, 0.0, (), 0.0, 0.0, note)
