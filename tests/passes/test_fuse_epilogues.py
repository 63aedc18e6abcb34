"""fuse_epilogues: bias, activation, residual and the activation after it go into the product; everything else stays outside."""

from __future__ import annotations

import pytest
from expecttest import assert_expected_inline

from sealift.ir.graph.text import parse_graph
from sealift.ir.loop.types import Call, Loops
from sealift.ops import OPS
from sealift.passes.fuse_epilogues import activation_templates, fuse_epilogues
from sealift.passes.inline_producers import inline_producers
from sealift.passes.lower_to_loops import lower_to_loops
from tests.passes.support import changed, kernels, read, unchanged

pytestmark = pytest.mark.golden
TEMPLATES = activation_templates(OPS)
GRAPH = """
graph m(n: 0..)
  input %x: f32[n, 8]
  input %r: f32[n, 4]
  input %v: f32[4]
  parameter %w: f32[4, 8] = "w"
  parameter %c: f32[4] = "c"
{{
  %h: f32[n, 4] = aten.linear.default(%x, %w, %c)
  {nodes}
  return {outputs}
}}
"""


def fuse(loops: Loops) -> Loops:
    return fuse_epilogues(loops, TEMPLATES)


def lowered(nodes: str, outputs: str = "%y") -> str:
    graph = parse_graph(GRAPH.format(nodes=nodes.replace("; ", "\n  "), outputs=outputs), OPS)
    return str(inline_producers(lower_to_loops(graph)))


def fused(nodes: str, outputs: str = "%y") -> Call:
    after = changed(fuse, lowered(nodes, outputs))
    (stage,) = after.kernels[0].stages
    assert isinstance(stage, Call) and len(after.kernels) == 1
    return stage


def test_every_activation_has_a_template() -> None:
    assert list(TEMPLATES) == ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu6", "hardswish", "hardsigmoid"]


ACTIVATIONS = {
    "relu": "aten.relu.default({0})",
    "gelu": "aten.gelu.default({0})",
    "gelu_tanh": 'aten.gelu.default({0}, approximate="tanh")',
    "silu": "aten.silu.default({0})",
    "sigmoid": "aten.sigmoid.default({0})",
    "tanh": "aten.tanh.default({0})",
    "relu6": "aten.relu6.default({0})",
    "hardswish": "aten.hardswish.default({0})",
    "hardsigmoid": "aten.hardsigmoid.default({0})",
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str) -> None:
    call = fused(f"%y: f32[n, 4] = {ACTIVATIONS[name].format('%h')}")
    assert dict(call.attrs) == {"activation": name, "transpose_b": True}


@pytest.mark.parametrize("sides", ["%h, %r", "%r, %h"])
def test_residual_on_either_side(sides: str) -> None:
    call = fused(f"%y: f32[n, 4] = aten.add.Tensor({sides})")
    assert [role for role, _ in call.operands] == ["a", "b", "bias", "residual"]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_then_residual_then_activation(name: str) -> None:
    nodes = f"%a: f32[n, 4] = {ACTIVATIONS[name].format('%h')}; %s: f32[n, 4] = aten.add.Tensor(%r, %a); %y: f32[n, 4] = aten.relu.default(%s)"
    call = fused(nodes)
    assert dict(call.attrs) == {"activation": name, "post_activation": "relu", "transpose_b": True}


@pytest.mark.parametrize("post", ACTIVATIONS)
def test_activation_of_a_sum_that_was_fused_before(post: str) -> None:
    """The pass runs before stages are inlined, too: it meets the sum and its activation one after the other."""
    nodes = f"%a: f32[n, 4] = aten.relu.default(%h); %s: f32[n, 4] = aten.add.Tensor(%r, %a); %y: f32[n, 4] = {ACTIVATIONS[post].format('%s')}"
    after = changed(fuse, str(lower_to_loops(parse_graph(GRAPH.format(nodes=nodes.replace("; ", "\n  "), outputs="%y"), OPS))))
    (stage,) = after.kernels[0].stages
    assert isinstance(stage, Call) and len(after.kernels) == 1
    assert dict(stage.attrs) == {"activation": "relu", "post_activation": post, "transpose_b": True}


def test_kernel_carries_the_origins_of_both() -> None:
    text = lowered("%y: f32[n, 4] = aten.relu.default(%h)  // a.py:2 act").replace(
        "kernel h [aten.linear.default]", "kernel h [aten.linear.default]  // a.py:1 fc"
    )
    assert_expected_inline(
        kernels(changed(fuse, text)),
        """\
kernel y [aten.linear.default, aten.relu.default]  // a.py:1 fc; a.py:2 act
  call gemm(%y) activation="relu", transpose_b=true
    a[k0 < n, k1 < 8] = %x[k0, k1]
    b[k2 < 4, k3 < 8] = %w[k2, k3]
    bias[k4 < 4] = %c[k4]""",
    )


