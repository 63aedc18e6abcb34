"""The invariants of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product as cartesian
from typing import Any

from sealift.diag.errors import CompileError, InternalError
from sealift.ir.dim import Dim, Sym
from sealift.ir.dtype import DType
from sealift.ir.graph.text import declaration, node_line
from sealift.ir.graph.types import Arg, Graph, Node, TensorType, Value, values_in
from sealift.ir.loop.expr import Buffer
from sealift.ir.text import shape_text

CONTEXT_LINES = 10  # of the text, on either side of the line that offends

MakeBuilder = Callable[[str], Any]  # sealift.ops.lang.Builder; the IR does not know the operators
MakeTensor = Callable[[Buffer], Any]  # sealift.ops.lang.whole


def verify(g: Graph, builder: MakeBuilder | None = None, tensor: MakeTensor | None = None) -> None:
    """Raises InternalError with the offending line and ten lines either side unless

    1. every input, constant, state and node result has a name of its own;
    2. a value is defined before it is used, and used with the type it was defined with;
    3. a node's arguments are its operator's parameters, in their order, and none that is required is missing;
    4. sizes hold no symbol but `g.sizes`, whose names are distinct and whose bounds are lo <= hi;
    5. an order is a permutation of the dimensions;
    6. outputs and updates of states and inputs are defined, an update has its state's or input's type, an input has one at most, and
       names are distinct and one per output;
    7. a graph among a node's arguments is one by these rules, with the same sizes;
    8. with `builder` and `tensor` given: a node's types are those its row gives for its arguments. Sizes are compared as
       expressions, and where these differ, by their values: export may write the same size in another way.
    """
    checker = _Checker(g)
    checker.sizes()
    checker.values()
    checker.ends()
    if builder is not None and tensor is not None:
        for node in g.nodes:
            checker.row(node, builder, tensor)


class _Checker:
    def __init__(self, g: Graph) -> None:
        self.g = g
        self.known: dict[str, Value] = {}
        self.symbols = set(g.sizes)

    def fail(self, number: int, message: str, marker: str) -> InternalError:
        return broken(f"graph {self.g.name}", number, message, str(self.g), marker)

    def sizes(self) -> None:
        names = [s.name for s in self.g.sizes]
        for s in self.g.sizes:
            if names.count(s.name) > 1:
                raise self.fail(4, f"two sizes are called {s.name}", "graph ")
            if not isinstance(s.hi, int) or s.lo > s.hi:
                raise self.fail(4, f"size {s.name} has bounds {s.lo}..{s.hi}", "graph ")

    def define(self, v: Value) -> None:
        line = declaration(v)
        if v.name in self.known:
            raise self.fail(1, f"%{v.name} is defined twice", line)
        for d in v.type.shape:
            stray = [s for s in d.symbols if s not in self.symbols]
            if stray:
                raise self.fail(4, f"%{v.name} has size {d}, and {stray[0]} is no size of the graph", line)
        if v.type.order is not None and sorted(v.type.order) != list(range(len(v.type.shape))):
            raise self.fail(5, f"%{v.name}: order {v.type.order} for {len(v.type.shape)} dimensions", line)
        self.known[v.name] = v

    def use(self, v: Value, marker: str) -> None:
        if v.name not in self.known:
            raise self.fail(2, f"%{v.name} is used before it is defined", marker)
        if self.known[v.name] != v:
            raise self.fail(2, f"%{v.name} is {self.known[v.name].type}, and used as {v.type}", marker)

    def values(self) -> None:
        for v in (*self.g.inputs, *(c.value for c in self.g.constants), *(s.value for s in self.g.states)):
            self.define(v)
        for node in self.g.nodes:
            line = node_line(node)
            for _, arg in node.args:
                for v in values_in(arg):
                    self.use(v, line)
                for d in _dims_in(arg):
                    stray = [s for s in d.symbols if s not in self.symbols]
                    if stray:
                        raise self.fail(4, f"argument {d}: {stray[0]} is no size of the graph", line)
            self.arguments(node, line)
            for inner in node.graphs:
                if inner.sizes != self.g.sizes:
                    raise self.fail(7, f"graph {inner.name} has sizes of its own", line)
                verify(inner)
            for v in node.outputs:
                self.define(v)

    def arguments(self, node: Node, line: str) -> None:
        parameters = [p.name for p in node.op.params]
        given = [name for name, _ in node.args]
        unknown = [name for name in given if name not in parameters]
        if unknown:
            raise self.fail(3, f"{node.op.name} has no parameter {unknown[0]!r}", line)
        if given != sorted(given, key=parameters.index) or len(set(given)) != len(given):
            raise self.fail(3, f"arguments of {node.op.name} are out of order", line)
        for p in node.op.params:
            if p.required and p.name not in given:
                raise self.fail(3, f"{node.op.name} lacks {p.name!r}", line)

    def ends(self) -> None:
        for s in self.g.states:
            self.use(s.update, f"= {s.fqn!r}".replace("'", '"'))
            if (s.update.type.dtype, s.update.type.shape) != (s.value.type.dtype, s.value.type.shape):
                raise self.fail(6, f"state %{s.value.name} is {s.value.type}, its update {s.update.type}", declaration(s.value))
        for u in self.g.input_updates:
            self.use(u.update, declaration(u.value))
            if u.value not in self.g.inputs or sum(other.value == u.value for other in self.g.input_updates) > 1:
                raise self.fail(6, f"%{u.value.name} is no input, or changes twice", declaration(u.value))
            if (u.update.type.dtype, u.update.type.shape) != (u.value.type.dtype, u.value.type.shape):
                raise self.fail(6, f"input %{u.value.name} is {u.value.type}, its update {u.update.type}", declaration(u.value))
        for v in self.g.outputs:
            if v is not None:
                self.use(v, "return")
        names = self.g.output_names
        if names and (len(names) != len(self.g.outputs) or len(set(names)) != len(names)):
            raise self.fail(6, f"{len(names)} names ({', '.join(names)}) for {len(self.g.outputs)} outputs", "return")

    def row(self, node: Node, builder: MakeBuilder, tensor: MakeTensor) -> None:
        line = node_line(node)
        try:
            types = row_types(node, builder, tensor)
        except CompileError:
            raise
        except (NotImplementedError, IndexError):
            return  # refused arguments: the user's to act on, and said by the lowering
        if len(types) != len(node.outputs):
            raise self.fail(8, f"{node.op.name}'s row gives {len(types)} results, not {len(node.outputs)}", line)
        for v, (dtype, shape) in zip(node.outputs, types, strict=True):
            if dtype is not v.type.dtype or len(shape) != len(v.type.shape):
                raise self.fail(8, f"{node.op.name}'s row gives {dtype}{shape_text(shape)} for %{v.name}: {v.type}", line)
            for d, (given, declared) in enumerate(zip(shape, v.type.shape, strict=True)):
                if not may_be_equal(given, declared):
                    raise self.fail(8, f"{node.op.name}'s row gives %{v.name} size {given} in dimension {d}, not {declared}", line)


def row_types(node: Node, builder: MakeBuilder, tensor: MakeTensor) -> list[tuple[DType, tuple[Dim, ...]]]:
    """What the node's row makes of its arguments, by lowering it."""
    result = node.op.lower(builder("verify"), **{name: _lowered_arg(arg, tensor) for name, arg in node.args})
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [(t.dtype, t.shape) for t in results]


