"""Sizes: arithmetic agrees with Python's integers, the text form round-trips, bounds hold."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sealift.ir.dim import Dim, Sym, dim, dim_max, dim_min, divide_exact, is_at_most, parse_dim, product, sym
from sealift.ir.loop.types import Axis
from sealift.ops.lang import flatten_index, unflatten_index

SYMBOLS = {name: sym(name, lo, hi) for name, lo, hi in (("b", 0, 9), ("seq", 1, 7), ("n", 2, 40), ("h", 1, 1))}
N = SYMBOLS["n"].as_sym
AXES = {"i0": dim(Sym("i0", 0, SYMBOLS["n"] - 1)), "i1": dim(Sym("i1", 0, SYMBOLS["seq"] - 1))}
ALL = {**SYMBOLS, **AXES}


@st.composite
def values(draw: st.DrawFn) -> dict[str, int]:
    found = {name: draw(st.integers(lo, hi)) for name, lo, hi in (("b", 0, 9), ("seq", 1, 7), ("n", 2, 40), ("h", 1, 1))}
    return {**found, "i0": draw(st.integers(0, found["n"] - 1)), "i1": draw(st.integers(0, found["seq"] - 1))}


class Tree:
    """An expression beside the Dim made from it: what Python says it is worth."""

    def __init__(self, text: str, size: Dim) -> None:
        self.text, self.size = text, size

    def __repr__(self) -> str:
        return self.text

    def python(self, at: dict[str, int]) -> int:
        return int(eval(self.text, {"min": min, "max": max}, dict(at)))


LEAVES = st.one_of(
    st.sampled_from(sorted(ALL)).map(lambda name: Tree(name, ALL[name])),
    st.integers(-3, 12).map(lambda k: Tree(f"({k})", dim(k))),
)


def grow(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def combine(fn: str, a: Tree, b: Tree) -> Tree:
        match fn:
            case "+":
                return Tree(f"({a} + {b})", a.size + b.size)
            case "-":
                return Tree(f"({a} - {b})", a.size - b.size)
            case "*":
                return Tree(f"({a} * {b})", a.size * b.size)
            case "min":
                return Tree(f"min({a}, {b})", dim_min(a.size, b.size))
        return Tree(f"max({a}, {b})", dim_max(a.size, b.size))

    def divide(fn: str, a: Tree, b: Tree) -> Tree:
        return Tree(f"({a} {fn} {b})", a.size // b.size if fn == "//" else a.size % b.size)

    divisors = st.one_of(
        st.sampled_from(["seq", "n", "h"]).map(lambda name: Tree(name, ALL[name])),
        st.integers(1, 8).map(lambda k: Tree(f"({k})", dim(k))),
        st.tuples(st.sampled_from(["seq", "n"]), st.integers(1, 4)).map(lambda p: Tree(f"({p[0]} * {p[1]})", ALL[p[0]] * p[1])),
    )
    return st.one_of(
        st.builds(combine, st.sampled_from(["+", "-", "*", "min", "max"]), children, children),
        st.builds(divide, st.sampled_from(["//", "%"]), children, divisors),
    )


TREES = st.recursive(LEAVES, grow, max_leaves=8)


@settings(max_examples=200, deadline=None)
@given(TREES, values())
def test_evaluates_as_python_does(tree: Tree, at: dict[str, int]) -> None:
    assert tree.size.evaluate(at) == tree.python(at)


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_text_round_trips(tree: Tree) -> None:
    assert parse_dim(str(tree.size), ALL) == tree.size


@settings(max_examples=200, deadline=None)
@given(TREES, values())
def test_bounds_hold(tree: Tree, at: dict[str, int]) -> None:
    assert tree.size.lower <= tree.python(at) <= tree.size.upper


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, values())
def test_proofs_are_true(a: Tree, b: Tree, at: dict[str, int]) -> None:
    if is_at_most(a.size, b.size):
        assert a.python(at) <= b.python(at)


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, values())
def test_substitution_is_evaluation(outer: Tree, inner: Tree, at: dict[str, int]) -> None:
    assert N is not None
    value = inner.python(at)
    assume(2 <= value <= 40 and "i0" not in outer.text)  # i0 runs below n
    replaced = outer.size.substitute({N: inner.size})
    try:
        expected = outer.size.evaluate({**at, "n": value})
    except ZeroDivisionError:
        assume(False)
    assert replaced.evaluate(at) == expected


@settings(max_examples=200, deadline=None)
@given(TREES, values())
def test_linear_in_recomposes(tree: Tree, at: dict[str, int]) -> None:
    assert N is not None
    split = tree.size.linear_in(N)
    if split is not None:
        stride, rest = split
        assert stride.evaluate(at) * at["n"] + rest.evaluate(at) == tree.python(at)


def test_reshape_of_a_reshape_is_free() -> None:
    i0, i1, seq = AXES["i0"], AXES["i1"], SYMBOLS["seq"]
    flat = i0 * seq + i1
    assert flat // seq == i0 and flat % seq == i1
    k = dim(Sym("k", 0, 99))
    assert (k // 7) * 7 + k % 7 == k


SHAPES = [
    (3, 4, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2), ("b", "seq", "n"), ("b", 4, "seq", "n"), ("b", "seq", 2, "n", 8), ("n", 3, 4), ("b", 12, 7, 3), (2, "seq", 3, 4, 5),
]  # fmt: skip


def sizes_of(shape: tuple[str | int, ...]) -> list[Dim]:
    return [SYMBOLS[s] if isinstance(s, str) else dim(s) for s in shape]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_position_reads_back_as_its_index(shape: tuple[str | int, ...]) -> None:
    sizes = sizes_of(shape)
    index = tuple(Axis(f"i{k}", s).dim for k, s in enumerate(sizes))
    assert unflatten_index(flatten_index(index, sizes), sizes) == index


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_index_flattens_to_the_position_it_came_from(shape: tuple[str | int, ...]) -> None:
    sizes = sizes_of(shape)
    k = Axis("k", product(sizes)).dim
    assert flatten_index(unflatten_index(k, sizes), sizes) == k


def test_a_dimension_split_in_two_steps_flattens_back() -> None:
    k = dim(Sym("k", 0, 23))
    assert (k // 4) // 3 == k // 12
    assert 12 * (k // 12) + 4 * ((k // 4) % 3) + k % 4 == k
    assert 12 * (k // 12) + 4 * ((k % 12) // 4) + k % 4 == k


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(0, 4000), TREES, values())
def test_divisions_joined_again_keep_their_value(divisors: list[int], position: int, tree: Tree, at: dict[str, int]) -> None:
    """The digits of an expression in a mixed base, some of them taken in two steps, summed in every partial way."""
    for whole, number in ((dim(Sym("k", 0, 4000)), position), (tree.size, tree.python(at))):
        total, expected, weight = dim(0), 0, 1
        rest, rest_number = whole, number
        for divisor in divisors:
            total, expected = total + weight * (rest % divisor), expected + weight * (rest_number % divisor)
            total, expected = (
                total + weight * divisor * ((rest % (divisor * 6)) // divisor),
                expected + weight * divisor * (rest_number % (divisor * 6) // divisor),
            )
            rest, rest_number, weight = rest // divisor, rest_number // divisor, weight * divisor
            assert total.evaluate({**at, "k": position}) == expected
            assert (total + weight * rest).evaluate({**at, "k": position}) == expected + weight * rest_number


def test_divides_exactly_or_not_at_all() -> None:
    b, n = SYMBOLS["b"], SYMBOLS["n"]
    assert divide_exact(6 * b * n, 2 * b) == 3 * n
    assert divide_exact(6 * b + 1, 2 * b) is None
    assert product([b, 3, n]) == 3 * b * n


@pytest.mark.parametrize("text", ["", "b +", "b ** 2", "(b", "unknown", "min(b)", "b b"])
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_dim(text, SYMBOLS)
