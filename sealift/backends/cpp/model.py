"""A model as C++ sources: its tables (once), its kernels and its run function (once per instruction set)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealift.backends.cpp.family_calls import family_includes
from sealift.backends.cpp.kernel import KernelSource, emit_kernels, size_names
from sealift.backends.cpp.spelling import identifier, size_text, unique_identifiers
from sealift.diag.errors import CompileError
from sealift.ir.dim import Dim, Sym, dim
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Graph, Value
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.types import Loops
from sealift.plan.memory import MemoryPlan
from sealift.targets.isa import Isa

FUNCTIONS_PER_UNIT = 12  # kernel functions in one compilation unit: small enough that two cores share the work


@dataclass(frozen=True)
class StoredWeight:
    """A stored array: the constant (by position in the graph), its layout, and where it lies in the weights file."""

    constant: int
    layout: int
    offset_bytes: int
    size_bytes: int
    groups: int = 0


@dataclass(frozen=True)
class ModelSource:
    """common: file name -> text, compiled once. per_isa: file name -> text, compiled for each instruction set. headers: for both."""

    common: Mapping[str, str]
    per_isa: Mapping[str, str]
    headers: Mapping[str, str]

    def __str__(self) -> str:
        files = {**self.headers, **self.per_isa, **self.common}
        return "\n".join(f"// ==== {name} ====\n{text}" for name, text in files.items())


def emit_sources(
    graph: Graph, loops: Loops, kernels: KernelSource, plan: MemoryPlan, weights: Sequence[StoredWeight], isas: Sequence[Isa], compiler: str
) -> ModelSource:
    units = [kernels.functions[i : i + FUNCTIONS_PER_UNIT] for i in range(0, len(kernels.functions), FUNCTIONS_PER_UNIT)]
    per_isa = {f"kernels_{i}.cpp": _kernel_unit(graph.name, unit) for i, unit in enumerate(units)}
    per_isa["run.cpp"] = _run_unit(graph.name, loops, kernels)
    return ModelSource(
        {"model.cpp": _model_unit(graph, loops, kernels, plan, weights, isas, compiler)},
        per_isa,
        {"kernels.h": _kernel_header(graph.name, kernels)},
    )


def _signature(function: str) -> str:
    line = next(text for text in function.split("\n") if text.startswith("void "))
    return line.removesuffix(" {") + ";"


def _kernel_header(name: str, kernels: KernelSource) -> str:
    declarations = "\n".join(_signature(f) for f in kernels.functions)
    include = '#include "kernels/loops/loops.h"'
    return f"// Kernels of {name}.\n#pragma once\n\n{include}\n\n{_in_namespace(declarations)}"


def _kernel_unit(name: str, functions: Sequence[str]) -> str:
    body = "\n\n".join(functions)
    return f'// Kernels of {name}, compiled once per instruction set.\n#include "kernels.h"\n\n{_in_namespace(body)}'


def _in_namespace(body: str) -> str:
    return f"namespace SEALIFT_NS {{\n\n{body}\n\n}}  // namespace SEALIFT_NS\n"


def _run_unit(name: str, loops: Loops, kernels: KernelSource) -> str:
    names = size_names(loops)
    steps = "\n".join(kernels.steps)
    used = [f"  const int64_t {n} = frame->sizes[{i}];" for i, (s, n) in enumerate(names.items()) if f"{n}" in steps]
    used += [f"  (void){n};" for s, n in names.items() if f"{n}" in steps]
    sizes = "\n".join(used)
    includes = "\n".join(['#include "kernels.h"', *family_includes(loops)])
    return (
        f"// {name}, one run: every kernel in order.\n{includes}\n\n"
        "namespace SEALIFT_NS {\nnamespace {\n\n"
        "__attribute__((noinline, cold)) int32_t failed(sealift_frame *frame, int32_t kernel) {\n  frame->error_kernel = kernel;\n  return -1;\n}\n\n"
        + "".join(f"{part}\n\n" for part in kernels.parts)
        + f"}}  // namespace\n\nint32_t run_{identifier(name)}(sealift_frame *frame) {{\n{sizes}\n{steps}\n  return 0;\n}}\n\n"
        "}  // namespace SEALIFT_NS\n"
    )


# ---- tables --------------------------------------------------------------------------------------------------------------------


class _Sizes:
    """The slots of the sizes array: the symbols, then every other size that a table mentions."""

    def __init__(self, loops: Loops) -> None:
        self.slots: dict[Dim, int] = {dim(s): i for i, s in enumerate(loops.sizes)}
        self.num_symbols = len(self.slots)

    def slot(self, d: Dim) -> int:
        return self.slots.setdefault(d, len(self.slots))


def _c_string(text: str) -> str:
    out = ""
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out += "\\" + char
        elif char == "\n":
            out += "\\n"
        elif 32 <= byte < 127:
            out += char
        else:
            out += f"\\{byte:03o}"
    return f'"{out}"'


def _array(kind: str, name: str, values: Sequence[str]) -> str:
    return f"const {kind} {name}[] = {{{', '.join(values)}}};" if values else ""


def _model_unit(
    graph: Graph, loops: Loops, kernels: KernelSource, plan: MemoryPlan, weights: Sequence[StoredWeight], isas: Sequence[Isa], compiler: str
) -> str:
    sizes = _Sizes(loops)
    names = size_names(loops)
    parts: list[str] = []
    input_specs = [_tensor_spec(f"input{i}", v.name, v, b, sizes, parts) for i, (v, b) in enumerate(zip(graph.inputs, loops.inputs))]
    output_names = graph.output_names or tuple(f"output{i}" for i in range(len(loops.outputs)))
    aliases = {b.name: i for i, b in enumerate(loops.inputs)}
    output_specs = [
        _tensor_spec(f"output{i}", n, v, b, sizes, parts, aliases.get(b.name, -1) if b is not None else -1)
        for i, (n, v, b) in enumerate(zip(output_names, graph.outputs, loops.outputs))
    ]
    symbols = [_symbol_spec(s, loops) for s in loops.sizes]
    internal = unique_identifiers([*(c.value.name for c in graph.constants), *(s.value.name for s in graph.states)])
    constants: list[str] = []
    for i, c in enumerate(graph.constants):
        shape = [str(d.value) for d in c.value.type.shape]
        parts.append(_array("int64_t", f"constant{i}_shape", shape or ["0"]))
        kind = {"parameter": 0, "buffer": 1, "tensor": 2}[c.kind]
        constants.append(
            f"{{{_c_string(internal[c.value.name])}, {_c_string(c.fqn)}, {c.value.type.dtype.number}, {len(shape)}, constant{i}_shape, {kind}}}"
        )
    states: list[str] = []
    for i, state in enumerate(graph.states):
        shape = [str(d.value) for d in state.value.type.shape]
        parts.append(_array("int64_t", f"state{i}_shape", shape or ["0"]))
        name, fqn, dtype = _c_string(internal[state.value.name]), _c_string(state.fqn), state.value.type.dtype.number
        constants.append(f"{{{name}, {fqn}, {dtype}, {len(shape)}, state{i}_shape, 1}}")
        states.append(f"{{{name}, {fqn}, {dtype}, {len(shape)}, state{i}_shape, {len(weights) - len(graph.states) + i}}}")
    weight_specs = [f"{{{w.constant}, {w.layout}, {w.offset_bytes}, {w.size_bytes}, {w.groups}}}" for w in weights]
    kernel_specs = [
        f"{{{i}, {_c_string(f'k{i}_{k.name}')}, {_c_string(', '.join(k.ops))}, {_c_string(str(k.loc))}}}" for i, k in enumerate(loops.kernels)
    ]
    arena_slot, scratch_slot = len(sizes.slots), len(sizes.slots) + 1
    lines = [f"  const int64_t {n} = sizes[{i}];\n  (void){n};" for i, n in enumerate(names.values())]
    lines += [f"  sizes[{i}] = {size_text(d, names)};" for d, i in sizes.slots.items() if i >= sizes.num_symbols]
    lines.append(f"  sizes[{arena_slot}] = {size_text(plan.arena_bytes, names)};")
    scratch = size_text(plan.row_bytes, names)
    for text in dict.fromkeys(kernels.scratch):
        scratch = f"size_max({scratch}, {text})"
    lines.append(f"  sizes[{scratch_slot}] = ({scratch} + 63) / 64 * 64;")
    tables = {
        "sealift_tensor_spec inputs": input_specs, "sealift_tensor_spec outputs": output_specs, "sealift_symbol_spec symbols": symbols,
        "sealift_constant_spec constants": constants, "sealift_weight_spec weights": weight_specs, "sealift_kernel_spec kernels": kernel_specs,
        "sealift_state_spec states": states,
    }  # fmt: skip
    for head, rows in tables.items():
        if rows:
            parts.append(f"const {head}[] = {{\n  " + ",\n  ".join(rows) + ",\n};")

    def table(head: str) -> str:
        return head.split()[1] if tables[head] else "nullptr"

    run = f"run_{identifier(graph.name)}"
    runs = {isa.number: f"{isa.namespace}::{run}" for isa in isas}
    declarations = "\n".join(f"namespace {isa.namespace} {{\nint32_t {run}(sealift_frame *frame);\n}}" for isa in isas)
    weights_bytes = max((w.offset_bytes + w.size_bytes for w in weights), default=0)
    counts = [
        len(input_specs),
        len(output_specs),
        len(symbols),
        len(sizes.slots) + 2,
        len(constants),
        len(weight_specs),
        len(states),
        len(kernel_specs),
    ]
    heads = list(tables)
    includes = "\n".join(['#include "kernels/loops/loops.h"', *family_includes(loops)])
    changed = {s.name for s, _ in loops.state_updates if s.kind == "input"}
    if changed:
        parts.append(_array("uint8_t", "changes_input", [str(int(b.name in changed)) for b in loops.inputs]))
    body = "\n".join(p for p in parts if p)
    return f"""// {graph.name}: what the library says about itself.
