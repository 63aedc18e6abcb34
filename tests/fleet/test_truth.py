"""The simulator knows what happened: every question's answer is what it sent, and what happened lies within the stated bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sealift.fleet import questions
from sealift.fleet.cells import Side
from sealift.fleet.questions import QUANTILES, Question
from sealift.fleet.simulator import Regression
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter, Retention
from tests.fleet.conftest import START_S, Fleet, fill, simulated


@pytest.fixture(scope="module", params=["as it arrived", "folded"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path_factory.mktemp("truth"), Retention(None, None, None, None), threads=2)
    fill(store, fleet.batches())
    if request.param == "folded":
        store.maintain((START_S + 10_000) * 10**9)
    yield store
    store.close()


def asked(fleet: Fleet, *by: str, **changes: Any) -> Question:
    return Question(fleet.plan.start_s, fleet.end_s, by, limit=10_000, **changes)


@pytest.mark.parametrize("by", [("operator",), ("model",), ("host",), ("service", "version"), ("operator", "model", "host")], ids=",".join)
def test_top_is_what_was_sent(filled: EmbeddedStore, fleet: Fleet, by: tuple[str, ...]) -> None:
    rows = {tuple(r[k] for k in by): r for r in questions.top(filled, asked(fleet, *by)).to_pylist()}
    tallies = {k: t for k, t in fleet.truth.by(*by).items() if t.count}
    assert rows.keys() == tallies.keys()
    everything = sum(t.total_ns for t in tallies.values())
    for key, t in tallies.items():
        r = rows[key]
        assert (r["count"], r["samples"], r["total_ns"], r["self_ns"]) == (t.count, t.samples, t.total_ns, t.self_ns)
        assert r["share"] == pytest.approx(t.total_ns / everything) and r["mean_ns"] == pytest.approx(t.total_ns / t.count)
        for q in QUANTILES:
            assert r[f"p{round(q * 100)}_ns"] == pytest.approx(bucket_quantile(t.buckets, q))
    order = [r["total_ns"] for r in questions.top(filled, asked(fleet, *by)).to_pylist()]
    assert order == sorted(order, reverse=True)


def bucket_quantile(buckets: dict[int, int], q: float) -> float:
    rank = max(math.ceil(q * sum(buckets.values())), 1)
    for index in sorted(buckets):
        rank -= buckets[index]
        if rank <= 0:
            low, high = 2.0 ** (index / 8), 2.0 ** ((index + 1) / 8)
            return 2 * low * high / (low + high)
    raise AssertionError


def test_what_happened_is_within_the_stated_bounds(tmp_path: Path) -> None:
    """95 % bounds of counts, totals and quantiles over several simulated fleets of which a quarter of the calls was recorded."""
    inside = outside = 0
    for seed in range(3):
        fleet = simulated(seed=seed + 10, hosts=10, minutes=3)
        store = EmbeddedStore(tmp_path / str(seed), Retention(None, None, None, None), threads=2)
        fill(store, fleet.batches())
        tallies = fleet.truth.by("operator", "model")
        for r in questions.top(store, asked(fleet, "operator", "model")).to_pylist():
            t = tallies[r["operator"], r["model"]]
            if t.samples < 20:
                continue
            happened = [
                ("count", t.true_count),
                ("total_ns", t.true_total_ns),
                *((f"p{round(q * 100)}_ns", t.true_quantile_ns(q)) for q in QUANTILES),
            ]
            for name, value in happened:
                holds = r[f"{name}_low"] <= value <= r[f"{name}_high"]
                inside, outside = inside + holds, outside + (not holds)
        store.close()
    assert inside + outside > 200
    assert outside <= 0.07 * (inside + outside), (inside, outside)  # 5 % are expected; 2 % more is three standard errors of 300 trials away


def test_trend_heatmap_and_quantiles_over_time(filled: EmbeddedStore, fleet: Fleet) -> None:
    tallies = {k: t for k, t in fleet.truth.by("model", step_s=60).items() if t.count}
    rows = {(r["model"], str(r["time"])): r for r in questions.trend(filled, asked(fleet, "model", step_s=60)).to_pylist()}
    assert {k: (r["count"], r["total_ns"]) for k, r in rows.items()} == {k: (t.count, t.total_ns) for k, t in tallies.items()}
    quantiles = {(r["model"], str(r["time"])): r for r in questions.quantile_trend(filled, asked(fleet, "model", step_s=60)).to_pylist()}
    assert {k: r["p90_ns"] for k, r in quantiles.items()} == pytest.approx({k: bucket_quantile(t.buckets, 0.9) for k, t in tallies.items()})
    where = (Filter.parse("operator=aten::addmm"), Filter.parse("model=bert-base-v7"))
    cells = {(r["time"], r["bucket"]): r["count"] for r in questions.heatmap(filled, asked(fleet, step_s=60, where=where)).to_pylist()}
    wanted = fleet.truth.by(step_s=60, where=lambda k: k["operator"] == "aten::addmm" and k["model"] == "bert-base-v7")
    assert cells == {(int(slot), b): n for (slot,), t in wanted.items() for b, n in t.buckets.items() if n}
    limited = questions.trend(filled, Question(fleet.plan.start_s, fleet.end_s, ("operator",), limit=3))
    assert len(set(limited.column("operator").to_pylist())) == 3


@pytest.mark.parametrize(
    ("filter", "holds"),
    [
        ("operator=aten::linear", lambda k: k["operator"] == "aten::linear"),
        ("operator!=aten::linear", lambda k: k["operator"] != "aten::linear"),
        ("operator~aten::*d?m*", lambda k: "d" in k["operator"] and k["operator"] in ("aten::addmm",)),
        ("host~search-ranker-*", lambda k: k["host"].startswith("search-ranker-")),
        ("model=", lambda k: k["model"] == ""),
        ("version!~1.*", lambda k: not k["version"].startswith("1.")),
        ("operator~*_", lambda k: k["operator"].endswith("_")),
    ],
)
def test_filters(filled: EmbeddedStore, fleet: Fleet, filter: str, holds: Any) -> None:
    rows = questions.top(filled, asked(fleet, "operator", "host", where=(Filter.parse(filter),))).to_pylist()
    tallies = {k: t.count for k, t in fleet.truth.by("operator", "host", where=holds).items() if t.count}
    assert {(r["operator"], r["host"]): r["count"] for r in rows} == tallies and tallies


@pytest.mark.parametrize(("first", "last"), [(0, 360), (70, 290), (10, 20), (355, 10_000), (60, 120)])
def test_times(filled: EmbeddedStore, fleet: Fleet, first: int, last: int) -> None:
    start, end = fleet.plan.start_s + first, fleet.plan.start_s + last
    rows = questions.top(filled, Question(start, end, ("operator",), limit=1000)).to_pylist()
    tallies = fleet.truth.by("operator", start_s=start // 10 * 10, end_s=-(-end // 10) * 10)
    assert {r["operator"]: r["total_ns"] for r in rows} == {k[0]: t.total_ns for k, t in tallies.items() if t.count}


def test_the_small_tables(filled: EmbeddedStore, fleet: Fleet) -> None:
    hosts = len({p.process.host for p in fleet.sent})
    assert {r["api"]: r["processes"] for r in questions.apis(filled).to_pylist()}["torch.load"] == hosts
    by = questions.apis(filled, (Filter.parse("service=vision-api"),), ("service",)).to_pylist()
    assert {(r["service"], r["processes"]) for r in by} == {
        ("vision-api", len({p.process.host for p in fleet.sent if p.process.workload.service == "vision-api"}))
    }
    assert len({r["instance"] for r in questions.processes(filled).to_pylist()}) == hosts
    files = {r["model"]: r for r in questions.lineage(filled).to_pylist()}
    assert (
        files["resnet50-v3"]["concern"] == "unsigned" and files["minilm-v2"]["concern"] == "" and files["minilm-v2"]["producer"] == "release-pipeline"
    )
    rows = {r["model"]: r for r in questions.models(filled, asked(fleet)).to_pylist()}
    assert rows["resnet50-v3"]["digest"] == "sha256:resnet50-v3" and rows["resnet50-v3"]["hosts"] == by[0]["processes"]
    rows = {r["host"]: r for r in questions.hosts(filled, asked(fleet)).to_pylist()}
    assert len(rows) == hosts and all(r["processes"] == 1 and r["overhead"] == 0.002 for r in rows.values())
    assert set(questions.overview(filled, asked(fleet))) == {"operators", "models", "trend"}


def test_diff_finds_the_planted_change_and_nothing_else(tmp_path: Path) -> None:
    fleet = simulated(hosts=24, minutes=8, regression=Regression("aten::addmm", "bert-base-v7", 1.5, 240.0))
    store = EmbeddedStore(tmp_path, Retention(None, None, None, None), threads=2)
    fill(store, fleet.batches())
    middle = fleet.plan.start_s + 240
    rows = questions.diff(store, Side(fleet.plan.start_s, middle), Side(middle, fleet.end_s), ("operator", "model")).to_pylist()
    first = rows[0]
    assert (first["operator"], first["model"]) == ("aten::addmm", "bert-base-v7") and first["p_value"] < 0.001
    assert first["ratio_low"] < 1.5 < first["ratio_high"] and first["ratio"] == pytest.approx(1.5, rel=0.1)
    assert all(r["p_value"] > 0.01 for r in rows[1:])
    store.close()
