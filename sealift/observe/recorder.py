"""The recorder: per operator, how often, how long, and the distribution of that, within a budget."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from sealift import _runtime
from sealift.observe import metadata
from sealift.observe.callbacks import scope_mask
from sealift.observe.install import install_torch_when_imported
from sealift.observe.snapshot import Event, Histogram, Process, Sampling, Series, Snapshot, merged_series

_EVERY = ("operator", "burst", "step")
_LOG = logging.getLogger("sealift.observe")
_is_held = False  # by SEALIFT_OBSERVE


def start(
    sampling_prob: float | None = None,
    duty_cycle: float | None = None,
    needs_inputs: bool = False,
    budget: float = 0.003,
    *,
    every: str = "operator",
    labels: Iterable[str] = (),
    scopes: Iterable[str] = ("function", "kernel"),
    burst_duty_cycle: float = 0.005,
    host_probability: float = 1.0,
    max_series: int = 2048,
) -> None:
    """Begins to record, with empty counts; costs about nothing until operators run.

    sampling_prob: of each operator inside a window; None: 1, and 0.25 of steps. An operator recorded among others costs an eighth of one recorded
    alone, so short windows that record all tell more, for the same cost, than long ones that record a few. What recording takes inside an
    operator is taken out of its time, as measured.
    duty_cycle: the share of the time that windows take, at random places; with a budget, at most: it begins at 0.01 and grows as far as it may
    within a second. None: 0.0625, and 0.25 for bursts. 1: always.
    needs_inputs: the inputs' shapes tell series apart.
    budget: the share of running time that recording may cost, by its own measure; sampling backs off to keep it. 0: no limit.
    every: "operator" draws operators one by one; "burst" records all operators in windows, which gives self times; "step" records whole steps
    between calls of step(), drawn with sampling_prob.
    labels: keys of debug_info that tell series apart, besides model_id.
    burst_duty_cycle: with every="operator": the share of the time in which all operators are recorded besides, for self times. 0: never.
    host_probability: whether this process records at all, drawn once. Its counts then stand for the processes that do not, too.
    For the whole truth: start(1, 1, budget=0, burst_duty_cycle=0).
    Under SEALIFT_OBSERVE and `sealift profile`, which started it already, this changes nothing.
    Errors: ArgumentError; BusyError when it is running."""
    if every not in _EVERY:
        from sealift.errors import ArgumentError

        raise ArgumentError(f"every={every!r}; help: one of {', '.join(_EVERY)}")
    if _is_held:
        _LOG.info("the recorder runs as SEALIFT_OBSERVE says; this start() changes nothing")
        return
    names = [labels] if isinstance(labels, str) else list(labels)
    if any("," in name or not name for name in names):
        from sealift.errors import ArgumentError

        raise ArgumentError(f"labels={names!r}; help: keys of debug_info, each without a comma")
    install_torch_when_imported()
    keys = ",".join(names)
    if sampling_prob is None:
        sampling_prob = 0.25 if every == "step" else 1.0
    if duty_cycle is None:
        duty_cycle = 0.25 if every == "burst" else 0.0625
    shares = (float(sampling_prob), float(duty_cycle), float(budget), float(burst_duty_cycle), float(host_probability))
    _runtime.start_recorder(*shares, scope_mask(scopes), bool(needs_inputs), keys, int(max_series), _EVERY.index(every))


@dataclass(frozen=True)
class Rates:
    """How the recorder samples: what start() was given, or adjust() since."""

    sampling_prob: float
    duty_cycle: float
    budget: float
    burst_duty_cycle: float
    host_probability: float
    records: bool  # whether this process was chosen


def adjust(
    *,
    sampling_prob: float | None = None,
    duty_cycle: float | None = None,
    budget: float | None = None,
    burst_duty_cycle: float | None = None,
    host_probability: float | None = None,
    records: bool | None = None,
) -> None:
    """Changes how the running recorder samples; None: as it is. Counts go on, and stay unbiased: each sample has the weight of the rates that it
    was drawn with. With a budget, less holds at once, and more is approached from second to second.

    records: whether this process was chosen to record, with host_probability, by whoever calls; its weights are divided by that.
    Errors: ArgumentError where it does not run or a rate is wrong, BusyError inside a callback."""
    given = []
    for rate in (sampling_prob, duty_cycle, budget, burst_duty_cycle, host_probability):
        if rate is not None and not rate >= 0:
            from sealift.errors import ArgumentError

            raise ArgumentError(f"rate {rate}; help: from 0 to 1")
        given.append(-1.0 if rate is None else float(rate))
    _runtime.adjust_recorder(given[0], given[1], given[2], given[3], given[4], -1 if records is None else int(records))


def rates() -> Rates:
    state = _runtime.recorder_state()
    probability, duty_cycle, budget, bursts, hosts = state["rates"]
    return Rates(probability, duty_cycle, budget, bursts, hosts, state["records"])


def step() -> None:
    """A new step of the program (a batch, a request) begins. Only every="step" needs it."""
    _runtime.recorder_step()


def stop() -> Snapshot:
    """Ends recording, unless SEALIFT_OBSERVE began it. Returns what was recorded since the start."""
    if not _is_held:
        _runtime.stop_recorder()
    return snapshot()


def hold() -> None:
    """From here on the recorder belongs to whoever set SEALIFT_OBSERVE: a program that records itself must neither fail nor end it."""
    global _is_held
    _is_held = True


def is_running() -> bool:
    return bool(_runtime.recorder_state()["running"])


def snapshot() -> Snapshot:
    """What was recorded since the start; recording goes on, and no thread is stopped. Bursts' single calls are handed out once."""
    state = _runtime.recorder_state()
    mono_ns, now_ns = time.monotonic_ns(), time.time_ns()
    series = merged_series(_series(row) for row in _runtime.recorder_series())
    events = tuple(
        Event(name, source, scope, start_ns - mono_ns + now_ns, dur_ns, thread, burst, model, shapes, origin)
        for name, source, scope, model, shapes, origin, start_ns, dur_ns, thread, burst in _runtime.take_events()
    )
    return Snapshot(
        start_unix_ns=state["start_unix_ns"],
        end_unix_ns=now_ns,
        series=series,
        overflow=state["overflow"],
        dropped=state["dropped"],
        sampling=Sampling(state["probability"], state["duty_cycle"], state["overhead"]),
        process=Process(os.getpid(), socket.gethostname(), start_id(os.getpid())),
        api_usage=_runtime.api_usage(),
        models=metadata.models(),
        model_events=metadata.model_events(),
        events=tuple(sorted(events, key=lambda e: (e.start_unix_ns, -e.dur_ns))),
    )


@lru_cache(maxsize=1)
def start_id(pid: int) -> str:
    """Random for each process; a forked child has another pid, and so another id."""
    del pid
    return str(uuid.uuid4())


def _series(row: tuple[str, str, str, str, tuple[tuple[str, str], ...], str, str, int, int, int, int | None, int, dict[int, int], int]) -> Series:
    operator, source, scope, model_id, labels, shapes, origin, count, samples, total_ns, self_ns, zero_count, buckets, _ = row
    return Series(operator, source, scope, model_id, labels, shapes, origin, count, samples, total_ns, self_ns, Histogram(zero_count, buckets))
