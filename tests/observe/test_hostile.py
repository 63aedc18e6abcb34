"""Odd uses: callbacks that do what they must not, odd texts, blocks that overlap, snapshots from odd places. The program goes on, and says so."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import torch

from sealift import observe
from sealift.errors import ArgumentError
from sealift.observe import context as contexts

pytestmark = pytest.mark.usefixtures("torch_observed")
X = torch.ones(2)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


# ---- callbacks -----------------------------------------------------------------------------------------------------------------


def endless(record: observe.Record) -> None:
    endless(record)


def ending(record: observe.Record) -> None:
    raise SystemExit(3)


def adding(record: observe.Record) -> None:
    observe.add_global_callback(lambda r: None)


def starting(record: observe.Record) -> None:
    observe.start()


def adjusting(record: observe.Record) -> None:
    observe.adjust(budget=0.1)


@pytest.mark.parametrize("bad", [endless, ending, adding, starting, adjusting], ids=lambda f: str(f.__name__))
@pytest.mark.parametrize("place", ["on_enter", "on_exit"])
def test_one_that_does_what_it_must_not_is_reported_once_and_removed(
    bad: Callable[[observe.Record], None], place: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "sealift.observe"):
        handle = observe.add_global_callback(**{place: bad})  # type: ignore[arg-type]
        for _ in range(5):
            assert torch.equal(torch.relu(-X), torch.zeros(2))
        wait_for(lambda: handle._id is None)
    assert handle.error is not None and len(caplog.records) == 1
    seen: list[str] = []
    with observe.add_global_callback(lambda r: seen.append(r.name)):
        torch.sin(X)
    assert seen == ["aten::sin"]


def test_a_callback_that_removes_itself_is_told_how(caplog: pytest.LogCaptureFixture) -> None:
    handles: list[observe.Handle] = []
    handles.append(observe.add_global_callback(lambda r: handles[0].remove()))
    with caplog.at_level(logging.ERROR, "sealift.observe"):
        torch.sin(X)
        wait_for(lambda: handles[0]._id is None)
    assert "help: remove it outside" in str(handles[0].error)


def test_those_that_raise_leave_their_places_though_nobody_kept_their_handles(caplog: pytest.LogCaptureFixture) -> None:
    def broken(record: observe.Record) -> None:
        raise ValueError

    with caplog.at_level(logging.CRITICAL, "sealift.observe"):
        for _ in range(16):
            observe.add_global_callback(broken)
        torch.sin(X)
        wait_for(lambda: not [t for t in threading.enumerate() if t.name == "sealift-remove"])
        handles = [observe.add_global_callback(lambda r: None) for _ in range(16)]
        for handle in handles:
            handle.remove()


def test_one_that_raises_while_it_is_added_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    """On a thread that runs operators meanwhile, before its handle knows its number."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            torch.sin(X)

    def broken(record: observe.Record) -> None:
        raise ValueError

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with caplog.at_level(logging.CRITICAL, "sealift.observe"):
            handles = [observe.add_global_callback(broken) for _ in range(12)]
            wait_for(lambda: all(h._id is None for h in handles))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_threads_callback_that_another_thread_removed_is_gone(run_python: Callable[..., str]) -> None:
    """PyTorch lets only the thread itself remove it: the place that it had was given to the next callback, which saw that thread's operators twice."""
    out = run_python("""
import threading, torch
from sealift import observe
x, own, seen = torch.ones(2), [], []
handle = observe.add_thread_local_callback(lambda r: own.append(r.name))
torch.sin(x)
remover = threading.Thread(target=handle.remove)
remover.start(); remover.join()
with observe.add_global_callback(lambda r: seen.append(r.name)):
    torch.cos(x), torch.tan(x)
with observe.add_thread_local_callback(lambda r: seen.append(r.name)):
    torch.exp(x)
torch.log(x)
print(own, seen)
""")
    assert out == "['aten::sin'] ['aten::cos', 'aten::tan', 'aten::exp']\n"


