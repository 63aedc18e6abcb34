"""One stage as C++: nested loops whose innermost runs over lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sealift.backends.cpp.spelling import ARG_COMBINES, COMBINES, LANE, literal, size_text, spell
from sealift.diag.errors import InternalError
from sealift.ir.dim import ONE, Dim, Sym, dim, product
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Const, Expr, Index, Inside, Load, Op
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ir.loop.types import Axis, Call, Map, Reduce, Scan, Stage
from sealift.plan.loop_nest import StageNest

_CHAIN = 128  # additions in a row whose rounding errors are let grow

_TRAPS_ON_ZERO = {Prim.FLOOR_DIV, Prim.TRUNC_DIV, Prim.REMAINDER, Prim.FMOD}


@dataclass
class Lines:
    """C++ text with indentation."""

    text: list[str] = field(default_factory=list)
    depth: int = 0

    def add(self, line: str) -> None:
        self.text.append("  " * self.depth + line if line else "")

    def open(self, line: str) -> None:
        self.add(f"{line} {{".lstrip())
        self.depth += 1

    def close(self, tail: str = "") -> None:
        self.depth -= 1
        self.add("}" + tail)


@dataclass(frozen=True)
class StageContext:
    """What a stage's text refers to: C++ names of buffers (pointers), of row buffers without dimensions (scalars), and of symbols."""

    pointers: Mapping[str, str]
    scalars: Mapping[str, str]
    names: Mapping[Sym, str]
    fresh: Callable[[], str]
    may_fail: bool = False  # a value of the kernel's may prove an error: what outlives the run is not written any more then


def may_fail(stage: Stage) -> bool:
    """Whether an index or a divisor of the stage's is checked when it runs."""
    pending = [] if isinstance(stage, Call) else [stage.value]
    if isinstance(stage, Map):
        pending += [i for i in stage.index if isinstance(i, Expr)]
    seen: set[int] = set()
    while pending:
        e = pending.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if isinstance(e, CheckIndex) or (isinstance(e, Op) and _may_trap(e)):
            return True
        pending += e.children
    return False


def _may_trap(e: Op) -> bool:
    return e.prim in _TRAPS_ON_ZERO and e.dtype.is_int


def emit_stage(stage: Map | Reduce | Scan, nest: StageNest, context: StageContext, lines: Lines) -> None:
    _StageEmitter(stage, nest, context, lines).emit()


def emit_split_map(stage: Map, nest: StageNest, context: StageContext, lines: Lines, start: str, end: str) -> None:
    """The stage's only loop, over the lanes of [start, end)."""
    emitter = _StageEmitter(stage, nest, context, lines)
    emitter.start, emitter.end = start, end
    emitter.emit()


