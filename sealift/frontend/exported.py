"""ExportedProgram -> Graph.

    ep.run_decompositions (rows of the operator table stay whole)  ->  one node per ATen call  ->  Graph + weights

Sizes become Dims in arguments and never nodes; identities (alias, detach) vanish; assertions that types and ranges imply are dropped.
Everything that cannot be compiled is collected and raised as one CompileError.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export import graph_signature as gs

from sealift.diag.errors import CompileError, joined
from sealift.diag.loc import Loc
from sealift.frontend.decompose import CONTROL, IDENTITIES, IMPLIED, Program, calls, control_row, decompose, target_name
from sealift.frontend.locations import user_loc
from sealift.frontend.low_sizes import deviating_low_sizes
from sealift.frontend.recurrent_shapes import recurrent_shapes
from sealift.frontend.signature import input_names, output_names, structure_text
from sealift.frontend.sizes import SIZE_BY_VALUES, Sizes, UnsupportedSize, collect_sizes, help_for_guards, unmet_guards
from sealift.frontend.weights import Weight, dense_order, storage_key, weight_of
from sealift.ir.dim import Dim, Sym
from sealift.ir.dtype import DType, dtype_from_torch_name
from sealift.ir.graph.types import Arg, Constant, Graph, InputUpdate, Node, OpDef, State, TensorType, Value

PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"})  # no part of a tensor's value
EXPAND = "aten.expand.default"
SCALAR_TENSOR = "aten.scalar_tensor.default"  # makes a number that the model returns out of a size
EXTREMES = tuple(f"aten.{n}." for n in ("amax", "amin", "aminmax", "argmax", "argmin", "max", "min", "median", "mode", "kthvalue"))
GATHERS = frozenset(f"aten.{n}.default" for n in ("index_select", "gather", "take", "embedding")) | {"aten.index.Tensor"}
RESAMPLES = ("aten.upsample_", "aten._upsample_", "aten.grid_sampler", "aten._adaptive_avg_pool", "aten.adaptive_")
SQUEEZES = frozenset({"aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims"})
_LOG = logging.getLogger(__name__)
MAX_PLACES = 8  # lines of the user's that one missing operator lists


@dataclass(frozen=True)
class InputEntry:
    """One leaf of the model's inputs: a tensor of the graph, or a Python constant that export built in and every call has to repeat."""

    name: str
    value: Value | None
    constant: Any = None


@dataclass(frozen=True)
class Imported:
    graph: Graph
    weights: Mapping[str, Weight]  # by fqn, each stored once
    aliases: Mapping[str, str]  # fqn of a tied parameter -> the fqn that `weights` has
    inputs: tuple[InputEntry, ...]  # every leaf, in the order of in_spec
    output_kinds: tuple[str, ...]  # tensor | int | float | bool | none; a number is returned as a 0-d tensor of the graph


