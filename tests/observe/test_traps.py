"""PyTorch's hooks have traps. One test for each, which fails where it is stepped into."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sealift import observe
from sealift.observe import bridge as bridges

ROOT = Path(__file__).resolve().parents[2]
X = torch.ones(1)
PLACES = """
import torch
from sealift import observe
places = []
x = torch.ones(1)
with observe.add_global_callback(lambda r: places.append(i), sampling_prob=0.01):
    for i in range(3000): torch.sin(x)
print(*places)
"""


def test_two_processes_draw_different_places(run_python: Callable[..., str]) -> None:
    """PyTorch seeds every thread's generator alike: 14, 194, 540 ... in each process of a fleet."""
    first, second = (set(run_python(PLACES).split()) for _ in range(2))
    assert len(first) > 5 and len(second) > 5
    assert len(first & second) < 4


@pytest.mark.usefixtures("torch_observed")
def test_two_threads_draw_different_places() -> None:
    places: dict[int, list[int]] = {}

    def on_enter(record: observe.Record) -> None:
        places.setdefault(threading.get_ident(), []).append(count[threading.get_ident()])

    count: dict[int, int] = {}

    def work() -> None:
        for i in range(4000):
            count[threading.get_ident()] = i
            torch.sin(X)
        barrier.wait()  # no thread's number is used again

    barrier = threading.Barrier(3)
    with observe.add_global_callback(on_enter, sampling_prob=0.01):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    drawn = [set(p) for p in places.values()]
    assert len(drawn) == 3 and all(len(d) > 10 for d in drawn)
    assert all(len(a & b) < 8 for i, a in enumerate(drawn) for b in drawn[:i])


def test_forked_children_draw_different_places_and_start_empty(run_python: Callable[..., str]) -> None:
    """A child has the parent's generator, tables and callbacks."""
    out = run_python("""
import os, torch
from sealift import observe
x = torch.ones(1)
places = []
observe.add_global_callback(lambda r: places.append(i), sampling_prob=0.02)
observe.start(1, 1, budget=0, burst_duty_cycle=0)
for i in range(500): torch.sin(x)
parent = observe.snapshot()
for _ in range(3):
    if os.fork() == 0:
        places.clear()
        before = observe.snapshot()
        for i in range(2000): torch.cos(x)
        now = observe.snapshot()
        ops = {s.operator: s.count for s in now.series}
        print(len(before.series), ops.get("aten::sin", 0), ops["aten::cos"], now.process.start_id != parent.process.start_id, now.process.pid == os.getpid(), *places, flush=True)
        os._exit(0)
    os.wait()
print("parent", {s.operator: s.count for s in observe.stop().series}["aten::sin"])
""")
    lines = [line.split() for line in out.splitlines()]
    children = [line for line in lines if line[0] != "parent"]
    assert ["parent", "500"] in lines and len(children) == 3
    assert all(c[:5] == ["0", "0", "2000", "True", "True"] for c in children)
    drawn = [set(c[5:]) for c in children]
    assert all(len(d) > 10 for d in drawn)
    assert all(len(a & b) < 10 for i, a in enumerate(drawn) for b in drawn[:i])


@pytest.mark.usefixtures("torch_observed")
def test_operators_are_seen_however_they_run() -> None:
    @torch.jit.script
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)

    def in_a_thread() -> None:
        for _ in range(5):
            torch.log1p(X)

    w = torch.ones(1, requires_grad=True)
    for _ in range(3):
        scripted(X)  # the first calls of a script are profiled and optimized, on other operators
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    for _ in range(5):
        torch.sin(X)
        scripted(X)
        with torch.inference_mode():
            torch.tan(X)
        with torch.no_grad():
            torch.exp(X)
        w.sigmoid().backward()
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    counts = {s.operator: s.count for s in observe.stop().series}
    names = ("sin", "cos", "tan", "exp", "sigmoid", "sigmoid_backward", "log1p")
    assert {n: counts.get(f"aten::{n}") for n in names} == dict.fromkeys(names, 5)
    assert counts["autograd::engine::evaluate_function: SigmoidBackward0"] == 5


