"""The graph's text form; parse_graph(str(g), ops) == g.

    graph mlp(batch: 1..64)
      input %x: f32[batch, 64]
      parameter %w: f32[64, 64] = "proj.weight"
      state %count: i64[] = "count" -> %add
    {
      %linear: f32[batch, 64] = aten.linear.default(%x, %w)       // model.py:31 proj
      %gelu: f32[batch, 64] = aten.gelu.default(%linear, approximate="tanh")  // model.py:32
      return y=%gelu, z=none
    }
    source model.py:31 "h = self.proj(x)"

The leading tensors among a node's arguments stand without their parameter's name. A graph among them (a branch, a loop's body) is
referred to as @name, and stands before the graph that it is part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sealift.ir.dim import Dim, dim
from sealift.ir.graph.types import Arg, Constant, Graph, InputUpdate, Node, OpDef, State, TensorType, Value
from sealift.ir.text import (
    Cursor,
    arg_text,
    name_text,
    quoted,
    read_arg,
    read_loc,
    read_size,
    read_sources,
    read_type,
    size_text,
    source_lines,
    with_loc,
    with_sources,
)

LOC_COLUMN = 60  # where locations start, on lines that are no longer
_KINDS = ("parameter", "buffer", "tensor")


def print_graph(g: Graph) -> str:
    return "".join(_graph_text(s) for s in subgraphs_of(g)) + _graph_text(g, sources=True)


def subgraphs_of(g: Graph) -> list[Graph]:
    """Every graph among the nodes' arguments, theirs included, each before the one it is part of."""
    found: list[Graph] = []
    for n in g.nodes:
        for inner in n.graphs:
            found += [*subgraphs_of(inner), inner]
    return found


def _graph_text(g: Graph, sources: bool = False) -> str:
    lines = [f"graph {name_text(g.name)}({', '.join(size_text(s) for s in g.sizes)})"]
    becomes = {u.value.name: f" -> {value_name(u.update)}" for u in g.input_updates}
    lines += [f"  input {declaration(v)}{becomes.get(v.name, '')}" for v in g.inputs]
    lines += [f"  {c.kind} {declaration(c.value)} = {quoted(c.fqn)}" for c in g.constants]
    lines += [f"  state {declaration(s.value)} = {quoted(s.fqn)} -> {value_name(s.update)}" for s in g.states]
    lines.append("{")
    lines += [f"  {node_line(n)}" for n in g.nodes]
    outputs = ["none" if v is None else value_name(v) for v in g.outputs]
    if g.output_names:
        outputs = [f"{name_text(name)}={text}" for name, text in zip(g.output_names, outputs, strict=True)]
    lines += [f"  return {', '.join(outputs)}".rstrip(), "}"]
    lines += [f"{key} {quoted(spec)}" for key, spec in (("in_spec", g.in_spec), ("out_spec", g.out_spec)) if spec]
    if sources:
        lines += source_lines(n.loc for part in (*subgraphs_of(g), g) for n in part.nodes)
    return "\n".join(lines) + "\n"


def value_name(v: Value) -> str:
    return f"%{name_text(v.name)}"


def declaration(v: Value) -> str:
    return f"{value_name(v)}: {v.type}"


def node_text(n: Node) -> str:
    """The node as in the graph, without its location."""
    results = ", ".join(declaration(v) for v in n.outputs)
    call = f"{n.op.name}({', '.join(_arg_texts(n))})"
    return f"{results} = {call}" if results else call


def node_line(n: Node) -> str:
    """The node as its line in the graph, location included."""
    return with_loc(node_text(n), n.loc, LOC_COLUMN)


def _value_text(arg: Arg) -> str | None:
    if isinstance(arg, Graph):
        return f"@{name_text(arg.name)}"
    return value_name(arg) if isinstance(arg, Value) else None


def _arg_texts(n: Node) -> list[str]:
    texts: list[str] = []
    plain = True
    for position, (key, arg) in enumerate(n.args):
        plain = plain and isinstance(arg, Value) and position < len(n.op.params) and n.op.params[position].name == key
        text = arg_text(arg, _value_text)
        texts.append(text if plain else f"{key}={text}")
    return texts


def parse_graph(text: str, ops: Mapping[str, OpDef]) -> Graph:
    """The inverse of str(). ValueError with line and column on anything else, or on an operator that is not in `ops`."""
    cursor, parts = Cursor(text), dict[str, Graph]()
    while True:
        graph = _GraphParser(cursor, ops, parts).graph()
        if cursor.done():
            return graph
        if not cursor.peek("graph"):
            raise cursor.fail("the end")
        parts[graph.name] = graph


