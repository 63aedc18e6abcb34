"""Kernels as C++ functions, and the run function that calls them in order.

A kernel's function takes its buffers through a Task, so that kernels of one shape (the layers of a network) share one function: it is
named after the first of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sealift.backends.cpp.family_calls import CONV_DEPTHWISE, CONV_PANEL32, CONV_TRANSPOSE_PANEL32, ROW_MAJOR, CallContext, emit_call
from sealift.backends.cpp.spelling import LANE, STORAGE, identifier, size_text, unique_identifiers
from sealift.backends.cpp.stage import Lines, StageContext, emit_split_map, emit_stage, may_fail
from sealift.ir.dim import ONE, Dim, Sym
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.rewrite import stage_loads
from sealift.ir.loop.types import Call, Kernel, Loops, Map, outputs_of
from sealift.plan.loop_nest import KernelNest, plan_epilogue, plan_nest
from sealift.plan.memory import MemoryPlan
from sealift.plan.parts import PartsPlan, plan_parts, values_of

TASK_PARAMETERS = "void *arg, int64_t begin, int64_t end, int32_t worker"  # sealift_task_fn
EPILOGUE_PARAMETERS = "void *arg, float *c_tile, int64_t ldc, int64_t m0, int64_t m1, int64_t n0, int64_t n1"  # GemmEpilogue


@dataclass(frozen=True)
class WeightUse:
    """A constant in the layout that a kernel reads it in: one stored array."""

    buffer: str
    layout: int
    groups: int = 0  # of a convolution's layouts


@dataclass
class KernelSource:
    """functions: distinct kernel functions, in order. steps: the run function's body. parts: functions that it calls to run
    branches and loops. scratch: what calls need of a worker's scratch."""

    functions: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    weights: list[WeightUse] = field(default_factory=list)
    scratch: list[str] = field(default_factory=list)


def size_names(loops: Loops) -> dict[Sym, str]:
    names = unique_identifiers(s.name for s in loops.sizes)
    return {s: names[s.name] for s in loops.sizes}


def emit_kernels(loops: Loops, plan: MemoryPlan, shares_weights: bool = False) -> KernelSource:
    """`shares_weights`: with other models of the package, which may want them in panels."""
    return _KernelEmitter(loops, plan, lies_plainly=frozenset() if shares_weights else _plain_weights(loops)).emit()


def _plain_weights(loops: Loops) -> frozenset[str]:
    """Weights that generated loops read: they are stored row by row whatever else reads them."""
    loads = (load for kernel in loops.kernels for stage in kernel.stages if not isinstance(stage, Call) for load in stage_loads(stage))
    return frozenset(load.buffer.name for load in loads if load.buffer.kind == "weight")


