"""Histograms, series and snapshots: exact buckets, bounded quantiles, addition in any order, honest error bars."""

from __future__ import annotations

import inspect
import json
import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealift.observe.snapshot import (
    QUANTILE_ERROR,
    SCALE,
    Event,
    Histogram,
    ModelEvent,
    ModelInfo,
    Process,
    Sampling,
    Series,
    Snapshot,
    bucket_bounds_ns,
    bucket_index,
    bucket_middle_ns,
    merged,
)

DURATIONS = st.integers(0, 1 << 62)
HISTOGRAMS = st.lists(DURATIONS, max_size=30).map(Histogram.of)


def test_powers_of_the_base_close_their_bucket() -> None:
    for exponent in range(63):  # 2**exponent is BASE**(8 * exponent): the upper bound of bucket 8 * exponent - 1
        assert bucket_index(1 << exponent) == 8 * exponent - 1
        if exponent > 3:  # below, the next integer skips buckets
            assert bucket_index((1 << exponent) + 1) == 8 * exponent
            assert bucket_index((1 << exponent) - 1) <= 8 * exponent - 1
    assert bucket_index(1) == -1
    assert bucket_index(2) == 7
    assert bucket_index(3) == math.ceil(8 * math.log2(3)) - 1


@given(st.integers(1, 1 << 62))
def test_a_duration_lies_within_its_bucket(value: int) -> None:
    index = bucket_index(value)
    assert (1 << index if index >= 0 else 0) < value**8 <= 1 << (index + 1)  # (BASE**index, BASE**(index + 1)], without rounding
    low, high = bucket_bounds_ns(index)
    assert low <= value * (1 + 1e-12) and value <= high * (1 + 1e-12)
    assert abs(bucket_middle_ns(index) - value) <= QUANTILE_ERROR * value * (1 + 1e-9)


def test_error_bound_is_the_documented_one() -> None:
    assert pytest.approx(0.0433, abs=5e-5) == QUANTILE_ERROR
    assert SCALE == 3


@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(0, 1))
def test_quantile_error(values: list[int], q: float) -> None:
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    assert abs(Histogram.of(values).quantile(q) - exact) <= QUANTILE_ERROR * exact * (1 + 1e-9)


def test_quantile_of_nothing_and_out_of_range() -> None:
    assert Histogram().quantile(0.5) == 0
    with pytest.raises(ValueError, match="from 0 to 1"):
        Histogram().quantile(1.5)


@given(HISTOGRAMS, HISTOGRAMS, HISTOGRAMS)
def test_histograms_add(a: Histogram, b: Histogram, c: Histogram) -> None:
    assert a.merge(b).merge(c) == a.merge(b.merge(c))
    assert a.merge(b) == b.merge(a)
    assert a.merge(b).minus(b) == a
    assert a.merge(b).count == a.count + b.count
    assert Histogram.from_dict(json.loads(json.dumps(a.to_dict()))) == a


@given(st.lists(DURATIONS, max_size=50), st.lists(DURATIONS, max_size=50))
def test_merging_loses_nothing(a: list[int], b: list[int]) -> None:
    assert Histogram.of(a).merge(Histogram.of(b)) == Histogram.of([*a, *b])


def series(operator: str, durations: list[int], weight: int = 1, **more: object) -> Series:
    histogram = Histogram.of(durations, weight)
    return Series(operator, count=weight * len(durations), samples=len(durations), total_ns=weight * sum(durations), histogram=histogram, **more)  # type: ignore[arg-type]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = draw(st.lists(st.sampled_from(["aten::mm", "aten::add", "k1_softmax"]), unique=True))
    rows = tuple(series(n, draw(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5)), self_ns=draw(st.sampled_from([None, 5]))) for n in names)
    start = draw(st.integers(0, 100))
    usage = draw(st.dictionaries(st.sampled_from(["torch.save", "my.api"]), st.integers(0, 9)))
    process = Process(1, "host", draw(st.sampled_from(["a", "b"])))
    return Snapshot(
        start, start + draw(st.integers(0, 100)), rows, draw(st.integers(0, 3)), draw(st.integers(0, 3)), process=process, api_usage=usage
    )


@given(snapshots(), snapshots(), snapshots())
def test_snapshots_merge_in_any_order(a: Snapshot, b: Snapshot, c: Snapshot) -> None:
    left, right = a.merge(b).merge(c), a.merge(b.merge(c))
    assert left.to_dict() == right.to_dict()
    assert a.merge(b).to_dict() == b.merge(a).to_dict()
    assert left.total_ns == a.total_ns + b.total_ns + c.total_ns
    assert merged([a, b, c]) == left


