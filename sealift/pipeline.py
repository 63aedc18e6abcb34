"""compile(): from an exported program to a sealed package, in one function that can be read aloud."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sealift.backends.cpp.kernel import KernelSource, WeightUse, emit_kernels
from sealift.backends.cpp.model import ModelSource, StoredWeight, emit_sources
from sealift.build.resources import find_resources
from sealift.build.toolchain import Toolchain, build_library, find_toolchain, keep_sources
from sealift.diag.steps import Steps
from sealift.environment import read_debug, warn_of_unknown_names, with_debug
from sealift.ir.dtype import DType
from sealift.ir.graph.types import Graph
from sealift.ir.graph.verify import verify as verify_graph
from sealift.ir.loop.cost import kernel_cost
from sealift.ir.loop.types import Kernel, Loops
from sealift.ir.loop.verify import verify as verify_loops
from sealift.ops import OPS
from sealift.options import Options
from sealift.package.shelf import WeightShelf
from sealift.package.write import PackagedModel, write_package
from sealift.passes.absorb_padding import absorb_padding
from sealift.passes.assign_layouts import assign_layouts
from sealift.passes.attach_epilogues import attach_epilogues
from sealift.passes.drop_empty import drop_empty
from sealift.passes.drop_unit_axes import drop_unit_axes
from sealift.passes.fold_batch_norm import fold_batch_norm
from sealift.passes.fuse_epilogues import activation_templates, fuse_epilogues
from sealift.passes.group_heads import group_heads
from sealift.passes.group_rows import group_rows
from sealift.passes.inline_producers import inline_producers
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.passes.name_kernels import name_kernels
from sealift.passes.narrow_broadcasts import narrow_broadcasts
from sealift.passes.optimize_parts import optimize_parts
from sealift.passes.pack_weights import pack, packed_bytes
from sealift.passes.share_states import share_states
from sealift.passes.simplify_expressions import simplify_expressions
from sealift.passes.update_in_place import update_in_place
from sealift.plan.memory import MemoryPlan, plan_memory
from sealift.plan.parts import plan_parts
from sealift.plan.places import places_of
from sealift.targets.isa import BY_NAME, Isa
from sealift.version import VERSION

_WORTH_SHARING_BYTES = 4096

if TYPE_CHECKING:
    from sealift.frontend.exported import Imported, InputEntry


@dataclass(frozen=True)
class Emitted:
    """Everything that is known of a model before its library is built."""

    imported: Imported
    graph: Graph
    loops: Loops
    plan: MemoryPlan
    source: ModelSource
    weights: tuple[StoredWeight, ...]
    shelf: WeightShelf
    isas: tuple[Isa, ...]
    toolchain: Toolchain
    steps: Steps


@dataclass(frozen=True)
class Compiled(Emitted):
    """Everything a compilation made, before it is packaged."""

    library: bytes


def compile(
    model: Any,
    package_path: str | os.PathLike[str] | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    name: str = "model",
    options: Options | None = None,
) -> Path:
    """Compiles a torch.export.ExportedProgram, a module (exported for you with args, kwargs and dynamic_shapes), or several by name
    ({"encoder": ep1, "decoder": ep2}) into one package, and returns its path (default: `name`.pt2 in the current directory).

    Errors: CompileError, which names every missing operator with your lines; nothing is left half-written.
    """
    from sealift._runtime import log_api_usage_once
    from sealift.frontend import export_module, from_export

    log_api_usage_once("sealift.compile")
    warn_of_unknown_names(os.environ)
    debug = read_debug(os.environ)
    options = with_debug(options if options is not None else Options(), debug)
    programs = dict(model) if isinstance(model, Mapping) else {name: model}
    path = Path(package_path) if package_path is not None else Path(f"{name}.pt2")
    imported: dict[str, Imported] = {}
    for model_name, program in programs.items():
        if not hasattr(program, "graph_signature"):
            program = export_module(program, args or (), kwargs, dynamic_shapes)
        imported[model_name] = from_export(program, model_name, OPS)
    graphs = share_states({model_name: one.graph for model_name, one in imported.items()})
    shelf = WeightShelf(by_content=True)
    shared = shelf if len(programs) > 1 and _have_common_weights(list(imported.values()), shelf) else None
    packaged: list[PackagedModel] = []
    with ThreadPoolExecutor(max_workers=1) as builder:  # a library is built while the next model is lowered, and while weights are packed and written
        try:
            for model_name, graph in graphs.items():
                one = replace(imported[model_name], graph=graph)
                steps = new_steps(options if len(programs) == 1 else replace(options, dump_dir=_below(options.dump_dir, model_name)))
                steps.check("import", one.graph)
                steps.dump("import", one.graph)
                emitted = emit(one, options, steps, shared)
                packaged.append(_packaged(emitted, builder.submit(build, emitted, debug.time).result, shared is None))
            observe = sys.modules.get("sealift.observe.metadata")  # where the program watches model files
            stamp = observe.package_extra_files(path) if observe is not None else {}
            pieces = shared.pieces() if shared is not None else ()
            top = {"compiler": f"sealift {VERSION}"}
            written = write_package(path, packaged, dict(options.metadata), {**stamp, **options.extra_files}, top, pieces)
        except BaseException:
            builder.shutdown(wait=False, cancel_futures=True)
            raise
    if observe is not None:
        observe.note_file("saved", "sealift", str(written))
    return written


def compile_graph(imported: Imported, options: Options = Options(), steps: Steps | None = None, shelf: WeightShelf | None = None) -> Compiled:
    """The pipeline: graph -> loops -> fused loops -> memory plan -> C++ -> library. `shelf`: the weights file that several models share;
    None for one of the model's own."""
    emitted = emit(imported, options, steps, shelf)
    return Compiled(**vars(emitted), library=build(emitted))


