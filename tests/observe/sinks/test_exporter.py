"""The exporter never breaks the program: sinks that raise, hang or refuse, full queues, forks, the end of the process."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sealift.observe.sinks import Delivery, Exporter, SinkError, SinkLibraryError
from sealift.observe.sinks.json_lines import JsonLinesSink, read_json_lines
from sealift.observe.snapshot import Process, Snapshot, merged
from tests.observe.sinks.otlp_receiver import wait_until
from tests.observe.sinks.samples import PROCESS, delta, series

FAST = Delivery(first_retry_s=0.01, last_retry_s=0.05, exit_deadline_s=1.0)


class Program:
    """Stands for a recorder: what it recorded only grows."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.process = PROCESS

    def snapshot(self) -> Snapshot:
        rows = (series("aten::mm", self.calls),) if self.calls else ()
        return Snapshot(100, 100 + len(self.calls), rows, process=self.process)


class Kept:
    """A sink that keeps what it gets; `fail` decides about each write."""

    def __init__(self, fail: object = None) -> None:
        self.got: list[Snapshot] = []
        self.tried: list[Snapshot] = []
        self.closed = False
        self.fail = fail

    def write(self, batch: Snapshot) -> None:
        self.tried.append(batch)
        if callable(self.fail):
            self.fail(len(self.tried))
        self.got.append(batch)

    def close(self) -> None:
        self.closed = True


def test_deltas_add_up_to_the_whole() -> None:
    program, sink = Program(), Kept()
    exporter = Exporter(program.snapshot, {"kept": lambda: sink}, 0.02, FAST).start()
    for i in range(50):
        program.calls.append(i + 1)
        time.sleep(0.002)
    exporter.close()
    total = merged(sink.got)
    assert total is not None and total.series == program.snapshot().series
    assert len([g for g in sink.got if g.series]) > 1
    assert sink.closed
    assert exporter.status[0].lost_batches == 0
    assert exporter.close() == exporter.status  # a second time changes nothing


def test_a_failed_write_is_tried_again_with_the_same_batch() -> None:
    def fail(count: int) -> None:
        if count < 4:
            raise ConnectionError("down")

    sink = Kept(fail)
    exporter = Exporter(Program().snapshot, {"kept": lambda: sink}, 60, FAST).start()
    exporter.put(delta())
    assert exporter.flush(10)
    assert len(sink.tried) == 4 and all(t is sink.tried[0] for t in sink.tried)
    assert (exporter.status[0].written, exporter.status[0].retries, exporter.status[0].last_error) == (1, 3, "")
    exporter.close(final_tick=False)


def test_a_refusal_is_counted_and_told_to_the_sink_later() -> None:
    def fail(count: int) -> None:
        if count == 1:
            raise SinkError("no")

    sink = Kept(fail)
    exporter = Exporter(Program().snapshot, {"kept": lambda: sink}, 60, FAST).start()
    exporter.put(delta(0))
    exporter.put(delta(1))
    assert exporter.flush(10)
    lost = sum(s.samples for s in delta(0).series)
    assert (exporter.status[0].lost_batches, exporter.status[0].lost_samples) == (1, lost)
    assert sink.got[0].dropped == delta(1).dropped + lost
    assert f"lost 1 batches with {lost} samples" in str(exporter.status[0])
    exporter.close(final_tick=False)


def test_an_interval_without_events_is_no_loss() -> None:
    def fail(count: int) -> None:
        raise SinkError("no")

    exporter = Exporter(Program().snapshot, {"kept": lambda: Kept(fail)}, 60, FAST).start()
    exporter.put(Snapshot(0, 1))
    assert exporter.flush(10)
    assert exporter.status[0].lost_batches == 0
    exporter.close(final_tick=False)


