"""Writes become values: operators that write to their first argument, as the ones that return what they would have written.

    %index_copy_ = aten.index_copy_(%cache, 2, %at, %key)          %index_copy = aten.index_copy(%cache, 2, %at, %key)
    %sum = aten.sum(%cache)                                  ==>   %sum = aten.sum(%index_copy)
    return (%sum)                                                  return (%index_copy, %sum)      buffer mutation, output

torch's run_decompositions does this too, by tracing the whole program again: seconds for a deep model. Here nodes are replaced where it is
plain who sees a write, which is what a cache, a counter and an activation in place look like; a write into a view is left to torch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export import graph_signature as gs

# Composites that always give memory of their own; of the others torch does not say which hand an argument through, as dropout does in eval().
_FRESH = frozenset(
    f"aten.{name}"
    for name in (
        "linear.default",
        "matmul.default",
        "conv1d.default",
        "conv1d.padding",
        "conv2d.default",
        "conv2d.padding",
        "conv3d.default",
        "conv3d.padding",
        "batch_norm.default",
        "layer_norm.default",
        "group_norm.default",
        "instance_norm.default",
        "rms_norm.default",
        "scaled_dot_product_attention.default",
        "embedding_bag.default",
        "max_pool2d.default",
        "softmax.int",
        "log_softmax.int",
        "silu.default",
        "cumsum.default",
        "where.ScalarOther",
        "where.ScalarSelf",
        "where.Scalar",
        "one_hot.default",
    )
)


@dataclass(frozen=True)
class Functional:
    """What the importer reads of an ExportedProgram, of one without writes."""

    graph_module: fx.GraphModule
    graph_signature: gs.ExportGraphSignature
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]
    call_spec: Any
    module_call_graph: Any

    @property
    def graph(self) -> fx.Graph:
        return self.graph_module.graph


def functionalize(ep: ExportedProgram) -> Functional | None:
    """The program without writes. None where that takes more than replacing nodes: a view is written to, or is read after what it shows was
    written; a parameter or a constant is written to; a branch or a loop writes; two placeholders share memory; there is no operator that
    returns what this one writes."""
    if any(_writes(node) for module in _parts(ep.graph_module) for node in module.graph.nodes):
        return None
    return _Rewrite(ep).run()


@dataclass
class _Memory:
    """A tensor's memory. `now`: the node that has what lies there, once something was written."""

    whole: set[fx.Node]  # the nodes that are all of it, in its own shape
    writable: bool
    now: fx.Node | None = None
    views: set[fx.Node] = field(default_factory=set)
    stale: set[fx.Node] = field(default_factory=set)  # views from before the last write


class _Rewrite:
    def __init__(self, ep: ExportedProgram) -> None:
        self.ep = ep
        self.memory: dict[fx.Node, list[_Memory]] = {}  # of a node of the old graph: all that it may be a view of
        self.new: dict[fx.Node, fx.Node] = {}
        self.graph = fx.Graph()
        self.written: dict[fx.Node, _Memory] = {}  # by placeholder

    def run(self) -> Functional | None:
        shared = _shared_placeholders(self.ep)
        kinds = {s.arg.name: s.kind for s in self.ep.graph_signature.input_specs}
        for node in self.ep.graph.nodes:
            if any(memory.stale and node_or_input in memory.stale for node_or_input in node.all_input_nodes for memory in self.memory[node_or_input]):
                return None
            if node.op == "call_function" and _writes(node):
                if not self.write(node):
                    return None
                continue
            self.new[node] = self.graph.node_copy(node, self.current)
            if node.op == "placeholder":
                writable = kinds.get(node.name) in (gs.InputKind.BUFFER, gs.InputKind.USER_INPUT) and node.name not in shared
                self.memory[node] = [_Memory({node}, writable)]
            elif node.op == "call_function":
                self.memory[node] = self.memory_of(node)
            else:
                self.memory[node] = []
        signature = self.outputs()
        self.graph.eliminate_dead_code()
        module = fx.GraphModule(self.ep.graph_module, self.graph)
        return Functional(module, signature, self.ep.state_dict, self.ep.constants, self.ep.call_spec, self.ep.module_call_graph)

    def current(self, node: fx.Node) -> fx.Node:
        """The new graph's node for what this node's memory holds now."""
        for memory in self.memory[node]:
            if memory.now is not None and node in memory.whole:
                return memory.now
        return self.new[node]

    def memory_of(self, node: fx.Node) -> list[_Memory]:
        if _is_its_argument(node):
            found = self.memory[node.all_input_nodes[0]]
            for memory in found:
                (memory.whole if node.all_input_nodes[0] in memory.whole else memory.views).add(node)
            return found
        sources = [i for i in node.all_input_nodes if self.memory[i]] if _may_alias(node) else []
        found = list({id(m): m for source in sources for m in self.memory[source]}.values())
        for memory in found:
            memory.views.add(node)
        return found or [_Memory({node}, writable=True)]

    def write(self, node: fx.Node) -> bool:
        """Replaces a write; False where it is not plain."""
        functional = _functional(node)
        target = node.args[0] if node.args else None
        if functional is None or not isinstance(target, fx.Node) or len(self.memory[target]) != 1:
            return False
        (memory,) = self.memory[target]
        if target not in memory.whole or not memory.writable or not _same_type(functional, node):
            return False
        args = fx.node.map_arg(node.args, self.current)
        kwargs = fx.node.map_arg(node.kwargs, self.current)
        made = self.graph.create_node("call_function", functional, args, kwargs, functional._schema.name.partition("::")[2])
        made.meta = dict(node.meta)
        memory.now, self.new[node], self.memory[node] = made, made, [memory]
        memory.whole.add(node)
        memory.stale |= memory.views
        memory.views = set()
        for whole in memory.whole:
            if whole.op == "placeholder":
                self.written[whole] = memory
        return True

    def outputs(self) -> gs.ExportGraphSignature:
        """Adds what the placeholders hold at the end to what is returned, in their order, and names the outputs anew."""
        signature = self.ep.graph_signature
        (output,) = (n for n in self.graph.nodes if n.op == "output")
        returned = list(output.args[0])
        specs = [_renamed(spec, value) for spec, value in zip(signature.output_specs, returned, strict=True)]
        updates: list[fx.Node] = []
        mutations: list[gs.OutputSpec] = []
        given = {s.arg.name: s for s in signature.input_specs}
        for placeholder in (n for n in self.ep.graph.nodes if n in self.written):
            now, spec = self.written[placeholder].now, given[placeholder.name]
            assert now is not None
            is_buffer = spec.kind is gs.InputKind.BUFFER
            kind = gs.OutputKind.BUFFER_MUTATION if is_buffer else gs.OutputKind.USER_INPUT_MUTATION
            updates.append(now)
            mutations.append(gs.OutputSpec(kind, gs.TensorArgument(now.name), spec.target if is_buffer else placeholder.name))
        output.args = ((*updates, *returned),)
        return gs.ExportGraphSignature(list(signature.input_specs), [*mutations, *specs])


