"""The loop interpreter against torch and NumPy: primitives on hostile values, every kind of stage, errors only where a lane counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sealift.diag.errors import DivisionByZero, IndexOutOfRange, InputError, InternalError
from sealift.ir.dim import dim, sym
from sealift.ir.dtype import DType
from sealift.ir.loop import interpret as run
from sealift.ir.loop.expr import Bound, Buffer, CheckIndex, Const, Expr, Index, Inside, Load, apply, cast, const
from sealift.ir.loop.prim import ArgCombine, Combine, Prim
from sealift.ir.loop.types import Axis, Call, Kernel, Loops, Map, Operand, Reduce, Scan

Array = NDArray[Any]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e-30, 1e30, -7.0, 7.0, math.inf, -math.inf, math.nan]
INTS = [0, 1, -1, 2, -2, 7, -7, 100, -100, 127, -128]
INT_DTYPES = [DType.I8, DType.I16, DType.I32, DType.I64, DType.U8]
SIZE = sym("n", 0)
N = SIZE


def torch_dtype(d: DType) -> torch.dtype:
    return getattr(torch, d.torch_name)  # type: ignore[no-any-return]


def held(t: torch.Tensor) -> Array:
    return (t.float() if t.dtype is torch.bfloat16 else t).numpy()


def evaluate(fn: Any, *tensors: torch.Tensor) -> Array:
    """fn of loads of the tensors, element by element."""
    dtypes = {torch_dtype(d): d for d in DType}
    buffers = [Buffer(f"x{k}", dtypes[t.dtype], (N,)) for k, t in enumerate(tensors)]
    axis = Axis("i0", N)
    value = fn(*(Load(b, (axis.dim,)) for b in buffers))
    env = {b.name: held(t) for b, t in zip(buffers, tensors, strict=True)}
    return run.eval_over(value, (axis,), env, {"n": len(tensors[0])})


def same(ours: Array, theirs: torch.Tensor, ulps: int = 0) -> None:
    expected = held(theirs)
    assert ours.dtype == expected.dtype
    if ulps == 0 or not np.issubdtype(ours.dtype, np.floating):
        np.testing.assert_array_equal(ours, expected)
        if np.issubdtype(ours.dtype, np.floating):
            finite = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(ours)[finite], np.signbit(expected)[finite])
    else:
        np.testing.assert_allclose(ours, expected, rtol=ulps * np.finfo(ours.dtype).eps, atol=0)


def pairs(values: list[float], dtype: DType) -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.tensor(values, dtype=torch_dtype(dtype))
    return t.repeat_interleave(len(t)), t.repeat(len(t))


TWO = {
    Prim.ADD: torch.add,
    Prim.SUB: torch.sub,
    Prim.MUL: torch.mul,
    Prim.MINIMUM: torch.minimum,
    Prim.MAXIMUM: torch.maximum,
    Prim.EQ: torch.eq,
    Prim.NE: torch.ne,
    Prim.LT: torch.lt,
    Prim.LE: torch.le,
    Prim.GT: torch.gt,
    Prim.GE: torch.ge,
}
TWO_FLOAT = {
    Prim.DIV: torch.div,
    Prim.FLOOR_DIV: torch.floor_divide,
    Prim.REMAINDER: torch.remainder,
    Prim.FMOD: torch.fmod,
    Prim.POW: torch.pow,
    Prim.ATAN2: torch.atan2,
}
TWO_INT = {
    Prim.FLOOR_DIV: torch.floor_divide,
    Prim.TRUNC_DIV: lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    Prim.REMAINDER: torch.remainder,
    Prim.FMOD: torch.fmod,
}
BITS = {Prim.AND: torch.bitwise_and, Prim.OR: torch.bitwise_or, Prim.XOR: torch.bitwise_xor}
SHIFTS = {Prim.SHL: torch.bitwise_left_shift, Prim.SHR: torch.bitwise_right_shift}
ONE_EXACT = {
    Prim.NEG: torch.neg,
    Prim.ABS: torch.abs,
    Prim.SQRT: torch.sqrt,
    Prim.FLOOR: torch.floor,
    Prim.CEIL: torch.ceil,
    Prim.TRUNC: torch.trunc,
    Prim.ROUND: torch.round,
}
ONE_NEAR = {
    p: getattr(torch, name)
    for p, name in {p: str(p) for p in Prim}.items()
    if list(Prim).index(Prim.EXP) <= list(Prim).index(p) <= list(Prim).index(Prim.SIGMOID)
}


@pytest.mark.parametrize("prim", [*TWO, *TWO_FLOAT], ids=str)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_two_floats(prim: Prim, dtype: DType) -> None:
    a, b = pairs(FLOATS, dtype)
    if prim in (Prim.FMOD, Prim.REMAINDER):  # torch's vectors give NaN where a / b overflows, its scalars do not
        keep = ~((a / b).isinf() & a.isfinite() & (b != 0))
        a, b = a[keep], b[keep]
    same(evaluate(lambda x, y: apply(prim, x, y), a, b), (TWO | TWO_FLOAT)[prim](a, b), ulps=4 if prim in (Prim.POW, Prim.ATAN2) else 0)


@pytest.mark.parametrize("prim", [*TWO, *TWO_INT, *BITS], ids=str)
@pytest.mark.parametrize("dtype", INT_DTYPES, ids=str)
def test_two_ints(prim: Prim, dtype: DType) -> None:
    limits = torch.iinfo(torch_dtype(dtype))
    values = [v for v in [*INTS, limits.min, limits.max] if limits.min <= v <= limits.max]
    a, b = pairs(values, dtype)
    if prim in TWO_INT:  # the hardware traps at min // -1
        keep = (b != 0) & ~((a == limits.min) & (b == -1) if limits.min else torch.zeros_like(a, dtype=torch.bool))
        a, b = a[keep], b[keep]
    same(evaluate(lambda x, y: apply(prim, x, y), a, b), (TWO | TWO_INT | BITS)[prim](a, b))


@pytest.mark.parametrize("prim", SHIFTS, ids=str)
@pytest.mark.parametrize("dtype", INT_DTYPES, ids=str)
def test_shifts(prim: Prim, dtype: DType) -> None:
    limits = torch.iinfo(torch_dtype(dtype))
    values = [v for v in [0, 1, 3, 7, 8, 15, 31, 32, 63, 64, 100, -1, -5, limits.min, limits.max] if limits.min <= v <= limits.max]
    a, b = pairs(values, dtype)
    same(evaluate(lambda x, y: apply(prim, x, y), a, b), SHIFTS[prim](a, b))


@pytest.mark.parametrize("prim", ONE_EXACT, ids=str)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64], ids=str)
def test_one_float_exact(prim: Prim, dtype: DType) -> None:
    a = torch.tensor(FLOATS, dtype=torch_dtype(dtype))
    same(evaluate(lambda x: apply(prim, x), a), ONE_EXACT[prim](a))


@pytest.mark.parametrize("prim", ONE_NEAR, ids=str)
def test_one_float_near(prim: Prim) -> None:
    a = torch.tensor([*FLOATS[:10], *FLOATS[-3:], 0.9, -0.9, 20.0, -20.0])
    ours = evaluate(lambda x: apply(prim, x), a)
    same(ours, ONE_NEAR[prim](a.double()).float(), ulps=1)


@pytest.mark.parametrize("target", [d for d in DType if d is not DType.C64], ids=str)
@pytest.mark.parametrize("source", [d for d in DType if d is not DType.C64], ids=str)
def test_casts(source: DType, target: DType) -> None:
    if source.is_float:
        values: list[Any] = [*FLOATS, 300.0, -300.0, 70000.0, 1e10, 65504.0, 1.0009765625, 3.3895e38]
    elif source is DType.BOOL:
        values = [True, False]
    else:
        limits = torch.iinfo(torch_dtype(source))
        values = [v for v in [*INTS, limits.min, limits.max, 2**24 + 1, 2**53 + 1] if limits.min <= v <= limits.max]
    a = torch.tensor(values * 4).to(torch_dtype(source))
    same(evaluate(lambda x: cast(x, target), a), a.to(torch_dtype(target)))


def test_select_does_not_leak() -> None:
    x = torch.tensor([1.0, math.nan, -2.0])
    ours = evaluate(lambda v: apply(Prim.SELECT, apply(Prim.GT, v, const(0, DType.F32)), v, const(-0.0, DType.F32)), x)
    np.testing.assert_array_equal(ours, np.float32([1, 0, 0]))
    assert np.signbit(ours[1:]).all()


def test_literals_round_and_wrap() -> None:
    assert run.literal(1e300, DType.F32) == np.inf
    assert run.literal(300, DType.U8) == 44
    assert run.literal(1.005, DType.BF16) == np.float32(torch.tensor(1.005).bfloat16().float())


# ---- stages --------------------------------------------------------------------------------------------------------------------

I0, J, R = Axis("i0", sym("n", 0)), Axis("i1", dim(5)), Axis("r0", dim(5))
X = Buffer("x", DType.F32, (N, dim(5)))


def stage_result(stage: Any, **env: Array) -> Array:
    arrays = dict(env)
    n = len(env["x"]) if "x" in env else 3
    run.run_stages([stage], arrays, {"n": n})
    return arrays[stage.out.name]


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("combine", [Combine.SUM, Combine.PROD, Combine.MIN, Combine.MAX], ids=str)
def test_reduce(combine: Combine, n: int) -> None:
    x = np.random.default_rng(0).standard_normal((n, 5)).astype("f")
    if n > 1:
        x[1, 2] = np.nan
    out = stage_result(Reduce(Buffer("y", DType.F32, (N,)), (I0,), (R,), combine, Load(X, (I0.dim, R.dim))), x=x)
    numpy_fn = {Combine.SUM: np.sum, Combine.PROD: np.prod, Combine.MIN: np.min, Combine.MAX: np.max}[combine]
    np.testing.assert_allclose(out, numpy_fn(x, axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("combine", "dtype", "identity"),
    [
        (Combine.SUM, DType.F32, 0),
        (Combine.PROD, DType.I32, 1),
        (Combine.MIN, DType.F32, math.inf),
        (Combine.MAX, DType.I8, -128),
        (Combine.ANY, DType.BOOL, False),
        (Combine.ALL, DType.BOOL, True),
        (ArgCombine.ARGMAX, DType.I64, 0),
    ],
)
def test_reduce_of_nothing(combine: Combine | ArgCombine, dtype: DType, identity: float) -> None:
    nothing = Axis("r0", dim(0))
    value = Const(1.0, DType.F32) if isinstance(combine, ArgCombine) else const(1, dtype)
    out = stage_result(Reduce(Buffer("y", dtype, (dim(2),)), (Axis("i0", dim(2)),), (nothing,), combine, value))
    assert out.tolist() == [identity, identity]


@pytest.mark.parametrize(("combine", "fn"), [(ArgCombine.ARGMAX, torch.argmax), (ArgCombine.ARGMIN, torch.argmin)])
def test_arg_reduce_takes_the_first_and_nan(combine: ArgCombine, fn: Any) -> None:
    x = np.float32([[1, 3, 3, 0, 0], [1, math.nan, 5, math.nan, 0], [2, 2, 2, 2, 2]])
    out = stage_result(Reduce(Buffer("y", DType.I64, (N,)), (I0,), (R,), combine, Load(X, (I0.dim, R.dim))), x=x)
    np.testing.assert_array_equal(out, fn(torch.tensor(x), 1).numpy())


def test_integer_sums_wrap() -> None:
    x = Buffer("x", DType.I8, (N,))
    out = stage_result(Reduce(Buffer("y", DType.I8, ()), (), (Axis("r0", N),), Combine.SUM, Load(x, (Axis("r0", N).dim,))), x=np.int8([100, 100]))
    assert out == -56


def test_scan() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("f")
    load = Load(X, (I0.dim, J.dim))
    out = stage_result(Scan(Buffer("y", DType.F32, (N, dim(5))), (I0, J), I0, Combine.SUM, load), x=x)
    np.testing.assert_allclose(out, np.cumsum(x, 0), rtol=1e-6)
    out = stage_result(Scan(Buffer("y", DType.F32, (N, dim(5))), (I0, J), J, Combine.MAX, load), x=np.where(x > 1, np.float32("nan"), x))
    np.testing.assert_array_equal(out, np.maximum.accumulate(np.where(x > 1, np.float32("nan"), x), 1))


@pytest.mark.parametrize("combine", [None, Combine.SUM, Combine.MAX], ids=str)
@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16], ids=str)
def test_scatter_in_row_major_order(combine: Combine | None, dtype: DType) -> None:
    where = Buffer("where", DType.I64, (dim(6),))
    x, y = Buffer("x", dtype, (dim(6),)), Buffer("y", dtype, (dim(3),))
    k = Axis("i0", dim(6))
    env = {"x": run.round_bf16(np.float32([1, 0.004, 3, 0.004, 5, 6])), "where": np.int64([0, 0, -1, 0, 2, 1]), "y": np.zeros(3, "f")}
    expected = env["y"].copy()
    for at, v in zip(env["where"], env["x"], strict=True):
        new = v if combine is None else expected[at] + v if combine is Combine.SUM else max(expected[at], v)
        expected[at] = run.round_bf16(np.float32(new)) if dtype is DType.BF16 else new
    stage = Map(y, (k,), (CheckIndex(Load(where, (k.dim,)), dim(3)),), Load(x, (k.dim,)), combine)
    run.run_stages([stage], env, {})
    np.testing.assert_array_equal(env["y"], expected)


def test_views_slices_and_gathers_agree() -> None:
    x = np.arange(20, dtype="f").reshape(4, 5)
    k, m = Axis("k", dim(2)), Axis("m", dim(3))
    strided = Load(X, (k.dim * 2 + 1, m.dim + 2))
    gathered = Load(X, (Index(k.dim * 2 + 1), Index(m.dim + 2)))
    for e in (strided, gathered):
        np.testing.assert_array_equal(run.eval_over(e, (k, m), {"x": x}, {"n": 4}), x[1::2, 2:])
    transposed = Load(X, (m.dim, k.dim))
    np.testing.assert_array_equal(run.eval_over(transposed, (k, m), {"x": x}, {"n": 4}), x[:3, :2].T)
    diagonal = Load(X, (m.dim, m.dim))
    np.testing.assert_array_equal(run.eval_over(diagonal, (m,), {"x": x}, {"n": 4}), np.diag(x)[:3])


def test_guards_do_not_touch_memory() -> None:
    x = np.arange(5, dtype="f").reshape(1, 5)
    padded = Load(X, (dim(0), J.dim - 1), (Bound(J.dim - 1, dim(0), dim(5)),), -1.0)
    np.testing.assert_array_equal(run.eval_over(padded, (J,), {"x": x}, {"n": 1}), np.float32([-1, 0, 1, 2, 3]))
    np.testing.assert_array_equal(run.eval_over(padded, (J,), {"x": x[:0]}, {"n": 0})[:1], np.float32([-1]))
    with pytest.raises(InternalError, match="index -1"):
        run.eval_over(Load(X, (dim(0), J.dim - 1)), (J,), {"x": x}, {"n": 1})


def test_large_grids_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((7, 5)).astype("f")
    stages = [
        Map(Buffer("y", DType.F32, (N, dim(5))), (I0, J), (I0.dim, J.dim), apply(Prim.ADD, Load(X, (I0.dim, J.dim)), cast(Index(I0.dim), DType.F32))),
        Reduce(Buffer("z", DType.F32, (N,)), (I0,), (R,), Combine.SUM, Load(X, (I0.dim, R.dim))),
    ]
    results = []
    for limit in (1 << 20, 8):
        monkeypatch.setattr(run, "BLOCK_ELEMS", limit)
        env: dict[str, Array] = {"x": x}
        run.run_stages(stages, env, {"n": 7})
        results.append(env)
    np.testing.assert_array_equal(results[0]["y"], results[1]["y"])
    np.testing.assert_array_equal(results[0]["z"], results[1]["z"])


# ---- errors --------------------------------------------------------------------------------------------------------------------


def test_an_index_out_of_range_is_an_index_error() -> None:
    with pytest.raises(IndexOutOfRange, match=r"\[E-RUN-001\] index 3 is out of range for a dimension of size 3") as error:
        evaluate(lambda i: CheckIndex(i, dim(3)), torch.tensor([0, -3, 3]))
    assert isinstance(error.value, IndexError)
    np.testing.assert_array_equal(evaluate(lambda i: CheckIndex(i, dim(3)), torch.tensor([0, -3, 2, -1])), [0, 0, 2, 2])


def test_integer_division_by_zero_counts_where_it_is_used() -> None:
    def divide(x: Expr) -> Expr:
        return apply(Prim.FLOOR_DIV, const(6, DType.I64), x)

    with pytest.raises(DivisionByZero, match="E-RUN-003"):
        evaluate(divide, torch.tensor([2, 0]))
    kept = evaluate(lambda x: apply(Prim.SELECT, apply(Prim.EQ, x, const(0, DType.I64)), const(-1, DType.I64), divide(x)), torch.tensor([2, 0]))
    assert kept.tolist() == [3, -1]


def test_a_guard_hides_the_failed_index_behind_it() -> None:
    table = Buffer("table", DType.F32, (dim(2),))
    index = Buffer("index", DType.I64, (N,))
    i = Axis("i0", N)
    inside = Inside((Bound(i.dim, dim(0), dim(1)),))
    value = apply(Prim.SELECT, inside, Load(table, (CheckIndex(Load(index, (i.dim,)), dim(2)),)), const(9.0, DType.F32))
    env = {"table": np.float32([1, 2]), "index": np.int64([1, 77])}
    assert run.eval_over(value, (i,), env, {"n": 2}).tolist() == [2, 9]


def test_families_are_given_by_the_caller() -> None:
    y = Buffer("y", DType.F32, (dim(2), dim(3)))
    a, b = Buffer("a", DType.F32, (dim(2), dim(4))), Buffer("b", DType.F32, (dim(4), dim(3)))
    k = [Axis(f"k{d}", dim(e)) for d, e in enumerate((2, 4, 4, 3))]
    operands = (("a", Operand((k[0], k[1]), Load(a, (k[0].dim, k[1].dim)))), ("b", Operand((k[2], k[3]), Load(b, (k[2].dim, k[3].dim)))))
    stage = Call("gemm", (y,), operands, (("scale", 2.0),))
    rng = np.random.default_rng(0)
    env = {"a": rng.standard_normal((2, 4)).astype("f"), "b": rng.standard_normal((4, 3)).astype("f")}
    run.run_stages([stage], env, {}, {"gemm": lambda o, attrs: (o["a"] @ o["b"] * np.float32(attrs["scale"]),)})
    np.testing.assert_allclose(env["y"], env["a"] @ env["b"] * 2, rtol=1e-6)
    with pytest.raises(InternalError, match="gemm"):
        run.run_stages([stage], {"a": env["a"], "b": env["b"]}, {})


# ---- whole models --------------------------------------------------------------------------------------------------------------


def test_loops_run_with_states_and_none() -> None:
    b = sym("batch", 1, 8)
    (symbol,) = b.symbols
    x, y = Buffer("x", DType.F32, (2 * b,), "input"), Buffer("y", DType.F32, (2 * b,), "output")
    state, new = Buffer("count", DType.I64, (), "state"), Buffer("count_new", DType.I64, ())
    i = Axis("i0", 2 * b)
    kernels = (
        Kernel("k0", (Map(y, (i,), (i.dim,), apply(Prim.MUL, Load(x, (i.dim,)), cast(Load(state, ()), DType.F32))),)),
        Kernel("k1", (Map(new, (), (), apply(Prim.ADD, Load(state, ()), const(1, DType.I64))),)),
    )
    loops = Loops("m", (symbol,), (x,), (y, None, x), (state, new), kernels, ((state, new),))
    left: dict[str, Array] = {}
    values = {"x": np.float32([1, 2, 3, 4]), "count": np.asarray(3)}
    out = run.interpret(loops, values, new_states=left)
    assert out[1] is None and out[0] is not None and out[0].tolist() == [3, 6, 9, 12]
    assert left["count"] == 4 and values["count"] == 3
    with pytest.raises(InputError, match="E-INPUT-003"):
        run.interpret(loops, {**values, "x": np.zeros(3, "f")})
    with pytest.raises(InputError, match=r"batch is 9, outside \[1, 8\]"):
        run.interpret(loops, {**values, "x": np.zeros(18, "f")})
