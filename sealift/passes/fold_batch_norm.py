"""Graph -> Graph: a batch norm in inference, after a convolution, goes into the convolution's weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sealift.diag.loc import union
from sealift.ir.dim import dim
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Arg, Constant, Graph, Node, TensorType, Value, values_in

Array = NDArray[np.float32]
_TRANSPOSED = {"aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input"}
_CONVOLUTIONS = {f"aten.conv{n}d.{overload}" for n in (1, 2, 3) for overload in ("default", "padding")} | {"aten.convolution.default"} | _TRANSPOSED
_NORMS = {"aten._native_batch_norm_legit_no_training.default": "input", "aten.batch_norm.default": "input"}


@dataclass(frozen=True)
class Folded:
    """The graph, and the values of its constants by fqn: new ones for every convolution that took a batch norm in."""

    graph: Graph
    arrays: Mapping[str, Array]


def fold_batch_norm(graph: Graph, arrays: Mapping[str, Array]) -> Folded:
    """y = batch_norm(conv(x, w, b), gamma, beta, mean, var)   ==>   y = conv(x, w * s, (b - mean) * s + beta),  s = gamma / sqrt(var + eps)

    In float64, rounded once. The new constants are named after the weights they come from ("conv1.weight+batch_norm"): the old ones, if
    nothing else reads them, are gone and can no longer be replaced in the package. Refuses when the convolution has a second reader, when
    anything but its input is no constant, and for other types than f32.
    """
    folding = _Folding(graph, dict(arrays))
    nodes = folding.run()
    if not folding.made:
        return Folded(graph, arrays)
    used = {v.name for n in nodes for v in n.inputs} | {v.name for v in graph.outputs if v is not None}
    constants = tuple(c for c in (*graph.constants, *folding.made) if c.value.name in used)
    kept = {c.fqn for c in constants} | {s.fqn for s in graph.states}
    return Folded(replace(graph, nodes=tuple(nodes), constants=constants), {k: v for k, v in folding.arrays.items() if k in kept})


class _Folding:
    def __init__(self, graph: Graph, arrays: dict[str, Array]) -> None:
        self.graph, self.arrays = graph, arrays
        self.constants = {c.value.name: c for c in graph.constants}
        self.readers = Counter(v.name for n in graph.nodes for v in n.inputs)
        self.readers.update(v.name for v in graph.outputs if v is not None)
        self.makers = {n.outputs[0].name: n for n in graph.nodes if n.outputs}
        self.made: list[Constant] = []

    def run(self) -> list[Node]:
        nodes: list[Node] = []
        gone: set[str] = set()
        for node in self.graph.nodes:
            folded = self.fold(node)
            if folded is not None:
                convolution, merged = folded
                gone.add(convolution.outputs[0].name)
                node = merged
            nodes.append(node)
        return [n for n in nodes if not n.outputs or n.outputs[0].name not in gone]

    def fold(self, node: Node) -> tuple[Node, Node] | None:
        if node.op.name not in _NORMS or (node.op.name == "aten.batch_norm.default" and node.arg("training")):
            return None
        if any(self.readers[v.name] for v in node.outputs[1:]):
            return None
        source = node.arg(_NORMS[node.op.name])
        convolution = self.makers.get(source.name)
        if convolution is None or convolution.op.name not in _CONVOLUTIONS or self.readers[source.name] != 1:
            return None
        weight, bias = self.constant(convolution.arg("weight")), self.constant(convolution.arg("bias"))
        gamma, beta = self.constant(node.arg("weight")), self.constant(node.arg("bias"))
        mean, variance = self.constant(node.arg("running_mean")), self.constant(node.arg("running_var"))
        if weight is None or mean is None or variance is None:
            return None
        given = ((convolution.arg("bias"), bias), (node.arg("weight"), gamma), (node.arg("bias"), beta))
        if any(arg is not None and found is None for arg, found in given):
            return None
        scale = 1.0 / np.sqrt(variance.astype(np.float64) + node.arg("eps"))
        if gamma is not None:
            scale = scale * gamma
        shift = ((0.0 if bias is None else bias.astype(np.float64)) - mean) * scale + (0.0 if beta is None else beta)
        name = convolution.arg("weight").name
        if convolution.op.name in _TRANSPOSED or (convolution.op.name == "aten.convolution.default" and convolution.arg("transposed")):
            # [in, out / groups, *taps]: a group's rows have the scales of its outputs
            by_group = scale.reshape(convolution.arg("groups"), 1, weight.shape[1], *[1] * (weight.ndim - 2))
            scaled = (weight.reshape(convolution.arg("groups"), -1, *weight.shape[1:]) * by_group).reshape(weight.shape)
        else:
            scaled = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
        new_weight = self.add(f"{name}_folded", "weight", name, scaled)
        new_bias = self.add(f"{name}_shift", "bias", name, shift)
        args: dict[str, Arg] = {**dict(convolution.args), "weight": new_weight, "bias": new_bias}
        ordered = tuple((p.name, args[p.name]) for p in convolution.op.params if p.name in args)
        return convolution, Node(convolution.op, ordered, node.outputs[:1], union((convolution.loc, node.loc)))

    def constant(self, arg: Arg) -> Array | None:
        if not isinstance(arg, Value) or arg.name not in self.constants or arg.type.dtype is not DType.F32:
            return None
        return self.arrays[self.constants[arg.name].fqn]

    def add(self, name: str, role: str, source: str, array: NDArray[np.float64]) -> Value:
        taken = {v.name for n in self.graph.nodes for v in (*n.outputs, *values_in(tuple(n.args)))} | {c.value.name for c in self.made}
        while name in taken:
            name += "_"
        value = Value(name, TensorType(DType.F32, tuple(dim(n) for n in array.shape)))
        fqn = f"{self.constants[source].fqn.removesuffix('.weight')}.{role}+batch_norm"
        while fqn in self.arrays:
            fqn += "_"
        self.arrays[fqn] = array.astype(np.float32)
        self.made.append(Constant(value, fqn, "parameter"))
        return value
