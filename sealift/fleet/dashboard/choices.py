"""What the filters offer: the services, versions, hosts and models that the store knows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from sealift.fleet.store.interface import Selection, Store

MOST = 200  # of each: a field takes any text, these are suggestions
_FRESH_S = 15.0
_MODELS_S = 86_400  # models are looked for in the last day that has data


@dataclass
class Choices:
    store: Store
    clock: Callable[[], float] = time.monotonic
    _held: dict[str, list[str]] = field(default_factory=dict)
    _until: float = -1.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> dict[str, list[str]]:
        with self._lock:
            if self.clock() > self._until:
                self._held = self._found()
                self._until = self.clock() + _FRESH_S
            return self._held

    def _found(self) -> dict[str, list[str]]:
        processes = self.store.processes()
        found = {key: _some(processes.column(key)) for key in ("service", "version", "host")}
        _, last = self.store.time_range()
        names: list[str] = []
        if last:
            names = self.store.totals(Selection(max(last - _MODELS_S, 0) // 3600 * 3600, last, ("model",))).column("model").to_pylist()
        return found | {"model": sorted(n for n in names if n)[:MOST]}


def _some(column: pa.ChunkedArray) -> list[str]:
    return sorted(v for v in pc.unique(column).to_pylist() if v)[:MOST]
