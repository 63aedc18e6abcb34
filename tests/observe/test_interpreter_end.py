"""Daemon threads that are inside Sealift when the interpreter ends: Python ends them where they ask for its lock, and the process with its own answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sealift.pipeline import compile

PROGRAM = """
import sys, threading, time
import numpy
from sealift import load, observe
model = load(sys.argv[1])
x = numpy.ones((1, 8), numpy.float32)
expected = model(x)
work = {{
    "calls": lambda: model(numpy.ones((40_000, 8), numpy.float32)),  # long enough that it runs without the lock
    "snapshots": observe.snapshot,
    "steps": observe.step,
}}["{what}"]
observe.start(sampling_prob=1, duty_cycle=1, budget=0)
began = threading.Semaphore(0)
def run():
    began.release()
    while True:
        work()
for _ in range(6):
    threading.Thread(target=run, daemon=True).start()
for _ in range(6):
    began.acquire()
time.sleep(0.02)
assert (model(x) == expected).all()
print("done")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    batch = torch.export.Dim("batch", max=100_000)
    program = torch.export.export(torch.nn.Linear(8, 16), (torch.ones(4, 8),), dynamic_shapes=({0: batch},))
    return compile(program, tmp_path_factory.mktemp("model") / "linear.pt2")


@pytest.mark.parametrize("what", ["calls", "snapshots", "steps"])
def test_daemon_threads_do_not_end_the_process(package: Path, what: str) -> None:
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", PROGRAM.format(what=what), str(package)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
