"""Time and calls of each host on the two sides of a comparison, as statistics.compare_hosts takes them.

A host's calls are one cell. Only where hosts are few does the comparison need each host's time steps, and only those are asked for: with a thousand
hosts and a hundred operators the steps would be a million rows that are added up at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sealift.fleet.statistics import ENOUGH_HOSTS
from sealift.fleet.store.interface import Filter, Selection, Store

Key = tuple[str, ...]
Hosts = dict[str, list[tuple[float, float]]]  # host -> (total ns, count) of each time step, or one of all
Cells = dict[Key, Hosts]
MOST_NAMED = 200  # values that a question names; beyond it it asks for all


@dataclass(frozen=True)
class Side:
    """One of the two things compared: a time range, and filters that single out a version, say."""

    start_s: int
    end_s: int
    where: tuple[Filter, ...] = ()


def by_host(store: Store, side: Side, by: tuple[str, ...], keys: Sequence[Key] | None = None) -> Cells:
    """One cell for each host. `keys`: only these."""
    return _asked(store, side, by, keys, (), 0)


def with_steps(store: Store, side: Side, by: tuple[str, ...], mine: Cells, others: Cells) -> Cells:
    """`mine` of that side with time steps where comparing it with `others` needs them."""
    wanted = {key: hosts for key in mine if key in others and (hosts := _few(mine[key], others[key]))}
    if not wanted:
        return mine
    step = max(10, (side.end_s - side.start_s) // 12)
    step = step // 10 * 10 if step < 60 else step // 60 * 60
    stepped = _asked(store, side, by, list(wanted), sorted(set().union(*wanted.values())), step)
    found = dict(mine)
    for key, hosts in wanted.items():
        found[key] = mine[key] | {host: stepped[key][host] for host in hosts if host in stepped.get(key, {})}
    return found


def added(parts: Sequence[Cells]) -> Cells:
    """The cells of several sides, of several days say, as of one."""
    found: Cells = defaultdict(lambda: defaultdict(list))
    for part in parts:
        for key, hosts in part.items():
            for host, cells in hosts.items():
                found[key][host] += cells
    return {key: dict(hosts) for key, hosts in found.items()}


def _few(mine: Mapping[str, object], others: Mapping[str, object]) -> set[str]:
    """The hosts whose steps compare_hosts looks at."""
    both = mine.keys() & others.keys()
    return set(mine) if len(mine) < ENOUGH_HOSTS else set(both) if len(both) < ENOUGH_HOSTS else set()


def _asked(store: Store, side: Side, by: tuple[str, ...], keys: Sequence[Key] | None, hosts: Sequence[str], step_s: int) -> Cells:
    among: list[tuple[str, tuple[str, ...]]] = []
    if keys is not None:
        among += [(name, tuple(sorted({key[i] for key in keys}))) for i, name in enumerate(by)]
    if hosts:
        among.append(("host", tuple(hosts)))
    all_keys = (*by, *(("host",) if "host" not in by else ()))
    selection = Selection(side.start_s, side.end_s, all_keys, side.where, step_s, tuple(a for a in among if len(a[1]) <= MOST_NAMED))
    table = store.totals(selection)
    wanted = None if keys is None else set(keys)
    found: Cells = defaultdict(lambda: defaultdict(list))
    named = zip(*(table.column(k).to_pylist() for k in by))
    for key, host, total, count in zip(named, *(table.column(c).to_pylist() for c in ("host", "total_ns", "count"))):
        if wanted is None or key in wanted:
            found[key][host].append((float(total), float(count)))
    return {key: dict(hosts) for key, hosts in found.items()}
