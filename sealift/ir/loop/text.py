"""The loops' text form; parse_loops(str(loops)) == loops.

    loops mlp(batch: 1..64)
    inputs
      input %x: f32[batch, 64]
    buffers
      weight %w: f32[64, 64]
      temp %mm: f32[batch, 64]
    outputs
      output %y: f32[batch, 64]
      %x
      none
    kernel k0_linear [aten.linear.default]  // model.py:31 proj
      call gemm(%mm) transpose_b=true
        a[k0 < batch, k1 < 64] = %x[k0, k1]
        b[k2 < 64, k3 < 64] = %w[k2, k3]
    kernel k1_softmax rows 1 [aten._softmax.default]
      reduce max %top for i0 < batch over r0 < 64
        = %mm[i0, r0]
      map %y[i0, i1] for i0 < batch, i1 < 64
        $0 = sub(%mm[i0, i1], %top[i0])
        = mul($0, exp($0))
    state %count <- %count_new

Expressions: primitive(...), with the dtype where it does not follow from the operands (cast.f32(...), 1.0:f32); idx(size) is a size as
a number; check(index, size) fails the run outside [-size, size), position(index, size) outside [0, size); a gathered index entry has
an @; `where(0 <= i1 - 1 < n) else 0.0` after a load guards it. A subexpression that stands in several places of a stage is named $n once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType, parse_dtype
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Const, Expr, Index, Inside, Load, Op
from sealift.ir.loop.prim import COMPARISONS, ArgCombine, Combine, Prim
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Reduce, Scan, Stage
from sealift.ir.text import (
    Cursor,
    arg_text,
    name_text,
    number_text,
    order_text,
    read_arg,
    read_dim,
    read_loc,
    read_number,
    read_size,
    read_sources,
    read_type,
    shape_text,
    size_text,
    source_lines,
    with_loc,
    with_sources,
)

_PRIMS = {str(p): p for p in Prim}
_COMBINES: Mapping[str, Combine | ArgCombine] = {**{str(c): c for c in Combine}, **{str(a): a for a in ArgCombine}}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[a-z0-9]+)?")


# ---- printing ------------------------------------------------------------------------------------------------------------------


def print_loops(loops: Loops) -> str:
    return "".join(_loops_text(part) for part in loops.parts) + _loops_text(loops, sources=True)


def _loops_text(loops: Loops, sources: bool = False) -> str:
    lines = [f"loops {name_text(loops.name)}({', '.join(size_text(s) for s in loops.sizes)})"]
    lines += ["inputs", *(f"  {buffer_line(b)}" for b in loops.inputs)]
    lines += ["buffers", *(f"  {buffer_line(b)}" for b in loops.buffers)]
    known = {b.name for b in (*loops.inputs, *loops.buffers)}
    lines.append("outputs")
    for b in loops.outputs:
        lines.append(f"  {'none' if b is None else buffer_name(b) if b.name in known else buffer_line(b)}")
        known |= {b.name} if b is not None else set()
    for kernel in loops.kernels:
        lines += kernel_lines(kernel)
    lines += [f"state {buffer_name(state)} <- {buffer_name(new)}" for state, new in loops.state_updates]
    if sources:
        lines += source_lines(k.loc for part in (*loops.parts, loops) for k in part.kernels)
    return "\n".join(lines) + "\n"


def buffer_name(b: Buffer) -> str:
    return f"%{name_text(b.name)}"


def buffer_line(b: Buffer) -> str:
    rows = f" row_dims({b.row_dims})" if b.row_dims else ""
    return f"{b.kind} {buffer_name(b)}: {b.dtype}{shape_text(b.shape)}{order_text(b.order)}{rows}"


def kernel_lines(kernel: Kernel) -> list[str]:
    rows = f" rows {kernel.num_row_axes}" if kernel.num_row_axes else ""
    header = f"kernel {name_text(kernel.name)}{rows} [{', '.join(name_text(o) for o in kernel.ops)}]"
    return [with_loc(header, kernel.loc, 0), *(f"  {line}" for stage in kernel.stages for line in stage_lines(stage))]


def stage_lines(stage: Stage) -> list[str]:
    match stage:
        case Map():
            texts = _Texts((*(i for i in stage.index if isinstance(i, Expr)), stage.value))
            combine = f"{stage.combine} " if stage.combine is not None else ""
            index = ", ".join(texts.entry(i) for i in stage.index)
            lets = texts.lets()
            header = f"map {combine}{buffer_name(stage.out)}[{index}] for {_axes_text(stage.axes)}"
            return [header.rstrip(), *lets, f"  = {texts.text(stage.value)}"]
        case Reduce():
            header = f"reduce {stage.combine} {buffer_name(stage.out)} for {_axes_text(stage.axes)}".rstrip()
            header = f"{header} over {_axes_text(stage.reduced)}".rstrip()
        case Scan():
            header = f"scan {stage.combine} {buffer_name(stage.out)} for {_axes_text(stage.axes)} along {stage.along.name}"
        case Call():
            attrs = [f"{name}={arg_text(value, _part_text)}" for name, value in stage.attrs]
            header = f"call {name_text(stage.family)}({', '.join(buffer_name(b) for b in stage.outs)}) {', '.join(attrs)}".rstrip()
            lines = [header]
            for role, operand in stage.operands:
                texts = _Texts((operand.load,))
                assert not texts.lets(), "an operand's load shares nothing"
                lines.append(f"  {name_text(role)}[{_axes_text(operand.axes)}] = {texts.text(operand.load)}")
            return lines
    texts = _Texts((stage.value,))
    return [header, *texts.lets(), f"  = {texts.text(stage.value)}"]


def _part_text(value: Any) -> str | None:
    return f"@{name_text(value.name)}" if isinstance(value, Loops) else None


def expr_text(e: Expr) -> str:
    """One expression in full; shared subexpressions are repeated."""
    return _Texts(()).text(e)


def _axes_text(axes: Iterable[Axis]) -> str:
    return ", ".join(f"{a.name} < {a.extent}" for a in axes)


class _Texts:
    """The texts of a stage's expressions: what several places share is named once."""

    def __init__(self, roots: tuple[Expr, ...]) -> None:
        counts: dict[int, int] = {}
        ordered: list[Expr] = []

        def visit(e: Expr) -> None:
            counts[id(e)] = counts.get(id(e), 0) + 1
            if counts[id(e)] == 1:
                for child in e.children:
                    visit(child)
                ordered.append(e)

        for root in roots:
            visit(root)
        self.shared = [e for e in ordered if counts[id(e)] > 1 and e.children]
        self.names = {id(e): f"${k}" for k, e in enumerate(self.shared)}

    def lets(self) -> list[str]:
        return [f"  {self.names[id(e)]} = {self.full(e)}" for e in self.shared]

    def text(self, e: Expr) -> str:
        return self.names.get(id(e)) or self.full(e)

    def entry(self, i: Dim | Expr) -> str:
        return f"@{self.text(i)}" if isinstance(i, Expr) else str(i)

    def full(self, e: Expr) -> str:
        match e:
            case Const():
                return f"{number_text(e.number)}:{e.dtype}"
            case Index():
                return f"idx{_suffix(e.dtype, DType.I64)}({e.value})"
            case Inside():
                return f"inside{_suffix(e.dtype, DType.BOOL)}({_bounds_text(e.bounds)})"
            case CheckIndex():
                return f"{'check' if e.wraps else 'position'}{_suffix(e.dtype, DType.I64)}({self.text(e.value)}, {e.size})"
            case Load():
                load = f"{buffer_name(e.buffer)}[{', '.join(self.entry(i) for i in e.index)}]"
                if not e.guard and repr(e.other) == "0":
                    return load
                return f"{load} where({_bounds_text(e.guard)}) else {number_text(e.other)}"
            case Op():
                return f"{e.prim}{_suffix(e.dtype, _result_dtype(e.prim, e.args))}({', '.join(self.text(a) for a in e.args)})"
        raise TypeError(f"no text for {type(e).__name__}")