def _with_sources(node: Node, sources: Mapping[tuple[str, int], str]) -> Node:
    """The node, and those of the graphs among its arguments, with the users' lines."""
    args = tuple(
        (key, replace(arg, nodes=tuple(_with_sources(n, sources) for n in arg.nodes)) if isinstance(arg, Graph) else arg) for key, arg in node.args
    )
    return replace(node, args=args, loc=with_sources(node.loc, sources))


class _GraphParser:
    def __init__(self, cursor: Cursor, ops: Mapping[str, OpDef], parts: Mapping[str, Graph]) -> None:
        self.c, self.ops, self.parts = cursor, ops, parts
        self.symbols: dict[str, Dim] = {}
        self.values: dict[str, Value] = {}

    def graph(self) -> Graph:
        c = self.c
        c.expect("graph")
        name = c.name()
        c.expect("(")
        sizes = c.list_of(lambda: read_size(c), ")")
        self.symbols = {s.name: dim(s) for s in sizes}
        inputs: list[Value] = []
        constants: list[Constant] = []
        states: list[tuple[Value, str, str]] = []
        changed: list[tuple[Value, str]] = []
        while not c.accept("{"):
            kind = c.name()
            value = self.declaration()
            if kind == "input":
                inputs.append(value)
                if c.accept("->"):
                    c.expect("%")
                    changed.append((value, c.name()))
                continue
            c.expect("=")
            fqn = c.string()
            if kind == "state":
                c.expect("->")
                c.expect("%")
                states.append((value, fqn, c.name()))
            elif kind in _KINDS:
                constants.append(Constant(value, fqn, kind))
            else:
                raise c.fail(f"input, state, {', '.join(_KINDS)} or '{{', not {kind}")
        nodes: list[Node] = []
        while not c.accept("return"):
            nodes.append(self.node())
        outputs, names = self.outputs()
        specs = {"in_spec": "", "out_spec": ""}
        for key in specs:
            if c.accept(key):
                specs[key] = c.string()
        sources = read_sources(c)
        return Graph(
            name,
            sizes,
            tuple(inputs),
            tuple(constants),
            tuple(State(value, fqn, self.value(update)) for value, fqn, update in states),
            tuple(_with_sources(n, sources) for n in nodes),
            outputs,
            names,
            specs["in_spec"],
            specs["out_spec"],
            tuple(InputUpdate(value, self.value(update)) for value, update in changed),
        )

    def declaration(self) -> Value:
        self.c.expect("%")
        name = self.c.name()
        self.c.expect(":")
        value = Value(name, TensorType(*read_type(self.c, self.symbols)))
        self.values[name] = value
        return value

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise self.c.fail(f"a value that is defined before, not %{name}")
        return self.values[name]

    def use(self) -> Value:
        self.c.expect("%")
        return self.value(self.c.name())

    def node(self) -> Node:
        c = self.c
        # Results are declared after the arguments are read, or a node could use its own: read them apart first.
        outputs: list[Value] = []
        if c.peek("%"):
            while True:
                c.expect("%")
                name = c.name()
                c.expect(":")
                outputs.append(Value(name, TensorType(*read_type(c, self.symbols))))
                if not c.accept(","):
                    break
            c.expect("=")
        op_name = c.name()
        if op_name not in self.ops:
            raise c.fail(f"an operator of the table, not {op_name}")
        op = self.ops[op_name]
        c.expect("(")
        args = c.list_of(lambda: self.argument(op), ")")
        named = tuple((key if key is not None else op.params[position].name, arg) for position, (key, arg) in enumerate(args))
        self.values.update({v.name: v for v in outputs})
        return Node(op, named, tuple(outputs), read_loc(c))

    def argument(self, op: OpDef) -> tuple[str | None, Any]:
        key: str | None = None
        if not self.c.peek("%"):
            key = self.c.name()
            self.c.expect("=")
        if self.c.accept("@"):
            part = self.c.name()
            if part not in self.parts:
                raise self.c.fail(f"a graph that stands before, not @{part}")
            return key, self.parts[part]
        return key, read_arg(self.c, self.symbols, self.use)

    def outputs(self) -> tuple[tuple[Value | None, ...], tuple[str, ...]]:
        c = self.c
        values: list[Value | None] = []
        names: list[str] = []
        while not c.accept("}"):
            if values:
                c.expect(",")
            if not c.peek("%") and not c.peek("none"):
                names.append(c.name())
                c.expect("=")
            elif c.peek("none"):  # the value, or an output of that name
                after = c.text[c.at + 4 :].lstrip()
                if after.startswith("="):
                    names.append(c.name())
                    c.expect("=")
            values.append(None if c.accept("none") else self.use())
        return tuple(values), tuple(names)
