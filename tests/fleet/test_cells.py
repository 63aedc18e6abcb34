"""What a comparison asks of the store: one cell for each host, and time steps only where hosts are few; the result is that of all steps."""

from __future__ import annotations

from typing import Any

import pytest

from sealift.fleet import statistics
from sealift.fleet.cells import Cells, Side, added, by_host, with_steps
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Selection
from tests.fleet.conftest import START_S, fill, simulated
from tests.fleet.test_rules import alarm

BY = ("operator", "model")


def all_steps(store: EmbeddedStore, side: Side) -> Cells:
    found: Cells = {}
    for r in store.totals(Selection(side.start_s, side.end_s, (*BY, "host"), side.where, 30)).to_pylist():
        hosts = found.setdefault(tuple(r[k] for k in BY), {})
        hosts.setdefault(r["host"], []).append((float(r["total_ns"]), float(r["count"])))
    return found


@pytest.mark.parametrize("hosts", [6, 60])
def test_few_hosts_come_with_their_steps_and_many_without(store: EmbeddedStore, hosts: int) -> None:
    fleet = simulated(hosts=hosts, minutes=12, interval_s=30, calls=6)
    fill(store, fleet.batches())
    sides = [Side(fleet.plan.start_s, fleet.plan.start_s + 360), Side(fleet.plan.start_s + 360, fleet.end_s)]
    plain = [by_host(store, side, BY) for side in sides]
    made = [with_steps(store, side, BY, mine, other) for side, mine, other in zip(sides, plain, reversed(plain))]
    whole = [all_steps(store, side) for side in sides]
    assert set(made[0]) & set(made[1])
    few = many = 0
    for key in set(made[0]) & set(made[1]):
        a, b = (m[key] for m in made)
        both = a.keys() & b.keys()
        if min(len(a), len(b), len(both)) >= statistics.ENOUGH_HOSTS:
            many += 1
            assert all(len(cells) == 1 for side in (a, b) for cells in side.values())
        elif max(len(a), len(b)) < statistics.ENOUGH_HOSTS:
            few += 1
            assert {h: sorted(c) for h, c in a.items()} == {h: sorted(c) for h, c in whole[0][key].items()}
        found, wanted = statistics.compare_hosts(a, b), statistics.compare_hosts(whole[0][key], whole[1][key])
        assert tuple(found) == pytest.approx(tuple(wanted), rel=1e-9, nan_ok=True), key
    assert few if hosts == 6 else many


def test_only_the_keys_asked_for_are_there_and_sides_add_up(store: EmbeddedStore) -> None:
    fleet = simulated(hosts=6, minutes=4)
    fill(store, fleet.batches())
    side = Side(fleet.plan.start_s, fleet.end_s)
    whole = by_host(store, side, BY)
    keys = [*sorted(whole)[:2], ("no such", "thing")]
    assert by_host(store, side, BY, keys) == {key: whole[key] for key in keys[:2]}
    many = [(f"op{i}", "m") for i in range(500)] + keys  # more than a question names
    assert by_host(store, side, BY, many) == {key: whole[key] for key in keys[:2]}
    twice = added([whole, whole])
    assert {k: {h: c * 2 for h, c in hosts.items()} for k, hosts in whole.items()} == twice


def test_a_watch_whose_looks_are_long_looks_more_seldom(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = [0.0], list[int]()

    def check(_: Any, __: Any, now_s: int) -> list[Any]:
        looks.append(now_s)
        clock[0] += 30.0  # of a core
        return [alarm()]

    monkeypatch.setattr("sealift.fleet.rules.check", check)
    monkeypatch.setattr("sealift.fleet.rules.time.thread_time", lambda: clock[0])
    watch = Watch((Rule(),), every_s=60)
    for now in range(START_S, START_S + 1300, 10):
        watch.look(store, now)
    assert looks == [START_S, START_S + 600, START_S + 1200]
