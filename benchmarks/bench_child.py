"""The processes that make bench starts; each prints JSON lines on stdout.

bench_child.py export MODEL DIRECTORY            program.pt2; fixed.pt2, without dynamic sizes, if that has any; inputs.npz, eager.npz, exact.npz (the
                                                 model in float64)
bench_child.py prepare ENGINE DIRECTORY PROGRAM TARGET
                                                 seconds that making it of PROGRAM took
bench_child.py first ENGINE DIRECTORY TARGET     one answer, to be timed from outside
bench_child.py serve ENGINE DIRECTORY TARGET THREADS ANSWERS.npz
                                                 the first answers into a file; then for each line on stdin, a round of calls"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bench_engines import ENGINES


def leaves(result: Any) -> Iterator[Any]:
    """The tensors of an answer, in torch's pytree order, as NumPy arrays."""
    if result is None:
        return
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from leaves(part)
    elif hasattr(result, "detach"):
        yield result.detach().numpy()
    elif hasattr(result, "to_tuple"):
        yield from leaves(result.to_tuple())
    else:
        yield np.asarray(result)


def peak_memory_kb() -> int:
    """VmHWM: getrusage would count what the parent had before exec."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def save(path: str | Path, arrays: Iterator[Any] | list[Any]) -> None:
    np.savez(path, **{str(i): a for i, a in enumerate(arrays)})


def read_inputs(directory: Path) -> list[Any]:
    with np.load(directory / "inputs.npz") as stored:
        return [stored[str(i)] for i in range(len(stored.files))]


def export(model: str, place: str) -> None:
    import torch
    from bench_models import case_of

    from sealift.frontend import export_module

    (case, which), directory = case_of(model), Path(place)
    missing = case.missing()
    if missing:
        raise ModuleNotFoundError(f"pip install {' '.join(missing)}")
    module, arguments, dynamic_shapes = case.build()
    measured = arguments[which]
    program = export_module(module, arguments[0] if dynamic_shapes else measured, dynamic_shapes=dynamic_shapes)
    torch.export.save(program, directory / "program.pt2")
    if dynamic_shapes:
        torch.export.save(torch.export.export(case.build()[0], measured), directory / "fixed.pt2")
    save(directory / "inputs.npz", [a.numpy() for a in measured])
    with torch.no_grad():
        save(directory / "eager.npz", leaves(case.build()[0](*(a.clone() for a in measured))))
        wide = case.build()[0].double()
        save(directory / "exact.npz", leaves(wide(*(a.double() if a.is_floating_point() else a.clone() for a in measured))))
    print(json.dumps({"note": case.note}))


def prepare(engine: str, directory: str, program: str, target: str) -> None:
    print(json.dumps({"seconds": ENGINES[engine].prepare(Path(directory) / program, Path(target))}))


def first(engine: str, directory: str, target: str) -> None:
    call = ENGINES[engine].load(Path(directory), Path(target), len(os.sched_getaffinity(0)), read_inputs(Path(directory)))
    call()
    print("answered", flush=True)
    os._exit(0)


def serve(engine: str, directory: str, target: str, threads: str, answers: str) -> None:
    call = ENGINES[engine].load(Path(directory), Path(target), int(threads), read_inputs(Path(directory)))
    save(answers, leaves(call()))
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        call()
    print(json.dumps({"rss_kb": peak_memory_kb()}), flush=True)
    for line in sys.stdin:
        seconds = float(line)
        start = time.perf_counter()
        call()
        batch = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-7)))  # short calls in batches: the clock would be a part of them
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while len(samples) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(batch):
                call()
            samples.append((time.perf_counter() - start) / batch)
        print(json.dumps({"median_s": statistics.median(samples)}), flush=True)


if __name__ == "__main__":
    {"export": export, "prepare": prepare, "first": first, "serve": serve}[sys.argv[1]](*sys.argv[2:])
