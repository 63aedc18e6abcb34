"""Clocks that leap, the collector's and the agents': nothing kept is dropped, nothing is counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from sealift.fleet.collector.app import Collector
from sealift.fleet.collector.steady import HOLD_NS, Steady
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention, Selection
from tests.fleet.conftest import START_S, Fleet, fill

S, YEAR_NS = 10**9, 365 * 86_400 * 10**9
START_NS = START_S * S


class Time:
    """A clock that leaps, and the time that really passes."""

    def __init__(self) -> None:
        self.real = 5_000 * S
        self.ahead = START_NS - self.real

    def clock_ns(self) -> int:
        return self.real + self.ahead

    def monotonic_ns(self) -> int:
        return self.real


def looks(steady: Steady, time: Time, seconds: int) -> None:
    for _ in range(seconds // 10):
        time.real += 10 * S
        assert steady.now_ns() <= time.clock_ns()


def test_a_leap_is_believed_after_an_hour() -> None:
    time = Time()
    steady = Steady(time.clock_ns, START_NS - 100 * S, time.monotonic_ns)
    looks(steady, time, 600)
    assert steady.now_ns() == START_NS + 500 * S  # a start is a leap
    looks(steady, time, 3000)
    assert steady.now_ns() == time.clock_ns()
    time.ahead += YEAR_NS
    looks(steady, time, 3500)
    assert steady.now_ns() < START_NS + 8000 * S
    time.ahead -= YEAR_NS  # put right again
    looks(steady, time, 60)
    assert steady.now_ns() == time.clock_ns()  # nothing is behind
    time.ahead += YEAR_NS
    looks(steady, time, HOLD_NS // S + 10)
    assert steady.now_ns() == time.clock_ns()
    time.ahead -= 2 * YEAR_NS
    assert steady.now_ns() == time.clock_ns()


@pytest.mark.parametrize("first", [1, -1])
def test_a_collector_s_clock_that_leaps_loses_nothing_and_counts_nothing_twice(tmp_path: Path, fleet: Fleet, first: int) -> None:
    store = EmbeddedStore(tmp_path, Retention(), threads=1)
    time = Time()
    time.ahead = fleet.end_s * S - time.real
    collector = Collector(store, maintain_every_s=86_400.0, clock_ns=time.clock_ns)
    collector.steady = Steady(time.clock_ns, time.clock_ns(), time.monotonic_ns)
    batches = fleet.batches()
    half = len(batches) // 2
    fill(store, batches[:half], now_ns=time.clock_ns())
    for years in (0, first * 10, 0, -first * 10, 10, 0):
        time.ahead = fleet.end_s * S - 5_000 * S + years * YEAR_NS
        for _ in range(6):
            time.real += 10 * S
            collector.maintain()
        fill(store, batches[:half], now_ns=time.clock_ns())  # once more
    fill(store, batches[half:], now_ns=time.clock_ns())
    assert collector.figures.counts().get("maintain_failures", 0) == 0
    wanted = {k: t.count for k, t in fleet.truth.by("operator", "model", "host").items() if t.count}
    rows = store.totals(Selection(START_S, fleet.end_s, ("operator", "model", "host"))).to_pylist()
    assert {(r["operator"], r["model"], r["host"]): r["count"] for r in rows} == wanted
    assert store.info().figures["store_rows_10s"] > 0
    collector.close()


def test_without_that_a_leap_would_empty_the_store(tmp_path: Path, fleet: Fleet) -> None:
    """What the test above guards against is there to be guarded against."""
    store = EmbeddedStore(tmp_path, Retention(), threads=1)
    fill(store, fleet.batches())
    store.maintain(START_NS + 10 * YEAR_NS)
    assert store.totals(Selection(START_S, fleet.end_s, ("operator",))).num_rows == 0
    store.close()
