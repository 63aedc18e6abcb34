"""The ClickHouse store on chDB, ClickHouse's engine as a library, behind a shim of its HTTP interface: the embedded store's answers, to the digit.

chDB is 534 MB, so it is not among the requirements: `make fleet-clickhouse` makes an environment with it and names its Python in SEALIFT_TEST_CHDB."""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sealift.fleet import questions
from sealift.fleet.cells import Side
from sealift.fleet.errors import QuestionError
from sealift.fleet.questions import Question
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter, Retention, Selection
from tests.fleet.conftest import START_S, Fleet, fill, simulated
from tests.fleet.test_dashboard import PATIENT, Document, get, paths, send

PYTHON = os.environ.get("SEALIFT_TEST_CHDB", "")
KEEP = Retention(None, None, None, None)
NOW = time.time_ns()  # arrivals expire after two days
pytestmark = pytest.mark.skipif(not PYTHON, reason="no chDB: make fleet-clickhouse")


@pytest.fixture(scope="module")
def clickhouse(fleet: Fleet) -> Iterator[Any]:
    pytest.importorskip("clickhouse_connect")
    from sealift.fleet.store.clickhouse import ClickHouseStore

    shim = subprocess.Popen([PYTHON, str(Path(__file__).with_name("chdb_shim.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert shim.stdout is not None and shim.stdin is not None
    port = shim.stdout.readline().strip()
    store = ClickHouseStore.connect(f"clickhouse://127.0.0.1:{port}/fleet", KEEP)
    fill(store, fleet.batches(), 100, NOW)
    yield store
    store.close()
    shim.kill()  # its data are a temporary folder's; the engine sometimes hangs when it ends by itself
    shim.wait()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, fleet: Fleet) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(tmp_path_factory.mktemp("embedded"), KEEP, threads=1)
    fill(store, fleet.batches(), 100, NOW)
    store.maintain((START_S + 10_000) * 10**9)
    yield store
    store.close()


def same(a: Any, b: Any) -> None:
    order = lambda rows: sorted(rows, key=lambda r: str([v for v in r.values() if not isinstance(v, float)]))  # noqa: E731
    left, right = order(a.to_pylist()), order(b.to_pylist())
    assert len(left) == len(right) and left
    for x, y in zip(left, right):
        assert x.keys() == y.keys()
        for key, value in x.items():
            assert value == (pytest.approx(y[key], rel=1e-9) if isinstance(value, float) else y[key]), (key, x, y)


def test_the_same_answers(clickhouse: Any, embedded: EmbeddedStore, fleet: Fleet, record_property: Callable[[str, object], None]) -> None:
    compared = 0
    asked = Question(fleet.plan.start_s, fleet.end_s, ("operator", "model"), limit=1000)
    for question in (
        asked,
        replace(asked, by=("host",)),
        replace(asked, by=("service", "version"), where=(Filter.parse("operator~aten::*_*"), Filter.parse("host!~*3"))),
        replace(asked, by=("operator", "pid"), start_s=fleet.plan.start_s + 70, end_s=fleet.plan.start_s + 290),
        replace(asked, by=("label:none", "attribute:telemetry.sdk.name")),
        replace(asked, by=("operator",), where=(Filter.parse("model=it's a \\ %"),)),
    ):
        answers = [questions.top(store, question) for store in (clickhouse, embedded)]
        if answers[1].num_rows or answers[0].num_rows:
            same(*answers)
            compared += 1
    for function in (questions.trend, questions.heatmap, questions.quantile_trend):
        same(*(function(store, replace(asked, by=("model",), step_s=60)) for store in (clickhouse, embedded)))
    same(*(questions.models(store, asked) for store in (clickhouse, embedded)))
    same(*(questions.apis(store, (), ("service",)) for store in (clickhouse, embedded)))
    same(*(questions.lineage(store) for store in (clickhouse, embedded)))
    same(*(questions.processes(store) for store in (clickhouse, embedded)))
    middle = fleet.plan.start_s + 180
    same(*(questions.diff(store, Side(fleet.plan.start_s, middle), Side(middle, fleet.end_s)) for store in (clickhouse, embedded)))
    record_property("questions", compared + 8)
    assert clickhouse.totals(Selection(0, 10)).num_rows == 0 == sum(r["count"] or 0 for r in embedded.totals(Selection(0, 10)).to_pylist())


def test_the_same_dashboard(
    clickhouse: Any, embedded: EmbeddedStore, fleet: Fleet, serving: Callable[..., str], record_property: Callable[[str, object], None]
) -> None:
    """Every page and every file of a collector on ClickHouse are those of one on its own store, to the letter."""
    views = [*paths(fleet), *paths_with_choices(fleet)]
    clock = lambda: (fleet.end_s + 5) * 10**9  # noqa: E731
    urls = [serving(Kept(store), clock_ns=clock, watch=Watch((Rule(),)), limits=PATIENT) for store in (clickhouse, embedded)]
    files = set[str]()
    for path in views:
        pages = [get(url, path) for url in urls]
        assert [status for status, _, _ in pages] == [200, 200], (path, pages[0][2])
        bodies = [re.sub(r"drawn in [0-9.]+ s", "drawn", body) for _, _, body in pages]
        assert bodies[0] == bodies[1], (path, difference(*bodies))
        files |= {a["href"] or "" for a in Document(pages[0][2]).all("a") if (a["href"] or "").startswith("/download/")}
    assert len(files) > 40
    cells = 0
    for path in sorted(f for f in files if ".csv" in f):
        tables = [list(csv.reader(io.StringIO(get(url, path)[2]))) for url in urls]
        assert len(tables[0]) > 0 and len(tables[0]) == len(tables[1]), path
        cells += sum(map(len, tables[0]))
        for left, right in zip(*tables):
            for x, y in zip(left, right):
                assert x == y or float(x) == pytest.approx(float(y), rel=1e-9), (path, left, right)
    for name, value in (("pages", len(views)), ("files", sum(".csv" in f for f in files)), ("cells", cells)):
        record_property(name, value)


def difference(a: str, b: str) -> list[str]:
    return list(difflib.unified_diff(a.splitlines(), b.splitlines(), lineterm="", n=0))[:12]


def paths_with_choices(fleet: Fleet) -> list[str]:
    when = f"from={fleet.plan.start_s}&to={fleet.end_s}"
    return [
        *(f"/?{when}&by={key}" for key in ("operator", "service", "version", "host")),
        f"/operators?{when}&order=p99_ns&model=bert-base-v7",
        f"/hosts?{when}&where=label:none=&limit=500",
        f"/operators?{when}&where=operator~aten::*_*&where=host!~*3",
        f"/compare?{when}&a_where=host~*3&b_where=host!~*3&by=operator,model",
        "/apis?by=host",
        f"/model?{when}&name=resnet50-v3",
        "/?from=all",
        "/?from=-5d&to=-4d",
        "/alerts?check=1",
    ]


class Kept:
    """A store that a collector uses and does not close."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def close(self) -> None:
        pass


def test_repetitions_are_not_counted_through_any_collector(clickhouse: Any, fleet: Fleet) -> None:
    from sealift.fleet.store.clickhouse import ClickHouseStore

    before = clickhouse.totals(Selection(0, START_S + 10**6, ("operator",)))
    other = ClickHouseStore(clickhouse._client, KEEP)  # a second collector, and the migrations once more
    receipt = other.commit(fleet.batches()[:150], NOW)
    assert (receipt.counted, receipt.repeated) == (0, 150)
    twice = other.commit([fleet.batches()[0], fleet.batches()[0]], NOW)
    assert twice.repeated == 2
    same(clickhouse.totals(Selection(0, START_S + 10**6, ("operator",))), before)


def test_sql_and_figures(clickhouse: Any, fleet: Fleet) -> None:
    total = sum(t.count for t in fleet.truth.by().values())
    for view in ("points", "minutes", "hours"):
        assert clickhouse.sql(f"SELECT sum(count) AS n FROM {view}", 10, 10).to_pylist() == [{"n": total}]
    for text in ("DROP TABLE arrival", "SELEC 1", "INSERT INTO meta VALUES ('version', '9')"):
        with pytest.raises(QuestionError):
            clickhouse.sql(text, 10, 10)
    assert clickhouse.time_range()[0] <= fleet.plan.start_s < fleet.end_s <= clickhouse.time_range()[1]
    assert clickhouse.info().figures["store_rows"] > 0 and clickhouse.maintain(0) == {}


def test_a_collector_in_front_of_clickhouse_takes_what_agents_send(clickhouse: Any, fleet: Fleet, serving: Callable[..., str]) -> None:
    """Last, since it adds to the store. Over HTTP, twice: acknowledged both times, counted once; its own figures are Prometheus'."""
    sent = simulated(hosts=3, minutes=2, seed=77)
    url = serving(Kept(clickhouse), limits=PATIENT, clock_ns=lambda: NOW)
    before = sum(r["count"] for r in clickhouse.totals(Selection(0, START_S + 10**6, ("operator",))).to_pylist())
    for _ in range(2):
        for one in sent.sent:
            body, headers = one.body, {"Content-Type": "application/x-protobuf"}
            assert send(url, "POST", f"/v1/{one.signal}", body, headers)[0] == 200
    after = sum(r["count"] for r in clickhouse.totals(Selection(0, START_S + 10**6, ("operator",))).to_pylist())
    assert after - before == sum(t.count for t in sent.truth.by().values())
    status, _, text = get(url, "/metrics")
    assert status == 200 and "sealift_fleet_store_rows " in text
    assert send(url, "GET", "/health")[2] == b'{"status": "ok", "store": "clickhouse"}'
