"""The collector over real sockets: what it takes, what it refuses and how, and what it answers."""

from __future__ import annotations

import concurrent.futures
import gzip
import http.client
import json
import math
import re
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest, ExportMetricsServiceResponse

from sealift.fleet import connect
from sealift.fleet.client import Fleet as Client
from sealift.fleet.collector.limits import Limits, RateLimiter, allowed
from sealift.fleet.collector.serve import Address
from sealift.fleet.control import Budget, Controller
from sealift.fleet.errors import QuestionError, StoreFullError, UnreachableError
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.conftest import START_S, Fleet
from tests.fleet.test_rules import alarm

ROOT = Path(__file__).parents[2]
Serving = Callable[..., str]
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def send(url: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


def post(url: str, body: bytes, path: str = "/v1/metrics", **headers: str) -> tuple[int, dict[str, str], bytes]:
    return send(url, "POST", path, body, PROTOBUF | {k.replace("_", "-"): v for k, v in headers.items()})


def test_from_agents_to_answers(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda s: post(url, s.body, f"/v1/{s.signal}"), fleet.sent))
    assert {a[0] for a in answers} == {200}
    client = connect(url)
    times: dict[str, Any] = {"start": fleet.plan.start_s, "end": fleet.end_s}
    rows = client.top(by="model", **times).to_pylist()
    assert {r["model"]: r["count"] for r in rows} == {k[0]: t.count for k, t in fleet.truth.by("model").items()}
    for signal in ("metrics", "logs"):  # once more: acknowledged, and not counted
        repeated = next(s for s in fleet.sent if s.signal == signal)
        assert post(url, repeated.body, f"/v1/{signal}")[0] == 200
    assert client.top(by="model", **times).to_pylist() == rows
    assert client.trend(by="model", step="1m", **times).num_rows > 5 and client.quantiles(by="model", **times).num_rows > 5
    assert client.heatmap(where="model=resnet50-v3", **times).num_rows > 5
    assert client.models(**times).num_rows == 4 and client.hosts(**times).num_rows == 12
    assert client.apis(by="service").num_rows == 16 and client.lineage().num_rows == 3 and client.processes(where=["host~vision*"]).num_rows == 4
    assert client.diff(by="model", b_start=fleet.plan.start_s + 180, b_end=fleet.end_s, **times).num_rows == 4
    assert client.sql("SELECT sum(count) AS n FROM points").column("n").to_pylist() == [sum(r["count"] for r in rows)]
    assert client.info()["from"] == fleet.plan.start_s and client.alerts() == []
    assert client.top(start="all").num_rows > 20


def test_formats_and_mistakes(store: EmbeddedStore, serving: Serving, fleet: Fleet, tmp_path: Path) -> None:
    url = serving(store)
    for sent in fleet.sent[:40]:
        assert post(url, sent.body, f"/v1/{sent.signal}")[0] == 200
    query = f"/api/v1/ops?from={fleet.plan.start_s}&to={fleet.end_s}"
    status, headers, body = send(url, "GET", query)
    table = json.loads(body)
    assert status == 200 and headers["content-type"] == "application/json" and table["rows"][0]["operator"] and table["by"] == ["operator"]
    status, headers, body = send(url, "GET", query + "&format=csv")
    assert body.decode().splitlines()[0].startswith('"operator","count"') and "attachment" in headers["content-disposition"]
    (tmp_path / "a.parquet").write_bytes(send(url, "GET", query + "&format=parquet")[2])
    assert pq.read_table(tmp_path / "a.parquet").num_rows == len(table["rows"])
    for path in (
        "nothing", "ops?by=colour", "ops?from=-1x", "ops?from=now&to=-1h", "ops?limit=-1", "ops?format=xml", "ops?where=x", "ops?step=7", "ops?order=size",
        "ops?bogus=1", "apis?by=operator", "apis?where=operator=x", "ops?by=operator,operator", "ops?by=label:%22", "trend?step=15",
    ):  # fmt: skip
        status, _, body = send(url, "GET", f"/api/v1/{path}")
        assert status == 400 and json.loads(body)["error"]["code"] == "E-FLEET-003" and "help" in json.loads(body)["error"]["message"], path
    with pytest.raises(QuestionError, match=r"\[E-FLEET-003\]"):
        connect(url).sql("DROP TABLE series")
    assert send(url, "POST", "/api/v1/sql", b"{")[0] == 400 and send(url, "GET", "/v1/metrics")[0] == 405


