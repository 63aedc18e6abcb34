"""Loops -> Loops: a pointwise producer is computed where it is read; views vanish into index arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sealift.diag.loc import union
from sealift.ir.dim import Dim, Sym, is_at_most, product
from sealift.ir.loop.expr import CheckIndex, Expr, Index, Inside, Load, Op, loads, rewrite, substitute
from sealift.ir.loop.operands import accepts, is_identity
from sealift.ir.loop.prim import Prim
from sealift.ir.loop.rewrite import count_readers, map_expressions, stage_loads, used_buffers
from sealift.ir.loop.types import Call, Kernel, Loops, Map, Reduce, Scan, Stage, outputs_of
from sealift.ops.lang import guarded

# Costs are in simple vector instructions; what matters is which side of the limits below an expression falls on.
_COST = {Prim.CAST: 0, Prim.NEG: 0, Prim.SELECT: 1, Prim.DIV: 5, Prim.SQRT: 8}
_TRANSCENDENTAL = 20
_CHEAP = {
    p for p in Prim if p.name in ("ADD", "SUB", "MUL", "ABS", "MINIMUM", "MAXIMUM", "AND", "OR", "XOR", "NOT", "FLOOR", "CEIL", "TRUNC", "ROUND")
}
_CHEAP |= {Prim.EQ, Prim.NE, Prim.LT, Prim.LE, Prim.GT, Prim.GE, Prim.SHL, Prim.SHR}
_GATHER = 6
_TRAPS = {Prim.FLOOR_DIV, Prim.TRUNC_DIV, Prim.REMAINDER, Prim.FMOD}  # by zero
SHARED_LIMIT = 1  # a producer with several readers is computed again in each up to this cost; above, once and stored
BROADCAST_LIMIT = 4  # likewise for one reader that reads each element many times


@dataclass(frozen=True)
class _Definition:
    stage: Map
    kernel: Kernel
    cost: int
    num_loads: int
    versions: tuple[tuple[str, int], ...]  # of the states it reads: how often each was written when it was computed


def inline_producers(loops: Loops) -> Loops:
    """t[i] = x[i] + 1; y[i] = t[i] * 2   ==>   y[i] = (x[i] + 1) * 2

    Refuses where the producer is costly and would run more often, where a gathered index does not fit the producer's index arithmetic,
    where a kernel family cannot read through the view, and where a guarded load would meet a value that can fail the run: outside the
    guard its operands are no data of the user's. A producer that reads a state stays where it is once the state is written again, and is
    not computed inside a stage that writes the state, but for one that reads each element just before it writes it.
    """
    writers = Counter(b.name for k in loops.kernels for s in k.stages for b in outputs_of(s))
    versions = {s.name: 0 for s, _ in loops.state_updates}
    readers = count_readers(loops)
    definitions: dict[str, _Definition] = {}
    kernels: list[Kernel] = []
    for kernel in loops.kernels:
        inlined = _inline_into(kernel, definitions, readers, versions)
        kernels.append(inlined)
        (stage,) = inlined.stages
        if _is_definition(stage, writers):
            assert isinstance(stage, Map)
            sources = stage_loads(stage)
            read = {load.buffer.name: versions[load.buffer.name] for load in sources if load.buffer.name in versions}
            definitions[stage.out.name] = _Definition(stage, inlined, _cost(stage.value), len(sources), tuple(read.items()))
        for b in outputs_of(stage):
            if b.name in versions:
                versions[b.name] += 1
    live = _without_dead(kernels, loops)
    if len(live) == len(loops.kernels) and all(a is b for a, b in zip(live, loops.kernels)):
        return loops
    return replace(loops, kernels=tuple(live), buffers=used_buffers(loops, live))


def _is_definition(stage: Stage, writers: Counter[str]) -> bool:
    if not isinstance(stage, Map) or stage.combine is not None or stage.out.kind != "temp" or writers[stage.out.name] != 1:
        return False
    return is_identity(stage.index, stage.axes)


def _inline_into(kernel: Kernel, definitions: dict[str, _Definition], readers: Counter[str], versions: Mapping[str, int]) -> Kernel:
    (stage,) = kernel.stages
    used: list[Kernel] = []

    def replace_load(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer.name not in definitions:
            return e
        definition = definitions[e.buffer.name]
        if not _worth_it(definition, stage, readers[e.buffer.name]) or not _is_current(definition, versions):
            return e
        inlined = inline_load(e, definition.stage)
        if inlined is None or not _may_stand_in(inlined, stage, versions):
            return e
        used.append(definition.kernel)
        return inlined

    if isinstance(stage, Call):
        operands = []
        for role, operand in stage.operands:
            definition = definitions.get(operand.load.buffer.name)
            if definition is not None and isinstance(definition.stage.value, Load) and _is_current(definition, versions):
                load = inline_load(operand.load, definition.stage)
                candidate = replace(operand, load=load) if isinstance(load, Load) else None
                if candidate is not None and accepts(stage, role, candidate) and _may_stand_in(candidate.load, stage, versions):
                    used.append(definition.kernel)
                    operand = candidate
            operands.append((role, operand))
        new_stage: Stage = stage if not used else replace(stage, operands=tuple(operands))
    else:
        new_stage = map_expressions(stage, lambda root: rewrite(root, replace_load))
    if not used:
        return kernel
    sources = [*dict.fromkeys(used), kernel]
    ops = tuple(dict.fromkeys(op for k in sources for op in k.ops))
    return replace(kernel, stages=(new_stage,), ops=ops, loc=union(k.loc for k in sources))


def _is_current(definition: _Definition, versions: Mapping[str, int]) -> bool:
    return all(versions[name] == version for name, version in definition.versions)


def _may_stand_in(value: Expr, stage: Stage, versions: Mapping[str, int]) -> bool:
    """Whether the stage does not write, elsewhere than where it reads it, a state that the value is made of."""
    written = {b.name for b in outputs_of(stage) if b.name in versions}
    reads = [load for load in loads(value) if load.buffer.name in written] if written else []
    if not reads:
        return True
    in_place = isinstance(stage, Map) and stage.combine is None and is_identity(stage.index, stage.axes)
    return in_place and all(is_identity(load.index, stage.axes) for load in reads if not isinstance(stage, Call))


def _worth_it(definition: _Definition, reader: Stage, num_readers: int) -> bool:
    if definition.cost == 0 and definition.num_loads <= 1:
        return True
    if num_readers > 1:
        return definition.cost <= SHARED_LIMIT and definition.num_loads <= 1
    if definition.cost <= BROADCAST_LIMIT:
        return True
    return is_at_most(_iterations(reader), product(a.extent for a in definition.stage.axes))


def _iterations(stage: Stage) -> Dim:
    match stage:
        case Map() | Scan():
            return product(a.extent for a in stage.axes)
        case Reduce():
            return product(a.extent for a in (*stage.axes, *stage.reduced))
    return product(())


def _cost(root: Expr) -> int:
    total = 0
    seen: set[int] = set()

    def visit(e: Expr) -> None:
        nonlocal total
        if id(e) in seen:
            return
        seen.add(id(e))
        for child in e.children:
            visit(child)
        match e:
            case Op():
                total += _COST.get(e.prim, 1 if e.prim in _CHEAP else _TRANSCENDENTAL)
            case Load() if e.children:
                total += _GATHER
            case Load() if e.guard:
                total += 2
            case CheckIndex() | Inside():
                total += 2

    visit(root)
    return total


# ---- substitution of a definition for a load ---------------------------------------------------------------------------------------


def inline_load(load: Load, definition: Map) -> Expr | None:
    """What the definition computes at the load's index; None where a gathered index cannot be put into its index arithmetic, and where
    the load is guarded and the value may fail the run."""
    if load.guard and _may_fail(definition.value):
        return None
    dims: dict[Sym, Dim] = {}
    gathered: dict[Sym, Expr] = {}
    for axis, entry in zip(definition.axes, load.index):
        if isinstance(entry, Dim):
            dims[axis.sym] = entry
        else:
            gathered[axis.sym] = entry
    value: Expr | None
    if gathered:
        value = _substitute_gathered(definition.value, dims, gathered)
        if value is None:
            return None
    else:
        value = substitute(definition.value, dims)
    return guarded(value, load.guard, load.other) if load.guard else value


def _may_fail(root: Expr) -> bool:
    """Whether a checked index or an integer division is in it."""
    pending, seen = [root], {id(root)}
    while pending:
        e = pending.pop()
        if isinstance(e, CheckIndex) or (isinstance(e, Op) and e.dtype.is_int and e.prim in _TRAPS):
            return True
        new = [child for child in e.children if id(child) not in seen]
        seen.update(map(id, new))
        pending += new
    return False


class _DoesNotFit(Exception):
    pass


def _substitute_gathered(root: Expr, dims: dict[Sym, Dim], gathered: dict[Sym, Expr]) -> Expr | None:
    # Gathered axes keep their symbols through the Dim substitution (a consumer's axis may have the same name), under names of their own.
    private = {axis: Sym(f"gathered.{axis.name}", axis.lo, axis.hi) for axis in gathered}
    renamed = {**dims, **{axis: Dim((((s,), 1),)) for axis, s in private.items()}}
    by_private = {private[axis]: e for axis, e in gathered.items()}

    def entry(d: Dim) -> Dim | Expr:
        if d.symbols.isdisjoint(by_private):
            return d
        if d.as_sym in by_private:
            return by_private[d.as_sym]
        return _as_arithmetic(d, by_private)

    def fix(e: Expr) -> Expr:
        match e:
            case Load():
                if any(not (b.value.symbols | b.lo.symbols | b.hi.symbols).isdisjoint(by_private) for b in e.guard):
                    raise _DoesNotFit
                return Load(e.buffer, tuple(entry(i) if isinstance(i, Dim) else i for i in e.index), e.guard, e.other)
            case Index() if not e.value.symbols.isdisjoint(by_private):
                found = entry(e.value)
                assert isinstance(found, Expr)
                return found if found.dtype is e.dtype else Op(Prim.CAST, (found,), e.dtype)
            case Inside() if any(not b.value.symbols.isdisjoint(by_private) for b in e.bounds):
                raise _DoesNotFit
        return e

    try:
        return rewrite(substitute(root, renamed), fix)
    except _DoesNotFit:
        return None


def _as_arithmetic(d: Dim, gathered: dict[Sym, Expr]) -> Expr:
    """The polynomial as scalar arithmetic on i64, where it is linear in the gathered symbols."""
    total: Expr | None = None
    rest = d
    for s, e in gathered.items():
        split = rest.linear_in(s)
        if split is None or not split[0].symbols.isdisjoint(gathered):
            raise _DoesNotFit
        stride, rest = split
        if stride.terms:
            term: Expr = e if stride.is_const and stride.value == 1 else Op(Prim.MUL, (e, Index(stride)), e.dtype)
            total = term if total is None else Op(Prim.ADD, (total, term), e.dtype)
    assert total is not None
    return total if not rest.terms else Op(Prim.ADD, (total, Index(rest)), total.dtype)


# ---- dead code -----------------------------------------------------------------------------------------------------------------


def _without_dead(kernels: list[Kernel], loops: Loops) -> list[Kernel]:
    needed = {b.name for b in loops.outputs if b is not None} | {s.name for s, _ in loops.state_updates}
    kept: list[Kernel] = []
    for kernel in reversed(kernels):
        writes = {b.name for s in kernel.stages for b in outputs_of(s)}
        if not writes.isdisjoint(needed):
            kept.append(kernel)
            needed |= {load.buffer.name for s in kernel.stages for load in stage_loads(s)}
    return kept[::-1]
