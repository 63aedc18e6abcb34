"""GF/s and GB/s of sealift kernels beside what this machine can do: the package says what a call must compute and move, the profile how long
it took, a small benchmark what the machine's best is."""

from __future__ import annotations

import ast
import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sealift.observe.snapshot import Series


@dataclass(frozen=True)
class Peak:
    """What a machine can do with all its cores: float32 multiplications and additions, and bytes read and written."""

    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge(self) -> float:
        """Flops a byte: below, memory is the limit."""
        return self.flops_per_s / self.bytes_per_s


@dataclass(frozen=True)
class Rate:
    """Of one kernel. `share` is the part of what the roofline allows, whichever of the two limits."""

    operator: str
    origin: str
    total_ns: int
    median_ns: float
    flops: int  # of one call
    bytes: int
    flops_per_s: float
    bytes_per_s: float
    limit: str  # "compute" | "memory"
    share: float


def rates(
    series: Mapping[str, Series],
    kernels: list[Mapping[str, Any]],
    sizes: Mapping[str, int],
    peak: Peak,
    medians_ns: Mapping[str, float] | None = None,
) -> list[Rate]:
    """Of the kernels of one model, the longest first. `kernels`: the manifest's; `sizes`: what the model's sizes were. `medians_ns`: exact
    ones, where they are known; else the histogram's, whose buckets are nine per cent wide.

    Kernels that a package from before costs were written has no figures for are left out."""
    out = []
    for kernel in kernels:
        one = series.get(kernel["name"])
        if one is None or not one.count or "flops" not in kernel:
            continue
        flops, moved = evaluate(kernel["flops"], sizes), evaluate(kernel["bytes"], sizes)
        known_ns = (medians_ns or {}).get(kernel["name"])
        median_ns = one.histogram.quantile(0.5) if known_ns is None else known_ns  # what interrupts a call does not count against its kernel
        seconds = median_ns / 1e9
        allowed_s = max(flops / peak.flops_per_s, moved / peak.bytes_per_s)
        limit = "compute" if flops / peak.flops_per_s >= moved / peak.bytes_per_s else "memory"
        share = allowed_s / seconds if seconds else 0.0
        origin = one.origin or f"{', '.join(kernel.get('ops', []))} @ {'; '.join(kernel.get('origin', []))}"
        out.append(Rate(one.operator, origin, one.total_ns, median_ns, flops, moved, _per(flops, seconds), _per(moved, seconds), limit, share))
    return sorted(out, key=lambda r: (-r.total_ns, r.operator))


def _per(amount: int, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


# ---- the manifest's expressions --------------------------------------------------------------------------------------------------

_OPERATIONS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {"min": min, "max": max}


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """A size expression of a manifest: integers, names, + - * // %, min and max. ValueError on anything else or an unknown size."""
    try:
        return _value(ast.parse(text, mode="eval").body, sizes)
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r}: {error}") from error


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, sizes)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(left, sizes), _value(right, sizes))
    raise ValueError(f"{ast.unparse(node)!r} is no size expression over {', '.join(sizes) or 'no sizes'}")


# ---- the machine -----------------------------------------------------------------------------------------------------------------


def measure_peak(num_threads: int, seconds: float = 1.0) -> Peak:
    """All threads at once: the best of many short runs of FMA in registers, and copies between arrays larger than caches."""
    from concurrent.futures import ThreadPoolExecutor

    from sealift._runtime import peak_flops_per_s

    with ThreadPoolExecutor(num_threads) as pool:
        flops = sum(pool.map(peak_flops_per_s, [seconds / 2] * num_threads))
        moved = sum(pool.map(_copy_rate, [seconds / 2] * num_threads))
    return Peak(flops, moved)


def _copy_rate(seconds: float) -> float:
    """Bytes read and written by one thread; a store also reads its line, which nobody's figure counts. Pieces of 2 MB out of arrays that no
    cache holds, and the first quartile of their times: most are not interrupted, the very fastest had the other threads' share, too."""
    import numpy as np

    size, piece = 16 << 20, 1 << 19  # elements of 4 bytes
    source, target = np.ones(size, np.float32), np.zeros(size, np.float32)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 * size // piece or time.perf_counter() < end:
        at = len(times) * piece % size
        before = time.perf_counter()
        np.copyto(target[at : at + piece], source[at : at + piece])
        times.append(time.perf_counter() - before)
    return 8 * piece / sorted(times)[len(times) // 4]
