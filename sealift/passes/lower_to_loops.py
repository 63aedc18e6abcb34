"""Graph -> Loops: every node becomes a kernel of its own, by its row's definition. Fusion comes later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sealift.diag.errors import CompileError, InternalError
from sealift.ir.dim import ONE
from sealift.ir.dtype import DType
from sealift.ir.graph.text import node_text
from sealift.ir.graph.types import Graph, InputUpdate, Node, State, TensorType, Value
from sealift.ir.loop.expr import Buffer, Load
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.rewrite import replace_buffers
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Stage
from sealift.ops.lang import Builder, Tensor, whole_as
from sealift.ops.pairs import pair_buffer


def lower_to_loops(graph: Graph) -> Loops:
    """%y = aten.relu(%x)   ==>   kernel y: for i0, i1: y[i0, i1] = select(x[i0, i1] < 0, 0, x[i0, i1])

    Outputs that are inputs stay aliases; an output that is a constant, a state, an input that changes or another output gets a copy of its
    own. The last kernels write the states and the inputs that change, so that to passes an update is a value like any other. What lies in an
    order that a kernel family cannot walk (eager's strides) is copied before the call or after it.
    """
    lowering = _Lowering({}, [], [])
    for v in graph.inputs:
        lowering.declare(v, "input")
    return _lowered(graph, lowering, _outputs_of_model)


def lower_part(graph: Graph, constants: Mapping[str, Buffer]) -> Loops:
    """A graph among a node's arguments, as loops that a call holds: its inputs and outputs are row-major, its outputs all its own.
    `constants`: its inputs that are constants of the model around it, which it reads as such."""
    lowering = _Lowering({}, [], [])
    for v in graph.inputs:
        if v.name in constants:
            lowering.buffers[v.name] = constants[v.name]
        else:
            lowering.declare(Value(v.name, replace(v.type, order=None)), "input")
    return _lowered(graph, lowering, _outputs_of_part)


def _lowered(graph: Graph, lowering: _Lowering, outputs_of_graph: Callable[[Graph, _Lowering, set[str]], tuple[Buffer | None, ...]]) -> Loops:
    for c in graph.constants:
        lowering.declare(c.value, "weight")
    for s in graph.states:
        lowering.declare(s.value, "state")
    is_part = outputs_of_graph is _outputs_of_part
    wanted = {v.name for v in graph.outputs if v is not None and not (is_part and v.type.order is not None)}
    given = {v.name for v in (*graph.inputs, *(c.value for c in graph.constants), *(s.value for s in graph.states))}
    for node in graph.nodes:
        lowering.lower_node(node, wanted - given)
    outputs = outputs_of_graph(graph, lowering, given)
    updated: list[State | InputUpdate] = [*graph.states, *graph.input_updates]
    states = [(lowering.buffers[s.value.name], lowering.kept(s)) for s in updated]
    for state, new in states:
        if new is not state:
            lowering.kernels.append(_copy_kernel(new, state, f"keep_{state.name}"))
    inputs = tuple(b for b in (lowering.buffers[v.name] for v in graph.inputs) if b.kind != "weight")
    kept = {b.name for b in (*inputs, *(o for o in outputs if o is not None))}
    others = [b for b in (*lowering.buffers.values(), *lowering.extra) if b.name not in kept]
    updates = tuple((state, state) for state, _ in states)
    return Loops(graph.name, graph.sizes, inputs, outputs, tuple(dict.fromkeys(others)), tuple(lowering.kernels), updates)


def _outputs_of_part(graph: Graph, lowering: _Lowering, given: set[str]) -> tuple[Buffer | None, ...]:
    outputs: list[Buffer | None] = []
    for position, v in enumerate(graph.outputs):
        assert v is not None, "a row has refused it"
        source = lowering.buffers[v.name]
        if source.kind != "output" or source in outputs:
            copy = _buffer(f"{graph.name}.out{position}", replace(v.type, order=None), "output")
            lowering.kernels.append(_copy_kernel(source, copy, copy.name))
            source = copy
        outputs.append(source)
    return tuple(outputs)


def _outputs_of_model(graph: Graph, lowering: _Lowering, given: set[str]) -> tuple[Buffer | None, ...]:
    outputs: list[Buffer | None] = []
    used: set[str] = set()
    input_names = {v.name for v in graph.inputs} - {u.value.name for u in graph.input_updates}
    for position, v in enumerate(graph.outputs):
        if v is None:
            outputs.append(None)
            continue
        source = lowering.buffers[v.name]
        if v.name in input_names or (v.name not in given and v.name not in used):
            outputs.append(source)
            used.add(v.name)
            continue
        copy = _buffer(f"{v.name}_out{position}", v.type, "output")
        lowering.kernels.append(_copy_kernel(source, copy, copy.name))
        outputs.append(copy)
    return tuple(outputs)


def _buffer(name: str, t: TensorType, kind: str) -> Buffer:
    """Where a tensor lies: a complex one as pairs of f32."""
    return pair_buffer(name, t.shape, kind, t.order) if t.dtype is DType.C64 else Buffer(name, t.dtype, t.shape, kind, t.order)


def _copy_kernel(source: Buffer, target: Buffer, name: str) -> Kernel:
    axes = tuple(Axis(f"i{k}", d) for k, d in enumerate(target.shape))
    index = tuple(a.dim for a in axes)
    return Kernel(name, (Map(target, axes, index, Load(source, index)),))


@dataclass
class _Lowering:
    buffers: dict[str, Buffer]  # by value name
    extra: list[Buffer]  # temporaries inside nodes
    kernels: list[Kernel]

    def declare(self, v: Value, kind: str) -> Buffer:
        b = _buffer(v.name, v.type, kind)
        self.buffers[v.name] = b
        return b

    def tensor_args(self, arg: Any) -> Any:
        if isinstance(arg, Value):
            return whole_as(self.buffers[arg.name], arg.type.dtype)
        if isinstance(arg, tuple):
            return tuple(self.tensor_args(a) for a in arg)
        return arg

    def lower_node(self, node: Node, wanted: set[str]) -> None:
        builder = Builder(node.outputs[0].name if node.outputs else node.op.name)
        try:
            result = node.op.lower(builder, **{name: self.tensor_args(a) for name, a in node.args})
        except (NotImplementedError, IndexError, TypeError) as reason:
            if isinstance(reason, TypeError) and not any(isinstance(a, complex) for _, a in node.args):
                raise
            raise CompileError(
                f"{node.op.name} cannot be compiled with these arguments: {reason}", code="E-OP-002", loc=node.loc, node=node_text(node)
            ) from reason
        results: tuple[Tensor, ...] = (result,) if isinstance(result, Tensor) else tuple(result)
        if len(results) != len(node.outputs):
            raise InternalError(f"{node.op.name} gave {len(results)} results for {len(node.outputs)} outputs")
        own = {b.name for b in builder.buffers}
        renamed: dict[str, Buffer] = {}
        stages: list[Stage] = list(builder.stages)
        for v, t in zip(node.outputs, results):
            if t.dtype is not v.type.dtype or len(t.shape) != len(v.type.shape):
                raise InternalError(f"{node.op.name}: the row gives {t.dtype}{list(map(str, t.shape))}, eager {v.type}")
            out = self.declare(v, "output" if v.name in wanted else "temp")
            if t.buffer is not None and t.buffer.name in own and t.buffer.name not in renamed:
                renamed[t.buffer.name] = out
                continue
            axes = builder.axes(out.shape)
            index = tuple(a.dim for a in axes)
            stages.append(Map(out, axes, index, t.held.at(index)))
        self.extra += [b for b in builder.buffers if b.name not in renamed]
        stages = [reachable for s in stages for reachable in self.within_reach(replace_buffers(s, renamed))]
        for position, stage in enumerate(stages):
            name = node.outputs[0].name if position == len(stages) - 1 else f"{node.outputs[0].name}_{position}"
            self.kernels.append(Kernel(name, (stage,), 0, (node.op.name,), node.loc))

    def kept(self, state: State | InputUpdate) -> Buffer:
        """What the state becomes: itself where it stays as it is, a copy where that is another state or input, which may have been
        overwritten by then."""
        update = self.buffers[state.update.name]
        if update.kind not in ("state", "input") or state.update == state.value:
            return update
        copy = Buffer(f"{state.value.name}.update", update.dtype, update.shape)
        self.kernels.append(_copy_kernel(update, copy, copy.name))
        self.extra.append(copy)
        return copy

    def within_reach(self, stage: Stage) -> list[Stage]:
        """A call between copies of what its family cannot read or write where it lies; any other stage alone."""
        if not isinstance(stage, Call):
            return [stage]
        stage = _with_parts(stage)
        before: list[Stage] = []
        after: list[Stage] = []
        operands: list[tuple[str, Operand]] = []
        for role, operand in stage.operands:
            if operand.load.buffer.order is not None and not accepts(stage, role, operand):
                copy = Buffer(f"{stage.outs[0].name}.{role}", operand.load.dtype, operand.shape)
                index = tuple(a.dim for a in operand.axes)
                before.append(Map(copy, operand.axes, index, operand.load))
                operand = Operand(operand.axes, Load(copy, index))
                self.extra.append(copy)
            operands.append((role, operand))
        outs: list[Buffer] = []
        for out in stage.outs:
            plain = out if _is_writable(stage.family, out) else Buffer(f"{out.name}.plain", out.dtype, out.shape)
            if plain is not out:
                after += _copy_kernel(plain, out, out.name).stages
                self.extra.append(plain)
            outs.append(plain)
        return [*before, replace(stage, operands=tuple(operands), outs=tuple(outs)), *after] if before or after else [stage]


def _with_parts(call: Call) -> Call:
    """The call with loops for the graphs among its attributes. Operands that are constants are read there as such, and vanish here."""
    graphs = [value for _, value in call.attrs if isinstance(value, Graph)]
    if not graphs:
        return call
    numbered = [(role, operand) for role, operand in call.operands if role.startswith("in")]
    carried = call.attr("carried", 0)
    wholes = {k: o.load.buffer for k, (_, o) in enumerate(numbered) if is_identity(o.load.index, o.axes)}
    constants = {k: b for k, b in wholes.items() if k >= carried and b.kind == "weight"}
    kept = [operand for k, (_, operand) in enumerate(numbered) if k not in constants]
    others = [(role, operand) for role, operand in call.operands if not role.startswith("in")]
    attrs = tuple(
        (name, lower_part(value, {value.inputs[k].name: b for k, b in constants.items()}) if isinstance(value, Graph) else value)
        for name, value in call.attrs
    )
    return replace(call, operands=(*others, *((f"in{k}", operand) for k, operand in enumerate(kept))), attrs=attrs)


def _is_writable(family: str, out: Buffer) -> bool:
    """Products, attention, recurrent layers and bags write rows of any stride, whose elements are neighbours; the other families write row-major."""
    if out.order is None:
        return True
    return family in ("gemm", "attention", "recurrent", "bags") and (out.strides[-1] == ONE or out.shape[-1] == ONE)