def test_requests_that_are_refused(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store, limits=Limits(body_bytes=50_000, inflated_bytes=100_000))
    body = next(s.body for s in fleet.sent if s.signal == "metrics")
    assert post(url, b"\xff" * 100)[0] == 400
    assert post(url, b"x" * 60_000)[0] == 413
    assert send(url, "POST", "/v1/metrics", body)[0] == 415
    assert post(url, body, Content_Encoding="br")[0] == 415
    assert post(url, gzip.compress(bytes(1 << 20)), Content_Encoding="gzip")[0] == 400
    assert post(url, gzip.compress(body), Content_Encoding="gzip")[0] == 200
    assert store.committed_points > 0
    # A body whose length is not declared is cut off as well.
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=600)
    connection.request("POST", "/v1/metrics", iter([b"x" * 10_000] * 10), PROTOBUF, encode_chunked=True)
    assert connection.getresponse().status == 413
    assert post(url, b"")[0] == 200
    assert send(url, "GET", "/health")[0] == 200


def test_json_and_partial_success(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store)
    message = ExportMetricsServiceRequest.FromString(next(s.body for s in fleet.sent if s.signal == "metrics"))
    message.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0].scale = 0
    status, headers, body = post(url, message.SerializeToString())
    partial = ExportMetricsServiceResponse.FromString(body).partial_success
    assert status == 200 and partial.rejected_data_points == 1 and "scale" in partial.error_message
    del message.resource_metrics[0].resource.attributes[-1]  # without its number it is counted again
    status, headers, body = send(
        url, "POST", "/v1/metrics", json_format.MessageToJson(message).encode(), {"Content-Type": "application/json; charset=utf-8"}
    )
    assert status == 200 and json.loads(body)["partialSuccess"]["rejectedDataPoints"] == "1" and headers["content-type"] == "application/json"


def test_tokens(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store, limits=Limits(write_tokens=("w1", "w2"), read_tokens=("r",)))
    body = fleet.sent[0].body
    assert post(url, body, "/v1/logs")[0] == 401 and post(url, body, "/v1/logs", Authorization="Bearer r")[0] == 401
    assert post(url, body, "/v1/logs", Authorization="Bearer w2")[0] == 200
    assert send(url, "GET", "/metrics")[0] == 401 and send(url, "GET", "/health")[0] == 200
    assert Client(url, "r").processes().num_rows == 1
    with pytest.raises(UnreachableError, match="401") as error:
        Client(url, "w1").processes()
    assert error.value.code == "E-FLEET-004"
    assert allowed("bearer  r", ("r",)) and not allowed("Basic r", ("r",)) and not allowed("", ("r",)) and allowed("", ())


def test_a_client_that_sends_too_much_is_told_when_to_come_back(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store, limits=Limits(bytes_per_s=100.0))
    body = next(s.body for s in fleet.sent if s.signal == "metrics")
    assert len(body) > 1000
    assert post(url, body)[0] == 200
    status, headers, _ = post(url, body)
    assert status == 429 and int(headers["retry-after"]) >= 1
    clock = [0.0]
    limiter = RateLimiter(100.0, lambda: clock[0])
    assert limiter.wait_s("a", 1500) == 0 and limiter.wait_s("b", 10) == 0
    assert limiter.wait_s("a", 10) == pytest.approx(5.0)
    clock[0] = 5.1
    assert limiter.wait_s("a", 10) == 0


