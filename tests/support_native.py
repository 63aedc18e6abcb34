"""Compiles many small Loops into one library and runs each, without packages or a runtime: how tests reach the C++ backend in bulk."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sealift import pipeline
from sealift.backends.cpp.family_calls import FAMILY_HEADERS
from sealift.backends.cpp.kernel import KernelSource, emit_kernels, size_names
from sealift.build.resources import find_resources
from sealift.build.toolchain import Toolchain, find_toolchain
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.types import Loops
from sealift.options import Options
from sealift.passes.pack_weights import pack
from sealift.plan.memory import MemoryPlan, plan_memory
from sealift.targets.isa import AVX2, BASELINE, Isa

SCRATCH_BYTES = 1 << 24
STORED = {
    DType.F32: np.float32, DType.F64: np.float64, DType.I32: np.int32, DType.I64: np.int64, DType.BOOL: np.bool_, DType.BF16: np.uint16,
    DType.F16: np.float16, DType.I8: np.int8, DType.I16: np.int16, DType.U8: np.uint8,
}  # fmt: skip


class Frame(ctypes.Structure):
    """sealift_frame of contracts/sealift_model.h."""

    _fields_ = [
        ("host", ctypes.c_void_p), ("host_context", ctypes.c_void_p), ("sizes", ctypes.c_void_p), ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p), ("weights", ctypes.c_void_p), ("states", ctypes.c_void_p), ("arena", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p), ("scratch_stride_bytes", ctypes.c_int64), ("num_workers", ctypes.c_int32), ("error_kernel", ctypes.c_int32),
        ("countdown", ctypes.c_int64), ("error", ctypes.c_int32), ("reserved", ctypes.c_int32), ("error_value", ctypes.c_int64), ("error_bound", ctypes.c_int64),
    ]  # fmt: skip


def optimize(loops: Loops) -> Loops:
    """The loop passes, as the pipeline runs them, verified after each."""
    return pipeline.optimize(loops, pipeline.new_steps(Options()))


def host_isa() -> Isa:
    """The best instruction set that the tests may execute here."""
    flags = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    return AVX2 if " avx2 " in flags and " fma " in flags else BASELINE


def to_stored(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """From the interpreter's arrays (bf16 as float32) to what lies in memory."""
    if dtype is DType.BF16:
        return np.ascontiguousarray((np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)).reshape(array.shape)
    return np.ascontiguousarray(array, STORED[dtype]).reshape(array.shape)