def test_a_missing_library_disables_one_sink_only(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> Kept:
        raise SinkLibraryError("sink 'x' needs y; help: pip install 'sealift[observe]'")

    sink = Kept()
    exporter = Exporter(Program().snapshot, {"x": missing, "kept": lambda: sink}, 60, FAST).start()
    for i in range(3):
        exporter.put(delta(i))
    assert exporter.flush(10)
    assert len(sink.got) == 3
    assert exporter.status[0].lost_batches == 3
    assert [r.message for r in caplog.records if "sealift[observe]" in r.message] == [
        "sink x: [E-SINK-001] sink 'x' needs y; help: pip install 'sealift[observe]'"
    ]
    exporter.close(final_tick=False)


def test_a_hanging_sink_holds_up_neither_the_others_nor_the_program() -> None:
    forever = threading.Event()
    hung, sink = Kept(lambda count: forever.wait()), Kept()
    exporter = Exporter(Program().snapshot, {"hung": lambda: hung, "kept": lambda: sink}, 60, replace(FAST, queue_batches=4)).start()
    start = time.monotonic()
    for i in range(100):
        exporter.put(delta(i))
    assert time.monotonic() - start < 2
    assert wait_until(lambda: sum(s.samples for b in sink.got for s in b.series) == 100 * 7)
    start = time.monotonic()
    status = exporter.close(0.3, final_tick=False)
    assert time.monotonic() - start < 3
    assert status[0].lost_samples == 100 * 7 and status[0].lost_batches <= 5
    assert status[1].lost_samples == 0
    forever.set()


def test_a_full_queue_adds_batches_together() -> None:
    gate = threading.Event()
    sink = Kept(lambda count: gate.wait())
    exporter = Exporter(Program().snapshot, {"kept": lambda: sink}, 60, replace(FAST, queue_batches=2, queue_events=10)).start()
    other = Process(2, "host-b", "other")
    for i in range(20):
        exporter.put(delta(i))
    exporter.put(delta(0, other))
    gate.set()
    assert exporter.flush(10)
    by_process = {start_id: merged([b for b in sink.got if b.process.start_id == start_id]) for start_id in ("other", PROCESS.start_id)}
    mine = by_process[PROCESS.start_id]
    assert mine is not None and len(sink.got) <= 4
    status = exporter.status[0]
    samples = sum(s.samples for b in sink.got for s in b.series)
    assert samples + status.lost_samples == 21 * 7  # nothing vanished uncounted
    assert sum(len(b.events) for b in sink.got) + status.lost_events == 42
    exporter.close(final_tick=False)


def test_no_snapshot_is_no_accident(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Snapshot:
        raise RuntimeError("recorder gone")

    exporter = Exporter(broken, {"kept": Kept}, 60, FAST).start()
    exporter.tick()
    exporter.close()
    assert "no snapshot could be taken" in caplog.text


def test_a_sink_whose_close_raises() -> None:
    class Bad(Kept):
        def close(self) -> None:
            raise OSError("bad close")

    exporter = Exporter(Program().snapshot, {"bad": Bad}, 60, FAST).start()
    assert exporter.close()[0].last_error == "bad close"


FORKING = """
import os, sys, time, multiprocessing
from tests.observe.sinks.test_exporter import Program, FAST
from sealift.observe.snapshot import Process
from sealift.observe.sinks import Exporter
from sealift.observe.sinks.json_lines import JsonLinesSink
program = Program()
program.process = Process(os.getpid(), "h", "parent")
exporter = Exporter(program.snapshot, {"json": lambda: JsonLinesSink(sys.argv[1] + "/{id}.jsonl")}, 0.01, FAST).start()
program.calls += [1, 2, 3]
time.sleep(0.1)
def child(number):
    program.process = Process(os.getpid(), "h", f"child{number}")  # what a recorder does after fork
    program.calls = [number + 1]
    if number % 2:
        time.sleep(0.05)
workers = [multiprocessing.get_context("fork").Process(target=child, args=(i,)) for i in range(8)]
for w in workers: w.start()
for w in workers: w.join(30)
print([w.exitcode for w in workers])
"""


def test_forked_children_report_for_themselves(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path)], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([0] * 8), done.stderr
    for i in range(8):
        total = merged(read_json_lines(tmp_path / f"child{i}.jsonl"))
        assert total is not None and total.series == (series("aten::mm", [i + 1]),)
    total = merged(read_json_lines(tmp_path / "parent.jsonl"))
    assert total is not None and total.series == (series("aten::mm", [1, 2, 3]),)


ENDING = """
import sys, time, os, signal
from tests.observe.sinks.test_exporter import Program, FAST, Kept
from sealift.observe.sinks import Exporter
from sealift.observe.sinks.json_lines import JsonLinesSink
program = Program()
def hang(count): time.sleep(1000)
sinks = {"json": lambda: JsonLinesSink(sys.argv[1])}
if sys.argv[2] == "hang": sinks["hung"] = lambda: Kept(hang)
exporter = Exporter(program.snapshot, sinks, 0.02 if sys.argv[2] == "kill" else 60, FAST).start()
program.calls += [1, 2, 3]
if sys.argv[2] == "kill":
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "raise": raise SystemExit(7)
"""


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("raise", 7), ("hang", 0), ("kill", -9)])
def test_the_end_of_the_process(tmp_path: Path, how: str, code: int) -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(tmp_path / "a.jsonl"), how], capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == code, done.stderr
    assert time.monotonic() - start < 30
    total = merged(read_json_lines(tmp_path / "a.jsonl"))
    assert total is not None and total.series == (series("aten::mm", [1, 2, 3]),)
    assert ("hung: 0 batches written, lost 1 batches with 3 samples" in done.stderr) == (how == "hang")


def test_multiprocessing_is_not_imported_for_nothing() -> None:
    code = (
        "import sys, sealift.observe.sinks; print([m for m in ('multiprocessing', 'torch', 'rich', 'pyarrow', 'opentelemetry') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_200_threads_and_a_storm_of_forks(tmp_path: Path) -> None:
    """Forks while 200 threads queue batches: every child still reports."""
    path = tmp_path / "{id}.jsonl"
    program = Program()
    exporter = Exporter(program.snapshot, {"json": lambda: JsonLinesSink(path)}, 0.01, FAST).start()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            exporter.tick()
            time.sleep(0.01)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(200)]
    for t in threads:
        t.start()
    context = multiprocessing.get_context("fork")

    def child(number: int) -> None:
        program.process = Process(os.getpid(), "h", f"c{number}")
        program.calls = [5]

    workers = [context.Process(target=child, args=(i,)) for i in range(20)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(60)
    stop.set()
    for t in threads:
        t.join(10)
    assert [w.exitcode for w in workers] == [0] * 20
    exporter.close()
    for i in range(20):
        assert merged(read_json_lines(tmp_path / f"c{i}.jsonl")) is not None, json.dumps(os.listdir(tmp_path))
