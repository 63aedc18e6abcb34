"""Collect every process's operator profile, API usage and model lineage in one place, and ask about them.

  sealift fleet serve --store DIR               the collector, on 127.0.0.1:4318
  sealift fleet top --from -1h                  where the fleet's time goes
  sealift fleet check                           exit code 1 if something got slower
docs/guides/fleet.md is the first ten minutes with it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sealift.cli.output import Output
from sealift.fleet.errors import MissingExtraError

DEFAULT_URL = "http://127.0.0.1:4318"
_TIMES_AGO = re.compile(r"-\d+(\.\d+)?[smhdw]?\Z")
_VIEWS = """One SELECT, in DuckDB's SQL (ClickHouse's for that store). The views:
  points, minutes, hours   time_s, series, resource, count, samples, total_ns, self_ns, self_count, zero, count_var, total_var, first, counts
  series                   id, operator, source, scope, model, shapes, origin, labels (JSON)
  resource                 id, service, version, host, instance, pid, container, attributes (JSON)
  processes, api_uses, model_events
As in: SELECT operator, sum(total_ns) / 1e9 AS seconds FROM hours JOIN series ON series.id = hours.series GROUP BY ALL ORDER BY 2 DESC"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="fleet verbs", metavar="VERB", required=True)

    def verb(name: str, run: Callable[[argparse.Namespace, Output], int], text: str, more: str = "") -> argparse.ArgumentParser:
        one = verbs.add_parser(
            name,
            help=text[0].lower() + text[1:],
            description=text + ("\n\n" + more if more else ""),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON object on stdout")
        one.set_defaults(fleet_verb=run)
        one._negative_number_matcher = _TIMES_AGO  # `--from -90m` is a value and no option
        return one

    serve = verb("serve", _serve, "Run the collector: OTLP over HTTP in, questions and dashboard out.")
    _storage(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1; any other one needs --write-token)")
    serve.add_argument("--port", type=int, default=4318, help="port (default 4318; 0: any)")
    serve.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name to answer to without tokens, besides localhost and addresses in numbers; may repeat",
    )
    serve.add_argument(
        "--write-token", action="append", default=[], metavar="TOKEN", help="agents must send it; may repeat; @FILE reads it from a file"
    )
    serve.add_argument(
        "--read-token", action="append", default=[], metavar="TOKEN", help="questions must send it; may repeat; @FILE reads it from a file"
    )
    serve.add_argument("--tls-certificate", type=Path, metavar="PEM")
    serve.add_argument("--tls-key", type=Path, metavar="PEM")
    serve.add_argument("--tls-client-authority", type=Path, metavar="PEM", help="clients must show a certificate signed by it")
    serve.add_argument("--body-limit", type=int, default=8, metavar="MIB", help="largest request (default 8)")
    serve.add_argument("--rate-limit", type=float, default=0, metavar="MIB", help="of one client address, each second (default: none)")
    serve.add_argument(
        "--overhead", type=float, default=1.0, metavar="PERCENT", help="what recording may cost a process; agents are told (default 1)"
    )
    serve.add_argument(
        "--hosts",
        type=float,
        default=100.0,
        metavar="PERCENT",
        help="of the processes that record at a time, chosen at random anew every five minutes",
    )
    serve.add_argument("--points-per-second", type=float, default=0, help="what the whole fleet may send; agents record less when it is more")
    serve.add_argument("--rules", type=Path, metavar="JSON", help="rules to watch (default: anything 10 %% slower that takes 1 %% of the time)")
    serve.add_argument("--webhook", default="", metavar="URL", help="told of each alarm of the default rule")
    serve.add_argument("--threads", type=int, help="of the store's queries (default: one for each core)")

    for name, text in (
        ("top", "Where the fleet's time goes, by operator and model or any other keys."),
        ("ops", "Time by operator."),
        ("models", "Time by model, and where each model's file came from."),
        ("hosts", "Time by host, and how each host's agent fares."),
    ):
        one = verb(name, _ask, text)
        one.set_defaults(question=name)
        _question(one, by=name in ("top", "ops"))
        one.add_argument("--order", default="total_ns", help="total_ns, self_ns, count, mean_ns, p50_ns, p90_ns, p99_ns or name")
    one = verb("trend", _ask, "The same over time.")
    one.set_defaults(question="trend")
    _question(one, by=True)
    one.add_argument("--step", help="as in 10m (default: about 120 steps)")
    for name, text in (
        ("apis", "Which PyTorch APIs the fleet's processes call."),
        ("lineage", "Which model file was written by whom and loaded where; unsigned and unknown ones first."),
        ("processes", "Every process ever heard of."),
    ):
        one = verb(name, _ask, text)
        one.set_defaults(question=name)
        _connection(one)
        one.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="may repeat; also != and ~ for patterns with * and ?")
        if name == "apis":
            one.add_argument("--by", help="also by service, version or host")
    one = verb(
        "diff",
        _diff,
        "What got slower or faster from A to B, and how surely.",
        "A and B differ in time (--b-from), or in what --a-where and --b-where pick.",
    )
    _question(one, by=True)
    one.add_argument("--b-from", help="B's time, if not A's")
    one.add_argument("--b-to", help="(default now)")
    one.add_argument("--a-where", action="append", default=[], metavar="KEY=VALUE", help="as in version=1.4")
    one.add_argument("--b-where", action="append", default=[], metavar="KEY=VALUE", help="as in version=1.5")
    one = verb("sql", _sql, "Ask in SQL.", _VIEWS)
    _connection(one)
    one.add_argument("text", metavar="SELECT")
    one = verb("check", _check, "Look for regressions; exit code 1 if there is one.", "Rules: docs/guides/fleet.md.")
    _connection(one)
    one.add_argument("--store", help="the store's folder, if no collector owns it, or clickhouse://...")
    one.add_argument("--rules", type=Path, metavar="JSON")
    one.add_argument("--at", default="now", help="the window's end (default now)")
    one = verb("trace", _trace, "Fetch a Chrome trace of a running process.")
    _connection(one)
    one.add_argument("--process", required=True, metavar="INSTANCE", help="as `sealift fleet processes` lists it; the beginning is enough")
    one.add_argument("--seconds", type=float, default=5.0, help="at most 60 (default 5)")
    one.add_argument("--patience", type=float, default=60.0, metavar="SECONDS", help="for the process to ask for its orders (default 60)")
    one.add_argument("-o", "--output", type=Path, default=Path("trace.json"))
    one = verb("explain", _explain, "Print what an agent here would send, byte for byte readable, and what it never sends.")
    one.add_argument("--file", type=Path, help="an OTLP metrics or logs request to print instead, as a spool holds them")
    one = verb(
        "simulate",
        _simulate,
        "Drive a collector with the traffic of a fleet that is not there.",
        "Bounded: it ends after --minutes of virtual time or --rows points.",
    )
    one.add_argument("--url", default=None, help="the collector (default: one of its own, on loopback, in a temporary store)")
    one.add_argument("--token", default=None)
    one.add_argument("--hosts", type=int, default=100)
    one.add_argument("--minutes", type=float, default=10)
    one.add_argument("--speed", type=float, default=60, help="virtual seconds in each real one; 0: as fast as it goes")
    one.add_argument("--interval", type=int, default=10, help="seconds between a process's batches")
    one.add_argument(
        "--rows-per-second", type=float, default=10_000, help="what is sent at most; beyond it fewer windows are observed, and weigh more"
    )
    one.add_argument("--rows", type=int, default=5_000_000, help="points in all, at most")
    one.add_argument("--seed", type=int, default=0)
    one.add_argument(
        "--regression", default="", metavar="OPERATOR@MODEL:FACTOR", help="planted after two thirds, as in aten::layer_norm@bert-base-v7:1.4"
    )


