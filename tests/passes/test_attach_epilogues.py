"""attach_epilogues: a pointwise stage outside the closed set runs on the product's tiles; what refuses runs after the product."""

from __future__ import annotations

import numpy as np
import pytest
from expecttest import assert_expected_inline

from sealift.ir.loop.text import parse_loops
from sealift.passes.attach_epilogues import attach_epilogues
from tests.passes.random_graphs import NAIVE
from tests.passes.support import changed, kernels, read, unchanged
from tests.support_native import NativeBatch

pytestmark = pytest.mark.golden
LOOPS = """
loops m(n: 0..)
inputs
  input %x: f32[n, {k}]
  input %g: f32[n, {cols}]
buffers
  weight %w: f32[{cols}, {k}]
  {kind} %h: f32[n, {cols}]{h_order}
outputs
  output %y: {dtype}[n, {cols}]{y_order}
kernel h [aten.linear.default]  // a.py:1 fc
  call gemm(%h) transpose_b=true
    a[k0 < n, k1 < {k}] = %x[k0, k1]
    b[k2 < {cols}, k3 < {k}] = %w[k2, k3]
kernel y [aten.mul.Tensor]  // a.py:2
  map %y[i0, i1] for i0 < n, i1 < {cols}
    = {value}
"""


def text(
    value: str = "mul(%h[i0, i1], %g[i0, i1])",
    cols: int = 40,
    kind: str = "temp",
    h_order: str = "",
    y_order: str = "",
    dtype: str = "f32",
    k: int = 7,
) -> str:
    return LOOPS.format(value=value, cols=cols, kind=kind, h_order=h_order, y_order=y_order, dtype=dtype, k=k)


def test_stage_joins_the_products_kernel() -> None:
    assert_expected_inline(
        kernels(changed(attach_epilogues, text())),
        """\
kernel y [aten.linear.default, aten.mul.Tensor]  // a.py:1 fc; a.py:2
  call gemm(%h) transpose_b=true
    a[k0 < n, k1 < 7] = %x[k0, k1]
    b[k2 < 40, k3 < 7] = %w[k2, k3]
  map %y[i0, i1] for i0 < n, i1 < 40
    = mul(%h[i0, i1], %g[i0, i1])""",
    )


ATTACHED = [
    {"value": "mul(%h[i0, i1], %g[i0, i1])"},
    {"value": "exp(neg(%h[i0, i1]))"},
    {"value": "add(%h[i0, i1], %g[n - i0 - 1, i1])"},
    {"value": "add(%h[i0, i1], %g[i0, 0])"},
    {"value": "select(gt(%h[i0, i1], 0.0:f32), %h[i0, i1], cast.f32(idx(i0 + i1)))"},
    {"value": "cast.f64(%h[i0, i1])", "dtype": "f64"},
    {"value": "mul(%h[i0, i1], 2.0:f32)", "cols": 33},
    {"value": "mul(%h[i0, i1], 2.0:f32)", "cols": 100, "k": 1},
]


@pytest.mark.parametrize("case", range(len(ATTACHED)))
def test_is_attached(case: int) -> None:
    assert len(changed(attach_epilogues, text(**ATTACHED[case])).kernels) == 1


def test_attached_stages_answer_as_the_interpreter() -> None:
    loops = [attach_epilogues(read(text(**case))) for case in ATTACHED]  # type: ignore[arg-type]
    batch = NativeBatch(loops)
    from sealift.ir.loop.interpret import interpret

    rng = np.random.default_rng(0)
    for position, case in enumerate(ATTACHED):
        cols, k = int(case.get("cols", 40)), int(case.get("k", 7))
        for n in (0, 1, 2, 33, 130):
            values = {"x": rng.standard_normal((n, k)), "g": rng.standard_normal((n, cols)), "w": rng.standard_normal((cols, k))}
            held = {name: a.astype(np.float32) for name, a in values.items()}
            (wanted,) = interpret(loops[position], held, NAIVE)
            assert wanted is not None
            np.testing.assert_allclose(batch.run(position, held, {"n": n})[0], wanted, rtol=2e-5, atol=2e-5)


REFUSED = [
    {"value": "mul(%h[i0, i1], %h[i0, i1 - 1] where(0 <= i1 - 1 < 40) else 0.0)"},  # reads a neighbour
    {"value": "%h[n - i0 - 1, i1]"},  # walks it backwards
    {"value": "add(%h[i0, i1], %h[i0, 0])"},
    {"value": "mul(%g[i0, i1], 2.0:f32)"},  # does not read it
    {"cols": 1},  # no row of lanes
    {"y_order": " order(1, 0)", "value": "mul(%h[i0, i1], 2.0:f32)"},  # lanes go down the columns
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refuses(case: int) -> None:
    unchanged(attach_epilogues, text(**REFUSED[case]))  # type: ignore[arg-type]


def test_refuses_a_product_in_another_order() -> None:
    unchanged(attach_epilogues, text(h_order=" order(1, 0)"))


def test_refuses_a_product_that_is_an_output() -> None:
    unchanged(attach_epilogues, text().replace("  temp %h: f32[n, 40]\n", "").replace("outputs\n", "outputs\n  output %h: f32[n, 40]\n"))


def test_refuses_a_second_reader() -> None:
    second = "kernel z []\n  reduce sum %z for i0 < n over r0 < 40\n    = %h[i0, r0]\n"
    unchanged(attach_epilogues, text().replace("kernel y ", second + "kernel y ").replace("outputs\n", "outputs\n  output %z: f32[n]\n"))


def test_refuses_another_shape() -> None:
    """The stage walks the product as [n, 4, 10]: it is another shape, whatever the memory says."""
    loops = text().replace("output %y: f32[n, 40]", "output %y: f32[n, 4, 10]")
    unchanged(attach_epilogues, loops.replace("map %y[i0, i1] for i0 < n, i1 < 40", "map %y[i0, i1, i2] for i0 < n, i1 < 4, i2 < 10").replace(
        "mul(%h[i0, i1], %g[i0, i1])", "neg(%h[i0, 10*i1 + i2])"))  # fmt: skip


def test_refuses_scatters_and_reductions() -> None:
    unchanged(attach_epilogues, text().replace("map %y[i0, i1] for", "map sum %y[i0, i1] for"))
    reduced = (
        text()
        .replace("output %y: f32[n, 40]", "output %y: f32[n]")
        .replace("map %y[i0, i1] for i0 < n, i1 < 40", "reduce sum %y for i0 < n over i1 < 40")
    )
    unchanged(attach_epilogues, reduced)


def test_second_product_of_a_chain_is_attached_to_its_own() -> None:
    chain = text(value="mul(%h[i0, i1], 2.0:f32)")
    two = parse_loops(chain)
    assert len(attach_epilogues(two).kernels[0].stages) == 2
