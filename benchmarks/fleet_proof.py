"""What the fleet answers against what is known to have happened: writes docs/fleet-proof.md.

    python benchmarks/fleet_proof.py --write docs/fleet-proof.md
    python benchmarks/fleet_proof.py --only hosts       # or regressions, kills

hosts         10,000 simulated hosts report to a collector over HTTP; every answer is held against the simulator's own tally, and the planted
              regression must be what `sealift fleet check` finds.
regressions   for several seeds, on a virtual clock: a quiet week must raise no alarm, a regression planted after it must be found, with its
              operator, model and time.
kills         tests/fleet/test_faults.py: the collector and the processes that report to it are killed 100 times.
peers         tests/fleet/test_peers.py and test_clickhouse.py: programs that are not ours, and the same answers from ClickHouse's engine
              (`make fleet-peers fleet-clickhouse` runs them too).
lines         which test proves which claim (fleet_proof_lines.py)."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import fleet_proof_lines

from sealift.fleet.client import Fleet
from sealift.fleet.drive import Sender, local_collector
from sealift.fleet.model import SLOT_S
from sealift.fleet.otlp.decode import Decoder
from sealift.fleet.rules import Rule, check
from sealift.fleet.simulator import WORKLOADS, Plan, Regression, Simulation
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention
from sealift.fleet.truth import Tally, Truth

ROOT = Path(__file__).parents[1]
DAY_S = 86_400
FOR_EVER = ("--keep-10s", "0", "--keep-60s", "0", "--keep-3600s", "0")


def measure_hosts(hosts: int, minutes: float) -> dict[str, Any]:
    planted = Regression("aten::scaled_dot_product_attention", "bert-base-v7", 1.4, (minutes - 2) * 60)
    start_s = int(time.time() - minutes * 60) // 60 * 60
    truth = Truth(keep_durations=False)
    simulation = Simulation(Plan(hosts, minutes, start_s, 60, seed=3, calls=8, regression=planted), truth)
    end_s = start_s + int(minutes * 60)
    with tempfile.TemporaryDirectory() as folder, local_collector(Path(folder) / "store", *FOR_EVER) as url:
        sender, started = Sender(url, None), time.monotonic()
        for sent in simulation:
            sender.put(sent)
        sender.finish()
        seconds = time.monotonic() - started
        fleet, times = Fleet(url, timeout_s=120), {"start": start_s, "end": end_s + SLOT_S}
        figures: dict[str, Any] = {
            "hosts": hosts, "minutes": minutes, "requests": sender.acknowledged, "failed": sender.failed, "points": sender.points,
            "seconds": round(seconds), "points_per_second": round(sender.points / seconds),
        }  # fmt: skip
        for by in (("operator", "model"), ("host",), ("service", "version")):
            begin = time.perf_counter()
            rows = fleet.top(by=by, limit=2 * hosts, **times).to_pylist()
            figures[",".join(by)] = compared(rows, by, truth) | {"seconds": round(time.perf_counter() - begin, 2)}
        rules = Path(folder) / "rules.json"
        rules.write_text(json.dumps([{"window": "2m"}]))
        command = [sys.executable, "-m", "sealift", "fleet", "check", "--url", url, "--rules", str(rules), "--json", "--at"]
        for name, at in (("before", start_s + int(planted.after_s)), ("after", end_s)):
            ran = subprocess.run([*command, str(at)], capture_output=True, text=True, check=False)
            figures[f"check_{name}"] = {"exit": ran.returncode, "alarms": json.loads(ran.stdout)["alarms"]}
    (alarm,) = figures["check_after"]["alarms"]
    assert (figures["check_before"]["exit"], figures["check_before"]["alarms"], figures["check_after"]["exit"]) == (0, [], 1)
    assert alarm["keys"] == {"operator": planted.operator, "model": planted.model}, alarm
    figures["planted"] = {"factor": planted.factor, "since": start_s + int(planted.after_s)}
    assert abs(alarm["since"] - figures["planted"]["since"]) <= 60 and alarm["ratio_low"] < planted.factor < alarm["ratio_high"], alarm
    assert sender.failed == 0
    return figures


def compared(rows: list[dict[str, Any]], by: tuple[str, ...], truth: Truth) -> dict[str, Any]:
    """Counts, totals and quantiles must be what was sent; how often the 95 % bounds hold what happened is counted."""
    tallies = {k: t for k, t in truth.by(*by).items() if t.count}
    assert {tuple(r[k] for k in by) for r in rows} == set(tallies), "the same groups"
    inside = trials = 0
    for r in rows:
        t = tallies[tuple(r[k] for k in by)]
        assert (r["count"], r["samples"], r["total_ns"]) == (t.count, t.samples, t.total_ns), r
        for q in (0.5, 0.9, 0.99):
            assert math.isclose(r[f"p{round(q * 100)}_ns"], bucket_quantile(t, q), rel_tol=1e-9), r
        if t.samples >= 20:
            trials += 2
            inside += (r["count_low"] <= t.true_count <= r["count_high"]) + (r["total_ns_low"] <= t.true_total_ns <= r["total_ns_high"])
    return {"groups": len(rows), "bounds": trials, "inside": inside}


def bucket_quantile(tally: Tally, q: float) -> float:
    rank = max(math.ceil(q * sum(tally.buckets.values())), 1)
    for index in sorted(tally.buckets):
        rank -= tally.buckets[index]
        if rank <= 0:
            low, high = 2.0 ** (index / 8), 2.0 ** ((index + 1) / 8)
            return 2 * low * high / (low + high)
    raise AssertionError("a tally of no calls")


def measure_regressions(seeds: int) -> list[dict[str, Any]]:
    """Nine days of 32 hosts, a report an hour: a quiet week, then one of several operators gets slower."""
    workloads = tuple(w for w in WORKLOADS if w.service in ("search-ranker", "embedder"))
    choices = (("aten::addmm", "bert-base-v7", 1.25), ("k3_mm_gelu", "minilm-v2", 1.3), ("aten::gelu", "bert-base-v7", 1.5))
    found = []
    for seed in range(seeds):
        operator, model, factor = choices[seed % len(choices)]
        start = 1_760_000_400 // DAY_S * DAY_S
        plan = Plan(32, 9 * 1440, start, 3600, seed + 20, 1200.0, workloads=workloads, regression=Regression(operator, model, factor, 8.5 * DAY_S))
        with tempfile.TemporaryDirectory() as folder:
            store = EmbeddedStore(Path(folder), Retention(None, None, None, None))
            decoder, batches = Decoder(), []
            for sent in Simulation(plan):
                batches += getattr(decoder, sent.signal)(sent.body, (sent.time_s + 1) * 10**9).batches
            for i in range(0, len(batches), 1000):
                store.commit(batches[i : i + 1000], start * 10**9)
            store.maintain((start + 10 * DAY_S) * 10**9)
            rule = Rule(window_s=4 * 3600)
            quiet = [start + hour * 3600 for hour in range(26, 8 * 24 + 12, 4)]
            false = [str(a) for at in quiet for a in check(store, [rule], at)]
            alarms = check(store, [rule], start + 8 * DAY_S + 18 * 3600)
            store.close()
        assert not false, false
        assert [dict(a.keys) for a in alarms] == [{"operator": operator, "model": model}], alarms
        assert abs(alarms[0].ratio / factor - 1) < 0.1
        found.append({"seed": seed + 20, "operator": operator, "model": model, "factor": factor, "ratio": round(alarms[0].ratio, 3),
                      "p_value": alarms[0].p_value, "looks": len(quiet), "false_alarms": len(false)})  # fmt: skip
        print(found[-1], flush=True)
    return found


def measure_kills(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        environment = {**os.environ, "SEALIFT_TEST_FLEET_KILLS": str(count), "SEALIFT_TEST_FLEET_FIGURES": str(figures)}
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "tests/fleet/test_faults.py"], cwd=ROOT, env=environment, check=True)
        made: dict[str, Any] = json.loads(figures.read_text())
        return made


def measure_peers() -> dict[str, Any]:
    """What the tests of `make fleet-peers` and `make fleet-clickhouse` found; each must have run."""
    rotel = next(iter(sorted((ROOT / "build/rotel").rglob("rotel-agent"))), None)
    chdb = ROOT / "build/chdb/bin/python"
    prometheus = ROOT / "build/prometheus/usr/bin"
    if rotel is None or not chdb.exists() or not prometheus.exists():
        raise SystemExit("rotel, chDB or Prometheus is missing; help: `make fleet-proof` makes their environments")
    environment = {**os.environ, "SEALIFT_TEST_ROTEL": str(rotel), "SEALIFT_TEST_CHDB": str(chdb), "SEALIFT_TEST_PROMETHEUS": str(prometheus)}
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        tests = ["tests/fleet/test_peers.py", "tests/fleet/test_clickhouse.py", "tests/fleet/test_collector.py::test_figures_for_prometheus"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=legacy", f"--junitxml={found}", *tests], cwd=ROOT, env=environment, check=True
        )
        cases = list(xml.etree.ElementTree.parse(found).getroot().iter("testcase"))
    assert cases and not [case for case in cases if case.find("skipped") is not None], "every test ran"
    figures: dict[str, Any] = {p.attrib["name"]: p.attrib["value"] for case in cases for p in case.iter("property")}
    of_chdb = [str(chdb), "-c", "import importlib.metadata as m; from chdb import session; "
               "print(m.version('chdb'), str(session.Session().query('SELECT version()')).strip().strip(chr(34)))"]  # fmt: skip
    chdb_version, engine = subprocess.run(of_chdb, capture_output=True, text=True, check=True).stdout.split()
    versions = {name: importlib.metadata.version(name) for name in ("opentelemetry-sdk", "clickhouse-connect", "prometheus-client")}
    rotel_version = next(p.name.removesuffix(".dist-info").split("-")[1] for p in (ROOT / "build/rotel").rglob("rotel-*.dist-info"))
    told = subprocess.run([str(prometheus / "promtool"), "--version"], capture_output=True, text=True, check=True).stdout
    figures["prometheus"] = told.split("version ")[1].split()[0].rstrip(",")
    return figures | {"tests": len(cases), "chdb": chdb_version, "engine": engine, "rotel": rotel_version, **versions}


def hosts_section(f: dict[str, Any]) -> list[str]:
    (alarm,) = f["check_after"]["alarms"]
    names = {"operator,model": "operator and model", "host": "host", "service,version": "service and version"}
    return [
        f"## {f['hosts']:,} hosts",
        "",
        f"`sealift.fleet.simulator`: {f['hosts']:,} hosts for {f['minutes']:g} virtual minutes, a report a minute and one call of four recorded, with stragglers, bursts and a",
        f"day's rhythm: {f['requests']:,} requests with {f['points']:,} histograms went to one collector in {f['seconds']} s ({f['points_per_second']:,} a second; the simulator took most of it); {f['failed']} failed.",
        "",
        "| By | Groups | Counts, totals, p50, p90, p99 | 95 % bounds that hold what happened | Answer in |",
        "|---|---|---|---|---|",
        *(
            f"| {text} | {f[k]['groups']:,} | all as sent | {f[k]['inside']:,} of {f[k]['bounds']:,} ({f[k]['inside'] / max(f[k]['bounds'], 1):.1%}) | {f[k]['seconds']} s |"
            for k, text in names.items()
        ),
        "",
        f"`sealift fleet check` before the planted change (x{f['planted']['factor']} from {utc(f['planted']['since'])}): exit code 0, no alarm. After it: exit code 1, one alarm:",
        "",
        "```",
        alarm["text"],
        "```",
        "",
    ]  # fmt: skip


def regressions_section(found: list[dict[str, Any]]) -> list[str]:
    return [
        "## Quiet weeks and planted regressions",
        "",
        "Nine virtual days of 32 hosts, each reporting once an hour, with a day's and a week's rhythm, bursts and stragglers; on the ninth one operator gets slower. The rule looks every four hours.",
        "",
        "| Seed | Looks at the quiet days | False alarms | Planted | Found |",
        "|---|---|---|---|---|",
        *(
            f"| {r['seed']} | {r['looks']} | {r['false_alarms']} | {r['operator']} in {r['model']}, x{r['factor']} | that one alone, x{r['ratio']}, p = {r['p_value']:.0e} |"
            for r in found
        ),
        "",
    ]


def kills_section(f: dict[str, Any]) -> list[str]:
    return [
        "## Killed at random moments",
        "",
        f"`kill -9` of the collector {f['collector_kills']} times ({f['under_load']} of them with six senders at work) and of the processes that report to it {f['agent_kills']} times, in {f['seconds']} s:",
        f"{f['requests']:,} requests of a simulated fleet were acknowledged {f['acknowledged']:,} times, since senders repeat what they do not know to be kept and one in five that they",
        f"do; {f['agents']} agents spooled batches of {f['calls']:,} calls, which they or later ones delivered. Every count and total in the store is as sent: nothing acknowledged or",
        "spooled was lost, nothing counted twice, no segment damaged.",
        "",
    ]


def peers_section(f: dict[str, Any]) -> list[str]:
    return [
        "## Real peers, and both stores alike",
        "",
        f"{f['tests']} tests, none skipped:",
        "",
        f"- opentelemetry-sdk {f['opentelemetry-sdk']}: its own exporter sends an instrument of its own, and observe's sink sends through it; counts and totals are as sent.",
        f"- rotel {f['rotel']} stands between agent and collector: {f['rotel_batches']} batches left the agent, {f['rotel_points']} histograms arrived, once each, with their numbers.",
        f"- Prometheus {f['prometheus']} (Debian's) scrapes the collector with a token: promtool finds no fault, the {f['prometheus_series']} series that it keeps are what the collector",
        f"  counts, and it takes all {f['prometheus_expressions']} expressions of deploy/grafana-dashboard.json.",
        f"- prometheus-client {f['prometheus-client']} parses `/metrics` ({f['prometheus_families']} families, {f['prometheus_samples']} samples), strictly; every expression of deploy/grafana-dashboard.json names metrics and labels that are there.",
        f"- clickhouse-connect {f['clickhouse-connect']} talks through an HTTP shim to chDB {f['chdb']}, ClickHouse {f['engine']}'s engine. {f['questions']} questions have the embedded store's",
        f"  answers (numbers to 1e-9), {f['pages']} pages of the dashboard are the same to the letter, {f['files']} downloads the same ({f['cells']} cells). A second collector on the same database counts no batch twice.",
        "",
    ]


def utc(at: float) -> str:
    return time.strftime("%H:%M:%S UTC", time.gmtime(at))


def section(name: str, a: argparse.Namespace) -> list[str]:
    """With a first line that says where it comes from, so that a page may be made in pieces."""
    load, started = os.getloadavg()[0], time.monotonic()
    if name == "lines":
        return fleet_proof_lines.section()
    if name == "hosts":
        title, *lines = hosts_section(measure_hosts(a.hosts, a.minutes))
    elif name == "peers":
        title, *lines = peers_section(measure_peers())
    elif name == "regressions":
        title, *lines = regressions_section(measure_regressions(a.seeds))
    else:
        title, *lines = kills_section(measure_kills(a.kills))
    taken = f"{time.monotonic() - started:.0f} s, load average {load:.0f} when it began"
    made = f"{time.strftime('%Y-%m-%d', time.gmtime())}, `python benchmarks/fleet_proof.py --only {name}` on {platform.machine()}, {os.cpu_count()} cores: {taken}."
    return [title, "", made, *lines]


HEAD = """# The fleet held against the truth

Written by `make fleet-proof`. Every sentence about what was found is asserted by the command that wrote it, which ends with an error otherwise.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--write", type=Path, help="with --only, that section of the page is replaced")
    a = parser.parse_args()
    old = a.write.read_text() if a.write and a.write.exists() else ""
    kept = {TITLES[title]: f"## {text}" for text in old.split("\n## ")[1:] for title in TITLES if title in text.split("\n")[0]}
    for name in PARTS:
        if a.only in (None, name):
            kept[name] = "\n".join(section(name, a)).rstrip()
            print(kept[name], flush=True)
    if a.write:
        a.write.write_text(HEAD + "\n\n".join(kept[name].rstrip() for name in PARTS if name in kept) + "\n")


PARTS = ("hosts", "regressions", "kills", "peers", "lines")
TITLES = {"hosts": "hosts", "Quiet weeks": "regressions", "Killed": "kills", "Real peers": "peers", "Which test": "lines"}


if __name__ == "__main__":
    main()
