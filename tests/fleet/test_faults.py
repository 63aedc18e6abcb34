"""kill -9 of the collector's process at random moments under load: nothing acknowledged is lost, nothing is counted twice.

`make fleet-faults` does it 100 times; `make test` does it three times."""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
import urllib.parse
from pathlib import Path

from sealift.fleet import connect
from sealift.fleet.drive import start_collector, wait_ready
from tests.fleet.conftest import Fleet, simulated

FOR_EVER = ("--keep-10s", "0", "--keep-60s", "0", "--keep-3600s", "0")
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


def test_killed_under_load(tmp_path: Path) -> None:
    fleet = simulated(hosts=20, minutes=4 + ROUNDS / 2, calls=10)
    chance = random.Random(7)
    process = start_collector(tmp_path / "store", *FOR_EVER)
    senders = Senders(fleet)
    senders.url = wait_ready(process)
    kills = 0
    for _ in range(ROUNDS):
        time.sleep(chance.uniform(0.05, 0.6))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        process = start_collector(tmp_path / "store", *FOR_EVER)
        senders.url = wait_ready(process)
    for thread in senders.threads:
        thread.join(600)
        assert not thread.is_alive()
    found = connect(senders.url).top(by=("operator", "model", "host"), start=fleet.plan.start_s, end=fleet.end_s, limit=10_000).to_pylist()
    damaged = connect(senders.url).info()["figures"]["store_damaged_segments"]
    process.terminate()
    assert process.wait(30) in (0, -signal.SIGTERM)
    wanted = {k: t for k, t in fleet.truth.by("operator", "model", "host").items() if t.count}
    assert {(r["operator"], r["model"], r["host"]): (r["count"], r["total_ns"]) for r in found} == {
        k: (t.count, t.total_ns) for k, t in wanted.items()
    }
    assert kills == ROUNDS and damaged == 0 and senders.acknowledged >= len(fleet.sent)
    print(f"killed {kills} times; {senders.acknowledged} acknowledgements of {len(fleet.sent)} requests; every number as sent")