def emit(imported: Imported, options: Options = Options(), steps: Steps | None = None, shelf: WeightShelf | None = None) -> Emitted:
    """The pipeline up to the sources."""
    s = steps if steps is not None else new_steps(options)
    isas = [BY_NAME[i] for i in options.isas]
    toolchain = find_toolchain(options.jobs, options.debug_symbols, options.cache_dir)
    imported = s("fold", fold_constants, imported)
    graph = imported.graph
    loops = optimize(s("lower", lower_to_loops, graph), s)
    plan = s("plan", plan_memory, loops)
    kernels = s("kernels", emit_kernels, loops, plan, shelf is not None)
    shelf = shelf if shelf is not None else WeightShelf()
    weights = s("pack", _store_weights, imported, kernels, shelf)
    source = s("emit", emit_sources, graph, loops, kernels, plan, weights, isas, f"sealift {VERSION}, {toolchain.version}")
    if s.options.dump_dir is not None:
        keep_sources(source, isas, s.options.dump_dir / "src")
    return Emitted(imported, graph, loops, plan, source, weights, shelf, tuple(isas), toolchain, s)


def build(emitted: Emitted, print_times: bool = False) -> bytes:
    """The model's library."""
    s = emitted.steps
    library = s("build", build_library, emitted.source, emitted.isas, emitted.toolchain, find_resources())
    s.check_names()
    if print_times:
        print(f"{emitted.graph.name}:\n{s.table()}", file=sys.stderr)
    return library


def fold_constants(imported: Imported) -> Imported:
    """What can be computed before any input is known; the weights travel beside the graph."""
    from sealift.frontend.weights import Weight

    floats = {fqn: w.array for fqn, w in imported.weights.items() if w.dtype is DType.F32}
    folded = fold_batch_norm(imported.graph, floats)
    if folded.graph is imported.graph:
        return imported
    weights = {fqn: w for fqn, w in imported.weights.items() if w.dtype is not DType.F32 or fqn in folded.arrays}
    made = {fqn: Weight(DType.F32, array) for fqn, array in folded.arrays.items() if fqn not in imported.weights}
    return replace(imported, graph=folded.graph, weights={**weights, **made})


def optimize(loops: Loops, s: Steps | Callable[..., Any]) -> Loops:
    """The loop passes, in order: first what inlining feeds on, then what it leaves to kernels."""
    templates = activation_templates(OPS)
    loops = s("parts", optimize_parts, loops, lambda part: optimize(part, _alone), lambda call: plan_parts(call).total_bytes)
    loops = s("drop-empty", drop_empty, loops)
    loops = s("simplify", simplify_expressions, loops)
    loops = s("heads", group_heads, loops)
    loops = s("in-place", update_in_place, loops)
    loops = s("epilogues-direct", fuse_epilogues, loops, templates)  # before inlining takes an activation into a window that reads it often
    loops = s("inline", inline_producers, loops)
    loops = s("simplify-inlined", simplify_expressions, loops)
    loops = s("narrow", narrow_broadcasts, loops)
    loops = s("padding", absorb_padding, loops)
    loops = s("inline-narrowed", inline_producers, loops)
    loops = s("epilogues", fuse_epilogues, loops, templates)
    loops = s("layouts", assign_layouts, loops)
    loops = s("attach", attach_epilogues, loops)
    loops = s("units", drop_unit_axes, loops)
    loops = s("rows", group_rows, loops)
    return s("names", name_kernels, loops)