class _KernelEmitter:
    """`around`: of loops that a call holds, the emitter of the loops that the call is in, and the number of the model's kernel it belongs to:
    what happens inside is recorded, and fails, as that kernel."""

    def __init__(
        self, loops: Loops, plan: MemoryPlan, around: tuple[_KernelEmitter, int] | None = None, lies_plainly: frozenset[str] = frozenset()
    ) -> None:
        self.loops, self.plan, self.lies_plainly = loops, plan, lies_plainly
        self.names = size_names(loops)
        self.source: KernelSource = around[0].source if around is not None else KernelSource()
        self.by_text: dict[str, str] = around[0].by_text if around is not None else {}
        self.kernel_id = around[1] if around is not None else None
        self.frame = "frame->" if around is None else ""  # where inputs, outputs and the arena are found
        self.prefix = f"{identifier(loops.name)}_" if around is not None else ""
        self.inputs = {b.name: i for i, b in enumerate(loops.inputs)}
        self.outputs = {b.name: i for i, b in enumerate(loops.outputs) if b is not None and b.kind == "output"}
        self.states = {s.name: i for i, s in enumerate(s for s, _ in loops.state_updates if s.kind == "state")}
        self.slots = {s.buffer: plan.offsets[s.share] for s in plan.slots}

    def emit(self) -> KernelSource:
        for steps in self.steps():
            self.source.steps += steps.text
        return self.source

    def steps(self) -> Iterator[Lines]:
        """Each kernel's part of the run function."""
        for position, kernel in enumerate(self.loops.kernels):
            steps = Lines(depth=1)
            steps.add(f"// {position} {kernel.name}: {kernel.loc or ', '.join(kernel.ops)}")
            if isinstance(kernel.stages[0], Call) and kernel.stages[0].parts:
                self._parts_step(position, kernel.stages[0], steps)
            elif isinstance(kernel.stages[0], Call):
                self._family_step(position, kernel, kernel.stages[0], steps)
            else:
                self._loop_step(position, kernel, steps)
            steps.add(f"if (__builtin_expect(frame->error != 0, 0)) return failed(frame, {self.number(position)});")
            yield steps

    def number(self, position: int) -> int:
        return position if self.kernel_id is None else self.kernel_id

    def begin(self, position: int, steps: Lines) -> None:
        steps.open("")
        if self.kernel_id is None:
            steps.add(f"const uint64_t token = begin_record(frame, {position});")

    def end(self, position: int, steps: Lines) -> None:
        if self.kernel_id is None:
            steps.add(f"end_record(frame, {position}, token);")
        steps.close()

    # ---- where buffers are ----

    def weight(self, b: Buffer, layout: int, groups: int) -> int:
        use = WeightUse(b.name, layout, groups)
        if use not in self.source.weights:
            self.source.weights.append(use)
        return self.source.weights.index(use)

    def place(self, b: Buffer, layout: int = ROW_MAJOR, groups: int = 0) -> str:
        """The address of a buffer as a void pointer, from the frame."""
        match b.kind:
            case "input":
                return f"{self.frame}inputs[{self.inputs[b.name]}]"
            case "output":
                return f"{self.frame}outputs[{self.outputs[b.name]}]"
            case "weight":
                return f"frame->weights[{self.weight(b, layout, groups)}]"
            case "state":
                return f"frame->states[{self.states[b.name]}]"
        offset = self.slots[b.name]
        return f"{self.frame}arena + {self.size(offset)}" if offset.terms else f"{self.frame}arena"

    def size(self, d: Dim) -> str:
        return size_text(d, self.names)

    # ---- families ----

    def _family_step(self, position: int, kernel: Kernel, call: Call, steps: Lines) -> None:
        self.begin(position, steps)

        def pointer(b: Buffer, layout: int) -> str:
            kind = STORAGE[b.dtype] if layout == ROW_MAJOR else "float"
            writable = b in outputs_of(call)
            groups = int(call.attr("groups", 0)) if layout in (CONV_PANEL32, CONV_DEPTHWISE, CONV_TRANSPOSE_PANEL32) else 0
            return f"static_cast<{'' if writable else 'const '}{kind} *>({self._void(b, layout, writable, groups)})"

        epilogue = ""
        if len(kernel.stages) > 1:
            buffers = _outside_buffers(replace(kernel, stages=kernel.stages[1:]))
            nest = plan_epilogue(kernel)
            epilogue = self._function(position, replace(kernel, stages=kernel.stages[1:]), buffers, nest, EPILOGUE_PARAMETERS)
            places = ", ".join(self._void(b, ROW_MAJOR, False) for b in buffers)
            steps.add(f"Task<{len(buffers)}> task = {{frame, {{{places}}}}};")
        self.source.scratch.append(emit_call(call, CallContext(pointer, self.names, self.lies_plainly), steps, epilogue))
        self.end(position, steps)

    def _void(self, b: Buffer, layout: int, writable: bool, groups: int = 0) -> str:
        place = self.place(b, layout, groups)
        if b.kind == "input" and writable:  # one that the model changes
            return f"const_cast<void *>({place})"
        return f"static_cast<{'' if writable else 'const '}void *>({place})" if place.startswith(f"{self.frame}arena") else place

    # ---- branches and loops ----

    def _parts_step(self, position: int, call: Call, steps: Lines) -> None:
        plan = plan_parts(call)
        plans = iter(plan.plans)
        functions = {name: self._part(part, next(plans), position) for name, part in call.attrs if isinstance(part, Loops)}
        values, workspace = call.outs[:-1], call.outs[-1]
        inputs = [self._void(operand.load.buffer, ROW_MAJOR, False) for role, operand in call.operands if role.startswith("in")]
        self.begin(position, steps)
        steps.add(f"char *const room = static_cast<char *>({self._void(workspace, ROW_MAJOR, True)});")
        outputs = ", ".join(self._void(b, ROW_MAJOR, True) for b in values)
        if call.family == "cond":
            pred = call.operand("pred")
            assert pred is not None
            steps.add(f"const void *const given[] = {{{', '.join(inputs) or 'nullptr'}}};")
            steps.add(f"void *const made[] = {{{outputs}}};")
            steps.add(f"const bool holds = *static_cast<const uint8_t *>({self._void(pred.load.buffer, ROW_MAJOR, False)}) != 0;")
            steps.add(f"holds ? {functions['then']}(frame, given, made, room) : {functions['otherwise']}(frame, given, made, room);")
        else:
            self._loop(call, plan, functions, inputs, outputs, steps)
        self.end(position, steps)

    def _loop(self, call: Call, plan: PartsPlan, functions: Mapping[str, str], inputs: list[str], outputs: str, steps: Lines) -> None:
        """What is carried goes back and forth between the outputs and the workspace: a turn reads one and writes the other."""
        condition, body = functions["condition"], functions["body"]
        count = len(plan.carried)
        others = ", ".join(f"room + {self.size(at)}" for at in plan.carried)
        arena = f"room + {self.size(plan.arena)}"
        steps.add(f"const void *given[] = {{{', '.join(inputs)}}};")
        steps.add(f"void *const first[] = {{{outputs}}}, *const second[] = {{{others}}}, *const holds[] = {{room}};")
        steps.open("for (void *const *made = first;; made = made == first ? second : first)")
        steps.add(f"if ({condition}(frame, given, holds, {arena}) != 0 || *static_cast<const uint8_t *>(holds[0]) == 0) break;")
        steps.add(f"if ({body}(frame, given, made, {arena}) != 0) break;")
        steps.add(f"for (int i0 = 0; i0 < {count}; ++i0) given[i0] = made[i0];")
        steps.close()
        for k, b in enumerate(values_of(call)):
            size = self.size(b.numel * b.dtype.size_bytes)
            steps.add(f"if (given[{k}] != first[{k}]) memcpy(first[{k}], given[{k}], static_cast<size_t>({size}));")

    def _part(self, part: Loops, plan: MemoryPlan, position: int) -> str:
        """The name of the function that runs loops that a call holds."""
        inner = _KernelEmitter(part, plan, (self, self.number(position)))
        name = f"run_{identifier(part.name)}"
        body = "\n".join(line for steps in inner.steps() for line in steps.text)
        lines = [f"int32_t {name}(sealift_frame *frame, const void *const *inputs, void *const *outputs, char *arena) {{"]
        lines += [f"  (void){unused};" for unused in ("inputs", "outputs", "arena") if not _mentions(body, unused)]
        lines += [f"  const int64_t {n} = frame->sizes[{i}];" for i, n in enumerate(self.names.values()) if _mentions(body, n)]
        self.source.parts.append("\n".join([*lines, body, "  return 0;", "}"]))
        self.source.scratch.append(self.size(plan.row_bytes))
        return name

    # ---- loops ----

    def _loop_step(self, position: int, kernel: Kernel, steps: Lines) -> None:
        buffers = _outside_buffers(kernel)
        nest = plan_nest(kernel)
        count = ONE
        if nest.split_vector:
            axis = nest.stages[0].vector
            assert axis is not None
            count = axis.extent
        elif nest.row is not None:
            count = nest.row.extent
        name = self._function(position, kernel, buffers, nest)
        self.begin(position, steps)
        places = ", ".join(self._void(b, ROW_MAJOR, False) for b in buffers)
        steps.add(f"Task<{max(len(buffers), 1)}> task = {{frame, {{{places}}}}};")
        steps.add(f"dispatch(frame, {self.size(count)}, {self.size(nest.elements)}, {name}, &task);")
        self.end(position, steps)

    def _function(self, position: int, kernel: Kernel, buffers: list[Buffer], nest: KernelNest, parameters: str = TASK_PARAMETERS) -> str:
        """The name of the kernel's function, written now or for an earlier kernel of the same text."""
        rows = (b.name for s in kernel.stages for b in outputs_of(s) if b.kind == "row")
        pointers = unique_identifiers(dict.fromkeys([*(b.name for b in buffers), *rows]), self.names.values())
        body = self._body(kernel, buffers, pointers, nest)
        canonical = self._body(kernel, buffers, {b.name: f"p{i}" for i, b in enumerate(buffers)}, nest)
        if parameters + canonical in self.by_text:
            return self.by_text[parameters + canonical]
        name = f"k{position}_{self.prefix}{identifier(kernel.name)}"
        self.by_text[parameters + canonical] = name
        head = [f"// {name}: {', '.join(kernel.ops)}"]
        head += [f"//   {place}{f': {place.code}' if place.code else ''}" for place in kernel.loc.places]
        signature = f"void {name}({parameters}) {{"
        self.source.functions.append("\n".join([*head, signature, body, "}"]))
        return name

    def _body(self, kernel: Kernel, buffers: list[Buffer], pointers: Mapping[str, str], nest: KernelNest) -> str:
        lines = Lines(depth=1)
        written = {b.name for s in kernel.stages for b in outputs_of(s)}
        lines.add(f"const auto &task = *static_cast<Task<{max(len(buffers), 1)}> *>(arg);")
        lines.add("sealift_frame *const frame = task.frame;")
        rows = {b.name: b for s in kernel.stages for b in outputs_of(s) if b.kind == "row"}
        for i, b in enumerate(buffers):
            kind, text = STORAGE[b.dtype], f"task.buffer[{i}]"
            if b.name in written:
                lines.add(f"{kind} *const {pointers[b.name]} = static_cast<{kind} *>(const_cast<void *>({text}));  // {_shape_text(b)}")
            else:
                lines.add(f"const {kind} *const {pointers[b.name]} = static_cast<const {kind} *>({text});  // {_shape_text(b)}")
        body = Lines(depth=1)
        row_names = {name: pointers.get(name, f"row{i}") for i, name in enumerate(rows)}
        scalars: dict[str, str] = {}
        all_pointers = dict(pointers)
        for name, b in rows.items():
            if len(b.shape) > b.row_dims:
                offset = self.plan.row_offsets[name]
                body.add(f"{STORAGE[b.dtype]} *const {row_names[name]} = scratch_at<{STORAGE[b.dtype]}>(frame, worker, {self.size(offset)});")
                all_pointers[name] = row_names[name]
            else:
                scalars[name] = row_names[name]
        counter = iter(range(1_000_000))
        symbol_names = dict(self.names)
        if nest.row is not None:
            symbol_names[nest.row.sym] = "row"
        context = StageContext(all_pointers, scalars, symbol_names, lambda: f"v{next(counter)}", any(map(may_fail, kernel.stages)))
        if nest.split_vector:
            (only,) = kernel.stages
            assert isinstance(only, Map)
            emit_split_map(only, nest.stages[0], context, body, "begin", "end")
        else:
            rows_of = ("m0", "m1") if nest.is_epilogue else ("begin", "end")
            body.open(f"for (int64_t row = {rows_of[0]}; row < {rows_of[1]}; ++row)")
            for name, scalar in scalars.items():
                body.add(f"{_scalar_type(rows[name])} {scalar};")
            for stage, stage_nest in zip(kernel.stages, nest.stages):
                assert not isinstance(stage, Call)
                needs_block = len(kernel.stages) > 1
                if needs_block:
                    body.open("")
                if nest.is_epilogue and isinstance(stage, Map):
                    emit_split_map(stage, stage_nest, context, body, "n0", "n1")
                else:
                    emit_stage(stage, stage_nest, context, body)
                if needs_block:
                    body.close()
            body.close()
        text = "\n".join(body.text)
        for symbol, name in self.names.items():
            if _mentions(text, name):
                lines.add(f"const int64_t {name} = frame->sizes[{self.loops.sizes.index(symbol)}];")
        given = ("frame", "c_tile", "ldc", "m0", "m1", "n0", "n1") if nest.is_epilogue else ("frame", "worker")
        unused = [name for name in given if not _mentions("\n".join([*lines.text[2:], text]), name)]
        for name in unused:
            lines.add(f"(void){name};")
        return "\n".join([*lines.text, text])


def _scalar_type(b: Buffer) -> str:
    return LANE[b.dtype]


def _mentions(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _shape_text(b: Buffer) -> str:
    return f"{b.dtype} [{', '.join(str(d) for d in b.shape)}]"


def _outside_buffers(kernel: Kernel) -> list[Buffer]:
    """Buffers that the kernel is given: those it writes first, then those it reads, in order of mention."""
    found: dict[str, Buffer] = {}
    for stage in kernel.stages:
        for load in stage_loads(stage):
            found.setdefault(load.buffer.name, load.buffer)
    for stage in kernel.stages:
        for b in outputs_of(stage):
            found.setdefault(b.name, b)
    return [b for b in found.values() if b.kind != "row"]