#include "sealift_model.h"
{includes}

{declarations}

namespace {{

using namespace SEALIFT_NS;

{body}

void compute_sizes(int64_t *sizes) {{
{chr(10).join(lines)}
}}

const sealift_model_api api = {{
  SEALIFT_MODEL_ABI_VERSION, sizeof(sealift_model_api),
  {_c_string(graph.name)}, {_c_string(compiler)},
  {", ".join(map(str, counts))},  // inputs, outputs, symbols, sizes, constants, weights, states, kernels
  {table(heads[0])}, {table(heads[1])}, {table(heads[2])}, {table(heads[3])}, {table(heads[4])}, {table(heads[6])}, {table(heads[5])},
  {_c_string(graph.in_spec)},
  {_c_string(graph.out_spec)},
  {weights_bytes}u, {arena_slot}, {scratch_slot}, {sum(1 << isa.number for isa in isas)}u,
  compute_sizes,
  {{{", ".join(runs.get(i, "nullptr") for i in range(4))}}},
  {"changes_input" if changed else "nullptr"},
}};

}}  // namespace

extern "C" __attribute__((visibility("default"))) const sealift_model_api *sealift_model_get_api(uint32_t abi_version) {{
  return abi_version == SEALIFT_MODEL_ABI_VERSION ? &api : nullptr;
}}
"""


def _symbol_spec(s: Sym, loops: Loops) -> str:
    hi = s.hi if isinstance(s.hi, int) else s.hi.upper
    for i, b in enumerate(loops.inputs):
        for d, size in enumerate(b.shape):
            if size.as_sym == s:
                return f"{{{_c_string(s.name)}, {s.lo}, INT64_C({hi}), {i}, {d}}}"
    for i, b in enumerate(loops.inputs):
        for d, size in enumerate(b.shape):
            linear = size.linear_in(s)  # a size derived from one that no input has: 2*half
            if linear is not None and all(part.is_const for part in linear) and linear[0].value > 0:
                return f"{{{_c_string(s.name)}, {s.lo}, INT64_C({hi}), {i}, {d}, {linear[0].value}, {linear[1].value}}}"
    raise CompileError(
        f"the size {s} cannot be told from the inputs: no dimension is {s}, or a multiple of it",
        code="E-EXPORT-004",
        help=f"give an input a dimension of its own for {s}",
    )


def _tensor_spec(prefix: str, name: str, v: Value | None, b: Buffer | None, sizes: _Sizes, parts: list[str], alias: int = -1) -> str:
    """The value as callers see it: for them complex numbers are elements, for kernels pairs along a last dimension of the buffer."""
    if b is None or v is None:
        return f"{{{_c_string(name)}, 0, 0, nullptr, nullptr, nullptr, 1, -1}}"
    sizes_seen = b.shape[:-1] if v.type.dtype is DType.C64 else b.shape
    shape = [str(sizes.slot(d)) for d in sizes_seen]
    texts = [_c_string(str(d)) for d in sizes_seen]
    order = [str(d) for d in b.order if d < len(sizes_seen)] if b.order is not None else []
    parts.append(_array("sealift_size_slot", f"{prefix}_shape", shape or ["0"]))
    parts.append(_array("char *const", f"{prefix}_text", texts or ["nullptr"]))
    if order:
        parts.append(_array("int32_t", f"{prefix}_order", order))
    order_name = f"{prefix}_order" if order else "nullptr"
    return f"{{{_c_string(name)}, {v.type.dtype.number}, {len(sizes_seen)}, {prefix}_shape, {prefix}_text, {order_name}, 0, {alias}}}"


__all__ = ["ModelSource", "StoredWeight", "emit_kernels", "emit_sources"]
