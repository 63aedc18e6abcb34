"""C++'s spelling of the scalar primitives, types and sizes. kernels/simd and kernels/loops define the vocabulary."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from sealift.ir.dim import Apply, Dim, Sym
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Const
from sealift.ir.loop.prim import Combine, Prim

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
            with np.errstate(over="ignore"):
                return _float_text(float(np.float32(c.number)), str(np.float32(c.number)), "f")
        case "double":
            return _float_text(float(c.number), repr(float(c.number)), "")
        case "int64_t":
            return "INT64_MIN" if c.number == -(2**63) else f"INT64_C({int(c.number)})"
        case "int32_t" if c.number == -(2**31):
            return "INT32_MIN"
    return str(int(c.number))


def _float_text(value: float, text: str, suffix: str) -> str:
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    return text + ("" if "." in text or "e" in text else ".0") + suffix


_KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "not",
        "operator",
        "or",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
        "frame",
        "task",
        "begin",
        "end",
        "worker",
        "lanes",
        "load",
        "store",
        "select",
        "row",
        "cast",
        "splat",
        "gather",
        "All",
        "Some",
        "Sum",
        "Prod",
        "Min",
        "Max",
        "Any",
        "Best",
        "Vec",
        "Mask",
        "sizes",
        "run",
        "record",
        "dispatch",
        "main",
        "errno",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "sqrt",
        "abs",
        "floor",
        "ceil",
        "trunc",
        "round",
        "pow",
        "fma",
        "erf",
        "tanh",
        "sigmoid",
        "INFINITY",
        "NAN",
    ]
)


def identifier(name: str) -> str:
    """A C++ identifier that reads like the name."""
    text = re.sub(r"\W+", "_", name) or "_"
    if text[0].isdigit():
        text = "_" + text
    text = re.sub(r"_{2,}", "_", text)
    return text + "_" if text in _KEYWORDS or text.endswith("_t") or text.startswith("k_") else text


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
