"""`sealift fleet ...` against a collector, and the guide's commands; the extra's absence says what to install."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sealift.cli.main import main
from sealift.fleet.agent import FleetSink
from sealift.fleet.collector.limits import Limits
from sealift.fleet.store.embedded import EmbeddedStore
from tests.fleet.conftest import START_S, Fleet, fill, simulated
from tests.fleet.test_agent import delta, wait_for

ROOT = Path(__file__).resolve().parents[2]
Serving = Callable[..., str]


def sealift(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["fleet", *arguments], {}) == code
    return capsys.readouterr().out


@pytest.fixture
def url(store: EmbeddedStore, serving: Serving, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> str:
    fill(store, fleet.batches(), 200)
    address = serving(store, clock_ns=lambda: fleet.end_s * 10**9)
    monkeypatch.setenv("SEALIFT_FLEET_URL", address)
    return address


def test_questions(url: str, capsys: pytest.CaptureFixture[str], fleet: Fleet) -> None:
    for verb in ("top", "ops", "models", "hosts", "trend", "apis", "lineage", "processes"):
        assert len(sealift(capsys, verb).splitlines()) > 3, verb
    table = json.loads(sealift(capsys, "top", "--json", "--by", "model", "--from", "-6m", "--order", "count"))
    assert {r["model"]: r["count"] for r in table["rows"]} == {k[0]: t.count for k, t in fleet.truth.by("model").items()}
    first = sealift(capsys, "ops", "--where", "model=resnet50-v3", "--limit", "1").splitlines()
    assert len(first) == 2 and re.match(r"aten::(conv2d|mkldnn_convolution) +[\d,]+ ±\d+%", first[1])
    assert "x" not in sealift(capsys, "ops", "--where", "model=none")
    assert "aten::conv2d" in sealift(capsys, "diff", "--from", "-6m", "--to", "-3m", "--b-from", "-3m", "--limit", "40")
    assert sealift(capsys, "sql", "SELECT count(DISTINCT operator) AS operators FROM series").split() == ["operators", "29"]
    assert sealift(capsys, "check") == "nothing got slower\n"
    assert main(["fleet", "top", "--by", "colour"], {}) == 1
    assert "[E-FLEET-003] key 'colour'; help: operator" in capsys.readouterr().err
    assert main(["fleet", "top", "--url", "http://127.0.0.1:9"], {}) == 1
    assert "[E-FLEET-004]" in capsys.readouterr().err
    assert main(["fleet", "trace", "--process", "nobody"], {}) == 1


def test_check_fails_a_pipeline_and_names_the_culprit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sealift.fleet.simulator import Regression

    fleet = simulated(hosts=24, minutes=20, interval_s=20, regression=Regression("aten::scaled_dot_product_attention", "bert-base-v7", 1.5, 900.0))
    store = EmbeddedStore(tmp_path / "store")
    fill(store, fleet.batches(), 500)
    store.close()
    rules = tmp_path / "rules.json"
    rules.write_text('[{"name": "now", "window": "5m"}]')
    arguments = ["check", "--store", str(tmp_path / "store"), "--rules", str(rules)]
    assert sealift(capsys, *arguments, "--at", str(fleet.plan.start_s + 890)) == "nothing got slower\n"
    text = sealift(capsys, *arguments, "--at", str(fleet.end_s), code=1)
    assert text.startswith("slower: operator aten::scaled_dot_product_attention, model bert-base-v7: ")
    (alarm,) = json.loads(sealift(capsys, *arguments, "--at", str(fleet.end_s), "--json", code=1))["alarms"]
    assert abs(alarm["since"] - (START_S + 900)) <= 60


def test_explain_prints_what_would_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str], fleet: Fleet) -> None:
    text = sealift(capsys, "explain")
    assert "sealift.operator.duration" in text and "Never sent:" in text and "the values of tensors" in text
    for signal, word in (("metrics", "exponentialHistogram"), ("logs", "sealift.api_usage")):
        path = tmp_path / f"1.{signal}"
        path.write_bytes(next(s.body for s in fleet.sent if s.signal == signal))
        assert word in sealift(capsys, "explain", "--file", str(path))
    path.write_bytes(b"\xff\xff")
    assert main(["fleet", "explain", "--file", str(path)], {}) == 1
    assert "[E-FLEET-005]" in capsys.readouterr().err


def test_simulate_starts_a_collector_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    report: Any = json.loads(sealift(capsys, "simulate", "--hosts", "20", "--minutes", "2", "--speed", "0", "--json"))
    assert report["failed"] == 0 and report["requests"] > 200 and report["points"] > 1000 and len(report["top"]) == 11
    assert main(["fleet", "simulate", "--hosts", "0"], {}) == 1
    assert main(["fleet", "simulate", "--regression", "x"], {}) == 1


def test_without_the_extra_the_error_says_what_to_install() -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "duckdb", "starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from sealift.cli.main import main
sys.exit(main(["fleet", "top"], {}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "[E-FLEET-008]" in done.stderr and "pip install 'sealift[fleet]'" in done.stderr


def test_the_guide_s_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every `sealift fleet VERB --option` of the guide is one that the parser knows."""
    from sealift.cli.main import parser

    text = (ROOT / "docs/guides/fleet.md").read_text()
    for verb in {*re.findall(r"sealift fleet ([a-z]+)", text), "trend", "ops", "processes"}:
        with pytest.raises(SystemExit) as done:
            parser().parse_args(["fleet", verb, "--help"])
        assert done.value.code == 0, verb
    shown = capsys.readouterr().out
    for option in set(re.findall(r"(?<![\w-])--[a-z0-9]+(?:-[a-z0-9]+)*", text)) - {"--keep"}:
        assert option in shown, option


