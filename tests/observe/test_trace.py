"""A trace on demand: all operators of a time, of all threads, whatever the recorder samples besides."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sealift import _runtime, observe
from sealift.errors import ArgumentError, BusyError
from tests.observe.trace_format import checked_trace

pytestmark = pytest.mark.usefixtures("torch_observed")


def test_every_operator_of_every_thread(tmp_path: Path) -> None:
    """Work that begins and ends inside the trace, so that it is known what must be in it."""
    import sealift

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x = torch.randn(3, 8)
    loaded = sealift.load(sealift.compile(model, tmp_path / "m.pt2", args=(x,)))
    observe.start(sampling_prob=1e-4, duty_cycle=0.001, budget=0, burst_duty_cycle=0)
    tids: list[int] = []

    def work() -> None:
        tids.append(threading.get_native_id())
        began.wait(60)
        with observe.debug_info(model_id="mlp:1", request='say "7"\n'):
            for _ in range(20):
                torch.nn.functional.layer_norm(x, (8,))
                loaded(x)

    began, info = threading.Event(), list[observe.Traced]()
    threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(3)]
    for thread in threads:
        thread.start()
    recording = threading.Thread(target=lambda: info.append(observe.trace(tmp_path / "t.json", 4)))
    recording.start()
    while recording.is_alive() and _runtime.recorder_state()["samples"] < 5:  # of the trace: all others are drawn too rarely
        torch.sin(x)
    began.set()
    for thread in threads:
        thread.join()
    recording.join()
    data = (tmp_path / "t.json").read_bytes()
    events = checked_trace(data)
    assert info[0].lost == 0 and info[0].calls == len(events)
    for tid in tids:
        count = Counter(e["name"] for e in events if e["tid"] == tid)
        assert count["aten::layer_norm"] == count["aten::native_layer_norm"] == 20
        assert all(count[k.name] == 20 for k in loaded.kernels)
        assert all(e["args"]["request"] == 'say "7"\n' and e["args"]["model_id"] == "mlp:1" for e in events if e["tid"] == tid)
    kernel = next(e for e in events if e["name"] == loaded.kernels[0].name)
    assert kernel["cat"] == "sealift,kernel" and "aten." in kernel["args"]["origin"]
    names = {e["args"]["name"].rpartition(" ")[0] for e in json.loads(data)["traceEvents"] if e["name"] == "thread_name"}
    assert "MainThread" in names
    assert sum(s.samples for s in observe.stop().series) < 60  # the recorder's own numbers know nothing of it


def test_what_is_more_than_there_is_room_for_is_counted(tmp_path: Path) -> None:
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            torch.sin(torch.ones(2))

    thread = threading.Thread(target=work)
    thread.start()
    traced = observe.trace(tmp_path / "t.json.gz", 1, max_calls=50)
    stop.set()
    thread.join()
    assert traced.calls == 50 and traced.lost > 0
    data = gzip.decompress((tmp_path / "t.json.gz").read_bytes())
    assert len(checked_trace(data)) == 50 and json.loads(data)["otherData"]["lost"] == traced.lost
    sampling = observe.stop().sampling
    assert sampling.overhead > 0


def test_the_recorder_must_run(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="does not run"):
        observe.trace(tmp_path / "t.json", 0.1)
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    assert observe.trace(tmp_path / "t.json", 0) is not None
    _runtime.begin_trace(10)
    with pytest.raises(BusyError, match="under way"):
        _runtime.begin_trace(10)
    _runtime.end_trace()
    with pytest.raises(BusyError, match="not freed"):
        _runtime.begin_trace(10)
    _runtime.free_trace()


def test_stopping_and_forking_inside_a_trace(run_python: Callable[..., str], tmp_path: Path) -> None:
    out = run_python(f"""
import os, threading, torch
from sealift import _runtime, observe
observe.start(1e-6, 0.001, budget=0, burst_duty_cycle=0)
done = []
thread = threading.Thread(target=lambda: done.append(observe.trace({str(tmp_path / "t.json")!r}, 2.0)))
thread.start()
x = torch.ones(2)
while thread.is_alive() and _runtime.recorder_state()['samples'] < 5: torch.sin(x)
pid = os.fork()
if pid == 0:
    torch.sin(x)
    observe.trace({str(tmp_path / "child.json")!r}, 0.01)  # the parent's trace is not the child's
    os._exit(0)
print(os.waitpid(pid, 0)[1])
observe.stop()
thread.join()
observe.start(1, 1, budget=0, burst_duty_cycle=0)
print(done[0].calls > 0)
""")
    assert out.split() == ["0", "True"]
    checked_trace((tmp_path / "t.json").read_bytes())