REFUSED = [
    ("%y: f32[n, 4] = aten.exp.default(%h)", "%y"),  # not in the closed set
    ("%y: f32[n, 4] = aten.relu.default(%h)", "%y, %h"),  # the product is an output, too
    ("%y: f32[n, 4] = aten.add.Tensor(%h, %h)", "%y"),  # added to itself
    ("%y: f32[n, 4] = aten.mul.Tensor(%h, %r)", "%y"),
    ("%y: f32[n, 4] = aten.sub.Tensor(%r, %h)", "%y"),
    ("%y: f32[n, 4] = aten.add.Tensor(%h, %r, alpha=2)", "%y"),
    ("%y: f32[4, n] = aten.permute.default(%h, dims=[1, 0])", "%y"),  # another shape
    ("%y: f32[n, 4] order(1, 0) = aten.relu.default(%h)", "%y"),  # another order in memory
    ("%y: f64[n, 4] = aten.to.dtype(%h, dtype=f64)", "%y"),
    ("%y: f32[n, 4] = aten.leaky_relu.default(%h)", "%y"),
]


@pytest.mark.parametrize(("nodes", "outputs"), REFUSED)
def test_refuses(nodes: str, outputs: str) -> None:
    unchanged(fuse, lowered(nodes, outputs))


def test_refuses_a_second_reader() -> None:
    unchanged(fuse, lowered("%y: f32[n, 4] = aten.relu.default(%h); %z: f32[n, 4] = aten.exp.default(%h)", "%y, %z"))


def test_residual_that_the_kernel_cannot_walk_is_refused() -> None:
    """Broadcast along the row: its elements are not side by side."""
    text = lowered("%u: f32[n, 4] = aten.expand.default(%v, size=[n, 4]); %y: f32[n, 4] = aten.add.Tensor(%h, %u)")
    assert len(read(text).kernels) == 2
    column = text.replace("%v[i", "%r[i").replace("%r[i1]", "%r[i0, 0]")
    unchanged(fuse, column)


def test_residual_that_is_one_row_for_all_is_taken() -> None:
    """Its rows are 0 apart."""
    call = fused("%y: f32[n, 4] = aten.add.Tensor(%h, %v)")
    assert [role for role, _ in call.operands] == ["a", "b", "bias", "residual"]


def test_only_one_residual_and_nothing_after_the_last_activation() -> None:
    nodes = "%s: f32[n, 4] = aten.add.Tensor(%h, %r); %y: f32[n, 4] = aten.add.Tensor(%s, %r)"
    after = fuse(read(lowered(nodes)))
    assert [len(k.stages) for k in after.kernels] == [1, 1] or isinstance(after.kernels[0].stages[0], Call)
    nodes = "%a: f32[n, 4] = aten.relu.default(%h); %y: f32[n, 4] = aten.sigmoid.default(%a)"
    text = lowered(nodes)
    assert fuse(read(text)).kernels[-1].name == "y"


def test_product_reads_itself_as_residual_only_before_it_is_written() -> None:
    """relu(h) + h has two uses of the product: refused."""
    unchanged(fuse, lowered("%a: f32[n, 4] = aten.relu.default(%h); %y: f32[n, 4] = aten.add.Tensor(%a, %h)"))


def test_rows_that_are_read_with_a_leading_axis_of_one() -> None:
    """What Conv1D exports to: the product is [n, k], the rest of the model [1, n, k]."""
    text = """
        loops m(n: 1..)
        inputs
          input %x: f32[n, 8]
          input %r: f32[1, n, 16]
        buffers
          weight %w: f32[8, 16]
          temp %h: f32[n, 16]
        outputs
          output %y: f32[1, n, 16]
        kernel h []
          call gemm(%h)
            a[k0 < n, k1 < 8] = %x[k0, k1]
            b[k2 < 8, k3 < 16] = %w[k2, k3]
        kernel y []
          map %y[i0, i1, i2] for i0 < 1, i1 < n, i2 < 16
            = add(%h[i1, i2], %r[0, i1, i2])
    """
    fused = kernels(changed(lambda loops: fuse_epilogues(loops, TEMPLATES), text))
    assert "call gemm(%y)" in fused
    assert "a[k0_lead0 < 1, k0 < n, k1 < 8] = %x[k0, k1]" in fused
    assert "residual[i0 < 1, i1 < n, i2 < 16] = %r[0, i1, i2]" in fused
