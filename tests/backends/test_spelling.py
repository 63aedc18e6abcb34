"""C++'s spelling: complete for every primitive and dtype; sizes and literals mean in C++ what they mean here."""

from __future__ import annotations

import ctypes
import math
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sealift.backends.cpp.spelling import ARG_COMBINES, COMBINES, LANE, PRIMS, STORAGE, literal, size_text, spell
from sealift.build.resources import find_resources
from sealift.build.toolchain import find_toolchain
from sealift.ir.dim import Dim, Sym, dim, dim_max, dim_min
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Const
from sealift.ir.loop.prim import COMPARISONS, ArgCombine, Combine, Prim, num_operands
from sealift.targets.isa import BASELINE

STORED = [d for d in DType if d is not DType.C64]


def test_every_primitive_is_spelled_with_its_operands() -> None:
    assert set(PRIMS) == set(Prim)
    for prim, text in PRIMS.items():
        assert {int(i) for i in re.findall(r"\{(\d)\}", text)} == set(range(num_operands(prim))), prim


def test_every_combination_and_dtype_is_spelled() -> None:
    assert set(COMBINES) == set(Combine)
    assert set(ARG_COMBINES) == set(ArgCombine)
    assert set(STORAGE) == set(STORED) == set(LANE), "complex numbers have no lanes yet"


@pytest.mark.parametrize("prim", [p for p in Prim if p not in COMPARISONS and p is not Prim.CAST], ids=str)
def test_half_types_round_after_whatever_is_not_exact(prim: Prim) -> None:
    args = ("a", "b", "c")[: num_operands(prim)]
    exact = {"neg", "abs", "minimum", "maximum", "select", "floor", "ceil", "trunc", "round"}
    for dtype, name in ((DType.BF16, "round_to_bf16"), (DType.F16, "round_to_f16")):
        assert spell(prim, args, dtype, dtype).startswith(name) is (prim.value not in exact)
    assert "round_to" not in spell(prim, args, DType.F32, DType.F32)


def test_casts() -> None:
    assert spell(Prim.CAST, ("a",), DType.F32, DType.I64) == "cast<float>(a)"
    assert spell(Prim.CAST, ("a",), DType.F32, DType.BF16) == "a", "bf16 is float lanes already"
    assert spell(Prim.CAST, ("a",), DType.BF16, DType.I32) == "round_to_bf16(cast<float>(a))"
    assert spell(Prim.CAST, ("a",), DType.F16, DType.BF16) == "round_to_f16(a)"
    assert spell(Prim.CAST, ("a",), DType.BOOL, DType.F64) == "cast<bool>(a)"


# ---- sizes ---------------------------------------------------------------------------------------------------------------------------

A, B, C = Sym("a", 0, 100), Sym("b", -20, 20), Sym("c", 1, 9)
NAMES = {A: "a", B: "b", C: "c"}


def random_dim(rng: random.Random, depth: int) -> Dim:
    if depth == 0:
        return rng.choice([dim(A), dim(B), dim(C), dim(rng.randrange(-9, 10))])
    left, right = random_dim(rng, depth - 1), random_dim(rng, rng.randrange(depth))
    match rng.randrange(7):
        case 0:
            return left + right
        case 1:
            return left - right
        case 2:
            return left * right
        case 3:
            return left // rng.choice([2, 3, 8, -3, dim(C)])
        case 4:
            return left % rng.choice([2, 5, 8, -4, dim(C)])
        case 5:
            return dim_min(left, right)
    return dim_max(left, right)


def test_sizes_in_cpp_are_sizes_here(tmp_path: Path) -> None:
    """Hundreds of expressions in one program, at sizes that make dividends and remainders negative."""
    rng = random.Random(0)
    dims = [random_dim(rng, rng.randrange(1, 4)) for _ in range(400)]
    dims += [
        dim(B) // 7,
        dim(B) % 7,
        dim(B) // -7,
        dim(B) % -7,
        (dim(B) - 3) // dim(C),
        (dim(B) - 3) % dim(C),
        -dim(A),
        dim(0),
        dim(-1),
        -2 * dim(B) + 3,
    ]
    values = [(0, -20, 1), (1, -1, 2), (100, 20, 9), (7, 0, 3), (33, -7, 7), (64, 13, 8)]
    cases = "\n".join(f"  out[{i}] = {size_text(d, NAMES)};" for i, d in enumerate(dims))
    head = (
        '#include "kernels/loops/loops.h"\nusing namespace SEALIFT_NS;\nextern "C" void evaluate(int64_t a, int64_t b, int64_t c, int64_t *out) {\n'
    )
    evaluate = compiled(f"{head}{cases}\n}}\n", tmp_path).evaluate
    for a, b, c in values:
        out = (ctypes.c_int64 * len(dims))()
        evaluate(ctypes.c_int64(a), ctypes.c_int64(b), ctypes.c_int64(c), out)
        for d, got in zip(dims, out):
            assert got == d.evaluate({"a": a, "b": b, "c": c}), f"{d} at {a}, {b}, {c}: {size_text(d, NAMES)}"


