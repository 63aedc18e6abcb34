"""Branches and loops over random graphs: every pass keeps what the interpreter computes, and the compiled library answers as the taken
branch does in eager, or as the body does in eager turn after turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sealift.diag.errors import CompileError, InternalError
from sealift.ir.dim import dim
from sealift.ir.dtype import DType
from sealift.ir.graph.text import parse_graph
from sealift.ir.graph.types import Graph, Node, TensorType, Value
from sealift.ir.graph.verify import verify
from sealift.ir.loop.text import parse_loops
from sealift.ir.loop.verify import verify as verify_loops
from sealift.ops import OPS
from sealift.ops.lang import Builder, whole
from sealift.passes.lower_to_loops import lower_to_loops
from tests.passes import random_graphs as rg
from tests.support_native import NativeBatch

SIZES = [{"n": 33, "m": 3}, {"n": 0, "m": 2}, {"n": 1, "m": 1}, {"n": 2, "m": 0}]
PRED = Value("pred", TensorType(DType.BOOL, ()))
LIMIT = Value("limit", TensorType(DType.I64, ()))


def node(name: str, outputs: tuple[Value, ...], **args: Any) -> Node:
    return Node(OPS[name], tuple(args.items()), outputs)


def as_part(g: Graph, name: str, tag: str) -> Graph:
    """The graph with its constants among its inputs, and values of its own."""

    def renamed(arg: Any) -> Any:
        if isinstance(arg, Value):
            return replace(arg, name=f"{arg.name}.{tag}")
        return tuple(renamed(a) for a in arg) if isinstance(arg, tuple) else arg

    nodes = tuple(replace(n, args=renamed(n.args), outputs=renamed(n.outputs)) for n in g.nodes)
    inputs = (*renamed(g.inputs), *(renamed(c.value) for c in g.constants))
    return Graph(name, g.sizes, inputs, (), (), nodes, renamed(g.outputs))


def other_branch(g: Graph) -> Graph:
    """The same inputs, and outputs of the same types: the graph's own, negated or inverted."""
    nodes, outputs = list(g.nodes), []
    for k, v in enumerate(v for v in g.outputs if v is not None):
        opposite = Value(f"opposite{k}", replace(v.type, order=None))
        nodes.append(node("aten.logical_not.default" if v.type.dtype is DType.BOOL else "aten.neg.default", (opposite,), self=v))
        outputs.append(opposite)
    return replace(g, nodes=tuple(nodes), outputs=tuple(outputs))


def branching(seed: int, nested: bool) -> tuple[Graph, Graph, Graph]:
    """(the model, what it is where pred holds, what it is elsewhere)"""
    g = rg.random_graph(seed)
    other = other_branch(g)
    operands = (*g.inputs, *(c.value for c in g.constants))
    then, otherwise = as_part(g, "then", "a"), as_part(other, "otherwise", "b")
    results = tuple(Value(f"result{k}", replace(v.type, order=None)) for k, v in enumerate(v for v in g.outputs if v is not None))
    if nested:  # the branch not taken branches again, on the same condition
        flag = Value("flag", PRED.type)
        inner = as_part(g, "inner", "c"), as_part(other, "innermost", "d")
        made = tuple(replace(v, name=f"{v.name}.e") for v in results)
        call = node("higher_order.cond", made, pred=flag, true_graph=inner[0], false_graph=inner[1], operands=otherwise.inputs)
        otherwise = Graph("otherwise", g.sizes, (*otherwise.inputs, flag), (), (), (call,), made)
        spare = Value("flag.a", PRED.type)
        then = replace(then, inputs=(*then.inputs, spare))
        operands = (*operands, PRED)
    call = node("higher_order.cond", results, pred=PRED, true_graph=then, false_graph=otherwise, operands=operands)
    return Graph(f"branch{seed}", g.sizes, (*g.inputs, PRED), g.constants, (), (call,), results), g, other


