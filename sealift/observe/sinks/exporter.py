"""Takes a snapshot every interval and hands what changed to every sink, in the background.

One thread takes snapshots; each sink has a lane: a bounded queue and a thread, so that a sink that hangs holds up no other. What a lane
cannot deliver waits and grows by addition, so a sink that is down for an hour costs resolution in time, not data; what is lost in the end
(the sink refuses, or the process ends first) is counted, reported to the sink as `dropped`, and shown. Nothing here raises into the program."""

from __future__ import annotations

import atexit
import logging
import os
import random
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sealift.observe.sinks.sink import LANE_THREADS, Sink, SinkError, SinkFactory, SinkLibraryError, SinkSpecError
from sealift.observe.snapshot import Snapshot

_log = logging.getLogger("sealift.observe")
_PERMANENT = (SinkError, SinkLibraryError, SinkSpecError)


@dataclass(frozen=True)
class Delivery:
    """How hard a lane tries."""

    queue_batches: int = 16  # beyond, batches of one process are added together
    queue_events: int = 200_000  # burst events in the queue; beyond, they are lost and counted
    first_retry_s: float = 0.5  # doubles with every failure
    last_retry_s: float = 60.0
    exit_deadline_s: float = 3.0  # what the end of the process waits for all sinks together


@dataclass
class SinkStatus:
    """What became of the batches of one sink."""

    name: str
    written: int = 0
    retries: int = 0
    lost_batches: int = 0
    lost_samples: int = 0
    lost_events: int = 0  # of bursts
    last_error: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: {self.written} batches written"
        if self.retries:
            text += f", {self.retries} retries"
        if self.lost_batches or self.lost_samples or self.lost_events:
            text += f", lost {self.lost_batches} batches with {self.lost_samples} samples and {self.lost_events} burst events"
        return text + (f" ({self.last_error})" if self.last_error else "")


class Exporter:
    """Feeds sinks until it is closed, which the end of the process does too. A forked child goes on with sinks of its own.

    take_snapshot: what the recorder counted so far; None: whoever owns the exporter puts deltas."""

    def __init__(
        self,
        take_snapshot: Callable[[], Snapshot] | None,
        sinks: Mapping[str, SinkFactory],
        interval_s: float = 10.0,
        delivery: Delivery = Delivery(),
    ) -> None:
        self._take_snapshot = take_snapshot
        self._factories = dict(sinks)
        self._interval_s = interval_s
        self._delivery = delivery
        self._closed = False
        self._set_up()
        _exporters.add(self)

    def _set_up(self) -> None:
        self._lanes = [_Lane(name, make, self._delivery) for name, make in self._factories.items()]
        self._before: Snapshot | None = None
        self._tick_lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._running = False

    def start(self) -> Exporter:
        """Starts the threads; they are daemons."""
        for lane in self._lanes:
            lane.start()
        self._running = True
        if self._take_snapshot is not None:
            self._ticker = threading.Thread(target=self._run, name="sealift-export", daemon=True)
            self._ticker.start()
        return self

    @property
    def status(self) -> tuple[SinkStatus, ...]:
        return tuple(lane.status for lane in self._lanes)

    def tick(self) -> None:
        """Takes a snapshot now and queues what is new."""
        if self._take_snapshot is None:
            return
        try:
            with self._tick_lock:
                now = self._take_snapshot()
                before, self._before = self._before, now
            delta = now if before is None or before.process != now.process else now.minus(before)
        except Exception:
            _log.warning("no snapshot could be taken", exc_info=True)
            return
        self.put(delta)

    def put(self, delta: Snapshot) -> None:
        """Queues a delta for every sink."""
        for lane in self._lanes:
            lane.put(delta)

    def flush(self, timeout_s: float) -> bool:
        """Waits until every sink has taken what is queued; False if the time was too short."""
        end = time.monotonic() + timeout_s
        return all([lane.wait_idle(end) for lane in self._lanes])

    def close(self, deadline_s: float | None = None, final_tick: bool = True) -> tuple[SinkStatus, ...]:
        """A last snapshot, then at most the deadline for the sinks to take it. What they did not take is lost, and counted."""
        if self._closed:
            return self.status
        self._closed = True
        self._stop.set()
        _exporters.discard(self)
        end = time.monotonic() + (self._delivery.exit_deadline_s if deadline_s is None else deadline_s)
        if self._ticker is not None and self._ticker is not threading.current_thread():
            self._ticker.join(max(0.0, end - time.monotonic()))  # what it has taken it still has to queue
        if final_tick:
            self.tick()
        for lane in self._lanes:
            lane.begin_close(end)
        for lane in self._lanes:
            lane.finish_close(end)
        for status in self.status:
            if status.lost_batches or status.lost_events:
                _log.warning("%s", status)
        return self.status

    def _run(self) -> None:
        # Intervals of +-5 %, so that the processes of a fleet that start together do not report together.
        while not self._stop.wait(self._interval_s * random.uniform(0.95, 1.05)):
            self.tick()

    def _after_fork_in_child(self) -> None:
        """Locks may be held by threads that no longer exist, and what is queued is the parent's to deliver: everything starts anew."""
        was_running = self._running
        self._set_up()
        if was_running:
            self.start()
            _close_at_multiprocessing_exit(self)


