"""A process whose agent is about to be killed: python -m tests.fleet.killed_agent URL SPOOL JOURNAL NAME [last]

It spools about ten batches a second and writes of each to its journal: "N?" before, "N!" once it is spooled. N is the batch's count of calls, a
random number, so that a batch lost cannot make up for one counted twice. On SIGTERM it delivers what it has and ends. `last`: one batch, and it
ends when nothing of any process waits in the spool."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from sealift.fleet import agent
from sealift.observe.snapshot import Histogram, Process, Sampling, Series, Snapshot


def batch(instance: str, name: str, calls: int) -> Snapshot:
    histogram = Histogram.of([1000], weight=calls)
    series = Series("aten::mm", model_id="m", count=calls, samples=1, total_ns=1000 * calls, self_ns=1000 * calls, histogram=histogram)
    now = time.time_ns()
    return Snapshot(
        now - 10**10, now, (series,), dropped=0, sampling=Sampling(overhead=0.0), process=Process(pid=os.getpid(), host=name, start_id=instance)
    )


def main(url: str, spool: Path, journal: Path, name: str, is_last: bool) -> None:
    agent._FAR_APART_S = 0.3
    instance = f"{name}-{os.getpid()}-{time.time_ns()}"
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    sink = agent.FleetSink(url, spool=spool, attributes={"service.name": "killed"}, timeout_s=20)
    with open(journal / instance, "a") as file:
        while not stopping:
            calls = random.randrange(1, 1 << 30)
            print(f"{calls}?", file=file, flush=True)
            sink.write(batch(instance, name, calls))
            print(f"{calls}!", file=file, flush=True)
            time.sleep(0.1)
            if is_last:
                while any(spool.glob("*/*.metrics")):
                    time.sleep(0.1)
                break
    sink.close(300)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:] == ["last"])
