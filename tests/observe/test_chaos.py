"""What goes wrong in a fleet: the process and its results are unaffected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_two_hundred_threads(run_python: Callable[..., str]) -> None:
    out = run_python("""
import threading, torch
from sealift import observe
torch.set_num_threads(1)
observe.start(1, 1, budget=0, burst_duty_cycle=0)
x, start = torch.ones(4), threading.Barrier(200)
wrong = []
def work():
    start.wait()
    for _ in range(50):
        if not torch.equal(torch.add(x, x), x * 2): wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(200)]
for t in threads: t.start()
for t in threads: t.join()
series = {s.operator: s for s in observe.stop().series}
print(len(wrong), series["aten::add"].count, series["aten::add"].histogram.count)
""")
    assert out.split() == ["0", "10000", "10000"]


def test_forks_while_threads_run_operators(run_python: Callable[..., str]) -> None:
    out = run_python("""
import os, threading, torch
from sealift import observe
torch.set_num_threads(1)
observe.start(0.5, 0.5, budget=0.003)
observe.add_global_callback(lambda r: None, sampling_prob=0.2)
x, stop = torch.ones(4), False
def work():
    while not stop: torch.add(x, x)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
codes = []
for i in range(40):
    pid = os.fork()
    if pid == 0:
        ok = torch.equal(torch.add(x, x), x * 2)
        observe.snapshot()
        os._exit(0 if ok else 1)
    codes.append(os.waitpid(pid, 0)[1])
stop = True
for t in threads: t.join()
print(sum(codes), observe.stop().total_ns > 0)
""")
    assert out.split() == ["0", "True"]


def test_multiprocessing(run_python: Callable[..., str], tmp_path: Path) -> None:
    program = tmp_path / "workers.py"
    program.write_text("""
import multiprocessing, sys, torch
from sealift import observe
def work(n):
    if not observe.is_running(): observe.start(1, 1, budget=0, burst_duty_cycle=0)
    torch.sin(torch.ones(n))
    return {s.operator: s.count for s in observe.snapshot().series}["aten::sin"]
if __name__ == "__main__":
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    torch.sin(torch.ones(1))
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool: print(pool.map(work, [2, 3]))
""")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["[1, 2]", "[1, 2]"]


def test_killed_at_any_moment(bridge: Path) -> None:
    """Nothing on disk is left half-written, and the next process starts as ever."""
    program = (
        "import torch\nfrom sealift import observe\nobserve.start(1, 1, budget=0)\nprint('up', flush=True)\nwhile True: torch.sin(torch.ones(3))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert sorted(os.listdir(bridge)) == ["libsealift_torch_api_usage.so", "libsealift_torch_bridge.so"]


def test_a_program_that_ends_while_recording(run_python: Callable[..., str]) -> None:
    for ending in ("", "import os; os._exit(0)"):
        assert "fine" in run_python(
            f"import torch\nfrom sealift import observe\nobserve.start()\ntorch.sin(torch.ones(3))\nprint('fine', flush=True)\n{ending}"
        )