def _alone(name: str, fn: Any, first: Any, *args: Any) -> Any:
    """A step of loops that a call holds: part of the step that optimises them."""
    return fn(first, *args)


def _below(directory: Path | None, name: str) -> Path | None:
    return None if directory is None else directory / name


def new_steps(options: Options) -> Steps:
    """Steps that verify both IRs and dump every form a model takes."""
    verify: dict[type, Any] = {Graph: verify_graph, Loops: verify_loops}
    text: dict[type, tuple[str, Any]] = {Graph: ("graph", str), Loops: ("loops", str), MemoryPlan: ("plan", str), ModelSource: ("cpp", str)}
    return Steps(options, verify, text)


def _store_weights(imported: Imported, kernels: KernelSource, shelf: WeightShelf) -> tuple[StoredWeight, ...]:
    """One stored array for each layout a constant is read in, in the order that the kernels number them."""
    graph = imported.graph
    fqns = [c.fqn for c in graph.constants] + [state.fqn for state in graph.states]
    position = {name: i for i, name in enumerate([*(c.value.name for c in graph.constants), *(state.value.name for state in graph.states)])}
    stored: list[StoredWeight] = []
    for use in [*kernels.weights, *(WeightUse(state.value.name, 0) for state in graph.states)]:
        constant = position[use.buffer]
        array = imported.weights[fqns[constant]].array
        key = (shelf.key_of(array), use.layout, use.groups)
        size_bytes = packed_bytes(array, use.layout, use.groups)
        offset, size = shelf.place(key, size_bytes, lambda array=array, use=use: pack(array, use.layout, use.groups))  # type: ignore[misc]
        stored.append(StoredWeight(constant, use.layout, offset, size, use.groups))
    return tuple(stored)


def _have_common_weights(models: Sequence[Imported], shelf: WeightShelf) -> bool:
    """Whether the models hold arrays alike, so that one weights file for all is smaller."""
    seen: set[Hashable] = set()
    for one in models:
        own = {shelf.key_of(w.array) for w in one.weights.values() if w.array.nbytes >= _WORTH_SHARING_BYTES}
        if not seen.isdisjoint(own):
            return True
        seen |= own
    return False


def _leaf(entry: InputEntry) -> dict[str, Any]:
    """A leaf of the call: a tensor, or a Python constant that export built in, which every call has to repeat."""
    return {"name": entry.name} if entry.value is not None else {"name": entry.name, "constant": entry.constant}


def _kernel(position: int, kernel: Kernel, loops: Loops, plan: MemoryPlan) -> dict[str, Any]:
    origin, cost = [str(p) for p in kernel.loc.places], kernel_cost(kernel)
    what = {"id": position, "name": f"k{position}_{kernel.name}", "ops": list(kernel.ops), "origin": origin}
    return {**what, "flops": str(cost.flops), "bytes": str(cost.bytes), "writes": places_of(kernel, loops, plan)}


def _packaged(compiled: Emitted, library: Callable[[], bytes], own_weights: bool = True) -> PackagedModel:
    graph, loops = compiled.graph, compiled.loops
    manifest = {
        "inputs": [{"name": v.name, "dtype": str(v.type.dtype), "shape": [str(d) for d in v.type.shape]} for v in graph.inputs],
        "outputs": [
            None if v is None else {"name": n, "dtype": str(v.type.dtype), "shape": [str(d) for d in v.type.shape]}
            for n, v in zip(graph.output_names, graph.outputs)
        ],
        "sizes": {s.name: [s.lo, s.hi if isinstance(s.hi, int) else s.hi.upper] for s in graph.sizes},
        "constants": [
            {"fqn": c.fqn, "kind": c.kind, "dtype": str(c.value.type.dtype), "shape": [d.value for d in c.value.type.shape]} for c in graph.constants
        ],
        "leaves": [_leaf(entry) for entry in compiled.imported.inputs],
        "output_kinds": list(compiled.imported.output_kinds),
        "states": [{"fqn": s.fqn, "dtype": str(s.value.type.dtype), "shape": [d.value for d in s.value.type.shape]} for s in graph.states],
        "kernels": [_kernel(i, k, loops, compiled.plan) for i, k in enumerate(loops.kernels)],
    }
    if graph.input_updates:
        manifest["changed_inputs"] = [u.value.name for u in graph.input_updates]
    return PackagedModel(graph.name, library, compiled.shelf.pieces() if own_weights else None, manifest)


__all__ = ["Compiled", "Emitted", "WeightUse", "compile", "compile_graph"]
