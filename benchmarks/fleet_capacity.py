"""What one collector takes and how fast it answers, on this machine, and the arithmetic for fleets of any size: writes docs/capacity.md.

    python benchmarks/fleet_capacity.py --write docs/capacity.md       # about a quarter of an hour
    python benchmarks/fleet_capacity.py --rows 2000000 --seconds 10    # a first look

Ingest: a collector process of its own and a load generator on the same cores, requests of 100 histogram points (each with its samples and self
time), 32 connections; a point counts when its request has been answered, that is when it is on disk. Overview: 100 million raw rows are written
as agents' batches would be, rolled up, and the dashboard's first questions are asked over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from sealift.fleet.client import Fleet
from sealift.fleet.columns import Rows
from sealift.fleet.drive import local_collector
from sealift.fleet.model import Batch, Points, Resource, SeriesKey
from sealift.fleet.otlp import encode
from sealift.fleet.store.embedded import EmbeddedStore
from sealift.fleet.store.interface import Retention

OPERATORS = 100  # series of a process
BUCKETS = 20  # with counts, of a point


def request_bodies(count: int, distinct: int = 40) -> list[bytes]:
    """Requests of 100 points each, each of a process of its own; the points repeat after `distinct` requests."""
    chance = random.Random(0)
    now = time.time_ns()
    bodies = []
    for i in range(min(distinct, count)):
        resource: dict[str, encode.Value] = {
            "service.name": f"service-{i % 10}", "service.version": "1.0", "service.instance.id": f"instance-{i:08d}", "host.name": f"host-{i % 1000}",
            "process.pid": i, "telemetry.sdk.name": "sealift", "telemetry.sdk.language": "python", "k8s.pod.name": f"pod-{i}",
        }  # fmt: skip
        points = []
        for j in range(OPERATORS):
            counts = [chance.randrange(1, 300) for _ in range(BUCKETS)]
            attributes = (
                ("sealift.operator", f"aten::op_{j}"),
                ("sealift.source", "torch"),
                ("sealift.scope", "function"),
                ("sealift.model.id", f"model-{i % 10}"),
            )
            points.append(
                encode.Histogram(attributes, sum(counts), sum(counts) // 2, sum(counts) * 40_000, sum(counts) * 30_000, 0, 90 + j % 40, counts)
            )
        bodies.append(encode.metrics_request(resource, 0, now - 10**10, now, points, {"dropped": 0, "overflow": 0, "overhead": 0.002}))
    return [bodies[i % distinct].replace(b"instance-%08d" % (i % distinct), b"instance-%08d" % i) for i in range(count)]


async def load(url: str, bodies: list[bytes], seconds: float, connections: int) -> dict[str, Any]:
    """Each connection sends its next request when the last has been answered."""
    address = urllib.parse.urlsplit(url)
    latencies: list[float] = []
    done = refused = 0
    queue = iter(bodies)
    end = time.monotonic() + seconds
    started = time.monotonic()

    async def one() -> None:
        nonlocal done, refused
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for body in queue:
            if time.monotonic() > end:
                break
            sent = time.monotonic()
            head = f"POST /v1/metrics HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
            status = await reader.readline()
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
            if b" 200 " in status:
                done += 1
                latencies.append(time.monotonic() - sent)
            else:
                refused += 1
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    elapsed = time.monotonic() - started
    latencies.sort()
    return {
        "requests": done,
        "refused": refused,
        "seconds": round(elapsed, 1),
        "points_per_second": round(done * OPERATORS / elapsed),
        "latency_ms_p50": round(1000 * latencies[len(latencies) // 2]) if latencies else None,
        "latency_ms_p99": round(1000 * latencies[len(latencies) * 99 // 100]) if latencies else None,
        "bytes_per_point": round(sum(map(len, bodies)) / len(bodies) / OPERATORS),
    }


def collector_cpu_s(url: str) -> float:
    """CPU seconds of the collector so far: what is left of the figures when other programs share the cores."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        return next(float(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith("sealift_fleet_cpu_seconds_total "))


