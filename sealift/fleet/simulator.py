"""A fleet that is not there: realistic traffic whose truth is known.

Hosts differ in speed, a few are stragglers; traffic has a day's rhythm and bursts; operators' times are log-normal, with the names and
proportions of real models; one regression is planted. All of it follows from the seed, in virtual time."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sealift.fleet.model import SLOT_S
from sealift.fleet.otlp.encode import Histogram, Value, logs_request, metrics_request
from sealift.fleet.truth import Truth

DAY_S = 86_400


class Operator(NamedTuple):
    name: str
    median_ns: float
    sigma: float  # of the logarithm
    calls: float  # in one step of the model
    self_share: float = 1.0
    source: str = "torch"
    origin: str = ""


class Workload(NamedTuple):
    service: str
    version: str
    model: str
    share: float  # of the hosts
    operators: tuple[Operator, ...]


# Times and calls a step as torch.profiler shows them for these models on one CPU core, rounded.
_RESNET = (
    Operator("aten::conv2d", 900e3, 0.7, 53, 0.05),
    Operator("aten::mkldnn_convolution", 850e3, 0.7, 53),
    Operator("aten::batch_norm", 60e3, 0.5, 53),
    Operator("aten::relu_", 25e3, 0.5, 49),
    Operator("aten::add_", 40e3, 0.4, 16),
    Operator("aten::max_pool2d", 400e3, 0.2, 1),
    Operator("aten::adaptive_avg_pool2d", 50e3, 0.2, 1),
    Operator("aten::linear", 300e3, 0.2, 1),
    Operator("aten::flatten", 2e3, 0.6, 1),
)
_BERT = (
    Operator("aten::linear", 450e3, 0.6, 73, 0.03),
    Operator("aten::addmm", 430e3, 0.6, 73),
    Operator("aten::scaled_dot_product_attention", 700e3, 0.4, 12),
    Operator("aten::layer_norm", 45e3, 0.4, 25),
    Operator("aten::gelu", 180e3, 0.3, 12),
    Operator("aten::add", 20e3, 0.5, 26),
    Operator("aten::view", 900, 0.5, 60),
    Operator("aten::transpose", 1100, 0.5, 48),
    Operator("aten::embedding", 30e3, 0.5, 3),
    Operator("aten::tanh", 12e3, 0.3, 1),
)
_TRAINER = (
    Operator("aten::mm", 500e3, 0.8, 120),
    Operator("aten::addmm", 450e3, 0.6, 60),
    Operator("aten::gelu_backward", 150e3, 0.3, 12),
    Operator("aten::native_layer_norm_backward", 90e3, 0.4, 25),
    Operator("aten::_softmax_backward_data", 80e3, 0.4, 12),
    Operator("aten::copy_", 15e3, 0.9, 80),
    Operator("aten::_foreach_add_", 1.2e6, 0.3, 4),
    Operator("aten::sum", 30e3, 0.7, 40),
)
_SEALIFT = (
    Operator("k3_mm_gelu", 210e3, 0.2, 6, 1.0, "sealift", "aten.mm, aten.gelu @ model.py:31 encoder.layer.0.mlp"),
    Operator("k4_mm_add", 190e3, 0.2, 12, 1.0, "sealift", "aten.mm, aten.add @ model.py:33 encoder.layer.0.out"),
    Operator("k9_attention", 160e3, 0.3, 6, 1.0, "sealift", "aten.scaled_dot_product_attention @ model.py:24 encoder.layer.0.attn"),
    Operator("k11_layer_norm", 14e3, 0.3, 13, 1.0, "sealift", "aten.layer_norm @ model.py:35 encoder.layer.0.norm"),
)
WORKLOADS = (
    Workload("vision-api", "2.4.0", "resnet50-v3", 0.35, _RESNET),
    Workload("search-ranker", "1.9.2", "bert-base-v7", 0.35, _BERT),
    Workload("embedder", "0.8.1", "minilm-v2", 0.2, _SEALIFT),
    Workload("nightly-training", "5.1.0", "", 0.1, _TRAINER),
)
_KEYS = ("torch.python.import", "tensor.create", "python.nn_module", "torch.load")


@dataclass(frozen=True)
class Regression:
    """From `after_s` seconds into the simulation on, one operator of one model takes `factor` times as long."""

    operator: str = "aten::layer_norm"
    model: str = "bert-base-v7"
    factor: float = 1.4
    after_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    hosts: int = 20
    minutes: float = 10
    start_s: int = 0  # unix time of the first window
    interval_s: int = 10
    seed: int = 0
    calls: float = 40  # mean calls of the commonest operator of a process in one window
    probability: float = 0.25  # of recording a call; 1 / probability is rounded to a whole weight
    duty: float = 1.0  # of the windows that a process is observed in; weighted like the probability
    stragglers: float = 0.02
    regression: Regression | None = None
    rhythm: bool = True
    workloads: tuple[Workload, ...] = WORKLOADS
    rows_limit: int = 50_000_000  # of histogram points in all: the simulation ends there


@dataclass
class Process:
    host: str
    workload: Workload
    speed: float
    instance: str
    pid: int
    phase: float
    sequence: int = 0
    burst_until_s: int = 0
    resource: Mapping[str, Value] = field(default_factory=dict)


class Sent(NamedTuple):
    """One request, and the virtual time at which it leaves its host."""

    time_s: int
    signal: str
    process: Process
    body: bytes
    points: int


class Simulation:
    def __init__(self, plan: Plan, truth: Truth | None = None) -> None:
        self.plan = plan
        self.truth = truth
        self._random = np.random.default_rng(plan.seed)
        self.weight = max(round(1 / plan.probability), 1)
        self.duty_weight = max(round(1 / plan.duty), 1)
        self.processes = self._started()
        self.rows = 0
        self._attributes: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}

    def _started(self) -> list[Process]:
        workloads = self.plan.workloads
        ends = np.cumsum([w.share for w in workloads]) / sum(w.share for w in workloads)
        found = []
        for i in range(self.plan.hosts):
            workload = workloads[int(np.searchsorted(ends, (i + 0.5) / self.plan.hosts))]
            straggler = self._random.random() < self.plan.stragglers
            speed = float(np.exp(self._random.normal(0, 0.08))) * (3.0 if straggler else 1.0)
            instance = str(uuid.UUID(bytes=self._random.bytes(16), version=4))
            process = Process(f"{workload.service}-{i:05d}", workload, speed, instance, 1000 + i, self._random.random())
            process.resource = {
                "service.name": workload.service,
                "service.version": workload.version,
                "service.instance.id": instance,
                "host.name": process.host,
                "process.pid": process.pid,
                "telemetry.sdk.name": "sealift",
                "telemetry.sdk.language": "python",
            }
            found.append(process)
        return found

    def __iter__(self) -> Iterator[Sent]:
        """Every request, in virtual time."""
        plan = self.plan
        for process in self.processes:
            yield self._events(process)
        for window in range(int(plan.minutes * 60 / plan.interval_s)):
            start_s = plan.start_s + window * plan.interval_s
            for process in self.processes:
                if self.duty_weight > 1 and self._random.random() >= 1 / self.duty_weight:
                    continue
                sent = self._window(process, start_s)
                if sent.points:
                    self.rows += sent.points
                    yield sent
                if self.rows >= plan.rows_limit:
                    return

    def _events(self, process: Process) -> Sent:
        time_ns = self.plan.start_s * 10**9
        events: list[tuple[str, int, Mapping[str, Value]]] = [("sealift.api_usage", time_ns, {"sealift.api.key": key}) for key in _KEYS]
        model = process.workload.model
        if model:
            about: dict[str, Value] = {
                "sealift.model.id": model,
                "sealift.model.digest": f"sha256:{model}",
                "sealift.model.path": f"/models/{model}.pt2",
                "sealift.model.format": "sealift" if process.workload.operators[0].source == "sealift" else "torch.export",
                "sealift.model.producer": "release-pipeline",
                "sealift.model.signed": process.workload.operators[0].source == "sealift",
            }
            events.append(("sealift.model.loaded", time_ns, about))
        process.sequence += 1
        return Sent(self.plan.start_s, "logs", process, logs_request(process.resource, process.sequence, events), 0)

    def traffic(self, process: Process, time_s: int) -> float:
        """Relative load: a day's rhythm (never below a fifth), a weekend's dip, bursts."""
        if not self.plan.rhythm:
            return 1.0
        day = 0.6 + 0.4 * math.sin(2 * math.pi * (time_s / DAY_S + 0.1 * process.phase))
        weekend = 0.6 if (time_s // DAY_S + 4) % 7 >= 5 else 1.0
        if time_s >= process.burst_until_s and self._random.random() < 0.01:
            process.burst_until_s = time_s + 60
        return day * weekend * (3.0 if time_s < process.burst_until_s else 1.0)

    def _window(self, process: Process, start_s: int) -> Sent:
        plan, operators = self.plan, process.workload.operators
        most = max(o.calls for o in operators)
        load = self.traffic(process, start_s)
        means = np.array([max(plan.calls * o.calls / most, 0.5) * load for o in operators])
        calls = self._random.poisson(means)
        which = np.repeat(np.arange(len(operators)), calls)
        # A loaded host is a little slower, at every operator: the rhythm that a rule must not take for a regression.
        slow = process.speed * (1 + 0.03 * (load - 1)) * np.exp(self._random.normal(0, 0.01))
        location = np.log([o.median_ns * slow for o in operators])
        regression = plan.regression
        if regression and process.workload.model == regression.model and start_s >= plan.start_s + regression.after_s:
            location += [math.log(regression.factor) if o.name == regression.operator else 0.0 for o in operators]
        duration = np.exp(location[which] + np.array([o.sigma for o in operators])[which] * self._random.standard_normal(len(which)))
        duration_ns = np.maximum(duration, 1).astype(np.int64)
        recorded = self._random.random(len(which)) < 1 / self.weight
        histograms = self._histograms(process, which[recorded], duration_ns[recorded])
        self._note(process, start_s, which, duration_ns, histograms)
        end_s = start_s + plan.interval_s
        if not histograms:
            return Sent(end_s, "metrics", process, b"", 0)
        process.sequence += 1
        body = metrics_request(
            process.resource, process.sequence, start_s * 10**9, end_s * 10**9, list(histograms.values()), {"overhead": 0.002, "dropped": 0}
        )
        return Sent(end_s, "metrics", process, body, len(histograms))

    def _histograms(self, process: Process, which: np.typing.NDArray[np.int64], duration_ns: np.typing.NDArray[np.int64]) -> dict[int, Histogram]:
        weight = self.weight * self.duty_weight
        bucket = np.ceil(8 * np.log2(duration_ns)).astype(np.int64) - 1
        found = {}
        for i in np.unique(which).tolist():
            mine = which == i
            first = int(bucket[mine].min())
            counts = np.bincount(bucket[mine] - first) * weight
            total = int(duration_ns[mine].sum()) * weight
            samples = int(mine.sum())
            operator = process.workload.operators[i]
            attributes = self._of(operator, process.workload.model)
            found[i] = Histogram(attributes, samples * weight, samples, total, int(total * operator.self_share), 0, first, counts.tolist())
        return found

    def _of(self, operator: Operator, model: str) -> tuple[tuple[str, str], ...]:
        key = (operator.name, model)
        if key not in self._attributes:
            named = (
                ("sealift.operator", operator.name),
                ("sealift.source", operator.source),
                ("sealift.scope", "function" if operator.source == "torch" else "kernel"),
                ("sealift.model.id", model),
                ("sealift.origin", operator.origin),
            )
            self._attributes[key] = tuple((k, v) for k, v in named if v)
        return self._attributes[key]

    def _note(
        self,
        process: Process,
        start_s: int,
        which: np.typing.NDArray[np.int64],
        duration_ns: np.typing.NDArray[np.int64],
        histograms: Mapping[int, Histogram],
    ) -> None:
        if self.truth is None:
            return
        slot = (start_s + self.plan.interval_s // 2) // SLOT_S * SLOT_S
        for i, operator in enumerate(process.workload.operators):
            mine = duration_ns[which == i]
            if not len(mine):
                continue
            w = process.workload
            tally = self.truth.tallies[(operator.name, w.model, w.service, w.version, process.host), slot]
            tally.true_count += len(mine)
            tally.true_total_ns += int(mine.sum())
            if self.truth.keep_durations:
                tally.true_durations_ns.append(mine)
            if i in histograms:
                h = histograms[i]
                tally.count += h.count
                tally.samples += h.samples
                tally.total_ns += h.total_ns
                tally.self_ns += h.self_ns or 0
                for offset, n in enumerate(h.counts):
                    tally.buckets[h.first + offset] += n


def duty_for(hosts: int, interval_s: int, speed: float, rows_per_s: float, workloads: Sequence[Workload] = WORKLOADS) -> float:
    """The share of windows to observe so that the fleet sends at most `rows_per_s` histogram rows in real time."""
    share = sum(w.share for w in workloads)
    rows = sum(w.share / share * len(w.operators) for w in workloads) * hosts / interval_s * speed
    return min(1.0, rows_per_s / rows)
