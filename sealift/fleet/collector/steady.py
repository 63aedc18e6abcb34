"""The time by which old rows are dropped, which cannot be undone: a clock that leaps forward must not empty the store."""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAP_NS = 300 * 10**9  # between two looks, ten seconds apart
HOLD_NS = 3600 * 10**9


class Steady:
    """The clock's time once it has gone evenly for an hour; until then, after a leap or a start, that of before, moved on by the time that really
    passed. It is never ahead of the clock."""

    def __init__(self, clock_ns: Callable[[], int], start_ns: int, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        """`start_ns`: of the newest rows, which were kept by a clock that was believed."""
        self._clock_ns, self._monotonic_ns = clock_ns, monotonic_ns
        self._looked_ns = self._even_since_ns = monotonic_ns()
        self._ahead_ns = clock_ns() - self._looked_ns
        self._steady_ns = min(start_ns, clock_ns())

    def now_ns(self) -> int:
        clock, looked = self._clock_ns(), self._monotonic_ns()
        if abs(clock - looked - self._ahead_ns) > _LEAP_NS:
            self._even_since_ns = looked
        is_even = looked - self._even_since_ns >= HOLD_NS
        self._steady_ns = clock if is_even else min(self._steady_ns + looked - self._looked_ns, clock)
        self._looked_ns, self._ahead_ns = looked, clock - looked
        return self._steady_ns
