"""The simulator against a running collector: requests leave at their virtual times, sped up, from a few connections."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sealift.fleet.errors import QuestionError, UnreachableError
from sealift.fleet.simulator import Plan, Regression, Sent, Simulation, duty_for
from sealift.fleet.truth import Truth

_CONNECTIONS = 4
_TOGETHER = 100  # waiting requests that go as one, as a relay's batch would


@dataclass
class Drive:
    plan: Plan
    speed: float
    truth: Truth | None = None

    @property
    def end_s(self) -> int:
        return int(self.plan.start_s + self.plan.minutes * 60) + self.plan.interval_s

    @classmethod
    def of(cls, a: argparse.Namespace) -> Drive:
        """From `sealift fleet simulate`'s arguments. Virtual time ends about now, so that `--from -1h` shows it."""
        if not (0 < a.hosts <= 1_000_000 and 0 < a.minutes <= 60 * 24 * 14 and a.interval >= 10 and a.speed >= 0 and a.rows > 0):
            raise QuestionError("the simulation's size; help: up to 1,000,000 hosts and two weeks, an interval of 10 s or more")
        regression = None
        if a.regression:
            name, _, factor = a.regression.rpartition(":")
            operator, _, model = name.partition("@")
            try:
                regression = Regression(operator, model, float(factor), a.minutes * 40)
            except ValueError:
                raise QuestionError(f"--regression {a.regression!r}; help: OPERATOR@MODEL:FACTOR, as in aten::layer_norm@bert-base-v7:1.4") from None
        real_s = a.minutes * 60 / a.speed if a.speed else 0
        start = int(time.time() - a.minutes * 60 + (real_s if a.speed else 0)) // 10 * 10
        if a.speed > 1:
            start = int(time.time() - a.minutes * 60) // 10 * 10
        duty = duty_for(a.hosts, a.interval, a.speed, a.rows_per_second) if a.speed else 1.0
        return cls(
            Plan(a.hosts, a.minutes, start, a.interval, a.seed, duty=duty, regression=regression, rows_limit=a.rows),
            a.speed,
        )

    def run(self, url: str, token: str | None, note: Callable[[str], None]) -> dict[str, Any]:
        """The report: what was sent and acknowledged, and how fast."""
        simulation = Simulation(self.plan, self.truth)
        sender = Sender(url, token)
        started = time.monotonic()
        shown, batches = started, 0
        try:
            for sent in simulation:
                if self.speed:
                    ahead = started + (sent.time_s - self.plan.start_s) / self.speed - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                sender.put(sent)
                batches += 1
                if time.monotonic() - shown > 5:
                    shown = time.monotonic()
                    minutes = (sent.time_s - self.plan.start_s) / 60
                    note(f"{minutes:.1f} of {self.plan.minutes:g} virtual minutes, {simulation.rows} points, {sender.waiting} requests wait")
        finally:
            sender.finish()
        elapsed = time.monotonic() - started
        return {
            "hosts": self.plan.hosts,
            "virtual_minutes": self.plan.minutes,
            "observed_windows": f"1 of {simulation.duty_weight}",
            "requests": sender.acknowledged,
            "points": sender.points,
            "seconds": round(elapsed, 2),
            "points_per_second": round(sender.points / elapsed),
            "refused_and_sent_again": sender.repeated,
            "failed": sender.failed,
            "refusal": sender.refusal,
        }


class Sender:
    """Each process's requests in their order, over a few connections; refused ones are sent again, as an agent would."""

    def __init__(self, url: str, token: str | None, connections: int = _CONNECTIONS) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._headers = {"Content-Type": "application/x-protobuf"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._queues: list[queue.Queue[Sent | None]] = [queue.Queue(maxsize=200) for _ in range(connections)]
        self._lock = threading.Lock()
        self.acknowledged = self.points = self.repeated = self.failed = 0
        self.last_orders = self.refusal = ""
        self._threads = [threading.Thread(target=self._run, args=(q,), daemon=True) for q in self._queues]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        return sum(q.qsize() for q in self._queues)

    def put(self, sent: Sent) -> None:
        self._queues[hash(sent.process.instance) % len(self._queues)].put(sent)

    def finish(self) -> None:
        for q in self._queues:
            q.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self, waiting: queue.Queue[Sent | None]) -> None:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "127.0.0.1", self._url.port, timeout=60)
        ended = False
        while not ended:
            taken = [waiting.get()]
            with contextlib.suppress(queue.Empty):
                while len(taken) < _TOGETHER and taken[-1] is not None:
                    taken.append(waiting.get_nowait())
            ended = taken[-1] is None
            for signal in ("logs", "metrics"):
                together = [sent for sent in taken if sent is not None and sent.signal == signal]
                if together:
                    self._deliver(connection, signal, together)
        connection.close()

    def _deliver(self, connection: http.client.HTTPConnection, signal: str, sent: list[Sent]) -> None:
        """As one request: requests put one after the other are one request with all their batches."""
        body = b"".join(one.body for one in sent)
        for attempt in range(8):
            try:
                connection.request("POST", f"/v1/{signal}", body, self._headers)
                answer = connection.getresponse()
                text = answer.read(500).decode(errors="replace").strip()
                answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(min(0.1 * 2**attempt, 5))
                continue
            with self._lock:
                if answer.status == 200:
                    self.acknowledged += len(sent)
                    self.points += sum(one.points for one in sent)
                    self.last_orders = answer.headers.get("Sealift-Control", "")
                    return
                self.repeated += 1
                self.refusal = f"{answer.status} {text}"
            if answer.status not in (429, 503):
                break
            time.sleep(min(float(answer.headers.get("Retry-After", "1")), 5))
        with self._lock:
            self.failed += len(sent)


@contextlib.contextmanager
def local_collector(folder: Path, *arguments: str) -> Iterator[str]:
    """A collector process of its own, on loopback and a free port; its URL. Ends with the block."""
    process = start_collector(folder, *arguments)
    try:
        yield wait_ready(process)
    finally:
        process.terminate()
        process.wait(30)


def start_collector(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "sealift",
        "fleet",
        "serve",
        "--json",
        "--store",
        str(folder),
        *(() if "--port" in arguments else ("--port", "0")),
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def wait_ready(process: subprocess.Popen[str]) -> str:
    """The collector's URL, from the JSON object that it prints once its port is open."""
    import json

    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.rstrip() == "}":
            url: str = json.loads(text)["url"]
            return url
    raise UnreachableError(f"the collector ended with {process.wait()}: {text}")
