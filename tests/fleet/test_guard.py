"""What stands before every request: names, other sites' pages, headers, tokens that stay secret, and files that spreadsheets do not compute."""

from __future__ import annotations

import csv
import http.client
import io
import json
import subprocess
import sys
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sealift.fleet.collector.answers import encoded
from sealift.fleet.collector.guard import Names, host_name
from sealift.fleet.collector.limits import Limits
from sealift.fleet.collector.serve import without_password
from sealift.fleet.drive import start_collector, wait_ready
from sealift.fleet.model import Batch, Points, Resource, SeriesKey
from sealift.fleet.rules import Rule, Watch
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.conftest import START_S, Fleet, fill
from tests.fleet.test_rules import alarm

Serving = Callable[..., str]
Answer = tuple[int, dict[str, str], str]
PROTOBUF = "application/x-protobuf"


def ask(url: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
    connection.request(method, path, body, {k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode(errors="replace")
    connection.close()
    return found


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:4318", "127.0.0.1"), ("[::1]:4318", "::1"), ("[::1]", "::1"), ("LocalHost.", "localhost"), ("a.example:80", "a.example"), ("", ""),
        ("a b", ""), ("user@127.0.0.1", ""), ("127.0.0.1/x", ""), ("a:1:2", ""), ("[a", ""), ("127.0.0.1:", ""), (":80", ""), ("evil.example:80#", ""),
    ],
)  # fmt: skip
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_a_rebound_name_is_not_answered_to(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    """DNS rebinding: a page of evil.example reaches 127.0.0.1 under its own name, as one origin with it."""
    url = serving(store, names=Names.of(("Fleet.Example.",)))
    port = urllib.parse.urlsplit(url).port
    for path in ("/", "/operators", "/static/style.css", "/api/v1/top", "/api/v1/info", "/metrics", "/download/top.csv", "/sign-in"):
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", "xlocalhost", ""):
            status, _, text = ask(url, path, Host=name)
            assert status == 421 and "[E-FLEET-009]" in text and "help: " in text and "<" not in text, (path, name)
    assert "--allow-host evil.example" in ask(url, "/", Host=f"evil.example:{port}")[2]
    for name in ("127.0.0.1", f"localhost:{port}", "[::1]:80", "app.localhost", "10.1.2.3", "fleet.example", f"FLEET.example:{port}"):
        assert ask(url, "/api/v1/top", Host=name)[0] == 200 == ask(url, "/", Host=name)[0], name
    body = next(s.body for s in fleet.sent if s.signal == "metrics")
    before = store.committed_points
    assert ask(url, "/v1/metrics", "POST", body, Host="evil.example", Content_Type=PROTOBUF)[0] == 421 and store.committed_points == before
    assert ask(url, "/v1/metrics", "POST", body, Host="localhost", Content_Type=PROTOBUF)[0] == 200
    assert ask(url, "/health", Host="10-1-2-3.pod.cluster.local")[0] == 200
    assert 'sealift_fleet_refused_total{reason="host"} 50' in ask(url, "/metrics")[2]


def test_a_token_or_a_name_that_is_allowed_answers_under_any_name(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    body = next(s.body for s in fleet.sent if s.signal == "metrics")
    url = serving(store, limits=Limits(write_tokens=("w",), read_tokens=("r",)))
    assert ask(url, "/api/v1/top", Host="c.example", Authorization="Bearer r")[0] == 200
    assert ask(url, "/v1/metrics", "POST", body, Host="c.example", Content_Type=PROTOBUF, Authorization="Bearer w")[0] == 200
    assert ask(url, "/", Host="evil.example")[0] == 401  # asked for the token, which no other site has
    open_ = serving(store, names=Names.of(("*",)))
    assert ask(open_, "/api/v1/top", Host="c.example")[0] == 200
    half = serving(store, limits=Limits(write_tokens=("w",)))  # agents show a token, readers do not
    assert ask(half, "/v1/metrics", "POST", body, Host="c.example", Content_Type=PROTOBUF, Authorization="Bearer w")[0] == 200
    assert ask(half, "/api/v1/top", Host="c.example")[0] == 421


def test_another_site_s_page_gives_no_orders(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    url = serving(store)
    sql = json.dumps({"sql": "SELECT 1"}).encode()
    for path in ("/api/v1/sql", "/api/v1/check", "/api/v1/trace", "/v1/metrics", "/trace", "/sign-out", "/sign-in"):
        status, _, text = ask(url, path, "POST", sql, Content_Type="text/plain", Sec_Fetch_Site="cross-site")
        assert status == 403 and "[E-FLEET-009]" in text, path
    for site in ("same-origin", "none"):
        assert ask(url, "/api/v1/sql", "POST", sql, Sec_Fetch_Site=site)[0] == 200
    assert ask(url, "/api/v1/sql", "POST", sql)[0] == 200  # programs send no such header
    assert ask(url, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200  # a link in a chat
    for path in ("/", "/api/v1/top"):  # no other origin may read
        answer = ask(url, path, Origin="https://evil.example")
        assert not [name for name in answer[1] if name.startswith("access-control-")]
        assert ask(url, path, "OPTIONS", Origin="https://evil.example", Access_Control_Request_Method="GET")[0] == 405


def test_every_answer_forbids_scripts_and_guessing(store: EmbeddedStore, serving: Serving, fleet: Fleet) -> None:
    fill(store, fleet.batches())
    url = serving(store)
    for path in (
        "/",
        "/static/dashboard.js",
        "/nothing",
        "/sign-in",
        "/download/top.csv",
        "/api/v1/top",
        "/api/v1/nothing",
        "/metrics",
        "/health",
        "/v1/metrics",
    ):
        _, headers, _ = ask(url, path)
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'", path
        assert not {"unsafe-inline", "unsafe-eval"} & set(headers["content-security-policy"].replace("'", "").split()), path
        assert policy.get("script-src", "'none'") in ("'self'", "'none'") and headers["x-content-type-options"] == "nosniff", path
        assert "public" in headers["cache-control"] or "no-" in headers["cache-control"], path


def test_secrets_are_in_no_address_and_no_log(
    tmp_path: Path, fleet: Fleet, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    secrets = {name: f"{name}-7f3a" for name in ("write", "read", "wrong")}
    for name in ("write", "read"):
        (tmp_path / name).write_text(secrets[name] + "\n")
    process = start_collector(tmp_path / "store", "--write-token", f"@{tmp_path / 'write'}", "--read-token", f"@{tmp_path / 'read'}")
    url = wait_ready(process)
    body = next(s.body for s in fleet.sent if s.signal == "metrics")
    seen: list[str] = [url]
    for token in secrets.values():
        for answer in (
            ask(url, "/v1/metrics", "POST", body, Content_Type=PROTOBUF, Authorization=f"Bearer {token}"),
            ask(url, "/v1/metrics", "POST", b"\xff" * 9, Content_Type=PROTOBUF, Authorization=f"Bearer {token}"),
            ask(url, "/api/v1/top?limit=x", Authorization=f"Bearer {token}"),
            ask(url, f"/?token={token}"),  # not a way in, whatever the token
            ask(url, "/", Cookie=f"sealift-token={token}"),
            ask(url, "/sign-in", "POST", urllib.parse.urlencode({"token": token, "next": "/operators"}).encode()),
        ):
            seen += [answer[2], answer[1].get("location", "")]
            assert answer[0] != 200 or token != secrets["wrong"]
        assert ask(url, f"/?token={token}")[0] == 401
    signed_in = ask(url, "/sign-in", "POST", urllib.parse.urlencode({"token": secrets["read"]}).encode())
    assert signed_in[0] == 303 and {"httponly", "samesite=strict"} <= {p.strip().lower() for p in signed_in[1]["set-cookie"].split(";")}
    process.terminate()
    rest, _ = process.communicate(timeout=600)
    hook = Watch((Rule(webhook="https://user:hook-7f3a@hooks.example/hook-7f3a"),), send=_fails)
    from unittest import mock

    with mock.patch("sealift.fleet.rules.check", lambda *_: [alarm()]):
        hook.look(None, START_S)  # type: ignore[arg-type]
    assert "hooks.example" in caplog.text and "hook-7f3a" not in caplog.text
    logged = rest + "".join(capfd.readouterr())
    pages = [text for text in seen if "next=" not in text and 'name="next"' not in text]  # a form leads back to the address that was asked for
    assert not [s for s in secrets.values() if s in logged or any(s in text for text in pages)]


def _fails(url: str, body: bytes) -> None:
    raise OSError("connection refused")


def test_a_store_s_password_is_not_printed() -> None:
    assert without_password("clickhouse://me:p%40ss@db:8123/fleet") == "clickhouse://me@db:8123/fleet"
    assert without_password("clickhouses://:pass@[::1]:1/fleet") == "clickhouses://@[::1]:1/fleet"
    for plain in ("./fleet", "clickhouse://db/fleet", "/data/a:b@c"):
        assert without_password(plain) == plain


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"]


def test_texts_in_csv_files_are_no_formulas() -> None:
    harmless = ["aten::mm", "a=1", "'=1", " x", "", "5"]
    table = pa.table({"=name": [*FORMULAS, *harmless], "negative": [-1.5] * (len(FORMULAS) + len(harmless))})
    _, *rows = csv.reader(io.StringIO(encoded(table, "csv", {})[0].decode(), newline=""))
    assert [row[0] for row in rows] == ["'" + text for text in FORMULAS] + harmless
    assert {row[1] for row in rows} == {"-1.5"}  # numbers are numbers
    assert pq.read_table(io.BytesIO(encoded(table, "parquet", {})[0])).column(0).to_pylist() == [*FORMULAS, *harmless]


@pytest.mark.parametrize("path", ["/download/ops.csv?from=all", "/api/v1/ops?from=all&format=csv"])
def test_a_hostile_operator_s_name_is_text_in_a_download(store: EmbeddedStore, serving: Serving, path: str) -> None:
    key, one = SeriesKey('=HYPERLINK("http://evil.example","x")'), np.ones(1, np.int64)
    points = Points(one * key.id, one * START_S, one, one, one * 100, -one, 0 * one, 50 * one, np.array([0, 1]), one)
    store.commit([Batch("metrics", Resource("service"), 0, 0, points, {key.id: key})], START_S * 10**9)
    rows = list(csv.reader(io.StringIO(ask(serving(store), path)[2])))
    assert rows[1][0] == '\'=HYPERLINK("http://evil.example","x")'


def test_the_option_is_there_and_says_what_it_does() -> None:
    shown = subprocess.run([sys.executable, "-m", "sealift", "fleet", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--allow-host" in shown
