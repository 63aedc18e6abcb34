"""Random graphs over some forty operator rows, and the ways to run one: eager torch, the interpreters, each pass's loops.

A graph is a function of its seed. Floats stay of moderate size. A value is `exact` where every way of computing it gives the same bits
(no sum, no exponential on its way): only such values are compared, rounded, cast to integers or used as indices.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sealift import pipeline
from sealift.diag.steps import Steps
from sealift.ir.dim import Dim, Sym, dim, is_at_most, product
from sealift.ir.dtype import DType
from sealift.ir.graph.interpret import interpret as interpret_graph
from sealift.ir.graph.types import Constant, Graph, Node, TensorType, Value
from sealift.ir.graph.verify import row_types
from sealift.ir.graph.verify import verify as verify_graph
from sealift.ir.loop.interpret import interpret as interpret_loops
from sealift.ir.loop.interpret import numpy_dtype, round_bf16
from sealift.ir.loop.types import Loops
from sealift.ops import OPS
from sealift.ops.families import FAMILIES
from sealift.ops.lang import Builder, whole
from sealift.options import Options
from sealift.passes.lower_to_loops import lower_to_loops
from tests.ops.runner import TORCH_DTYPE, overload_of

Array = NDArray[Any]
NAIVE = {name: family.naive for name, family in FAMILIES.items()}
N, M = Sym("n", 0), Sym("m", 0, 64)
FLOATS = (DType.F32, DType.F32, DType.F32, DType.F64, DType.BF16)
LIMIT = 20.0  # values above this go through tanh before anything else
TOLERANCE = {DType.F32: 3e-5, DType.F64: 1e-10, DType.BF16: 4e-2, DType.F16: 5e-3}


@dataclass(frozen=True)
class Made:
    """A value, and what its elements are like. high: integers lie in [0, high), 0 where nothing is known."""

    value: Value
    exact: bool = True
    size: float = 4.0
    high: int = 0

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.value.type.shape

    @property
    def is_float(self) -> bool:
        return self.dtype.is_float


@dataclass
class GraphMaker:
    seed: int
    rng: random.Random = field(init=False)
    made: list[Made] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    # ---- leaves ----

    def extent(self) -> Dim:
        return dim(self.rng.choice([N, N, M, 1, 2, 3, 5, 8, 17]))

    def leaf(self, dtype: DType, shape: Sequence[Dim], high: int = 0, constant: bool = False) -> Made:
        kind = "w" if constant else "x"
        value = Value(f"{kind}{len(self.inputs) + len(self.constants)}", TensorType(dtype, tuple(shape)))
        if constant:
            self.constants.append(Constant(value, f"{value.name}.{high}", "parameter"))
        else:
            self.inputs.append(value)
        found = Made(value, True, 4.0, high)
        self.made.append(found)
        return found

    # ---- nodes ----

    def add(self, name: str, args: Mapping[str, Any], exact: bool = True, size: float = 4.0, high: int = 0) -> Made:
        """The operator's first result; the others are kept, too."""
        op = OPS[name]
        ordered = tuple((p.name, args[p.name]) for p in op.params if p.name in args)
        types = row_types(Node(op, ordered, ()), Builder, whole)
        outputs: list[Value] = []
        for k, (dtype, shape) in enumerate(types):
            order = None
            if len(shape) > 1 and self.rng.random() < 0.2:
                order = tuple(self.rng.sample(range(len(shape)), len(shape)))
            outputs.append(Value(f"{name.split('.')[1].lstrip('_')}{len(self.nodes)}" + (f"_{k}" if k else ""), TensorType(dtype, shape, order)))
        self.nodes.append(Node(op, ordered, tuple(outputs)))
        found = [Made(v, exact, size, high) for v in outputs]
        self.made += found
        return found[0]

    def pick(self, wanted: Callable[[Made], bool] = lambda _: True) -> Made | None:
        found = [m for m in self.made if wanted(m)]
        return self.rng.choice(found[-8:]) if found else None  # what is young is used most, so that chains grow long

    def floats(self, rank: int = 0, only: Sequence[DType] = FLOATS) -> Made:
        m = self.pick(lambda m: m.dtype in only and len(m.shape) >= rank)
        if m is None:
            return self.leaf(only[0], [self.extent() for _ in range(max(rank, 2))])
        return self.calm(m)

    def calm(self, m: Made) -> Made:
        return m if m.size <= LIMIT else self.add("aten.tanh.default", {"self": m.value}, False, 1.0)

    def axis(self, m: Made, wanted: Callable[[Dim], bool] = lambda _: True) -> int | None:
        found = [d for d, e in enumerate(m.shape) if wanted(e)]
        return self.rng.choice(found) if found else None

    def step(self) -> None:
        self.rng.choice(STEPS)(self)

    def graph(self, num_nodes: int) -> Graph:
        self.leaf(DType.F32, (dim(N), dim(8)))
        self.leaf(self.rng.choice([DType.F32, DType.F64, DType.BF16]), (dim(N), self.extent()))
        self.leaf(DType.I64, self.rng.choice([(dim(N),), (dim(N),), (dim(2), dim(N))]), high=5)
        self.leaf(DType.F32, (dim(M), dim(N), dim(3)))
        while len(self.nodes) < num_nodes:
            self.step()
        used = {v.name for n in self.nodes for v in n.inputs}
        results = [v for n in self.nodes for v in n.outputs]
        outputs = [v for v in results if v.name not in used][-4:]
        outputs += [v for v in results if v.name in used and self.rng.random() < 0.15][:2]
        return Graph(f"g{self.seed}", (N, M), tuple(self.inputs), tuple(self.constants), (), tuple(self.nodes), tuple(outputs))


