"""Element types. The numbers are contracts/sealift_model.h's and never change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class _Info:
    number: int
    text: str
    size_bytes: int
    is_float: bool
    is_int: bool
    torch_name: str


class DType(Enum):
    F32 = _Info(0, "f32", 4, True, False, "float32")
    F64 = _Info(1, "f64", 8, True, False, "float64")
    I32 = _Info(2, "i32", 4, False, True, "int32")
    I64 = _Info(3, "i64", 8, False, True, "int64")
    BOOL = _Info(4, "bool", 1, False, False, "bool")
    BF16 = _Info(5, "bf16", 2, True, False, "bfloat16")
    F16 = _Info(6, "f16", 2, True, False, "float16")
    I8 = _Info(7, "i8", 1, False, True, "int8")
    I16 = _Info(8, "i16", 2, False, True, "int16")
    U8 = _Info(9, "u8", 1, False, True, "uint8")
    C64 = _Info(10, "c64", 8, False, False, "complex64")

    @property
    def number(self) -> int:
        return self.value.number

    @property
    def size_bytes(self) -> int:
        return self.value.size_bytes

    @property
    def is_float(self) -> bool:
        return self.value.is_float

    @property
    def is_int(self) -> bool:
        """A signed or unsigned integer; bool is none."""
        return self.value.is_int

    @property
    def sums_as(self) -> DType:
        """What a sum or product of it is when nobody says: integers and bool in i64."""
        return self if self.is_float or self is DType.C64 else DType.I64

    @property
    def torch_name(self) -> str:
        return self.value.torch_name

    @property
    def compute(self) -> DType:
        """The type that arithmetic is done in: half types widen to f32, as ATen's CPU kernels do."""
        return DType.F32 if self in (DType.BF16, DType.F16) else self

    def __str__(self) -> str:
        return self.value.text

    def __repr__(self) -> str:
        return f"DType.{self.name}"


_BY_TEXT = {d.value.text: d for d in DType}
_BY_TORCH_NAME = {d.value.torch_name: d for d in DType}
_CATEGORY = {DType.BOOL: 0, **{d: 1 for d in DType if d.is_int}, **{d: 2 for d in DType if d.is_float}, DType.C64: 3}


def parse_dtype(text: str) -> DType:
    if text not in _BY_TEXT:
        raise ValueError(f"unknown dtype {text!r}; known: {', '.join(sorted(_BY_TEXT))}")
    return _BY_TEXT[text]


def dtype_from_torch_name(name: str) -> DType | None:
    """'float32' or 'torch.float32' -> F32; None for a type sealift does not have."""
    return _BY_TORCH_NAME.get(name.removeprefix("torch."))


def promote(a: DType, b: DType) -> DType:
    """torch.promote_types for two tensors of the same kind (both with dimensions, or both without)."""
    if a is b:
        return a
    category_a, category_b = _CATEGORY[a], _CATEGORY[b]
    if category_a != category_b:
        return a if category_a > category_b else b
    if {a, b} == {DType.BF16, DType.F16}:
        return DType.F32
    if DType.U8 in (a, b):  # with a signed type: the next signed type that holds both
        other = b if a is DType.U8 else a
        return DType.I16 if other is DType.I8 else other
    return a if a.size_bytes > b.size_bytes else b


def result_type(operands: list[tuple[DType, str]]) -> DType:
    """torch.result_type. Each operand is (dtype, kind), kind 'dim' (a tensor with dimensions), 'zero' (a 0-d tensor) or 'scalar' (a
    Python number: bool BOOL, int I64, float F64): a lower kind takes part only if its category is higher than the ones before."""
    result: DType | None = None
    for kind in ("dim", "zero", "scalar"):
        here: DType | None = None
        for dtype, operand_kind in operands:
            if operand_kind == kind:
                here = dtype if here is None else promote(here, dtype)
        if here is None:
            continue
        if result is None or _CATEGORY[here] > _CATEGORY[result]:
            result = DType.F32 if kind == "scalar" and here is DType.F64 else here
    if result is None:
        raise ValueError("result_type of nothing")
    return result