class Slow:
    """A store whose disk hangs, or is full."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.go = threading.Event()
        self.error: Exception | None = None

    def commit(self, *arguments: Any) -> Any:
        self.go.wait(600)
        if self.error:
            raise self.error
        return self._store.commit(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_behind_and_full(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    """While the disk hangs nothing is acknowledged and, past a limit, senders are turned away; what waited is acknowledged once it is durable."""
    slow = Slow(store)
    url = serving(slow, limits=Limits(inflight_bytes=6000))
    bodies = [s.body for s in fleet.sent if s.signal == "metrics"][:12]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(post, url, body) for body in bodies]
        try:
            done, waiting = concurrent.futures.wait(answers, return_when=concurrent.futures.FIRST_COMPLETED)
            assert waiting and {a.result()[0] for a in done} == {429} and store.committed_points == 0
        finally:
            slow.go.set()
        assert sorted({a.result()[0] for a in waiting}) in ([200], [200, 429])
    assert store.committed_points > 0
    points = store.committed_points
    slow.error = StoreFullError("no room")
    status, headers, _ = post(url, bodies[-1])
    assert status == 503 and headers["retry-after"] == "30"
    slow.error = RuntimeError("a bug")
    assert post(url, bodies[-1])[0] == 503 and store.committed_points == points
    slow.error = None
    assert post(url, bodies[-1])[0] == 200


def test_figures_for_prometheus(store: EmbeddedStore, serving: Serving, fleet: Fleet, record_property: Callable[[str, object], None]) -> None:
    slower = replace(alarm(), keys=(("operator", 'aten::"mm"'), ("model", "m\n")))  # what has to be escaped
    url = serving(store, clock_ns=lambda: fleet.end_s * 10**9, watch=Watch([Rule()], alarms=[slower]))
    for sent in fleet.sent[-60:]:
        post(url, sent.body, f"/v1/{sent.signal}")
    status, headers, body = send(url, "GET", "/metrics")
    text = body.decode()
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "sealift_fleet_metrics_requests_total 60\n" in text
    assert 'sealift_operator_p99_seconds{operator="aten::conv2d",model="resnet50-v3"} ' in text
    parser = pytest.importorskip("prometheus_client.parser")
    families = {f.name: f for f in parser.text_string_to_metric_families(text)}
    record_property("prometheus_families", len(families))
    record_property("prometheus_samples", sum(len(f.samples) for f in families.values()))
    assert families["sealift_fleet_points"].samples[0].value == store.committed_points
    for family in families.values():
        assert family.documentation and family.type in ("counter", "gauge"), family
        assert all(math.isfinite(s.value) and s.name.removesuffix("_total") == family.name for s in family.samples), family
        assert len({tuple(sorted(s.labels.items())) for s in family.samples}) == len(family.samples), family
    (ratio,) = families["sealift_fleet_regression_ratio"].samples
    assert (ratio.labels, ratio.value) == ({"rule": "slower", "operator": 'aten::"mm"', "model": "m\n"}, slower.ratio)
    exposed = {s.name: set(s.labels) for f in families.values() for s in f.samples}
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    assert board["title"] and len(board["panels"]) > 4
    for panel in board["panels"]:
        assert panel["title"] and panel["targets"] and panel["gridPos"]["w"] <= 24
        for target in panel["targets"]:
            used = re.findall(r"\bsealift_\w+", target["expr"])
            assert used and set(used) <= set(exposed), target["expr"]
            labels = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", ""))) | set(re.findall(r"by \((\w+)\)", target["expr"]))
            assert labels <= set().union(*(exposed[name] for name in used)), target
    for variable in board["templating"]["list"]:
        for name, asked in re.findall(r"label_values\((\w+), *(\w+)\)", str(variable.get("query", ""))):
            assert asked in exposed[name], variable


def test_tls_with_client_certificates(store: EmbeddedStore, serving: Serving, tmp_path: Path) -> None:
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], capture_output=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    url = serving(store, Address(port=0, certificate=tmp_path / "cert.pem", key=tmp_path / "key.pem", client_authority=tmp_path / "cert.pem"))
    assert url.startswith("https://")
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with pytest.raises(UnreachableError):
        Client(url, context=context).info()
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert Client(url, context=context).info()["store"] == "embedded"


def test_other_machines_need_a_token(store: EmbeddedStore) -> None:
    from sealift.fleet.collector.app import Collector
    from sealift.fleet.collector.serve import serve

    with pytest.raises(QuestionError, match="write-token"):
        serve(Collector(store), Address(host="0.0.0.0"), lambda url: None)


def test_traces_on_demand(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    url = serving(store)
    sent = next(s for s in fleet.sent if s.signal == "metrics")
    post(url, sent.body)
    instance = sent.process.instance
    with pytest.raises(QuestionError, match="no process"):
        connect(url).trace("nobody")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(connect(url).trace, instance, 0.5, 600.0)
        for _ in range(100):
            orders = json.loads(post(url, sent.body)[1]["sealift-control"])
            if "trace" in orders:
                break
        assert orders["trace_seconds"] == 0.5
        assert post(url, b"x", "/v1/sealift/trace/none")[0] == 404
        assert post(url, gzip.compress(b'{"traceEvents": []}'), f"/v1/sealift/trace/{orders['trace']}", Content_Encoding="gzip")[0] == 204
        assert answer.result(600) == b'{"traceEvents": []}'
    assert "trace" not in json.loads(post(url, sent.body)[1]["sealift-control"])


def test_orders_bring_the_overhead_to_its_budget() -> None:
    """An agent whose overhead is proportional to its duty; the fleet's rate to the sum of them."""
    clock = [0.0]
    controller = Controller(Budget(overhead=0.01, points_per_s=100.0, duty_min=1e-4), clock=lambda: clock[0])
    duty = {f"p{i}": 1.0 for i in range(20)}
    for _ in range(60):
        clock[0] += 10.0
        for name in duty:
            duty[name] = controller.orders(name, 0.1 * duty[name], round(500 * duty[name])).duty
    assert all(d * 0.1 <= 0.0101 for d in duty.values())
    assert sum(500 * d for d in duty.values()) / 10 == pytest.approx(100.0, rel=0.3)


