"""C++'s spelling of the scalar primitives, types and sizes. kernels/simd and kernels/loops define the vocabulary."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sealift.ir.dim import Apply, Dim, Sym
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Const
from sealift.ir.loop.prim import ArgCombine, Combine, Prim

PRIMS: Mapping[Prim, str] = {
    Prim.ADD: "{0} + {1}",
    Prim.SUB: "{0} - {1}",
    Prim.MUL: "{0} * {1}",
    Prim.DIV: "{0} / {1}",
    Prim.FLOOR_DIV: "floor_div({0}, {1})",
    Prim.TRUNC_DIV: "trunc_div({0}, {1})",
    Prim.REMAINDER: "remainder({0}, {1})",
    Prim.FMOD: "fmod({0}, {1})",
    Prim.NEG: "neg({0})",
    Prim.ABS: "abs({0})",
    Prim.MINIMUM: "minimum({0}, {1})",
    Prim.MAXIMUM: "maximum({0}, {1})",
    Prim.POW: "pow({0}, {1})",
    Prim.ATAN2: "atan2({0}, {1})",
    Prim.EQ: "eq({0}, {1})",
    Prim.NE: "ne({0}, {1})",
    Prim.LT: "lt({0}, {1})",
    Prim.LE: "le({0}, {1})",
    Prim.GT: "gt({0}, {1})",
    Prim.GE: "ge({0}, {1})",
    Prim.AND: "bit_and({0}, {1})",
    Prim.OR: "bit_or({0}, {1})",
    Prim.XOR: "bit_xor({0}, {1})",
    Prim.NOT: "bit_not({0})",
    Prim.SHL: "shl({0}, {1})",
    Prim.SHR: "shr({0}, {1})",
    Prim.SELECT: "select({0}, {1}, {2})",
    Prim.CAST: "cast<{to}>({0})",
    **{
        p: p.value + "({0})"
        for p in (
            Prim.SQRT, Prim.EXP, Prim.EXP2, Prim.EXPM1, Prim.LOG, Prim.LOG2, Prim.LOG10, Prim.LOG1P, Prim.SIN, Prim.COS, Prim.TAN,
            Prim.ASIN, Prim.ACOS, Prim.ATAN, Prim.SINH, Prim.COSH, Prim.TANH, Prim.ASINH, Prim.ACOSH, Prim.ATANH, Prim.ERF,
            Prim.SIGMOID, Prim.FLOOR, Prim.CEIL, Prim.TRUNC, Prim.ROUND,
        )
    },
}  # fmt: skip

COMBINES: Mapping[Combine, str] = {
    Combine.SUM: "Sum",
    Combine.PROD: "Prod",
    Combine.MIN: "Min",
    Combine.MAX: "Max",
    Combine.ANY: "Any",
    Combine.ALL: "AllOf",
}
ARG_COMBINES: Mapping[ArgCombine, str] = {
    ArgCombine.ARGMIN: "ArgMin",
    ArgCombine.ARGMAX: "ArgMax",
    ArgCombine.ARGMAX_LAST_NAN: "ArgMaxLastNan",
}

# How an element lies in memory, and the lane type it is computed in.
STORAGE: Mapping[DType, str] = {
    DType.F32: "float", DType.F64: "double", DType.I32: "int32_t", DType.I64: "int64_t", DType.BOOL: "b8", DType.BF16: "bf16",
    DType.F16: "f16", DType.I8: "int8_t", DType.I16: "int16_t", DType.U8: "uint8_t",
}  # fmt: skip
LANE: Mapping[DType, str] = {**STORAGE, DType.BOOL: "bool", DType.BF16: "float", DType.F16: "float"}

_ROUND_HALF = {DType.BF16: "round_to_bf16", DType.F16: "round_to_f16"}
_EXACT_IN_HALF = {Prim.NEG, Prim.ABS, Prim.MINIMUM, Prim.MAXIMUM, Prim.SELECT, Prim.FLOOR, Prim.CEIL, Prim.TRUNC, Prim.ROUND}


def spell(prim: Prim, args: tuple[str, ...], result: DType, operand: DType) -> str:
    """The primitive on lanes; a half type's result is rounded to it."""
    if prim is Prim.CAST:
        if result in _ROUND_HALF:
            lanes = args[0] if LANE[operand] == "float" else f"cast<float>({args[0]})"
            return f"{_ROUND_HALF[result]}({lanes})"
        if LANE[operand] == LANE[result]:
            return args[0]
    text = PRIMS[prim].format(*args, to=LANE[result])
    return f"{_ROUND_HALF[result]}({text})" if result in _ROUND_HALF and prim not in _EXACT_IN_HALF else text


