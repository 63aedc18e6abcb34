"""What each row is tried on: the calls of its overload that OpInfo's samples make, own samples where OpInfo has none, and hostile
variants of both. Everything is small and the same in every run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from sealift.ir.graph.types import OpDef
from sealift.ops import OPS
from tests.ops.own_samples import DEVIATIONS, OWN
from tests.ops.runner import bind, map_tensors, overload_of

DTYPES = (
    torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.uint8, torch.complex64,
)  # fmt: skip
DEVICE = "cpu"
LOOKED_AT = {torch.float32: 32}  # OpInfo samples of a dtype that are run to find calls
LOOKED_AT_OTHERWISE = 8
KEPT = {torch.float32: 8, torch.bfloat16: 3, torch.int64: 3}  # calls of a dtype that are tried, spread over those found
KEPT_OTHERWISE = 2
MAX_NUMEL = 2_000
# Eager makes a complex product of three real ones here, so that its infinities meet where ours, of four, do not.
SUMS_OF_PRODUCTS = frozenset("mm bmm addmm baddbmm mv addmv dot matmul linear".split()) | {
    f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)
}
POSITIONS = frozenset({"index", "indices", "offsets", "offs", "condition", "mask"})  # tensors whose values choose: hostile variants keep them


ROWS = [op for op in OPS.values() if op.name.startswith("aten.")]  # branches and loops take graphs: tests/passes/test_parts.py
INFOS = {name: tuple(infos) for name, infos in itertools.groupby(sorted(op_db, key=lambda info: info.name), lambda info: info.name)}


@dataclass(frozen=True)
class Sample:
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"({', '.join([*map(_brief, self.args), *(f'{k}={_brief(v)}' for k, v in self.kwargs.items())])})"


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_brief, value))}]"
    return repr(value)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)


# ---- from OpInfo -----------------------------------------------------------------------------------------------------------------


class _Recorder(TorchDispatchMode):
    """Collects the calls of one overload, with copies of their arguments."""

    def __init__(self, overload: torch._ops.OpOverload) -> None:
        super().__init__()
        self.overload = overload
        self.calls: list[Sample] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is self.overload:
            self.calls.append(_copied(args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sample:
    def copy(t: torch.Tensor) -> torch.Tensor:
        return t.detach().clone()

    return Sample(tuple(map_tensors(a, copy) for a in args), {k: map_tensors(v, copy) for k, v in kwargs.items()})


def accepts(overload: torch._ops.OpOverload, sample: Sample) -> bool:
    bound = bind(overload, sample.args, sample.kwargs)
    if any(isinstance(bound.get(a.name), torch.Tensor) and "Tensor" not in str(a.type) for a in overload._schema.arguments):
        return False  # taken as a number
    try:
        with torch.no_grad():
            overload(*sample.args, **sample.kwargs)
    except Exception:
        return False
    return True


@cache
def samples_of(op: OpDef, dtype: torch.dtype) -> tuple[Sample, ...]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    overload = overload_of(op.name)
    found: list[Sample] = []
    for info in INFOS.get(op.samples, ()):
        if not info.supports_dtype(dtype, DEVICE):
            continue
        # not info.sample_inputs, which walks the source of its callers and seeds every generator at each sample: nine tenths of the time
        given_samples = info.sample_inputs_func(info, DEVICE, dtype, False)
        for given in itertools.islice(given_samples, LOOKED_AT.get(dtype, LOOKED_AT_OTHERWISE)):
            found += _calls(overload, info, given)
    if op.name in OWN:
        found += [s for s in _own(op, dtype) if accepts(overload, s)]
    small = [s for s in found if all(_is_small(t) for t in _tensors(s)) and all(_is_small(t) for t in _outputs(overload, s))]
    limit = KEPT.get(dtype, KEPT_OTHERWISE)
    return tuple(small[len(small) * k // limit] for k in range(limit)) if len(small) > limit else tuple(small)


def _own(op: OpDef, dtype: torch.dtype) -> list[Sample]:
    try:
        return [Sample(tuple(a), k) for a, k in OWN[op.name](dtype)]
    except (RuntimeError, ValueError):
        if not dtype.is_complex:
            raise
        return []  # samples between limits, which complex numbers have none of


def _is_small(t: torch.Tensor) -> bool:
    return t.numel() <= MAX_NUMEL and t.dtype is not torch.complex128 and t.layout == torch.strided


def _outputs(overload: torch._ops.OpOverload, sample: Sample) -> list[torch.Tensor]:
    with torch.no_grad():
        return list(tensors_in(overload(*sample.args, **sample.kwargs)))


def _calls(overload: torch._ops.OpOverload, info: Any, given: Any) -> list[Sample]:
    """The overload as the function under test calls it; for composites, which the recorder does not see, called with the same arguments."""
    recorder = _Recorder(overload)
    try:
        with torch.no_grad(), recorder:
            info.op(given.input, *given.args, **given.kwargs)
    except Exception:
        return []
    if recorder.calls:
        return recorder.calls[:1]
    direct = _copied((given.input, *given.args), given.kwargs)
    return [direct] if accepts(overload, direct) else []


def _tensors(sample: Sample) -> list[torch.Tensor]:
    return [t for v in (*sample.args, *sample.kwargs.values()) for t in tensors_in(v)]


# ---- hostile variants ------------------------------------------------------------------------------------------------------------


def hostile(op: OpDef, samples: Sequence[Sample]) -> Iterator[tuple[str, Sample]]:
    """The samples with values and layouts that break naive code; those that eager refuses are dropped."""
    overload = overload_of(op.name)
    for sample in (*samples[:1], *samples[len(samples) // 2 : len(samples) // 2 + 1]):
        cut = next((s for t in _tensors(sample) for s in t.shape if s > 1), None)
        variants = {**VARIANTS} if cut is None else {**VARIANTS, "empty": _resized(cut, 0), "ones": _resized(cut, 1)}
        is_complex = any(t.is_complex() for t in _tensors(sample))
        for name, change in variants.items():
            if name in DEVIATIONS.get(op.name, {}) or (is_complex and name == "values" and op.name.split(".")[1] in SUMS_OF_PRODUCTS):
                continue
            bound = bind(overload, sample.args, sample.kwargs)
            changed = {k: v if k in POSITIONS and name == "values" else map_tensors(v, change) for k, v in bound.items()}
            variant = Sample((), changed)
            if accepts(overload, variant):
                yield name, variant


def _special_values(t: torch.Tensor) -> torch.Tensor:
    if t.dtype.is_floating_point:
        values = [float("nan"), 1.5, float("inf"), -0.0, -2.0, 0.0, float("-inf"), 1e-3, 40.0]
    elif t.is_complex():
        parts = [_special_values(torch.empty(t.shape)), _special_values(torch.empty(t.shape)).flip(list(range(t.dim())))]
        return torch.complex(*parts)
    elif t.dtype is torch.bool:
        return t
    else:
        limits = torch.iinfo(t.dtype)
        values = [limits.min, limits.max, 0, 1, 2, limits.max - 1, 3]
    pattern = torch.tensor(values, dtype=t.dtype)
    return pattern[(torch.arange(t.numel()) * 2 + t.numel() % 3) % len(values)].reshape(t.shape)


def _resized(old: int, new: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Every dimension of size `old` cut to `new`, in every tensor alike."""
    return lambda t: t[tuple(slice(0, new) if s == old else slice(None) for s in t.shape)].clone()


def _strided(t: torch.Tensor) -> torch.Tensor:
    if t.dim() < 1:
        return t
    wide = torch.zeros([2 * s for s in reversed(t.shape)], dtype=t.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in t.shape)].permute(*reversed(range(t.dim())))
    return view.copy_(t)


VARIANTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "values": _special_values,
    "zero_d": lambda t: t.reshape(-1)[0].clone() if t.numel() else t,
    "strided": _strided,
}