def _suffix(dtype: DType, usual: DType | None) -> str:
    return "" if dtype is usual else f".{dtype}"


def _result_dtype(prim: Prim, args: tuple[Expr, ...]) -> DType | None:
    if prim is Prim.CAST:
        return None
    return DType.BOOL if prim in COMPARISONS else args[-1].dtype


def _bounds_text(bounds: Iterable[Bound]) -> str:
    return "; ".join(f"{b.lo} <= {b.value} < {b.hi}" for b in bounds)


# ---- reading -------------------------------------------------------------------------------------------------------------------


def parse_loops(text: str) -> Loops:
    """The inverse of str(). ValueError with line and column on anything else."""
    cursor, parts = Cursor(text), dict[str, Loops]()
    while True:
        loops = _LoopsParser(cursor, parts).loops()
        if cursor.done():
            return loops
        if not cursor.peek("loops"):
            raise cursor.fail("a kernel, a state's update or the end")
        parts[loops.name] = loops


def _with_sources(kernel: Kernel, sources: Mapping[tuple[str, int], str]) -> Kernel:
    """The kernel, and those of the loops that its calls hold, with the users' lines."""

    def located(value: Any) -> Any:
        return replace(value, kernels=tuple(_with_sources(k, sources) for k in value.kernels)) if isinstance(value, Loops) else value

    stages = tuple(replace(s, attrs=tuple((n, located(v)) for n, v in s.attrs)) if isinstance(s, Call) and s.parts else s for s in kernel.stages)
    return replace(kernel, stages=stages, loc=with_sources(kernel.loc, sources))