def from_stored(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype is DType.BF16 else array


@dataclass(frozen=True)
class _Case:
    loops: Loops
    plan: MemoryPlan
    kernels: KernelSource
    symbol: str


class NativeBatch:
    """Loops compiled together. `run(i, values, sizes)` gives the outputs of the i-th, or raises the error its run reported."""

    def __init__(self, cases: Sequence[Loops], isa: Isa | None = None, flags: Sequence[str] = ("-O1",)) -> None:
        self.cases: list[_Case] = []
        texts: list[str] = []
        symbols: dict[str, str] = {}
        for loops in cases:
            plan = plan_memory(loops)
            kernels = emit_kernels(loops, plan)
            body = _case_text(loops, kernels)
            if body not in symbols:
                symbols[body] = f"case{len(symbols)}"
                texts.append(f"namespace {symbols[body]} {{\n{body}\n}}\n")
                texts.append(
                    f'extern "C" __attribute__((visibility("default"))) int32_t run_{symbols[body]}(sealift_frame *frame) {{ return SEALIFT_NS::{symbols[body]}::run(frame); }}\n'
                )
            self.cases.append(_Case(loops, plan, kernels, f"run_{symbols[body]}"))
        self.library = _build(texts, isa or host_isa(), find_toolchain(1, False, None), flags)

    def run(self, position: int, values: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[str, int] | None = None) -> list[np.ndarray[Any, Any]]:
        case, at = self.cases[position], dict(sizes or {})
        loops = case.loops
        inputs = [to_stored(values[b.name], b.dtype) for b in loops.inputs]
        by_name = {b.name: b for b in loops.buffers}
        weights = [
            pack(to_stored(values[use.buffer], by_name[use.buffer].dtype), use.layout, use.groups) if use.buffer in by_name else inputs[0]
            for use in case.kernels.weights
        ]
        outputs = [_output(b, at) if b is not None and b.kind == "output" else None for b in loops.outputs]  # none where an input is returned
        arena = _aligned(case.plan.arena_bytes.evaluate(at) + 64)
        scratch = _aligned(SCRATCH_BYTES)
        size_array = (ctypes.c_int64 * max(len(loops.sizes), 1))(*[at[s.name] for s in loops.sizes])
        frame = Frame(
            None, None, ctypes.addressof(size_array), _pointers(inputs), _pointers(outputs), _pointers(weights), None, arena.ctypes.data, scratch.ctypes.data,
            SCRATCH_BYTES, 1, -1, 2**62, 0, 0, 0, 0,
        )  # fmt: skip
        frame_refs = (inputs, outputs, weights, size_array)
        status = getattr(self.library, case.symbol)(ctypes.byref(frame))
        del frame_refs
        if status or frame.error:
            raise {1: IndexError, 3: ZeroDivisionError}.get(frame.error, RuntimeError)(
                f"error {frame.error} in kernel {frame.error_kernel}: {frame.error_value}"
            )
        found: list[np.ndarray[Any, Any]] = []
        for b, made in zip(loops.outputs, outputs):
            assert b is not None
            found.append(values[b.name] if made is None else from_stored(_logical(made, b), b.dtype))
        return found


_KEPT: list[Any] = []  # pointer arrays of the runs so far: a frame holds addresses only


def _pointers(arrays: Sequence[np.ndarray[Any, Any] | None]) -> int:
    made = (ctypes.c_void_p * max(len(arrays), 1))(*[None if a is None else a.ctypes.data for a in arrays])
    _KEPT.append(made)
    if len(_KEPT) > 64:
        del _KEPT[:32]
    return ctypes.addressof(made)


def _aligned(size_bytes: int) -> np.ndarray[Any, Any]:
    raw = np.zeros(size_bytes + 64, np.uint8)
    shift = -raw.ctypes.data % 64
    return raw[shift : shift + size_bytes]


def _output(b: Buffer, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    shape = [d.evaluate(sizes) for d in b.shape]
    order = b.order if b.order is not None else tuple(range(len(shape)))
    return np.zeros([shape[d] for d in order], STORED[b.dtype])


def _logical(array: np.ndarray[Any, Any], b: Buffer) -> np.ndarray[Any, Any]:
    return array if b.order is None else array.transpose(np.argsort(b.order))


def _case_text(loops: Loops, kernels: KernelSource) -> str:
    names = size_names(loops)
    sizes = "\n".join(f"  const int64_t {n} = frame->sizes[{i}]; (void){n};" for i, n in enumerate(names.values()))
    functions = "\n".join(kernels.functions)
    failed = "inline int32_t failed(sealift_frame *frame, int32_t kernel) { frame->error_kernel = kernel; return -1; }"
    parts = "\n".join(kernels.parts)
    return (
        f"namespace {{\n{functions}\n{failed}\n{parts}\n}}\nint32_t run(sealift_frame *frame) {{\n{sizes}\n"
        + "\n".join(kernels.steps)
        + "\n  return 0;\n}"
    )


PRELUDE = "".join(f'#include "{header}"\n' for header in ("kernels/loops/loops.h", *FAMILY_HEADERS.values()))


def _build(texts: Sequence[str], isa: Isa, toolchain: Toolchain, flags: Sequence[str]) -> ctypes.CDLL:
    resources = find_resources()
    prelude = _precompiled_prelude(isa, toolchain, tuple(flags))
    with tempfile.TemporaryDirectory(prefix="sealift-test-") as name:
        source = Path(name) / "cases.cpp"
        source.write_text('#include "prelude.h"\nnamespace SEALIFT_NS {\n' + "\n".join(texts) + "\n}\n")
        target = Path(name) / "cases.so"
        _compile(
            [*_command(isa, toolchain, flags), f"-I{prelude.name}", "-shared", str(source), str(resources.kernels_archive), "-lm", "-o", str(target)]
        )
        return ctypes.CDLL(str(target))


@cache
def _precompiled_prelude(isa: Isa, toolchain: Toolchain, flags: tuple[str, ...]) -> tempfile.TemporaryDirectory[str]:
    """A folder with prelude.h, which GCC reads as it compiled it once: a third of the time of a small batch."""
    folder = tempfile.TemporaryDirectory(prefix="sealift-test-")
    header = Path(folder.name) / "prelude.h"
    header.write_text(PRELUDE)
    _compile([*_command(isa, toolchain, flags), "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    return folder


def _command(isa: Isa, toolchain: Toolchain, flags: Sequence[str]) -> list[str]:
    directories = find_resources().include_dirs
    return [toolchain.compiler, *toolchain.flags, *flags, *isa.flags, f"-DSEALIFT_TARGET_ISA={isa.number}", *(f"-I{d}" for d in directories)]


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"the compiler refused generated code:\n{done.stderr[:6000]}")
