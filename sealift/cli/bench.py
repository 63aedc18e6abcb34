"""Measure a package: load, first answer, and the distribution of calls."""

from __future__ import annotations

import argparse
import statistics
import time

from sealift.cli.output import Output, duration_text, table
from sealift.errors import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from sealift.cli.arrays import add_input_arguments

    parser.add_argument("package", metavar="MODEL.pt2")
    parser.add_argument("--model", help="which model of several")
    parser.add_argument("--threads", type=int, help="threads a run may use (default: every core)")
    parser.add_argument("--isa", help="baseline, avx2, avx512 or amx (default: the best the machine has)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure (default: 2)")
    add_input_arguments(parser)


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.cli.arrays import by_structure, make_inputs
    from sealift.load import load

    start = time.perf_counter()
    if not 0 <= arguments.seconds < float("inf"):
        raise ArgumentError(f"--seconds {arguments.seconds}; help: how long to measure, as --seconds 2")
    model = load(arguments.package, arguments.model, arguments.threads, arguments.isa)
    loaded = time.perf_counter()
    inputs = make_inputs(model, arguments, default_random=True)
    args, kwargs = by_structure(model, inputs)
    before = time.perf_counter()
    model(*args, **kwargs)
    first = time.perf_counter() - before
    samples: list[float] = []
    with output.progress(f"running {arguments.package}"):
        # Short calls are timed in batches: the clock would be a part of what it measures.
        batch = max(1, min(1000, int(1e-4 / max(first, 1e-7))))
        end = time.perf_counter() + arguments.seconds
        while len(samples) < 3 or time.perf_counter() < end:
            before = time.perf_counter()
            for _ in range(batch):
                model(*args, **kwargs)
            samples.append((time.perf_counter() - before) / batch)
    samples.sort()
    value = {
        "model": model.name,
        "inputs": ", ".join(f"{i.name} {'x'.join(map(str, a.shape)) or 'scalar'}" for i, a in zip(model.inputs, inputs, strict=True)),
        "isa": model.isa,
        "threads": model.num_threads,
        "load_s": loaded - start,
        "first_s": first,
        "median_s": statistics.median(samples),
        "p10_s": samples[len(samples) // 10],
        "p90_s": samples[len(samples) * 9 // 10],
        "calls": batch * len(samples),
    }
    rows = [(k.removesuffix("_s"), duration_text(v) if isinstance(v, float) else str(v)) for k, v in value.items()]
    output.result(value, table(rows, ""))
    return 0