# ---- steps: each adds a node or two --------------------------------------------------------------------------------------------------


def unary(g: GraphMaker) -> None:
    m = g.floats()
    name, size = g.rng.choice([("relu", m.size), ("sigmoid", 1), ("tanh", 1), ("silu", m.size), ("sin", 1), ("neg", m.size), ("abs", m.size)])
    g.add(f"aten.{name}.default", {"self": m.value}, m.exact and name in ("relu", "neg", "abs"), size)


def gelu(g: GraphMaker) -> None:
    m = g.floats()
    g.add("aten.gelu.default", {"self": m.value, **({"approximate": "tanh"} if g.rng.random() < 0.5 else {})}, False, m.size)


def binary(g: GraphMaker) -> None:
    a = g.floats()
    b = g.pick(lambda m: m.dtype is a.dtype and _broadcasts(a.shape, m.shape) and m.size <= LIMIT) or a
    name = g.rng.choice(["add", "sub", "mul"])
    size = a.size * b.size if name == "mul" else a.size + b.size
    first, second = (a, b) if g.rng.random() < 0.5 else (b, a)
    g.add(f"aten.{name}.Tensor", {"self": first.value, "other": second.value}, a.exact and b.exact, size)


def mixed(g: GraphMaker) -> None:
    a = g.floats()
    b = g.pick(lambda m: m.dtype is not a.dtype and _broadcasts(a.shape, m.shape) and m.size <= LIMIT and m.dtype is not DType.BOOL)
    if b is not None:
        g.add("aten.add.Tensor", {"self": a.value, "other": b.value}, a.exact and b.exact, a.size + b.size)


def scalar(g: GraphMaker) -> None:
    m = g.pick(lambda m: m.dtype is not DType.BOOL and m.size <= LIMIT)
    if m is None:
        return
    if m.is_float:
        g.add("aten.mul.Scalar", {"self": m.value, "other": g.rng.choice([0.5, -2, 3])}, m.exact, 3 * m.size)
    else:
        g.add("aten.add.Scalar", {"self": m.value, "other": g.rng.randrange(4)}, True, m.size + 4, m.high and m.high + 3)


def integers(g: GraphMaker) -> None:
    m = g.pick(lambda m: m.dtype in (DType.I64, DType.I32))
    if m is not None:
        name = g.rng.choice(["aten.remainder.Scalar", "aten.floor_divide.Scalar", "aten.bitwise_and.Scalar"])
        g.add(name, {"self": m.value, "other": 3}, True, 4, 4 if "remainder" in name or "and" in name else 0)


def compare(g: GraphMaker) -> None:
    a = g.pick(lambda m: m.exact and m.dtype is not DType.BOOL)
    if a is None:
        return
    b = g.pick(lambda m: m.exact and m.dtype is a.dtype and _broadcasts(a.shape, m.shape))
    if b is not None and b is not a:
        g.add("aten.lt.Tensor", {"self": a.value, "other": b.value})
    else:
        g.add("aten.gt.Scalar", {"self": a.value, "other": 0})


