"""What loops mean, in NumPy: slow, and as exact as the primitives' definitions. It guards the passes; the oracle in tests is eager.

Arrays are logical: indexed by a buffer's dimensions, whatever its order in memory. bf16, which NumPy lacks, is held as float32 whose
values are bf16 values, rounded after every primitive; f16 is float16. A stage is evaluated over its whole grid at once, in blocks of
outer axes where the grid is large, with index arrays that broadcast; the stages of a kernel run one after another, which is the same
as row after row while `verify` holds. Functions that are not exactly rounded (exp, erf, ...) are computed in float64 and rounded once;
float sums and products likewise accumulate in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product as cartesian
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sealift.diag.errors import DivisionByZero, IndexOutOfRange, InputError, InternalError, RunError
from sealift.ir.dim import ZERO, Apply, Dim, Sym
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Const, Expr, Index, Inside, Load, Op
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Reduce, Scan, Stage

Array = NDArray[Any]
Naive = Callable[[Mapping[str, Array], Mapping[str, Any]], Sequence[Array]]  # a kernel family: (operands by role, attrs) -> outputs
NO_FAMILIES: Mapping[str, Naive] = {}

BLOCK_ELEMS = 1 << 22  # of a grid evaluated at once: a handful of 32 MB temporaries

_NUMPY = {
    DType.F32: np.float32,
    DType.F64: np.float64,
    DType.I32: np.int32,
    DType.I64: np.int64,
    DType.BOOL: np.bool_,
    DType.BF16: np.float32,
    DType.F16: np.float16,
    DType.I8: np.int8,
    DType.I16: np.int16,
    DType.U8: np.uint8,
    DType.C64: np.complex64,
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """What the interpreter holds a dtype in (bf16: float32)."""
    return np.dtype(_NUMPY[dtype])


def interpret(
    loops: Loops,
    values: Mapping[str, Array],
    families: Mapping[str, Naive] = NO_FAMILIES,
    new_states: dict[str, Array] | None = None,
) -> list[Array | None]:
    """The outputs (None where the model returns None), for inputs, weights and states by buffer name.

    `new_states` receives what the run leaves in each state.
    """
    values = {name: as_pairs(array) if np.iscomplexobj(array) else array for name, array in values.items()}
    sizes = bind_sizes([(b.name, b.shape, np.shape(values[b.name])) for b in loops.inputs], loops.sizes)
    env: dict[str, Array] = {}
    written = {state.name for state, _ in loops.state_updates}
    for b in (*loops.inputs, *loops.buffers):
        if b.kind in ("input", "weight", "state"):
            held = to_held(values[b.name], b.dtype)
            env[b.name] = np.array(held) if b.name in written else held
    for b in (*loops.buffers, *(o for o in loops.outputs if o is not None)):
        if ZERO in b.shape and b.name not in env:  # nobody has to write it
            env[b.name] = np.zeros([d.evaluate(sizes) for d in b.shape], numpy_dtype(b.dtype))
    for kernel in loops.kernels:
        run_kernel(kernel, env, sizes, families)
    if new_states is not None:
        new_states.update({state.name: env[new.name] for state, new in loops.state_updates})
    return [None if b is None else env[b.name] for b in loops.outputs]


def run_kernel(kernel: Kernel, env: dict[str, Array], sizes: Mapping[str, int], families: Mapping[str, Naive] = NO_FAMILIES) -> None:
    run_stages(kernel.stages, env, sizes, families)


def run_stages(stages: Iterable[Stage], env: dict[str, Array], sizes: Mapping[str, int], families: Mapping[str, Naive] = NO_FAMILIES) -> None:
    """Runs stages in order. `env` holds arrays by buffer name; a buffer that a stage writes is made (zeroed) when it is not there."""
    with np.errstate(all="ignore"):
        for stage in stages:
            match stage:
                case Map():
                    _run_map(stage, env, sizes)
                case Reduce():
                    _run_reduce(stage, env, sizes)
                case Scan():
                    _run_scan(stage, env, sizes)
                case Call():
                    _run_call(stage, env, sizes, families)


def eval_scalar(e: Expr, env: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """An expression without axes, as a 0-d array."""
    return eval_over(e, (), env, sizes)


def eval_over(e: Expr, axes: Sequence[Axis], env: Mapping[str, Array], sizes: Mapping[str, int]) -> Array:
    """An expression over the whole grid of `axes`, as one array of their extents."""
    with np.errstate(all="ignore"):
        extents = [a.extent.evaluate(sizes) for a in axes]
        out = np.empty(extents, numpy_dtype(e.dtype))
        for ranges in _blocks(extents, len(extents)):
            block = _Block(env, sizes, tuple(axes), ranges)
            out[tuple(slice(lo, hi) for lo, hi in ranges)] = block.grid_value(e)
        return out


def bind_sizes(arrays: Iterable[tuple[str, Sequence[Dim], Sequence[int]]], sizes: Sequence[Sym] = ()) -> dict[str, int]:
    """The value of each symbol, from (name, declared shape, shape given) of the inputs. A symbol that only stands inside a larger
    expression (2*batch) is solved from it. E-INPUT-003 on a shape that does not fit."""
    arrays = list(arrays)
    bound: dict[str, int] = {}
    pending: list[tuple[str, int, Dim, int]] = []
    for name, declared, given in arrays:
        if len(declared) != len(given):
            raise InputError(f"input {name!r}: {len(given)} dimensions, not {len(declared)}", code="E-INPUT-003")
        for d, (size, actual) in enumerate(zip(declared, given, strict=True)):
            symbol = size.as_sym
            if symbol is not None:
                bound.setdefault(symbol.name, int(actual))
            pending.append((name, d, size, int(actual)))
    for _ in pending:  # each round solves at least one symbol or ends
        solved = False
        for _, _, size, actual in pending:
            unknown = [s for s in size.symbols if s.name not in bound]
            if len(unknown) == 1:
                value = _solve(size, unknown[0], actual, bound)
                if value is not None:
                    bound[unknown[0].name] = value
                    solved = True
        if not solved:
            break
    for name, d, size, actual in pending:
        missing = sorted(s.name for s in size.symbols if s.name not in bound)
        if missing:
            raise InputError(f"input {name!r}: dimension {d} is {size}, which does not determine {', '.join(missing)}", code="E-INPUT-003")
        if size.evaluate(bound) != actual:
            raise InputError(f"input {name!r}: dimension {d} is {actual}, not {size} = {size.evaluate(bound)}", code="E-INPUT-003")
    for s in sizes:
        if s.name in bound and not s.lo <= bound[s.name] <= (s.hi if isinstance(s.hi, int) else s.hi.evaluate(bound)):
            raise InputError(f"{s.name} is {bound[s.name]}, outside [{s.lo}, {s.hi}]", code="E-INPUT-003")
    return bound


def _solve(size: Dim, symbol: Sym, actual: int, bound: Mapping[str, int]) -> int | None:
    split = size.linear_in(symbol)
    if split is None:
        return None
    stride, rest = split[0].evaluate(bound), split[1].evaluate(bound)
    return (actual - rest) // stride if stride and (actual - rest) % stride == 0 else None


# ---- dtypes --------------------------------------------------------------------------------------------------------------------


def round_bf16(x: Array) -> Array:
    """float32 rounded to bf16 values, half to even, as float32."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.asarray(np.where(np.isnan(x), np.float32("nan"), rounded.view(np.float32)))


