"""A service that reports itself: always on, sampled, within a budget, to any sinks, with the model and the tenant of each request.

python examples/profile_service.py MODEL.pt2 FOLDER"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np

import sealift
from sealift import observe
from sealift.observe.sinks import Exporter, parse_sink
from sealift.observe.sinks.json_lines import read_json_lines
from sealift.observe.snapshot import Snapshot, merged


class BusiestOperator:
    """A sink of your own: anything with write and close. It runs on a thread of its own and may block, fail or hang: the service does not."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def write(self, delta: Snapshot) -> None:
        self.seconds.update({s.operator: s.total_ns / 1e9 for s in delta.series})

    def close(self) -> None:
        for name, seconds in self.seconds.most_common(1):
            print(f"busiest: {name} with {seconds * 1e3:.1f} ms")


def main(package: str, folder: Path) -> None:
    model = sealift.load(package)
    shape = [d.min if d.min == d.max else 8 for d in model.inputs[0].shape]
    x = np.ones(shape, np.float32)

    # Rates for an example of a second; a service takes observe.start()'s defaults, which keep to 0.3 % of its time.
    observe.start(sampling_prob=0.5, duty_cycle=1, budget=0, burst_duty_cycle=0, labels=["tenant"])
    sinks = {"mine": BusiestOperator, **dict([parse_sink(f"json:{folder}/{{id}}.jsonl"), parse_sink("prometheus:0")])}
    exporter = Exporter(observe.snapshot, sinks, interval_s=0.2).start()
    for i in range(2000):
        with observe.debug_info(model_id=f"{model.name}:1", tenant="acme" if i % 4 else "other"):
            model(x)
    exporter.close()  # the end of the process does it, too
    observe.stop()

    total = merged(s for path in folder.glob("*.jsonl") for s in read_json_lines(path))
    assert total is not None
    for s in total.series:
        error = 1.96 * s.count_standard_error
        p99 = s.histogram.quantile(0.99) / 1e3
        print(f"{s.operator} of {s.model_id} for {dict(s.labels)['tenant']}: {s.count} ± {error:.0f} calls, p99 {p99:.1f} us")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