def looping(seed: int) -> tuple[Graph, Graph]:
    """(the model, one turn of its loop): a counter, and two values that become sums and products of each other and of a constant."""
    rng = np.random.default_rng(seed)
    n, width = rg.N, int(rng.integers(1, 20))
    shape = (dim(n), dim(width))
    counter, a, b = Value("counter", TensorType(DType.I64, ())), Value("a", TensorType(DType.F32, shape)), Value("b", TensorType(DType.F32, shape))
    scale = Value("scale", TensorType(DType.F32, (dim(width),)))
    nodes: list[Node] = []

    def add(name: str, like: Value, **args: Any) -> Value:
        made = Value(f"t{len(nodes)}", like.type)
        nodes.append(node(name, (made,), **args))
        return made

    def term() -> Value:
        first, second = rng.permutation(2)
        mixed = add("aten.mul.Tensor", a, self=(a, b)[first], other=scale) if rng.random() < 0.5 else (a, b)[first]
        return add(f"aten.{('add', 'sub')[rng.integers(2)]}.Tensor", a, self=add("aten.tanh.default", a, self=mixed), other=(a, b)[second])

    after = [add("aten.add.Tensor", counter, self=counter, other=1), term() if rng.random() < 0.7 else b, term() if rng.random() < 0.7 else a]
    turn = Graph("turn", (n, rg.M), (counter, a, b, scale, LIMIT), (), (), tuple(nodes), tuple(after))
    condition_inputs = tuple(replace(v, name=f"{v.name}.c") for v in turn.inputs)
    holds = Value("holds", PRED.type)
    condition = Graph(
        "condition",
        turn.sizes,
        condition_inputs,
        (),
        (),
        (node("aten.lt.Tensor", (holds,), self=condition_inputs[0], other=condition_inputs[4]),),
        (holds,),
    )
    start = Value("start", counter.type)
    x, y, w = (replace(v, name=name) for v, name in ((a, "x"), (b, "y"), (scale, "w")))
    results = tuple(replace(v, name=f"result{k}") for k, v in enumerate((counter, a, b)))
    call = node("higher_order.while_loop", results, cond_graph=condition, body_graph=turn, carried_inputs=(start, x, y), additional_inputs=(w, LIMIT))
    return Graph(f"loop{seed}", turn.sizes, (start, x, y, w, LIMIT, Value("m", TensorType(DType.F32, (dim(rg.M),)))), (), (), (call,), results), turn


def check_levels(graph: Graph, inputs: Mapping[str, Any], weights: Mapping[str, Any], wanted: list[Any], note: str) -> None:
    verify(graph, Builder, whole)
    assert parse_graph(str(graph), OPS) == graph
    rg.assert_close(rg.run_interpreter(graph, inputs, weights), wanted, graph, f"{note}: interpreter")
    for name, loops in rg.loops_after_each_pass(graph):
        rg.assert_close(rg.run_loops(loops, graph, inputs, weights), wanted, graph, f"{note}: after {name}")
        verify_loops(loops)
        assert parse_loops(str(loops)) == loops


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_branches(nested: bool) -> None:
    cases = [branching(seed, nested) for seed in range(4)]
    batch = NativeBatch([rg.loops_after_each_pass(model)[-1][1] for model, _, _ in cases])
    for position, (model, then, otherwise) in enumerate(cases):
        for sizes in SIZES:
            inputs, weights = rg.random_inputs(then, sizes, position)
            for taken, branch in ((True, then), (False, otherwise)):
                note = f"{model.name} at {sizes}, {taken}"
                given = {**inputs, "pred": np.asarray(taken)}
                wanted = rg.run_eager(branch, inputs, weights, sizes)
                if sizes["n"] == 33:
                    check_levels(model, given, weights, wanted, note)
                got = batch.run(position, {**given, **rg.by_name(model, weights)}, sizes)
                rg.assert_close([np.asarray(a) for a in got], wanted, model, note, 2.0)


def test_loops() -> None:
    cases = [looping(seed) for seed in range(5)]
    batch = NativeBatch([rg.loops_after_each_pass(model)[-1][1] for model, _ in cases])
    for position, (model, turn) in enumerate(cases):
        for sizes in SIZES:
            inputs, _ = rg.random_inputs(model, sizes, position)
            for turns in (0, 1, 2, 5):
                note = f"{model.name} at {sizes}, {turns} turns"
                given = {**inputs, "start": np.asarray(3), "limit": np.asarray(3 + turns)}
                state = [given["start"], given["x"], given["y"]]
                for _ in range(turns):
                    names = [v.name for v in turn.inputs]
                    state = rg.run_eager(turn, dict(zip(names, [*state, given["w"], given["limit"]])), {}, sizes)
                if sizes["n"] == 33:
                    check_levels(model, given, {}, state, note)
                got = batch.run(position, given, sizes)
                rg.assert_close([np.asarray(a) for a in got], state, model, note, 2.0)


def test_a_part_with_sizes_of_its_own_is_no_part() -> None:
    model, _ = looping(0)
    (call,) = model.nodes
    (inner,) = (g for g in call.graphs if g.name == "turn")
    args = tuple((k, replace(inner, sizes=inner.sizes[:1]) if a is inner else a) for k, a in call.args)
    with pytest.raises(InternalError, match="invariant 7: graph turn has sizes of its own"):
        verify(replace(model, nodes=(replace(call, args=args),)))


def test_what_is_carried_keeps_its_type() -> None:
    model, _ = looping(0)
    (call,) = model.nodes
    (inner,) = (g for g in call.graphs if g.name == "turn")
    args = tuple((k, replace(inner, outputs=(inner.outputs[1], *inner.outputs[1:])) if a is inner else a) for k, a in call.args)
    with pytest.raises(CompileError, match=r"E-OP-002.*must keep its type"):
        lower_to_loops(replace(model, nodes=(replace(call, args=args),)))