def bf16_from_bits(bits: Array) -> Array:
    """Stored bf16 (uint16) as the interpreter holds it."""
    return np.asarray((np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32))


def as_pairs(array: Array) -> Array:
    """Complex numbers as kernels see them: [..., 2] of f32."""
    numbers = np.ascontiguousarray(array, np.complex64)
    return np.asarray(numbers.view(np.float32).reshape(*np.shape(array), 2))


def from_pairs(array: Array) -> Array:
    """The inverse of as_pairs."""
    return np.asarray(np.ascontiguousarray(array, np.float32).view(np.complex64).reshape(np.shape(array)[:-1]))


def to_held(array: Array, dtype: DType) -> Array:
    """An array given from outside as the interpreter holds it: bf16 may come as uint16 bits or as float32 values."""
    array = np.asarray(array)
    if dtype is DType.BF16:
        return bf16_from_bits(array) if array.dtype == np.uint16 else round_bf16(array)
    if array.dtype != numpy_dtype(dtype):
        raise InputError(f"an array of {array.dtype} for a tensor of {dtype}", code="E-INPUT-002")
    return array


def convert(x: Array, source: DType, target: DType) -> Array:
    """As ATen converts on x86: to bool, anything but 0 is true; a float to an integer truncates, NaN and what int64 (int32 for the
    narrower types) cannot hold become its minimum, and narrower types keep the low bits; doubles go to half types through f32."""
    if source is target:
        return x
    if target is DType.BOOL:
        return np.asarray(x != 0)
    if target.is_int and source.is_float:
        wide, limit = (np.int64, 2.0**63) if target is DType.I64 else (np.int32, 2.0**31)
        value = np.trunc(x.astype(np.float64))
        fits = (value >= -limit) & (value < limit)
        whole = np.where(fits, np.where(fits, value, 0).astype(wide), np.iinfo(wide).min)
        return np.asarray(whole.astype(numpy_dtype(target)))
    if target in (DType.BF16, DType.F16):
        narrowed = x.astype(np.float32)
        return round_bf16(narrowed) if target is DType.BF16 else narrowed.astype(np.float16)
    return np.asarray(x.astype(numpy_dtype(target)))