def export_module(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """torch.export.export, with its failure as a CompileError."""
    try:
        with recurrent_shapes():
            return torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise CompileError(
            f"torch.export cannot export {type(module).__name__}: {error}",
            code="E-EXPORT-001",
            help="pass an example of its inputs, args=(x,) or kwargs={...}"
            if not args and not kwargs
            else "export the model yourself with torch.export.export, and pass the exported program",
        ) from error


def from_export(ep: ExportedProgram, name: str, ops: Mapping[str, OpDef]) -> Imported:
    """The graph of an exported program. `ops` are the operators that exist: they stay whole, all others are decomposed.

    Errors: E-OP-001 operators without a row, E-DTYPE-001 a dtype sealift has not, E-EXPORT-003 an input that is
    neither a tensor nor a constant, E-EXPORT-004 an assumption about sizes or a size that depends on data, E-EXPORT-005 a device other than
    the CPU. All that apply, in one.
    """
    return _Importer(ep, decompose(ep, ops), name, ops).run()


# ---- import --------------------------------------------------------------------------------------------------------------------


@dataclass
class _Importer:
    original: ExportedProgram
    ep: Program
    name: str
    ops: Mapping[str, OpDef]
    values: dict[str, Any] = field(default_factory=dict)  # fx node name -> Value | tuple of Values | None
    names: set[str] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)
    errors: list[CompileError] = field(default_factory=list)
    missing: dict[str, list[tuple[str, Loc]]] = field(default_factory=dict)  # operator -> its nodes
    sizes: Sizes = field(default_factory=Sizes)
    sizes_of_model: tuple[Sym, ...] = ()

    def run(self) -> Imported:
        placeholders = {n.name: n for n in self.ep.graph.nodes if n.op == "placeholder"}
        entries = self.inputs(placeholders)
        constants, weights, aliases = self.constants(placeholders)
        guards = unmet_guards(self.original, self.sizes)
        if guards:
            self.refuse(
                "E-EXPORT-004",
                f"the model was exported for sizes with {'; '.join(guards[:3])} only, which sealift cannot check when it runs",
                help=help_for_guards(self.original, self.sizes),
            )
        self.sizes_of_model = tuple(s for s in (d.as_sym for d in self.sizes.symbols.values()) if s is not None)
        self.walk(self.ep.graph_module)
        outputs, kinds, output_names = self.outputs()
        states, changed = self.states(constants), self.input_updates()
        self.raise_errors()
        leaving = (*outputs, *(s.update for s in states), *(u.update for u in changed))
        used = {v.name for n in self.nodes for v in n.inputs} | {v.name for v in leaving if v is not None}
        mutated = {s.fqn for s in states}
        live = tuple(c for c in constants if c.value.name in used and c.fqn not in mutated)
        stored = {c.fqn for c in live} | mutated
        graph = Graph(
            self.name,
            self.sizes_of_model,
            tuple(e.value for e in entries if e.value is not None),
            live,
            states,
            tuple(self.nodes),
            outputs,
            output_names,
            structure_text(self.ep.call_spec.in_spec, "takes"),
            structure_text(self.ep.call_spec.out_spec, "returns"),
            changed,
        )
        return Imported(
            graph,
            {fqn: w for fqn, w in weights.items() if fqn in stored},
            {a: fqn for a, fqn in aliases.items() if fqn in stored},
            entries,
            kinds,
        )

    def walk(self, module: fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "call_function":
                self.call(node)
            elif node.op == "get_attr":
                self.values[node.name] = getattr(module, str(node.target), None)  # a branch or a loop's body: a graph of its own

    # ---- errors ----

    def refuse(self, code: str, message: str, node: fx.Node | None = None, help: str = "") -> None:
        loc = user_loc(node) if node is not None else None
        self.errors.append(CompileError(message, code=code, loc=loc, node=self.node_text(node) if node is not None else "", help=help))

    def refuse_number(self, error: UnsupportedSize, node: fx.Node) -> None:
        what = f"a number that is no whole-number expression of the inputs' sizes: {error}"
        self.refuse("E-EXPORT-004", what, node, help=_HELP_ITEM if error.help == SIZE_BY_VALUES else error.help or _HELP_NUMBER)

    def miss(self, operator_name: str, node: fx.Node) -> None:
        self.missing.setdefault(operator_name, []).append((self.node_text(node), user_loc(node)))

    def node_text(self, node: fx.Node) -> str:
        value = node.meta.get("val")
        result = f": {self.type_text(value)}" if isinstance(value, torch.Tensor) else ""
        args = [_arg_text(a) for a in node.args] + [f"{k}={_arg_text(v)}" for k, v in node.kwargs.items()]
        return f"%{node.name}{result} = {target_name(node)}({', '.join(args)})" if node.op == "call_function" else f"%{node.name}{result}"

    def type_text(self, tensor: torch.Tensor) -> str:
        dtype = dtype_from_torch_name(str(tensor.dtype)) or str(tensor.dtype).removeprefix("torch.")
        return f"{dtype}[{', '.join(self.size_text(s) for s in tensor.shape)}]"

    def size_text(self, size: Any) -> str:
        try:
            return str(self.sizes.dim(size))
        except UnsupportedSize:
            return str(size)

    def raise_errors(self) -> None:
        errors = list(self.errors)
        found: list[CompileError] = []
        for operator_name, places in sorted(self.missing.items()):
            distinct = list(dict.fromkeys(p for _, loc in places for p in loc.places))
            more = f" ({len(places)} nodes; {MAX_PLACES} of {len(distinct)} lines shown)" if len(distinct) > MAX_PLACES else ""
            shown = Loc(tuple(distinct[:MAX_PLACES]))
            found.append(
                CompileError(f"no lowering for {operator_name}{more}", code="E-OP-001", loc=shown, node=places[0][0], help=_way_out(operator_name))
            )
        if found or errors:
            raise joined(list({str(e): e for e in found + errors}.values()))

    def exclude_squeezed_ones(self) -> None:
        """A dimension that squeeze() may drop is never 1: ranks are fixed, and a kept dimension would be a silent difference to eager."""
        for node in calls(self.ep):
            if target_name(node) not in SQUEEZES:
                continue
            shape = _first(node).meta["val"].shape
            chosen = node.args[1] if len(node.args) > 1 else range(len(shape))
            for d in (chosen,) if isinstance(chosen, int) else chosen:  # type: ignore[union-attr]
                if not shape or not isinstance(shape[d], torch.SymInt):  # type: ignore[index]
                    continue
                try:
                    name = self.sizes.keep_at_least(2, shape[d])  # type: ignore[index]
                except UnsupportedSize:
                    continue  # a size that depends on data, which is refused where it is made
                if name is None:
                    self.refuse("E-EXPORT-004", f"a squeeze of a dimension of size {shape[d]}, which may be 1", node, help=_HELP_SQUEEZE)  # type: ignore[index]
                elif name:
                    _LOG.warning("%s: squeeze() would drop dimension %s at size 1, so %s starts at 2; %s", user_loc(node), d, name, _HELP_SQUEEZE)

    def exclude_empty_dimensions(self) -> None:
        """The largest of no numbers does not exist, and nothing can be taken from a dimension without positions: eager raises, and a kernel would
        read a place that is not there."""
        for node in calls(self.ep):
            shape = getattr(_first(node).meta.get("val"), "shape", ()) if node.args and isinstance(node.args[0], fx.Node) else ()
            for d in _needed_dimensions(node, len(shape)):
                if not isinstance(shape[d], torch.SymInt):
                    continue
                with suppress(UnsupportedSize):  # a size that depends on data, which is refused where it is made
                    name = self.sizes.keep_at_least(1, shape[d])
                    if name:
                        _LOG.warning("%s: %s of nothing is an error, so size 0 of %s is left out", user_loc(node), target_name(node), name)

    def exclude_deviating_low_sizes(self) -> None:
        """Sizes of 1 and 0 at which an operator does not do what export, which takes sizes for 2 and more, wrote down."""
        for low in deviating_low_sizes(self.ep, self.sizes):
            symbol = str(self.sizes.symbols[low.torch_name])
            why = f"{target_name(low.node)} at {symbol} = {low.size}: {low.why}"
            if self.sizes.start_at(low.torch_name, low.size + 1):
                _LOG.warning("%s: %s, so %s starts at %d; %s", user_loc(low.node), why, symbol, low.size + 1, _HELP_LOW)
            else:
                self.refuse("E-EXPORT-004", why, low.node, help=_HELP_LOW)

    # ---- what goes in ----

    def inputs(self, placeholders: Mapping[str, fx.Node]) -> tuple[InputEntry, ...]:
        specs = [s for s in self.ep.graph_signature.input_specs if s.kind is gs.InputKind.USER_INPUT]
        names = input_names(self.ep, [s.arg.name for s in specs])
        tensors = {n: placeholders[s.arg.name].meta["val"] for n, s in zip(names, specs, strict=True) if isinstance(s.arg, gs.TensorArgument)}
        self.sizes = collect_sizes(self.original, tensors)
        self.exclude_squeezed_ones()
        self.exclude_empty_dimensions()
        if not unmet_guards(self.original, self.sizes):
            self.exclude_deviating_low_sizes()
        entries: list[InputEntry] = []
        for user_name, spec in zip(names, specs, strict=True):
            node = placeholders.get(spec.arg.name)
            if isinstance(spec.arg, gs.TensorArgument) and node is not None:
                value = self.define(user_name, node.meta["val"], node)
                self.values[node.name] = value
                entries.append(InputEntry(user_name, value))
            elif isinstance(spec.arg, gs.ConstantArgument):
                if node is not None:
                    self.values[node.name] = spec.arg.value
                entries.append(InputEntry(user_name, None, spec.arg.value))
            else:
                kind = type(spec.arg).__name__.removesuffix("Argument")
                self.refuse("E-EXPORT-003", f"input {user_name!r} is a {kind}", node, help="pass it as a tensor, or as a constant when exporting")
        return tuple(entries)

    def constants(self, placeholders: Mapping[str, fx.Node]) -> tuple[tuple[Constant, ...], dict[str, Weight], dict[str, str]]:
        mutated = {s.target for s in self.ep.graph_signature.output_specs if s.kind in _STATE_UPDATES}
        kinds = {gs.InputKind.PARAMETER: "parameter", gs.InputKind.BUFFER: "buffer", gs.InputKind.CONSTANT_TENSOR: "tensor"}
        constants: list[Constant] = []
        weights: dict[str, Weight] = {}
        aliases: dict[str, str] = {}
        canonical: dict[Any, Constant] = {}
        for spec in self.ep.graph_signature.input_specs:
            if spec.kind is gs.InputKind.USER_INPUT:
                continue
            node = placeholders[spec.arg.name]
            if spec.kind not in kinds or spec.target is None:
                what = "a Python object" if spec.kind is gs.InputKind.CUSTOM_OBJ else "an effect token"
                self.refuse("E-EXPORT-003", f"the model holds {what}, {spec.target or spec.arg.name!r}", node)
                continue
            tensor = self.ep.state_dict.get(spec.target)
            if tensor is None:
                tensor = self.ep.constants[spec.target]
            key = storage_key(tensor)
            if key is not None and spec.target not in mutated and key in canonical:
                first = canonical[key]
                self.values[node.name] = first.value
                aliases[spec.target] = first.fqn
                continue
            value = self.define(spec.arg.name, tensor, node)
            if value is None:
                continue
            constant = Constant(Value(value.name, TensorType(value.type.dtype, value.type.shape)), spec.target, kinds[spec.kind])
            self.values[node.name] = constant.value
            constants.append(constant)
            weights[spec.target] = weight_of(tensor)
            if key is not None and spec.target not in mutated:
                canonical[key] = constant
        return tuple(constants), weights, aliases

    def states(self, constants: tuple[Constant, ...]) -> tuple[State, ...]:
        by_fqn = {c.fqn: c for c in constants}
        found: list[State] = []
        for spec in self.ep.graph_signature.output_specs:
            if spec.kind in _STATE_UPDATES and spec.target in by_fqn:
                update = self.values.get(spec.arg.name)
                if isinstance(update, Value):
                    value = by_fqn[spec.target].value
                    found.append(State(value, spec.target, self.filling(value, update)))
        return tuple(found)

    def input_updates(self) -> tuple[InputUpdate, ...]:
        found: list[InputUpdate] = []
        for spec in self.ep.graph_signature.output_specs:
            if spec.kind is gs.OutputKind.USER_INPUT_MUTATION:
                value, update = self.values.get(str(spec.target)), self.values.get(spec.arg.name)
                if isinstance(value, Value) and isinstance(update, Value) and value != update:
                    found.append(InputUpdate(value, self.filling(value, update)))
        return tuple(found)

    def filling(self, value: Value, update: Value) -> Value:
        """The update at the shape of what it replaces: export leaves out the broadcast of buffer.copy_(row)."""
        expand = self.ops.get(EXPAND)
        if update.type.shape == value.type.shape or expand is None:
            return update
        whole = Value(self.unique(update.name), TensorType(update.type.dtype, value.type.shape))
        sizes = tuple(d.value if d.is_const else d for d in value.type.shape)
        self.nodes.append(Node(expand, (("self", update), ("size", sizes)), (whole,)))
        return whole

    # ---- values ----

    def unique(self, wanted: str) -> str:
        """linear, linear2, ...: no `_2`, which is how a row names the buffers inside its node."""
        name, count = wanted, 2
        while name in self.names:
            name, count = f"{wanted}_n{count}" if wanted[-1:].isdigit() else f"{wanted}{count}", count + 1
        self.names.add(name)
        return name

    def define(self, wanted: str, tensor: torch.Tensor, node: fx.Node) -> Value | None:
        """A value of the tensor's type; None, and an error noted, where the type is none of sealift's."""
        dtype = dtype_from_torch_name(str(tensor.dtype))
        if dtype is None:
            known = ", ".join(d.torch_name for d in DType)
            self.refuse("E-DTYPE-001", f"{str(tensor.dtype).removeprefix('torch.')} is not supported", node, help=f"supported: {known}")
            return None
        if tensor.device.type not in ("cpu", "meta"):
            self.refuse("E-EXPORT-005", f"a tensor on {tensor.device}", node, help="move the model and its inputs to the CPU before exporting")
            return None
        if tensor.layout is not torch.strided:
            self.refuse("E-DTYPE-001", f"a tensor of layout {tensor.layout}", node)
            return None
        try:
            shape = tuple(self.sizes.dim(s) for s in tensor.shape)
        except UnsupportedSize as error:
            self.refuse("E-EXPORT-004", f"a size that cannot be computed from the inputs' sizes: {error}", node, help=error.help or _HELP_SIZE)
            return None
        return Value(self.unique(wanted), TensorType(dtype, shape, self.order(tensor, shape)))

    def order(self, tensor: torch.Tensor, shape: tuple[Dim, ...]) -> tuple[int, ...] | None:
        try:
            return dense_order(shape, tuple(self.sizes.dim(s) for s in tensor.stride()))
        except UnsupportedSize:
            return None

    # ---- nodes ----

    def call(self, node: fx.Node) -> None:
        value = node.meta.get("val")
        if node.target is operator.getitem:
            source, position = self.values.get(_first(node).name), node.args[1]
            self.values[node.name] = source[position] if isinstance(source, tuple) and isinstance(position, int) else None
            return
        if isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return  # read where it is used
        name = target_name(node)
        if name in IMPLIED:
            self.check_assertion(node)
            return
        if name in IDENTITIES:
            self.values[node.name] = self.values.get(_first(node).name)
            return
        control = control_row(node)
        if control is not None and control in self.ops:
            self.control(self.ops[control], node, value)
            return
        op = self.ops.get(name)
        if op is None or not isinstance(node.target, torch._ops.OpOverload):
            self.miss(name, node)
            self.values[node.name] = self.unknown(node, value)
            return
        args = self.arguments(op, node)
        if args is None:  # refused, or behind something that is
            self.values[node.name] = self.unknown(node, value)
            return
        outputs = self.results(node, value)
        if any(o is None for o in outputs):
            return
        self.nodes.append(Node(op, args, tuple(o for o in outputs if o is not None), user_loc(node)))

    # ---- branches and loops ----

    def control(self, op: OpDef, node: fx.Node, value: Any) -> None:
        """A branch or a loop: its graphs over the tensors among its operands."""
        parameters = CONTROL[op.name]
        given = dict(zip(parameters, node.args, strict=True))
        tensors = [a for key, arg in given.items() if isinstance(arg, (list, tuple)) for a in arg]
        carried = given.get("carried_inputs", ())
        odd = next((a for a in carried if not (isinstance(a, fx.Node) and isinstance(a.meta.get("val"), torch.Tensor))), None)  # type: ignore[union-attr]
        if odd is not None:
            self.refuse("E-EXPORT-004", f"a loop that carries {_arg_text(odd)}, a number", node, help="carry it as a tensor: torch.tensor(0)")
        pred = given.get("pred")
        if pred is not None and not (isinstance(pred, fx.Node) and isinstance(pred.meta.get("val"), torch.Tensor)):
            why = "a branch that depends on sizes alone"
            self.refuse("E-EXPORT-004", why, node, help="use a tensor: torch.cond(torch.tensor(x.shape[0]) > 4, ...); or decide in Python")
            odd = pred
        args: list[tuple[str, Arg]] = []
        for key in parameters:
            raw = given[key]
            module = self.values.get(raw.name) if isinstance(raw, fx.Node) else None
            if isinstance(module, fx.GraphModule):
                args.append((key, self.part(module, f"{_stem(node)}_{key.removesuffix('_graph')}", tensors)))
            elif isinstance(raw, (list, tuple)):
                args.append((key, tuple(self.argument(a) for a in raw if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), torch.Tensor))))
            else:
                args.append((key, self.argument(raw) if odd is None else None))
        lost = any(a is _LOST or (isinstance(a, tuple) and any(x is _LOST or x is None for x in a)) for _, a in args)
        outputs = self.results(node, tuple(value) if isinstance(value, list) else value)
        if odd is None and not lost and all(o is not None for o in outputs):
            self.nodes.append(Node(op, tuple(args), tuple(o for o in outputs if o is not None), user_loc(node)))

    def part(self, module: fx.GraphModule, name: str, operands: Sequence[Any]) -> Graph:
        """A branch or a loop's body over those of the operands that are tensors."""
        outer_values, outer_nodes = self.values, self.nodes
        self.values, self.nodes = {}, []
        inputs: list[Value] = []
        for node, operand in zip((n for n in module.graph.nodes if n.op == "placeholder"), operands, strict=True):
            tensor = node.meta.get("val")
            if isinstance(tensor, torch.Tensor):
                value = self.define(_stem(node), tensor, node)
                self.values[node.name] = value
                inputs += [value] if value is not None else []
            else:
                self.values[node.name] = operand  # a size, which is read where it is used
        self.walk(module)
        (output,) = (n for n in module.graph.nodes if n.op == "output")
        returned = output.args[0] if isinstance(output.args[0], (list, tuple)) else (output.args[0],)
        outputs: list[Value | None] = []
        for raw in returned:
            found = self.values.get(raw.name) if isinstance(raw, fx.Node) else None
            if not isinstance(found, Value) and isinstance(raw, fx.Node) and not isinstance(raw.meta.get("val"), torch.Tensor):
                self.refuse("E-EXPORT-004", f"a branch or a loop that returns {_arg_text(raw)}, a number", raw, help="return it as a tensor")
            outputs.append(found if isinstance(found, Value) else None)
        graph = Graph(self.unique(name), self.sizes_of_model, tuple(inputs), (), (), tuple(self.nodes), tuple(outputs))
        self.values, self.nodes = outer_values, outer_nodes
        return graph

    def unknown(self, node: fx.Node, value: Any) -> Any:
        """Values for a node that has no operator, so that what follows it can be looked at, too."""
        results = value if isinstance(value, (tuple, list)) else (value,)
        made = tuple(self.define_quietly(_stem(node), t, node) if isinstance(t, torch.Tensor) else None for t in results)
        return made if isinstance(value, (tuple, list)) else made[0]

    def define_quietly(self, wanted: str, tensor: torch.Tensor, node: fx.Node) -> Value | None:
        """What stands behind a missing operator is reported only where its dtype is another reason."""
        before = list(self.errors)
        result = self.define(wanted, tensor, node)
        behind = any(self.values.get(i.name, _LOST) in (None, _LOST) for i in node.all_input_nodes if isinstance(i.meta.get("val"), torch.Tensor))
        self.errors = before + [e for e in self.errors[len(before) :] if e.code == "E-DTYPE-001" and not behind]
        return result

    def results(self, node: fx.Node, value: Any) -> tuple[Value | None, ...]:
        if isinstance(value, torch.Tensor):
            result = self.define(_stem(node), value, node)
            self.values[node.name] = result
            return (result,)
        if isinstance(value, (tuple, list)) and all(isinstance(v, torch.Tensor) for v in value):
            results = tuple(self.define(f"{_stem(node)}_out{k}", v, node) for k, v in enumerate(value))
            self.values[node.name] = results
            return results
        self.refuse("E-EXPORT-003", f"{target_name(node)} gives something other than tensors", node)
        return (None,)

    def arguments(self, op: OpDef, node: fx.Node) -> tuple[tuple[str, Arg], ...] | None:
        schema = node.target._schema  # type: ignore[union-attr,unused-ignore]
        known = {p.name for p in op.params}
        given: dict[str, Any] = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        result: list[tuple[str, Arg]] = []
        for parameter in schema.arguments:
            if parameter.name not in given:
                continue
            raw = given[parameter.name]
            if parameter.name in PLACEMENT and parameter.name not in known:
                if isinstance(raw, torch.device) and raw.type not in ("cpu", "meta"):
                    self.refuse("E-EXPORT-005", f"a tensor on {raw}", node, help="move the model and its inputs to the CPU before exporting")
                continue
            if parameter.has_default_value() and _same(raw, parameter.default_value):
                continue
            if parameter.name not in known:
                self.miss(f"{op.name} with {parameter.name}={_arg_text(raw)}", node)
                return None
            try:
                converted = self.argument(raw)
            except UnsupportedSize as error:
                self.refuse_number(error, node)
                return None
            except TypeError as error:
                self.refuse("E-DTYPE-001", f"argument {parameter.name}: {error}", node)
                return None
            if converted is _LOST:
                return None
            result.append((parameter.name, converted))
        return tuple(result)

    def argument(self, raw: Any) -> Arg:
        if isinstance(raw, fx.Node):
            value = raw.meta.get("val")
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return self.argument(value)
            found = self.values.get(raw.name, _LOST)
            return _LOST if found is None and isinstance(value, torch.Tensor) else found
        if isinstance(raw, torch.SymInt):
            size = self.sizes.dim(raw)
            return size.value if size.is_const else size
        if isinstance(raw, (torch.SymFloat, torch.SymBool)):
            raise UnsupportedSize(f"{raw.node.expr} ({type(raw).__name__})")
        if isinstance(raw, torch.dtype):
            dtype = dtype_from_torch_name(str(raw))
            if dtype is None:
                raise TypeError(f"{raw} is not supported")
            return dtype
        if isinstance(raw, (torch.layout, torch.memory_format, torch.device)):
            return str(raw).removeprefix("torch.")
        if isinstance(raw, (list, tuple)):
            parts = tuple(self.argument(r) for r in raw)
            return _LOST if any(p is _LOST for p in parts) else parts
        if raw is None or isinstance(raw, (bool, int, float, complex, str)):
            return raw
        raise TypeError(f"{raw!r} of type {type(raw).__name__} is not supported")

    def check_assertion(self, node: fx.Node) -> None:
        """Drops what types and ranges imply; refuses what would have to be checked when the model runs."""
        if target_name(node) != "aten._assert_scalar.default":
            return
        condition = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else node.args[0]
        if isinstance(condition, torch.SymBool):
            relation = condition.node.expr
            known = all(s.name in self.sizes.symbols for s in relation.free_symbols)
            if not known or self.sizes.holds(relation):
                return  # about data-dependent sizes: refused where such a size is used
            self.refuse("E-EXPORT-004", f"an assertion about sizes, {relation}, which sealift cannot check when the model runs", node)
        elif condition is not True and condition is not sympy.true:
            self.refuse("E-EXPORT-004", "an assertion that sealift cannot check when the model runs", node)

    # ---- what comes out ----

    def outputs(self) -> tuple[tuple[Value | None, ...], tuple[str, ...], tuple[str, ...]]:
        values: list[Value | None] = []
        kinds: list[str] = []
        (output_node,) = (n for n in self.ep.graph.nodes if n.op == "output")
        for spec, raw in zip(self.ep.graph_signature.output_specs, output_node.args[0], strict=True):
            if spec.kind is not gs.OutputKind.USER_OUTPUT:
                continue
            number = raw.meta.get("val") if isinstance(raw, fx.Node) else raw
            if isinstance(raw, fx.Node) and isinstance(number, torch.Tensor):
                values.append(self.values.get(raw.name))
                kinds.append("tensor")
            elif number is None:
                values.append(None)
                kinds.append("none")
            elif isinstance(number, (bool, int, float, torch.SymInt)):
                kinds.append("bool" if isinstance(number, bool) else "float" if isinstance(number, float) else "int")
                values.append(self.number(number, raw if isinstance(raw, fx.Node) else output_node))
            else:
                self.refuse("E-EXPORT-003", f"the model returns {number!r} of type {type(number).__name__}", output_node)
        return tuple(values), tuple(kinds), output_names(self.ep, len(values))

    def number(self, number: Any, node: fx.Node) -> Value | None:
        """A Python number that the model returns, as a 0-d tensor."""
        op = self.ops.get(SCALAR_TENSOR)
        if op is None:
            self.miss(SCALAR_TENSOR, node)
            return None
        try:
            argument = self.argument(number)
        except UnsupportedSize as error:
            self.refuse_number(error, node)
            return None
        dtype = DType.BOOL if isinstance(number, bool) else DType.F64 if isinstance(number, float) else DType.I64
        value = Value(self.unique("number"), TensorType(dtype, ()))
        self.nodes.append(Node(op, (("s", argument), ("dtype", dtype)), (value,), user_loc(node)))
        return value


