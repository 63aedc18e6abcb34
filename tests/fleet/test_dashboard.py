"""The dashboard over real sockets: every page, what it escapes, who may look, and that its downloads are the questions' own answers."""

from __future__ import annotations

import html.parser
import http.client
import io
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

pytest.importorskip("jinja2")

from sealift.fleet import questions
from sealift.fleet.cells import Side
from sealift.fleet.collector.limits import Limits
from sealift.fleet.dashboard import access, numbers
from sealift.fleet.dashboard.app import PAGES
from sealift.fleet.dashboard.view import View
from sealift.fleet.errors import QuestionError
from sealift.fleet.model import Batch, ModelEvent, Points, Resource, SeriesKey, labels_text
from sealift.fleet.questions import Question, without_decimals
from sealift.fleet.rules import Rule, Watch, check
from sealift.fleet.simulator import Regression
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Filter
from tests.fleet.conftest import START_S, Fleet, fill, simulated

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600.0  # the machine may be busy, or stop this program for a while
PATIENT = Limits(query_seconds=PATIENCE_S)
Serving = Callable[..., str]
NASTY = "<script>alert(1)</script>\"'&amp;</svg>--><img src=x onerror=alert(2)>\u202e{{7*7}}"
HOSTILE = {
    "operator": f"op {NASTY}", "model": f"model {NASTY}", "service": f"service {NASTY}", "version": f"version {NASTY}", "host": f"host {NASTY}",
    "instance": f"instance {NASTY}",
}  # fmt: skip
VOID = {"meta", "link", "input", "img", "br", "option"}