def buffer_of(name: str, t: TensorType, kind: str = "temp") -> Buffer:
    return Buffer(name, t.dtype, t.shape, kind, t.order)


def _lowered_arg(arg: Arg, tensor: MakeTensor) -> Any:
    if isinstance(arg, Value):
        return tensor(buffer_of(arg.name, arg.type, "input"))
    if isinstance(arg, tuple):
        return tuple(_lowered_arg(a, tensor) for a in arg)
    return arg


def _dims_in(arg: Arg) -> Iterator[Dim]:
    if isinstance(arg, Dim):
        yield arg
    elif isinstance(arg, tuple):
        for a in arg:
            yield from _dims_in(a)


def may_be_equal(a: Dim, b: Dim) -> bool:
    """Equal as expressions, or of equal value somewhere among sample sizes."""
    if a == b:
        return True
    symbols = sorted(a.symbols | b.symbols, key=str)
    for values in cartesian(*(_samples(s) for s in symbols)):
        at: Mapping[str, int] = {s.name: v for s, v in zip(symbols, values, strict=True)}
        try:
            if a.evaluate(at) == b.evaluate(at):
                return True
        except ZeroDivisionError:
            continue
    return False


def _samples(s: Sym) -> list[int]:
    hi = s.hi if isinstance(s.hi, int) else s.hi.upper
    wanted = [max(s.lo, 1) + k for k in (0, 1, 6)] + [24, 64]
    return sorted({min(max(v, s.lo), hi) for v in wanted})


def broken(what: str, number: int, message: str, text: str, marker: str) -> InternalError:
    """An invariant that does not hold, with the line that has `marker` and those around it."""
    lines = text.splitlines()
    stripped = marker.strip()
    at = next((k for k, line in enumerate(lines) if stripped and stripped in line), 0)
    first, last = max(0, at - CONTEXT_LINES), min(len(lines), at + CONTEXT_LINES + 1)
    shown = [f"  {'->' if k == at else '  '} {lines[k]}" for k in range(first, last)]
    return InternalError("\n".join([f"{what}: invariant {number}: {message}", *shown]))
