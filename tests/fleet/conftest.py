"""What the fleet's tests share: a small simulated fleet whose truth is known, in a store and behind a collector."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from sealift.fleet.collector.app import Collector
from sealift.fleet.collector.serve import Address, serve
from sealift.fleet.otlp.decode import Decoder
from sealift.fleet.simulator import Plan, Sent, Simulation
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention
from sealift.fleet.truth import Truth

START_S = 1_760_000_400  # a whole minute and hour


@dataclass
class Fleet:
    plan: Plan
    truth: Truth
    sent: list[Sent]

    def batches(self) -> list[Any]:
        decoder = Decoder()
        return [b for s in self.sent for b in getattr(decoder, s.signal)(s.body, (s.time_s + 1) * 10**9).batches]

    @property
    def end_s(self) -> int:
        return int(self.plan.start_s + self.plan.minutes * 60)


def simulated(**plan: Any) -> Fleet:
    truth = Truth()
    made = Plan(**({"hosts": 12, "minutes": 6, "start_s": START_S, "seed": 1} | plan))
    return Fleet(made, truth, list(Simulation(made, truth)))


@pytest.fixture(scope="session")
def fleet() -> Fleet:
    return simulated()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    # A test's process may be stopped for a while: no question ends by the clock.
    made = EmbeddedStore(tmp_path / "store", Retention(None, None, None, None), threads=2, query_seconds=600.0)
    yield made
    made.close()


def fill(store: Any, batches: list[Any], group: int = 60, now_ns: int = START_S * 10**9) -> None:
    for i in range(0, len(batches), group):
        store.commit(batches[i : i + group], now_ns)


@pytest.fixture
def serving() -> Iterator[Callable[..., str]]:
    """serving(store, **Collector's options) -> URL; the server runs in a thread of this process."""
    import uvicorn

    started: list[tuple[threading.Thread, Any]] = []

    def start(store: Any, address: Address = Address(port=0), **options: Any) -> str:
        collector = Collector(store, gather_s=0.005, **({"maintain_every_s": 3600.0} | options))
        urls: list[str] = []
        servers: list[Any] = []
        original = uvicorn.Server.__init__

        def remember(self: Any, config: Any) -> None:
            original(self, config)
            servers.append(self)

        uvicorn.Server.__init__ = remember  # type: ignore[method-assign]
        try:
            thread = threading.Thread(target=serve, args=(collector, address, urls.append), daemon=True)
            thread.start()
            end = time.monotonic() + 600
            while not (servers and servers[0].started) and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            uvicorn.Server.__init__ = original  # type: ignore[method-assign]
        started.append((thread, servers[0]))
        return urls[0]

    yield start
    for thread, server in started:
        server.should_exit = True
        thread.join(600)
        assert not thread.is_alive()
