"""Limits end what hangs, leave alone what ends by itself, and do not count time in which the program did not run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sealift.fleet.patience import limited, within

ROOT = Path(__file__).resolve().parents[2]


def test_a_block_that_hangs_is_interrupted_and_one_that_ends_is_not() -> None:
    told = threading.Event()
    with limited(0.05, told.set):
        assert told.wait(600)
    told.clear()
    with limited(3600.0, told.set):
        pass
    assert not told.is_set()


def test_work_that_hangs_is_ended_and_an_error_is_its_own() -> None:
    async def hangs() -> None:
        await asyncio.sleep(3600)

    async def fails() -> None:
        raise KeyError("mine")

    async def answers() -> int:
        await asyncio.sleep(0)
        return 7

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(within(0.05, hangs()))
    with pytest.raises(KeyError, match="mine"):
        asyncio.run(within(3600.0, fails()))
    assert asyncio.run(within(3600.0, answers())) == 7
    assert asyncio.run(within(float("inf"), answers())) == 7


def test_time_in_which_the_program_was_stopped_does_not_count() -> None:
    """A clock that leaps as if the program had been stopped for an hour after each wait: the limit still leaves it its steps."""
    program = """
import threading, time
from sealift.fleet import patience
waits = []
class Event(threading.Event):
    def wait(self, timeout=None):
        if timeout is None:  # a thread's own start
            return super().wait()
        waits.append(timeout)
        return super().wait(0)
patience.threading.Event = Event
told = []
with patience.limited(40.0, lambda: told.append(len(waits))):
    while not told:
        time.sleep(0.001)
assert sum(waits) == 40.0 and max(waits) <= 2.0, waits
print(told[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "20"
