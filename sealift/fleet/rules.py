"""Regressions: rules on what got slower, and when.

What is compared is the mean time of a call, not total time: traffic has a day's and a week's rhythm, calls hardly. What rhythm is left (a loaded
host is a little slower) is taken out by comparing a window with the same time of day before, on as many earlier days as there are, and by asking
that the window be slower than every one of them. A rule fires when all of these hold:
- the mean grew by at least `change` over all baselines together, and over each of them by at least half of that;
- the operator's share of the window's total is at least `share`;
- a test of each host against itself (statistics.compare_hosts) gives p < `p_value` after Holm's correction over everything the rule looked at;
- at least half of the hosts that ran it in both windows got slower, so that one straggler is no regression."""

from __future__ import annotations

import json
import logging
import math
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from sealift.fleet import statistics
from sealift.fleet.cells import Hosts, Key, Side, added, by_host, with_steps
from sealift.fleet.errors import QuestionError, RuleError
from sealift.fleet.store.interface import Filter, Selection, Store, checked_key
from sealift.fleet.times import parse_span

_LOG = logging.getLogger(__name__)
DAY_S = 86_400
_REST = 20  # times what a look took


@dataclass(frozen=True)
class Rule:
    name: str = "slower"
    by: tuple[str, ...] = ("operator", "model")
    where: tuple[Filter, ...] = ()
    change: float = 0.1
    share: float = 0.01
    p_value: float = 0.001
    window_s: int = 1800
    days: int = 7  # baselines: the same time of day, so many days back, where there is data
    versions: bool = False  # compare a service's newest version with the one before, within the window, instead of times
    webhook: str = ""

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str) -> Rule:
        """From a rule file's object."""
        known = {f.name for f in fields(cls)} - {"window_s"} | {"window"}
        unknown = set(values) - known
        if unknown:
            raise RuleError(f"{where}: {', '.join(sorted(unknown))}; help: a rule has {', '.join(sorted(known))}")
        made: dict[str, Any] = dict(values)
        try:
            if "window" in made:
                made["window_s"] = parse_span(str(made.pop("window")))
            if "by" in made:
                made["by"] = tuple(checked_key(k) for k in made["by"])
            if "where" in made:
                made["where"] = tuple(Filter.parse(t) for t in made["where"])
            rule = cls(**made)
            checked_webhook(rule.webhook)
        except RuleError as error:
            raise RuleError(f"{where}: {str(error).removeprefix(f'[{error.code}] ')}") from None
        except (QuestionError, TypeError, AttributeError) as error:
            raise RuleError(f"{where}: {error}") from None
        for name, low, high in (("change", 0.0, 100.0), ("share", 0.0, 1.0), ("p_value", 0.0, 1.0), ("days", 0, 60), ("window_s", 60, 7 * DAY_S)):
            value = getattr(rule, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise RuleError(f"{where}: {name} = {value!r}; help: from {low} to {high}")
        return rule


def read_rules(path: Path) -> tuple[Rule, ...]:
    """JSON: a list of objects, one for each rule."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RuleError(f"{path}: {error}") from None
    if not isinstance(found, list) or not found or not all(isinstance(table, dict) for table in found):
        raise RuleError(f'{path}; help: a list of objects, as in [{{"name": "slower", "change": 0.1}}]')
    return tuple(Rule.parse(table, f"{path}, rule {i + 1}") for i, table in enumerate(found))


@dataclass(frozen=True)
class Alarm:
    rule: str
    keys: tuple[tuple[str, str], ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
    share: float
    before_ns: float
    after_ns: float
    cost_ns: float  # more time in the window than before
    since_s: int  # when it began, to the step that the window is cut in
    window: tuple[int, int]
    hosts: int

    def as_dict(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("rule", "ratio", "ratio_low", "ratio_high", "p_value", "share", "before_ns", "after_ns", "cost_ns")
        } | {
            "keys": dict(self.keys),
            "since": self.since_s,
            "from": self.window[0],
            "to": self.window[1],
            "hosts": self.hosts,
        }

    def __str__(self) -> str:
        from sealift.fleet.times import time_text

        what = ", ".join(f"{k} {v}" for k, v in self.keys if v)
        ratio = f"x{self.ratio:.2f} ({self.ratio_low:.2f} to {self.ratio_high:.2f})"
        return (
            f"{what}: {self.before_ns / 1e3:.1f} us -> {self.after_ns / 1e3:.1f} us a call, {ratio}, "
            f"{self.share:.1%} of the time, {self.hosts} hosts, p = {self.p_value:.1g}, since about {time_text(self.since_s)} UTC"
        )


def check(store: Store, rules: Sequence[Rule], now_s: int) -> list[Alarm]:
    """Every alarm at that moment, the costliest first."""
    found = [alarm for rule in rules for alarm in (_versions(store, rule, now_s) if rule.versions else _times(store, rule, now_s))]
    return sorted(found, key=lambda a: -a.cost_ns)


def _step(span_s: int) -> int:
    step = max(10, span_s // 12)
    return step // 60 * 60 if step >= 60 else step // 10 * 10


def _times(store: Store, rule: Rule, now_s: int) -> list[Alarm]:
    end = now_s // 60 * 60 if rule.window_s >= 600 else now_s // 10 * 10
    start = end - rule.window_s
    first, _ = store.time_range()
    days = [day * DAY_S for day in range(1, rule.days + 1) if start - day * DAY_S >= first]
    now = Side(start, end, rule.where)
    alarms = _judged(store, rule, now, [Side(start - day, end - day, rule.where) for day in days])
    if alarms is None:  # a store that is younger than a day: what came before the window
        begin = max(first, start - 4 * rule.window_s)
        alarms = _judged(store, rule, now, [Side(begin, start, rule.where)]) if begin < start - _step(rule.window_s) else []
    return alarms or []


def _versions(store: Store, rule: Rule, now_s: int) -> list[Alarm]:
    """A service's version heard of last against the one before it, both within the window."""
    newest: dict[str, dict[str, int]] = defaultdict(dict)
    for p in store.processes().to_pylist():
        if p["version"]:
            newest[p["service"]][p["version"]] = min(p["first_s"], newest[p["service"]].get(p["version"], 1 << 60))
    alarms = list[Alarm]()
    for service, seen in newest.items():
        if len(seen) < 2:
            continue
        before, after = sorted(seen, key=lambda v: seen[v])[-2:]
        sides = [
            Side(now_s - rule.window_s, now_s, (*rule.where, Filter("service", "=", service), Filter("version", "=", v))) for v in (before, after)
        ]
        for alarm in _judged(store, rule, sides[1], [sides[0]], same_hosts=False) or []:
            alarms.append(_with(alarm, (("service", service), ("version", after))))
    return alarms


def _with(alarm: Alarm, more: tuple[tuple[str, str], ...]) -> Alarm:
    from dataclasses import replace

    return replace(alarm, keys=alarm.keys + tuple((k, v) for k, v in more if k not in dict(alarm.keys)))


def _judged(store: Store, rule: Rule, now: Side, baselines: Sequence[Side], same_hosts: bool = True) -> list[Alarm] | None:
    """None if no baseline has any calls. Hosts are looked at only for what takes its share of the time."""
    totals = store.totals(Selection(now.start_s, now.end_s, rule.by, now.where)).to_pylist()
    everything = sum(r["total_ns"] or 0 for r in totals)
    keys = [tuple(r[k] for k in rule.by) for r in totals if r["count"] and r["total_ns"] >= rule.share * everything]
    if not any(any(store.totals(Selection(b.start_s, b.end_s, (), b.where)).column("count").to_pylist()) for b in baselines):
        return None
    if not keys:
        return []
    befores = [by_host(store, b, rule.by, keys) for b in baselines]
    cells = with_steps(store, now, rule.by, by_host(store, now, rule.by, keys), added(befores))
    before = added([with_steps(store, b, rule.by, mine, cells) for b, mine in zip(baselines, befores)])
    tested = [(key, statistics.compare_hosts(before[key], cells[key])) for key in keys if key in before and key in cells]
    alarms = []
    for (key, d), p in zip(tested, statistics.adjusted([d.p_value for _, d in tested])):
        hosts = cells[key]
        if not (p < rule.p_value and d.ratio >= 1 + rule.change):
            continue
        if any(statistics.compare_hosts(b[key], hosts).ratio < 1 + rule.change / 2 for b in befores if key in b):
            continue
        if same_hosts and not _most_hosts_slower(hosts, before[key]):
            continue
        total, count = (sum(cell[i] for found in hosts.values() for cell in found) for i in (0, 1))
        alarms.append(
            Alarm(
                rule.name,
                tuple(zip(rule.by, key)),
                d.ratio,
                d.ratio_low,
                d.ratio_high,
                p,
                total / everything,
                d.a,
                d.b,
                (d.b - d.a) * count,
                _since(store, rule, now, key, d.a),
                (now.start_s, now.end_s),
                len(hosts),
            )
        )
    return alarms


def _mean(cells: Sequence[tuple[float, float]]) -> float:
    count = sum(c for _, c in cells)
    return sum(t for t, _ in cells) / count if count else math.nan


def _most_hosts_slower(now: Hosts, before: Hosts) -> bool:
    both = [host for host in now if host in before]
    return not both or 2 * sum(_mean(now[host]) > _mean(before[host]) for host in both) >= len(both)


def _since(store: Store, rule: Rule, now: Side, key: Key, usual: float) -> int:
    """The step at which the window best falls into one part at the usual mean and one above it; the window's start if it never was usual."""
    among = tuple((name, (value,)) for name, value in zip(rule.by, key))
    rows = store.totals(Selection(now.start_s, now.end_s, (), now.where, _step(rule.window_s), among)).to_pylist()
    rows = sorted((r for r in rows if r["count"]), key=lambda r: r["time"])
    means = np.array([r["total_ns"] / r["count"] for r in rows])
    weights = np.array([float(r["count"]) for r in rows])
    best, least = 0, math.inf
    for i in range(len(rows)):
        after = float((means[i:] * weights[i:]).sum() / weights[i:].sum())
        error = float((weights[:i] * (means[:i] - usual) ** 2).sum() + (weights[i:] * (means[i:] - after) ** 2).sum())
        if after > usual and error < least:
            best, least = i, error
    return int(rows[best]["time"]) if best else now.start_s


@dataclass
class Watch:
    """Rules that the collector looks at again and again; a webhook hears of each alarm once, when it begins.

    Every `every_s`, and more seldom where a look takes more than a twentieth of that time of a core."""

    rules: Sequence[Rule]
    every_s: float = 60.0
    send: Callable[[str, bytes], None] | None = None
    alarms: list[Alarm] = field(default_factory=list)
    _next: float = -math.inf

    def look(self, store: Store, now_s: int) -> None:
        if now_s < self._next:
            return
        self._next = now_s + self.every_s  # also where the look fails
        known, started = {(a.rule, a.keys) for a in self.alarms}, time.thread_time()
        self.alarms = check(store, self.rules, now_s)
        self._next = now_s + max(self.every_s, _REST * (time.thread_time() - started))
        hooks = {r.name: r.webhook for r in self.rules}
        for alarm in self.alarms:
            if (alarm.rule, alarm.keys) not in known:
                _LOG.warning("regression: %s", alarm)
                if hooks.get(alarm.rule):
                    self._post(hooks[alarm.rule], json.dumps(alarm.as_dict() | {"text": str(alarm)}).encode())

    def _post(self, url: str, body: bytes) -> None:
        try:
            (self.send or post)(url, body)
        except OSError as error:
            _LOG.warning("the webhook at %s: %s", urllib.parse.urlsplit(url).netloc.rpartition("@")[2], error)  # its path may be a secret


def checked_webhook(url: str) -> str:
    if url and not (url.startswith(("http://", "https://")) and urllib.parse.urlsplit(url).netloc):
        raise RuleError(f"webhook {url!r}; help: an address that begins with http:// or https://")
    return url


def post(url: str, body: bytes) -> None:
    if not url.startswith(("http://", "https://")):
        raise OSError("a webhook is an http or https address")
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5):
        pass
