"""Who may write and read, and how fast."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    body_bytes: int = 8 << 20  # of one request as it comes
    inflated_bytes: int = 64 << 20  # of one request after gzip
    inflight_bytes: int = 256 << 20  # of all requests being read and decoded
    bytes_per_s: float = 0.0  # of one client address; 0: no limit
    write_tokens: tuple[str, ...] = ()  # none: everyone who reaches the port
    read_tokens: tuple[str, ...] = ()
    query_seconds: float = 30.0
    query_rows: int = 100_000


def allowed(header: str, tokens: tuple[str, ...]) -> bool:
    """`header`: the Authorization header's value. Compares in constant time."""
    if not tokens:
        return True
    kind, _, given = header.partition(" ")
    matches = [hmac.compare_digest(given.strip().encode(), token.encode()) for token in tokens]
    return kind.lower() == "bearer" and any(matches)


class RateLimiter:
    """A bucket of bytes for each client address, refilled at `bytes_per_s`, ten seconds deep."""

    DEPTH_S = 10.0
    MOST = 100_000  # clients remembered

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # client -> (bytes left, when)

    def wait_s(self, client: str, size: int) -> float:
        """0 if the client may send that much now, else after how many seconds it may."""
        if not self._rate:
            return 0.0
        now = self._clock()
        if len(self._buckets) > self.MOST:
            self._buckets.clear()
        left, when = self._buckets.get(client, (self._rate * self.DEPTH_S, now))
        left = min(left + (now - when) * self._rate, self._rate * self.DEPTH_S)
        if left <= 0:
            self._buckets[client] = (left, now)
            return max(-left / self._rate, 1.0)
        self._buckets[client] = (left - size, now)  # may go below zero: a request larger than the bucket is let through once
        return 0.0
