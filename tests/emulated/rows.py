"""The samples of tests/ops/test_compiled.py, compiled for AVX-512: built and recorded here, run by the guest, compared with eager here."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from sealift.ir.graph.types import OpDef
from sealift.ir.loop.types import Loops
from sealift.ops import OPS
from sealift.passes.pack_weights import pack
from sealift.targets.isa import AVX512
from tests.emulated.guest import ROOT, Program, run_command, run_guest
from tests.ops.own_samples import UNSPECIFIED
from tests.ops.runner import Lowered, assert_same, loops_of, lower_row, output_of, run_eager
from tests.ops.test_compiled import cases_of
from tests.support_native import STORED, NativeBatch, _logical, from_stored, optimize, to_stored


class RecordedBatch(NativeBatch):
    """A NativeBatch for AVX-512 whose calls are written down and not made."""

    def __init__(self, cases: Sequence[Loops], library: Path) -> None:
        self.library_path = library
        # The library is only kept: executing it is the guest's.
        with mock.patch("tests.support_native.ctypes.CDLL", lambda path: shutil.copy(path, library)):
            super().__init__(cases, AVX512)

    def record(self, position: int, values: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
        case = self.cases[position]
        loops = case.loops
        inputs = [to_stored(values[b.name], b.dtype) for b in loops.inputs]
        by_name = {b.name: b for b in loops.buffers}
        weights = [
            pack(to_stored(values[use.buffer], by_name[use.buffer].dtype), use.layout, use.groups) if use.buffer in by_name else inputs[0]
            for use in case.kernels.weights
        ]
        sizes = [_bytes_of(b.dtype, b.shape) if b is not None and b.kind == "output" else -1 for b in loops.outputs]  # -1: an input is returned
        return b"".join([
            _text(self.library_path.name.encode()), _text(case.symbol.encode()), struct.pack("<q", 0), _arrays(inputs),
            struct.pack(f"<{1 + len(sizes)}q", len(sizes), *sizes), _arrays(weights), struct.pack("<q", case.plan.arena_bytes.evaluate({}) + 64),
        ])  # fmt: skip

    def outputs(self, position: int, found: Sequence[bytes], values: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        made, results = iter(found), []
        for b in self.cases[position].loops.outputs:
            assert b is not None
            if b.kind != "output":
                results.append(values[b.name])
                continue
            shape = [d.evaluate({}) for d in b.shape]
            array: np.ndarray[Any, Any] = np.frombuffer(next(made), STORED[b.dtype]).reshape(
                [shape[d] for d in b.order] if b.order is not None else shape
            )
            results.append(from_stored(_logical(array, b), b.dtype))
        return results


@dataclass(frozen=True)
class Row:
    op: OpDef
    batch: RecordedBatch
    cases: list[tuple[str, Any, Lowered]]


def run_rows(directory: Path, every: int, only: str, model: str, timeout_s: float) -> bool:
    rows: list[Row] = []
    refused = 0
    for index, op in enumerate(o for o in OPS.values() if only in o.name):
        if index % every == 0:
            try:
                row = _build(op, directory / f"row{index}.so")
            except AssertionError as error:
                refused += 1
                print(f"FAIL {op.name}: {error}")
                continue
            rows += [row] if row is not None else []
    calls = [row.batch.record(i, lowered.env) for row in rows for i, (_, _, lowered) in enumerate(row.cases)]
    recorded = directory / "calls"
    recorded.write_bytes(struct.pack("<q", len(calls)) + b"".join(calls))
    program = directory / "run_rows"
    run_command(["g++", "-std=c++17", "-O2", f"-I{ROOT / 'contracts'}", str(ROOT / "tests/emulated/run_rows.cpp"), "-ldl", "-o", str(program)])
    libraries = [row.batch.library_path for row in rows]
    _, written = run_guest([Program(program, ("calls",), (recorded, *libraries))], model, megabytes=768, timeout_s=timeout_s)
    answers: dict[int, list[bytes]] = {}
    for line in written.split(b"\n"):
        if b"@row " in line:
            call, *rest = line[line.index(b"@row ") + 5 :].split()
            answers[int(call)] = rest
    return _compare(rows, answers) and not refused


def _build(op: OpDef, library: Path) -> Row | None:
    cases = []
    for note, sample in cases_of(op):
        try:
            cases.append((note, sample, lower_row(op, sample.args, sample.kwargs)))
        except NotImplementedError:
            continue
    if not cases:
        return None
    print(f"{op.name}: {len(cases)} samples", flush=True)
    return Row(op, RecordedBatch([optimize(loops_of(lowered)) for _, _, lowered in cases], library), cases)


def _compare(rows: Sequence[Row], answers: Mapping[int, Sequence[bytes]]) -> bool:
    call = failures = checked = 0
    for row in rows:
        for position, (note, sample, lowered) in enumerate(row.cases):
            answer = answers.get(call)
            call += 1
            try:
                assert answer is not None, f"{note}: no answer"
                assert (int(answer[0]), int(answer[1])) == (0, 0), f"{note}: status {int(answer[0])}, error {int(answer[1])}"
                arrays = row.batch.outputs(position, [bytes.fromhex(a[1:].decode()) for a in answer[2:]], lowered.env)
                wanted = run_eager(row.op, sample.args, sample.kwargs)
                if row.op.name in UNSPECIFIED:
                    wanted = [torch.zeros_like(w) for w in wanted]
                got = [output_of(t, np.array(a), {}) for a, t in zip(arrays, lowered.outputs)]
                assert_same(row.op, got, wanted, note, (sample.args, sample.kwargs))
                checked += 1
            except AssertionError as error:
                failures += 1
                print(f"FAIL {error}")
    print(f"rows: {len(rows)} operators, {checked} samples as eager, {failures} failures")
    return failures == 0


def _text(content: bytes) -> bytes:
    return struct.pack("<q", len(content)) + content


def _arrays(arrays: Sequence[np.ndarray[Any, Any]]) -> bytes:
    return struct.pack("<q", len(arrays)) + b"".join(_text(a.tobytes()) for a in arrays)


def _bytes_of(dtype: Any, shape: Any) -> int:
    return int(np.prod([d.evaluate({}) for d in shape], dtype=np.int64)) * np.dtype(STORED[dtype]).itemsize
