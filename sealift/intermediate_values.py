"""What every kernel of a package leaves behind in one run: least, mean, greatest, NaN and infinities. NumPy alone, no exported program."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sealift.ir.dtype import DType
from sealift.recorded_run import Array, Place, RecordedKernel, RecordedModel


@dataclass(frozen=True)
class Intermediate:
    """One result of one kernel. least, mean and greatest are of its finite elements; None where it has none."""

    kernel: str
    value: str
    dtype: str
    shape: tuple[int, ...]
    least: float | None
    mean: float | None
    greatest: float | None
    num_nan: int
    num_inf: int
    first_odd: tuple[int, ...] | None  # where the first NaN or infinity is
    ops: tuple[str, ...]
    origin: tuple[str, ...]

    @property
    def row(self) -> tuple[str, ...]:
        numbers = ("-" if n is None else f"{n:.6g}" for n in (self.least, self.mean, self.greatest))
        return (self.kernel, self.value, f"{self.dtype}[{', '.join(map(str, self.shape))}]", *numbers, str(self.num_nan), str(self.num_inf))


@dataclass(frozen=True)
class Inspection:
    values: tuple[Intermediate, ...]  # those that fit the pattern, in the order they were made
    culprit: Intermediate | None  # the first with a NaN, else the first with an infinity
    odd_inputs: tuple[int, ...]  # inputs that had one already

    @property
    def table(self) -> str:
        rows = [("kernel", "value", "type", "least", "mean", "greatest", "NaN", "inf"), *(v.row for v in self.values)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    @property
    def verdict(self) -> str:
        if self.odd_inputs:
            return f"NaN or infinity in input {', '.join(map(str, self.odd_inputs))} already"
        if self.culprit is None:
            return "every kernel's results are finite"
        c = self.culprit
        what = "a NaN" if c.num_nan else "an infinity"
        where = f"{c.num_nan} NaN, {c.num_inf} infinite in {c.value}, first at {list(c.first_odd or ())}"
        lines = [f"{c.kernel} is the first to make {what}: {where}"]
        lines += [f"  operators: {', '.join(c.ops)}", *(f"  at: {place}" for place in c.origin)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        return {
            "values": [asdict(v) for v in self.values],
            "culprit": None if self.culprit is None else asdict(self.culprit),
            "odd_inputs": list(self.odd_inputs),
        }


def inspect_run(model: RecordedModel, inputs: Sequence[Array], pattern: str = "*") -> Inspection:
    """`inputs` are flat, in the order of the loaded model's `inputs`; bfloat16 as its bits (uint16). `pattern` fits a kernel's name
    ("k7_*") or a value's ("*gelu*")."""
    kept: list[Intermediate] = []
    odd: list[Intermediate] = []

    def see(kernel: RecordedKernel, place: Place, array: Array) -> None:
        made = _intermediate(kernel, place, array)
        if made.first_odd is not None:
            odd.append(made)
        if fnmatch.fnmatch(kernel.name, pattern) or fnmatch.fnmatch(place.value, pattern):
            kept.append(made)

    model.run(inputs, see)
    odd_inputs = tuple(i for i, a in enumerate(inputs) if np.issubdtype(a.dtype, np.inexact) and not np.isfinite(a).all())
    first = next((v for v in odd if v.num_nan), odd[0] if odd else None)  # masks are made of infinities on purpose: a NaN says more
    return Inspection(tuple(kept), None if odd_inputs else first, odd_inputs)


def _intermediate(kernel: RecordedKernel, place: Place, array: Array) -> Intermediate:
    numbers = (array.astype(np.uint32) << 16).view(np.float32) if place.dtype is DType.BF16 else array
    finite = np.isfinite(numbers)
    sound = numbers[finite].astype(np.complex128 if place.dtype is DType.C64 else np.float64)
    sizes = np.abs(sound) if place.dtype is DType.C64 else sound
    odd = np.argwhere(~finite)
    some = sound.size > 0
    return Intermediate(
        kernel.name,
        place.value,
        str(place.dtype),
        tuple(array.shape),
        float(sizes.min()) if some else None,
        float(sizes.mean()) if some else None,
        float(sizes.max()) if some else None,
        int(np.isnan(numbers).sum()),
        int(np.isinf(numbers).sum()),
        tuple(int(i) for i in odd[0]) if len(odd) else None,
        kernel.ops,
        kernel.origin,
    )
