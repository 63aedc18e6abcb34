"""The planted regression is found, with its operator, model and time; a quiet week raises no alarm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sealift.fleet.errors import RuleError
from sealift.fleet.otlp.decode import Decoder
from sealift.fleet.rules import Alarm, Rule, check, read_rules
from sealift.fleet.simulator import WORKLOADS, Plan, Regression, Simulation
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter, Retention
from tests.fleet.conftest import START_S, fill, simulated

DAY = 86_400


def alarm() -> Alarm:
    return Alarm("slower", (("operator", "aten::mm"),), 1.5, 1.4, 1.6, 1e-9, 0.1, 100.0, 150.0, 1e6, START_S, (START_S, START_S + 1800), 9)


def test_the_planted_regression_in_a_young_store(store: EmbeddedStore) -> None:
    fleet = simulated(hosts=24, minutes=20, interval_s=20, regression=Regression("aten::scaled_dot_product_attention", "bert-base-v7", 1.4, 900.0))
    fill(store, fleet.batches())
    rule = Rule(window_s=300)
    assert check(store, [rule], fleet.plan.start_s + 890) == []
    (found,) = check(store, [rule], fleet.end_s)
    assert dict(found.keys) == {"operator": "aten::scaled_dot_product_attention", "model": "bert-base-v7"}
    assert found.ratio == pytest.approx(1.4, rel=0.12) and found.ratio_low < 1.4 < found.ratio_high and found.p_value < 1e-3
    assert abs(found.since_s - (fleet.plan.start_s + 900)) <= 60
    assert "aten::scaled_dot_product_attention" in str(found) and found.as_dict()["hosts"] >= 8
    assert check(store, [Rule(window_s=300, share=0.9)], fleet.end_s) == []
    assert check(store, [Rule(window_s=300, change=0.8)], fleet.end_s) == []
    assert check(store, [Rule(window_s=300, where=(Filter.parse("model=resnet50-v3"),))], fleet.end_s) == []


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Nine days on a virtual clock, with rhythm, bursts and stragglers; on the last day at noon one operator gets slower."""
    start = START_S // DAY * DAY
    workloads = tuple(w for w in WORKLOADS if w.service in ("search-ranker", "embedder"))
    plan = Plan(16, 9 * 1440, start, 7200, 2, 1200.0, workloads=workloads, regression=Regression("aten::addmm", "bert-base-v7", 1.25, 8.5 * DAY))
    store = EmbeddedStore(tmp_path_factory.mktemp("week"), Retention(None, None, None, None), threads=2)
    decoder = Decoder()
    fill(store, [b for s in Simulation(plan) for b in getattr(decoder, s.signal)(s.body, (s.time_s + 1) * 10**9).batches], 1000)
    store.maintain((start + 10 * DAY) * 10**9)
    yield store, plan
    store.close()


def test_a_quiet_week_raises_no_alarm_and_the_regression_after_it_does(week: Any) -> None:
    store, plan = week
    rule = Rule(window_s=4 * 3600)
    for hour in range(30, 8 * 24 + 12, 8):
        assert check(store, [rule], plan.start_s + hour * 3600) == [], hour
    found = check(store, [rule], plan.start_s + 8 * DAY + 18 * 3600)
    assert [dict(a.keys) for a in found] == [{"operator": "aten::addmm", "model": "bert-base-v7"}]
    assert found[0].ratio == pytest.approx(1.25, rel=0.1)


def test_versions_are_compared_within_the_window(store: EmbeddedStore) -> None:
    from dataclasses import replace

    fleet = simulated(hosts=16, minutes=10, regression=Regression("aten::addmm", "bert-base-v7", 1.0, 0.0))
    slow = simulated(hosts=16, minutes=10, seed=8, regression=Regression("aten::addmm", "bert-base-v7", 1.4, 0.0))
    newer = [replace(b, resource=b.resource._replace(version="9.9", host=b.resource.host + "-new")) for b in slow.batches()]
    store.commit(fleet.batches(), START_S * 10**9)
    store.commit(newer, (START_S + 300) * 10**9)
    found = check(store, [Rule(versions=True, window_s=600)], fleet.end_s)
    assert [dict(a.keys) for a in found] == [{"operator": "aten::addmm", "model": "bert-base-v7", "service": "search-ranker", "version": "9.9"}]
    assert check(store, [Rule(versions=True, window_s=600, change=0.7)], fleet.end_s) == []


def test_rule_files(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([{"name": "attention", "by": ["operator"], "where": ["operator~*attention*"], "change": 0.2, "window": "30m"}, {}]))
    first, second = read_rules(path)
    assert first == Rule("attention", ("operator",), (Filter("operator", "~", "*attention*"),), 0.2, window_s=1800) and second == Rule()
    for text in (
        "[", "{}", "[]", "[1]", '[{"colour": 1}]', '[{"by": ["colour"]}]', '[{"change": "x"}]', '[{"change": -1}]', '[{"window": "soon"}]', '[{"days": true}]',
        '[{"where": ["x"]}]', '[{"p_value": NaN}]',
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(RuleError) as error:
            read_rules(path)
        assert error.value.code == "E-FLEET-007"
    with pytest.raises(RuleError):
        read_rules(tmp_path / "missing.json")
