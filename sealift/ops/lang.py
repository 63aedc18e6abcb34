"""The language that operator rows are written in: a tensor is a function from an index to a scalar expression.

    def relu(b, self):                       return b.pointwise(lambda x: select(x < 0, 0, x), self)
    def permute(b, self, dims):              return Tensor(self.dtype, [self.shape[d] for d in dims], lambda i: self.at(unpermute(i)))
    def sum(b, self, dim, keepdim, dtype):   return b.reduce(Combine.SUM, ...)

A pointwise operator or a view returns a Tensor and makes no loop of its own; `b.reduce`, `b.scan`, `b.scatter`, `b.materialize` and
`b.call` add a stage that fills a buffer. Scalars: `S(expr)` wraps an expression so that Python operators build primitives, converting
Python numbers to the other operand's dtype. Elements of a complex tensor are pairs (sealift/ops/pairs.py), its buffer is f32 with a last
dimension of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sealift.ir.dim import Dim, dim
from sealift.ir.dtype import DType, result_type
from sealift.ir.loop import expr as ex
from sealift.ir.loop.expr import Bound, Buffer, Expr, Index
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ir.loop.types import Axis, Call, Map, Operand, Reduce, Scan, Stage
from sealift.ops import pairs
from sealift.ops.pairs import Pair, pair, pair_buffer
from sealift.ops.refusal import refuse

IndexEntry = Dim | Expr
IndexFn = Callable[[tuple[IndexEntry, ...]], Expr]
Number = bool | int | float
Scalar = Number | complex


@dataclass(frozen=True)
class Tensor:
    """dtype, shape, and what stands at an index. An index entry is a Dim, or an integer Expr (a gathered position)."""

    dtype: DType
    shape: tuple[Dim, ...]
    fn: IndexFn
    buffer: Buffer | None = None  # set where the tensor is a whole buffer, read as it lies (complex: the f32 one that holds it)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Dim:
        total = dim(1)
        for d in self.shape:
            total = total * d
        return total

    def at(self, index: Sequence[IndexEntry | int]) -> Expr:
        if len(index) != len(self.shape):
            raise ValueError(f"index of {len(index)} entries into a tensor of rank {len(self.shape)}")
        return self.fn(tuple(i if isinstance(i, Expr) else dim(i) for i in index))

    @property
    def held(self) -> Tensor:
        """The real tensor that memory holds: of complex numbers, both parts along a last dimension."""
        if self.dtype is not DType.C64:
            return self
        return Tensor(DType.F32, (*self.shape, dim(2)), lambda index: as_pair(self.at(index[:-1])).part(index[-1]), self.buffer)

    def complex_part(self, fn: Callable[[Pair], Expr]) -> Tensor:
        """A real tensor of fn of each complex element."""
        return Tensor(DType.F32, self.shape, lambda index: fn(as_pair(self.at(index))))


@dataclass(frozen=True)
class S:
    """A scalar expression with Python's operators."""

    e: Expr

    @property
    def dtype(self) -> DType:
        return self.e.dtype

    def _two(self, prim: Prim, other: S | Scalar, swap: bool = False) -> S:
        right = other if isinstance(other, S) else S(pairs.constant(other, self.dtype))
        a, b = (right, self) if swap else (self, right)
        return S(pairs.apply(prim, a.e, b.e))

    def __add__(self, other: S | Scalar) -> S:
        return self._two(Prim.ADD, other)

    def __radd__(self, other: Scalar) -> S:
        return self._two(Prim.ADD, other, swap=True)

    def __sub__(self, other: S | Scalar) -> S:
        return self._two(Prim.SUB, other)

    def __rsub__(self, other: Scalar) -> S:
        return self._two(Prim.SUB, other, swap=True)

    def __mul__(self, other: S | Scalar) -> S:
        return self._two(Prim.MUL, other)

    def __rmul__(self, other: Scalar) -> S:
        return self._two(Prim.MUL, other, swap=True)

    def __truediv__(self, other: S | Scalar) -> S:
        return self._two(Prim.DIV, other)

    def __rtruediv__(self, other: Scalar) -> S:
        return self._two(Prim.DIV, other, swap=True)

    def __neg__(self) -> S:
        return S(pairs.apply(Prim.NEG, self.e))

    def __lt__(self, other: S | Scalar) -> S:
        return self._two(Prim.LT, other)

    def __le__(self, other: S | Scalar) -> S:
        return self._two(Prim.LE, other)

    def __gt__(self, other: S | Scalar) -> S:
        return self._two(Prim.GT, other)

    def __ge__(self, other: S | Scalar) -> S:
        return self._two(Prim.GE, other)

    def eq(self, other: S | Scalar) -> S:
        return self._two(Prim.EQ, other)

    def ne(self, other: S | Scalar) -> S:
        return self._two(Prim.NE, other)

    def __and__(self, other: S | Scalar) -> S:
        return self._two(Prim.AND, other)

    def __or__(self, other: S | Scalar) -> S:
        return self._two(Prim.OR, other)

    def __xor__(self, other: S | Scalar) -> S:
        return self._two(Prim.XOR, other)

    def __invert__(self) -> S:
        return S(pairs.apply(Prim.NOT, self.e))

    def cast(self, dtype: DType) -> S:
        return S(pairs.cast(self.e, dtype))


