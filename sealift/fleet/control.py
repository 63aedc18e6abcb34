"""How the fleet's overhead is held: the answer to each batch tells its agent in which share of windows to record, and which share of calls.

The header `Sealift-Control: {"duty": 0.1, "probability": 0.01}` comes with every answer to /v1/metrics. The agent draws its windows at random with
probability `duty` and weighs what it records by 1 / (duty * probability); the weights reach the store as count and samples. A relay between
drops the header, and the agent stays with what it was started with."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Budget:
    """`overhead`: share of a process's time that recording may take. `points_per_s`: what the whole fleet may send; 0: no limit."""

    overhead: float = 0.01
    points_per_s: float = 0.0
    probability: float = 0.01
    duty_min: float = 0.001


@dataclass(frozen=True)
class Orders:
    duty: float
    probability: float
    trace: str = ""  # a trace asked for: its number
    trace_seconds: float = 0.0

    def header(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if v}, separators=(",", ":"))


@dataclass
class Trace:
    id: str
    instance: str
    seconds: float
    asked: float
    data: bytes = b""


@dataclass
class _Agent:
    duty: float = 1.0
    heard: float = 0.0


@dataclass
class Controller:
    budget: Budget = field(default_factory=Budget)
    clock: Callable[[], float] = time.monotonic
    trace_limit: int = 8  # traces kept in memory, and
    trace_bytes: int = 64 << 20  # the largest

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
            if overhead is not None and overhead > 0:
                wanted = agent.duty * self.budget.overhead / overhead
                # Half the way at each step: one window's overhead is a noisy number.
                agent.duty = min(1.0, max(self.budget.duty_min, (agent.duty + wanted) / 2))
            self._count(points, now)
            duty = max(self.budget.duty_min, agent.duty * self._scale)
            trace = next((t for t in self._traces.values() if t.instance == instance and not t.data), None)
            return Orders(round(duty, 6), self.budget.probability, trace.id if trace else "", trace.seconds if trace else 0.0)

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

    def deliver_trace(self, id: str, data: bytes) -> bool:
        with self._lock:
            trace = self._traces.get(id)
            if trace is None or len(data) > self.trace_bytes:
                return False
            trace.data = data
            return True
