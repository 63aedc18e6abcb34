"""Text forms: parse(str(x)) == x for random graphs and loops; what they look like; errors name the line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealift.diag.loc import Loc, Place
from sealift.ir.dim import Sym, dim, dim_min
from sealift.ir.dtype import DType
from sealift.ir.graph.text import parse_graph
from sealift.ir.graph.types import Constant, Graph, Node, OpDef, Param, State, TensorType, Value
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Const, Expr, Index, Inside, Load, Op, apply, cast
from sealift.ir.loop.prim import TWO_OPERANDS, ArgCombine, Combine, Prim
from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Reduce, Scan, Stage

B, S = Sym("batch", 1, 64), Sym("seq", 0)
SIZES = [dim(1), dim(4), dim(B), dim(S), 2 * dim(B) + 1, dim(S) // 2, (dim(S) + 1) % 3, dim_min(dim(B), dim(S)), dim(B) * dim(S)]

names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True) | st.sampled_from(["batch.ids", "f32", "none", "order", 'a "b"', "x y", "0", "map"])
sizes = st.sampled_from(SIZES)
shapes = st.lists(sizes, max_size=3).map(tuple)
PATHS = ["model.py", "/a b/c.py", "pkg/x.py", "", "C:\\m.py"]
places = st.builds(
    lambda path, line, module, code: Place(path, line if path else 0, module, code and path and f"code {path}:{line}"),
    st.sampled_from(PATHS),
    st.integers(1, 9),
    st.sampled_from(["", "layer.0", "a module"]),
    st.booleans(),
).filter(lambda p: bool(p.path or p.module))
places = places.map(lambda p: p if p.code else Place(p.path, p.line + 100 if p.path else 0, p.module))  # one code for a line
locs = st.lists(places, max_size=2).map(lambda p: Loc(tuple(p)))


@st.composite
def types(draw: st.DrawFn) -> TensorType:
    shape = draw(shapes)
    order = draw(st.none() | st.permutations(range(len(shape))).map(tuple)) if len(shape) > 1 else None
    return TensorType(draw(st.sampled_from(list(DType))), shape, order)


OPS = {
    "aten.one.default": OpDef("aten.one.default", (Param("self"), Param("other"), Param("extra", 0, False)), lambda *_: None),
    "aten.two.default": OpDef("aten.two.default", (Param("tensors"), Param("sizes"), Param("mode")), lambda *_: None),
}
plain_args = st.recursive(
    st.one_of(
        sizes,
        st.integers(),
        st.floats(allow_nan=False),
        st.just(math.nan),
        st.booleans(),
        st.none(),
        st.text(max_size=5),
        st.sampled_from(list(DType)),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    taken: set[str] = set()

    def value() -> Value:
        name = draw(names.filter(lambda n: n not in taken))
        taken.add(name)
        return Value(name, draw(types()))

    inputs = tuple(value() for _ in range(draw(st.integers(0, 2))))
    constants = tuple(
        Constant(value(), draw(names), draw(st.sampled_from(["parameter", "buffer", "tensor"]))) for _ in range(draw(st.integers(0, 2)))
    )
    state_values = [value() for _ in range(draw(st.integers(0, 1)))]
    known = [*inputs, *(c.value for c in constants), *state_values]
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(list(OPS.values())))
        some = st.sampled_from(known) if known else st.none()
        args = tuple((p.name, draw(some | plain_args | st.lists(some, max_size=2).map(tuple))) for p in op.params if draw(st.booleans()))
        outputs = tuple(value() for _ in range(draw(st.integers(0, 2))))
        nodes.append(Node(op, args, outputs, draw(locs)))
        known += outputs
    outputs_of_graph = tuple(draw(st.lists(st.sampled_from(known) | st.none(), max_size=3))) if known else ()
    output_names = tuple(draw(st.permutations(["y", "none", "a.b"]))[: len(outputs_of_graph)]) if draw(st.booleans()) else ()
    states = tuple(State(v, v.name, draw(st.sampled_from(known))) for v in state_values)
    return Graph(draw(names), (B, S), inputs, constants, states, tuple(nodes), outputs_of_graph, output_names, draw(st.text(max_size=4)), '[1, "x"]')


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_graph_round_trips(g: Graph) -> None:
    text = str(g)
    again = parse_graph(text, OPS)
    assert again == g
    assert str(again) == text


@st.composite
def expressions(draw: st.DrawFn, buffers: list[Buffer], axes: tuple[Axis, ...], depth: int = 3) -> Expr:
    dims = st.sampled_from([*(a.dim for a in axes), *(a.dim * 2 + 1 for a in axes), dim(0), dim(B) - 1, *((a.dim - 1) // 2 for a in axes)])
    kind = draw(st.sampled_from(["const", "index", "inside", "load", "op", "op", "shared"])) if depth else draw(st.sampled_from(["const", "index"]))
    dtype = draw(st.sampled_from([d for d in DType if d is not DType.C64]))

    def bounds() -> tuple[Bound, ...]:
        return tuple(Bound(draw(dims), dim(0), draw(sizes)) for _ in range(draw(st.integers(0, 2))))

    def number(of: DType) -> bool | float:
        if of is DType.BOOL:
            return draw(st.booleans())
        return draw(st.integers(-5, 300)) if of.is_int else draw(st.floats(allow_nan=False) | st.sampled_from([-0.0, math.inf, math.nan]))

    match kind:
        case "const":
            return Const(number(dtype), dtype)
        case "index":
            return Index(draw(dims), draw(st.sampled_from([DType.I64, DType.I32])))
        case "inside":
            return Inside(bounds())
        case "load":
            buffer = draw(st.sampled_from(buffers))
            index = tuple(
                CheckIndex(draw(expressions(buffers, axes, depth - 1)), d) if draw(st.integers(0, 3)) == 0 else draw(dims) for d in buffer.shape
            )
            guard = bounds()
            other = number(buffer.dtype if buffer.dtype is not DType.C64 else DType.F32) if guard else 0
            return Load(buffer, index, guard, 0 if isinstance(other, float) and math.isnan(other) else other)
        case "shared":
            part = draw(expressions(buffers, axes, depth - 1))
            return apply(Prim.ADD, part, apply(Prim.MUL, part, part))
    first = draw(expressions(buffers, axes, depth - 1))
    prim = draw(st.sampled_from(list(Prim)))
    if prim is Prim.CAST:
        return Op(Prim.CAST, (first,), dtype)
    if prim is Prim.SELECT:
        return apply(prim, cast(first, DType.BOOL), first, cast(draw(expressions(buffers, axes, depth - 1)), first.dtype))
    if prim in TWO_OPERANDS:
        return apply(prim, first, cast(draw(expressions(buffers, axes, depth - 1)), first.dtype))
    return apply(prim, first)


@st.composite
def stages(draw: st.DrawFn, buffers: list[Buffer]) -> Stage:
    out = draw(st.sampled_from(buffers))
    axes = tuple(Axis(f"i{k}", draw(sizes)) for k in range(draw(st.integers(0, 2))))
    reduced = tuple(Axis(f"r{k}", draw(sizes)) for k in range(draw(st.integers(0, 2))))
    match draw(st.sampled_from(["map", "reduce", "scan", "call"])):
        case "map":
            value = draw(expressions(buffers, axes))
            index = tuple(draw(st.sampled_from([*(a.dim for a in axes), dim(0), CheckIndex(value, dim(4))])) for _ in out.shape)
            return Map(out, axes, index, value, draw(st.none() | st.sampled_from(list(Combine))))
        case "reduce":
            combine = draw(st.sampled_from([*Combine, *ArgCombine]))
            return Reduce(out, axes, reduced, combine, draw(expressions(buffers, (*axes, *reduced))))
        case "scan" if axes:
            return Scan(out, axes, draw(st.sampled_from(axes)), draw(st.sampled_from(list(Combine))), draw(expressions(buffers, axes)))
    attrs = tuple(sorted(draw(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), plain_args, max_size=2)).items()))
    operands = tuple((role, Operand(axes, Load(out, tuple(dim(0) for _ in out.shape)))) for role in ("a", "map", "kernel")[: draw(st.integers(0, 3))])
    return Call("gemm", tuple(draw(st.lists(st.sampled_from(buffers), max_size=2))), operands, attrs)


@st.composite
def all_loops(draw: st.DrawFn) -> Loops:
    made: list[Buffer] = []
    for name in draw(st.lists(names, min_size=3, max_size=6, unique=True)):
        t = draw(types())
        made.append(Buffer(name, t.dtype, t.shape, "temp", t.order, draw(st.integers(0, len(t.shape)))))
    inputs = (Buffer(made[0].name, made[0].dtype, made[0].shape, "input"),)
    output = Buffer(made[1].name, made[1].dtype, made[1].shape, "output", made[1].order)
    kinds = st.sampled_from(["weight", "state", "temp", "row"])
    rest = tuple(Buffer(b.name, b.dtype, b.shape, draw(kinds), b.order, b.row_dims) for b in made[2:])
    buffers = [*inputs, output, *rest]
    kernels = tuple(
        Kernel(
            draw(names),
            tuple(draw(st.lists(stages(buffers), min_size=1, max_size=3))),
            draw(st.integers(0, 2)),
            ("aten.add.Tensor", "aten.relu.default")[: draw(st.integers(0, 2))],
            draw(locs),
        )
        for _ in range(draw(st.integers(1, 2)))
    )
    outputs = (output, *draw(st.lists(st.none() | st.sampled_from([*inputs, output]), max_size=2)))
    updates = ((rest[0], output),) if draw(st.booleans()) else ()
    return Loops(draw(names), (B, S), inputs, outputs, rest, kernels, updates)


@settings(max_examples=100, deadline=None)
@given(all_loops())
def test_loops_round_trip(loops: Loops) -> None:
    text = str(loops)
    again = parse_loops(text)
    assert again == loops
    assert str(again) == text


GRAPH = """\
graph mlp(batch: 1..64, seq: 0..)
  input %x: f32[batch, 2*seq]
  parameter %w: f32[4, 2*seq] order(1, 0) = "proj.weight"
  state %count: i64[] = "count" -> %one_1
{
  %one: f32[batch, 4] = aten.one.default(%x, %w, extra=-0.5)    // model.py:31 proj; model.py:32
  %one_1: i64[] = aten.one.default(%count, other=1)
  %a: f32[batch], %b: bool[batch] = aten.two.default(tensors=[%one, %x], sizes=[batch, dim(4), -1], mode="tanh")
  return y=%a, none=none, z=%a
}
in_spec "*"
source model.py:31 "h = self.proj(x)"
"""


def test_a_graph_reads_as_expected() -> None:
    assert str(parse_graph(GRAPH, OPS)) == GRAPH


LOOPS = """\
loops softmax(batch: 1..64)
inputs
  input %x: f32[batch, 64]