def send(url: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


class Document(html.parser.HTMLParser):
    """A page's elements, with what tests ask about: that it is well formed, its ids, its links, its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    status, found, body = send(url, "GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return status, found, body.decode()


def page(url: str, path: str, **headers: str) -> Document:
    status, _, body = get(url, path, **headers)
    assert status == 200, (status, body)
    return Document(body)


def paths(fleet: Fleet) -> list[str]:
    """Every page, over the simulated fleet's time."""
    when = f"from={fleet.plan.start_s}&to={fleet.end_s}"
    instance, host = fleet.sent[0].process.instance, fleet.sent[0].process.host
    named = {
        "/operator": "&name=aten::addmm", "/model": "&name=minilm-v2", "/process": f"&instance={instance}", "/host": f"&name={host}",
        "/compare": f"&b_from={fleet.plan.start_s + 180}&b_to={fleet.end_s}",
    }  # fmt: skip
    return [f"{path}?{when}{named.get(path, '')}" for path in PAGES]


@pytest.fixture
def url(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> str:
    fill(store, fleet.batches())
    return serving(store, clock_ns=lambda: (fleet.end_s + 5) * 10**9, watch=Watch((Rule(),)), limits=PATIENT)


def test_every_page_is_well_formed_and_leads_somewhere(url: str, fleet: Fleet) -> None:
    seen, linked = set[str](), set[str]()
    for path in paths(fleet):
        status, headers, body = get(url, path)
        assert status == 200 and headers["content-type"] == "text/html; charset=utf-8", (path, status, body)
        document = Document(body)
        ids = [a["id"] for _, a in document.elements if a.get("id")]
        assert len(ids) == len(set(ids)), (path, sorted(i for i in ids if ids.count(i) > 1))
        for _, attributes in document.elements:
            for name in ("aria-labelledby", "aria-describedby", "for", "list"):
                for wanted in (attributes.get(name) or "").split():
                    assert wanted in ids, (path, name, wanted)
            assert "style" not in attributes and not [a for a in attributes if a.startswith("on")], (path, attributes)
        labelled = {a["for"] for a in document.all("label")}
        assert {a.get("id") for a in document.all("input") if a.get("type") != "hidden"} <= labelled, path
        assert [tag for tag, _ in document.elements].count("h1") == 1 and document.all("main") and document.all("nav"), path
        assert len(document.all("table")) == len(document.all("caption")), path
        for script in document.all("script"):
            assert script["src"], path
        seen.add(urllib.parse.urlsplit(path).path)
        linked |= {a["href"] or "" for a in document.all("a")}
    assert seen == set(PAGES)
    targets = sorted({h.partition("#")[0] for h in linked} - {""})
    by_page: dict[str, list[str]] = {}
    for target in targets:
        assert target.startswith("/") and not target.startswith("//")
        by_page.setdefault(urllib.parse.urlsplit(target).path, []).append(target)
    for some in by_page.values():  # of each kind of link a few
        for target in some[:3]:
            assert send(url, "GET", target)[0] in (200, 303), target
    assert len(by_page) > len(PAGES)


def test_numbers_are_the_questions_own(url: str, store: EmbeddedStore, fleet: Fleet) -> None:
    question = Question(fleet.plan.start_s, fleet.end_s, ("operator",), limit=15)
    words = page(url, f"/?from={fleet.plan.start_s}&to={fleet.end_s}").words
    for row in questions.top(store, question).to_pylist():
        shown = f"{row['operator']} {numbers.duration(row['total_ns'])} {numbers.error(row, 'total_ns')}".strip()
        assert shown in words, shown
        assert numbers.percent(row["share"]) in words and numbers.duration(row["p99_ns"]) in words
    model = page(url, f"/model?name=minilm-v2&from={fleet.plan.start_s}&to={fleet.end_s}").words
    assert "model.py:31 encoder.layer.0.mlp" in model and "aten.mm, aten.gelu" in model and "release-pipeline" in model and "signed" in model
    assert "encoder" in model and "Time by module" in model
    only_torch = page(url, f"/model?name=resnet50-v3&from={fleet.plan.start_s}&to={fleet.end_s}").words
    assert "Own time by operator" in only_torch and "Time by module" not in only_torch and "they lie by namespace" in only_torch


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    """The same rows; sums of floating-point numbers may differ in their last digits from one asking to the next."""
    assert found.schema.equals(wanted.schema) and found.num_rows == wanted.num_rows
    for a, b in zip(found.to_pylist(), wanted.to_pylist()):
        for name, value in b.items():
            assert a[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


def test_downloads_equal_the_questions(url: str, store: EmbeddedStore, fleet: Fleet) -> None:
    start, end = fleet.plan.start_s, fleet.end_s
    where = (Filter("model", "=", "bert-base-v7"),)
    # Every download link of the model's page is what `questions` answers, in both formats.
    document = page(url, f"/model?name=bert-base-v7&from={start}&to={end}")
    links = [a["href"] or "" for a in document.all("a") if "download" in a]
    assert {urllib.parse.urlsplit(link).path.rsplit(".")[1] for link in links} == {"csv", "parquet"}
    asked = {urllib.parse.urlsplit(link).path.removeprefix("/download/").partition(".")[0] for link in links}
    assert asked == {"lineage", "trend", "quantiles", "top", "heatmap"}
    step = questions.step_for(start, end)
    expected: dict[str, pa.Table] = {
        "lineage": questions.lineage(store, where),
        "trend": questions.trend(store, Question(start, end, ("operator",), where, limit=8, step_s=step)),
        "quantiles": questions.quantile_trend(store, Question(start, end, (), where, step_s=step)),
        "heatmap": questions.heatmap(store, Question(start, end, (), where, step_s=step)),
    }
    for link in links:
        status, headers, body = send(url, "GET", link)
        question, _, format = urllib.parse.urlsplit(link).path.removeprefix("/download/").partition(".")
        assert status == 200 and f"sealift-{question}.{format}" in headers["content-disposition"], link
        parameters = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query)
        if question == "top":
            by = tuple(parameters["by"][0].split(","))
            table = questions.top(store, Question(start, end, by, where, limit=int(parameters["limit"][0])))
        else:
            table = expected[question]
        table = without_decimals(table)
        assert table.num_rows
        if format == "parquet":
            found = pq.read_table(io.BytesIO(body))
        else:
            types = pacsv.ConvertOptions(column_types={f.name: f.type for f in table.schema})
            found = pacsv.read_csv(io.BytesIO(body), convert_options=types)
        assert_same(found, table)
    diff = f"/download/diff.parquet?from={start}&to={start + 180}&b_from={start + 180}&b_to={end}&by=model"
    table = questions.diff(store, Side(start, start + 180), Side(start + 180, end), ("model",))
    assert_same(pq.read_table(io.BytesIO(send(url, "GET", diff)[2])), table)
    assert get(url, "/download/top.exe")[0] == 400 and get(url, "/download/nothing.csv")[0] == 400


def test_a_trend_adds_up_to_the_operators_own_time(url: str, store: EmbeddedStore, fleet: Fleet) -> None:
    start, end = fleet.plan.start_s, fleet.end_s
    rows = questions.top(store, Question(start, end, ("operator", "model"), limit=1000)).to_pylist()
    busy = sum(r["self_ns"] for r in rows) / 1e9 / (end - start)
    for by in ("model", "operator", "host"):  # more operators and hosts than colours: the rest is "other"
        words = page(url, f"/?from={start}&to={end}&by={by}").words
        assert float(re.findall(r"Busy threads ([\d.]+)", words)[0]) == pytest.approx(busy, rel=0.01), by
        assert (" other " in words) == (by != "model")


def test_alarms_as_a_page_and_as_files(store: EmbeddedStore, serving: Serving) -> None:
    minutes = 30
    slower = simulated(hosts=6, minutes=minutes, duty=0.5, regression=Regression("aten::addmm", "bert-base-v7", 1.6, after_s=minutes * 40))
    fill(store, slower.batches(), group=500)
    rules = (Rule("window", window_s=600, share=0.001),)
    watch = Watch(rules)
    url = serving(store, limits=PATIENT, clock_ns=lambda: slower.end_s * 10**9, watch=watch)
    assert "No regressions" in page(url, "/alerts").words  # the watch has not looked yet
    words = page(url, "/alerts?check=1").words
    assert "aten::addmm, bert-base-v7" in words and "window" in words
    expected = [a.as_dict() for a in check(store, rules, slower.end_s)]
    found = pq.read_table(io.BytesIO(send(url, "GET", "/download/alarms.parquet?check=1")[2])).to_pylist()
    assert [(r["rule"], r["operator"], r["model"], r["since"], r["hosts"]) for r in found] == [
        (a["rule"], a["keys"]["operator"], a["keys"]["model"], a["since"], a["hosts"]) for a in expected
    ]
    assert [r["ratio"] for r in found] == [pytest.approx(a["ratio"], rel=1e-9) for a in expected] and len(found) >= 1
    watch.look(store, slower.end_s)
    assert "aten::addmm" in page(url, "/alerts").words and "Alarms 1 see the rules" in page(url, "/?from=all").words
    assert get(url, "/download/alarms.csv")[2].startswith('"rule","operator","model","keys","ratio"')


def test_two_versions_and_two_hosts_beside_one_another(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    batches = fleet.batches()
    newer = [
        replace(b, resource=b.resource._replace(version="2.5.0", host=f"{b.resource.host}-new", instance=f"{b.resource.instance}-new"), sequence=None)
        for b in batches
        if b.resource.service == "vision-api"
    ]
    newer = [replace(b, points=replace(b.points, total_ns=b.points.total_ns * 2)) for b in newer]
    fill(store, batches)
    fill(store, newer, now_ns=(START_S + 100) * 10**9)
    url = serving(store, limits=PATIENT, clock_ns=lambda: (fleet.end_s + 5) * 10**9)
    document = page(url, f"/compare?from={fleet.plan.start_s}&to={fleet.end_s}")
    presets = {h for a in document.all("a") if (h := a["href"] or "").startswith("/compare?") and "a_where" in h}
    assert len(presets) == 1
    words = page(url, presets.pop()).words
    found = dict(re.findall(r"(aten::\w+) (slower|faster|no evidence) [+−]", words))
    assert {name for name, verdict in found.items() if verdict != "slower"} == {"aten::flatten"} and len(found) == 9, words  # 96 calls prove nothing
    host = fleet.sent[0].process.host
    document = page(url, f"/host?name={host}&from={fleet.plan.start_s}&to={fleet.end_s}")
    links = [a["href"] or "" for a in document.all("a") if "a_where" in (a["href"] or "")]
    other = page(url, links[0]).words
    assert f"where host!={host}" in other and f"where host={host}" in other and "p-value" not in other and "Mean time of a call, B against A" in other


def test_an_empty_store_says_what_to_do(store: EmbeddedStore, serving: Serving) -> None:
    url = serving(store, limits=PATIENT)
    for path in PAGES:
        named = {"/operator": "?name=x", "/model": "?name=x", "/host": "?name=x", "/compare": "?from=-2h&to=-1h&b_from=-1h&b_to=now"}
        if path == "/process":
            assert get(url, "/process?instance=x")[0] == 400
            continue
        document = page(url, path + named.get(path, ""))
        assert document.all("pre") or path in ("/compare", "/alerts", "/model"), path
        for hint in ("".join(text.split()) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", get(url, path + named.get(path, ""))[2], re.DOTALL)):
            guide = re.match(r"docs/guides/\w+\.md", hint)
            assert guide is None or (ROOT / guide[0]).exists(), hint
    assert "sealift fleet simulate" in page(url, "/").words
    from sealift.observe.autostart_settings import Settings

    hint = re.search(r"SEALIFT_OBSERVE=(\S+)", page(url, "/processes").words)
    assert hint and Settings.parse(hint[1]).sinks[0].startswith("fleet:http://")


def test_nothing_in_range_leads_to_where_there_is(url: str) -> None:
    document = page(url, "/?from=-5d&to=-4d&model=bert-base-v7")
    links = [a["href"] for a in document.all("a")]
    assert "Nothing in this range" in document.words and "/?from=all&model=bert-base-v7" in links and "/?from=-5d&to=-4d" in links


def hostile_batches() -> list[Batch]:
    texts = HOSTILE
    batches = []
    for i in range(3):
        resource = Resource(texts["service"], texts["version"], texts["host"], texts["instance"], 7, NASTY, labels_text({f"k{NASTY}": NASTY}))
        origin = f"{NASTY} @ {NASTY}.py:3 a.{NASTY}"
        key = SeriesKey(texts["operator"], "sealift", "kernel", texts["model"], NASTY, origin, labels_text({"phase": NASTY}))
        event = ModelEvent("loaded", START_S * 10**9, texts["model"], f"digest {NASTY}", "", f"/{NASTY}", NASTY, NASTY, "false")
        columns: dict[str, Any] = dict(series=[key.id], time_s=[START_S + 10 * i], count=[40], samples=[10], total_ns=[4000], self_ns=[-1], zero=[0], first=[50], offsets=[0, 2], counts=[20, 20])  # fmt: skip
        points = Points(**{k: np.array(v, np.int64) for k, v in columns.items()})
        batches.append(Batch("metrics", resource, i, i, points, {key.id: key}))
        batches.append(Batch("logs", resource, i, i, model_events=(event,)))
    return batches


def test_names_from_the_network_stay_text(store: EmbeddedStore, serving: Serving) -> None:
    fill(store, hostile_batches())
    url = serving(store, limits=PATIENT, clock_ns=lambda: (START_S + 60) * 10**9)
    quoted = {k: urllib.parse.quote(v) for k, v in HOSTILE.items()}
    when = f"from={START_S}&to={START_S + 60}"
    for path in (
        f"/?{when}&by=operator", f"/operators?{when}", f"/operator?{when}&name={quoted['operator']}", f"/models?{when}",
        f"/model?{when}&name={quoted['model']}", f"/hosts?{when}", f"/host?{when}&name={quoted['host']}", "/lineage", "/processes",
        f"/process?{when}&instance={quoted['instance']}", f"/compare?{when}&b_from={START_S}&b_to={START_S + 30}&by=operator,model",
        f"/?{when}&service={quoted['service']}&where={urllib.parse.quote('label:phase=' + NASTY)}",
    ):  # fmt: skip
        status, headers, body = get(url, path)
        assert status == 200, (path, body)
        document = Document(body)  # well formed: no name broke out of its element
        assert all(a.get("src") for a in document.all("script")) and len(document.all("script")) == 1, path
        assert not [a for _, attributes in document.elements for a in attributes if a.startswith("on")], path
        assert all((a["src"] or "").startswith("/static/") for a in document.all("img")), path
        assert "<script>alert" not in body and "onerror=alert(2)>" not in re.sub(r'"[^"]*"', '""', body), path
        assert "49" not in re.findall(r"\u202e(\d+)", body), path  # a name is no template
        assert NASTY in "".join(document.text) or NASTY in str(document.elements), path
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "script-src 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    status, _, body = get(url, f"/operator?name={quoted['operator']}&nonsense={quoted['host']}")
    assert status == 400 and "<script>alert" not in body
    status, _, body = get(url, f"/{quoted['host']}")
    assert status == 404 and "<script>alert" not in body


def test_mistakes_get_a_page_that_says_the_way_out(url: str) -> None:
    for path, words in (
        ("/?hots=a", "parameter 'hots'"), ("/?from=yesterday", "time 'yesterday'"), ("/?where=nonsense", "filter 'nonsense'"),
        ("/?from=now&to=-1h", "the start comes before the end"), ("/process?instance=nobody", "/processes lists"), ("/operator", "/operator?name="),
        ("/compare?from=-1h&a_where=x", "filter 'x'"),
    ):  # fmt: skip
        status, headers, body = get(url, path)
        assert status == 400 and words in Document(body).words and "E-FLEET-003" in body and "default-src" in headers["content-security-policy"], path
    assert get(url, "/nowhere")[0] == 404 and get(url, "/static/../app.py")[0] == 404
    assert get(url, "/?service=&host=&from=-2h&model=bert-base-v7")[1]["location"] == "/?from=-2h&model=bert-base-v7"
    assert get(url, "/compare?model=a")[1]["location"] == "/compare?from=-2h&to=-1h&b_from=-1h&b_to=now&model=a"


def test_with_a_read_token_everything_asks_for_it(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    url = serving(store, limits=Limits(read_tokens=("öpen; sesame", "other"), query_seconds=PATIENCE_S), clock_ns=lambda: (fleet.end_s + 5) * 10**9)
    for path in (*paths(fleet), "/download/top.csv", "/nowhere", "/trace/x"):
        status, headers, body = get(url, path)
        assert status == 401 and headers["www-authenticate"] == "Bearer" and "aten" not in re.sub(r'value="[^"]*"', "", body), path
    assert get(url, "/", Authorization="Bearer other")[0] == 200
    wrong = get(url, "/", Authorization="Bearer wrong")
    assert wrong[0] == 401 and "is not one of" in Document(wrong[2]).words
    # The page that was asked for is where the form leads.
    form = Document(get(url, "/operators?from=all")[2])
    assert {"type": "hidden", "name": "next", "value": "/operators?from=all"} in form.all("input")

    def post(token: str, where: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        body = urllib.parse.urlencode({"token": token, "next": where}).encode()
        return send(
            url,
            "POST",
            "/sign-in",
            body,
            {"Content-Type": "application/x-www-form-urlencoded"} | {k.replace("_", "-"): v for k, v in headers.items()},
        )

    refused = post("wrong", "/operators")
    assert refused[0] == 403 and "set-cookie" not in refused[1] and "not one of" in refused[2].decode()
    assert post("other", "/", Sec_Fetch_Site="cross-site")[0] == 403 and post("other", "/", Origin="https://elsewhere.example")[0] == 403
    status, headers, _ = post("öpen; sesame", "/operators?from=all")
    cookie = headers["set-cookie"]
    assert status == 303 and headers["location"] == "/operators?from=all" and "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert "Secure" not in cookie  # plain HTTP on loopback
    mine = cookie.partition(";")[0]
    assert get(url, "/operators?from=all", Cookie=mine)[0] == 200 and get(url, "/download/top.csv?from=all", Cookie=mine)[0] == 200
    assert get(url, "/", Cookie=f"{access.COOKIE}=bm90aGluZw==")[0] == 401 and get(url, "/", Cookie=f"{access.COOKIE}=%%%")[0] == 401
    assert get(url, "/api/v1/top", Cookie=mine)[0] == 401  # the API knows the header alone
    status, headers, _ = send(url, "POST", "/sign-out", b"", {"Cookie": mine})
    assert status == 303 and "Max-Age=0" in headers["set-cookie"]
    assert get(url, "/static/style.css")[0] == 200  # the sign-in page needs it


@pytest.mark.parametrize("address", ["https://e.example/", "//e.example", "/\\e.example", "javascript:alert(1)", "/a\r\nSet-Cookie: b=c", ""])
def test_a_sign_in_leads_nowhere_else(address: str) -> None:
    assert access.inside(address) == "/"
    assert access.inside("/operator?name=a%2F%2Fb&from=-1h") == "/operator?name=a%2F%2Fb&from=-1h"


def test_a_trace_from_a_process_page(url: str, fleet: Fleet) -> None:
    process = fleet.sent[0].process
    document = page(url, f"/process?instance={process.instance}")
    assert any(a.get("action") == "/trace" for a in document.all("form"))
    body = urllib.parse.urlencode({"instance": process.instance}).encode()
    assert send(url, "POST", "/trace", body, {"Origin": "https://elsewhere.example"})[0] == 403
    assert send(url, "POST", "/trace", b"instance=nobody")[0] == 400
    status, headers, _ = send(url, "POST", "/trace", body)
    assert status == 303 and headers["location"].startswith("/trace/")
    waiting = send(url, "GET", headers["location"])
    assert waiting[0] == 202 and b'http-equiv="refresh"' in waiting[2]
    assert send(url, "POST", f"/v1/sealift{headers['location']}", b'{"traceEvents": []}')[0] == 204
    assert send(url, "GET", headers["location"])[2] == b'{"traceEvents": []}'
    assert send(url, "GET", "/trace/none")[0] == 404


def test_static_files_are_cached_by_their_content(url: str) -> None:
    document = page(url, "/")
    for address in (*(a["href"] or "" for a in document.all("link")), *(a["src"] or "" for a in document.all("script"))):
        status, headers, _ = get(url, address)
        assert status == 200 and "immutable" in headers["cache-control"], address
        assert get(url, address, If_None_Match=headers["etag"])[0] == 304
    assert get(url, "/static/app.py")[0] == 404


def test_a_view_is_its_address(store: EmbeddedStore) -> None:
    for query in (
        "",
        "from=-6h",
        "from=-2d&to=-1d&model=a%2Fb&where=label%3Ax%3D1&where=operator~aten%3A%3A%2A",
        "from=all",
        "service=s&by=host&order=p99_ns",
    ):
        view = View.parse("/", query, store, START_S)
        again = View.parse("/", urllib.parse.urlsplit(view.url).query, store, START_S)
        assert again == view, query
    view = View.parse("/", "from=-1h&host=h&where=pid%3D3", store, START_S)
    assert view.without("host=h") == "/?where=pid%3D3" and view.without("pid=3") == "/?host=h"
    assert view.picking("/", "model", "") == "/?host=h&where=pid%3D3&where=model%3D"
    assert View.parse("/", "from=100&to=160", store, START_S).shifted(-1) == "/?from=1970-01-01T00:00:40&to=1970-01-01T00:01:40"
    with pytest.raises(QuestionError, match="E-FLEET-003"):
        View.parse("/", "colour=red", store, START_S)


def test_numbers_as_people_read_them() -> None:
    assert [numbers.duration(v) for v in (0, 3.2, 999, 1234, 52_700, 1.5e6, 2.5e9, 7200e9, -4e6, None, float("inf"))] == [
        "0 ns", "3.20 ns", "999 ns", "1.23 µs", "52.7 µs", "1.50 ms", "2.50 s", "2.00 h", "−4.00 ms", "–", "–",
    ]  # fmt: skip
    assert [numbers.count(v) for v in (0, 7, 12_345, 4.2e6, 0.5)] == ["0", "7", "12,345", "4.20 M", "0.5"]
    assert [numbers.change(v) for v in (1.4, 0.9, 1.0, 5.0, None)] == ["+40%", "−10%", "+0%", "×5", "–"]
    row = {"p50_ns": 100.0, "p50_ns_low": 90.0, "p50_ns_high": 104.0, "p99_ns": 5.0, "p99_ns_low": 4.0, "p99_ns_high": float("inf")}
    assert numbers.error(row, "p50_ns") == "± 10%" and numbers.error(row, "p99_ns") == "+?" and numbers.error({"count": 3}, "count") == ""