def test_deployment_files() -> None:
    yaml = pytest.importorskip("yaml")
    for name in ("docker-compose.yml", "prometheus.yml", "kubernetes.yaml"):
        assert all(list(yaml.safe_load_all((ROOT / "deploy" / name).read_text())))
    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    source = (ROOT / "sealift/fleet/collector/figures.py").read_text() + (ROOT / "sealift/fleet/store/embedded.py").read_text()
    for panel in board["panels"]:
        for target in panel["targets"]:
            for metric in re.findall(r"sealift_\w+", target["expr"]):
                stem = metric.removeprefix("sealift_fleet_").removesuffix("_total")
                assert stem in source or re.sub(r"p\d\d", "p{q}", metric) in source, metric


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", "--store", "{tmp}/s", "--port", "99999"], r"\[E-FLEET-004\] 127\.0\.0\.1:99999: a port is a number"),
        (["serve", "--store", "{tmp}/s", "--port", "{taken}"], r"\[E-FLEET-004\] 127\.0\.0\.1:\d+: Address already in use; help: another --port"),
        (["serve", "--store", "{tmp}/s", "--port", "0", "--host", "192.0.2.1", "--write-token", "x"], "help: an address of this machine for --host"),
        (["serve", "--store", "{tmp}/s", "--port", "0", "--host", "0.0.0.0"], r"\[E-FLEET-003\].*--write-token"),
        (["serve", "--store", "{tmp}/s", "--read-token", "@{tmp}/nothing"], r"\[E-FLEET-003\] token file .*No such file"),
        (["serve", "--store", "{tmp}/s", "--read-token", "@{tmp}/empty"], r"\[E-FLEET-003\] token file .* is empty"),
        (["serve", "--store", "{tmp}/empty"], r"\[E-FLEET-002\].*Not a directory; help: a folder"),
        (["serve", "--store", "s3://bucket/x"], r"\[E-FLEET-003\] store s3://bucket/x; help: a folder, or clickhouse://"),
        (["serve", "--store", "{tmp}/s", "--tls-certificate", "{tmp}/nothing"], r"\[E-FLEET-003\].*no such file; help: --tls-certificate"),
        (["serve", "--store", "{tmp}/s", "--webhook", "nonsense"], r"\[E-FLEET-007\] webhook 'nonsense'; help: an address"),
        (["serve", "--store", "{tmp}/s", "--rules", "{tmp}/hook.json"], r"\[E-FLEET-007\].*rule 1: webhook 'ftp://x'; help"),
        (["serve", "--store", "{tmp}/s", "--keep-10s", "soon"], r"\[E-FLEET-003\] span 'soon'"),
        (["serve", "--store", "{tmp}/newer"], r"\[E-FLEET-002\].*is of version 9, this sealift reads \d+; help: use the sealift that wrote it"),
        (["serve", "--store", "{tmp}/broken"], r"\[E-FLEET-002\].*not a database; help: move the store aside"),
        (["check", "--store", "{tmp}/none"], r"\[E-FLEET-003\].*holds no store"),
        (["top", "--url", "http://127.0.0.1:9"], r"\[E-FLEET-004\].*refused; help: `sealift fleet serve`"),
        (["top", "--url", "127.0.0.1:4318"], r"\[E-FLEET-003\] address"),
        (["top", "--url", "http://"], r"\[E-FLEET-003\] address"),
        (["top", "--url", "http://127.0.0.1:port"], r"\[E-FLEET-003\] address"),
        (["top", "--url", "http://[::1"], r"\[E-FLEET-003\] address"),
        (["top", "--url", "{foreign}"], r"\[E-FLEET-004\].*404, not from a collector; help"),
        (["simulate", "--url", "{foreign}"], r"\[E-FLEET-004\].*not from a collector"),
        (["simulate", "--url", "http://127.0.0.1:9"], r"\[E-FLEET-004\].*refused"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_that_says_the_way_out(arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "hook.json").write_text('[{"webhook": "ftp://x"}]')
    EmbeddedStore(tmp_path / "newer").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "newer/control.sqlite")) as control:
        control.execute("UPDATE meta SET value = '9' WHERE key = 'version'")
        control.commit()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/control.sqlite").write_text("garbage " * 100)
    with socket.create_server(("127.0.0.1", 0)) as taken, foreign_server() as foreign:
        names = {"{tmp}": str(tmp_path), "{taken}": str(taken.getsockname()[1]), "{foreign}": foreign}
        for name, value in names.items():
            arguments = [a.replace(name, value) for a in arguments]
        assert main(["fleet", *arguments], {}) == 1
    shown = capsys.readouterr()
    assert re.search(words, shown.err), shown.err
    assert shown.out == "" and len(shown.err.strip().splitlines()) == 1 and "help: " in shown.err
    assert not (tmp_path / "none").exists()