_STATE_UPDATES = frozenset(k for k in (gs.OutputKind.BUFFER_MUTATION, getattr(gs.OutputKind, "PARAMETER_MUTATION", None)) if k is not None)
_LOST = object()  # stands for a value whose definition was refused


_HELP_MISSING = "docs/operators.md lists what has a row; `sealift ops --missing script.py:function` (or a saved exported program) what yours lacks"
_RANDOM = "sealift draws no random numbers: pass them to the model as an input; a model that only trains with them is exported after .eval()"
_PACKED = "packed sequences: give the padded batch and a mask, without pack_padded_sequence"
_HELP_ITEM = "a number read out of a tensor (.item(), int(x)) is known only when the model runs: keep it a 0-d tensor"
_WAYS_OUT = {  # for operators whose lack has a reason, by how their names begin
    **{f"aten.{name}": SIZE_BY_VALUES for name in ("nonzero", "masked_select", "unique", "_unique", "bincount", "repeat_interleave.Tensor")},
    **{f"aten.{name}": _RANDOM for name in ("rand", "bernoulli", "normal", "multinomial", "poisson", "exponential", "uniform", "native_dropout")},
    "aten._local_scalar_dense": _HELP_ITEM,
    "aten.as_strided": "what strides reach depends on memory that sealift does not have: use view, slices, unfold or expand",
    **{f"aten.{name}.data": _PACKED for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
}


def _way_out(operator_name: str) -> str:
    return next((help for start, help in _WAYS_OUT.items() if operator_name.startswith(start)), _HELP_MISSING)


_HELP_SQUEEZE = "name the dimension that is always 1, x.squeeze(-1), or declare the sizes so that this one is never 1: Dim('batch', min=2)"
_HELP_LOW = "export takes sizes for 2 and more: export a model of that size of its own if it matters"
_HELP_SIZE = "declare the dimensions it comes from so that it is a sum, product, quotient or remainder of them, or export it fixed"
_HELP_NUMBER = "sealift computes sizes in integers: divide on tensors (x / x.shape[0] instead of x * (1.0 / x.shape[0])), or export that size fixed"


def _needed_dimensions(node: fx.Node, rank: int) -> Sequence[int]:
    """The dimensions of a node's first tensor of which it needs a position: for an extreme, an index or an interpolation."""
    if rank > 0 and target_name(node).startswith(EXTREMES):
        dims = _dim_argument(node)
        return (dims,) if isinstance(dims, int) else dims if isinstance(dims, (list, tuple)) and dims else range(rank)
    name = target_name(node)
    if name.startswith(RESAMPLES):
        return range(2, rank)
    if rank == 0 or name not in GATHERS:
        return ()
    if name == "aten.index.Tensor":
        return [d for d, index in enumerate(node.args[1]) if index is not None]  # type: ignore[arg-type,union-attr]
    chosen = node.args[1] if name in ("aten.index_select.default", "aten.gather.default") else 0
    return range(rank) if name == "aten.take.default" else [chosen] if isinstance(chosen, int) else ()


def _first(node: fx.Node) -> fx.Node:
    first = node.args[0]
    assert isinstance(first, fx.Node)
    return first


def _dim_argument(node: fx.Node) -> Any:
    """What a reduction is given as `dim`, which is not always its second argument: kthvalue(x, k, dim)."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr,unused-ignore]
    for position, argument in enumerate(arguments):
        if argument.name == "dim":
            given = node.args[position] if position < len(node.args) else argument.default_value
            return node.kwargs.get("dim", given)
    return None


def _stem(node: fx.Node) -> str:
    """The node's name without torch's numbering, which sizes take part in."""
    return re.sub(r"(_\d+)+$", "", node.name)


def _arg_text(raw: Any) -> str:
    if isinstance(raw, fx.Node):
        return f"%{raw.name}"
    if isinstance(raw, (list, tuple)):
        return f"[{', '.join(_arg_text(r) for r in raw)}]"
    return repr(raw).removeprefix("torch.") if not isinstance(raw, str) else f'"{raw}"'


def _same(raw: Any, default: Any) -> bool:
    if isinstance(raw, (list, tuple)) and isinstance(default, (list, tuple)):
        return len(raw) == len(default) and all(_same(a, b) for a, b in zip(raw, default, strict=True))
    if type(raw) is not type(default) or not isinstance(raw, (bool, int, float, str, type(None))):
        return False
    return repr(raw) == repr(default)  # tells -0.0 from 0.0
