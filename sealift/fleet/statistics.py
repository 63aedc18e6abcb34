"""How far an answer can be from the truth, and whether two answers differ.

Two things blur an answer. Buckets: a duration is known to lie within its bucket, so a quantile's middle is at most 4.33 % off. Sampling: of a
call recorded with probability p the count's variance is (1 - p) / p and the total's (1 - p) / p times its square; both add up over points, so
the store carries them (columns.py). These bounds take calls as chosen independently; comparisons (`compare`) do not need that, they take the
spread between hosts and times as it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sealift.fleet.model import ZERO_BUCKET, Floats, Ints

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)


def bucket_low_ns(bucket: int) -> float:
    return 0.0 if bucket == ZERO_BUCKET else 2.0 ** (bucket / 8)


def bucket_high_ns(bucket: int) -> float:
    return 0.0 if bucket == ZERO_BUCKET else 2.0 ** ((bucket + 1) / 8)


class Quantile(NamedTuple):
    value_ns: float
    low_ns: float  # with CONFIDENCE the true quantile is between these two
    high_ns: float


def quantile(buckets: Ints, counts: Ints, q: float, effective_samples: float, sampled: bool = True) -> Quantile:
    """`buckets` ascending. `effective_samples`: the number of equally weighted recordings that would know as much. `sampled`: False if every call
    was recorded, so that only the buckets blur. The interval is of ranks, by the binomial's normal approximation, widened by half a rank."""
    if not len(counts):
        return Quantile(0.0, 0.0, 0.0)
    edges = np.cumsum(counts)
    total = int(edges[-1])

    def at(share: float) -> int:
        rank = min(max(math.ceil(share * total), 1), total)
        return int(buckets[np.searchsorted(edges, rank)])

    middle = at(q)
    low = high = middle
    if sampled:
        n = max(effective_samples, 1.0)
        spread = Z * math.sqrt(q * (1 - q) / n) + 0.5 / n
        low, high = at(max(q - spread, 0.0)), at(min(q + spread, 1.0))
    a, b = bucket_low_ns(middle), bucket_high_ns(middle)
    # Too few samples for an upper bound: the largest one recorded need not be above the quantile, nor the smallest below it.
    high_ns = math.inf if sampled and q + spread >= 1 else bucket_high_ns(high)
    low_ns = 0.0 if sampled and q - spread <= 0 else bucket_low_ns(low)
    return Quantile(2 * a * b / (a + b) if b else 0.0, low_ns, high_ns)


def effective_samples(count: float, count_var: float) -> float:
    """Kish's number, (sum of weights)**2 / (sum of their squares): where count_var is the sum of count * (count / samples - 1)."""
    return count * count / (count_var + count) if count else 0.0


class Difference(NamedTuple):
    a: float
    b: float
    ratio: float  # b / a
    ratio_low: float
    ratio_high: float
    p_value: float  # of no difference in the mean, two-sided


def compare(a_total: Floats, a_count: Floats, b_total: Floats, b_count: Floats) -> Difference:
    """Mean durations (total / count) of two sets of clusters: one entry for each host and time, say. The variance of each mean is that of a ratio
    of sums over clusters, so calls of one host or minute that resemble one another do not count as independent; the test is Welch's."""
    mean_a, var_a, dof_a = _ratio(a_total, a_count)
    mean_b, var_b, dof_b = _ratio(b_total, b_count)
    if not (mean_a > 0 and mean_b > 0):
        return Difference(mean_a, mean_b, math.nan, math.nan, math.nan, 1.0)
    ratio = mean_b / mean_a
    # On the logarithm a ratio's error is symmetric.
    variance = var_a / mean_a**2 + var_b / mean_b**2
    if not variance > 0 or min(dof_a, dof_b) < 1:
        return Difference(mean_a, mean_b, ratio, 0.0, math.inf, 1.0)
    dof = variance**2 / ((var_a / mean_a**2) ** 2 / dof_a + (var_b / mean_b**2) ** 2 / dof_b)
    t = math.log(ratio) / math.sqrt(variance)
    spread = t_quantile(0.5 + CONFIDENCE / 2, dof) * math.sqrt(variance)
    return Difference(mean_a, mean_b, ratio, ratio * math.exp(-spread), ratio * math.exp(spread), 2 * t_tail(abs(t), dof))


def _ratio(total: Floats, count: Floats) -> tuple[float, float, float]:
    """(mean, its variance, degrees of freedom)"""
    n, calls = len(count), float(count.sum())
    if not calls:
        return math.nan, math.nan, 0.0
    mean = float(total.sum()) / calls
    if n < 2:
        return mean, math.nan, 0.0
    residual = total - mean * count
    return mean, n / (n - 1) * float((residual**2).sum()) / calls**2, n - 1.0


def t_tail(t: float, dof: float) -> float:
    """P(T > t) for t >= 0."""
    return 0.5 * _incomplete_beta(dof / 2, 0.5, dof / (dof + t * t))


def t_quantile(p: float, dof: float) -> float:
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        if 1 - t_tail(middle, dof) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised; the continued fraction by Lentz's method (Abramowitz and Stegun 26.5.8)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 300):
        for numerator in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * fraction / a


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the chance that any of them is a false alarm stays what the smallest says."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    found, running = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - rank)))
        found[i] = running
    return found
