"""The collector's orders, followed by real processes: what recording costs, which processes record, and traces on demand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sealift.cli.main import main
from sealift.fleet import connect
from sealift.fleet.agent import Follower, Orders
from sealift.fleet.collector.app import Collector
from sealift.fleet.control import Budget, Controller
from sealift.fleet.errors import QuestionError, UnreachableError
from sealift.fleet.store.embedded import EmbeddedStore
from tests.observe.conftest import bridge
from tests.observe.trace_format import checked_trace

__all__ = ["bridge"]  # the fixture

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, os, sys
from pathlib import Path
import torch
from sealift import observe
from sealift.fleet.agent import report
url, spool, stop, start = sys.argv[1:5]
torch.set_num_threads(1)
x = torch.ones(128, 128)
observe.start(**json.loads(start))
exporter = report(url, interval_s=0.2, spool=Path(spool))
calls = 0
with observe.debug_info(model_id="m:7", request="r-1"):
    while not os.path.exists(stop):
        for _ in range(20):
            torch.mm(x, x)
        calls += 20
        rates = observe.rates()
        state = {"calls": calls, "budget": rates.budget, "duty_cycle": rates.duty_cycle, "hosts": rates.host_probability, "records": rates.records}
        with open(stop + ".state.part", "w") as file:
            json.dump(state, file)
        os.replace(stop + ".state.part", stop + ".state")
observe.stop()
exporter.close(20.0)
print(calls)
"""


@dataclass
class Observed:
    process: subprocess.Popen[str]
    stop: Path

    def state(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self.stop.with_name(self.stop.name + ".state").read_text()))
        except FileNotFoundError:
            return {}

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], seconds: float = 600) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.state()
            if state and condition(state):
                return state
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.02)
        raise AssertionError(self.state())

    def end(self) -> int:
        self.stop.touch()
        out, errors = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, errors
        return int(out)


@pytest.fixture
def observed(tmp_path: Path, bridge: Path) -> Iterator[Callable[..., Observed]]:
    started: list[Observed] = []

    def start(url: str, **options: Any) -> Observed:
        stop = tmp_path / f"stop{len(started)}"
        command = [sys.executable, "-c", PROGRAM, url, str(tmp_path / "spool"), str(stop), json.dumps(options)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ})
        started.append(Observed(process, stop))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def collector(store: EmbeddedStore, serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Controller]]:
    """(its URL, its controller)"""
    made: list[Collector] = []

    class Kept(Collector):
        def __post_init__(self) -> None:
            super().__post_init__()
            made.append(self)

    monkeypatch.setattr("tests.fleet.conftest.Collector", Kept)

    def start(budget: Budget) -> tuple[str, Controller]:
        url = serving(store, budget=budget)
        return url, made[-1].controller

    return start


def products(url: str) -> dict[str, Any]:
    rows = connect(url).top(by="operator", start="-1h", where="operator=aten::mm").to_pylist()
    return dict(rows[0]) if rows else {"count": 0, "samples": 0}


Collecting = Callable[..., tuple[str, Controller]]
Starting = Callable[..., Observed]


def test_a_lower_budget_is_followed(collector: Collecting, observed: Starting) -> None:
    """A few seconds have few windows, and what each stands for differs with what else the machine does: the estimate is held to a factor of two here.
    That changes of the rates leave no bias is tests/observe/native_test.cpp's to show, on a clock of its own."""
    url, controller = collector(Budget(overhead=0.2))
    program = observed(url, duty_cycle=1, budget=0.05, burst_duty_cycle=0)
    program.wait_for(lambda s: s["budget"] == 0.05 and s["calls"] > 0 and products(url)["samples"] > 0)  # its own limit holds against a higher one
    controller.budget = replace(controller.budget, overhead=0.004)
    before = program.wait_for(lambda s: s["budget"] == 0.004)
    program.wait_for(lambda s: s["calls"] > before["calls"] + 5000)
    (process,) = connect(url).processes().to_pylist()
    assert process["overhead"] < 0.02  # of the last reports: the recorder holds the lower budget
    controller.budget = replace(controller.budget, overhead=0.03)
    program.wait_for(lambda s: s["budget"] == 0.03)
    lowered = products(url)["samples"]
    program.wait_for(lambda s: products(url)["samples"] > lowered + 100)
    calls = program.end()
    seen = products(url)
    assert seen["samples"] < calls
    print(f"{calls} calls, seen {seen['count']:.0f} by {seen['samples']} samples")
    assert calls / 2 < seen["count"] < calls * 2


