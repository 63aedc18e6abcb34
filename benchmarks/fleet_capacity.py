"""What one collector takes and how fast it answers, on this machine, and the arithmetic for fleets of any size: writes docs/capacity.md.

    python benchmarks/fleet_capacity.py --write docs/capacity.md     # under eight minutes on two quiet cores
    python benchmarks/fleet_capacity.py --quick                      # a first look: two minutes, nothing written

Ingest: a collector process of its own and a load generator on the same cores (fleet_load.py); a point counts when its request has been answered,
that is when it is on disk, and the collector's own count of what it kept must agree. Overview: 100 million raw rows, committed, folded and rolled
up by the store's own code in two processes of half the hosts each, whose segments then form one store; the dashboard's first questions are asked
of it over HTTP."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import fleet_load
import numpy as np

from sealift.fleet.client import Fleet
from sealift.fleet.columns import Rows
from sealift.fleet.drive import local_collector
from sealift.fleet.model import Batch, Points, Resource, SeriesKey
from sealift.fleet.store.control import Control, insert_resources, insert_segments
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention

OPERATORS, BUCKETS = fleet_load.OPERATORS, fleet_load.BUCKETS


def collector_figure(url: str, name: str) -> float:
    """One of the collector's own figures."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return next(float(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith(f"{name} "))


