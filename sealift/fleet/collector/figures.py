"""The collector's own figures and the fleet's, in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from sealift.fleet import questions
from sealift.fleet.questions import Question

if TYPE_CHECKING:
    from sealift.fleet.collector.app import Collector

_OPERATORS = 30  # series of /metrics: a scrape must not grow with the fleet


class Figures:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, float] = defaultdict(float)
        self.started = time.time()

    def add(self, name: str, amount: float = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def counts(self) -> dict[str, float]:
        with self._lock:
            return dict(self._counts)


def label(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def prometheus(collector: Collector) -> str:
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {value:.17g}" for labels, value in samples)

    committer, counts = collector.committer, collector.figures.counts()
    for name, text in (
        ("metrics_requests", "Metrics requests acknowledged."),
        ("logs_requests", "Logs requests acknowledged."),
        ("received_bytes", "Bytes of requests acknowledged."),
        ("rejected", "Points and records turned down within acknowledged requests."),
        ("questions", "Questions answered."),
        ("errors", "Requests that failed by an error of the collector's."),
        ("maintain_failures", "Rounds of housekeeping that failed."),
    ):
        family(f"sealift_fleet_{name}_total", "counter", text, [("", counts.get(name, 0))])
    refused = [(f'{{reason="{r}"}}', counts.get(f"refused_{r}", 0)) for r in ("token", "host", "behind", "full", "bytes", "rate")]
    family("sealift_fleet_refused_total", "counter", "Requests refused, by reason.", refused)
    for name, text, value in (
        ("batches", "Batches counted.", committer.counted),
        ("repeated", "Batches that had been counted before.", committer.repeated),
        ("points", "Histogram points kept.", committer.points),
        ("commits", "Group commits.", committer.commits),
        ("commit_failures", "Group commits that failed.", committer.failures),
    ):
        family(f"sealift_fleet_{name}_total", "counter", text, [("", value)])
    family("sealift_fleet_cpu_seconds_total", "counter", "CPU time of the collector's process.", [("", time.process_time())])
    for name, figure in collector.store.info().figures.items():
        family(f"sealift_fleet_{name}", "gauge", "Of the store.", [("", figure)])
    family("sealift_fleet_start_time_seconds", "gauge", "Unix time of the collector's start.", [("", collector.figures.started)])
    now_s = collector.clock_ns() // 10**9
    table = questions.top(collector.store, Question(now_s - 300, now_s + 10, ("operator", "model"), limit=_OPERATORS)).to_pylist()
    names = [f"{{operator={label(r['operator'])},model={label(r['model'])}}}" for r in table]
    family(
        "sealift_operator_seconds",
        "gauge",
        "Time in the operator over the last five minutes.",
        [(n, r["total_ns"] / 1e9) for n, r in zip(names, table)],
    )
    family("sealift_operator_calls", "gauge", "Calls over the last five minutes.", [(n, r["count"]) for n, r in zip(names, table)])
    family(
        "sealift_operator_mean_seconds",
        "gauge",
        "Mean time of a call over the last five minutes.",
        [(n, r["mean_ns"] / 1e9) for n, r in zip(names, table)],
    )
    for q in (50, 90, 99):
        family(
            f"sealift_operator_p{q}_seconds",
            "gauge",
            f"Quantile {q} % over the last five minutes.",
            [(n, (r[f"p{q}_ns"] or 0) / 1e9) for n, r in zip(names, table)],
        )
    alarms = collector.watch.alarms if collector.watch else []
    found = [(f"{{rule={label(a.rule)},{','.join(f'{k}={label(v)}' for k, v in a.keys)}}}", a.ratio) for a in alarms]
    family("sealift_fleet_regression_ratio", "gauge", "Mean time a call now over before, of each regression that a rule sees.", found)
    return "\n".join(lines) + "\n"
