"""How far an answer can be from the truth, and whether two answers differ.

Two things blur an answer. Buckets: a duration is known to lie within its bucket, so a quantile's middle is at most 4.33 % off. Sampling: of a
call recorded with probability p the count's variance is (1 - p) / p and the total's (1 - p) / p times its square; both add up over points, so
the store carries them (columns.py). These bounds take calls as chosen independently; comparisons (`compare`) do not need that, they take the
spread between hosts and times as it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    return _difference(mean_a, mean_b, [(var_a / mean_a**2, dof_a), (var_b / mean_b**2, dof_b)])


Hosts = Mapping[str, Sequence[tuple[float, float]]]  # host -> (total, count) of each time step
ENOUGH_HOSTS = 8  # from here on hosts are the clusters, and their time steps do not matter


def compare_hosts(a: Hosts, b: Hosts) -> Difference:
    """Like `compare`, and each host with itself where it ran on both sides: hosts differ by far more than what is looked for.

    A host's time in `b` is set against what its calls would have taken at its own mean in `a`; the ratio's spread is that over hosts, or, where
    fewer than eight ran on both sides, over hosts and time steps, on both sides."""
    both = [h for h in b if h in a and sum(c for _, c in a[h]) > 0 and sum(c for _, c in b[h]) > 0]
    if not both or len(both) * 2 < len(b):
        clusters = [np.array(_clusters(side)).reshape(-1, 2) for side in (a, b)]
        return compare(clusters[0][:, 0], clusters[0][:, 1], clusters[1][:, 0], clusters[1][:, 1])
    mean = {h: sum(t for t, _ in a[h]) / sum(c for _, c in a[h]) for h in both}
    if len(both) >= ENOUGH_HOSTS:
        pairs = np.array([(sum(t for t, _ in b[h]), mean[h] * sum(c for _, c in b[h])) for h in both])
        ratio, variance, dof = _ratio(pairs[:, 0], pairs[:, 1])
        parts = [(variance / ratio**2 if ratio else math.nan, dof)]
    else:
        sides = [np.array([(t, mean[h] * c) for h in both for t, c in side[h]]) for side in (a, b)]
        (ra, va, da), (ratio, vb, db) = (_ratio(s[:, 0], s[:, 1]) for s in sides)
        parts = [(va / ra**2 if ra else math.nan, da), (vb / ratio**2 if ratio else math.nan, db)]
    count = sum(c for h in both for _, c in b[h])
    usual = sum(mean[h] * sum(c for _, c in b[h]) for h in both) / count  # what `b`'s calls would have taken before
    return _difference(usual, usual * ratio, parts)


def _clusters(side: Hosts) -> list[tuple[float, float]]:
    if len(side) >= ENOUGH_HOSTS:
        return [(sum(t for t, _ in cells), sum(c for _, c in cells)) for cells in side.values()]
    return [cell for cells in side.values() for cell in cells]


def _difference(mean_a: float, mean_b: float, parts: Sequence[tuple[float, float]]) -> Difference:
    """`parts`: the relative variance that each side adds, and its degrees of freedom. On the logarithm a ratio's error is symmetric."""
    ratio = mean_b / mean_a if mean_a else math.nan
    variance = sum(v for v, _ in parts)
    if not (ratio > 0 and variance > 0) or min(dof for _, dof in parts) < 1:
        return Difference(mean_a, mean_b, ratio, 0.0, math.inf, 1.0)
    dof = variance**2 / sum(v**2 / d for v, d in parts)  # Welch and Satterthwaite's
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
