"""What a graph means: each node's row, unfused, run by the loop interpreter. It guards passes; the oracle in tests is eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sealift.diag.errors import InternalError
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Arg, Graph, Node, Value
from sealift.ir.graph.verify import MakeBuilder, MakeTensor, buffer_of
from sealift.ir.loop.interpret import NO_FAMILIES, Array, Naive, as_pairs, bind_sizes, eval_over, from_pairs, run_stages, to_held
from sealift.ir.loop.types import Axis, Call


def interpret(
    g: Graph,
    inputs: Mapping[str, Array],
    weights: Mapping[str, Array],
    builder: MakeBuilder,
    tensor: MakeTensor,
    families: Mapping[str, Naive] = NO_FAMILIES,
    new_states: dict[str, Array] | None = None,
) -> list[Array | None]:
    """The outputs. `inputs` by value name, `weights` (and states) by fqn; `builder` and `tensor` are sealift.ops.lang's Builder and
    whole. `new_states` receives, by fqn, what the run leaves in each state, and by name what it leaves in each input that it changes."""
    sizes = bind_sizes([(v.name, v.type.shape, np.shape(inputs[v.name])) for v in g.inputs], g.sizes)
    env: dict[str, Array] = {v.name: _in_memory(inputs[v.name], v.type.dtype) for v in g.inputs}
    for value, fqn in (*((c.value, c.fqn) for c in g.constants), *((s.value, s.fqn) for s in g.states)):
        env[value.name] = _in_memory(weights[fqn], value.type.dtype)
    for node in g.nodes:
        run_node(node, env, sizes, builder, tensor, families)
    if new_states is not None:
        new_states.update({s.fqn: _as_given(env[s.update.name], s.update) for s in g.states})
        new_states.update({u.value.name: _as_given(env[u.update.name], u.update) for u in g.input_updates})
    return [None if v is None else _as_given(env[v.name], v) for v in g.outputs]


def _in_memory(array: Array, dtype: DType) -> Array:
    """Complex numbers as rows read them: pairs of f32 along a last dimension."""
    held = to_held(array, dtype)
    return as_pairs(held) if dtype is DType.C64 else held


def _as_given(array: Array, v: Value) -> Array:
    return from_pairs(array) if v.type.dtype is DType.C64 else array


def run_graph(
    g: Graph, inputs: Sequence[Array], sizes: Mapping[str, int], builder: MakeBuilder, tensor: MakeTensor, families: Mapping[str, Naive]
) -> list[Array]:
    """The outputs of a graph among a node's arguments: a branch, a loop's body."""
    env = {v.name: a for v, a in zip(g.inputs, inputs, strict=True)}
    for node in g.nodes:
        run_node(node, env, sizes, builder, tensor, families)
    return [env[v.name] for v in g.outputs if v is not None]


def run_node(
    node: Node,
    env: dict[str, Array],
    sizes: Mapping[str, int],
    builder: MakeBuilder,
    tensor: MakeTensor,
    families: Mapping[str, Naive] = NO_FAMILIES,
) -> None:
    """Runs one node on `env`, arrays by value name, and adds its results."""
    made = builder(f"{node.outputs[0].name if node.outputs else node.op.name}.")  # the dot keeps its buffers apart from values
    result = node.op.lower(made, **{name: _lowered(arg, tensor) for name, arg in node.args})
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(node.outputs):
        raise InternalError(f"{node.op.name} gives {len(results)} results for {len(node.outputs)} outputs")
    local = {v.name: env[v.name] for v in node.inputs}

    def bound(value: Any) -> Any:
        return (lambda arrays: run_graph(value, arrays, sizes, builder, tensor, families)) if isinstance(value, Graph) else value

    stages = [replace(s, attrs=tuple((key, bound(value)) for key, value in s.attrs)) if isinstance(s, Call) else s for s in made.stages]
    run_stages(stages, local, sizes, families)
    for v, t in zip(node.outputs, results, strict=True):
        axes = tuple(Axis(f"out{k}", d) for k, d in enumerate(t.held.shape))
        env[v.name] = eval_over(t.held.at(tuple(a.dim for a in axes)), axes, local, sizes)


def _lowered(arg: Arg, tensor: MakeTensor) -> Any:
    if isinstance(arg, Value):
        return tensor(buffer_of(arg.name, arg.type, "input"))
    if isinstance(arg, tuple):
        return tuple(_lowered(a, tensor) for a in arg)
    return arg