class _StageEmitter:
    """Expressions are placed in the outermost loop that binds everything they depend on: `levels` counts loops entered so far, and an
    expression's level is the innermost loop among its symbols. Text of outer levels is written before the inner loop opens."""

    def __init__(self, stage: Map | Reduce | Scan, nest: StageNest, context: StageContext, lines: Lines) -> None:
        self.stage, self.nest, self.context, self.lines = stage, nest, context, lines
        self.names = dict(context.names)
        self.level_of: dict[Sym, int] = {}
        self.values: dict[Expr, str] = {}
        self.levels: dict[int, int] = {}
        self.entered = 0
        self.lanes = "Some{1}"
        self.start, self.end = "0", ""

    # ---- the nest ----

    def emit(self) -> None:
        roots = [self.stage.value]
        if isinstance(self.stage, Map):
            roots += [i for i in self.stage.index if isinstance(i, Expr)]
        self.roots = roots
        order = self._loop_order()
        for level, (axis, _) in enumerate(order, start=1):
            self.level_of[axis.sym] = level
        match self.stage:
            case Map():
                self._loops(order, self._store_map)
            case Reduce() if isinstance(self.stage.combine, ArgCombine):
                self._arg_reduce()
            case Reduce():
                self._reduce()
            case Scan():
                self._scan()

    def _loop_order(self) -> list[tuple[Axis, str]]:
        nest = self.nest
        outputs = [(a, "serial") for a in nest.serial]
        vector = [(nest.vector, "vector")] if nest.vector is not None else []
        if isinstance(self.stage, Reduce):
            reduced = [(a, "serial") for a in nest.reduced if a is not nest.vector]
            return [*outputs, *reduced, *vector] if nest.vector_is_reduced else [*outputs, *vector, *reduced]
        if isinstance(self.stage, Scan):
            along = [(a, k) for a, k in outputs if a == self.stage.along]
            return [*((a, k) for a, k in outputs if a != self.stage.along), *vector, *along]
        return [*outputs, *vector]

    def _hoist(self) -> None:
        """Writes the expressions that this depth completes."""
        for root in self.roots:
            self._write_up_to(root, self.entered)

    def _loops(self, order: list[tuple[Axis, str]], body: Callable[[], None]) -> None:
        self._hoist()
        if not order:
            body()
            return
        (axis, kind), rest = order[0], order[1:]
        self._open(axis, kind)
        self._loops(rest, body)
        self._close(kind)

    def _open(self, axis: Axis, kind: str) -> None:
        name = axis.name
        self.names[axis.sym] = name
        extent = self._size(axis.extent)
        if kind == "vector":
            self.lanes = "lanes"
            self.lines.open(f"for_lanes({self.start}, {self.end or extent}, [&](int64_t {name}, auto lanes) SEALIFT_LANES_INLINE")
        else:
            self.lines.open(f"for (int64_t {name} = 0; {name} < {extent}; ++{name})")
        self.entered += 1

    def _close(self, kind: str, tail: str = ");") -> None:
        self.entered -= 1
        self._forget_deeper()
        self.lines.close(tail if kind == "vector" else "")
        if kind == "vector":
            self.lanes = "Some{1}"

    def _forget_deeper(self) -> None:
        self.values = {e: name for e, name in self.values.items() if self._level(e) <= self.entered}

    # ---- stage kinds ----

    def _store_map(self) -> None:
        stage = self.stage
        assert isinstance(stage, Map)
        value = self.value(stage.value)
        if stage.combine is not None:
            self._store_combined(stage, value)
        else:
            self._store(stage.out, stage.index, value)

    def _store_combined(self, stage: Map, value: str) -> None:
        address, stride = self._address(stage.out, stage.index)
        assert stage.combine is not None
        combine, unless = COMBINES[stage.combine], self._unless_failed(stage.out)
        if stride == ONE and self.nest.vector is not None:
            self.lines.add(f"{unless}store({address}, {combine}::join(load({address}, {self.lanes}), {value}), {self.lanes});")
        else:
            self.lines.add(f"{unless}store_one({address}, {combine}::join(splat_load({address}), {value}));")

    def _unless_failed(self, out: Buffer) -> str:
        return "if (!has_failed(frame)) " if self.context.may_fail and out.kind in ("state", "input") else ""

    def _store(self, out: Buffer, index: tuple[Dim | Expr, ...], value: str) -> None:
        if out.name in self.context.scalars:
            self.lines.add(f"{self.context.scalars[out.name]} = lane0({value});")
            return
        address, stride = self._address(out, index)
        unless = self._unless_failed(out)
        if self.nest.vector is None or self.nest.vector_is_reduced:
            self.lines.add(f"{unless}store_one({address}, {value});")
        elif stride == ONE:
            self.lines.add(f"{unless}store({address}, {value}, {self.lanes});")
        else:
            if stride is None:
                raise InternalError(f"{out}: the store is not linear along the lanes")
            self.lines.add(f"{unless}store_strided({address}, {self._size(stride)}, {value}, {self.lanes});")

    def _reduce(self) -> None:
        stage, nest = self.stage, self.nest
        assert isinstance(stage, Reduce)
        combine, lane = COMBINES[stage.combine], LANE[stage.value.dtype]  # type: ignore[index]
        acc = self.context.fresh()
        serial_reduced = [(a, "serial") for a in nest.reduced if a is not nest.vector]

        def out_loops(order: list[tuple[Axis, str]], inside: Callable[[], None]) -> None:
            self._hoist()
            if not order:
                inside()
                return
            self._open(*order[0])
            out_loops(order[1:], inside)
            self._close(order[0][1])

        is_long = stage.combine is Combine.SUM and lane in ("float", "double") and serial_reduced != [] and not _is_short(nest.reduced)
        start = f"Pairwise<{lane}> {acc};" if is_long else f"auto {acc} = {combine}::identity<{lane}>();"

        def fold_in_lanes() -> None:
            self.lines.add(start)

            def fold() -> None:
                axis = nest.vector
                assert axis is not None
                self.names[axis.sym] = axis.name
                extent = self._size(axis.extent)
                into = (
                    f"{acc}.add(fold_lanes<{combine}, {lane}>({combine}::identity<{lane}>()"
                    if is_long
                    else f"{acc} = fold_lanes<{combine}, {lane}>({acc}"
                )
                self.lines.open(f"{into}, {extent}, [&](int64_t {axis.name}, auto lanes) SEALIFT_LANES_INLINE")
                self.entered += 1
                self.lanes = "lanes"
                self.lines.add(f"return {self.value(stage.value)};")
                self._close("vector", "));" if is_long else ");")

            out_loops(serial_reduced, fold)
            self._store_scalar(stage, f"{combine}::finish<{lane}>({acc}{'.total()' if is_long else ''})")

        def join(into: str) -> None:
            self.lines.add(f"{into} = {combine}::join({into}, {self.value(stage.value)});")

        def join_blocks() -> None:
            axis = serial_reduced[-1][0]
            self.names[axis.sym] = axis.name
            begin, part, extent = self.context.fresh(), self.context.fresh(), self._size(axis.extent)
            self.lines.open(f"for (int64_t {begin} = 0; {begin} < {extent}; {begin} += kSumBlock)")
            self.lines.add(f"auto {part} = {combine}::identity<{lane}>();")
            self.lines.open(f"for (int64_t {axis.name} = {begin}; {axis.name} < end_of_block({begin}, {extent}); ++{axis.name})")
            self.entered += 1
            out_loops([], lambda: join(part))
            self._close("serial")
            self.lines.add(f"{acc}.add({part});")
            self.lines.close()

        def fold_each() -> None:
            self.lines.add(start)
            if is_long:
                out_loops(serial_reduced[:-1], join_blocks)
            else:
                out_loops(serial_reduced, lambda: join(acc))
            self._store(stage.out, tuple(a.dim for a in stage.axes), f"{acc}.total()" if is_long else acc)

        outer = [(a, "serial") for a in nest.serial]
        if nest.vector_is_reduced:
            out_loops(outer, fold_in_lanes)
        else:
            out_loops([*outer, *([(nest.vector, "vector")] if nest.vector is not None else [])], fold_each)

    def _store_scalar(self, stage: Reduce, text: str) -> None:
        if stage.out.name in self.context.scalars:
            self.lines.add(f"{self.context.scalars[stage.out.name]} = {text};")
            return
        address, _ = self._address(stage.out, tuple(a.dim for a in stage.axes))
        self.lines.add(f"{self._unless_failed(stage.out)}store_one({address}, splat<{LANE[stage.value.dtype]}>({text}));")

    def _arg_reduce(self) -> None:
        stage, nest = self.stage, self.nest
        assert isinstance(stage, Reduce)
        combine = ARG_COMBINES[stage.combine]  # type: ignore[index]
        lane = "uint8_t" if stage.value.dtype is DType.BOOL else LANE[stage.value.dtype]
        best = self.context.fresh()
        outer = [(a, "serial") for a in nest.serial] + ([(nest.vector, "vector")] if nest.vector is not None else [])
        position = dim(0)
        for axis in nest.reduced:
            position = position * axis.extent + axis.dim

        def contest() -> None:
            self.lines.add(f"auto {best} = {combine}::start<{lane}>();")

            def challenge() -> None:
                value = self.value(stage.value)
                if stage.value.dtype is DType.BOOL:
                    value = f"cast<uint8_t>({value})"
                self.lines.add(f"{best} = challenge<{combine}>({best}, {value}, {self._size(position)});")

            self._loops([(a, "serial") for a in nest.reduced], challenge)
            self._store(stage.out, tuple(a.dim for a in stage.axes), f"{best}.position")

        self._loops(outer, contest)

    def _scan(self) -> None:
        stage, nest = self.stage, self.nest
        assert isinstance(stage, Scan)
        combine, lane = COMBINES[stage.combine], LANE[stage.value.dtype]
        acc = self.context.fresh()
        if nest.vector == stage.along:
            self._scan_lanes(combine, lane, acc)
            return
        along = next(a for a in nest.serial if a == stage.along)
        outer = [(a, "serial") for a in nest.serial if a != stage.along]
        outer += [(nest.vector, "vector")] if nest.vector is not None else []

        def prefix() -> None:
            self.lines.add(f"auto {acc} = {combine}::identity<{lane}>();")

            def step() -> None:
                self.lines.add(f"{acc} = {combine}::join({acc}, {self.value(stage.value)});")
                stored = acc if LANE[stage.out.dtype] == lane else f"cast<{LANE[stage.out.dtype]}>({acc})"
                self._store(stage.out, tuple(a.dim for a in stage.axes), stored)

            self._loops([(along, "serial")], step)

        self._loops(outer, prefix)

    def _scan_lanes(self, combine: str, lane: str, acc: str) -> None:
        """Along the lanes: values are made side by side, and joined in their order."""
        stage, nest = self.stage, self.nest
        assert isinstance(stage, Scan) and nest.vector is not None
        vector = nest.vector

        def prefix() -> None:
            self.lines.add(f"{lane} {acc} = {combine}::finish<{lane}>({combine}::identity<{lane}>());")

            def step() -> None:
                value = self.value(stage.value)
                address, _ = self._address(stage.out, tuple(a.dim for a in stage.axes))
                self.lines.add(f"scan_lanes<{combine}>({address}, {acc}, {value}, {self.lanes});")

            self._loops([(vector, "vector")], step)

        self._loops([(a, "serial") for a in nest.serial], prefix)

    # ---- expressions ----

    def _level(self, e: Expr) -> int:
        """The innermost loop that the expression depends on, 0 for none."""
        if id(e) not in self.levels:
            level = max((self._level(c) for c in e.children), default=0)
            for d in _own_dims(e):
                level = max(level, self._dim_level(d))
            self.levels[id(e)] = level
        return self.levels[id(e)]

    def _dim_level(self, d: Dim) -> int:
        return max((self.level_of.get(s, 0) for s in d.substitute(self.nest.where).symbols), default=0)

    def _write_up_to(self, e: Expr, level: int) -> None:
        """Names every maximal subtree whose level is exactly reached, so that inner loops find it ready."""
        if isinstance(e, Const) or e in self.values:
            return
        if self._level(e) <= level:
            self.value(e)
            return
        for child in e.children:
            self._write_up_to(child, level)

    def value(self, e: Expr) -> str:
        """The name of the lanes that hold the expression; writes what is not there yet."""
        if isinstance(e, Const):
            return f"splat<{LANE[e.dtype]}>({literal(e)})"
        found = self.values.get(e)
        if found is not None:
            return found
        text = self._text(e)
        name = self.context.fresh()
        self.lines.add(f"const auto {name} = {text};")
        self.values[e] = name
        return name

    def _text(self, e: Expr) -> str:
        match e:
            case Op():
                args = tuple(self.value(a) for a in e.args)
                if _may_trap(e):
                    args = (args[0], f"check_divisor(frame, {args[1]}, {self.lanes})")
                return spell(e.prim, args, e.dtype, e.args[-1].dtype)
            case Index():
                return self._index_lanes(e)
            case CheckIndex():
                value = self.value(e.value)
                if e.value.dtype is not DType.I64:
                    value = f"cast<int64_t>({value})"
                lanes = self.lanes if self._depends_on_lanes(e) else "Some{1}"
                check = f"{'check_index' if e.wraps else 'check_position'}(frame, {value}, {self._size(e.size)}, {lanes})"
                return f"splat<int64_t>(lane0({check}))" if lanes == "Some{1}" else check
            case Inside():
                return self._bounds_mask(e.bounds)
            case Load():
                return self._load(e)
        raise InternalError(f"unknown expression {type(e).__name__}")

    def _depends_on_lanes(self, e: Expr) -> bool:
        vector = self.nest.vector
        return vector is not None and self._level_has(e, vector.sym)

    def _level_has(self, e: Expr, symbol: Sym) -> bool:
        return any(symbol in d.substitute(self.nest.where).symbols for d in _own_dims(e)) or any(self._level_has(c, symbol) for c in e.children)

    def _index_lanes(self, e: Index) -> str:
        lane = LANE[e.dtype]
        value = e.value.substitute(self.nest.where)
        vector = self.nest.vector
        if vector is None or vector.sym not in value.symbols:
            return f"splat<{lane}>({lane}({self._size(value)}))"
        linear = value.linear_in(vector.sym)
        if linear is not None:
            stride, _ = linear
            steps = f"iota<{lane}>(0)" if stride == ONE else f"iota<{lane}>(0) * splat<{lane}>({lane}({self._size(stride)}))"
            return f"{steps} + splat<{lane}>({lane}({self._size(value)}))"
        wide = f"each_lane({vector.name}, {self.lanes}, [&](int64_t {vector.name}) {{ return {self._size(value)}; }})"
        return wide if e.dtype is DType.I64 else f"cast<{lane}>({wide})"

    def _condition(self, bounds: tuple[Bound, ...]) -> str:
        parts: list[str] = []
        for b in bounds:
            value = b.value.substitute(self.nest.where)
            lo, hi = b.lo.substitute(self.nest.where), b.hi.substitute(self.nest.where)
            if value.lower < lo.upper:
                parts.append(f"{self._size(value)} >= {self._size(lo)}")
            parts.append(f"{self._size(value)} < {self._size(hi)}")
        return " && ".join(parts) or "true"

    def _bounds_depend_on_lanes(self, bounds: tuple[Bound, ...]) -> bool:
        vector = self.nest.vector
        return vector is not None and any(vector.sym in d.substitute(self.nest.where).symbols for b in bounds for d in (b.value, b.lo, b.hi))

    def _bounds_mask(self, bounds: tuple[Bound, ...]) -> str:
        vector = self.nest.vector
        if vector is None or not self._bounds_depend_on_lanes(bounds):
            return f"splat<bool>({self._condition(bounds)})"
        return f"mask_each_lane({vector.name}, {self.lanes}, [&](int64_t {vector.name}) {{ return {self._condition(bounds)}; }})"

    def _load(self, e: Load) -> str:
        if e.buffer.name in self.context.scalars:
            return f"splat<{LANE[e.dtype]}>({self.context.scalars[e.buffer.name]})"
        pointer = self.context.pointers[e.buffer.name]
        lane = LANE[e.dtype]
        other = f"splat<{lane}>({literal(Const(e.other, e.dtype))})"
        vector = self.nest.vector
        plain = dim(0)
        gathered: list[tuple[Expr, Dim]] = []
        for entry, stride in zip(e.index, e.buffer.strides):
            if isinstance(entry, Expr):
                gathered.append((entry, stride))
            else:
                plain = plain + entry * stride
        plain = plain.substitute(self.nest.where)
        lanes_gather = [g for g in gathered if self._depends_on_lanes(g[0])]
        linear = plain.linear_in(vector.sym) if vector is not None else (dim(0), plain)
        if lanes_gather or linear is None or (e.guard and self._bounds_depend_on_lanes(e.guard)):
            offsets = self._offset_lanes(plain, gathered)
            if e.guard:
                return f"gather_where({pointer}, {offsets}, {self._bounds_mask(e.guard)}, {other})"
            return f"gather({pointer}, {offsets}, {self.lanes})"
        offset = " + ".join(
            [*([self._size(plain)] if plain.terms else []), *(f"lane0({self.value(g)}) * ({self._size(stride)})" for g, stride in gathered)]
        )
        address = f"{pointer} + {offset}" if offset else pointer
        stride = linear[0]
        if not stride.terms:
            text = f"splat_load({address})"
        elif stride == ONE:
            text = f"load({address}, {self.lanes})"
        else:
            text = f"load_strided({address}, {self._size(stride)}, {self.lanes})"
        return f"({self._condition(e.guard)}) ? {text} : {other}" if e.guard else text

    def _offset_lanes(self, plain: Dim, gathered: list[tuple[Expr, Dim]]) -> str:
        parts = [f"{self._cast_i64(g)} * splat<int64_t>({self._size(stride)})" if stride != ONE else self._cast_i64(g) for g, stride in gathered]
        if plain.terms:
            parts.append(self._index_lanes(Index(plain)))
        return " + ".join(parts) or "splat<int64_t>(0)"

    def _cast_i64(self, e: Expr) -> str:
        name = self.value(e)
        return name if e.dtype is DType.I64 else f"cast<int64_t>({name})"

    # ---- addresses ----

    def _address(self, buffer: Buffer, index: tuple[Dim | Expr, ...]) -> tuple[str, Dim | None]:
        """The C++ address of an element, and the stride along the lanes."""
        total = dim(0)
        terms: list[str] = []
        for entry, stride in zip(index, buffer.strides):
            if isinstance(entry, Expr):
                terms.append(f"lane0({self.value(entry)}) * ({self._size(stride)})")
            else:
                total = total + entry * stride
        total = total.substitute(self.nest.where)
        vector = self.nest.vector
        along: Dim | None = dim(0)
        if vector is not None and not self.nest.vector_is_reduced:
            linear = total.linear_in(vector.sym)
            along = None if linear is None else linear[0]
        text = " + ".join([*([self._size(total)] if total.terms else []), *terms])
        pointer = self.context.pointers[buffer.name]
        return (f"{pointer} + {text}" if text else pointer), along

    def _size(self, d: Dim) -> str:
        return size_text(d.substitute(self.nest.where), self.names)


def _is_short(reduced: Sequence[Axis]) -> bool:
    """Whether one chain of additions is as exact as eager's sum."""
    count = product(a.extent for a in reduced)
    return count.is_const and count.value <= _CHAIN


def _own_dims(e: Expr) -> list[Dim]:
    """The sizes and indices that stand in the node itself."""
    match e:
        case Index():
            return [e.value]
        case Inside():
            return [d for b in e.bounds for d in (b.value, b.lo, b.hi)]
        case Load():
            return [i for i in e.index if isinstance(i, Dim)] + [d for b in e.guard for d in (b.value, b.lo, b.hi)]
        case CheckIndex():
            return [e.size]
    return []