class _Lane:
    """The queue and the thread of one sink."""

    def __init__(self, name: str, make: SinkFactory, delivery: Delivery) -> None:
        self.status = SinkStatus(name)
        self._make = make
        self._delivery = delivery
        self._sink: Sink | None = None
        self._queue: deque[Snapshot] = deque()
        self._in_flight: Snapshot | None = None
        self._dead = False  # what the sink needs is missing: every later batch is lost at once
        self._unreported = 0  # samples lost since the last batch that was written
        self._deadline = float("inf")  # monotonic; set when closing
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"{LANE_THREADS}{self.status.name.partition(':')[0]}", daemon=True)
        self._thread.start()

    @property
    def _is_closing(self) -> bool:
        return self._deadline != float("inf")

    def put(self, delta: Snapshot) -> None:
        with self._changed:
            if self._dead:
                self._lose(delta)
                return
            room = max(0, self._delivery.queue_events - sum(len(q.events) for q in self._queue))
            if len(delta.events) > room:
                self.status.lost_events += len(delta.events) - room
                delta = replace(delta, events=delta.events[:room])
            if len(self._queue) >= self._delivery.queue_batches:
                same = next((i for i in reversed(range(len(self._queue))) if self._queue[i].process == delta.process), None)
                if same is None:
                    self._lose(self._queue.popleft())
                    self._queue.append(delta)
                else:
                    self._queue[same] = self._queue[same].merge(delta)
            else:
                self._queue.append(delta)
            self._changed.notify_all()

    def wait_idle(self, end: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and self._in_flight is None, max(0.0, end - time.monotonic()))

    def begin_close(self, end: float) -> None:
        with self._changed:
            self._deadline = end
            self._changed.notify_all()

    def finish_close(self, end: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, end - time.monotonic()))
        with self._changed:
            left = [*self._queue] if self._in_flight is None else [self._in_flight, *self._queue]
            self._queue.clear()
            self._in_flight = None
            for batch in left:
                self._lose(batch)

    def _lose(self, batch: Snapshot) -> None:
        if not (batch.series or batch.events or batch.api_usage or batch.model_events or batch.dropped or batch.overflow):
            return  # nothing happened in it
        samples = sum(s.samples for s in batch.series)
        self.status.lost_batches += 1
        self.status.lost_samples += samples
        self.status.lost_events += len(batch.events)
        self._unreported += samples

    def _open(self) -> None:
        try:
            self._sink = self._make()
            opener = getattr(self._sink, "open", None)
            if opener is not None:
                opener()
        except Exception as error:
            self._failed(error)
            self._note_if_useless(error)

    def _note_if_useless(self, error: Exception) -> None:
        with self._changed:
            self._dead = self._dead or isinstance(error, (SinkLibraryError, SinkSpecError))

    def _run(self) -> None:
        self._open()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    break
                self._in_flight = self._queue.popleft()
                if self._unreported:
                    self._in_flight = replace(self._in_flight, dropped=self._in_flight.dropped + self._unreported)
                    self._unreported = 0
                batch = self._in_flight
            if not self._deliver(batch):
                break  # finish_close counts it and what is queued behind it
        if self._sink is not None:
            try:
                self._sink.close()
            except Exception as error:
                self._failed(error)

    def _deliver(self, batch: Snapshot) -> bool:
        """Until it is written or the sink refuses for good; False where the deadline passes before."""
        wait_s = self._delivery.first_retry_s
        while True:
            try:
                if self._sink is None:
                    self._sink = self._make()
                self._sink.write(batch)
            except _PERMANENT as error:
                self._failed(error)
                self._note_if_useless(error)
                with self._changed:
                    self._end_flight(written=False)
                return True
            except Exception as error:
                self._failed(error)
            else:
                with self._changed:
                    self._end_flight(written=True)
                return True
            with self._changed:
                pause_s = min(wait_s * random.uniform(0.5, 1.5), self._deadline - time.monotonic())
                began_closing = not self._is_closing and self._changed.wait_for(lambda: self._is_closing, pause_s)
                if self._is_closing and not began_closing:
                    self._changed.wait(max(0.0, pause_s))
                if time.monotonic() >= self._deadline:
                    return False
                wait_s = self._delivery.first_retry_s if began_closing else min(2 * wait_s, self._delivery.last_retry_s)
                self.status.retries += 1

    def _end_flight(self, written: bool) -> None:
        if self._in_flight is None:
            return  # finish_close counted it while it was under way
        if written:
            self.status.written += 1
            self.status.last_error = ""
        else:
            self._lose(self._in_flight)
        self._in_flight = None
        self._changed.notify_all()

    def _failed(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if not self.status.last_error:  # once for each spell of trouble
            _log.warning("sink %s: %s", self.status.name, text)
        self.status.last_error = text


# ---- fork and exit -------------------------------------------------------------------------------------------------------------

_exporters: weakref.WeakSet[Exporter] = weakref.WeakSet()


def _restart_in_child() -> None:
    for exporter in list(_exporters):
        try:
            exporter._after_fork_in_child()
        except Exception:
            _log.warning("not observed after fork", exc_info=True)


def _close_all() -> None:
    for exporter in list(_exporters):
        exporter.close()


def _close_at_multiprocessing_exit(exporter: Exporter) -> None:
    """multiprocessing's forked children end by os._exit, past atexit, but run its own finalizers, which it clears after the fork."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(exporter, _finalize_by_multiprocessing)


def _finalize_by_multiprocessing(exporter: Exporter) -> None:
    from multiprocessing.util import Finalize

    Finalize(exporter, exporter.close, exitpriority=0)


os.register_at_fork(after_in_child=_restart_in_child)
atexit.register(_close_all)