buffers
  weight %w: f32[64, 64]
  temp %mm: f32[batch, 64]
  row %top: f32[batch] row_dims(1)
outputs
  output %y: f32[batch, 64]
  %x
  none
kernel k0_linear [aten.linear.default]  // model.py:31 proj
  call gemm(%mm) scale=0.5, transpose_b=true
    a[k0 < batch, k1 < 64] = %x[k0, k1]
    b[k2 < 64, k3 < 64] = %w[k2, k3]
kernel k1_softmax rows 1 [aten._softmax.default]
  reduce max %top for i0 < batch over r0 < 64
    = %mm[i0, r0]
  map %y[i0, i1] for i0 < batch, i1 < 64
    $0 = sub(%mm[i0, i1 - 1] where(1 <= i1 < 64) else 0.0, %top[i0])
    = mul($0, cast.f32(exp.f64(cast.f64($0))))
"""


def test_loops_read_as_expected() -> None:
    assert str(parse_loops(LOOPS)) == LOOPS.replace("exp.f64(", "exp(")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("%x, %w", "%x, %v"), "line 6.*a value that is defined before"),
        (("aten.two", "aten.three"), "line 8.*an operator of the table"),
        (("f32[batch, 4]", "f99[batch, 4]"), "line 6.*a dtype"),
        (("[batch, 2*seq]", "[batch, 2*other]"), "line 2.*unknown symbol 'other'"),
        (("}", ""), "line"),
    ],
)
def test_errors_name_the_line(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        parse_graph(GRAPH.replace(*change, 1), OPS)
