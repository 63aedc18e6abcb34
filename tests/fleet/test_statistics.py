"""The arithmetic of bounds and tests, against known values and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sealift.fleet import statistics
from sealift.fleet.model import ZERO_BUCKET


@pytest.mark.parametrize(
    ("t", "dof", "tail"),  # scipy.stats.t.sf
    [(2.1, 7.3, 0.0361233567124267), (0.0, 3, 0.5), (1.0, 1.0, 0.25), (12.7062, 1, 0.025), (4.0, 1000, 3.39e-5), (30.0, 50, 1.6e-34)],
)
def test_student_s_tail(t: float, dof: float, tail: float) -> None:
    assert statistics.t_tail(t, dof) == pytest.approx(tail, rel=0.01)


def test_student_s_quantile() -> None:
    assert statistics.t_quantile(0.975, 5) == pytest.approx(2.5705818, rel=1e-6)


def test_false_alarms_are_as_rare_as_stated_even_for_clustered_calls() -> None:
    """Hosts differ by 20 %: a test that took calls as independent would fire nearly always."""
    random = np.random.default_rng(3)
    false = 0
    for _ in range(400):
        count = random.poisson(500, 40).astype(float)
        total = count * 100 * np.exp(random.normal(0, 0.2, 40))
        false += statistics.compare(total[:20], count[:20], total[20:], count[20:]).p_value < 0.05
    assert 5 <= false <= 35


def test_a_real_difference_is_found_with_its_size() -> None:
    random = np.random.default_rng(4)
    count = random.poisson(500, 40).astype(float)
    total = count * 100 * np.exp(random.normal(0, 0.05, 40))
    d = statistics.compare(total[:20], count[:20], total[20:] * 1.3, count[20:])
    assert d.p_value < 1e-6 and d.ratio_low < 1.3 < d.ratio_high


def test_too_little_to_tell() -> None:
    one, none = np.ones(1), np.zeros(0)
    assert statistics.compare(one, one, one * 2, one).p_value == 1.0
    assert math.isnan(statistics.compare(none, none, one, one).ratio)
    assert statistics.compare(np.ones(5), np.ones(5), np.ones(5) * 2, np.ones(5)).p_value == 1.0  # no spread at all: nothing to measure it with


def test_quantiles() -> None:
    buckets, counts = np.array([ZERO_BUCKET, 80, 88]), np.array([10, 80, 10])
    assert statistics.quantile(buckets, counts, 0.05, 100, False) == (0.0, 0.0, 0.0)
    q = statistics.quantile(buckets, counts, 0.5, 100, False)
    assert q.low_ns == 2**10 and q.high_ns == 2 ** (81 / 8) and abs(q.value_ns / q.low_ns - 1) < 0.0434
    few = statistics.quantile(buckets, counts, 0.99, 10)
    assert few.high_ns == math.inf  # ten samples know no upper bound of p99
    assert statistics.quantile(buckets[:0], counts[:0], 0.5, 0) == (0.0, 0.0, 0.0)


def test_holm() -> None:
    assert statistics.adjusted([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert statistics.adjusted([]) == []