SLOW_HOOKS = """
import ctypes, sys, time, torch
from sealift import _runtime, observe
observe.start(1, 1, budget=0, burst_duty_cycle=0)
x = torch.ones(4, 4)
if sys.argv[1] == "recorder":  # whose hooks ask for the debug info of each operator
    with observe.debug_info(a=1): pass
    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32))
    def slow(is_set):
        time.sleep(0.02)
        is_set[0] = 1
    ctypes.CDLL(_runtime.__file__).sealift_set_info_provider(slow)
else:
    observe.add_global_callback(**{sys.argv[1]: lambda record: time.sleep(0.02)})
for _ in range(15): torch.nn.functional.layer_norm(x, (4,))
snapshot = observe.stop()
ctypes.CDLL(_runtime.__file__).sealift_set_info_provider(None)
series = {s.operator: s for s in snapshot.series}
print(*(series[f"aten::{n}layer_norm"].histogram.quantile(0.1) for n in ("", "native_")), snapshot.sampling.overhead)
"""


@pytest.mark.parametrize("whose", ["recorder", "on_enter", "on_exit"])
def test_what_listeners_take_is_no_operators_time(run_python: Callable[..., str], whose: str) -> None:
    """20 ms in each hook of the operators inside: no part of the time of the one around them, which takes microseconds. And of a hook that waits,
    the recorder counts 5 us as its cost at most: the rest is the machine's."""
    outer_ns, inner_ns, overhead = map(float, run_python(SLOW_HOOKS, whose).split())
    assert inner_ns < 10e6 and outer_ns < 10e6  # of the quickest: others use the machine, too
    assert 0 < overhead < 0.5  # of 15 ms or so of processor time; 20 ms for each would be 60 times as much


@pytest.mark.usefixtures("torch_observed")
def test_fake_tensors_and_compilation_are_no_work() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    seen: list[tuple[str, str]] = []
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.ReLU())
    with observe.add_global_callback(lambda r: seen.append((r.name, repr(r.inputs))), needs_inputs=True):
        with FakeTensorMode() as mode:
            a = torch.empty(4, 4)
            torch.nn.functional.layer_norm(a @ a, (4,))
            mode.from_tensor(X)
        assert seen == []
        torch.export.export(model, (torch.ones(2, 4),))
    assert not [s for s in seen if "meta" in s[1]]
    assert not {n for n, _ in seen} & {"aten::linear", "aten::addmm", "aten::layer_norm", "aten::native_layer_norm", "aten::relu"}


@pytest.mark.usefixtures("torch_observed")
def test_other_modes_are_work() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    seen: list[str] = []
    with observe.add_global_callback(lambda r: seen.append(r.name)), FlopCounterMode(display=False):
        torch.mm(torch.ones(2, 2), torch.ones(2, 2))
    assert "aten::mm" in seen


@pytest.mark.usefixtures("torch_observed")
def test_by_default_one_scope_alone_is_registered() -> None:
    """Each autograd node rebuilds what is registered for every scope: that, not the sampling, is what costs in training."""
    w = torch.ones(3, requires_grad=True)
    observe.start(1, 1, budget=0)
    w.sin().sum().backward()
    assert {s.scope for s in observe.stop().series} == {"function"}


def test_the_bridge_is_built_as_torch_is() -> None:
    """Without NDEBUG the headers describe a RecordFunction with one more member, and inputs() throws at every event."""
    assert "-DNDEBUG" in bridges._FLAGS
    source = (ROOT / "torch_bridge" / "bridge.cpp").read_text()
    assert re.search(r"#ifndef NDEBUG\n#error", source)


@pytest.mark.usefixtures("torch_observed")
def test_inputs_are_asked_for_only_inside_windows() -> None:
    """One callback that needs inputs makes every operator that any callback sees pack its own: the recorder with shapes must not do that to
    others while it does not listen. (A sampled observer with inputs does; its documentation says so.)"""
    observe.start(sampling_prob=1, duty_cycle=0.001, budget=0, burst_duty_cycle=0, needs_inputs=True)
    library = observe.install_torch()
    with observe.add_global_callback(lambda r: None, scopes=["user_scope"]):
        library.sealift_torch_bridge_time_adds(200_000)
    adds = sum(s.samples for s in observe.stop().series if s.operator == "aten::add")
    assert adds < 60_000  # not registered for most of the time


@pytest.mark.usefixtures("torch_observed")
def test_the_default_is_one_build_for_each_torch_and_abi(tmp_path: Path) -> None:
    """record_function.h is in no stable ABI."""
    installed = bridges.find_torch()
    assert installed is not None and installed.version == torch.__version__ and installed.cxx11_abi == torch.compiled_with_cxx11_abi()
    other = bridges.Torch(installed.directory, "2.12.0+cpu", installed.cxx11_abi)
    third = bridges.Torch(installed.directory, installed.version, not installed.cxx11_abi)
    assert len({bridges.find_bridge(t, tmp_path).directory for t in (installed, other, third)}) == 3
