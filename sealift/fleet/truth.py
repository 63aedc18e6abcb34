"""What the simulator really sent and what really happened, so that every answer of the fleet can be held against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from sealift.fleet.model import Floats, Ints

Key = tuple[str, ...]  # (operator, model, service, version, host)
NAMES = ("operator", "model", "service", "version", "host")


@dataclass
class Tally:
    """Of one key and time slot. `true_*`: every call, also those that were not recorded."""

    count: int = 0
    samples: int = 0
    total_ns: int = 0
    self_ns: int = 0
    buckets: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    true_count: int = 0
    true_total_ns: int = 0
    true_durations_ns: list[Ints] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("count", "samples", "total_ns", "self_ns", "true_count", "true_total_ns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for bucket, n in other.buckets.items():
            self.buckets[bucket] += n
        self.true_durations_ns += other.true_durations_ns

    def true_quantile_ns(self, q: float) -> float:
        values: Floats = np.sort(np.concatenate(self.true_durations_ns)).astype(np.float64)
        return float(values[max(int(np.ceil(q * len(values))), 1) - 1])


class Truth:
    """Tallies by (key, slot). `keep_durations` costs 8 bytes a call: for small simulations, whose quantiles are compared."""

    def __init__(self, keep_durations: bool = True) -> None:
        self.keep_durations = keep_durations
        self.tallies: dict[tuple[Key, int], Tally] = defaultdict(Tally)

    def by(
        self, *names: str, start_s: int = 0, end_s: int = 1 << 40, step_s: int = 0, where: Callable[[Mapping[str, str]], bool] | None = None
    ) -> dict[Key, Tally]:
        """Tallies by the named keys; with `step_s` the slot's start is the last of each key."""
        places = [NAMES.index(name) for name in names]
        found: dict[Key, Tally] = defaultdict(Tally)
        for (key, slot), tally in self.tallies.items():
            if start_s <= slot < end_s and (where is None or where(dict(zip(NAMES, key)))):
                wanted = tuple(key[i] for i in places) + ((str(slot // step_s * step_s),) if step_s else ())
                found[wanted].add(tally)
        return dict(found)
