"""The invariants of loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sealift.diag.errors import InternalError
from sealift.ir.dim import ONE, ZERO, Dim, Sym, dim
from sealift.ir.dtype import DType
from sealift.ir.graph.verify import broken
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Expr, Index, Inside, Load, Op
from sealift.ir.loop.operands import is_identity
from sealift.ir.loop.prim import COMPARISONS, ArgCombine, Combine, Prim
from sealift.ir.loop.text import buffer_line, kernel_lines, stage_lines
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Reduce, Scan, Stage, outputs_of

GIVEN = ("input", "weight", "state")  # filled before the first kernel
KINDS = (*GIVEN, "output", "temp", "row")
_FLOATS_ONLY = frozenset({Prim.DIV, Prim.POW, Prim.ATAN2, *list(Prim)[list(Prim).index(Prim.SQRT) : list(Prim).index(Prim.SIGMOID) + 1]})
Axes = tuple[Axis, ...]
Entries = tuple[Dim | Expr, ...]
_INTS_ONLY = frozenset({Prim.TRUNC_DIV, Prim.SHL, Prim.SHR})


def verify(loops: Loops) -> None:
    """Raises InternalError with the offending line and ten lines either side unless

    1. buffers have names of their own, a known kind, an order that permutes their dimensions, and sizes of `loops.sizes` only;
    2. every buffer that a stage or an output names is one of those listed, as it is listed;
    3. what is not given from outside is written before it is read, inputs and weights are never written, and outputs are written (a
       buffer whose size is 0 whatever the symbols are has nothing to write);
    4. the axes of a stage (of an operand of a Call) have names of their own, which are no size's, and extents in sizes;
    5. an index has an entry per dimension; sizes in indices, bounds and values are in the stage's axes and the model's sizes; an
       expression among them is an integer;
    6. the first num_row_axes axes of a kernel's stages have the same extents, one by one (they are one loop, whatever each stage calls
       them); a Call stands first, with none, and one Map at most follows it (its epilogue);
    7. in a kernel with row axes, a buffer that an earlier stage of the same kernel wrote is read, and written again, in the same row:
       entry by entry, the difference to where it was written is free of row axes, and neither is gathered;
    8. a row buffer is used in one kernel only, and has at least its row_dims dimensions;
    9. dtypes: a Map's and a Scan's value has its buffer's (a Scan of f64 may write f32), a Reduce's too (an ArgCombine writes i64); ANY
       and ALL are of bool, SUM and PROD are not; primitives have the operands they are defined for;
    10. a state's update has the state's dtype and shape; a state is of kind state, or an input that the model changes, the only written one;
    11. a stage that writes a state reads it, if at all, at the very element that it writes, and no family reads what it writes;
    12. loops that a call holds are loops by these rules, with the same sizes.
    """
    _Checker(loops).run()


class _Checker:
    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.buffers: dict[str, Buffer] = {}
        self.sizes = set(loops.sizes)
        self.size_names = {s.name for s in loops.sizes}
        self.written: set[str] = set()
        self.row_kernel: dict[str, str] = {}
        self.mutable = {s.name for s, _ in loops.state_updates}
        self.marker = ""

    def fail(self, number: int, message: str) -> InternalError:
        return broken(f"loops {self.loops.name}", number, message, str(self.loops), self.marker)

    def run(self) -> None:
        outputs = [b for b in self.loops.outputs if b is not None]
        for b in dict.fromkeys((*self.loops.inputs, *self.loops.buffers, *outputs)):
            self.declare(b)
        self.written = {b.name for b in self.buffers.values() if b.kind in GIVEN or ZERO in b.shape}
        for kernel in self.loops.kernels:
            self.kernel(kernel)
        self.marker = "outputs"
        for b in outputs:
            self.check_listed(b)
            if b.name not in self.written:
                raise self.fail(3, f"output %{b.name} is never written")
        for state, new in self.loops.state_updates:
            self.marker = f"state %{state.name} <-"
            self.check_listed(state)
            self.check_listed(new)
            if new.name not in self.written:
                raise self.fail(3, f"%{new.name} is never written")
            if state.kind not in ("state", "input") or (state.dtype, state.shape) != (new.dtype, new.shape):
                raise self.fail(10, f"{buffer_line(state)} cannot become {buffer_line(new)}")

    def declare(self, b: Buffer) -> None:
        self.marker = buffer_line(b)
        if b.name in self.buffers:
            raise self.fail(1, f"two buffers are called %{b.name}")
        if b.kind not in KINDS:
            raise self.fail(1, f"%{b.name} is of kind {b.kind!r}; kinds are {', '.join(KINDS)}")
        if b.order is not None and sorted(b.order) != list(range(len(b.shape))):
            raise self.fail(1, f"%{b.name}: order {b.order} for {len(b.shape)} dimensions")
        for d in b.shape:
            self.symbols(d.symbols, self.sizes, 1)
        if b.kind == "row" and b.row_dims > len(b.shape):
            raise self.fail(8, f"%{b.name} has {len(b.shape)} dimensions, {b.row_dims} of the row")
        self.buffers[b.name] = b

    def check_listed(self, b: Buffer) -> None:
        if b.name not in self.buffers:
            raise self.fail(2, f"%{b.name} is not listed")
        if self.buffers[b.name] != b:
            raise self.fail(2, f"'{buffer_line(b)}' is listed as '{buffer_line(self.buffers[b.name])}'")

    def symbols(self, found: Iterable[Sym], allowed: set[Sym], number: int) -> None:
        stray = sorted(s.name for s in found if s not in allowed)
        if stray:
            raise self.fail(number, f"{', '.join(stray)}: no size of the model and no axis here")

    # ---- kernels and stages ----

    def kernel(self, kernel: Kernel) -> None:
        self.marker = kernel_lines(kernel)[0]
        rows = kernel.num_row_axes
        if not kernel.stages:
            raise self.fail(6, f"kernel {kernel.name} has no stages")
        first = kernel.stages[0]
        calls = [position for position, s in enumerate(kernel.stages) if isinstance(s, Call)]
        if calls and (rows or calls != [0] or len(kernel.stages) > 2 or not all(isinstance(s, Map) for s in kernel.stages[1:])):
            raise self.fail(6, f"kernel {kernel.name}: a call stands first in its kernel, without row axes, followed by one map at most")
        here: dict[str, list[tuple[Axes, Entries]]] = {}  # what this kernel wrote: in which axes, at which index
        for stage in kernel.stages:
            self.marker = stage_lines(stage)[0]
            if not isinstance(stage, Call) and not isinstance(first, Call):
                if len(stage.axes) < rows:
                    raise self.fail(6, f"kernel {kernel.name}: {len(stage.axes)} axes, {rows} row axes")
                if any(a.extent != b.extent for a, b in zip(stage.axes[:rows], first.axes[:rows], strict=True)):
                    raise self.fail(6, f"kernel {kernel.name}: the stage's first {rows} axes differ from the first stage's")
            loads = list(self.stage(stage))
            self.in_place(stage, loads)
            self.used_in(kernel, [*(load.buffer for load in loads), *outputs_of(stage)])
            if rows and not isinstance(stage, Call):
                uses = [(load.buffer, load.index, "read") for load in loads] + [(stage.out, _written_at(stage), "written again")]
                for buffer, entries, use in uses:
                    for axes, index in here.get(buffer.name, ()):
                        to_user = {a.sym: b.dim for a, b in zip(axes[:rows], stage.axes[:rows], strict=True)}
                        to_user |= {a.sym: dim(Sym(f"{a.name}.", a.sym.lo, a.sym.hi)) for a in axes[rows:]}  # not the reader's of that name
                        renamed = tuple(i if isinstance(i, Expr) else i.substitute(to_user) for i in index)
                        self.aligned(buffer, entries, use, renamed, {a.sym for a in stage.axes[:rows] if a.extent != ONE})
                here.setdefault(stage.out.name, []).append((stage.axes, _written_at(stage)))
            for b in outputs_of(stage):
                self.check_listed(b)
                if b.kind in ("input", "weight") and b.name not in self.mutable:
                    raise self.fail(3, f"%{b.name}, of kind {b.kind}, is written")
                self.written.add(b.name)

    def in_place(self, stage: Stage, loads: Iterable[Load]) -> None:
        own = {b.name for b in outputs_of(stage)}

        def is_own_place(index: Entries) -> bool:
            """Dimensions and axes of one position may be missing on one side."""
            assert isinstance(stage, Map)
            kept = [i for i, n in zip(index, stage.out.shape, strict=True) if n != ONE]
            return is_identity(kept, [a for a in stage.axes if a.extent != ONE])

        for load in loads:
            if load.buffer.name not in own:
                continue
            if not isinstance(stage, Map) or stage.combine is not None or load.guard or not is_own_place(stage.index) or not is_own_place(load.index):
                raise self.fail(11, f"%{load.buffer.name} is written while it is read elsewhere")

    def used_in(self, kernel: Kernel, buffers: Iterable[Buffer]) -> None:
        for b in buffers:
            if b.kind == "row" and self.row_kernel.setdefault(b.name, kernel.name) != kernel.name:
                raise self.fail(8, f"row buffer %{b.name} is used in {self.row_kernel[b.name]} and in {kernel.name}")

    def aligned(self, buffer: Buffer, entries: Entries, use: str, written: Entries, rows: set[Sym]) -> None:
        """A row axis with one position does not count: wherever it is missing, 0 stands for it."""
        for d, (entry, place) in enumerate(zip(entries, written, strict=True)):
            if isinstance(place, Expr) or isinstance(entry, Expr):
                involved = not isinstance(place, Expr) and not rows.isdisjoint(place.symbols)
                if involved or isinstance(place, Expr):
                    raise self.fail(7, f"%{buffer.name} is gathered in dimension {d}, and was written in the same kernel")
            elif not rows.isdisjoint((entry - place).symbols):
                raise self.fail(7, f"%{buffer.name} is written at {place} and {use} at {entry}: another row")

    def stage(self, stage: Stage) -> Iterator[Load]:
        if isinstance(stage, Call):
            for role, operand in stage.operands:
                yield from self.operand(role, operand)
            for part in stage.parts:
                if part.sizes != self.loops.sizes:
                    raise self.fail(12, f"loops {part.name} have sizes of their own")
                verify(part)
            return
        self.check_listed(stage.out)
        axes = (*stage.axes, *stage.reduced) if isinstance(stage, Reduce) else stage.axes
        allowed = self.axes(axes)
        rank = len(stage.out.shape)
        match stage:
            case Map():
                if len(stage.index) != rank:
                    raise self.fail(5, f"%{stage.out.name} has {rank} dimensions and is indexed by {len(stage.index)}")
                for entry in stage.index:
                    yield from self.entry(entry, allowed)
                combine: Combine | ArgCombine | None = stage.combine
            case Reduce():
                combine = stage.combine
            case Scan():
                combine = stage.combine
                if stage.along not in stage.axes:
                    raise self.fail(4, f"{stage.along.name} is none of the stage's axes")
        if not isinstance(stage, Map) and len(stage.axes) != rank:
            raise self.fail(5, f"%{stage.out.name} has {rank} dimensions, the stage {len(stage.axes)} axes")
        yield from self.expr(stage.value, allowed)
        self.combination(stage, combine)

    def combination(self, stage: Map | Reduce | Scan, combine: Combine | ArgCombine | None) -> None:
        expected = DType.I64 if isinstance(combine, ArgCombine) else stage.value.dtype
        is_narrowed = isinstance(stage, Scan) and (expected, stage.out.dtype) == (DType.F64, DType.F32)
        if stage.out.dtype is not expected and not is_narrowed:
            raise self.fail(9, f"%{stage.out.name} is {stage.out.dtype}, the value {expected}")
        if combine in (Combine.ANY, Combine.ALL) and stage.value.dtype is not DType.BOOL:
            raise self.fail(9, f"{combine} of {stage.value.dtype}")
        if combine in (Combine.SUM, Combine.PROD) and stage.value.dtype is DType.BOOL:
            raise self.fail(9, f"{combine} of bool: cast first")

    def axes(self, axes: Iterable[Axis]) -> set[Sym]:
        names: set[str] = set()
        symbols: set[Sym] = set()
        for a in axes:
            if a.name in names or a.name in self.size_names:
                raise self.fail(4, f"axis {a.name} has the name of another axis or of a size")
            self.symbols(a.extent.symbols, self.sizes, 4)
            names.add(a.name)
            symbols.add(a.sym)
        return symbols | self.sizes

    def operand(self, role: str, operand: Operand) -> Iterator[Load]:
        allowed = self.axes(operand.axes)
        if any(isinstance(i, Expr) for i in operand.load.index):
            raise self.fail(5, f"operand {role} is gathered")
        yield from self.expr(operand.load, allowed)

    # ---- expressions ----

    def expr(self, root: Expr, allowed: set[Sym]) -> Iterator[Load]:
        seen: set[int] = set()
        pending = [root]
        while pending:
            e = pending.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            pending.extend(e.children)
            match e:
                case Index():
                    self.symbols(e.value.symbols, allowed, 5)
                case Inside():
                    self.bounds(e.bounds, allowed)
                case CheckIndex():
                    self.symbols(e.size.symbols, allowed, 5)
                    if not e.value.dtype.is_int:
                        raise self.fail(5, f"an index of dtype {e.value.dtype}")
                case Load():
                    self.load(e, allowed)
                    yield e
                case Op():
                    self.op(e)

    def entry(self, entry: Dim | Expr, allowed: set[Sym]) -> Iterator[Load]:
        if isinstance(entry, Dim):
            self.symbols(entry.symbols, allowed, 5)
            return
        if not entry.dtype.is_int:
            raise self.fail(5, f"an index of dtype {entry.dtype}")
        yield from self.expr(entry, allowed)

    def load(self, e: Load, allowed: set[Sym]) -> None:
        self.check_listed(e.buffer)
        if len(e.index) != len(e.buffer.shape):
            raise self.fail(5, f"%{e.buffer.name} has {len(e.buffer.shape)} dimensions and is indexed by {len(e.index)}")
        for entry in e.index:
            if isinstance(entry, Dim):
                self.symbols(entry.symbols, allowed, 5)
            elif not entry.dtype.is_int:
                raise self.fail(5, f"%{e.buffer.name} is indexed by a {entry.dtype}")
        self.bounds(e.guard, allowed)
        if e.buffer.name not in self.written:
            raise self.fail(3, f"%{e.buffer.name} is read before it is written")

    def bounds(self, bounds: Iterable[Bound], allowed: set[Sym]) -> None:
        for b in bounds:
            self.symbols(b.value.symbols | b.lo.symbols | b.hi.symbols, allowed, 5)

    def op(self, e: Op) -> None:
        operand = e.args[-1].dtype
        result = e.dtype if e.prim is Prim.CAST else DType.BOOL if e.prim in COMPARISONS else operand
        if e.dtype is not result:
            raise self.fail(9, f"{e.prim} of {operand} gives {result}, not {e.dtype}")
        if e.prim is Prim.SELECT and e.args[0].dtype is not DType.BOOL:
            raise self.fail(9, f"select by a {e.args[0].dtype}")
        if e.prim in _FLOATS_ONLY and not operand.is_float:
            raise self.fail(9, f"{e.prim} of {operand}: of floats only")
        if e.prim in _INTS_ONLY and not operand.is_int:
            raise self.fail(9, f"{e.prim} of {operand}: of integers only")


def _written_at(stage: Map | Reduce | Scan) -> Entries:
    return stage.index if isinstance(stage, Map) else tuple(a.dim for a in stage.axes)