class _LoopsParser:
    def __init__(self, cursor: Cursor, parts: Mapping[str, Loops]) -> None:
        self.c, self.parts = cursor, parts
        self.sizes: dict[str, Dim] = {}
        self.symbols: dict[str, Dim] = {}  # sizes, and the axes of the stage being read
        self.buffers: dict[str, Buffer] = {}
        self.lets: dict[str, Expr] = {}

    def loops(self) -> Loops:
        c = self.c
        c.expect("loops")
        name = c.name()
        c.expect("(")
        sizes = c.list_of(lambda: read_size(c), ")")
        self.sizes = {s.name: dim(s) for s in sizes}
        self.symbols = dict(self.sizes)
        c.expect("inputs")
        inputs = tuple(self.declarations("buffers"))
        buffers = tuple(self.declarations("outputs"))
        outputs: list[Buffer | None] = []
        while not (c.done() or c.peek("kernel") or (c.peek("state") and not self.declares_state()) or c.peek("source") or c.peek("loops")):
            if c.accept("none"):
                outputs.append(None)
            else:
                outputs.append(self.use() if c.peek("%") else self.declaration())
        kernels: list[Kernel] = []
        while c.accept("kernel"):
            kernels.append(self.kernel())
        updates: list[tuple[Buffer, Buffer]] = []
        while c.accept("state"):
            state = self.use()
            c.expect("<-")
            updates.append((state, self.use()))
        sources = read_sources(c)
        located = tuple(_with_sources(k, sources) for k in kernels)
        return Loops(name, sizes, inputs, tuple(outputs), buffers, located, tuple(updates))

    def declares_state(self) -> bool:
        """Whether `state` begins a buffer's line (state %s: f32[]) rather than an update (state %s <- %new)."""
        line = self.c.text[self.c.at :].partition("\n")[0]
        return "<-" not in line

    def declarations(self, end: str) -> Iterator[Buffer]:
        while not self.c.accept(end):
            yield self.declaration()

    def declaration(self) -> Buffer:
        c = self.c
        kind = c.name()
        c.expect("%")
        name = c.name()
        c.expect(":")
        dtype, shape, order = read_type(c, self.sizes)
        row_dims = 0
        if c.accept("row_dims"):
            c.expect("(")
            row_dims = c.integer()
            c.expect(")")
        if name in self.buffers:
            raise c.fail(f"another name: %{name} is declared before")
        self.buffers[name] = Buffer(name, dtype, shape, kind, order, row_dims)
        return self.buffers[name]

    def use(self) -> Buffer:
        self.c.expect("%")
        name = self.c.name()
        if name not in self.buffers:
            raise self.c.fail(f"a buffer that is declared, not %{name}")
        return self.buffers[name]

    def kernel(self) -> Kernel:
        c = self.c
        name = c.name()
        rows = c.integer() if c.accept("rows") else 0
        c.expect("[")
        ops = c.list_of(c.name, "]")
        loc = read_loc(c)
        stages: list[Stage] = []
        while True:
            for keyword, read in (("map", self.map), ("reduce", self.reduce), ("scan", self.scan), ("call", self.call)):
                if c.accept(keyword):
                    self.symbols, self.lets = dict(self.sizes), {}
                    stages.append(read())
                    break
            else:
                return Kernel(name, tuple(stages), rows, ops, loc)

    # ---- stages ----

    def combine(self) -> Combine | ArgCombine:
        word = self.c.match(_WORD, "a combination")
        if word not in _COMBINES:
            raise self.c.fail(f"one of {', '.join(_COMBINES)} before this, not {word}")
        return _COMBINES[word]

    def axes(self, stops: tuple[str, ...] = ()) -> tuple[Axis, ...]:
        """i0 < batch, i1 < 64, up to the end of the line or a stop word."""
        c = self.c
        axes: list[Axis] = []
        while True:
            line_end = c.text.find("\n", c.at)
            if not axes and not c.text[c.at : line_end].strip():
                return ()
            if any(c.peek(s) for s in stops):
                return tuple(axes)
            if axes and not c.accept(","):
                return tuple(axes)
            name = c.name()
            c.expect("<")
            axis = Axis(name, read_dim(c, self.sizes, (",", *(f" {s}" for s in stops), "]")))
            axes.append(axis)
            self.symbols[name] = axis.dim
            if not c.peek(",") and not any(c.peek(s) for s in stops):
                return tuple(axes)

    def map(self) -> Map:
        c = self.c
        combine = None if c.peek("%") else self.combine()
        assert combine is None or isinstance(combine, Combine)
        out = self.use()
        index_at = c.at
        c.until((" for",))  # the index is read once the axes and the shared expressions are
        c.expect("for")
        axes = self.axes()
        self.read_lets()
        value = self.value()
        after, c.at = c.at, index_at
        c.expect("[")
        index = c.list_of(self.entry, "]")
        c.at = after
        return Map(out, axes, index, value, combine)

    def reduce(self) -> Reduce:
        combine, out = self.combine(), self.use()
        self.c.expect("for")
        axes = self.axes(("over",))
        self.c.expect("over")
        reduced = self.axes()
        self.read_lets()
        return Reduce(out, axes, reduced, combine, self.value())

    def scan(self) -> Scan:
        combine, out = self.combine(), self.use()
        assert isinstance(combine, Combine)
        self.c.expect("for")
        axes = self.axes(("along",))
        self.c.expect("along")
        along_name = self.c.name()
        along = next((a for a in axes if a.name == along_name), None)
        if along is None:
            raise self.c.fail(f"one of the stage's axes, not {along_name}")
        self.read_lets()
        return Scan(out, axes, along, combine, self.value())

    def part(self) -> Loops:
        name = self.c.name()
        if name not in self.parts:
            raise self.c.fail(f"loops that stand before, not @{name}")
        return self.parts[name]

    def call(self) -> Call:
        c = self.c
        family = c.name()
        c.expect("(")
        outs = c.list_of(self.use, ")")
        attrs: list[tuple[str, Any]] = []
        while c.text[c.at : c.text.find("\n", c.at)].strip():
            if attrs:
                c.expect(",")
            name = c.name()
            c.expect("=")
            attrs.append((name, self.part() if c.accept("@") else read_arg(c, self.sizes, self.use)))
        operands: list[tuple[str, Operand]] = []
        while not c.done() and re.match(r"\s*(?:\w+|\"[^\"]*\")\[", c.text[c.at :]):
            role = c.name()
            c.expect("[")
            axes = () if c.peek("]") else self.axes(("]",))
            c.expect("]")
            c.expect("=")
            load = self.expr()
            assert isinstance(load, Load)
            operands.append((role, Operand(axes, load)))
        return Call(family, outs, tuple(operands), tuple(attrs))

    # ---- expressions ----

    def read_lets(self) -> None:
        while self.c.accept("$"):
            name = f"${self.c.integer()}"
            self.c.expect("=")
            self.lets[name] = self.expr()

    def value(self) -> Expr:
        self.c.expect("=")
        return self.expr()

    def entry(self) -> Dim | Expr:
        if self.c.accept("@"):
            return self.expr()
        return read_dim(self.c, self.symbols, (",", "]"))

    def bounds(self) -> tuple[Bound, ...]:
        def bound() -> Bound:
            lo = read_dim(self.c, self.symbols, (" <=",))
            self.c.expect("<=")
            value = read_dim(self.c, self.symbols, (" <",))
            self.c.expect("<")
            return Bound(value, lo, read_dim(self.c, self.symbols, (";", ")")))

        self.c.expect("(")
        return self.c.list_of(bound, ")", ";")

    def expr(self) -> Expr:
        c = self.c
        if c.accept("$"):
            name = f"${c.integer()}"
            if name not in self.lets:
                raise c.fail(f"a shared expression that is named before, not {name}")
            return self.lets[name]
        if c.peek("%"):
            return self.load()
        c.skip()
        if c.text[c.at] in "-0123456789" or re.match(r"(?:true|false|inf|nan):", c.text[c.at :]):
            number = read_number(c, (":",))
            c.expect(":")
            return Const(number, parse_dtype(c.match(_WORD, "a dtype")))
        word, _, dtype_text = c.match(_WORD, "an expression").partition(".")
        dtype = parse_dtype(dtype_text) if dtype_text else None
        if word == "inside":
            return Inside(self.bounds(), dtype or DType.BOOL)
        c.expect("(")
        if word == "idx":
            value = read_dim(c, self.symbols, (")",))
            c.expect(")")
            return Index(value, dtype or DType.I64)
        if word in ("check", "position"):
            checked = self.expr()
            c.expect(",")
            size = read_dim(c, self.symbols, (")",))
            c.expect(")")
            return CheckIndex(checked, size, dtype or DType.I64, word == "check")
        if word not in _PRIMS:
            raise c.fail(f"a primitive before this, not {word}")
        args = c.list_of(self.expr, ")")
        prim = _PRIMS[word]
        result = dtype or _result_dtype(prim, args)
        if result is None:
            raise c.fail(f"{word}.dtype")
        return Op(prim, args, result)

    def load(self) -> Load:
        buffer = self.use()
        self.c.expect("[")
        index = self.c.list_of(self.entry, "]")
        if not self.c.accept("where"):
            return Load(buffer, index)
        guard = self.bounds()
        self.c.expect("else")
        return Load(buffer, index, guard, self.number())

    def number(self) -> bool | float:
        text = self.c.match(re.compile(r"-?[A-Za-z0-9_.]+(?:[-+]\d+)?"), "a number")
        return read_number(Cursor(text), ())
