"""The closed set of scalar primitives. An operator is built from these; a backend spells each of them once."""

from __future__ import annotations

from enum import Enum


class Prim(Enum):
    # arithmetic: operands and result share a dtype; integers wrap
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats: true division
    FLOOR_DIV = "floor_div"  # ints and floats: rounds to -inf, as torch.floor_divide
    TRUNC_DIV = "trunc_div"  # ints: rounds to 0
    REMAINDER = "remainder"  # sign of the divisor, as torch.remainder
    FMOD = "fmod"  # sign of the dividend
    NEG = "neg"
    ABS = "abs"
    MINIMUM = "minimum"  # NaN if either is
    MAXIMUM = "maximum"
    POW = "pow"  # floats
    ATAN2 = "atan2"
    # comparison: bool result; NaN compares false but for NE
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    # bool and bits
    AND = "and"  # bool: logical; ints: bitwise
    OR = "or"
    XOR = "xor"
    NOT = "not"
    SHL = "shl"  # out-of-range counts as ATen has them
    SHR = "shr"
    # choice and conversion
    SELECT = "select"  # (bool, x, x) -> x; a NaN in the branch not taken does not leak
    CAST = "cast"  # to the node's dtype, as ATen converts
    # floats, one operand
    SQRT = "sqrt"
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG2 = "log2"
    LOG10 = "log10"
    LOG1P = "log1p"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    ROUND = "round"  # half to even

    def __str__(self) -> str:
        return self.value


COMPARISONS = frozenset({Prim.EQ, Prim.NE, Prim.LT, Prim.LE, Prim.GT, Prim.GE})
TWO_OPERANDS = frozenset(
    {
        Prim.ADD, Prim.SUB, Prim.MUL, Prim.DIV, Prim.FLOOR_DIV, Prim.TRUNC_DIV, Prim.REMAINDER, Prim.FMOD, Prim.MINIMUM, Prim.MAXIMUM,
        Prim.POW, Prim.ATAN2, Prim.AND, Prim.OR, Prim.XOR, Prim.SHL, Prim.SHR,
    }
    | COMPARISONS
)  # fmt: skip


def num_operands(prim: Prim) -> int:
    return 3 if prim is Prim.SELECT else 2 if prim in TWO_OPERANDS else 1


class Combine(Enum):
    """How a reduction joins two partial results. Its identity is the result over nothing."""

    SUM = "sum"
    PROD = "prod"
    MIN = "min"  # NaN wins
    MAX = "max"
    ANY = "any"  # bool
    ALL = "all"

    def __str__(self) -> str:
        return self.value


class ArgCombine(Enum):
    """A reduction whose result is the position of the winner: the first of equals, NaN before all; of several NaN the first, or the last
    as max pooling has it."""

    ARGMIN = "argmin"
    ARGMAX = "argmax"
    ARGMAX_LAST_NAN = "argmax_last_nan"

    def __str__(self) -> str:
        return self.value
