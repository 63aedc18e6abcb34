"""`sealift profile MODEL.pt2`: run a package with random inputs and set each kernel beside what the machine can do."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sealift.cli.output import Output, table

if TYPE_CHECKING:
    from sealift.load import Model
    from sealift.observe.attribution_rates import Peak, Rate
    from sealift.observe.snapshot import Snapshot

_TRACED_CALLS, _AT_ONCE = 1_000_000, 20_000


def profile_package(package: Path, arguments: argparse.Namespace, output: Output) -> Snapshot:
    """Prints the rates and returns what was recorded."""
    from sealift.cli.arrays import by_structure, make_inputs
    from sealift.load import load
    from sealift.observe.attribution_rates import measure_peak, rates

    model = load(os.fspath(package), num_threads=arguments.threads)
    arrays = make_inputs(model, arguments, default_random=True)
    args, kwargs = by_structure(model, arrays)
    with output.progress(f"running {package}"):
        snapshot, medians_ns, calls = _recorded(lambda: model(*args, **kwargs), arguments.seconds)
    with output.progress("measuring what the machine can do"):
        peak = measure_peak(model.num_threads)
    sizes = _sizes(model, arrays)
    entry = next(m for m in model.manifest["models"] if m["name"] == model.name)
    series = {s.operator: s for s in snapshot.series if s.source == "sealift"}
    found = rates(series, entry.get("kernels", []), sizes, peak, medians_ns)
    if not found:
        output.note("no kernel has figures; help: compile the package again, older ones have none")
    value = {"model": model.name, "sizes": sizes, "threads": model.num_threads, "calls": calls, "peak": vars(peak)}
    whole = Whole(sum(s.total_ns for s in series.values()), len(series))
    text = rates_text(found[: arguments.limit], peak, _title(model, sizes, calls), whole)
    output.result({**value, "kernels": [vars(r) for r in found], "profile": snapshot.to_dict()}, text)
    return snapshot


@dataclass(frozen=True)
class Whole:
    """Of all kernels, shown or not."""

    total_ns: int
    kernels: int


def _recorded(call: Any, seconds: float) -> tuple[Snapshot, dict[str, float], int]:
    """Also each kernel's median in ns, exactly: the recorder's histograms keep a time to within nine per cent."""
    from sealift import _runtime, observe

    for _ in range(3):
        call()
    calls, end = 0, time.perf_counter() + seconds
    observe.start(sampling_prob=1.0, duty_cycle=1.0, budget=0.0, burst_duty_cycle=0.0)
    try:
        _runtime.begin_trace(_TRACED_CALLS)
        while calls < 3 or time.perf_counter() < end:
            call()
            calls += 1
        traced, _ = _runtime.end_trace()  # of more calls than it has room for, the first
        return observe.snapshot(), _medians_ns(traced), calls
    finally:
        _runtime.end_trace()
        _runtime.free_trace()
        observe.stop()


def _medians_ns(traced: int) -> dict[str, float]:
    from sealift import _runtime

    times: dict[str, list[float]] = {}
    for first in range(0, traced, _AT_ONCE):
        text = _runtime.trace_json(first, _AT_ONCE, os.getpid(), 0)
        for event in json.loads(b"[" + text.lstrip(b",\n") + b"]"):
            if event["cat"] == "sealift,kernel":
                times.setdefault(event["name"], []).append(event["dur"] * 1e3)
    return {name: round(statistics.median(all_ns), 1) for name, all_ns in times.items()}


def _sizes(model: Model, arrays: Sequence[Any]) -> dict[str, int]:
    """The model's sizes, as the inputs had them."""
    return {d.text: int(n) for info, array in zip(model.inputs, arrays) for d, n in zip(info.shape, array.shape) if d.text.isidentifier()}


def _title(model: Model, sizes: Mapping[str, int], calls: int) -> str:
    at = f" at {', '.join(f'{k} = {v}' for k, v in sizes.items())}" if sizes else ""
    return f"{model.name}{at}: {calls} calls, {model.isa}, {model.num_threads} threads"


def rates_text(found: Sequence[Rate], peak: Peak, title: str = "", whole: Whole | None = None) -> str:
    """`found`: those to be shown; times are shares of the whole."""
    best = f"{peak.flops_per_s / 1e9:.0f} GF/s, {peak.bytes_per_s / 1e9:.1f} GB/s"
    lines = [title, f"this machine's best: {best}; kernels with less than {peak.ridge:.1f} flops a byte wait for memory"]
    if not found:
        return "\n".join(lines)
    shown_ns = sum(r.total_ns for r in found)
    total = (whole.total_ns if whole is not None else shown_ns) or 1
    heading = ("kernel", "time", "median", "GF/s", "GB/s", "limit", "of it", "stands for")
    rows = [
        (
            r.operator,
            f"{r.total_ns / total:.1%}",
            f"{r.median_ns / 1e3:.1f} us",
            f"{r.flops_per_s / 1e9:.1f}",
            f"{r.bytes_per_s / 1e9:.1f}",
            r.limit,
            f"{r.share:.0%}",
            r.origin,
        )
        for r in found
    ]
    lines.append(table([heading, *rows], ""))
    more = whole.kernels - len(found) if whole is not None else 0
    if more > 0:
        lines.append(f"{more} more {'kernel' if more == 1 else 'kernels'}, {1 - shown_ns / total:.1%}")
    return "\n".join(lines)


def package_of(program: Sequence[str]) -> Path | None:
    """The package, where that is all there is to run."""
    return Path(program[0]) if len(program) == 1 and program[0].endswith(".pt2") and os.path.exists(program[0]) else None