def literal(number: bool | int | float, dtype: DType) -> Array:
    """A Python number as a 0-d array: floats rounded, integers wrapped."""
    if dtype is DType.BOOL:
        return np.asarray(bool(number))
    if dtype.is_int:
        bits = 8 * dtype.size_bytes
        return np.asarray(int(number) & (2**bits - 1), np.dtype(f"u{dtype.size_bytes}")).astype(numpy_dtype(dtype))
    with np.errstate(all="ignore"):
        return convert(np.asarray(number, np.float64), DType.F64, dtype)


# ---- primitives ----------------------------------------------------------------------------------------------------------------

_erf = np.frompyfunc(math.erf, 1, 1)

_EXACT: dict[Prim, Callable[..., Any]] = {  # as NumPy defines them, at any dtype
    Prim.ADD: np.add,
    Prim.SUB: np.subtract,
    Prim.MUL: np.multiply,
    Prim.DIV: np.true_divide,
    Prim.NEG: np.negative,
    Prim.ABS: np.abs,
    Prim.MINIMUM: np.minimum,
    Prim.MAXIMUM: np.maximum,
    Prim.FMOD: np.fmod,
    Prim.EQ: np.equal,
    Prim.NE: np.not_equal,
    Prim.LT: np.less,
    Prim.LE: np.less_equal,
    Prim.GT: np.greater,
    Prim.GE: np.greater_equal,
    Prim.AND: np.bitwise_and,
    Prim.OR: np.bitwise_or,
    Prim.XOR: np.bitwise_xor,
    Prim.NOT: np.invert,
    Prim.SQRT: np.sqrt,
    Prim.FLOOR: np.floor,
    Prim.CEIL: np.ceil,
    Prim.TRUNC: np.trunc,
    Prim.ROUND: np.rint,
}

_IN_FLOAT64: dict[Prim, Callable[..., Any]] = {
    Prim.POW: np.power,
    Prim.ATAN2: np.arctan2,
    Prim.EXP: np.exp,
    Prim.EXP2: np.exp2,
    Prim.EXPM1: np.expm1,
    Prim.LOG: np.log,
    Prim.LOG2: np.log2,
    Prim.LOG10: np.log10,
    Prim.LOG1P: np.log1p,
    Prim.SIN: np.sin,
    Prim.COS: np.cos,
    Prim.TAN: np.tan,
    Prim.ASIN: np.arcsin,
    Prim.ACOS: np.arccos,
    Prim.ATAN: np.arctan,
    Prim.SINH: np.sinh,
    Prim.COSH: np.cosh,
    Prim.TANH: np.tanh,
    Prim.ASINH: np.arcsinh,
    Prim.ACOSH: np.arccosh,
    Prim.ATANH: np.arctanh,
    Prim.ERF: lambda x: np.asarray(_erf(x)).astype(np.float64),
    Prim.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
}


