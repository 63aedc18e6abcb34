"""Merging by columns is adding dictionaries, and Arrow gives back what it was given."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sealift.fleet.columns import SUMMED, Rows, concatenate, merge
from sealift.fleet.model import Points
from sealift.observe.snapshot import Histogram

row = st.tuples(
    st.integers(0, 3),
    st.integers(0, 400),
    st.integers(0, 2),
    st.integers(-1, 480),
    st.lists(st.integers(0, 1 << 50), max_size=30),
    st.integers(0, 99),
)


def rows_of(made: list[Any]) -> Rows:
    lengths = [len(m[4]) for m in made]
    counts = np.array([n for m in made for n in m[4]], np.int64)
    total = np.array([max(sum(m[4]) + m[5], 1) for m in made], np.int64)
    points = Points(
        series=np.array([m[0] for m in made], np.int64), time_s=np.array([m[1] * 10 for m in made], np.int64), count=total,
        samples=np.maximum(total // 3, 1), total_ns=total * 100, self_ns=np.array([-1 if m[5] % 2 else m[5] for m in made], np.int64),
        zero=np.array([m[5] for m in made], np.int64), first=np.array([m[3] for m in made], np.int64),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), counts=counts,
    )  # fmt: skip
    return Rows.of(points, np.array([m[2] for m in made], np.int64))


def by_key(rows: Rows, step: int) -> dict[Any, Any]:
    found: dict[Any, Any] = defaultdict(lambda: [np.zeros(len(SUMMED)), defaultdict(int)])
    for i in range(len(rows)):
        key = (rows.columns["series"][i], rows.columns["time_s"][i] // step * step, rows.columns["resource"][i])
        found[key][0] += [float(rows.columns[name][i]) for name in SUMMED]
        for offset, n in enumerate(rows.counts[rows.offsets[i] : rows.offsets[i + 1]].tolist()):
            if n:
                found[key][1][int(rows.columns["first"][i]) + offset] += n
    return {k: (v[0].tolist(), dict(v[1])) for k, v in found.items()}


def assert_same(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Sums of floating-point columns depend on the order of the rows in their last bits; counts of buckets do not."""
    assert found.keys() == expected.keys()
    for key, (sums, buckets) in expected.items():
        np.testing.assert_allclose(found[key][0], sums, rtol=1e-9)
        assert found[key][1] == buckets


@given(st.lists(row, min_size=1, max_size=40), st.sampled_from([10, 60, 3600]))
@settings(max_examples=150, deadline=None)
def test_merge_adds(made: list[Any], step: int) -> None:
    rows = rows_of(made)
    merged = merge(rows, step)
    expected, found = by_key(rows, step), by_key(merged, step)
    assert len(merged) == len(expected)
    assert_same(found, expected)
    assert by_key(merge(merged, step), step) == found
    np.testing.assert_array_equal(merged.columns["time_s"] % step, 0)


@given(st.lists(row, max_size=20))
@settings(max_examples=50, deadline=None)
def test_arrow_round_trip(made: list[Any]) -> None:
    rows = rows_of(made)
    again = Rows.from_arrow(rows.to_arrow())
    assert by_key(again, 10) == by_key(rows, 10)
    if made:
        assert_same(by_key(concatenate([rows, again]), 10), by_key(concatenate([again, rows]), 10))
        backwards = rows.take(np.arange(len(rows))[::-1])
        assert_same(by_key(backwards, 10), by_key(rows, 10))


def test_resources_can_be_renamed() -> None:
    rows = rows_of([(1, 0, 5, 3, [1, 2], 0), (1, 0, 6, 4, [10], 0)])
    merged = merge(rows, 10, {5: 9, 6: 9})
    assert merged.columns["resource"].tolist() == [9] and merged.counts.tolist() == [1, 12]


def test_the_variance_is_that_of_the_recorder_s_histogram() -> None:
    histogram = Histogram.of([1000, 2000, 50_000], weight=10)
    low, high = min(histogram.buckets), max(histogram.buckets)
    counts = [histogram.buckets.get(i, 0) for i in range(low, high + 1)]
    one = np.ones(1, np.int64)
    points = Points(one, one * 0, one * 30, one * 3, one * 530_000, one * -1, one * 0, one * low, np.array([0, len(counts)]), np.array(counts))
    rows = Rows.of(points, one)
    assert rows.columns["count_var"][0] == 30 * 9
    np.testing.assert_allclose(rows.columns["total_var"][0], 9 * histogram.sum_of_squares(), rtol=1e-9)
