"""Import of exported programs: names, ranges, tied weights, states, outputs, locations, and refusals that say everything at once."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export

from sealift.diag.errors import CompileError
from sealift.frontend import Imported, export_module, from_export
from sealift.frontend.weights import dense_order
from sealift.ir.dim import UNBOUNDED, dim, sym
from sealift.ir.dtype import DType
from sealift.ir.graph.interpret import interpret
from sealift.ir.graph.text import parse_graph
from sealift.ir.graph.verify import verify
from sealift.ops import OPS
from sealift.ops.families import FAMILIES
from sealift.ops.lang import Builder, whole

NAIVE = {n: f.naive for n, f in FAMILIES.items()}


def imported(module: nn.Module, args: tuple[Any, ...], shapes: Any = None, kwargs: dict[str, Any] | None = None) -> Imported:
    result = from_export(export(module, args, kwargs, dynamic_shapes=shapes), "m", OPS)
    verify(result.graph, Builder, whole)
    assert parse_graph(str(result.graph), OPS) == result.graph
    return result


def run(result: Imported, *inputs: torch.Tensor) -> list[Any]:
    given = {v.name: t.numpy() for v, t in zip(result.graph.inputs, inputs, strict=True)}
    return interpret(result.graph, given, {k: w.array for k, w in result.weights.items()}, Builder, whole, NAIVE)


def ranges(result: Imported) -> list[tuple[str, int, Any]]:
    return [(s.name, s.lo, s.hi) for s in result.graph.sizes]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))  # type: ignore[no-any-return]


class Relu(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


@pytest.fixture(scope="module")
def mlp() -> tuple[Mlp, Imported]:
    torch.manual_seed(0)
    module = Mlp()
    return module, imported(module, (torch.randn(3, 4),), {"x": {0: Dim("batch", max=64)}})


def test_the_mlp(mlp: tuple[Mlp, Imported]) -> None:
    module, result = mlp
    g = result.graph
    assert [n.op.name for n in g.nodes] == ["aten.linear.default", "aten.relu.default", "aten.linear.default"]
    assert [(v.name, str(v.type)) for v in g.inputs] == [("x", "f32[batch, 4]")]
    assert [c.fqn for c in g.constants] == ["up.weight", "up.bias", "down.weight", "down.bias"]
    assert g.output_names == ("output",)
    x = torch.randn(5, 4)
    np.testing.assert_allclose(run(result, x)[0], module(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_node_knows_the_users_line(mlp: tuple[Mlp, Imported]) -> None:
    relu = mlp[1].graph.nodes[1]
    (place,) = relu.loc.places
    assert place.path.endswith("tests/frontend/test_exported.py")
    assert place.code == "return self.down(torch.relu(self.up(x)))  # type: ignore[no-any-return]"
    assert mlp[1].graph.nodes[0].loc.places[0].module == "up"


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (Dim.AUTO, ("x_dim0", 1, UNBOUNDED)),  # export writes 2: sizes 0 and 1 are told apart; 1 has to work
        (Dim.DYNAMIC, ("x_dim0", 1, UNBOUNDED)),
        (Dim("b", min=2), ("b", 2, UNBOUNDED)),
        (Dim("b", min=1, max=7), ("b", 1, 7)),
        (Dim("b"), ("b", 0, UNBOUNDED)),
        (Dim("i0", max=9), ("i0_dim", 0, 9)),  # i0 is a loop axis
    ],
    ids=str,
)
def test_ranges_and_names(size: Any, expected: tuple[str, int, int]) -> None:
    result = imported(Relu(), (torch.randn(3, 4),), {"x": {0: size}})
    assert ranges(result) == [expected]
    x = torch.randn(1, 4)
    if expected[1] <= 1:
        np.testing.assert_array_equal(run(result, x)[0], x.relu().numpy())


def test_a_derived_size_is_an_expression() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x.sum() + y

    batch = Dim("batch", max=9)
    result = imported(Two(), (torch.randn(3), torch.randn(6)), {"x": {0: batch}, "y": {0: 2 * batch}})
    assert ranges(result) == [("batch", 0, 9)]
    assert str(result.graph.inputs[1].type) == "f32[2*batch]"


def test_names_and_ranges_survive_a_file() -> None:
    buffer = io.BytesIO()
    torch.export.save(export(Relu(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: Dim("b", max=5)}}), buffer)
    buffer.seek(0)
    g = from_export(torch.export.load(buffer), "m", OPS).graph
    assert [(s.name, s.lo, s.hi) for s in g.sizes] == [("x_dim0", 0, 5)]  # torch keeps no names
    assert [v.name for v in g.inputs] == ["x"]


def test_tied_weights_are_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(2, 2)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(self.b(x))  # type: ignore[no-any-return]

    result = imported(Tied(), (torch.randn(2, 4),))
    assert sorted(result.weights) == ["a.bias", "a.weight", "b.bias"]
    assert result.aliases == {"b.weight": "a.weight"}


class Outputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([2.0]))
        self.offset = torch.tensor([0.5, 0.25])

    def forward(self, x: torch.Tensor, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], factor: int = 3, none: Any = None) -> dict[str, Any]:
        y = x * self.scale * factor
        return {"y": y, "none": None, "again": y, "x": x, "inner": (pair[0] + self.offset, pair[1]["ids"]), "size": x.shape[0] * 2}


def test_inputs_and_outputs_of_every_kind() -> None:
    args = (torch.randn(3, 2), (torch.randn(2), {"ids": torch.arange(4)}), 3, None)
    result = imported(Outputs(), args, ({0: Dim("n", min=1, max=9)}, (None, {"ids": None}), None, None))
    assert [(e.name, e.value is not None, e.constant) for e in result.inputs] == [
        ("x", True, None),
        ("pair.0", True, None),
        ("pair.1.ids", True, None),
        ("factor", False, 3),
        ("none", False, None),
    ]
    g = result.graph
    assert g.output_names == ("y", "none", "again", "x", "inner.0", "inner.1", "size")
    assert result.output_kinds == ("tensor", "none", "tensor", "tensor", "tensor", "tensor", "int")
    assert g.outputs[0] is g.outputs[2] and g.outputs[1] is None and g.outputs[3] is g.inputs[0]
    assert {c.fqn: c.kind for c in g.constants} == {"scale": "buffer", "offset": "tensor"}
    outputs = run(result, args[0], args[1][0], args[1][1]["ids"])
    np.testing.assert_allclose(outputs[0], args[0].numpy() * 6, rtol=1e-6)
    assert outputs[6] == 6
    spec = torch.utils._pytree.treespec_loads(g.out_spec)
    assert torch.utils._pytree.tree_unflatten(list(range(7)), spec)["inner"] == (4, 5)


def test_a_mutated_buffer_is_a_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    result = imported(Counter(), (torch.randn(2),))
    (state,) = result.graph.states
    assert state.fqn == "count" and not result.graph.constants and "count" in result.weights
    left: dict[str, Any] = {}
    x = np.float32([1, 2])
    (y,) = interpret(result.graph, {"x": x}, {"count": np.zeros(2, "f")}, Builder, whole, NAIVE, left)
    assert y is not None and y.tolist() == [2, 3] and left["count"].tolist() == [1, 1]


def test_bf16_weights_keep_their_bits() -> None:
    module = nn.Linear(4, 4).bfloat16()
    result = imported(module, (torch.randn(2, 4, dtype=torch.bfloat16),))
    weight = result.weights["weight"]
    assert weight.dtype is DType.BF16 and weight.array.dtype == np.uint16
    np.testing.assert_array_equal(weight.array.view(np.int16), module.weight.detach().view(torch.int16).numpy())


def test_orders_are_eagers() -> None:
    class Transpose(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu().permute(0, 2, 1)

    result = imported(Transpose(), (torch.randn(2, 3, 4),), {"x": {0: Dim("b", min=1), 1: Dim("s", min=1)}})
    (out,) = result.graph.outputs
    assert out is not None and out.type.order == (0, 2, 1)


def test_dense_order() -> None:
    b, s = sym("b", 1), sym("s", 1)
    assert dense_order((b, s), (s, dim(1))) is None
    assert dense_order((b, s), (dim(1), b)) == (1, 0)
    assert dense_order((b, dim(1), s), (s, dim(7), dim(1))) is None
    assert dense_order((dim(1), s, b), (dim(1), dim(1), s)) is not None
    assert dense_order((b, s), (dim(0), dim(1))) is None
    assert dense_order((), ()) is None


# ---- refusals ------------------------------------------------------------------------------------------------------------------


class Missing(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> Any:
        a = torch.linalg.inv(x)
        b = torch.linalg.svdvals(x) + x.to(torch.complex128)
        i.add_(1)
        c = torch.linalg.inv(x + 1)
        return a, b.abs(), c, i


def test_one_error_says_everything() -> None:
    with pytest.raises(CompileError) as caught:
        from_export(export(Missing(), (torch.randn(4, 4), torch.zeros(3))), "m", OPS)
    text = str(caught.value)
    assert caught.value.code == "E-OP-001"
    for line in ("a = torch.linalg.inv(x)", "c = torch.linalg.inv(x + 1)", "b = torch.linalg.svdvals(x)"):
        assert line in text
    assert text.count("[E-OP-001] no lowering for aten.linalg_inv_ex.default") == 1
    assert "[E-DTYPE-001] complex128 is not supported" in text
    assert "sealift ops --missing" in text


@pytest.mark.parametrize(
    ("compute", "name", "way_out"),
    [
        (lambda x: x + torch.rand(4, 8), "aten.rand.default", "as an input"),
        (lambda x: torch.nonzero(x), "aten.nonzero.default", "depends on values"),
        (lambda x: torch.as_strided(x, (2, 2), (1, 2)), "aten.as_strided.default", "unfold or expand"),
    ],
    ids=["rand", "nonzero", "as_strided"],
)
def test_what_lacks_a_row_for_a_reason_names_the_way_out(compute: Any, name: str, way_out: str) -> None:
    class Lacking(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return compute(x)  # type: ignore[no-any-return]

    with pytest.raises(CompileError) as caught:
        from_export(export(Lacking(), (torch.randn(4, 8),)), "m", OPS)
    assert f"no lowering for {name}" in str(caught.value) and way_out in str(caught.value)


def test_a_branch_on_sizes_alone_is_refused_with_its_line() -> None:
    class Cond(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.shape[0] > 4, lambda t: t + 1, lambda t: t - 1, (x,))  # type: ignore[no-any-return]

    program = export(Cond(), (torch.randn(8),), dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}})
    with pytest.raises(CompileError, match=r"(?s)E-EXPORT-004.*a branch that depends on sizes alone\n.*torch\.cond\(x\.shape\[0\] > 4"):
        from_export(program, "m", OPS)


def test_a_branch_is_a_node_with_two_graphs() -> None:
    class Cond(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))  # type: ignore[no-any-return]

    graph = from_export(export(Cond(), (torch.randn(3),)), "m", OPS).graph
    (call,) = (n for n in graph.nodes if n.graphs)
    assert call.op.name == "higher_order.cond" and [[n.op.name for n in g.nodes] for g in call.graphs] == [["aten.add.Tensor"], ["aten.sub.Tensor"]]
    assert "test_exported.py" in str(call.loc)


def test_an_assumption_about_sizes_is_refused() -> None:
    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1, 4)

    with pytest.raises(CompileError, match=r"E-EXPORT-004.*Mod\(2\*x_dim0, 4\)"):
        from_export(export(Halves(), (torch.randn(8, 2),), dynamic_shapes={"x": {0: Dim.AUTO}}), "m", OPS)


def test_an_ordering_of_sizes_names_them() -> None:
    class Depthwise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, (5, 3), groups=8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x)  # type: ignore[no-any-return]

    x = torch.randn(1, 8, 13, 9).to(memory_format=torch.channels_last)
    dynamic = {"x": {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}}
    with pytest.raises(CompileError, match=r"E-EXPORT-004[\s\S]*as a larger min: Dim\('x_dim2', min=..., max=...\), Dim\('x_dim3'[\s\S]*contiguous"):
        from_export(export(Depthwise(), (x,), dynamic_shapes=dynamic), "m", OPS)
    from_export(export(Depthwise(), (x,), dynamic_shapes={"x": {2: Dim("h", min=6, max=64), 3: Dim("w", min=6, max=64)}}), "m", OPS)
    from_export(export(Depthwise(), (x.contiguous(),), dynamic_shapes=dynamic), "m", OPS)


def test_data_dependent_sizes_are_refused_once() -> None:
    class Nonzero(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.nonzero().float() + 1

    with pytest.raises(CompileError) as caught:
        from_export(export(Nonzero(), (torch.randn(3),)), "m", OPS)
    assert str(caught.value).count("[E-") == 1


@pytest.mark.parametrize(
    ("compute", "way_out"),
    [(lambda x, k: x[x > 0], "choose with torch.where"), (lambda x, k: x * k.sum().item(), "keep it a 0-d tensor")],
    ids=["mask", "item"],
)
def test_what_depends_on_values_names_the_way_out(compute: Any, way_out: str) -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            return compute(x, k)  # type: ignore[no-any-return]

    with pytest.raises(CompileError) as caught:
        from_export(export(Chosen(), (torch.randn(3), torch.ones(2, dtype=torch.int64))), "m", OPS)
    assert way_out in str(caught.value) and "test_exported.py" in str(caught.value)


def test_a_number_among_the_inputs_names_the_way_out() -> None:
    class Cut(nn.Module):
        def forward(self, x: torch.Tensor, k: int) -> torch.Tensor:
            return x[:k]

    with pytest.raises(CompileError, match=r"input 'k' is a SymInt[\s\S]*read it off a tensor's shape"):
        from_export(export(Cut(), (torch.randn(6), 3), dynamic_shapes=(None, Dim.DYNAMIC)), "m", OPS)


def test_a_write_to_a_diagonal() -> None:
    """torch's own decomposition of it writes in place, which its tracer refuses."""

    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y.diagonal().add_(1)
            return y

    assert "aten.diagonal_scatter.default" in str(imported(Shifted(), (torch.randn(3, 4),)).graph)