def apply_prim(prim: Prim, args: Sequence[Array], operand: DType, result: DType) -> Array:
    """One primitive (CAST and SELECT included) on operands of dtype `operand`. Integer division by zero gives 0 here: the caller
    has marked those lanes."""
    match prim:
        case Prim.SELECT:
            value = np.where(*args)
        case Prim.CAST:
            return convert(args[0], operand, result)
        case Prim.FLOOR_DIV:
            value = np.floor_divide(*args) if operand.is_int else _floor_div(*args)
        case Prim.TRUNC_DIV:
            value = _trunc_div(*args)
        case Prim.REMAINDER:
            value = np.remainder(*args) if operand.is_int else _remainder(*args)
        case Prim.SHL | Prim.SHR:
            value = _shift(prim, args[0], args[1], operand)
        case _ if prim in _EXACT:
            value = _EXACT[prim](*args)
        case _:
            value = _IN_FLOAT64[prim](*(np.asarray(a, np.float64) for a in args))
    value = np.asarray(value).astype(numpy_dtype(result), copy=False)
    return round_bf16(value) if result is DType.BF16 else value


def _remainder(a: Array, b: Array) -> Array:
    left = np.fmod(a, b)
    return np.where((left != 0) & ((b < 0) != (left < 0)), left + b, left)


def _floor_div(a: Array, b: Array) -> Array:
    """ATen div_floor_floating: exact where a / b rounds up to an integer."""
    left = np.fmod(a, b)
    quotient = (a - left) / b
    quotient = np.where((left != 0) & ((b < 0) != (left < 0)), quotient - 1, quotient)
    whole = np.floor(quotient)
    whole = np.where(quotient - whole > 0.5, whole + 1, whole)
    whole = np.where(quotient != 0, whole, np.copysign(np.zeros_like(quotient), a / b))
    return np.where(b == 0, a / b, whole)