def test_sizes_of_a_literal_are_read_as_written() -> None:
    assert size_text(dim(0), {}) == "0"
    assert size_text(dim(A) * 3 - dim(B) * dim(C) + 1, NAMES) in ("-b * c + a * 3 + 1", "a * 3 - b * c + 1")
    assert size_text(dim(A) // 4, NAMES) == "((a) / 4)", "C++'s division where nothing is negative"
    assert size_text(dim(B) // 4, NAMES) == "size_floor_div(b, 4)"


# ---- literals ------------------------------------------------------------------------------------------------------------------------

FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1 / 3,
    1e-45,
    1e38,
    -3.4028234663852886e38,
    1e300,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    16777217.0,
    1e22,
    2.0**-149,
]
LITERALS = [
    *((x, d) for x in FLOATS for d in (DType.F32, DType.F64)),
    *((x, DType.F32) for x in (1e39, -1e39)),
    *((x, d) for d in (DType.I8, DType.I16, DType.I32, DType.I64) for x in (0, -1, 2 ** (8 * d.size_bytes - 1) - 1, -(2 ** (8 * d.size_bytes - 1)))),
    *((x, DType.U8) for x in (0, 255)),
    *((x, DType.BOOL) for x in (True, False)),
    *((x, d) for x in (0.5, -0.0, math.inf) for d in (DType.BF16, DType.F16)),
]


HALF = [(0.1, DType.BF16, 0.10009765625), (0.1, DType.F16, 0.0999755859375), (1.00390625, DType.BF16, 1.0), (1.01171875, DType.BF16, 1.015625),
        (70000.0, DType.F16, math.inf), (3.4e38, DType.BF16, math.inf), (-1e-9, DType.F16, -0.0)]  # fmt: skip


@pytest.mark.parametrize(("number", "dtype", "rounded"), HALF)
def test_literals_of_half_types_are_rounded_to_them(number: float, dtype: DType, rounded: float) -> None:
    """x > 0.1 of bf16 compares with what bf16 holds."""
    assert literal(Const(number, dtype)) == literal(Const(rounded, DType.F32))


def test_literals_are_exact(tmp_path: Path) -> None:
    cases = "\n".join(
        f"  {{ {LANE[d]} v = {literal(Const(x, d))}; __builtin_memcpy(out + 8 * {i}, &v, sizeof v); }}" for i, (x, d) in enumerate(LITERALS)
    )
    head = '#include <cstdint>\nextern "C" void fill(char *out) {\n'
    fill = compiled(f"{head}{cases}\n}}\n", tmp_path).fill
    out = (ctypes.c_char * (8 * len(LITERALS)))()
    fill(out)
    numpy = {"float": np.float32, "double": np.float64, "bool": np.bool_, "uint8_t": np.uint8}
    for i, (x, d) in enumerate(LITERALS):
        kind = np.dtype(numpy.get(LANE[d]) or LANE[d].removesuffix("_t"))
        with np.errstate(over="ignore"):
            wanted = np.asarray(x).astype(kind)
        got = out.raw[8 * i : 8 * i + kind.itemsize]
        if isinstance(x, float) and math.isnan(x):
            assert np.isnan(np.frombuffer(got, kind)[0])
        else:
            assert got == wanted.tobytes(), f"{x} as {d}: {literal(Const(x, d))}"


def compiled(text: str, directory: Path) -> ctypes.CDLL:
    source, library = directory / "test.cpp", directory / "test.so"
    source.write_text(text)
    toolchain, resources = find_toolchain(1, False, ""), find_resources()
    includes = [f"-I{d}" for d in resources.include_dirs]
    flags = ["-O1" if f == "-O2" else f for f in toolchain.flags]
    command = [toolchain.compiler, *flags, *BASELINE.flags, "-fvisibility=default", "-Werror=overflow", "-DSEALIFT_TARGET_ISA=0", *includes]
    done = subprocess.run([*command, "-shared", str(source), "-o", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(library))
