"""Scalar expressions: what one element of a tensor is. Immutable trees, shared freely, compared by value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from sealift.ir.dim import Dim, Sym, dim
from sealift.ir.dtype import DType
from sealift.ir.loop.prim import COMPARISONS, Prim, num_operands


@dataclass(frozen=True)
class Buffer:
    """Storage of a tensor. `order` lists its dimensions from outermost to innermost in memory (None: as they stand).

    kind: input, output, weight, state (all given by the caller), temp (in the arena), row (local to one row of one kernel: its first
    `row_dims` dimensions are the row's and take no memory)
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    kind: str = "temp"
    order: tuple[int, ...] | None = None
    row_dims: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash(self.name)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def strides(self) -> tuple[Dim, ...]:
        """Elements between neighbours, per dimension."""
        order = self.order if self.order is not None else tuple(range(len(self.shape)))
        strides = [dim(0)] * len(self.shape)
        step = dim(1)
        for d in reversed(order):
            if d >= self.row_dims:
                strides[d] = step
                step = step * self.shape[d]
        return tuple(strides)

    @cached_property
    def numel(self) -> Dim:
        """Elements in memory."""
        total = dim(1)
        for d in self.shape[self.row_dims :]:
            total = total * d
        return total

    def __str__(self) -> str:
        return f"%{self.name}"


class Expr:
    """Base of the five kinds below."""

    dtype: DType

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()


@dataclass(frozen=True)
class Const(Expr):
    """A literal: bool, int, or float (held as Python's double, rounded to dtype where it is used)."""

    number: bool | int | float
    dtype: DType

    @cached_property
    def _key(self) -> tuple[str, DType]:  # repr tells -0.0 from 0.0 and makes NaN equal itself
        return (repr(self.number), self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True)
class Index(Expr):
    """An index or size as a number of the given integer type."""

    value: Dim
    dtype: DType = DType.I64


@dataclass(frozen=True)
class Bound:
    """lo <= value < hi"""

    value: Dim
    lo: Dim
    hi: Dim

    def substitute(self, mapping: Mapping[Sym, Dim]) -> Bound:
        return Bound(self.value.substitute(mapping), self.lo.substitute(mapping), self.hi.substitute(mapping))


@dataclass(frozen=True)
class Load(Expr):
    """buffer[index]. An index entry is a Dim, or an integer Expr (a gather; already checked and made non-negative by CheckIndex).

    With a guard, lanes for which a bound fails do not touch memory and are `other`.
    """

    buffer: Buffer
    index: tuple[Dim | Expr, ...]
    guard: tuple[Bound, ...] = ()
    other: bool | int | float = 0

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.buffer.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        return tuple(i for i in self.index if isinstance(i, Expr))


@dataclass(frozen=True)
class CheckIndex(Expr):
    """An index as eager takes it: outside [-size, size) the run fails with E-RUN-001, which names `value`; negative counts from the end.
    Without `wraps`, outside [0, size)."""

    value: Expr
    size: Dim
    dtype: DType = DType.I64
    wraps: bool = True

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Inside(Expr):
    """bool: every bound holds."""

    bounds: tuple[Bound, ...]
    dtype: DType = DType.BOOL


@dataclass(frozen=True)
class Op(Expr):
    prim: Prim
    args: tuple[Expr, ...]
    dtype: DType

    def __post_init__(self) -> None:
        if len(self.args) != num_operands(self.prim):
            raise ValueError(f"{self.prim} takes {num_operands(self.prim)} operands, not {len(self.args)}")
        operands = self.args[1:] if self.prim is Prim.SELECT else self.args
        if len({a.dtype for a in operands}) > 1:
            raise ValueError(f"{self.prim}: operands of different dtypes {[str(a.dtype) for a in operands]}")

    @cached_property
    def _hash(self) -> int:
        return hash((self.prim, self.args, self.dtype))

    def __hash__(self) -> int:
        return self._hash

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


# ---- construction --------------------------------------------------------------------------------------------------------------


def apply(prim: Prim, *args: Expr) -> Expr:
    """The primitive on operands of one dtype; a comparison gives bool."""
    result = DType.BOOL if prim in COMPARISONS else args[-1].dtype
    return Op(prim, args, result)


def cast(value: Expr, dtype: DType) -> Expr:
    if value.dtype is dtype:
        return value
    if isinstance(value, Index) and dtype.is_int:
        return Index(value.value, dtype) if dtype in (DType.I64, DType.I32) else Op(Prim.CAST, (value,), dtype)
    return Op(Prim.CAST, (value,), dtype)


def const(number: bool | int | float, dtype: DType) -> Const:
    """`number` as `dtype` would hold it (a float literal of an integer type is a mistake of the caller's)."""
    if dtype is DType.BOOL:
        return Const(bool(number), dtype)
    if dtype.is_int:
        if isinstance(number, float) and not number.is_integer():
            raise ValueError(f"{number} is not a {dtype}")
        return Const(int(number), dtype)
    return Const(float(number), dtype)


# ---- rewriting -----------------------------------------------------------------------------------------------------------------


def rebuild(e: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """`e` with each child replaced by fn(child); the same object if none changed."""
    match e:
        case Op():
            args = tuple(fn(a) for a in e.args)
            return e if all(a is b for a, b in zip(args, e.args)) else replace(e, args=args)
        case CheckIndex():
            value = fn(e.value)
            return e if value is e.value else replace(e, value=value)
        case Load():
            index = tuple(fn(i) if isinstance(i, Expr) else i for i in e.index)
            return e if all(a is b for a, b in zip(index, e.index)) else replace(e, index=index)
    return e


def rewrite(root: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """fn applied to every node, children first. A subtree shared by several parents is rewritten once and stays shared."""
    done: dict[int, Expr] = {}

    def visit(e: Expr) -> Expr:
        if id(e) not in done:
            done[id(e)] = fn(rebuild(e, visit))
        return done[id(e)]

    return visit(root)


def substitute(root: Expr, mapping: Mapping[Sym, Dim]) -> Expr:
    """Replaces axis symbols in every index of the tree."""

    def replace_axes(e: Expr) -> Expr:
        match e:
            case Index():
                value = e.value.substitute(mapping)
                return e if value is e.value else replace(e, value=value)
            case Inside():
                return Inside(tuple(b.substitute(mapping) for b in e.bounds))
            case Load():
                index = tuple(i if isinstance(i, Expr) else i.substitute(mapping) for i in e.index)
                return Load(e.buffer, index, tuple(b.substitute(mapping) for b in e.guard), e.other)
            case CheckIndex():
                return replace(e, size=e.size.substitute(mapping))
        return e

    return rewrite(root, replace_axes) if mapping else root


def loads(e: Expr) -> list[Load]:
    """Every load in the tree, indices' loads included, in evaluation order; shared subtrees once."""
    found: dict[int, Load] = {}
    seen: set[int] = set()

    def visit(x: Expr) -> None:
        if id(x) in seen:
            return
        seen.add(id(x))
        for child in x.children:
            visit(child)
        if isinstance(x, Load):
            found[id(x)] = x

    visit(e)
    return list(found.values())


def axis_symbols(e: Expr) -> frozenset[Sym]:
    """Symbols that occur in indices, bounds and index values of the tree."""
    symbols: set[Sym] = set()
    seen: set[int] = set()

    def visit(x: Expr) -> None:
        if id(x) in seen:
            return
        seen.add(id(x))
        match x:
            case Index():
                symbols.update(x.value.symbols)
            case Inside():
                for b in x.bounds:
                    symbols.update(b.value.symbols | b.lo.symbols | b.hi.symbols)
            case Load():
                for i in x.index:
                    if isinstance(i, Dim):
                        symbols.update(i.symbols)
                for b in x.guard:
                    symbols.update(b.value.symbols | b.lo.symbols | b.hi.symbols)
        for child in x.children:
            visit(child)

    visit(e)
    return frozenset(symbols)