def measure_ingest(seconds: float, folder: Path) -> dict[str, Any]:
    bodies = request_bodies(max(int(seconds * 1200), 200))
    with local_collector(folder / "ingest") as url:
        asyncio.run(load(url, bodies[:50], 5, 8))  # the first requests open files and fill dictionaries
        before = collector_cpu_s(url)
        found = asyncio.run(load(url, bodies[50:], seconds, 32))
        found["collector_cpu_us_per_point"] = round(1e6 * (collector_cpu_s(url) - before) / (found["requests"] * OPERATORS), 1)
        kept = Fleet(url).top(by="service", start="-1h", end=time.time() + 60)
        points = sum(kept.column("samples").to_pylist()) > 0
        figures = Fleet(url).info()["figures"]
    assert points
    assert found["requests"] < len(bodies) - 50, "the load generator ran out of requests"
    return found | {"figures": figures}


def raw_rows(store: EmbeddedStore, rows: int, start_s: int, hosts: int = 1000, batch_rows: int = 500_000) -> float:
    """Writes `rows` raw rows as `hosts` processes' ten-second batches would be; the seconds it took, roll-ups included."""
    chance = np.random.default_rng(0)
    keys = [SeriesKey(f"aten::op_{j}", "torch", "function", f"model-{j % 10}") for j in range(OPERATORS)]
    ids = np.array([k.id for k in keys], np.int64)
    resources = [Resource(f"service-{i % 10}", "1.0", f"host-{i}", f"instance-{i}", i) for i in range(hosts)]
    store.commit([Batch("metrics", r, None, i, series={k.id: k for k in keys}) for i, r in enumerate(resources)], start_s * 10**9)
    resource_ids = np.array([r.id for r in resources], np.int64)
    per_window = hosts * OPERATORS
    windows_together = max(batch_rows // per_window, 1)
    started = time.monotonic()
    total = rows // per_window
    for first in range(0, total, windows_together):
        windows = min(windows_together, total - first)
        n = windows * per_window
        counts = chance.integers(1, 300, n * BUCKETS)
        offsets = np.arange(0, n * BUCKETS + 1, BUCKETS)
        sums = np.add.reduceat(counts, offsets[:-1])
        points = Points(
            series=np.tile(ids, windows * hosts), time_s=np.repeat(start_s + 10 * (first + np.arange(windows)), per_window), count=sums,
            samples=np.maximum(sums // 2, 1), total_ns=sums * 40_000, self_ns=sums * 30_000, zero=np.zeros(n, np.int64),
            first=np.tile(90 + np.arange(OPERATORS) % 40, windows * hosts), offsets=offsets, counts=counts,
        )  # fmt: skip
        store.append_rows(Rows.of(points, np.tile(np.repeat(resource_ids, OPERATORS), windows)))
        store.maintain((start_s + 10 * (first + windows)) * 10**9)
        print(f"\r{(first + windows) * per_window / 1e6:.0f} million rows, {time.monotonic() - started:.0f} s ", end="", file=sys.stderr, flush=True)
    store.maintain((start_s + 10 * total + 7200) * 10**9)
    print(file=sys.stderr)
    return time.monotonic() - started


def measure_overview(rows: int, folder: Path, repeat: int = 7) -> dict[str, Any]:
    start_s = int(time.time() - rows / 100_000 * 10 - 3600) // 3600 * 3600
    store = EmbeddedStore(folder / "overview", Retention(None, None, None, None))
    took = raw_rows(store, rows, start_s)
    figures = dict(store.info().figures)
    store.close()
    end_s = start_s + rows // 100_000 * 10
    found: dict[str, Any] = {"rows": rows, "written_and_rolled_up_s": round(took), "figures": figures, "span_s": end_s - start_s}
    with local_collector(folder / "overview", "--keep-10s", "0", "--keep-60s", "0", "--keep-3600s", "0") as url:
        fleet = Fleet(url)
        times = {"start": start_s, "end": end_s}
        questions = {
            "dashboard": lambda: fetched(f"{url}/?from={start_s}&to={end_s}"),
            "operator_page": lambda: fetched(f"{url}/operator?name=aten::op_7&from={start_s}&to={end_s}"),
            "overview": lambda: (fleet.top(by="operator", **times), fleet.top(by="model", **times), fleet.trend(by="model", limit=8, **times)),
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
    return found


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
        return body


def page(ingest: dict[str, Any], overview: dict[str, Any], load: float) -> str:
    f = overview["figures"]
    raw = overview["rows"]
    bytes_per_row_10s = f["store_bytes"] / max(f["store_rows_10s"], 1)
    rate = ingest["points_per_second"]
    wire = ingest["bytes_per_point"]
    lines = [
        "# Capacity of the fleet's collector",
        "",
        f"Load average {load:.1f} when it began: above 1 other programs took part of the cores, and a quiet machine does better." if load > 1 else "",
        "",
        f"Written by `python benchmarks/fleet_capacity.py --write docs/capacity.md` on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; collector and load share the cores.",
        "",
        "## Measured",
        "",
        "| What | Figure |",
        "|---|---|",
        f"| Ingest, durable, histogram rows a second | **{rate:,}** ({ingest['requests']:,} requests of {OPERATORS} rows in {ingest['seconds']} s; {ingest['refused']} refused) |",
        f"| Answer to a request, that is on disk | median {ingest['latency_ms_p50']} ms, 99 % {ingest['latency_ms_p99']} ms, with 32 connections |",
        f"| Collector's CPU time | {ingest['collector_cpu_us_per_point']} us a row, everything included: HTTP, decoding, Parquet, syncs, roll-ups |",
        f"| A row on the wire, before gzip | {wire} bytes, with its samples and self time |",
        f"| Raw rows written and rolled up | {raw:,} rows in {overview['written_and_rolled_up_s']} s ({raw / max(overview['written_and_rolled_up_s'], 1):,.0f} a second) |",
        f"| On disk | {f['store_bytes'] / 1e9:.2f} GB in {f['store_segments']:.0f} segments: {bytes_per_row_10s:.0f} bytes a 10 s row, its roll-ups included |",
        *(
            f"| {text} | median {overview[name]['median_s']} s, worst {overview[name]['worst_s']} s |"
            for name, text in (
                ("dashboard", "The dashboard's first page over all of that, the first view after a start among them"),
                ("operator_page", "The dashboard's page of an operator: heat map, quantiles, by model and host"),
                ("overview", f"Overview (operators, models, trend) over {raw:,} raw rows"),
                ("top", "Time by operator and model, with quantiles"),
                ("hosts", "Time by host"),
                ("heatmap", "One operator's heat map"),
                ("last_hour", "Time by operator and model, last hour"),
            )
        ),
        "",
        f"The raw rows: 1,000 hosts, {OPERATORS} series each, {BUCKETS} buckets with counts, every 10 s for {overview['span_s'] / 3600:.1f} hours.",
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
            f"| {hosts:,} | {per_second:,.0f} | {OPERATORS * 864 * wire / 1e6:.1f} MB | {collectors} | {size(ten)} | {size(minutes)} | {size(hours)} | {shards} |"
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--only", choices=("ingest", "overview"))
    parser.add_argument("--folder", type=Path, help="where the stores are made (default: a temporary folder)")
    arguments = parser.parse_args()
    load_average = os.getloadavg()[0]
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="sealift-capacity-"))
    try:
        ingest = measure_ingest(arguments.seconds, folder) if arguments.only != "overview" else {}
        print(json.dumps(ingest, indent=2), flush=True)
        overview = measure_overview(arguments.rows, folder) if arguments.only != "ingest" else {}
        print(json.dumps(overview, indent=2))
        if arguments.write and not arguments.only:
            arguments.write.write_text(page(ingest, overview, load_average))
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
