"""How the fleet's overhead is held: the answer to each batch tells its agent how much to record.

The header `Sealift-Control: {"budget": 0.01, "duty": 0.5, "hosts": 0.1, "records": 1}` comes with every answer to /v1/metrics. `budget` is the share
of its time that the process may spend, which its recorder holds by itself; `duty` scales the share of windows where that is not enough (the fleet
sends too much, or a process goes on measuring more than it may). `hosts`: this share of the processes records at any time, chosen at random anew
for each epoch, and `records` says whether this one is chosen. Each sample is weighed by 1 / (probability * duty * hosts); the weights reach the
store as count and samples. A relay between drops the header, and the agent stays with what it was started with."""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Budget:
    """`overhead`: share of a process's time that recording may take. `points_per_s`: what the whole fleet may send; 0: no limit. `hosts`: share
    of the processes that record at a time. `probability`: of a call in a window, at most; 0: as the process was started."""

    overhead: float = 0.01
    points_per_s: float = 0.0
    probability: float = 0.0
    duty_min: float = 0.001
    hosts: float = 1.0
    epoch_s: float = 300.0  # how long a choice of processes holds


@dataclass(frozen=True)
class Orders:
    duty: float
    probability: float = 0.0
    budget: float = 0.0
    hosts: float = 1.0
    records: bool = True
    trace: str = ""  # a trace asked for: its number
    trace_seconds: float = 0.0

    def header(self) -> str:
        said = {k: int(v) if isinstance(v, bool) else v for k, v in asdict(self).items() if v or k == "records"}
        return json.dumps(said, separators=(",", ":"))


@dataclass
class Trace:
    id: str
    instance: str
    seconds: float
    asked: float
    ordered: float | None = None  # when the process was told
    data: bytes = b""  # as it was delivered
    is_gzip: bool = False
    error: str = ""  # why the process has none


@dataclass
class _Agent:
    duty: float = 1.0
    budget: float = -1.0  # that it was told last, and when it was told first
    told: float = 0.0
    heard: float = 0.0
    epoch: int = -1
    records: bool = True


@dataclass
class Controller:
    budget: Budget = field(default_factory=Budget)
    clock: Callable[[], float] = time.monotonic
    trace_limit: int = 8  # traces kept in memory, and
    trace_bytes: int = 64 << 20  # the largest, compressed
    gone_s: float = 120.0  # a process that reported nothing for so long is taken for gone
    settle_s: float = 5.0  # that a recorder has to come down to a budget by itself; what it reports before is of the budget before
    chance: Callable[[], float] = random.SystemRandom().random

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, _Agent] = {}
        self._traces: dict[str, Trace] = {}
        self._rate, self._rate_time = 0.0, self.clock()
        self._scale = 1.0  # what the fleet's rate leaves of each duty

    def orders(self, instance: str, overhead: float | None, points: int) -> Orders:
        """After a batch: `overhead` is what the process measured over it, at the duty it ran with."""
        with self._lock:
            now = self.clock()
            if len(self._agents) > 1_000_000:
                self._agents.clear()
            agent = self._agents.setdefault(instance, _Agent())
            agent.heard = now
            if agent.budget != self.budget.overhead:
                agent.budget, agent.told = self.budget.overhead, now
            elif overhead is not None and overhead > 0 and now - agent.told > self.settle_s:
                wanted = agent.duty * self.budget.overhead / overhead
                # Half the way at each step: one window's overhead is a noisy number.
                agent.duty = min(1.0, max(self.budget.duty_min, (agent.duty + wanted) / 2))
            self._count(points, now)
            duty = max(self.budget.duty_min, agent.duty * self._scale)
            epoch = int(now // self.budget.epoch_s)
            if agent.epoch != epoch:
                agent.epoch, agent.records = epoch, self.chance() < self.budget.hosts
            trace = next((t for t in self._traces.values() if t.instance == instance and not t.data and not t.error), None)
            if trace and trace.ordered is None:
                trace.ordered = now
            return Orders(
                round(duty, 6),
                self.budget.probability,
                self.budget.overhead,
                self.budget.hosts,
                agent.records,
                trace.id if trace else "",
                trace.seconds if trace else 0.0,
            )

    def silent_s(self, instance: str) -> float | None:
        """Since the process's last report; None: none since the collector started."""
        with self._lock:
            agent = self._agents.get(instance)
            return None if agent is None else self.clock() - agent.heard

    def _count(self, points: int, now: float) -> None:
        """An average rate over about ten seconds, and the scale that brings it to the budget."""
        elapsed = now - self._rate_time
        self._rate += points
        if elapsed >= 10.0:
            rate = self._rate / elapsed
            if self.budget.points_per_s and rate > 0:
                self._scale = min(1.0, max(1e-4, self._scale * self.budget.points_per_s / rate))
            self._rate, self._rate_time = 0.0, now

    def ask_trace(self, instance: str, seconds: float) -> Trace:
        trace = Trace(secrets.token_hex(8), instance, min(max(seconds, 0.1), 60.0), self.clock())
        with self._lock:
            while len(self._traces) >= self.trace_limit:
                del self._traces[next(iter(self._traces))]
            self._traces[trace.id] = trace
        return trace

    def trace(self, id: str) -> Trace | None:
        with self._lock:
            return self._traces.get(id)

    def deliver_trace(self, id: str, data: bytes, is_gzip: bool = False, error: str = "") -> bool:
        with self._lock:
            trace = self._traces.get(id)
            if trace is None or len(data) > self.trace_bytes:
                return False
            trace.data, trace.is_gzip, trace.error = data, is_gzip, error
            return True