def test_merged_of_nothing() -> None:
    assert merged([]) is None


def test_json_round_trip_keeps_everything() -> None:
    one = Snapshot(
        10,
        20,
        (series("aten::mm", [5, 7], 3, model_id="ranker:7", labels=(("a", "1"), ("b", "2")), shapes="[2, 3]", origin="aten.mm @ m.py:1", self_ns=0),),
        1,
        2,
        Sampling(0.01, 0.1, 0.001),
        Process(7, "h", "id"),
        {"torch.save": 11},
        {"ranker:7": ModelInfo("ranker", "7", "sha256:ab", "s1", "m.pt2")},
        (ModelEvent("loaded", 12, "ranker:7", "sha256:ab", "s1", "m.pt2", "sealift", "me", True),),
        (Event("aten::mm", "torch", "function", 13, 4, 99, 1),),
    )
    text = json.dumps(one.to_dict())
    assert Snapshot.from_dict(json.loads(text)) == one
    assert Snapshot.from_dict({**json.loads(text), "from_a_later_version": 1}) == one
    with pytest.raises(ValueError, match="was expected"):
        Snapshot.from_dict({"format": "other"})


def test_minus_is_what_happened_since() -> None:
    process = Process(1, "h", "id")
    early = Snapshot(
        0,
        10,
        (series("aten::mm", [4]), series("aten::add", [1])),
        1,
        1,
        process=process,
        api_usage={"a": 1},
        events=(Event("x", "torch", "f", 1, 1, 1),),
    )
    late = Snapshot(0, 30, (series("aten::mm", [4, 9]), series("aten::add", [1]), series("aten::sub", [2])), 3, 1, process=process, api_usage={"a": 1, "b": 2},
                    events=(Event("x", "torch", "f", 1, 1, 1), Event("y", "torch", "f", 2, 1, 1)))  # fmt: skip
    change = late.minus(early)
    assert (change.start_unix_ns, change.end_unix_ns, change.overflow, change.dropped) == (10, 30, 2, 0)
    assert change.series == (series("aten::mm", [9]), series("aten::sub", [2]))
    assert change.api_usage == {"b": 2}
    assert [e.operator for e in change.events] == ["y"]
    with pytest.raises(ValueError, match="each process apart"):
        late.minus(Snapshot(0, 10, process=Process(2, "h", "other")))


def test_minus_after_a_new_start_counts_everything() -> None:
    restarted = Snapshot(20, 30, (series("aten::mm", [4]),))
    assert restarted.minus(Snapshot(0, 10, (series("aten::mm", [4, 5, 6]),))) == restarted


def test_different_keys_are_not_added() -> None:
    with pytest.raises(ValueError, match="keys differ"):
        series("a", [1]).merge(series("b", [1]))


@pytest.mark.parametrize("weight", [20, 100])
def test_error_bars_hold(weight: int) -> None:
    """200 repeats of sampling at 5 % and 1 %: the truth lies within 1.96 standard errors about 95 times in 100."""
    generator = random.Random(7)
    truth = [int(generator.lognormvariate(9, 1)) for _ in range(20000)]
    hits = {"count": 0, "total": 0, "mean": 0}
    for _ in range(200):
        one = series("op", [v for v in truth if generator.random() < 1 / weight], weight)
        hits["count"] += abs(one.count - len(truth)) <= 1.96 * one.count_standard_error
        hits["total"] += abs(one.total_ns - sum(truth)) <= 1.96 * one.total_standard_error_ns
        hits["mean"] += abs(one.mean_ns - sum(truth) / len(truth)) <= 1.96 * one.mean_standard_error_ns
    assert all(0.90 * 200 <= n <= 0.995 * 200 for n in hits.values()), hits


def test_everything_recorded_has_no_sampling_error() -> None:
    one = series("op", [3, 4, 5])
    assert one.count_standard_error == one.total_standard_error_ns == one.mean_standard_error_ns == 0
    assert Series("op").mean_ns == 0
    assert Series("op").total_standard_error_ns == 0


def test_the_module_itself_needs_the_standard_library_only() -> None:
    """A collector elsewhere can take the file as it is."""
    code = f"import runpy, sys; runpy.run_path({inspect.getfile(Snapshot)!r}); print([m for m in ('torch', 'numpy', 'rich', 'sealift') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
