"""Runs one row on torch tensors: lowers it and has its stages interpreted. The one place that knows how a row is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType, dtype_from_torch_name
from sealift.ir.graph.types import OpDef
from sealift.ir.loop.expr import Buffer
from sealift.ir.loop.interpret import run_stages
from sealift.ir.loop.rewrite import replace_buffers, stage_loads
from sealift.ir.loop.types import Kernel, Loops
from sealift.ir.loop.verify import verify
from sealift.ops.arguments import PLACEMENT
from sealift.ops.families import FAMILIES
from sealift.ops.lang import Builder, Tensor, whole

torch.set_num_threads(1)  # the tensors are small, and tests run side by side

NAIVE = {name: family.naive for name, family in FAMILIES.items()}
HALF = (torch.bfloat16, torch.float16)
Call = tuple[Sequence[Any], Mapping[str, Any]]
TORCH_DTYPE = {d: getattr(torch, d.torch_name) for d in DType}


OPEN_ZERO_SIGN = frozenset(  # of 0.0 and -0.0 either may win: eager differs by size
    {
        "aten.clamp.Tensor",
        "aten.maximum.default",
        "aten.minimum.default",
        "aten.max.other",
        "aten.min.other",
        "aten.amax.default",
        "aten.amin.default",
        "aten.fmax.default",
        "aten.fmin.default",
        "aten.softshrink.default",
    }
    | {f"aten.max_pool{n}d{kind}.default" for n in (1, 2, 3) for kind in ("", "_with_indices")}
)


DECIDED = {  # how many outputs eager decides; those after them are of use to a gradient only, and eager's own differ by method
    f"aten.{name}": 1
    for name in ("_embedding_bag.default", "_embedding_bag_forward_only.default", "embedding_bag.default", "embedding_bag.padding_idx")
}


def overload_of(name: str) -> torch._ops.OpOverload:
    """ "aten.relu.default" -> torch.ops.aten.relu.default"""
    namespace, packet, overload = name.split(".")
    if namespace == "transformers":
        import_module("transformers.integrations.moe")  # which registers it
    found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    return found


def map_tensors(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return fn(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, fn) for v in value)
    if isinstance(value, Mapping):
        return {k: map_tensors(v, fn) for k, v in value.items()}
    return value


def bind(overload: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the schema's names; a single number where the schema has a list becomes a list."""
    bound = dict(kwargs)
    for argument, value in zip(overload._schema.arguments, args):
        bound[argument.name] = value
    for argument in overload._schema.arguments:
        if argument.name in bound and "List[" in str(argument.type) and isinstance(bound[argument.name], (int, float)):
            bound[argument.name] = [bound[argument.name]]
    return bound


@dataclass
class Inputs:
    """Turns torch arguments into a row's: tensors become whole buffers, whose arrays are kept."""

    sizes: Mapping[int, Dim]  # a concrete size -> the symbol that stands for it
    arrays: dict[str, np.ndarray[Any, Any]]

    def convert(self, value: Any, is_size: bool = False) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = dtype_from_torch_name(str(value.dtype))
            if dtype is None:
                raise NotImplementedError(f"a tensor of {value.dtype}")
            name = f"in{len(self.arrays)}"
            self.arrays[name] = to_numpy(value)
            return whole(Buffer(name, dtype, tuple(self.sizes.get(s, dim(s)) for s in value.shape), "input"))
        if isinstance(value, torch.dtype):
            return dtype_from_torch_name(str(value))
        if isinstance(value, (list, tuple)):
            return tuple(self.convert(v, is_size) for v in value)
        if is_size and isinstance(value, int) and not isinstance(value, bool):
            return self.sizes.get(value, value)
        return value


def to_numpy(t: torch.Tensor) -> np.ndarray[Any, Any]:
    """As the interpreter holds it: bf16 as float32, complex numbers as pairs."""
    t = t.detach().resolve_conj().resolve_neg()
    if t.is_complex():
        return torch.view_as_real(t).contiguous().numpy().copy()
    return (t.float() if t.dtype is torch.bfloat16 else t).contiguous().numpy().copy()


@dataclass
class Lowered:
    builder: Builder
    outputs: tuple[Tensor, ...]  # whole buffers
    env: dict[str, np.ndarray[Any, Any]]


def lower_row(op: OpDef, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: Mapping[int, Dim] | None = None) -> Lowered:
    """`sizes`: which sizes of the tensors (and of SymInt arguments) are symbols."""
    overload = overload_of(op.name)
    schema = {a.name: a for a in overload._schema.arguments}
    inputs = Inputs(sizes or {}, {})
    known = {p.name for p in op.params}
    given: dict[str, Any] = {}
    for name, value in bind(overload, args, kwargs).items():
        if name in known:
            given[name] = inputs.convert(value, is_size="SymInt" in str(schema[name].real_type))
        elif name not in PLACEMENT and value != schema[name].default_value:
            raise TypeError(f"{op.name}: the row has no parameter {name!r}, which is given as {value!r}")
    builder = Builder("out")
    result = op.lower(builder, **given)
    results = (result,) if isinstance(result, Tensor) else tuple(result)
    return Lowered(builder, tuple(builder.materialize(t) for t in results), inputs.arrays)


