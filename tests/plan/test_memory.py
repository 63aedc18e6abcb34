"""The memory plan: no two temporaries share bytes while both live, whatever the sizes; verify catches each broken invariant."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealift.diag.errors import InternalError
from sealift.ir.dim import Dim, Sym, dim, dim_max, sym
from sealift.ir.dtype import DType
from sealift.ir.loop.expr import Buffer, Const, Load
from sealift.ir.loop.types import Axis, Kernel, Loops, Map
from sealift.passes.group_rows import group_rows
from sealift.plan.memory import ALIGN_BYTES, MemoryPlan, Slot, padded_bytes, plan_memory, verify
from tests.passes.random_graphs import loops_after_each_pass, random_graph
from tests.passes.support import read

N, M = Sym("n", 0, 4096), Sym("m", 1, 64)
SHAPES = [(dim(4),), (dim(N),), (dim(N), dim(M)), (dim(N), dim(8)), (dim(2) * N + 1,), (dim(M), dim(M)), (), (dim(0), dim(3)), (dim(N) // 2, dim(3))]
VALUES = [{"n": n, "m": m} for n in (0, 1, 2, 7, 33, 4096) for m in (1, 5, 64)]
DTYPES = [DType.F32, DType.F64, DType.BOOL, DType.BF16]


def chain(lives: list[tuple[int, int, int, int]]) -> Loops:
    """Buffer k is written in step first and read in step last; (first, last, shape, dtype)."""
    steps = max(last for _, last, _, _ in lives) + 1
    made = [Buffer(f"t{k}", DTYPES[d], SHAPES[s]) for k, (_, _, s, d) in enumerate(lives)]
    kernels: list[Kernel] = []
    for step in range(steps):
        stages = [
            Map(made[k], axes := tuple(Axis(f"i{j}", e) for j, e in enumerate(made[k].shape)), tuple(a.dim for a in axes), Const(0, made[k].dtype))
            for k, (first, _, _, _) in enumerate(lives)
            if first == step
        ]
        for k, (_, last, _, _) in enumerate(lives):
            if last == step:
                out = Buffer(f"out{k}", made[k].dtype, made[k].shape, "output")
                axes = tuple(Axis(f"i{j}", e) for j, e in enumerate(made[k].shape))
                stages.append(Map(out, axes, tuple(a.dim for a in axes), Load(made[k], tuple(a.dim for a in axes))))
        kernels.append(Kernel(f"k{step}", tuple(stages)))
    return Loops("m", (N, M), (), (), tuple(made), tuple(kernels))


def assert_disjoint(plan: MemoryPlan, values: dict[str, int]) -> None:
    arena = plan.arena_bytes.evaluate(values)
    places = [(s, plan.offsets[s.share].evaluate(values), s.size_bytes.evaluate(values)) for s in plan.slots]
    for slot, offset, size in places:
        assert offset % ALIGN_BYTES == 0 and offset + size <= arena, slot
    for (a, a_at, a_size), (b, b_at, b_size) in combinations(places, 2):
        if a.first_step <= b.last_step and b.first_step <= a.last_step:
            assert a_at + a_size <= b_at or b_at + b_size <= a_at, f"{a} and {b} at {values}"


lives = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, len(SHAPES) - 1), st.integers(0, len(DTYPES) - 1)).map(
        lambda t: (t[0], t[0] + t[1], t[2], t[3])
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(lives)
def test_lives_never_overlap(given_lives: list[tuple[int, int, int, int]]) -> None:
    loops = chain(given_lives)
    plan = plan_memory(loops)
    assert {s.buffer for s in plan.slots} == {b.name for b in loops.buffers}
    for k, (first, last, _, _) in enumerate(given_lives):
        (slot,) = [s for s in plan.slots if s.buffer == f"t{k}"]
        assert (slot.first_step, slot.last_step) == (first, last)
        assert slot.size_bytes == padded_bytes(loops.buffers[k])
    for values in VALUES:
        assert_disjoint(plan, values)


@pytest.mark.parametrize("seed", range(20))
def test_random_models(seed: int) -> None:
    plan = plan_memory(loops_after_each_pass(random_graph(seed))[-1][1])
    for values in VALUES:
        assert_disjoint(plan, values)


def test_a_share_is_taken_again() -> None:
    plan = plan_memory(chain([(0, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 0)]))
    assert [s.share for s in plan.slots] == [0, 1, 0]
    assert plan.arena_bytes == 2 * plan.shares[0]


def test_a_smaller_share_grows_with_what_takes_it() -> None:
    """[4] f32 is a line; [m, m] f32, which is no smaller as m is at least 1, takes its share when it is free."""
    plan = plan_memory(chain([(0, 0, 0, 0), (1, 1, 5, 0)]))
    assert plan.shares == (dim_max(dim(64), plan.slots[1].size_bytes),)
    for m, wanted in ((1, 64), (4, 64), (5, 128), (64, 16384)):
        assert plan.arena_bytes.evaluate({"n": 0, "m": m}) == wanted


def test_sizes_that_cannot_be_compared_do_not_share() -> None:
    assert len(plan_memory(chain([(0, 0, 0, 0), (1, 1, 3, 0)])).shares) == 2


def test_an_equal_share_is_preferred() -> None:
    plan = plan_memory(chain([(0, 0, 5, 0), (0, 0, 1, 0), (1, 1, 1, 0)]))
    assert [s.share for s in plan.slots] == [0, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_are_whole_lines(shape: tuple[Dim, ...], dtype: DType) -> None:
    size = padded_bytes(Buffer("b", dtype, shape))
    for values in VALUES:
        elements = 1
        for d in shape:
            elements *= d.evaluate(values)
        assert size.evaluate(values) == -(-elements * dtype.size_bytes // 64) * 64


def test_rows_lie_in_the_workers_scratch_one_after_another() -> None:
    softmax = read("""
        loops m(n: 0.., k: 1..)
        inputs
          input %x: f32[n, k]
        buffers
          temp %a: f32[n, k]
          temp %b: f64[n, k]
          temp %s: f32[n]
        outputs
          output %y: f32[n]
        kernel a []
          map %a[i0, i1] for i0 < n, i1 < k
            = exp(%x[i0, i1])
        kernel b []
          map %b[i0, i1] for i0 < n, i1 < k
            = cast.f64(%a[i0, i1])
        kernel s []
          reduce sum %s for i0 < n over r0 < k
            = %a[i0, r0]
        kernel y []
          reduce max %y for i0 < n over r0 < k
            = add(cast.f32(%b[i0, r0]), %s[i0])
        """)
    plan = plan_memory(group_rows(softmax))
    assert not plan.slots and plan.arena_bytes == dim(0)
    assert set(plan.row_offsets) == {"a", "b"}, "a scalar of a row takes no memory"
    k = sym("k", 1)
    line = (k * 4 + 63) // 64 * 64
    assert plan.row_offsets["a"] == dim(0) and plan.row_offsets["b"] == line
    assert plan.row_bytes == line + (k * 8 + 63) // 64 * 64


GOOD = MemoryPlan(
    (Slot("a", 0, dim(128), 0, 1), Slot("b", 1, dim(64), 1, 2), Slot("c", 0, dim(64), 2, 3)),
    (dim(128), dim(64)),
    (dim(0), dim(128)),
    dim(192),
    {},
    dim(0),
)


def test_verify_accepts_what_is_good() -> None:
    verify(GOOD)
    verify(plan_memory(chain([(0, 1, 2, 0)])))


BROKEN = [
    (1, "a and c are alive together", replace(GOOD, slots=(GOOD.slots[0], GOOD.slots[1], replace(GOOD.slots[2], first_step=1)))),
    (1, "a and b are alive together", replace(GOOD, slots=(GOOD.slots[0], replace(GOOD.slots[1], share=0), GOOD.slots[2]))),
    (2, "c needs 256 bytes", replace(GOOD, slots=(GOOD.slots[0], GOOD.slots[1], replace(GOOD.slots[2], size_bytes=dim(256))))),
    (2, "a needs 64", replace(GOOD, slots=(replace(GOOD.slots[0], size_bytes=64 * dim(M)), *GOOD.slots[1:]))),
    (3, "prefix sums", replace(GOOD, offsets=(dim(0), dim(64)))),
    (3, "prefix sums", replace(GOOD, offsets=(dim(64), dim(192)))),
    (3, "the arena has 128 bytes", replace(GOOD, arena_bytes=dim(128))),
    (3, "prefix sums", replace(GOOD, offsets=(dim(0),))),
    (4, "96 is not a multiple of 64", replace(GOOD, shares=(dim(128), dim(96)), arena_bytes=dim(224))),
    (4, "not a multiple of 64", replace(GOOD, shares=(dim(128), 64 + 4 * dim(M)), arena_bytes=192 + 4 * dim(M))),
]


@pytest.mark.parametrize(("number", "message", "plan"), BROKEN)
def test_verify_catches(number: int, message: str, plan: MemoryPlan) -> None:
    with pytest.raises(InternalError, match=f"invariant {number}.*{message}"):
        verify(plan)