@contextlib.contextmanager
def foreign_server() -> Iterator[str]:
    """Something that speaks HTTP and is no collector."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_tokens_that_are_missing_or_wrong_are_told_apart(store: EmbeddedStore, serving: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    url = serving(store, limits=Limits(write_tokens=("w",), read_tokens=("r",)))
    for given, words in (([], "asks for a token; help: --token or SEALIFT_FLEET_TOKEN"), (["--token", "x"], "the token given is not one of this")):
        assert main(["fleet", "top", "--url", url, *given], {}) == 1
        error = capsys.readouterr().err
        assert "[E-FLEET-004]" in error and words in error
    assert main(["fleet", "simulate", "--url", url, "--hosts", "1", "--minutes", "1", "--speed", "0", "--token", "x"], {}) == 1
    assert re.search(r"requests failed: 401 the token given is not one", capsys.readouterr().err)
    assert main(["fleet", "top", "--url", url, "--token", "r"], {}) == 0
    shown = capsys.readouterr()
    assert shown.out == "nothing\n" and "--from all" in shown.err


def test_the_agent_says_once_that_nobody_takes_its_reports(
    store: EmbeddedStore, serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing of what it says is the token."""
    url = serving(store, limits=Limits(write_tokens=("w",)))
    agent = FleetSink(url, "secret-7f3a", tmp_path / "spool")
    agent.write(delta(0))
    wait_for(lambda: agent.failures > 1)
    told = [r.getMessage() for r in caplog.records if "takes no reports" in r.getMessage()]
    assert len(told) == 1 and "401 the token given is not one" in told[0] and str(tmp_path / "spool") in told[0] and "secret-7f3a" not in caplog.text
    agent._headers["Authorization"] = "Bearer w"
    wait_for(lambda: agent.delivered > 0)
    agent.close()
    assert [r.getMessage() for r in caplog.records if "takes reports again" in r.getMessage()]
