"""Python callbacks: what a record says, who sees what, and that a callback never breaks the model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sealift import observe
from sealift.errors import ArgumentError, OutOfMemoryError

pytestmark = pytest.mark.usefixtures("torch_observed")


def test_a_record_says_what_was_called_with_what() -> None:
    entered: list[observe.Record] = []
    left: list[tuple[str, object, int]] = []

    def on_enter(record: observe.Record) -> int:
        entered.append(record)
        return len(entered)

    x = torch.ones(4, 3)
    with (
        observe.debug_info(model_id="m:1"),
        observe.add_global_callback(on_enter, lambda r: left.append((r.name, r.entered, r.dur_ns)), needs_inputs=True),
    ):
        torch.add(x.t(), x.t(), alpha=2)
        torch.cat([x, x], 1)
    add = next(r for r in entered if r.name == "aten::add")
    assert (add.source, add.scope, add.overload, add.weight, add.kernel_id) == ("torch", "function", "Tensor", 1, -1)
    assert add.debug_info == {"model_id": "m:1"} and add.thread_id > 0 and add.start_ns > 0
    first, _, alpha = add.inputs or ()
    assert (first.shape, first.strides, first.dtype, first.device, alpha) == ((3, 4), (1, 3), "float32", "cpu", 2)
    cat = next(r for r in entered if r.name == "aten::cat")
    assert cat.inputs is not None and [t.shape for t in cat.inputs[0]] == [(4, 3), (4, 3)] and cat.inputs[1] == 1
    assert ("aten::add", entered.index(add) + 1) in [(n, e) for n, e, _ in left]
    assert len(left) == len(entered) and all(ns > 0 for _, _, ns in left)


def test_a_callbacks_own_operators_are_not_seen() -> None:
    seen: list[str] = []
    x = torch.ones(2)

    def on_enter(record: observe.Record) -> None:
        seen.append(record.name)
        torch.cos(x)

    with observe.add_global_callback(on_enter):
        torch.sin(x)
    assert seen == ["aten::sin"]


def test_one_that_raises_is_reported_once_and_removed(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def on_enter(record: observe.Record) -> None:
        calls.append(record)
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR, "sealift.observe"):
        handle = observe.add_global_callback(on_enter)
        for _ in range(5):
            assert torch.equal(torch.relu(-torch.ones(2)), torch.zeros(2))
        until = time.monotonic() + 10
        while handle._id is not None and time.monotonic() < until:
            time.sleep(0.01)
    assert len(calls) == 1 and isinstance(handle.error, ValueError) and handle._id is None
    assert [r.message for r in caplog.records] == ["a callback raised and is removed; the model is not affected"]
    handle.remove()


def test_an_exception_on_its_way_passes_a_callback() -> None:
    x = torch.ones(2)
    with observe.add_global_callback(lambda r: None), pytest.raises(KeyError, match="mine"):
        try:
            raise KeyError("mine")
        finally:
            torch.sin(x)


def test_thread_local_callbacks_and_disabling() -> None:
    x, mine, everyone = torch.ones(2), list[str](), list[str]()
    with observe.add_thread_local_callback(lambda r: mine.append(r.name)), observe.add_global_callback(lambda r: everyone.append(r.name)):
        torch.sin(x)
        other = threading.Thread(target=lambda: torch.cos(x))
        other.start()
        other.join()
        with observe.disabled():
            torch.tan(x)
        before = observe.enable(False)
        torch.tan(x)
        observe.enable(before)
    torch.exp(x)
    assert mine == ["aten::sin"] and everyone == ["aten::sin", "aten::cos"]


def test_scopes() -> None:
    seen: list[tuple[str, str]] = []
    w = torch.ones(3, requires_grad=True)
    with observe.add_global_callback(lambda r: seen.append((r.scope, r.name)), scopes=["backward_function", "user_scope"]):
        with torch.profiler.record_function("mine"):
            loss = w.sin().sum()
        loss.backward()
    assert ("user_scope", "mine") in seen and ("backward_function", "SinBackward0") in seen
    assert {scope for scope, _ in seen} == {"user_scope", "backward_function"}


def test_backward_functions_name_their_forward_by_sequence() -> None:
    forward, backward = dict[int, str](), dict[int, str]()

    def on_enter(record: observe.Record) -> None:
        (backward if record.scope == "backward_function" else forward).setdefault(record.sequence, record.name)

    w = torch.ones(3, requires_grad=True)
    with observe.add_global_callback(on_enter, scopes=["function", "backward_function"]):
        w.sin().exp().sum().backward()
    number = next(k for k, v in backward.items() if v == "SinBackward0")
    assert number >= 0 and forward[number] == "aten::sin"


def test_sampled_callbacks_carry_weights() -> None:
    seen: list[int] = []
    x = torch.ones(1)
    with observe.add_global_callback(lambda r: seen.append(r.weight), sampling_prob=0.05):
        for _ in range(4000):
            torch.sin(x)
    assert set(seen) == {20} and 120 < len(seen) < 300


def test_wrong_arguments_and_too_many() -> None:
    with pytest.raises(ArgumentError, match="function, backward_function"):
        observe.add_global_callback(lambda r: None, scopes=["everything"])
    with pytest.raises(ArgumentError, match="on_enter"):
        observe.add_global_callback("print")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="above 0, at most 1"):
        observe.add_global_callback(lambda r: None, sampling_prob=0)
    handles = [observe.add_global_callback(lambda r: None, scopes=["user_scope"]) for _ in range(16)]
    with pytest.raises(OutOfMemoryError, match="remove one"):
        observe.add_global_callback(lambda r: None)
    for handle in handles:
        handle.remove()
        handle.remove()


def test_adding_and_removing_inside_a_callback_is_refused() -> None:
    errors: list[Exception] = []

    def on_enter(record: observe.Record) -> None:
        for action in (lambda: observe.add_global_callback(lambda r: None), outer.remove, observe.start):
            try:
                action()
            except Exception as error:
                errors.append(error)

    outer = observe.add_global_callback(on_enter)
    torch.sin(torch.ones(1))
    outer.remove()
    assert errors and {type(e).__name__ for e in errors} == {"BusyError"}


def test_kernels_of_a_model_reach_the_same_callback(tmp_path: Path) -> None:
    import sealift

    x = torch.randn(3, 8)
    loaded = sealift.load(sealift.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), tmp_path / "m.pt2", args=(x,)))
    seen: list[observe.Record] = []
    with observe.debug_info(model_id="k"), observe.add_global_callback(None, seen.append, scopes=["kernel"]):
        loaded(x)
    assert [r.name for r in seen] == [k.name for k in loaded.kernels]
    assert all(
        r.source == "sealift" and r.kernel_id >= 0 and "aten" in r.ops and r.model_name == "model" and r.debug_info == {"model_id": "k"} for r in seen
    )


def test_removing_while_other_threads_run() -> None:
    x, stop = torch.ones(2), threading.Event()

    def work() -> None:
        while not stop.is_set():
            torch.sin(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        seen: list[str] = []
        observe.add_global_callback(lambda r, seen=seen: seen.append(r.name), lambda r: None).remove()  # type: ignore[misc]
    stop.set()
    for thread in threads:
        thread.join()


def test_interpreter_exit_inside_a_callback(run_python: Callable[..., str]) -> None:
    """Daemon threads are inside callbacks when the interpreter ends. (Threads that go on calling torch while it ends crash without us, too.)"""
    out = run_python("""
import threading, time, torch
from sealift import observe
x = torch.ones(4)
inside = threading.Barrier(9)
def slow(record):
    inside.wait()
    time.sleep(0.3)
observe.add_global_callback(slow)
observe.start(1, 1, budget=0)
def work():
    torch.sin(x)
    threading.Event().wait()
for _ in range(8): threading.Thread(target=work, daemon=True).start()
inside.wait()
print("end", flush=True)
""")
    assert out == "end\n"
