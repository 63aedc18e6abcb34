"""Instruction sets: data only. Numbers and names are contracts/sealift_model.h's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Isa:
    name: str
    number: int
    lanes: int  # f32 lanes of one vector register: kLanes of kernels/simd/isa.h
    flags: tuple[str, ...]

    @property
    def namespace(self) -> str:
        return f"sealift_{self.name}"


BASELINE = Isa("baseline", 0, 4, ("-march=x86-64",))
AVX2 = Isa("avx2", 1, 8, ("-march=x86-64-v3",))
AVX512 = Isa("avx512", 2, 16, ("-march=x86-64-v4", "-mprefer-vector-width=512"))

BY_NAME = {isa.name: isa for isa in (BASELINE, AVX2, AVX512)}