def _trunc_div(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return np.asarray(quotient + inexact.astype(quotient.dtype))


def _shift(prim: Prim, a: Array, count: Array, dtype: DType) -> Array:
    """A left shift by a negative or too large count gives 0; such a right shift leaves only the sign."""
    bits = 8 * dtype.size_bytes
    if prim is Prim.SHL:
        bad = (count < 0) | (count >= bits)
        return np.where(bad, np.zeros_like(a), np.left_shift(a, np.where(bad, 0, count).astype(a.dtype)))
    if dtype is DType.U8:
        bad = count >= bits
        return np.where(bad, np.zeros_like(a), np.right_shift(a, np.where(bad, 0, count).astype(a.dtype)))
    most = np.asarray(bits - 1, a.dtype)
    return np.asarray(np.right_shift(a, np.where((count < 0) | (count > most), most, count).astype(a.dtype)))


def identity_of(combine: Combine, dtype: DType) -> Array:
    match combine:
        case Combine.SUM | Combine.ANY:
            return literal(0, dtype)
        case Combine.PROD | Combine.ALL:
            return literal(1, dtype)
    if dtype.is_float:
        return literal(math.inf if combine is Combine.MIN else -math.inf, dtype)
    if dtype is DType.BOOL:
        return literal(combine is Combine.MIN, dtype)
    limits = np.iinfo(numpy_dtype(dtype))
    return literal(limits.max if combine is Combine.MIN else limits.min, dtype)


_COMBINE: dict[Combine, np.ufunc] = {
    Combine.SUM: np.add,
    Combine.PROD: np.multiply,
    Combine.MIN: np.minimum,  # both keep a NaN
    Combine.MAX: np.maximum,
    Combine.ANY: np.logical_or,
    Combine.ALL: np.logical_and,
}


def _accumulator(combine: Combine, dtype: DType) -> np.dtype[Any]:
    wide = combine in (Combine.SUM, Combine.PROD) and dtype.is_float
    return np.dtype(np.float64) if wide else numpy_dtype(dtype)


def _narrow(x: Array, dtype: DType) -> Array:
    value = np.asarray(x)
    return convert(value, DType.F64, dtype) if dtype.is_float and value.dtype == np.float64 else value.astype(numpy_dtype(dtype))


# ---- expressions over a block of the grid --------------------------------------------------------------------------------------


@dataclass
class _Block:
    """A box of the grid. An expression evaluates to an array that broadcasts to it (size 1 along axes it does not depend on), and to
    a mask of lanes that would have failed: an error counts only where the lane's value is used (SELECT takes one branch)."""

    env: Mapping[str, Array]
    sizes: Mapping[str, int]
    axes: tuple[Axis, ...]
    ranges: tuple[tuple[int, int], ...]
    memo: dict[int, tuple[Array, Array | None]] = field(default_factory=dict)
    failures: list[Callable[[tuple[int, ...]], RunError]] = field(default_factory=list)
    where: dict[str, int | Array] = field(init=False)

    def __post_init__(self) -> None:
        self.where = dict(self.sizes)
        for k, (axis, (lo, hi)) in enumerate(zip(self.axes, self.ranges, strict=True)):
            self.where[axis.name] = np.arange(lo, hi, dtype=np.int64).reshape([-1 if j == k else 1 for j in range(len(self.axes))])

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(hi - lo for lo, hi in self.ranges)

    def grid_value(self, e: Expr) -> Array:
        """The value on the whole block; raises if a lane failed."""
        value, bad = self.eval(e)
        if bad is not None and np.any(bad) and 0 not in self.shape:
            on_grid = np.broadcast_to(bad, self.shape)
            at = tuple(int(i) for i in np.argwhere(on_grid)[0]) if self.shape else ()
            raise self.failures[int(on_grid[at]) - 1](at)
        return np.broadcast_to(value, self.shape)

    def dim(self, d: Dim) -> int | Array:
        total: int | Array = 0
        for monomial, coefficient in d.terms:
            term: int | Array = coefficient
            for atom in monomial:
                term = term * self.atom(atom)
            total = total + term
        return total

    def atom(self, atom: Sym | Apply) -> int | Array:
        if isinstance(atom, Sym):
            return self.where[atom.name]
        left, right = self.dim(atom.left), self.dim(atom.right)
        functions: dict[str, Callable[[Any, Any], Any]] = {"//": np.floor_divide, "%": np.remainder, "min": np.minimum, "max": np.maximum}
        return np.asarray(functions[atom.fn](np.asarray(left, np.int64), np.asarray(right, np.int64)))

    def bounds(self, bounds: Sequence[Bound]) -> Array:
        inside = np.asarray(True)
        for b in bounds:
            value = self.dim(b.value)
            inside = inside & (self.dim(b.lo) <= np.asarray(value)) & (np.asarray(value) < self.dim(b.hi))
        return inside

    def eval(self, e: Expr) -> tuple[Array, Array | None]:
        found = self.memo.get(id(e))
        if found is None:
            found = self.memo[id(e)] = self.eval_new(e)
        return found

    def eval_new(self, e: Expr) -> tuple[Array, Array | None]:
        match e:
            case Const():
                return literal(e.number, e.dtype), None
            case Index():
                return convert(np.asarray(self.dim(e.value), np.int64), DType.I64, e.dtype), None
            case Inside():
                return self.bounds(e.bounds), None
            case CheckIndex():
                return self.check_index(e)
            case Load():
                return self.load(e)
            case Op():
                return self.op(e)
        raise InternalError(f"unknown expression {type(e).__name__}")

    def fail(self, lanes: Array, error: Callable[[tuple[int, ...]], RunError]) -> Array | None:
        if not np.any(lanes):
            return None
        self.failures.append(error)
        return np.where(lanes, len(self.failures), 0)

    def check_index(self, e: CheckIndex) -> tuple[Array, Array | None]:
        value, bad = self.eval(e.value)
        value, size = value.astype(np.int64), np.asarray(self.dim(e.size))
        outside = (value < (-size if e.wraps else 0)) | (value >= size)

        def error(at: tuple[int, ...]) -> RunError:
            number = int(np.broadcast_to(value, self.shape)[at])
            return IndexOutOfRange(f"index {number} is out of range for a dimension of size {int(np.broadcast_to(size, self.shape)[at])}")

        checked = np.where(outside, 0, np.where(value < 0, value + size, value))
        return np.asarray(checked.astype(numpy_dtype(e.dtype))), _either(bad, self.fail(outside, error))

    def op(self, e: Op) -> tuple[Array, Array | None]:
        parts = [self.eval(a) for a in e.args]
        values = [v for v, _ in parts]
        operand = e.args[-1].dtype
        if e.prim is Prim.SELECT:
            bad_a, bad_b = parts[1][1], parts[2][1]
            bad = parts[0][1]
            if bad_a is not None or bad_b is not None:
                zero = np.asarray(0)
                bad = _either(bad, np.where(values[0], zero if bad_a is None else bad_a, zero if bad_b is None else bad_b))
            return apply_prim(e.prim, values, operand, e.dtype), bad
        bad = None
        for _, b in parts:
            bad = _either(bad, b)
        if operand.is_int and e.prim in (Prim.FLOOR_DIV, Prim.TRUNC_DIV, Prim.REMAINDER, Prim.FMOD, Prim.DIV):
            bad = _either(bad, self.fail(values[1] == 0, lambda at: DivisionByZero(f"integer division by zero in {e.prim}")))
        return apply_prim(e.prim, values, operand, e.dtype), bad

    # ---- loads ----

    def load(self, e: Load) -> tuple[Array, Array | None]:
        if e.buffer.name not in self.env:
            raise InternalError(f"%{e.buffer.name} is read before it is written")
        array = self.env[e.buffer.name]
        if array.ndim != len(e.index):
            raise InternalError(f"%{e.buffer.name} has {array.ndim} dimensions and is indexed by {len(e.index)}")
        if not e.guard:
            view = self.load_view(array, e.index)
            if view is not None:
                return view, None
        bad: Array | None = None
        entries: list[Array] = []
        for entry in e.index:
            if isinstance(entry, Expr):
                value, entry_bad = self.eval(entry)
                bad = _either(bad, entry_bad)
                entries.append(value.astype(np.int64))
            else:
                entries.append(np.asarray(self.dim(entry), np.int64))
        if not e.guard:
            if not entries:
                return array, bad
            if bad is not None:
                entries = [np.where(bad != 0, 0, i) for i in entries]
            return self.gather(e.buffer, array, entries), bad
        inside = self.bounds(e.guard)
        other = literal(e.other, e.dtype)
        if bad is not None:
            bad = np.where(inside, bad, 0)
        if array.size == 0 or not np.any(inside):
            return other, bad
        safe = [np.where(inside, i, 0) for i in entries]
        return np.where(inside, self.gather(e.buffer, array, safe) if safe else array, other), bad

    def gather(self, buffer: Buffer, array: Array, entries: Sequence[Array]) -> Array:
        for d, i in enumerate(entries):
            if i.size and 0 not in np.broadcast_shapes(*(j.shape for j in entries)) and (i.min() < 0 or i.max() >= array.shape[d]):
                raise InternalError(f"%{buffer.name}: index {int(i.min())}..{int(i.max())} into dimension {d} of size {array.shape[d]}")
        return np.asarray(array[tuple(entries)])

    def load_view(self, array: Array, index: Sequence[Dim | Expr]) -> Array | None:
        """The load as a strided view: every entry is a size, or stride * axis + offset of an axis of its own. None if it is not so."""
        symbols = {a.sym: k for k, a in enumerate(self.axes)}
        key: list[int | slice] = []
        order: list[int] = []
        for d, entry in enumerate(index):
            if isinstance(entry, Expr):
                return None
            inner = [s for s in entry.symbols if s in symbols]
            if not inner:
                offset = entry.evaluate(self.sizes)
                if not 0 <= offset < array.shape[d]:
                    return None
                key.append(offset)
                continue
            split = entry.linear_in(inner[0]) if len(inner) == 1 else None
            if split is None or symbols[inner[0]] in order:
                return None
            lo, hi = self.ranges[symbols[inner[0]]]
            stride, rest = (d_.evaluate(self.sizes) for d_ in split)
            first, last = rest + stride * lo, rest + stride * (hi - 1)
            if stride < 1 or hi <= lo or not (first >= 0 and last < array.shape[d]):
                return None
            key.append(slice(first, last + 1, stride))
            order.append(symbols[inner[0]])
        view = np.asarray(array[tuple(key)]).transpose(np.argsort(order))
        reshaped: Array = view.reshape([self.shape[k] if k in order else 1 for k in range(len(self.axes))])
        return reshaped


def _either(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    return np.where(a != 0, a, b)


# ---- stages --------------------------------------------------------------------------------------------------------------------


def _blocks(extents: Sequence[int], splittable: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Boxes that tile the grid in row-major order: outer axes (of the first `splittable`) are cut until a box is small enough."""
    steps = list(extents)
    for k in range(splittable):
        below = math.prod(steps[k + 1 :])
        if steps[k] * below <= BLOCK_ELEMS:
            break
        steps[k] = max(1, BLOCK_ELEMS // max(below, 1))
    pieces = [[(lo, min(lo + s, n)) for lo in range(0, n, s)] if n > s else [(0, n)] for n, s in zip(extents, steps, strict=True)]
    return cartesian(*pieces)


def _buffer_array(buffer: Buffer, env: dict[str, Array], sizes: Mapping[str, int]) -> Array:
    array = env.get(buffer.name)
    if array is None:
        array = env[buffer.name] = np.zeros([d.evaluate(sizes) for d in buffer.shape], numpy_dtype(buffer.dtype))
    return array


def _run_map(stage: Map, env: dict[str, Array], sizes: Mapping[str, int]) -> None:
    out = _buffer_array(stage.out, env, sizes)
    extents = [a.extent.evaluate(sizes) for a in stage.axes]
    if 0 in extents:
        return
    plain = stage.combine is None and stage.index == tuple(a.dim for a in stage.axes)
    for ranges in _blocks(extents, len(extents)):
        block = _Block(env, sizes, stage.axes, ranges)
        value = block.grid_value(stage.value)
        if plain:
            out[tuple(slice(lo, hi) for lo, hi in ranges)] = value
            continue
        entries: list[Array] = []
        for d, entry in enumerate(stage.index):
            at = np.broadcast_to(block.grid_value(entry) if isinstance(entry, Expr) else np.asarray(block.dim(entry)), block.shape)
            if at.min() < 0 or at.max() >= out.shape[d]:
                raise InternalError(f"%{stage.out.name}: writes {int(at.min())}..{int(at.max())} in dimension {d} of size {out.shape[d]}")
            entries.append(at.reshape(-1).astype(np.int64))
        flat = np.ravel_multi_index(tuple(entries), out.shape) if entries else np.zeros(value.size, np.int64)
        _store(out, np.asarray(flat), value.reshape(-1), stage.combine, stage.out.dtype)


def _store(out: Array, flat: Array, value: Array, combine: Combine | None, dtype: DType) -> None:
    """out[flat] = value, in order; combined with what is there, one after another, where `combine` is given."""
    target = out.reshape(-1)
    if not np.shares_memory(target, out):
        raise InternalError("a stage writes an array that is not contiguous")
    if combine is None:
        target[flat] = value
    elif dtype is not DType.BF16:
        _COMBINE[combine].at(target, flat, value)
    else:  # rounded at each step: the first writer of every place, then the second, ...
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        first = np.searchsorted(ordered, ordered, side="left")
        turn = np.arange(len(flat)) - first
        for t in range(int(turn.max(initial=-1)) + 1):
            lanes = order[turn == t]
            target[flat[lanes]] = round_bf16(_COMBINE[combine](target[flat[lanes]], value[lanes]))


def _run_reduce(stage: Reduce, env: dict[str, Array], sizes: Mapping[str, int]) -> None:
    out = _buffer_array(stage.out, env, sizes)
    axes = (*stage.axes, *stage.reduced)
    extents = [a.extent.evaluate(sizes) for a in axes]
    kept = len(stage.axes)
    if 0 in extents[:kept]:
        return
    for ranges in _blocks(extents, kept):
        block = _Block(env, sizes, axes, ranges)
        value = block.grid_value(stage.value)
        value = value.reshape(*value.shape[:kept], math.prod(value.shape[kept:]))
        box = tuple(slice(lo, hi) for lo, hi in ranges[:kept])
        if isinstance(stage.combine, ArgCombine):
            out[box] = _position(stage.combine, value) if value.shape[-1] else 0
            continue
        dtype = stage.value.dtype
        accumulator = _accumulator(stage.combine, dtype)
        identity = identity_of(stage.combine, dtype).astype(accumulator)[()]
        total = _COMBINE[stage.combine].reduce(value.astype(accumulator, copy=False), axis=-1, initial=identity)
        out[box] = _narrow(np.asarray(total), stage.out.dtype if stage.out.dtype.is_float else dtype)


def _position(combine: ArgCombine, value: Array) -> Array:
    first = np.asarray(np.argmin(value, axis=-1) if combine is ArgCombine.ARGMIN else np.argmax(value, axis=-1))
    if combine is not ArgCombine.ARGMAX_LAST_NAN or value.dtype.kind != "f":
        return first
    nan = np.isnan(value)
    return np.where(nan.any(axis=-1), value.shape[-1] - 1 - np.argmax(nan[..., ::-1], axis=-1), first)


def _run_scan(stage: Scan, env: dict[str, Array], sizes: Mapping[str, int]) -> None:
    out = _buffer_array(stage.out, env, sizes)
    extents = [a.extent.evaluate(sizes) for a in stage.axes]
    if 0 in extents:
        return
    value = eval_over(stage.value, stage.axes, env, sizes)
    dtype = stage.value.dtype
    accumulator = _accumulator(stage.combine, dtype)
    total = _COMBINE[stage.combine].accumulate(value.astype(accumulator), axis=stage.axes.index(stage.along))
    out[...] = _narrow(_narrow(total, dtype), stage.out.dtype)


def _run_call(stage: Call, env: dict[str, Array], sizes: Mapping[str, int], families: Mapping[str, Naive]) -> None:
    naive = families.get(stage.family)
    if naive is None:
        raise InternalError(f"no definition of kernel family {stage.family!r} was given")
    operands = {role: eval_over(o.load, o.axes, env, sizes) for role, o in stage.operands}
    attrs = {name: _bound(value, env, sizes, families) if isinstance(value, Loops) else _evaluate_attr(value, sizes) for name, value in stage.attrs}
    results = naive(operands, attrs)
    for buffer, result in zip(stage.outs, results):  # a workspace comes last, and holds nothing
        out = _buffer_array(buffer, env, sizes)
        if out.shape != result.shape:
            raise InternalError(f"{stage.family} gives {result.shape} for %{buffer.name}: {out.shape}")
        out[...] = round_bf16(result) if buffer.dtype is DType.BF16 else result


def _bound(
    part: Loops, env: Mapping[str, Array], sizes: Mapping[str, int], families: Mapping[str, Naive]
) -> Callable[[Sequence[Array]], list[Array]]:
    """Loops that a call holds as a function of its inputs. Weights are those around the call."""

    def run(inputs: Sequence[Array]) -> list[Array]:
        local = {b.name: a for b, a in zip(part.inputs, inputs, strict=True)}
        local |= {b.name: env[b.name] for b in part.buffers if b.kind in ("weight", "state")}
        for b in (*part.buffers, *(o for o in part.outputs if o is not None)):
            if ZERO in b.shape and b.name not in local:
                local[b.name] = np.zeros([d.evaluate(sizes) for d in b.shape], numpy_dtype(b.dtype))
        for kernel in part.kernels:
            run_kernel(kernel, local, sizes, families)
        return [local[b.name] for b in part.outputs if b is not None]

    return run


def _evaluate_attr(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dim):
        return value.evaluate(sizes)
    if isinstance(value, tuple):
        return tuple(_evaluate_attr(v, sizes) for v in value)
    return value
