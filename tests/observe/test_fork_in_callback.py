"""fork() called by a callback, while other threads add and remove others and the recorder's windows come and go: neither process hangs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

PROGRAM = """
import os, signal, sys, threading, time
kind, place = sys.argv[1:3]
import torch
torch.set_num_threads(1)
from sealift import observe
observe.start(1, 0.5, budget=0)
codes, stop = [], threading.Event()

def fork(record):
    if len(codes) >= 15 or threading.current_thread() is not threading.main_thread():
        return
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a child that hangs is killed, and its status says so
        codes.append(None)
        global child
        child = True
        return
    codes.append(os.waitpid(pid, 0)[1])

child = False
x = torch.ones(4)
if kind == "kernel":
    import sealift
    model = sealift.load(sys.argv[3], num_threads=1)
    inputs = torch.ones(2, 3)
    run = lambda: model(inputs)
else:
    run = lambda: torch.add(x, x)
handle = observe.add_global_callback(**{place: fork}, scopes=["function", "kernel"])

def churn():
    while not stop.is_set():
        with observe.add_global_callback(lambda r: None, sampling_prob=0.5):
            observe.adjust(duty_cycle=0.4)
            observe.snapshot()

threads = [threading.Thread(target=churn, daemon=True) for _ in range(2)]
for t in threads: t.start()
before = run()
while len(codes) < 15 and not child:
    out = run()
if child:
    handle.remove()
    ok = all(torch.equal(run(), before) for _ in range(50))
    with observe.add_global_callback(lambda r: None):
        run()
    observe.adjust(sampling_prob=1, duty_cycle=1)
    run()
    ok = ok and any(s.samples for s in observe.stop().series)
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    run()
    os._exit(0 if ok and observe.stop().series else 3)
stop.set()
for t in threads: t.join()
handle.remove()
print(codes.count(0), len(codes))
"""


@pytest.mark.parametrize("place", ["on_enter", "on_exit"])
@pytest.mark.parametrize("kind", ["torch", "kernel"])
def test_fork_in_a_callback(run_python: Callable[..., str], kind: str, place: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    arguments = [kind, place]
    if kind == "kernel":
        import torch

        import sealift

        path = tmp_path_factory.mktemp("model") / "m.pt2"
        sealift.compile(torch.nn.Linear(3, 3), path, args=(torch.ones(2, 3),))
        arguments.append(str(path))
    assert run_python("import warnings; warnings.simplefilter('ignore')\n" + PROGRAM, *arguments).split() == ["15", "15"]
