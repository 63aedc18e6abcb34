"""Views are index maps that vanish: a chain of them reads its source by a plain index."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sealift.ir.dim import Dim, dim, product, sym
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Buffer, Load
from sealift.ir.loop.types import Axis
from sealift.ops.lang import Tensor, whole
from sealift.ops.views import permuted, reshaped, swapped

B, T = sym("batch"), sym("tokens")


def source(*shape: Dim | int) -> Tensor:
    return whole(Buffer("x", DType.F32, tuple(dim(s) for s in shape), "input"))


def index_text(t: Tensor) -> str:
    """How the source is read at i0, i1, ..."""
    load = t.at([Axis(f"i{k}", s).dim for k, s in enumerate(t.shape)])
    assert isinstance(load, Load)
    return ", ".join(map(str, load.index))


def test_heads_are_split_and_joined_without_division() -> None:
    x = source(B, T, 384)
    heads = swapped(reshaped(x, (B, T, 12, 32)), 1, 2)
    assert index_text(heads) == "i0, i2, 32*i1 + i3"
    joined = reshaped(swapped(heads, 1, 2), (B, T, 384))
    assert index_text(joined) == "i0, i1, i2"


def test_rows_of_a_batch_are_flattened() -> None:
    flat = reshaped(source(B, T, 8), (-1, 8))
    assert flat.shape == (B * T, dim(8))
    assert index_text(reshaped(flat, (B, T, 8))) == "i0, i1, i2"


@pytest.mark.parametrize("shapes", [[(6, 4), (2, 12)], [(24,), (4, 6)], [(2, 3, 4), (6, 4), (24,)], [(B, 6), (B, 2, 3), (2 * B, 3)]])
def test_reshaping_back_reads_the_source_as_it_lies(shapes: Sequence[tuple[Dim | int, ...]]) -> None:
    first = source(*shapes[0])
    t = first
    for shape in (*shapes[1:], shapes[0]):
        assert product(shape) == product(first.shape)
        t = reshaped(t, shape)
    assert index_text(t) == index_text(first)


def test_permuting_back_is_nothing() -> None:
    assert index_text(permuted(permuted(source(2, T, 5), [2, 0, 1]), [1, 2, 0])) == "i0, i1, i2"
