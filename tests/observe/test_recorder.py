"""The recorder against the truth: PyTorch's own profiler, and what was run."""

from __future__ import annotations

import ctypes
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from sealift import observe
from sealift.errors import ArgumentError, BusyError

pytestmark = pytest.mark.usefixtures("torch_observed")
WHOLE_TRUTH: dict[str, Any] = {"sampling_prob": 1, "duty_cycle": 1, "budget": 0, "burst_duty_cycle": 0}


def by_name(snapshot: observe.Snapshot) -> dict[str, observe.Series]:
    return {s.operator: s for s in snapshot.series}


def adds() -> ctypes.CDLL:
    return observe.install_torch()


def test_counts_and_times_are_the_profilers() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256), torch.nn.Linear(256, 256))
    x = torch.randn(64, 256)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine would be what is measured
    for _ in range(5):
        model(x)
    observe.start(**WHOLE_TRUTH)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(40):
            model(x).sum().backward()
    torch.set_num_threads(threads)
    recorded = by_name(observe.stop())
    truth: dict[str, list[int]] = {}
    for event in profiler.profiler.kineto_results.events():  # key_averages() leaves out an overload that is called by its own name's operator
        if event.name().startswith("aten::"):
            truth.setdefault(event.name(), []).append(event.duration_ns())
    assert {n: len(d) for n, d in truth.items()} == {n: recorded[n].count for n in truth}
    for name, durations in truth.items():
        series = recorded[name]
        assert series.samples == series.count == series.histogram.count == len(durations)
        # Both read the clock around the same call, one inside the other. Lower quartiles: where a core is shared, now and then a program waits
        # between the two readings for milliseconds.
        quartile_ns = sorted(durations)[len(durations) // 4]
        assert series.histogram.quantile(0.25) == pytest.approx(quartile_ns, rel=0.25, abs=10_000), name


def test_estimates_stay_within_their_error_bars() -> None:
    library, calls, p = adds(), 20_000, 0.01
    z: list[float] = []
    for _ in range(100):
        observe.start(sampling_prob=p, duty_cycle=1, budget=0, burst_duty_cycle=0)
        library.sealift_torch_bridge_time_adds(calls)
        add = by_name(observe.stop())["aten::add"]
        assert add.count == add.samples * 100
        z.append((add.count - calls) / add.count_standard_error)
    assert abs(sum(z)) / len(z) < 4 / math.sqrt(len(z))  # no bias: four standard errors of the mean
    inside = sum(abs(v) < 1.96 for v in z)
    assert 86 <= inside <= 100  # 95 are expected; below 86 once in 10,000
    assert 0.7 < math.sqrt(sum(v * v for v in z) / len(z)) < 1.4


def test_windows_are_unbiased() -> None:
    """A tenth of the time, for three seconds: the estimate is the number of calls, within the noise of whole windows."""
    library, calls = adds(), 0
    observe.start(sampling_prob=0.5, duty_cycle=0.3, budget=0, burst_duty_cycle=0)
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        library.sealift_torch_bridge_time_adds(1000)
        calls += 1000
    add = by_name(observe.stop())["aten::add"]
    assert add.count == pytest.approx(calls, rel=0.45)
    assert 0.05 < add.samples / calls < 0.3


def test_self_time_and_calls_of_a_step() -> None:
    x = torch.randn(32, 64)
    observe.start(**WHOLE_TRUTH | {"every": "step"})
    for _ in range(3):
        observe.step()
        torch.nn.functional.layer_norm(x, (64,))
    observe.step()
    snapshot = observe.stop()
    recorded = by_name(snapshot)
    outer, inner = recorded["aten::layer_norm"], recorded["aten::native_layer_norm"]
    assert outer.count == inner.count == 3
    assert outer.self_ns is not None and outer.self_ns <= outer.total_ns - inner.total_ns + 3
    assert sum(s.self_ns or 0 for s in snapshot.series) == pytest.approx(outer.total_ns, rel=0.01)  # every nanosecond once
    steps = Counter(e.step for e in snapshot.events if e.operator == "aten::layer_norm")
    assert sorted(steps.values()) == [1, 1, 1]
    first = next(e for e in snapshot.events if e.operator == "aten::layer_norm")
    child = next(e for e in snapshot.events if e.operator == "aten::native_layer_norm")
    assert first.start_unix_ns <= child.start_unix_ns and child.start_unix_ns + child.dur_ns <= first.start_unix_ns + first.dur_ns
    assert abs(first.start_unix_ns - time.time_ns()) < 60e9
    assert observe.snapshot().events == ()  # handed out once


def test_bursts_record_all_of_a_time() -> None:
    x = torch.randn(8, 8)
    observe.start(sampling_prob=1, duty_cycle=0.5, budget=0, every="burst")
    until, calls = time.monotonic() + 2.2, 0
    while time.monotonic() < until:
        torch.relu(x)
        calls += 1
    snapshot = observe.stop()
    relu = by_name(snapshot)["aten::relu"]
    assert relu.self_ns is not None and 0 < relu.self_ns < relu.total_ns
    assert relu.count == pytest.approx(calls, rel=0.6)
    assert snapshot.events


def test_shapes_and_labels_tell_series_apart() -> None:
    observe.start(**WHOLE_TRUTH | {"needs_inputs": True, "labels": ["tenant"]})
    for size in (4, 8):
        for tenant in ("a", "b"):
            with observe.debug_info(model_id="m:1", tenant=tenant, request=size):
                torch.relu(torch.ones(size, 2))
                torch.cat([torch.ones(size), torch.ones(1)])
    snapshot = observe.stop()
    relus = {(s.shapes, s.model_id, s.labels) for s in snapshot.series if s.operator == "aten::relu"}
    assert relus == {(f"[{n}, 2]", "m:1", (("tenant", t),)) for n in (4, 8) for t in ("a", "b")}
    assert {s.shapes for s in snapshot.series if s.operator == "aten::cat"} == {"([4], [1]), -", "([8], [1]), -"}


def test_what_finds_no_room_is_counted() -> None:
    observe.start(**WHOLE_TRUTH | {"max_series": 4})
    x = torch.ones(3)
    for _ in range(5):
        x.sin(), x.cos(), x.tan(), x.exp(), x.log(), x.sqrt()
    snapshot = observe.stop()
    names = by_name(snapshot)
    assert len(snapshot.series) == 4 and names["(overflow)"].samples == snapshot.overflow
    assert sum(s.count for s in snapshot.series) >= 30


def test_labels_beyond_bound_go_to_overflow() -> None:
    observe.start(**WHOLE_TRUTH)
    x = torch.ones(1)
    for i in range(1100):
        with observe.debug_info(model_id=f"m{i}"):
            torch.sin(x)
    snapshot = observe.stop()
    assert sum(s.count for s in snapshot.series if s.operator == "aten::sin") == 1023
    assert snapshot.overflow == 1100 - 1023


def test_budget_backs_off() -> None:
    """Nothing but operators of a third of a microsecond: at p = 1 recording would cost a third of the time."""
    library = adds()
    observe.start(sampling_prob=1, duty_cycle=1, budget=0.01, burst_duty_cycle=0)
    until = time.monotonic() + 6
    while time.monotonic() < until:
        library.sealift_torch_bridge_time_adds(1000)
    sampling = observe.stop().sampling
    assert sampling.probability == 1 and sampling.duty_cycle < 0.2  # shorter windows rather than rarer samples, which cost more each
    assert 0 < sampling.overhead < 0.03


def test_budget_lets_a_slow_program_be_seen_whole() -> None:
    x = torch.ones(512, 512)  # milliseconds each: recording it costs a thousandth, on a machine that is busy otherwise a little more
    observe.start(sampling_prob=0.5, duty_cycle=1, budget=0.1, burst_duty_cycle=0)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        torch.mm(x, x)
        time.sleep(0.002)
    assert observe.stop().sampling.probability == 0.5


def test_host_probability() -> None:
    seen = []
    for _ in range(40):
        observe.start(**WHOLE_TRUTH | {"host_probability": 0.5})
        torch.sin(torch.ones(1))
        seen.append(bool(observe.stop().series))
    assert 5 < sum(seen) < 35


def test_starting_twice_and_wrong_arguments() -> None:
    observe.start(**WHOLE_TRUTH)
    with pytest.raises(BusyError, match="stop it first"):
        observe.start()
    observe.stop()
    for wrong in ({"sampling_prob": 0}, {"duty_cycle": 2}, {"budget": -1}, {"every": "hour"}, {"scopes": ["functions"]}, {"max_series": 1 << 20}):
        with pytest.raises(ArgumentError):
            observe.start(**WHOLE_TRUTH | wrong)  # type: ignore[arg-type]


def test_a_snapshot_stops_nobody_and_differences_add_up() -> None:
    observe.start(**WHOLE_TRUTH)
    x = torch.ones(2)
    for _ in range(10):
        torch.sin(x)
    first = observe.snapshot()
    for _ in range(7):
        torch.sin(x)
    second = observe.stop()
    assert by_name(first)["aten::sin"].count == 10 and by_name(second)["aten::sin"].count == 17
    assert by_name(second.minus(first))["aten::sin"].count == 7


def test_kernels_of_a_model_are_recorded(tmp_path: Path) -> None:
    import sealift

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    x = torch.randn(3, 8)
    loaded = sealift.load(sealift.compile(model, tmp_path / "m.pt2", args=(x,)))
    observe.start(**WHOLE_TRUTH)
    with observe.debug_info(model_id="mlp:1"):
        for _ in range(9):
            loaded(x)
    kernels = [s for s in observe.stop().series if s.source == "sealift"]
    assert {s.operator for s in kernels} == {k.name for k in loaded.kernels}
    assert all(s.count == 9 and s.scope == "kernel" and s.model_id == "mlp:1" and s.self_ns == s.total_ns for s in kernels)
    assert all(" @ " in s.origin and "aten." in s.origin for s in kernels)
