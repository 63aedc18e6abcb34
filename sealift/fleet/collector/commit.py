"""Group commit: one thread writes what has arrived since its last write, and only then are those requests answered.

The disk syncs a handful of times a second whatever arrives; a request waits for at most one commit under way and one of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sealift.fleet.errors import FleetError
from sealift.fleet.model import Batch
from sealift.fleet.store.interface import Receipt, Store

_LOG = logging.getLogger(__name__)


class BehindError(FleetError):
    """More waits than may wait; the sender should come back later."""

    code = "E-FLEET-005"


@dataclass
class _Waiting:
    batches: Sequence[Batch]
    points: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]


class Committer:
    def __init__(self, store: Store, *, gather_s: float = 0.05, max_points: int = 400_000, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """`gather_s`: how long a commit waits for more to come. `max_points`: what may wait; beyond it senders are turned away."""
        self._store = store
        self._gather_s = gather_s
        self._max_points = max_points
        self._clock_ns = clock_ns
        self._condition = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._points_waiting = 0
        self._stopping = False
        self.counted = self.repeated = self.points = self.commits = self.failures = 0
        self._thread = threading.Thread(target=self._run, name="sealift-fleet-commit", daemon=True)
        self._thread.start()

    async def put(self, batches: Sequence[Batch]) -> None:
        """Returns when the batches are durable; raises what the store raised, or BehindError."""
        points = sum(len(b.points) for b in batches)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(batches, points, loop, loop.create_future())
        with self._condition:
            if self._stopping:
                raise BehindError("the collector is stopping")
            if self._waiting and self._points_waiting + points > self._max_points:
                raise BehindError(f"{self._points_waiting} points wait for the disk")
            self._waiting.append(waiting)
            self._points_waiting += points
            self._condition.notify()
        await waiting.future

    def stop(self) -> None:
        """Writes what waits, then ends."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping and not self._waiting:
                    return
            if not self._stopping:
                time.sleep(self._gather_s)
            with self._condition:
                taken, self._waiting = self._waiting, []
                self._points_waiting = 0
            self._commit(taken)

    def _commit(self, taken: Sequence[_Waiting]) -> None:
        error: Exception | None = None
        try:
            receipt: Receipt = self._store.commit([b for w in taken for b in w.batches], self._clock_ns())
        except Exception as failure:
            error = failure
            self.failures += 1
            _LOG.warning("a commit failed, its senders keep what they sent: %s", failure)
        else:
            self.commits += 1
            self.counted += receipt.counted
            self.repeated += receipt.repeated
            self.points += receipt.points
        by_loop: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
        for waiting in taken:
            by_loop.setdefault(waiting.loop, []).append(waiting)
        for loop, ready in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_resolve, ready, error)


def _resolve(ready: Sequence[_Waiting], error: Exception | None) -> None:
    for waiting in ready:
        if not waiting.future.done():  # its sender may have gone
            if error is None:
                waiting.future.set_result(None)
            else:
                waiting.future.set_exception(error)