def where(g: GraphMaker) -> None:
    a = g.floats()
    condition = g.pick(lambda m: m.dtype is DType.BOOL and _broadcasts(a.shape, m.shape))
    if condition is None:
        condition = g.leaf(DType.BOOL, a.shape[g.rng.randrange(len(a.shape) + 1) :])
    b = g.pick(lambda m: m.dtype is a.dtype and m.size <= LIMIT and _broadcasts(a.shape, m.shape)) or a
    g.add("aten.where.self", {"condition": condition.value, "self": a.value, "other": b.value}, a.exact and b.exact, max(a.size, b.size))


def convert(g: GraphMaker) -> None:
    m = g.pick()
    assert m is not None
    targets = [DType.F32, DType.F64, DType.BF16] + ([DType.I32, DType.I64, DType.BOOL] if m.exact and m.size <= LIMIT else [])
    target = g.rng.choice(targets)
    if target is not m.dtype:
        high = m.high if target.is_int and not m.is_float else 0
        g.add("aten.to.dtype", {"self": m.value, "dtype": target}, m.exact, m.size, high)


def permute(g: GraphMaker) -> None:
    m = g.pick(lambda m: len(m.shape) > 1)
    if m is not None:
        g.add("aten.permute.default", {"self": m.value, "dims": tuple(g.rng.sample(range(len(m.shape)), len(m.shape)))}, m.exact, m.size, m.high)


def unsqueeze(g: GraphMaker) -> None:
    m = g.pick(lambda m: len(m.shape) < 4)
    if m is not None:
        g.add("aten.unsqueeze.default", {"self": m.value, "dim": g.rng.randrange(len(m.shape) + 1)}, m.exact, m.size, m.high)


