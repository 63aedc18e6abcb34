"""Rates that change while the recorder runs: counts go on, and stay unbiased."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sealift import observe
from sealift.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("torch_observed")


def adds() -> observe.Series:
    return next(s for s in observe.snapshot().series if s.operator == "aten::add")


def test_counts_stay_unbiased_while_the_probability_changes() -> None:
    """No windows: then the draws alone are random, and the estimate's error is small."""
    library, calls = observe.install_torch(), 0
    observe.start(sampling_prob=0.5, duty_cycle=1, budget=0, burst_duty_cycle=0)
    variance = 0.0
    for i in range(60):
        p = (0.5, 0.02, 0.1, 1.0)[i % 4]
        observe.adjust(sampling_prob=p)
        library.sealift_torch_bridge_time_adds(3000)
        calls += 3000
        variance += 3000 * (1 - p) / p
    add = adds()
    assert abs(add.count - calls) < 5 * variance**0.5
    assert add.samples == pytest.approx(45_000 * (0.5 + 0.02 + 0.1 + 1.0), rel=0.05)


def test_a_process_that_is_not_chosen_records_nothing_and_one_that_is_stands_for_the_others() -> None:
    library = observe.install_torch()
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    observe.adjust(host_probability=0.1, records=False)
    library.sealift_torch_bridge_time_adds(1000)
    assert not observe.snapshot().series and not observe.rates().records
    observe.adjust(records=True)
    library.sealift_torch_bridge_time_adds(1000)
    assert (adds().samples, adds().count) == (1000, 10_000)
    observe.adjust(host_probability=1)
    library.sealift_torch_bridge_time_adds(1000)
    assert (adds().samples, adds().count) == (2000, 11_000)


def test_a_lower_budget_holds_at_once_and_a_higher_one_is_used() -> None:
    """By the rates that it leads to: what recording costs in seconds depends on what else the machine does."""
    library = observe.install_torch()

    def share_drawn() -> float:
        sampling = observe.snapshot().sampling
        return sampling.probability * sampling.duty_cycle

    def work(seconds: float, until: Callable[[float], bool]) -> float:
        """Highest share of operators that was drawn, in a program of nothing but small ones: the budget is what bounds it."""
        highest, end = 0.0, time.monotonic() + seconds
        while time.monotonic() < end and not until(highest):
            library.sealift_torch_bridge_time_adds(1000)
            highest = max(highest, share_drawn())
        return highest

    observe.start(budget=0.03)
    high = work(60, lambda share: share > 2e-3)
    assert high > 2e-3  # it began with a thousandth
    before = share_drawn()
    observe.adjust(budget=0.003)
    assert share_drawn() < before * 0.11
    assert observe.rates().budget == 0.003
    low = work(4, lambda share: False)
    observe.adjust(budget=0.03)
    assert share_drawn() < low * 1.3  # more is approached from second to second
    assert work(60, lambda share: share > low * 1.5) > low * 1.5


def test_bursts_and_steps_are_adjusted_too() -> None:
    library = observe.install_torch()
    observe.start(1, budget=0, every="step")
    observe.adjust(sampling_prob=0.5)
    for _ in range(200):
        observe.step()
        library.sealift_torch_bridge_time_adds(5)
    assert 700 < adds().count < 1300 and adds().count == 2 * adds().samples
    observe.stop()
    observe.start(1, 0.2, budget=0, every="burst")
    observe.adjust(duty_cycle=1)
    until, calls = time.monotonic() + 2.0, 0
    while time.monotonic() < until:
        library.sealift_torch_bridge_time_adds(100)
        calls += 100
    assert adds().count == adds().samples and adds().count > calls / 2


def test_windows_begin_where_there_were_none() -> None:
    """The recorder starts a thread that paces it when it first needs one."""
    library = observe.install_torch()
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    library.sealift_torch_bridge_time_adds(100)
    assert adds().samples == 100
    observe.adjust(duty_cycle=0.5)
    until = time.monotonic() + 60
    while adds().count == adds().samples and time.monotonic() < until:  # samples of weight 2 come
        library.sealift_torch_bridge_time_adds(1000)
    assert adds().count > adds().samples


def test_time_in_which_others_were_to_record_is_not_made_up_for() -> None:
    """Windows of a process that is not chosen stand for nothing: were they owed, all of the next seconds would be recorded."""
    library = observe.install_torch()
    observe.start(1, 0.5, budget=0, burst_duty_cycle=0)
    observe.adjust(records=False)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        library.sealift_torch_bridge_time_adds(1000)
    observe.adjust(records=True)
    calls, until = 0, time.monotonic() + 2
    while time.monotonic() < until:
        library.sealift_torch_bridge_time_adds(1000)
        calls += 1000
    assert adds().samples < 0.85 * calls


def test_wrong_rates_are_refused() -> None:
    with pytest.raises(ArgumentError, match="does not run"):
        observe.adjust(budget=0.1)
    observe.start(1, 1, budget=0, burst_duty_cycle=0)
    for wrong in ({"sampling_prob": 0}, {"duty_cycle": 2}, {"budget": 1}, {"host_probability": -1}, {"burst_duty_cycle": float("nan")}):
        with pytest.raises(ArgumentError):
            observe.adjust(**wrong)  # type: ignore[arg-type]
    assert observe.rates() == observe.Rates(1, 1, 0, 0, 1, True)