# ---- texts ---------------------------------------------------------------------------------------------------------------------

ODD = {
    "emoji": ("\U0001f680 rakete", "\U0001f680 rakete"),
    "a name of a file that is no UTF-8": ("caf\udce9", "caf\\udce9"),
    "NUL": ("a\0b", "a\\x00b"),
    "empty": ("", ""),
    "lines": ('a\n"b"\\', 'a\n"b"\\'),
    "number": (7, "7"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_labels_are_carried_whole(name: str) -> None:
    value, shown = ODD[name]
    seen: list[dict[str, str]] = []
    observe.start(1, 1, budget=0, burst_duty_cycle=0, labels=["tenant"])
    with observe.debug_info(model_id=value, tenant=value), observe.add_global_callback(lambda r: seen.append(r.debug_info)):
        torch.sin(X)
    (series,) = observe.stop().series
    assert seen == [{"model_id": shown, "tenant": shown}]
    assert (series.model_id, dict(series.labels)) == (shown, {"tenant": shown})


def test_long_labels_take_no_room_from_others_and_stay_apart() -> None:
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    for ending in ("a", "b"):
        for _ in range(3):
            with observe.debug_info(model_id="\N{GREEK SMALL LETTER ALPHA}" * 1_000_000 + ending):
                torch.sin(X)
    names = [f"name{i}" for i in range(100)]
    for name in names:
        with observe.debug_info(model_id=name):
            torch.cos(X)
    snapshot = observe.stop()
    assert snapshot.overflow == 0
    assert {s.model_id for s in snapshot.series if s.operator == "aten::cos"} == set(names)
    long = [s for s in snapshot.series if s.operator == "aten::sin"]
    assert [s.count for s in long] == [3, 3]
    assert all(s.model_id.startswith("\N{GREEK SMALL LETTER ALPHA}" * 200) and len(s.model_id.encode()) < 512 for s in long)


def test_long_names() -> None:
    observe.start(1, 1, budget=0, burst_duty_cycle=0, scopes=["user_scope"])
    for i in range(2):
        with torch.profiler.record_function(f"{i} " + "n\N{SNOWMAN}" * 500_000), torch.profiler.record_function("short"):
            pass
    counts = {s.operator: s.count for s in observe.stop().series}
    assert counts.pop("short") == 2 and sorted(c[:2] for c in counts) == ["0 ", "1 "] and "(overflow)" not in counts


def test_labels_that_cannot_be_asked_for() -> None:
    with pytest.raises(ArgumentError, match="without a comma"):
        observe.start(labels=["a,b"])
    with pytest.raises(ArgumentError, match="without a comma"):
        observe.start(labels=[""])
    assert not observe.is_running()


# ---- blocks of debug info that overlap -----------------------------------------------------------------------------------------


def labels_of(block: str) -> Iterator[None]:
    with observe.debug_info(**{block: 1}):
        yield


def test_a_generators_block_ends_inside_its_consumers() -> None:
    generator = labels_of("generator")
    next(generator)
    with observe.debug_info(consumer=2):
        assert observe.current_info() == {"consumer": "2", "generator": "1"}
        generator.close()
        assert observe.current_info() == {"consumer": "2"}
        with observe.debug_info(inner=3):
            assert observe.current_info() == {"consumer": "2", "inner": "3"}
    assert observe.current_info() == {}


def test_generators_in_turn() -> None:
    generators = [labels_of(name) for name in ("a", "b", "c")]
    for generator in generators:
        next(generator)
    for i, rest in ((1, {"a", "c"}), (0, {"c"}), (2, set[str]())):
        generators[i].close()
        assert set(observe.current_info()) == rest


def test_one_block_entered_again_while_another_overlaps() -> None:
    block, other = observe.debug_info(model_id="block"), observe.debug_info(model_id="other")
    block.__enter__()
    other.__enter__()
    block.__enter__()
    assert observe.current_info() == {"model_id": "block"}
    block.__exit__(None, None, None)
    assert observe.current_info() == {"model_id": "other"}
    block.__exit__(None, None, None)
    assert observe.current_info() == {"model_id": "other"}
    other.__exit__(None, None, None)
    assert observe.current_info() == {}


def test_a_block_that_ends_on_another_thread_leaves_that_threads_own() -> None:
    generator, found = labels_of("generator"), list[dict[str, str]]()
    next(generator)

    def work() -> None:
        with observe.debug_info(worker=1):
            generator.close()
            found.append(observe.current_info())
        found.append(observe.current_info())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with observe.debug_info(after=1):
        assert observe.current_info() == {"after": "1", "generator": "1"}  # this context alone could forget it
    assert found == [{"worker": "1"}, {}]
    contexts._enter(None)  # leaves the test's context as it was


def test_asynchronous_generators_and_tasks() -> None:
    seen: list[tuple[str, str]] = []

    async def batches(name: str) -> AsyncIterator[torch.Tensor]:
        with observe.debug_info(model_id=name):
            for _ in range(3):
                await asyncio.sleep(0)
                yield torch.sin(X)

    async def consume(name: str) -> None:
        async for _ in batches(name):
            await asyncio.sleep(0)
            torch.cos(X)
        torch.tan(X)

    async def main() -> None:
        await asyncio.gather(*(consume(f"m{i}") for i in range(4)))

    with observe.add_global_callback(lambda r: seen.append((r.name.removeprefix("aten::"), r.debug_info.get("model_id", "")))):
        asyncio.run(main())
    for i in range(4):
        assert seen.count(("sin", f"m{i}")) == seen.count(("cos", f"m{i}")) == 3  # a generator's block is its consumer's, too, until it ends
    assert seen.count(("tan", "")) == 4 and len(seen) == 4 * 7


# ---- snapshots -----------------------------------------------------------------------------------------------------------------


def test_snapshots_from_finalizers(run_python: Callable[..., str]) -> None:
    """Garbage may be collected at each object that a snapshot makes: what its finalizers ask for must not wait for it, nor other threads' snapshots."""
    out = run_python("""
import gc, signal, torch
from sealift import _runtime, observe
class Asking:
    def __init__(self): self.me = self
    def __del__(self):
        observe.snapshot()
        asked.append(1)
asked, x = [], torch.ones(2)
observe.start(1, 1, budget=0, burst_duty_cycle=0)
for i in range(150):  # more objects than Python keeps ready
    with observe.debug_info(model_id=i): torch.sin(x)
signal.alarm(60)
gc.disable()
for i in range(200):
    gc.collect(0)
    Asking()
    gc.set_threshold(i + 1)  # so many objects later
    gc.enable()
    _runtime.recorder_series()
    gc.disable()
gc.collect()
print(len(asked), len(observe.stop().series))
""")
    assert out == "200 150\n"


def test_forks_while_series_are_added(run_python: Callable[..., str]) -> None:
    """A child finds whole what other threads were changing: names, labels and tables."""
    out = run_python("""
import itertools, os, signal, threading, torch
from sealift import observe
torch.set_num_threads(1)
observe.start(1, 1, budget=0, burst_duty_cycle=0, max_series=16384)
x, stop = torch.ones(2), threading.Event()
def label():
    for i in itertools.count():
        if stop.is_set(): return
        with observe.debug_info(model_id=f"{threading.get_ident()}-{i % 400}"): torch.sin(x)
        if i % 100 == 0: observe.snapshot()
threads = [threading.Thread(target=label) for _ in range(3)]
for t in threads: t.start()
codes = []
for i in range(40):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a child that hangs is killed, and its status says so
        with observe.debug_info(model_id="child"): torch.tan(x)
        names = {(s.operator, s.model_id) for s in observe.snapshot().series}
        os._exit(0 if names & {("aten::tan", "child"), ("(overflow)", "")} else 1)
    codes.append(os.waitpid(pid, 0)[1])
stop.set()
for t in threads: t.join()
print(codes.count(0), len(codes))
""")
    assert out.split() == ["40", "40"]