def test_a_failed_export_is_a_compile_error() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(CompileError, match=r"E-EXPORT-001\] torch\.export cannot export Branch"):
        export_module(Branch(), (torch.randn(3),))
    with pytest.raises(CompileError, match=r"pass an example of its inputs, args=\(x,\)"):
        export_module(Branch())


def test_a_structure_without_a_written_form_is_refused() -> None:
    class Maximum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.max(-1)

    with pytest.raises(CompileError, match=r"E-EXPORT-003.*return_types\.max") as caught:
        from_export(torch.export.export(Maximum(), (torch.ones(4, 3),)), "m", OPS)
    assert "tuple(x.max(-1))" in str(caught.value)


class Squeezes(nn.Module):
    def __init__(self, *dims: int, stride: int = 1) -> None:
        super().__init__()
        self.dims, self.stride = dims, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x[:: self.stride] * 2
        return y.squeeze(*self.dims) if self.dims else y.squeeze()


@pytest.mark.parametrize(
    ("declared", "dims", "stride", "least"),
    [
        *((d, *case) for d in (Dim.AUTO, Dim.DYNAMIC, Dim("b", min=1, max=64)) for case in [((), 1, 2), ((0,), 1, 2), ((-1,), 1, 1)]),
        (Dim.AUTO, (), 2, 3),  # x[::2]; with a named range that holds 1 and 2, export itself refuses this one
    ],
    ids=str,
)
def test_size_1_stays_out_where_squeeze_would_drop_it(declared: Any, dims: tuple[int, ...], stride: int, least: int) -> None:
    result = imported(Squeezes(*dims, stride=stride), (torch.randn(8, 4, 1),), {"x": {0: declared}})
    assert ranges(result)[0][1] == least
    for size in (least, 7):
        x = torch.randn(size, 4, 1)
        assert run(result, x)[0].shape == Squeezes(*dims, stride=stride)(x).shape