def prim(which: Prim, *args: S | Scalar) -> S:
    """A primitive; Python numbers take the dtype of the first S among the operands (SELECT: of its branches)."""
    typed = next((a for a in (args[1:] if which is Prim.SELECT else args) if isinstance(a, S)), None)
    if typed is None:
        raise ValueError(f"{which}: no operand with a dtype")
    return S(pairs.apply(which, *(a.e if isinstance(a, S) else pairs.constant(a, typed.dtype) for a in args)))


def select(condition: S, a: S | Scalar, b: S | Scalar) -> S:
    return prim(Prim.SELECT, condition, a, b)


def minimum(a: S, b: S | Number) -> S:
    return prim(Prim.MINIMUM, a, b)


def maximum(a: S, b: S | Number) -> S:
    return prim(Prim.MAXIMUM, a, b)


def is_nan(x: S) -> S:
    return x.ne(x)


def broadcast_shapes(shapes: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """NumPy's rule; a size that is not the literal 1 wins over one that is. Equal symbols are equal; export has checked the rest."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = []
    for position in range(rank):
        here = dim(1)
        for shape in shapes:
            offset = position - (rank - len(shape))
            if offset >= 0 and shape[offset] != dim(1) and here == dim(1):
                here = shape[offset]
        result.append(here)
    return tuple(result)


def broadcast_index(index: Sequence[IndexEntry], shape: Sequence[Dim]) -> tuple[IndexEntry, ...]:
    """The index into a tensor of `shape` for an index into what it was broadcast to."""
    tail = index[len(index) - len(shape) :]
    return tuple(dim(0) if d == dim(1) else i for i, d in zip(tail, shape))


def guarded(value: Expr, bounds: Sequence[Bound], other: Scalar) -> Expr:
    """`value` where every bound holds, else `other`; loads inside `value` do not touch memory where one fails."""
    limits = tuple(bounds)
    if isinstance(value, Pair):
        number = value
        if other == 0:
            return Pair(lambda p: guarded(number.part(p), limits, 0.0))
        return pair(guarded(number.re, limits, other.real), guarded(number.im, limits, other.imag))

    def guard(e: Expr) -> Expr:
        return ex.Load(e.buffer, e.index, e.guard + limits, e.other) if isinstance(e, ex.Load) else e

    if isinstance(other, complex):
        refuse(f"a complex number as {value.dtype}")
    if isinstance(value, ex.Load) and not value.guard and not value.children:
        return ex.Load(value.buffer, value.index, limits, other)
    return ex.apply(Prim.SELECT, ex.Inside(limits), ex.rewrite(value, guard), ex.const(other, value.dtype))


def as_pair(e: Expr) -> Pair:
    """A complex element as what it is."""
    assert isinstance(e, Pair)
    return e


def real_part(t: Tensor) -> Tensor:
    return t.complex_part(lambda x: x.re)


def imaginary_part(t: Tensor) -> Tensor:
    return t.complex_part(lambda x: x.im)


def as_entry(i: IndexEntry) -> Expr:
    """An index entry as an i64 scalar."""
    return i if isinstance(i, Expr) else Index(i)


def shifted(i: IndexEntry, offset: IndexEntry, step: int = 1) -> IndexEntry:
    """offset + step * i"""
    if isinstance(i, Dim) and isinstance(offset, Dim):
        return offset + i * step
    scaled = S(as_entry(i)) if step == 1 else S(as_entry(i)) * step
    return scaled.e if offset == dim(0) else (scaled + S(as_entry(offset))).e


def checked(position: S, size: Dim, *, negative: bool = True) -> Expr:
    """A gathered position inside a dimension of `size`, an index entry. `negative`: whether eager counts negative ones from the end here."""
    return ex.CheckIndex(position.cast(DType.I64).e, size, wraps=negative)


def flatten_index(index: Sequence[IndexEntry], shape: Sequence[Dim]) -> IndexEntry:
    """The row-major position of an index: a Dim while every entry is one, else an i64 expression."""
    if all(isinstance(i, Dim) for i in index):
        flat = dim(0)
        for i, d in zip(index, shape):
            flat = flat * d + i  # type: ignore[operator]
        return flat
    flat_expr = S(Index(dim(0)))
    for i, d in zip(index, shape):
        flat_expr = flat_expr * S(Index(d)) + S(as_entry(i))
    return flat_expr.e


def unflatten_index(flat: IndexEntry, shape: Sequence[Dim]) -> tuple[IndexEntry, ...]:
    """The inverse of flatten_index."""
    entries: list[IndexEntry] = []
    for d in reversed(shape):
        if isinstance(flat, Dim):
            entries.append(flat % d)
            flat = flat // d
        else:
            size = S(Index(d))
            entries.append(prim(Prim.REMAINDER, S(flat), size).e)
            flat = prim(Prim.FLOOR_DIV, S(flat), size).e
    if entries:  # the outermost needs no remainder: the position is inside the tensor
        outermost = flatten_outer(flat, entries[-1], shape)
        entries[-1] = outermost
    return tuple(reversed(entries))


def flatten_outer(quotient: IndexEntry, remainder: IndexEntry, shape: Sequence[Dim]) -> IndexEntry:
    """quotient * shape[0] + remainder, which is the outermost position since the quotient is 0 for every index inside."""
    if isinstance(quotient, Dim) and isinstance(remainder, Dim):
        return quotient * shape[0] + remainder
    return remainder


def joined(b: Builder, re: Tensor, im: Tensor) -> Tensor:
    """The complex tensor of two real ones, broadcast against each other."""
    if re.dtype is not DType.F32 or im.dtype is not DType.F32:
        refuse(f"complex numbers of {re.dtype} and {im.dtype}")
    shape = broadcast_shapes([re.shape, im.shape])

    def element(index: tuple[IndexEntry, ...]) -> Expr:
        return pair(re.at(broadcast_index(index, re.shape)), im.at(broadcast_index(index, im.shape)))

    return Tensor(DType.C64, shape, element)


@dataclass
class Builder:
    """Collects the stages of one node's lowering. Names are made from the node's name."""

    name: str
    stages: list[Stage] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    num_axes: int = 0

    # ---- tensors without loops ----

    def pointwise(self, fn: Callable[..., S], *tensors: Tensor, dtype: DType | None = None) -> Tensor:
        """fn applied element by element to tensors broadcast against each other. The operands are what they are: promote first."""
        shape = broadcast_shapes([t.shape for t in tensors])

        def element(index: tuple[IndexEntry, ...]) -> Expr:
            return fn(*(S(t.at(broadcast_index(index, t.shape))) for t in tensors)).e

        if dtype is None:
            probe = [S(whole(Buffer("probe", t.dtype, ())).at(())) for t in tensors]
            dtype = fn(*probe).dtype
        return Tensor(dtype, shape, element)

    def cast(self, t: Tensor, dtype: DType) -> Tensor:
        return t if t.dtype is dtype else Tensor(dtype, t.shape, lambda index: pairs.cast(t.at(index), dtype))

    def full(self, shape: Sequence[Dim], number: Scalar, dtype: DType) -> Tensor:
        return Tensor(dtype, tuple(shape), lambda index: pairs.constant(number, dtype))

    def scalar(self, value: Scalar | Dim, dtype: DType) -> Tensor:
        """A 0-d tensor of a Python number, or of a size known when the model runs."""
        if isinstance(value, Dim) and not value.is_const:
            size = value
            return Tensor(dtype, (), lambda index: pairs.cast(Index(size), dtype))
        number = value.value if isinstance(value, Dim) else value
        return self.full((), number, dtype)

    # ---- stages ----

    def axes(self, extents: Sequence[Dim], prefix: str = "i") -> tuple[Axis, ...]:
        made = tuple(Axis(f"{prefix}{self.num_axes + k}", e) for k, e in enumerate(extents))
        self.num_axes += len(made)
        return made

    def new_buffer(self, shape: Sequence[Dim], dtype: DType) -> Buffer:
        name = f"{self.name}_{len(self.buffers)}"
        b = pair_buffer(name, tuple(shape)) if dtype is DType.C64 else Buffer(name, dtype, tuple(shape))
        self.buffers.append(b)
        return b

    def materialize(self, t: Tensor) -> Tensor:
        """Computes t once, so that several readers do not compute it again."""
        if t.buffer is not None:
            return t
        out = self.new_buffer(t.shape, t.dtype)
        axes = self.axes(out.shape)
        index = tuple(a.dim for a in axes)
        self.stages.append(Map(out, axes, index, t.held.at(index)))
        return whole_as(out, t.dtype)

    def reduce(
        self,
        combine: Combine | ArgCombine,
        shape: Sequence[Dim],
        reduced: Sequence[Dim],
        fn: Callable[[tuple[Dim, ...], tuple[Dim, ...]], S],
    ) -> Tensor:
        """out[i] = combine over r of fn(i, r). An ArgCombine gives the row-major position of the winner among r, as i64."""
        axes, over = self.axes(shape), self.axes(reduced, "r")
        value = fn(tuple(a.dim for a in axes), tuple(a.dim for a in over)).e
        dtype = DType.I64 if isinstance(combine, ArgCombine) else value.dtype
        out = self.new_buffer(shape, dtype)
        part, value = self._held(value, combine)
        self.stages.append(Reduce(out, (*axes, *part), over, combine, value))
        return whole_as(out, dtype)

    def _held(self, value: Expr, combine: Combine | ArgCombine | None) -> tuple[tuple[Axis, ...], Expr]:
        """The axis that a complex value's parts take, and the value along it; none for a real one. Only sums are made part by part."""
        if not isinstance(value, Pair):
            return (), value
        if combine not in (None, Combine.SUM):
            refuse(f"{combine} of complex numbers")
        part = self.axes((dim(2),), "c")
        return part, value.part(part[0].dim)

    def scan(self, combine: Combine, t: Tensor, along: int, dtype: DType | None = None) -> Tensor:
        """Inclusive prefix combination along one dimension. dtype: of what is stored (f32 of an f64 tensor), t's by default."""
        out = self.new_buffer(t.shape, dtype or t.dtype)
        axes = self.axes(t.shape)
        part, value = self._held(t.at(tuple(a.dim for a in axes)), combine)
        self.stages.append(Scan(out, (*axes, *part), axes[along], combine, value))
        return whole_as(out, t.dtype)

    def scatter(
        self,
        base: Tensor,
        extents: Sequence[Dim],
        index: Callable[[tuple[Dim, ...]], Sequence[IndexEntry]],
        value: Callable[[tuple[Dim, ...]], S],
        combine: Combine | None = None,
    ) -> Tensor:
        """A copy of base with out[index(i)] = value(i) for every i, in row-major order of i (the last of equal indices wins), or
        combined with what is there."""
        out = self.new_buffer(base.shape, base.dtype)
        axes = self.axes(out.shape)
        here = tuple(a.dim for a in axes)
        self.stages.append(Map(out, axes, here, base.held.at(here)))
        over = self.axes(extents)
        at = tuple(a.dim for a in over)
        entries = tuple(i if isinstance(i, Expr) else dim(i) for i in index(at))
        part, written = self._held(pairs.cast(value(at).e, base.dtype) if base.dtype is DType.C64 else value(at).e, combine)
        self.stages.append(Map(out, (*over, *part), (*entries, *(a.dim for a in part)), written, combine))
        return whole_as(out, base.dtype)

    def concat(self, parts: Sequence[Tensor], along: int) -> Tensor:
        """Parts of one dtype, one after another along a dimension."""
        total = dim(0)
        for p in parts:
            total = total + p.shape[along]
        shape = tuple(total if d == along else s for d, s in enumerate(parts[0].shape))
        out = self.new_buffer(shape, parts[0].dtype)
        start = dim(0)
        for p in parts:
            axes = self.axes(p.held.shape)
            here = tuple(a.dim for a in axes)
            at = tuple(h + start if d == along else h for d, h in enumerate(here))
            self.stages.append(Map(out, axes, at, p.held.at(here)))
            start = start + p.shape[along]
        return whole_as(out, parts[0].dtype)

    def call(self, family: str, operands: dict[str, Tensor], outs: Sequence[tuple[Sequence[Dim], DType]], **attrs: Any) -> tuple[Tensor, ...]:
        """A kernel family (sealift/ops/families.py lists them). Operands that are not whole buffers are materialized first; fusion lets the
        family read through views where it can."""
        stage_operands: list[tuple[str, Operand]] = []
        for role, t in operands.items():
            if t.dtype is DType.C64:
                refuse(f"complex numbers in the {family} kernel")
            whole_tensor = self.materialize(t)
            axes = self.axes(t.shape, "k")
            load = whole_tensor.at(tuple(a.dim for a in axes))
            assert isinstance(load, ex.Load)
            stage_operands.append((role, Operand(axes, load)))
        made = tuple(self.new_buffer(shape, dtype) for shape, dtype in outs)
        self.stages.append(Call(family, made, tuple(stage_operands), tuple(sorted(attrs.items()))))
        return tuple(whole(b) for b in made)


def whole(buffer: Buffer) -> Tensor:
    """A tensor as it lies in memory; of a complex buffer, which memory does not know, in the f32 one of its name."""
    if buffer.dtype is DType.C64:
        return whole_as(pair_buffer(buffer.name, buffer.shape, buffer.kind, buffer.order), DType.C64)
    return Tensor(buffer.dtype, buffer.shape, lambda index: ex.Load(buffer, index), buffer)


def whole_as(held: Buffer, dtype: DType) -> Tensor:
    """The tensor of the dtype that the buffer holds: a complex one in an f32 buffer with a last dimension of two."""
    if dtype is not DType.C64:
        return whole(held)
    return Tensor(dtype, held.shape[:-1], lambda index: Pair(lambda part: ex.Load(held, (*index, part))), held)


# ---- promotion -----------------------------------------------------------------------------------------------------------------


def operand_kind(value: Tensor | Scalar | Dim) -> tuple[DType, str]:
    if isinstance(value, Tensor):
        return value.dtype, "dim" if value.shape else "zero"
    if isinstance(value, bool):
        return DType.BOOL, "scalar"
    if isinstance(value, complex):
        return DType.C64, "scalar"
    return (DType.F64 if isinstance(value, float) else DType.I64), "scalar"


def promoted(b: Builder, *values: Tensor | Scalar | Dim, to_float: bool = False, round_scalars: bool = False) -> tuple[tuple[Tensor, ...], DType]:
    """The operands converted to the dtype that ATen computes them in, and the dtype of the result. Half types compute in f32 (the
    result's dtype is then still the half type: cast at the end). `to_float`: integers and bool become f32, as sqrt and div have it.
    `round_scalars`: a number meets a half type as that type holds it (comparisons), not as f32 does (arithmetic)."""
    result = result_type([operand_kind(v) for v in values])
    if to_float and not result.is_float and result is not DType.C64:
        result = DType.F32
    if result is DType.C64 and any(isinstance(v, Tensor) and v.dtype is DType.F64 for v in values):
        refuse("float64 with complex numbers, which gives complex128")
    compute = result.compute
    operands = [v if isinstance(v, Tensor) else b.scalar(v, result if round_scalars else compute) for v in values]
    if round_scalars:
        operands = [b.cast(t, result) for t in operands]
    return tuple(b.cast(t, compute) for t in operands), result


def normalize_dim(d: int, rank: int) -> int:
    """-1 is the last; a 0-d tensor counts as one dimension."""
    size = max(rank, 1)
    if not -size <= d < size:
        raise IndexError(f"dimension {d} of a tensor of rank {rank}")
    return d + size if d < 0 else d