def reshape(g: GraphMaker) -> None:
    m = g.pick(lambda m: len(m.shape) > 1)
    if m is None:
        return
    if g.rng.random() < 0.5:
        d = g.rng.randrange(len(m.shape) - 1)
        size = (*m.shape[:d], m.shape[d] * m.shape[d + 1], *m.shape[d + 2 :])
    else:
        split = g.axis(m, lambda e: e.is_const and e.value in (2, 8, 16, 6, 10))
        if split is None:
            return
        size = (*m.shape[:split], dim(2), m.shape[split] // 2, *m.shape[split + 1 :])
    g.add("aten.reshape.default", {"self": m.value, "shape": _numbers(size)}, m.exact, m.size, m.high)


def expand(g: GraphMaker) -> None:
    m = g.pick(lambda m: dim(1) in m.shape)
    if m is not None:
        size = tuple(dim(g.rng.choice([N, 1, 3])) if e == dim(1) else e for e in m.shape)
        g.add("aten.expand.default", {"self": m.value, "size": _numbers(size)}, m.exact, m.size, m.high)


def cut(g: GraphMaker) -> None:
    m = g.pick(lambda m: bool(m.shape))
    if m is None:
        return
    d = g.rng.randrange(len(m.shape))
    if m.shape[d].is_const and m.shape[d].value > 2:
        args: dict[str, Any] = {"self": m.value, "dim": d, "start": 1, "end": g.rng.choice([m.shape[d].value, -1]), "step": g.rng.choice([1, 2])}
    elif m.shape[d].is_const:
        return select(g)
    else:
        args = {"self": m.value, "dim": d, "start": 0, "end": g.rng.choice([2**62, 2]), "step": 1}
    g.add("aten.slice.Tensor", args, m.exact, m.size, m.high)


def select(g: GraphMaker) -> None:
    m = g.pick(lambda m: len(m.shape) > 1 and any(e.is_const for e in m.shape))
    if m is not None:
        d = g.axis(m, lambda e: e.is_const and e.value > 0)
        if d is not None:
            g.add("aten.select.int", {"self": m.value, "dim": d, "index": g.rng.choice([0, -1])}, m.exact, m.size, m.high)


def flip(g: GraphMaker) -> None:
    m = g.pick(lambda m: bool(m.shape))
    if m is not None:
        g.add("aten.flip.default", {"self": m.value, "dims": (g.rng.randrange(len(m.shape)),)}, m.exact, m.size, m.high)


def cat(g: GraphMaker) -> None:
    a = g.pick(lambda m: bool(m.shape))
    if a is None:
        return
    d = g.rng.randrange(len(a.shape))
    parts = [
        m for m in g.made if m.dtype is a.dtype and len(m.shape) == len(a.shape) and all(k == d or m.shape[k] == e for k, e in enumerate(a.shape))
    ]
    chosen = [a, *(g.rng.choice(parts) for _ in range(g.rng.randrange(1, 3)))]
    arg = tuple(m.value for m in chosen)
    g.add("aten.cat.default", {"tensors": arg, "dim": d}, all(m.exact for m in chosen), max(m.size for m in chosen))


def stack(g: GraphMaker) -> None:
    a = g.pick(lambda m: len(m.shape) < 3)
    if a is not None:
        b = g.pick(lambda m: m.dtype is a.dtype and m.shape == a.shape) or a
        d = g.rng.randrange(len(a.shape) + 1)
        g.add("aten.stack.default", {"tensors": (a.value, b.value), "dim": d}, a.exact and b.exact, max(a.size, b.size))


def pad(g: GraphMaker) -> None:
    m = g.pick(lambda m: bool(m.shape) and m.is_float)
    if m is not None:
        g.add("aten.constant_pad_nd.default", {"self": m.value, "pad": (g.rng.randrange(3), g.rng.randrange(2)), "value": 0.5}, m.exact, m.size)


def unbind(g: GraphMaker) -> None:
    m = g.pick(lambda m: len(m.shape) > 1 and any(e in (dim(2), dim(3)) for e in m.shape))
    if m is not None:
        g.add("aten.unbind.int", {"self": m.value, "dim": g.axis(m, lambda e: e in (dim(2), dim(3)))}, m.exact, m.size, m.high)


def reduce(g: GraphMaker) -> None:
    m = g.floats(1)
    d = g.rng.randrange(len(m.shape))
    keep = g.rng.random() < 0.5
    if m.shape[d].is_const and m.shape[d].value > 0 and g.rng.random() < 0.5:
        g.add(f"aten.{g.rng.choice(['amax', 'amin'])}.default", {"self": m.value, "dim": (d,), "keepdim": keep}, m.exact, m.size)
    else:
        g.add("aten.sum.dim_IntList", {"self": m.value, "dim": (d,), "keepdim": keep}, False, m.size * 40)


def mean(g: GraphMaker) -> None:
    m = g.floats(1)
    d = g.axis(m, lambda e: e.is_const and e.value > 1)
    if d is not None:
        if g.rng.random() < 0.5:
            g.add("aten.mean.dim", {"self": m.value, "dim": (d,), "keepdim": True}, False, m.size)
        else:
            g.add("aten.var.correction", {"self": m.value, "dim": (d,), "correction": 1}, False, m.size**2)


def count(g: GraphMaker) -> None:
    m = g.pick(lambda m: m.dtype is DType.BOOL and bool(m.shape))
    if m is not None:
        d = g.rng.randrange(len(m.shape))
        if g.rng.random() < 0.5:
            g.add("aten.sum.dim_IntList", {"self": m.value, "dim": (d,)}, True, 40)
        else:
            g.add(f"aten.{g.rng.choice(['any', 'all'])}.dim", {"self": m.value, "dim": d})


def arg_reduce(g: GraphMaker) -> None:
    m = g.pick(lambda m: m.exact and m.dtype is not DType.BOOL and any(e.is_const and e.value > 0 for e in m.shape))
    if m is not None:
        d = g.axis(m, lambda e: e.is_const and e.value > 0)
        assert d is not None
        if g.rng.random() < 0.5:
            g.add("aten.argmax.default", {"self": m.value, "dim": d, "keepdim": g.rng.random() < 0.5}, True, 4, m.shape[d].value)
        else:
            g.add("aten.max.dim", {"self": m.value, "dim": d}, True, m.size)


def cumsum(g: GraphMaker) -> None:
    m = g.floats(1, (DType.F32, DType.F64))
    g.add("aten.cumsum.default", {"self": m.value, "dim": g.rng.randrange(len(m.shape))}, False, m.size * 40)


def softmax(g: GraphMaker) -> None:
    m = g.floats(1)
    g.add("aten.softmax.int", {"self": m.value, "dim": g.rng.randrange(len(m.shape))}, False, 1)


def layer_norm(g: GraphMaker) -> None:
    m = g.floats(1, (DType.F32,))
    last = m.shape[-1]
    if not last.is_const or last.value < 2:
        return
    args: dict[str, Any] = {"input": m.value, "normalized_shape": (last.value,)}
    if g.rng.random() < 0.6:
        args |= {k: g.leaf(DType.F32, (last,), constant=True).value for k in ("weight", "bias")}
    g.add("aten.layer_norm.default", args, False, 20)


def linear(g: GraphMaker) -> None:
    m = g.floats(2, (DType.F32,))
    k = m.shape[-1]
    if not k.is_const or k.value == 0:
        return
    out = g.rng.choice([1, 3, 8, 17])
    args = {"input": m.value, "weight": g.leaf(DType.F32, (dim(out), k), constant=True).value}
    if g.rng.random() < 0.7:
        args["bias"] = g.leaf(DType.F32, (dim(out),), constant=True).value
    h = g.add("aten.linear.default", args, False, m.size * 4 * k.value)
    if g.rng.random() < 0.6:  # something for the epilogues
        h = g.add(f"aten.{g.rng.choice(['relu', 'gelu', 'silu', 'sigmoid', 'tanh'])}.default", {"self": h.value}, False, h.size)
    residual = g.pick(lambda r: r.dtype is DType.F32 and r.shape == h.shape and r is not h)
    if residual is not None and g.rng.random() < 0.5:
        h = g.add("aten.add.Tensor", {"self": residual.value, "other": h.value}, False, h.size + residual.size)
    g.calm(h)


def matmul(g: GraphMaker) -> None:
    a = g.floats(2, (DType.F32,))
    b = g.pick(lambda m: m.dtype is DType.F32 and m.size <= LIMIT and len(m.shape) == len(a.shape) and m.shape[:-2] == a.shape[:-2])
    if b is None or b.shape[-1] != a.shape[-1]:
        b = a
    turned = g.add("aten.transpose.int", {"self": b.value, "dim0": -2, "dim1": -1}, b.exact, b.size)
    g.calm(g.add("aten.matmul.default", {"self": a.value, "other": turned.value}, False, a.size * b.size * 40))


def lookup(g: GraphMaker) -> None:
    index = g.pick(lambda m: m.dtype is DType.I64 and 0 < m.high <= 17 and len(m.shape) < 3)
    if index is None:
        return
    source = g.pick(lambda m: 1 <= len(m.shape) <= 3 and m.shape[0].is_const and m.shape[0].value >= index.high)
    if source is None or g.rng.random() < 0.3:
        source = g.leaf(DType.F32, (dim(17), dim(g.rng.choice([1, 3, 8]))), constant=True)
    if len(source.shape) == 2 and source.value.name.startswith("w"):
        g.add("aten.embedding.default", {"weight": source.value, "indices": index.value}, source.exact, source.size, source.high)
    elif len(index.shape) == 1:
        g.add("aten.index_select.default", {"self": source.value, "dim": 0, "index": index.value}, source.exact, source.size, source.high)
    else:
        g.add("aten.index.Tensor", {"self": source.value, "indices": (index.value,)}, source.exact, source.size, source.high)


def gather(g: GraphMaker) -> None:
    index = g.pick(lambda m: m.dtype is DType.I64 and m.high > 0 and bool(m.shape))
    if index is None:
        return
    d = g.rng.randrange(len(index.shape))

    def fits(m: Made) -> bool:
        return len(m.shape) == len(index.shape) and all(
            (e.is_const and e.value >= index.high) if k == d else is_at_most(index.shape[k], e) for k, e in enumerate(m.shape)
        )

    source = g.pick(fits)
    if source is not None:
        g.add("aten.gather.default", {"self": source.value, "dim": d, "index": index.value}, source.exact, source.size, source.high)


STEPS: list[Callable[[GraphMaker], None]] = [
    unary, gelu, binary, binary, binary, mixed, scalar, integers, compare, where, convert, permute, unsqueeze, reshape, expand, cut, select,
    flip, cat, cat, stack, pad, unbind, reduce, reduce, mean, count, arg_reduce, cumsum, softmax, layer_norm, linear, linear, matmul,
    lookup, lookup, gather,
]  # fmt: skip


def _broadcasts(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return all(x == y or dim(1) in (x, y) for x, y in zip(reversed(a), reversed(b)))


def _numbers(size: Sequence[Dim]) -> tuple[Dim | int, ...]:
    return tuple(e.value if e.is_const else e for e in size)


def random_graph(seed: int, num_nodes: int | None = None) -> Graph:
    maker = GraphMaker(seed)
    graph = maker.graph(num_nodes or maker.rng.randrange(3, 14))
    verify_graph(graph, Builder, whole)
    return graph


# ---- running -------------------------------------------------------------------------------------------------------------------------


def random_inputs(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs by name and constants by fqn, as the interpreter holds them. Floats are multiples of 1/8, so that ties are common."""
    rng = np.random.default_rng(seed)

    def array(v: Value, high: int) -> Array:
        shape = [d.evaluate(sizes) for d in v.type.shape]
        if v.type.dtype.is_float:
            value = (rng.integers(-16, 17, shape) / 8).astype(numpy_dtype(v.type.dtype))
            return round_bf16(value) if v.type.dtype is DType.BF16 else np.asarray(value)
        return rng.integers(0, 2 if v.type.dtype is DType.BOOL else high, shape).astype(numpy_dtype(v.type.dtype))

    return {v.name: array(v, 5) for v in graph.inputs}, {c.fqn: array(c.value, 5) * np.float32(0.5) for c in graph.constants}


def run_interpreter(graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array]) -> list[Array]:
    return [np.asarray(a) for a in interpret_graph(graph, inputs, weights, Builder, whole, NAIVE)]


def run_loops(loops: Loops, graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array]) -> list[Array]:
    return [np.asarray(a) for a in interpret_loops(loops, {**inputs, **by_name(graph, weights)}, NAIVE)]


def by_name(graph: Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    return {c.value.name: weights[c.fqn] for c in graph.constants}


def run_eager(graph: Graph, inputs: Mapping[str, Array], weights: Mapping[str, Array], sizes: Mapping[str, int]) -> list[Array]:
    env: dict[str, torch.Tensor] = {}
    for v, a in [*((v, inputs[v.name]) for v in graph.inputs), *((c.value, weights[c.fqn]) for c in graph.constants)]:
        env[v.name] = torch.from_numpy(np.ascontiguousarray(a).reshape(a.shape)).to(TORCH_DTYPE[v.type.dtype])

    def given(arg: Any) -> Any:
        match arg:
            case Value():
                return env[arg.name]
            case Dim():
                return arg.evaluate(sizes)
            case DType():
                return TORCH_DTYPE[arg]
            case tuple():
                return [given(a) for a in arg]
        return arg

    for node in graph.nodes:
        result = overload_of(node.op.name)(**{name: given(arg) for name, arg in node.args})
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        env.update({v.name: t for v, t in zip(node.outputs, results, strict=True)})
    found = [env[v.name] for v in graph.outputs if v is not None]
    return [(t.float() if t.dtype is torch.bfloat16 else t).numpy() for t in found]


class Recorder(Steps):
    """Steps that keep what every step gives."""

    def __init__(self) -> None:
        base = pipeline.new_steps(Options())
        super().__init__(base.options, base.verify, base.dumps)
        self.results: list[tuple[str, Loops]] = []

    def __call__(self, name: str, fn: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().__call__(name, fn, first, *args, **kwargs)
        self.results.append((name, result))
        return result


def loops_after_each_pass(graph: Graph) -> list[tuple[str, Loops]]:
    recorder = Recorder()
    pipeline.optimize(recorder("lower", lower_to_loops, graph), recorder)
    return recorder.results


def assert_close(got: Sequence[Array], wanted: Sequence[Array], graph: Graph, note: str, slack: float = 1.0) -> None:
    outputs = [v for v in graph.outputs if v is not None]
    for v, a, b in zip(outputs, got, wanted, strict=True):
        where = f"{note}: output %{v.name}\n{graph}"
        assert a.shape == b.shape, f"{a.shape}, not {b.shape}, in {where}"
        if not v.type.dtype.is_float:
            assert np.array_equal(a, b), f"{a}\nnot {b}\n{where}"
            continue
        half = any(value.type.dtype is DType.BF16 for n in graph.nodes for value in (*n.inputs, *n.outputs))
        tolerance = slack * (TOLERANCE[DType.BF16] if half else TOLERANCE[v.type.dtype if _all_double(graph) else DType.F32])
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=1.0))
        with np.errstate(all="ignore"):
            fine = np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        assert fine.all(), f"{a[~fine][:5]}\nnot {b[~fine][:5]}\n{where}"


def _all_double(graph: Graph) -> bool:
    return all(v.type.dtype is not DType.F32 for n in graph.nodes for v in (*n.inputs, *n.outputs))


def total_elements(graph: Graph, sizes: Mapping[str, int]) -> int:
    return max(product(v.type.shape).evaluate(sizes) for n in graph.nodes for v in n.outputs)