def literal(c: Const) -> str:
    """The constant in its lane type, exactly."""
    match LANE[c.dtype]:
        case "bool":
            return "true" if c.number else "false"
        case "float":
            number = _as_float32(c)
            return _float_text(float(number), str(number), "f")
        case "double":
            return _float_text(float(c.number), repr(float(c.number)), "")
        case "int64_t":
            return "INT64_MIN" if c.number == -(2**63) else f"INT64_C({int(c.number)})"
        case "int32_t" if c.number == -(2**31):
            return "INT32_MIN"
    return str(int(c.number))


def _as_float32(c: Const) -> Any:
    """The number rounded to its dtype, which may be a half type, as a np.float32."""
    with np.errstate(all="ignore"):
        number: Any = np.float32(c.number)
        if c.dtype is DType.F16:
            return np.float32(np.float16(number))
        if c.dtype is not DType.BF16 or np.isnan(number):
            return np.float32(number)
        bits = int(number.view(np.uint32))
        return np.float32(np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32))


def _float_text(value: float, text: str, suffix: str) -> str:
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return text + ("" if "." in text or "e" in text else ".0") + suffix


def _words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}


_KEYWORDS = _words("""
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const const_cast constexpr continue
decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int int16_t int32_t
int64_t int8_t long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename uint8_t union unsigned using virtual void volatile wchar_t while xor xor_eq
""")

# What generated code calls by its name beside the primitives (kernels/loops, kernels/simd, the kernel families), and its own locals.
_VOCABULARY = _words("""
All AllOf arena arg ArgMax ArgMaxLastNan ArgMin attention attention_f32 attention_f32_scratch_bytes AttentionF32 bags Bags begin begin_record Best
c_tile challenge check_divisor check_index check_position conv conv_f32 conv_f32_scratch_bytes ConvF32 dispatch each_lane embedding_bags end
end_record failed first fold_lanes for_lanes frame gather gather_where gemm gemm_f32 gemm_f32_scratch_bytes GemmF32 given has_failed holds inputs
iota lane0 lanes layer ldc load load_strided m0 m1 made main Mask mask_each_lane memcpy n0 n1 outputs record recurrent_f32 RecurrentF32 room row
run scan_lanes scratch_at sealift_frame second set_strides size_floor_div size_max size_min size_mod sizes Some sort_rows sort_rows_scratch_bytes
splat splat_load store store_one store_strided Task task token Vec worker
""")


_RESERVED = (_KEYWORDS | _VOCABULARY | _words(*PRIMS.values(), *COMBINES.values(), *LANE.values(), *STORAGE.values(), *_ROUND_HALF.values())) - {"to"}
_NUMBERED = re.compile(r"(?:batch|row|[ikprv])\d+(?:_[ikr]\d+)*")  # locals, and axes merged into one
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*[A-Z0-9]")  # what headers call macros


def identifier(name: str) -> str:
    """A C++ identifier that reads like the name, and is none of the language's, the vocabulary's or the generated code's own."""
    text = re.sub(r"\W+", "_", name, flags=re.ASCII) or "_"
    text = re.sub(r"_{2,}", "_", text)
    if text[0].isdigit():
        text = "_" + text
    if re.match(r"_[A-Z]|k\d+_", text):  # reserved to the implementation; functions of kernels
        text = "x" + text
    is_taken = text in _RESERVED or _NUMBERED.fullmatch(text) or _MACRO.fullmatch(text) or text.endswith("_t")
    return text.rstrip("_") + "_" if is_taken else text


def unique_identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """An identifier for each name, no two alike and none of `taken`: the second `x` is x_2."""
    used = set(taken)
    found: dict[str, str] = {}
    for name in names:
        chosen = base = identifier(name)
        count = 2
        while chosen in used:
            chosen, count = f"{base.rstrip('_')}_{count}", count + 1
        used.add(chosen)
        found[name] = chosen
    return found


def size_text(d: Dim, names: Mapping[Sym, str]) -> str:
    """A size or index as a C++ expression of int64_t."""
    if not d.terms:
        return "0"
    text = ""
    for i, (monomial, coefficient) in enumerate(d.terms):
        factors = [_atom_text(a, names) for a in monomial]
        magnitude = abs(coefficient)
        if magnitude != 1 or not factors:
            factors.append(str(magnitude))
        joined = " * ".join(factors)
        if i == 0:
            text = f"-{joined}" if coefficient < 0 else joined
        else:
            text += f" {'-' if coefficient < 0 else '+'} {joined}"
    return text


def _atom_text(atom: Sym | Apply, names: Mapping[Sym, str]) -> str:
    if isinstance(atom, Sym):
        return names[atom]
    left, right = size_text(atom.left, names), size_text(atom.right, names)
    if atom.fn in ("min", "max"):
        return f"size_{atom.fn}({left}, {right})"
    if atom.right.is_const and atom.right.value > 0 and atom.left.lower >= 0:
        return f"(({left}) {'/' if atom.fn == '//' else '%'} {right})"
    return f"size_{'floor_div' if atom.fn == '//' else 'mod'}({left}, {right})"