def _connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=None, help=f"the collector (default $SEALIFT_FLEET_URL, else {DEFAULT_URL})")
    parser.add_argument("--token", default=None, help="(default $SEALIFT_FLEET_TOKEN)")


def _question(parser: argparse.ArgumentParser, by: bool) -> None:
    _connection(parser)
    parser.add_argument("--from", dest="start", default="-1h", help="unix seconds, 2026-05-04T12:00, -90m, -2d, or all (default -1h)")
    parser.add_argument("--to", dest="end", default="now")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="may repeat; also != and ~ for patterns with * and ?")
    parser.add_argument("--limit", type=int, default=20)
    if by:
        parser.add_argument("--by", help="keys: operator, model, service, version, host, instance, source, scope, shapes, origin, label:NAME")


def _storage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", default="sealift-fleet", help="a folder, or clickhouse://user:password@host:8123/database (default ./sealift-fleet)"
    )
    for step, default in (("10s", "2d"), ("60s", "14d"), ("3600s", "400d")):
        parser.add_argument(f"--keep-{step}", default=default, metavar="SPAN", help=f"how long {step} rows are kept (default {default}; 0: for ever)")


def run(arguments: argparse.Namespace, output: Output) -> int:
    try:
        return int(arguments.fleet_verb(arguments, output))
    except ImportError as error:
        if isinstance(error, MissingExtraError) or (error.name or "").startswith("sealift"):
            raise
        raise MissingExtraError(f"{error}; help: pip install 'sealift[fleet]'") from None


