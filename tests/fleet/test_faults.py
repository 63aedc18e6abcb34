"""kill -9 at random moments under load, of the collector and of the processes that report to it: nothing acknowledged is lost, nothing that an agent
had spooled is lost, and nothing is counted twice.

`make fleet-faults` does it 100 times each; `make test` does it three times."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from pathlib import Path

from sealift.fleet import connect
from sealift.fleet.drive import start_collector, wait_ready
from tests.fleet.conftest import Fleet, simulated

FOR_EVER = ("--keep-10s", "0", "--keep-60s", "0", "--keep-3600s", "0")
ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("SEALIFT_TEST_FLEET_KILLS", "3"))


class Senders:
    """Each process's requests in order; one that is not acknowledged is sent again, and one in five that is, too."""

    def __init__(self, fleet: Fleet) -> None:
        self.url = ""
        self.acknowledged = 0
        self.stop = False
        self._lock = threading.Lock()
        self._left = list(reversed(fleet.sent))
        self._again: list[tuple[str, bytes]] = []
        self._chance = random.Random(1)
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(6)]
        for thread in self.threads:
            thread.start()

    def _run(self) -> None:
        while not self.stop:
            with self._lock:
                if self._again:
                    signal_name, body = self._again.pop()
                elif self._left:
                    sent = self._left.pop()
                    signal_name, body = sent.signal, sent.body
                else:
                    return
            if self._send(signal_name, body):
                with self._lock:
                    self.acknowledged += 1
                    if self._chance.random() < 0.2:
                        self._again.append((signal_name, body))
            else:
                with self._lock:
                    self._again.append((signal_name, body))
                time.sleep(0.05)

    def _send(self, signal_name: str, body: bytes) -> bool:
        parts = urllib.parse.urlsplit(self.url)
        try:
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
            connection.request("POST", f"/v1/{signal_name}", body, {"Content-Type": "application/x-protobuf"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


class Door:
    """An address that stays while the collector behind it is killed and comes back elsewhere."""

    def __init__(self) -> None:
        self.behind = ""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            try:
                parts = urllib.parse.urlsplit(self.behind)
                goes = socket.create_connection((parts.hostname or "", parts.port or 0))
            except OSError:
                came.close()
                continue
            for source, target in ((came, goes), (goes, came)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def close(self) -> None:
        self._listener.close()


class Agents:
    """Processes that report through a spool they share; one of them is killed and another takes its place."""

    def __init__(self, url: str, folder: Path, count: int = 3) -> None:
        self._url = url
        self._spool, self._journal = folder / "spool", folder / "journal"
        for made in (self._spool, self._journal):
            made.mkdir()
        self.running = [self._start(f"host-{i}") for i in range(count)]
        self.killed = 0

    def _start(self, name: str, *last: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.fleet.killed_agent", self._url, str(self._spool), str(self._journal), name, *last]
        return subprocess.Popen(command, cwd=ROOT)

    def kill(self, which: int) -> None:
        self.running[which].send_signal(signal.SIGKILL)
        self.running[which].wait()
        self.killed += 1
        self.running[which] = self._start(f"host-{which}")

    def end(self) -> None:
        """Everything spooled is delivered."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            assert process.wait(900) in (0, -signal.SIGTERM)  # the latter: before it had begun
        assert self._start("host-last", "last").wait(900) == 0

    def spooled(self) -> dict[str, tuple[int, set[int]]]:
        """Of each process: (calls in batches surely spooled, what the last batch may add: it was killed before it knew)."""
        found = {}
        for path in self._journal.iterdir():
            lines = path.read_text().split()
            surely = sum(int(line[:-1]) for line in lines if line.endswith("!"))
            open_ended = [int(line[:-1]) for line in lines[-1:] if line.endswith("?")]
            found[path.name] = (surely, {0, *open_ended})
        return found


def test_killed_under_load(tmp_path: Path) -> None:
    fleet = simulated(hosts=20, minutes=3 + ROUNDS / 3, calls=10)
    chance, started = random.Random(7), time.monotonic()
    process = start_collector(tmp_path / "store", *FOR_EVER)
    senders, door = Senders(fleet), Door()
    senders.url = door.behind = wait_ready(process)
    agents = Agents(door.url, tmp_path)
    kills = under_load = 0
    for _ in range(ROUNDS):
        time.sleep(chance.uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        under_load += any(thread.is_alive() for thread in senders.threads)
        if chance.random() < 0.7:  # before the collector is back, or after
            agents.kill(chance.randrange(len(agents.running)))
        process = start_collector(tmp_path / "store", *FOR_EVER)
        senders.url = door.behind = wait_ready(process)
        while agents.killed < kills:
            agents.kill(chance.randrange(len(agents.running)))
    for thread in senders.threads:
        thread.join(600)
        assert not thread.is_alive()
    agents.end()
    collector = connect(senders.url)
    found = collector.top(by=("operator", "model", "host"), start=fleet.plan.start_s, end=fleet.end_s, limit=10_000).to_pylist()
    reported = collector.top(by="instance", start="-3h", end=time.time() + 60, where="service=killed", limit=10_000).to_pylist()
    damaged = collector.info()["figures"]["store_damaged_segments"]
    process.terminate()
    assert process.wait(600) in (0, -signal.SIGTERM)
    door.close()
    wanted = {k: t for k, t in fleet.truth.by("operator", "model", "host").items() if t.count}
    assert {(r["operator"], r["model"], r["host"]): (r["count"], r["total_ns"]) for r in found} == {
        k: (t.count, t.total_ns) for k, t in wanted.items()
    }
    assert kills == agents.killed == ROUNDS and damaged == 0 and senders.acknowledged >= len(fleet.sent)
    counted, spooled = {r["instance"]: r["count"] for r in reported}, agents.spooled()
    assert not set(counted) - set(spooled)
    for instance, (surely, more) in spooled.items():
        assert counted.get(instance, 0) - surely in more, (instance, counted.get(instance, 0), surely, more)
    assert len(counted) > 1 and under_load
    figures = {
        "collector_kills": kills, "under_load": under_load, "agent_kills": agents.killed, "requests": len(fleet.sent), "acknowledged": senders.acknowledged,
        "agents": len(spooled), "calls": sum(surely for surely, _ in spooled.values()), "seconds": round(time.monotonic() - started),
    }  # fmt: skip
    print(json.dumps(figures))
    if os.environ.get("SEALIFT_TEST_FLEET_FIGURES"):
        Path(os.environ["SEALIFT_TEST_FLEET_FIGURES"]).write_text(json.dumps(figures))
