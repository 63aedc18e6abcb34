"""Time limits that count the time in which this program ran: a laptop that slept, or a process that was stopped for a while, has not been waiting."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

Answer = TypeVar("Answer")
_STEPS = 20  # a limit ends within a twentieth of itself; a pause of any length costs at most one step


@contextlib.contextmanager
def limited(seconds: float, interrupt: Callable[[], None]) -> Iterator[None]:
    """Calls `interrupt` from another thread if the block has not ended after that long."""
    over = threading.Event()

    def watch() -> None:
        if not any(over.wait(seconds / _STEPS) for _ in range(_STEPS)):
            interrupt()

    thread = threading.Thread(target=watch, name="sealift-fleet-limit", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


async def within(seconds: float, work: Awaitable[Answer]) -> Answer:
    """Errors: asyncio.TimeoutError; the work is told to end then."""
    task = asyncio.ensure_future(work)
    try:
        for _ in range(_STEPS if math.isfinite(seconds) else 1):
            done, _ = await asyncio.wait({task}, timeout=seconds / _STEPS if math.isfinite(seconds) else None)
            if done:
                return task.result()
    except asyncio.CancelledError:
        task.cancel()
        raise
    task.cancel()
    raise asyncio.TimeoutError