@pytest.mark.parametrize(
    "largest",
    [lambda x: x.amax(0), lambda x: x.argmin(0), lambda x: x.max(0)[0], lambda x: x.max(), lambda x: x.kthvalue(1, 0)[0]],
    ids=["amax", "argmin", "max.dim", "max", "kthvalue"],
)
def test_size_0_stays_out_where_a_largest_is_asked_for(largest: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return largest(x)  # type: ignore[no-any-return]

    assert ranges(imported(Model(), (torch.randn(4, 3),), {"x": {0: Dim("n", min=0, max=9)}})) == [("n", 1, 9)]


@pytest.mark.parametrize(
    ("taken", "least"),
    [
        (lambda x: x[:2] * 1, 2),
        (lambda x: x[-2:] + 1, 2),
        (lambda x: x[1] * 2, 2),
        (lambda x: x[-1] * 2, 1),
        (lambda x: x[:1].expand(x.shape[0], 3) * 1, 1),
        (lambda x: x.topk(2, 0)[0], 2),
        (lambda x: nn.functional.pad(x.t()[None], (1, 1), mode="reflect"), 2),
        (lambda x: x[torch.tensor([0, 0])], 1),
        (lambda x: x.index_select(0, torch.tensor([0])), 1),
        (lambda x: x.gather(0, torch.tensor([[0, 0, 0]])), 1),
        (lambda x: nn.functional.interpolate(x.t()[None], size=5, mode="linear", align_corners=True), 1),
        (lambda x: torch.cond(x.sum() > 0, lambda y: y[:2] * 2, lambda y: y[-2:] * 3, (x,)), 2),
        (lambda x: x.cumsum(0) - x.mean(), 0),
        (lambda x: torch.cat([x, x]) @ x.t(), 0),
    ],
    ids=[
        "x[:2]",
        "x[-2:]",
        "x[1]",
        "x[-1]",
        "expand",
        "topk",
        "reflect",
        "index",
        "index_select",
        "gather",
        "interpolate",
        "cond",
        "cumsum",
        "cat",
    ],
)
def test_sizes_at_which_an_operator_deviates_from_export_stay_out(taken: Any, least: int, caplog: pytest.LogCaptureFixture) -> None:
    """torch traces a size as 2 or more, and says that x[:2] has two rows at size 1, too: a kernel would read past the end."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return taken(x)  # type: ignore[no-any-return]

    result = imported(Model(), (torch.randn(5, 3),), {"x": {0: Dim("n", min=0, max=9)}})
    assert ranges(result) == [("n", least, 9)]
    assert ("n starts at" in caplog.text or "of n is left out" in caplog.text) == (least > 0)
    for size in {least, 2, 9}:
        x = torch.randn(size, 3)
        assert run(result, x)[0].shape == Model()(x).shape


def test_a_size_that_no_operator_takes_is_refused() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:2] * 1

    ep = export(Model(), (torch.randn(5, 3),), dynamic_shapes={"x": {0: Dim("n", min=0, max=9)}})
    (symbol,) = ep.range_constraints
    ep.range_constraints[symbol] = torch.utils._sympy.value_ranges.ValueRanges(0, 1)
    with pytest.raises(CompileError, match=r"E-EXPORT-004[\s\S]*aten.slice.Tensor at n = 1: eager's result is of size 1x3, export's of 2x3"):
        from_export(ep, "m", OPS)


def test_the_dimension_of_kthvalue_is_not_its_k() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.kthvalue(3, 1)[0]

    assert ranges(imported(Model(), (torch.randn(4, 6),), {"x": {0: Dim("n", min=0, max=9)}})) == [("n", 0, 9)]


def test_unregistered_namedtuples_are_refused() -> None:
    class Both(NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Both:
            return Both(x + 1, x * 2)

    with pytest.raises(CompileError, match=r"E-EXPORT-003[\s\S]*_register_namedtuple\(Both, serialized_type_name=\".*Both\"\)"):
        from_export(export(Model(), (torch.randn(2),)), "m", OPS)