def loops_of(lowered: Lowered) -> Loops:
    """The row's stages as a model, a kernel each; its outputs are the model's. Verified."""
    outputs = {t.buffer.name: Buffer(t.buffer.name, t.buffer.dtype, t.buffer.shape, "output") for t in lowered.outputs if t.buffer is not None}
    stages = [replace_buffers(stage, outputs) for stage in lowered.builder.stages]
    read = [load.buffer for stage in stages for load in stage_loads(stage)] + [t.buffer for t in lowered.outputs if t.buffer is not None]
    given = {b.name: b for b in read if b.kind == "input"}
    temps = tuple(b for b in lowered.builder.buffers if b.name not in outputs)
    named = tuple(given.get(t.buffer.name, outputs[t.buffer.name]) for t in lowered.outputs if t.buffer is not None)
    sizes = {s.name: s for b in (*given.values(), *temps, *named) for d in b.shape for s in d.symbols}
    kernels = tuple(Kernel(f"stage{position}", (stage,)) for position, stage in enumerate(stages))
    loops = Loops("row", tuple(sizes.values()), tuple(given.values()), named, temps, kernels)
    verify(loops)
    return loops


def run_row(op: OpDef, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The row's outputs, with the dtypes and shapes that the row says; its loops are verified."""
    lowered = lower_row(op, args, kwargs)
    loops_of(lowered)
    run_stages(lowered.builder.stages, lowered.env, {}, NAIVE)
    return [_output(t, lowered.env, {}) for t in lowered.outputs]


def run_symbolic(op: OpDef, template: Lowered, env: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """A row lowered with symbols, at the sizes given."""
    held = dict(env)
    run_stages(template.builder.stages, held, sizes, NAIVE)
    return [_output(t, held, sizes) for t in template.outputs]


def _output(t: Tensor, env: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[str, int]) -> torch.Tensor:
    assert t.buffer is not None
    array = env.get(t.buffer.name)
    return output_of(t, np.zeros([d.evaluate(sizes) for d in t.held.shape], np.float32) if array is None else array, sizes)  # nothing ran: no element


def output_of(t: Tensor, array: np.ndarray[Any, Any], sizes: Mapping[str, int]) -> torch.Tensor:
    """A row's output, as the row describes it."""
    shape = [d.evaluate(sizes) for d in t.held.shape]
    assert list(array.shape) == shape, f"{t.buffer}: {array.shape} is not {shape}"
    made = torch.from_numpy(np.ascontiguousarray(array).reshape(shape))
    return torch.complex(made[..., 0], made[..., 1]) if t.dtype is DType.C64 else made.to(TORCH_DTYPE[t.dtype])


def run_eager(op: OpDef, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = overload_of(op.name)(*args, **kwargs)
    return [result] if isinstance(result, torch.Tensor) else list(result)


def assert_same(op: OpDef, got: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], note: str, call: Call | None = None) -> None:
    """Shapes and dtypes equal; values within the row's tolerance: of f32 as it stands, of half types one step of theirs, of doubles far less.

    Given the call, a sum of half types may also be right where eager is not: some of its kernels add in the half type itself."""
    assert len(got) == len(wanted), f"{note}: {len(got)} outputs, eager has {len(wanted)}"
    for position, (g, w) in enumerate(zip(got[: DECIDED.get(op.name)], wanted)):
        where = f"{note}, output {position}"
        assert g.dtype == w.dtype, f"{where}: {g.dtype}, eager {w.dtype}"
        assert g.shape == w.shape, f"{where}: {list(g.shape)}, eager {list(w.shape)}"
        if w.is_complex():
            _no_difference(_differ_as_complex(op, g, w), g, w, where)
            continue
        if not w.dtype.is_floating_point:
            _no_difference(g != w, g, w, where)
            continue
        step = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9, torch.float64: op.rtol * 1e-5}.get(w.dtype, op.rtol)
        rtol, atol = (step, op.atol * step / op.rtol) if op.rtol else (0.0, op.atol)
        a, b = g.double(), w.double()
        if op.atol and w.dtype in HALF:  # a sum's terms round at the size of the largest
            largest = float(b[b.isfinite()].abs().amax()) if b.isfinite().any() else 0.0
            atol = max(atol, step / 2 * largest)
        wrong = ~torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if op.rtol == 0 and op.name not in OPEN_ZERO_SIGN:
            wrong |= (a == 0) & (b == 0) & (torch.signbit(a) != torch.signbit(b))
        if call is not None and op.atol and w.dtype in HALF and wrong.any():
            exact = run_eager(op, *map_tensors(call, lambda t: t.double() if t.dtype in HALF else t))[position].double()
            wrong &= ~torch.isclose(a, exact, rtol=rtol, atol=atol, equal_nan=True)
        _no_difference(wrong, g, w, where)


def _differ_as_complex(op: OpDef, got: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where a part is off by more than the tolerance of the number as a whole: cancellation in one part is measured by the other."""
    a, b = (torch.view_as_real(t.resolve_conj().resolve_neg()).double() for t in (got, wanted))
    size = torch.where(b.isfinite(), b.abs(), 0.0).amax(-1, keepdim=True)
    near = (a - b).abs() <= max(10 * op.rtol, 4e-6) * size + max(op.atol, 1e-30)
    return (~(near | (a == b) | (a.isnan() & b.isnan()))).any(-1)


def _no_difference(wrong: torch.Tensor, got: torch.Tensor, wanted: torch.Tensor, where: str) -> None:
    if wrong.any():
        places = wrong.nonzero().tolist()
        shown = ", ".join(f"{p}: {got[tuple(p)].item()!r} is not {wanted[tuple(p)].item()!r}" for p in places[:4])
        raise AssertionError(f"{where}: {len(places)} of {got.numel()} differ from eager: {shown}")