def measure_ingest(seconds: float, folder: Path, connections: int = 100) -> dict[str, Any]:
    prepared = fleet_load.prepare(int(seconds * 1200) + 1200)
    requests = iter(prepared.requests)
    with local_collector(folder / "ingest") as url:
        warm = fleet_load.replay(url, requests, 2, connections)  # the first requests open files and fill dictionaries
        before = collector_figure(url, "sealift_fleet_cpu_seconds_total")
        found = fleet_load.replay(url, requests, seconds, connections)
        cpu = collector_figure(url, "sealift_fleet_cpu_seconds_total") - before
        kept = collector_figure(url, "sealift_fleet_points_total")
        counted = Fleet(url).top(by="service", start="-1h", end=time.time() + 60, limit=100)
    assert next(requests, None), "the load generator ran out of requests"
    points = found.acknowledged * fleet_load.OPERATORS
    assert kept == points + warm.acknowledged * fleet_load.OPERATORS, "what was acknowledged is what was kept"
    assert sum(counted.column("samples").to_pylist()) > 0
    return {
        "requests": found.acknowledged,
        "refused": found.refused,
        "seconds": round(found.seconds, 1),
        "connections": connections,
        "points_per_second": round(points / found.seconds),
        "latency_ms_p50": round(1000 * found.latencies_s[len(found.latencies_s) // 2]),
        "latency_ms_p99": round(1000 * found.latencies_s[len(found.latencies_s) * 99 // 100]),
        "collector_cpu_us_per_point": round(1e6 * cpu / points, 1),
        "sender_cpu_us_per_point": round(1e6 * found.cpu_s / points, 1),
        "bytes_per_point": round(prepared.plain_bytes / fleet_load.OPERATORS),
        "wire_bytes_per_point": round(prepared.wire_bytes / fleet_load.OPERATORS),
    }


def raw_rows(folder: Path, rows: int, start_s: int, hosts: range, segment_rows: int = 1_000_000) -> dict[str, Any]:
    """A store of `rows` raw rows, which its own code commits as they would arrive, folds into 10 s rows, minutes and hours, and rolls up for the
    fleet. What is left out: HTTP and decoding, which the ingest figure has."""
    store = EmbeddedStore(folder, Retention(None, None, None, None), threads=1)
    chance = np.random.default_rng(hosts.start)
    keys = [SeriesKey(f"aten::op_{j}", "torch", "function", f"model-{j % 10}") for j in range(OPERATORS)]
    ids = np.array([k.id for k in keys], np.int64)
    resources = [Resource(f"service-{i % 10}", "1.0", f"host-{i}", f"instance-{i}", i) for i in hosts]
    store.commit([Batch("metrics", r, None, i, series={k.id: k for k in keys}) for i, r in enumerate(resources)], start_s * 10**9)
    resource_ids = np.array([r.id for r in resources], np.int64)
    per_window = len(hosts) * OPERATORS
    windows_together = max(segment_rows // per_window, 1)
    started, total = time.monotonic(), rows // per_window
    shape = np.exp(-0.5 * ((np.arange(BUCKETS) - (BUCKETS - 1) / 2) / 4) ** 2) * 400  # of a log-normal's buckets
    for first in range(0, total, windows_together):
        windows = min(windows_together, total - first)
        n = windows * per_window
        noise = chance.integers(128, 384, n * BUCKETS // 8 + 8)  # an eighth as many draws as counts, read from eight places
        tiled = np.concatenate([noise[i : i + n * BUCKETS // 8] for i in range(8)])[: n * BUCKETS]
        counts = (np.tile(shape, n)[: len(tiled)] * tiled).astype(np.int64) // 256
        offsets = np.arange(0, n * BUCKETS + 1, BUCKETS)
        sums = np.maximum(counts.reshape(n, BUCKETS).sum(1), 1)
        points = Points(
            series=np.tile(ids, windows * len(hosts)), time_s=np.repeat(start_s + 10 * (first + np.arange(windows)), per_window), count=sums,
            samples=np.maximum(sums // 2, 1), total_ns=sums * 40_000, self_ns=sums * 30_000, zero=sums - counts.reshape(n, BUCKETS).sum(1),
            first=np.tile(90 + np.arange(OPERATORS) % 40, windows * len(hosts)), offsets=offsets, counts=counts,
        )  # fmt: skip
        store.append_rows(Rows.of(points, np.tile(np.repeat(resource_ids, OPERATORS), windows)))
        store.maintain((start_s + 10 * (first + windows)) * 10**9)
        print(
            f"\r{(first + windows) * per_window / 1e6:.0f} of {rows / 1e6:.0f} million rows, {time.monotonic() - started:.0f} s ",
            end="",
            file=sys.stderr,
        )
    store.maintain((start_s + 10 * total + 7200) * 10**9)
    figures = dict(store.info().figures)
    store.close()
    return {"cpu_s": time.process_time(), "figures": figures}


def joined(parts: list[Path]) -> Path:
    """The first store with the others' segments: halves of one fleet, made by a process each."""
    control = Control(parts[0] / "control.sqlite")
    for part in parts[1:]:
        other = Control(part / "control.sqlite")
        with control.transaction() as connection:
            insert_segments(connection, other.segments())
            insert_resources(connection, [(r[0], Resource(*r[2:])) for r in other.all("SELECT * FROM resource")])
            connection.executemany("INSERT INTO process VALUES (?, ?, ?, ?, ?, ?)", other.all("SELECT * FROM process"))
        for segment in (part / "segments").iterdir():
            segment.rename(parts[0] / "segments" / segment.name)
        other.close()
    control.close()
    return parts[0]


def measure_overview(rows: int, folder: Path, repeat: int = 7, hosts: int = 1000) -> dict[str, Any]:
    per_window = hosts * OPERATORS
    span_s = rows // per_window * 10
    start_s = int(time.time() - span_s - 3600) // 3600 * 3600
    workers = 2
    parts = [folder / f"overview-{i}" for i in range(workers)]
    started = time.monotonic()
    # Arrays of a hundred megabytes are given back and asked for again at every step; clearing those pages takes as long as half of all the rest.
    os.environ |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(8 << 30), "ARROW_DEFAULT_MEMORY_POOL": "system"}
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        share = hosts // workers
        made = pool.starmap(raw_rows, [(p, rows // workers, start_s, range(i * share, (i + 1) * share)) for i, p in enumerate(parts)], chunksize=1)
    took, cpu = time.monotonic() - started, sum(m["cpu_s"] for m in made)
    print(file=sys.stderr)
    figures = {name: sum(m["figures"][name] for m in made) for name in made[0]["figures"]}
    end_s = start_s + span_s
    found: dict[str, Any] = {"rows": rows, "made_s": round(took), "cpu_us_per_row": round(1e6 * cpu / rows, 2), "figures": figures, "span_s": span_s}
    with local_collector(joined(parts), "--keep-10s", "0", "--keep-60s", "0", "--keep-3600s", "0") as url:
        fleet = Fleet(url)
        times = {"start": start_s, "end": end_s}
        fresh = itertools.count(1)
        calls = sum(fleet.top(by="operator", limit=1000, **times).column("samples").to_pylist())
        questions = {
            "dashboard": lambda: fetched(f"{url}/?from={start_s}&to={end_s}"),
            "operator_page": lambda: fetched(f"{url}/operator?name=aten::op_7&from={start_s}&to={end_s}"),
            "overview": lambda: overview_of(fleet, start_s, end_s),
            # Each time a range that nobody asked for before, so that nothing of it but the whole hours has been added up.
            "overview_new": lambda: overview_of(fleet, start_s, end_s - 10 * next(fresh)),
            "top": lambda: fleet.top(by=("operator", "model"), **times),
            "hosts": lambda: fleet.hosts(**times),
            "heatmap": lambda: fleet.heatmap(where="operator=aten::op_7", **times),
            "last_hour": lambda: fleet.top(start=end_s - 3600, end=end_s),
        }
        for name, ask in questions.items():
            seconds = []
            for _ in range(repeat):
                begin = time.perf_counter()
                ask()
                seconds.append(time.perf_counter() - begin)
            found[name] = {"median_s": round(statistics.median(seconds), 3), "worst_s": round(max(seconds), 3), "first_s": round(seconds[0], 3)}
    assert calls > rows, "every raw row is in the answer"
    return found


def overview_of(fleet: Fleet, start: int, end: int) -> None:
    times: dict[str, Any] = {"start": start, "end": end}
    fleet.top(by="operator", **times)
    fleet.top(by="model", **times)
    fleet.trend(by="model", limit=8, **times)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
        return body


def page(ingest: dict[str, Any], overview: dict[str, Any], load: float, date: str, command: str) -> str:
    f = overview["figures"]
    raw = overview["rows"]
    bytes_per_row_10s = f["store_bytes"] / max(f["store_rows_10s"], 1)
    rate = ingest["points_per_second"]
    wire = ingest["bytes_per_point"]
    busy = (
        f" Load average {load:.1f} when it began: above 1 other programs took part of the cores, and a quiet machine does better." if load > 1 else ""
    )
    lines = [
        "# Capacity of the fleet's collector",
        "",
        f"Written on {date} by `{command}` on {machine()}, Python {platform.python_version()}; collector and load share the cores.{busy}",
        "",
        "## Measured",
        "",
        "| What | Figure |",
        "|---|---|",
        f"| Ingest, durable, histogram rows a second | **{rate:,}** ({ingest['requests']:,} requests of {OPERATORS} rows in {ingest['seconds']} s; {ingest['refused']} refused) |",
        f"| Answer to a request, that is on disk | median {ingest['latency_ms_p50']} ms, 99 % {ingest['latency_ms_p99']} ms, with {ingest['connections']} connections always waiting |",
        f"| Collector's CPU time | {ingest['collector_cpu_us_per_point']} us a row, everything included: HTTP, gzip, decoding, Parquet, syncs, roll-ups (the sender: {ingest['sender_cpu_us_per_point']} us) |",
        f"| A row on the wire | {ingest['wire_bytes_per_point']} bytes as sent, {wire} before gzip, with its samples and self time |",
        f"| On disk | {bytes_per_row_10s:.0f} bytes a 10 s row, its roll-ups included |",
        f"| Store's own work on a raw row: commit, folds, roll-ups | {overview['cpu_us_per_row']} us of CPU ({raw:,} rows in {overview['made_s']} s by two processes) |",
        *(
            f"| {text} | median {overview[name]['median_s']} s, first {overview[name]['first_s']} s, worst {overview[name]['worst_s']} s |"
            for name, text in (
                ("dashboard", "The dashboard's first page over all of that, the first view after a start among them"),
                ("operator_page", "The dashboard's page of an operator: heat map, quantiles, by model and host"),
                ("overview", f"**Overview** (operators, models, trend) over {raw:,} raw rows"),
                ("overview_new", "The same, each time over a range that was not asked for before"),
                ("top", "Time by operator and model, with quantiles"),
                ("hosts", "Time by host, with quantiles"),
                ("heatmap", "One operator's heat map"),
                ("last_hour", "Time by operator and model, last hour"),
            )
        ),
        "",
        "### How the rows were made",
        "",
        f"Ingest: requests of {OPERATORS} points, {BUCKETS} buckets with counts each, from 400 processes, made and compressed (gzip 1) beforehand as the agent does; one",
        "process replays them. Every acknowledged point is in the collector's own count of what it kept.",
        "",
        f"Overview: 1,000 hosts, {OPERATORS} series each, {BUCKETS} buckets with counts, every 10 s for {overview['span_s'] / 3600:.1f} hours. Every raw row was committed as a segment, folded into 10 s",
        "rows, minutes and hours and rolled up for the fleet by the store's own code; left out are HTTP and decoding. Two processes made a store of half the",
        "hosts each, whose segments were then put into one. The answers come over HTTP from a collector that has just started.",
        "",
        "## Arithmetic",
        "",
        f"A process with {OPERATORS} series that reports every 10 s sends {OPERATORS * 8640:,} rows a day. The overhead budget observes a tenth of the windows",
        "(`--points-per-second` holds the whole fleet to a rate; weights keep the sums unbiased), so a tenth of that reaches the collector.",
        "",
        "| Hosts | Rows a second, a tenth observed | Wire a host and day | Collectors | 10 s rows kept 2 days | Minutes kept 14 days | Hours kept 400 days | ClickHouse shards |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for hosts in (1, 100, 10_000, 1_000_000):
        per_second = hosts * OPERATORS / 10 * 0.1
        collectors = max(1, -(-int(per_second) // int(rate * 0.5)))
        ten = per_second * 86_400 * 2 * bytes_per_row_10s
        # A tenth of the windows, at random: of a minute's six windows at least one is observed with probability 1 - 0.9**6.
        minutes = hosts * OPERATORS * (1 - 0.9**6) * 1440 * 14 * bytes_per_row_10s
        hours = hosts * OPERATORS * 24 * 400 * bytes_per_row_10s * 2
        shards = "none" if hosts <= 10_000 else f"{max(2, -(-int(minutes + ten + hours) // int(4e12)))} of 4 TB"
        lines.append(
            f"| {hosts:,} | {per_second:,.0f} | {OPERATORS * 864 * ingest['wire_bytes_per_point'] / 1e6:.1f} MB | {collectors} | {size(ten)} | {size(minutes)} | {size(hours)} | {shards} |"
        )
    lines += [
        "",
        f"One collector is planned at half of what was measured. Up to about {rate * 0.5 / (OPERATORS / 10 * 0.1):,.0f} hosts one embedded store is enough; beyond it the collectors hold no",
        "state worth keeping: any number of them write into one ClickHouse (`--store clickhouse://...`), where a batch's number makes it count once whichever collector",
        "it came through. Raising `--points-per-second` trades disk for resolution; means and quantiles stay unbiased either way.",
        "",
    ]
    return "\n".join(lines)


def size(count: float) -> str:
    for unit, scale in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def machine() -> str:
    from machine import cpu_name

    return f"{cpu_name()}, {os.cpu_count()} cores, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true", help="2 million rows, 5 seconds")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", choices=("ingest", "overview"))
    parser.add_argument("--folder", type=Path, help="where the stores are made (default: a temporary folder)")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rows, arguments.seconds = 2_000_000, 5.0
    load_average = os.getloadavg()[0]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="sealift-capacity-"))
    try:
        ingest = measure_ingest(arguments.seconds, folder) if arguments.only != "overview" else {}
        print(json.dumps(ingest, indent=2), flush=True)
        overview = measure_overview(arguments.rows, folder) if arguments.only != "ingest" else {}
        print(json.dumps(overview, indent=2))
        if arguments.write and not arguments.only:
            command = f"python {os.path.relpath(sys.argv[0])} {' '.join(sys.argv[1:])}"
            arguments.write.write_text(page(ingest, overview, load_average, time.strftime("%Y-%m-%d", time.gmtime()), command))
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