def test_processes_are_chosen_at_random_and_stand_for_the_others(collector: Collecting, observed: Starting) -> None:
    url, controller = collector(Budget(hosts=0.5, epoch_s=3600.0))
    chances = [0.1, 0.9]  # the first that reports is chosen, the second is not
    controller.chance = lambda: chances.pop(0)
    first = observed(url, sampling_prob=1, duty_cycle=1, budget=0, burst_duty_cycle=0)
    first.wait_for(lambda s: s["hosts"] == 0.5 and s["records"])
    second = observed(url, sampling_prob=1, duty_cycle=1, budget=0, burst_duty_cycle=0)
    state = second.wait_for(lambda s: s["hosts"] == 0.5 and not s["records"])
    time.sleep(0.1)
    first_calls, second_calls = first.end(), second.end()
    hosts = {r["instance"]: r for r in connect(url).top(by="instance", start="-1h", where="operator=aten::mm").to_pylist()}
    assert len(hosts) == 2
    counts = sorted(r["count"] for r in hosts.values())
    assert counts[0] <= state["calls"] + 20 <= second_calls + 20  # nothing after it was told
    assert counts[1] > 1.2 * first_calls  # each of its later samples counts for two


def test_a_trace_of_a_running_process(collector: Collecting, observed: Starting, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, _ = collector(Budget())
    program = observed(url)
    program.wait_for(lambda s: s["calls"] > 0 and len(connect(url).processes()) == 1)
    (process,) = connect(url).processes().to_pylist()
    path = tmp_path / "trace.json"
    command = ["fleet", "trace", "--url", url, "--process", process["instance"][:8], "--seconds", "0.3", "--patience", "600", "-o", str(path)]
    assert main(command, {}) == 0, capsys.readouterr()
    events = checked_trace(path.read_bytes())
    assert len(events) > 10 and {e["name"] for e in events} >= {"aten::mm"}
    assert {e["pid"] for e in events} == {program.process.pid}
    assert all(e["args"] == {"model_id": "m:7", "request": "r-1"} for e in events if e["name"] == "aten::mm")
    calls = program.end()
    assert calls > 0


def test_a_trace_of_a_process_that_is_gone(collector: Collecting, observed: Starting) -> None:
    url, controller = collector(Budget())
    program = observed(url)
    program.wait_for(lambda s: s["calls"] > 0 and len(connect(url).processes()) == 1)
    (process,) = connect(url).processes().to_pylist()
    program.process.kill()
    program.process.wait()
    with pytest.raises(UnreachableError, match=r"has not asked for its orders within 0\.5 s; its last report was \d+ s ago"):
        connect(url).trace(process["instance"], 1, patience_s=0.5)
    controller.gone_s = 0.0
    with pytest.raises(QuestionError, match="it is gone"):
        connect(url).trace(process["instance"], 1)


def test_a_process_that_cannot_record_says_so(collector: Collecting, observed: Starting) -> None:
    url, controller = collector(Budget())
    trace = controller.ask_trace("p", 1.0)
    assert controller.orders("p", None, 0).trace == trace.id
    assert controller.deliver_trace(trace.id, b"-", error="the recorder does not run")
    assert controller.orders("p", None, 0).trace == ""
    with pytest.raises(UnreachableError, match="410 the process has no trace: the recorder does not run"):
        connect(url)._send("GET", f"/api/v1/trace/{trace.id}")


def test_a_share_of_the_processes_records_at_a_time() -> None:
    clock = [0.0]
    controller = Controller(Budget(hosts=0.25, epoch_s=300.0), clock=lambda: clock[0])
    chosen = []
    for epoch in range(20):
        clock[0] = epoch * 300.0
        orders = {f"p{i}": controller.orders(f"p{i}", None, 1) for i in range(200)}
        again = {f"p{i}": controller.orders(f"p{i}", None, 1) for i in range(200)}
        assert {n: o.records for n, o in orders.items()} == {n: o.records for n, o in again.items()}  # for the whole epoch
        assert all(o.hosts == 0.25 for o in orders.values())
        chosen.append(frozenset(n for n, o in orders.items() if o.records))
    assert abs(sum(map(len, chosen)) - 1000) < 5 * (4000 * 0.25 * 0.75) ** 0.5
    assert len(set(chosen)) == 20


def test_orders_ask_for_no_more_than_the_process_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    from sealift import observe

    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(observe, "is_running", lambda: True)
    monkeypatch.setattr(observe, "rates", lambda: observe.Rates(0.5, 0.1, 0.003, 0.005, 1.0, True))
    monkeypatch.setattr(observe, "adjust", lambda **rates: seen.append(rates))
    follow = Follower()
    follow(Orders(duty=1.0, probability=0.9, budget=0.5))
    follow(Orders(duty=1.0, probability=0.9, budget=0.5, trace="t", trace_seconds=1.0))  # nothing new for the recorder
    follow(Orders(duty=0.5, probability=0.01, budget=0.001, hosts=0.1, records=False))
    follow(Orders())
    assert [(s["sampling_prob"], s["duty_cycle"], s["budget"], s["host_probability"], s["records"]) for s in seen] == [
        (0.5, 0.1, 0.003, 1.0, True), (0.01, 0.05, 0.001, 0.1, False), (0.5, 0.1, 0.003, 1.0, True),
    ]  # fmt: skip