def _renamed(spec: gs.OutputSpec, value: Any) -> gs.OutputSpec:
    named = isinstance(value, fx.Node) and not isinstance(spec.arg, gs.ConstantArgument)
    return gs.OutputSpec(spec.kind, type(spec.arg)(value.name), spec.target) if named else spec  # type: ignore[call-arg]


def _parts(module: fx.GraphModule) -> Sequence[fx.GraphModule]:
    """The graphs that a program branches to and loops over."""
    return [m for m in module.modules() if isinstance(m, fx.GraphModule) and m is not module]


def _writes(node: fx.Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def _is_its_argument(node: fx.Node) -> bool:
    """dropout in eval(), which torch's own rewriting takes for a copy."""
    return str(node.target) == "aten.dropout.default" and node.args[-1] is False and len(node.args) == 3


def _may_alias(node: fx.Node) -> bool:
    """Whether a result may be memory of an argument's."""
    if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
        return False  # a size
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return isinstance(node.target, torch._ops.HigherOrderOperator)
    if any(r.alias_info is not None for r in node.target._schema.returns):
        return True
    composite = node.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return composite and str(node.target) not in _FRESH


def _functional(node: fx.Node) -> Any:
    """aten.add.Tensor for aten.add_.Tensor: the same arguments, of which it writes none."""
    schema = node.target._schema  # type: ignore[union-attr]
    namespace, _, name = schema.name.partition("::")
    first, *rest = schema.arguments
    in_place = name.endswith("_") and first.alias_info is not None and all(a.alias_info is None for a in rest) and len(schema.returns) == 1
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None) if in_place and namespace == "aten" else None
    found = getattr(packet, schema.overload_name or "default", None)
    if found is None or found._schema.is_mutable or [a.name for a in found._schema.arguments] != [a.name for a in schema.arguments]:
        return None
    return found


def _same_type(functional: Any, node: fx.Node) -> bool:
    """Whether what it returns has the dtype of what is written to: a comparison gives truth values, and a sum may promote."""

    def value(raw: Any) -> Any:
        return raw.meta.get("val") if isinstance(raw, fx.Node) else raw

    args, kwargs = (fx.node.map_aggregate(part, value) for part in (node.args, node.kwargs))
    try:
        result = functional(*args, **kwargs)  # type: ignore[misc]
    except Exception:  # torch has no shapes for it, or refuses it: run_decompositions then says why
        return False
    target = value(node.args[0])
    return isinstance(result, torch.Tensor) and result.dtype == target.dtype and result.dim() == target.dim()


def _shared_placeholders(ep: ExportedProgram) -> set[str]:
    """Names of the placeholders whose tensors share their storage with another's."""
    owners: dict[int, list[str]] = {}
    for spec in ep.graph_signature.input_specs:
        tensor = ep.state_dict.get(spec.target, ep.constants.get(spec.target)) if spec.target is not None else None
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
            owners.setdefault(tensor.untyped_storage().data_ptr(), []).append(spec.arg.name)
    return {name for names in owners.values() if len(names) > 1 for name in names}