def test_what_a_process_measured_before_it_was_told_is_not_held_against_it() -> None:
    """Its recorder comes down to a budget by itself: windows are taken from it only where it goes on measuring more."""
    clock = [0.0]
    controller = Controller(Budget(overhead=0.01), clock=lambda: clock[0], settle_s=5.0)
    duties = []
    for clock[0] in (0.0, 2.0, 4.0, 6.0):
        duties.append(controller.orders("a", 0.1, 1).duty)
    assert duties[:3] == [1.0, 1.0, 1.0] and duties[3] < 1
    controller.budget = Budget(overhead=0.001)
    clock[0] = 7.0
    assert controller.orders("a", 0.01, 1).duty == duties[3]


def test_the_watch_tells_its_webhook_once(store: EmbeddedStore, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.fleet.test_rules import alarm

    monkeypatch.setattr("sealift.fleet.rules.check", lambda *_: [alarm()])
    heard: list[tuple[str, bytes]] = []
    watch = Watch((Rule(webhook="http://hook"),), every_s=10, send=lambda url, body: heard.append((url, body)))
    for now in (START_S, START_S + 5, START_S + 20, START_S + 40):
        watch.look(store, now)
    assert len(heard) == 1 and heard[0][0] == "http://hook" and json.loads(heard[0][1])["keys"]["operator"] == "aten::mm"
    url = serving(store, watch=watch)
    assert connect(url).alerts()[0]["ratio"] == 1.5
    assert 'sealift_fleet_regression_ratio{rule="slower",operator="aten::mm"} 1.5' in send(url, "GET", "/metrics")[2].decode()