def _fleet(arguments: argparse.Namespace) -> Any:
    from sealift.fleet.client import Fleet

    return Fleet(arguments.url or os.environ.get("SEALIFT_FLEET_URL", DEFAULT_URL), arguments.token or os.environ.get("SEALIFT_FLEET_TOKEN"))


def _secret(text: str) -> str:
    from sealift.fleet.errors import QuestionError

    if not text.startswith("@"):
        return text
    try:
        found = Path(text[1:]).read_text().strip()
    except (OSError, ValueError) as error:
        raise QuestionError(f"token file {text[1:]}: {getattr(error, 'strerror', error)}; help: @FILE names a file with the token in it") from None
    if not found:
        raise QuestionError(f"token file {text[1:]} is empty; help: @FILE names a file with the token in it")
    return found


def _retention(arguments: argparse.Namespace) -> Any:
    from sealift.fleet.store.interface import Retention
    from sealift.fleet.times import parse_span

    return Retention(*(parse_span(v) or None for v in (arguments.keep_10s, arguments.keep_60s, arguments.keep_3600s)))


def _serve(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.fleet.collector.app import Collector
    from sealift.fleet.collector.guard import Names
    from sealift.fleet.collector.limits import Limits
    from sealift.fleet.collector.serve import Address, open_store, serve, without_password
    from sealift.fleet.control import Budget
    from sealift.fleet.errors import QuestionError
    from sealift.fleet.rules import Rule, Watch, checked_webhook, read_rules

    limits = Limits(
        body_bytes=arguments.body_limit << 20,
        bytes_per_s=arguments.rate_limit * (1 << 20),
        write_tokens=tuple(map(_secret, arguments.write_token)),
        read_tokens=tuple(map(_secret, arguments.read_token)),
    )
    rules = read_rules(arguments.rules) if arguments.rules else (Rule(webhook=checked_webhook(arguments.webhook)),)
    if not 0 < arguments.hosts <= 100 or not 0 < arguments.overhead < 100:
        raise QuestionError("--hosts and --overhead are percentages above 0; help: --hosts 10 --overhead 0.5")
    store = open_store(arguments.store, _retention(arguments), arguments.threads)
    budget = Budget(overhead=arguments.overhead / 100, points_per_s=arguments.points_per_second, hosts=arguments.hosts / 100)
    collector = Collector(store, limits, budget, Names.of((arguments.host, *arguments.allow_host)), Watch(rules))
    address = Address(arguments.host, arguments.port, arguments.tls_certificate, arguments.tls_key, arguments.tls_client_authority)

    where = without_password(arguments.store)

    def ready(url: str) -> None:
        output.result(
            {"url": url, "store": where, "pid": os.getpid()},
            "\n".join(
                (
                    f"sealift fleet: {url}",
                    f"  store      {where}",
                    f"  agents     OTEL_EXPORTER_OTLP_ENDPOINT={url}",
                    f"  questions  sealift fleet top --url {url}",
                )
            ),
        )

    serve(collector, address, ready)
    return 0


def _ask(arguments: argparse.Namespace, output: Output) -> int:
    options: dict[str, Any] = {"where": arguments.where}
    for name in ("start", "end", "limit", "order", "step"):
        if getattr(arguments, name, None) is not None:
            options[name] = getattr(arguments, name)
    if getattr(arguments, "by", None):
        options["by"] = arguments.by
    found = _fleet(arguments).ask(arguments.question, **options)
    times = f"from {arguments.start} to {arguments.end}; `--from all` asks for everything, " if "start" in arguments else ""
    return _show(found, output, f"{times}`sealift fleet processes` lists who has reported")


def _diff(arguments: argparse.Namespace, output: Output) -> int:
    options = {"by": arguments.by} if arguments.by else {}
    found = _fleet(arguments).diff(
        arguments.start,
        arguments.end,
        arguments.b_from,
        arguments.b_to,
        arguments.a_where,
        arguments.b_where,
        where=arguments.where,
        limit=arguments.limit,
        **options,
    )
    return _show(found, output)


def _sql(arguments: argparse.Namespace, output: Output) -> int:
    return _show(_fleet(arguments).sql(arguments.text), output)


def _show(found: Any, output: Output, empty: str = "") -> int:
    from sealift.fleet.collector.answers import plain
    from sealift.fleet.tables import text_of

    rows = [{k: plain(v) for k, v in row.items()} for row in found.to_pylist()]
    output.result({"columns": found.column_names, "rows": rows}, text_of(found))
    if not rows and empty:
        output.note(empty)
    return 0


def _check(arguments: argparse.Namespace, output: Output) -> int:
    import json
    import time

    from sealift.fleet.rules import Rule, check, read_rules
    from sealift.fleet.times import parse_time

    rules = read_rules(arguments.rules) if arguments.rules else (Rule(),)  # a mistake in the file is found here and not over there
    if arguments.store:
        from sealift.fleet.collector.serve import open_store
        from sealift.fleet.store.interface import Retention

        store = open_store(arguments.store, Retention(), must_exist=True)
        try:
            alarms = [a.as_dict() | {"text": str(a)} for a in check(store, rules, parse_time(arguments.at, time.time()))]
        finally:
            store.close()
    else:
        alarms = _fleet(arguments).check(json.loads(arguments.rules.read_text()) if arguments.rules else [{}], arguments.at)
    output.result({"alarms": alarms}, "\n".join(f"slower: {a['text']}" for a in alarms) or "nothing got slower")
    return 1 if alarms else 0


def _trace(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.fleet.errors import QuestionError

    fleet = _fleet(arguments)
    found = [p["instance"] for p in fleet.processes().to_pylist() if p["instance"].startswith(arguments.process)]
    if len(found) != 1:
        raise QuestionError(f"{len(found)} processes begin with {arguments.process!r}; help: `sealift fleet processes` lists them")
    with output.progress(f"recording {arguments.seconds:g} s"):
        data = fleet.trace(found[0], arguments.seconds, arguments.patience)
    arguments.output.write_bytes(data)
    output.result(
        {"path": str(arguments.output), "bytes": len(data)},
        f"{arguments.output}: {len(data)} bytes; open it in https://ui.perfetto.dev or chrome://tracing",
    )
    return 0


def _explain(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.fleet.explain import explained

    value, text = explained(arguments.file)
    output.result(value, text)
    return 0


def _simulate(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.fleet.client import Fleet
    from sealift.fleet.drive import Drive, local_collector

    drive = Drive.of(arguments)
    if arguments.url:
        Fleet(arguments.url, arguments.token).health()  # before thousands of requests wait for one that is not there
        report = drive.run(arguments.url, arguments.token, output.note)
    else:
        folder = tempfile.mkdtemp(prefix="sealift-fleet-")
        try:
            with local_collector(Path(folder)) as url:
                report = drive.run(url, None, output.note)
                report["top"] = _top_lines(url, drive)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    lines = [f"{k:<22} {v}" for k, v in report.items() if k != "top"]
    output.result(report, "\n".join([*lines, *report.get("top", [])]))
    if report["failed"]:
        output.note(f"{report['failed']} requests failed: {report['refusal'] or 'no answer'}")
    return 1 if report["failed"] else 0


def _top_lines(url: str, drive: Any) -> list[str]:
    from sealift.fleet.client import Fleet
    from sealift.fleet.tables import text_of

    return text_of(Fleet(url).top(start=drive.plan.start_s, end=drive.end_s, limit=10)).split("\n")
