"""Where the time went in the user's terms: a kernel's ATen operators, source lines and module path, and trees of modules or of calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sealift.observe.snapshot import Event, Series, Snapshot

_LINE = re.compile(r"(?P<path>.*?):(?P<line>\d+)(?: (?P<module>.*))?$")


@dataclass(frozen=True)
class Place:
    path: str
    line: int
    module: str = ""


@dataclass(frozen=True)
class Origin:
    """What a sealift kernel stands for."""

    ops: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def module(self) -> str:
        """The module path that all places share; where they share none, the first that has one: a kernel lies in one place of a tree."""
        paths = [p.module.split(".") for p in self.places if p.module]
        if not paths:
            return ""
        shared: list[str] = []
        for parts in zip(*paths):
            if len(set(parts)) > 1:
                break
            shared.append(parts[0])
        return ".".join(shared or paths[0])


def parse_origin(text: str) -> Origin:
    """ "aten.mm, aten.gelu @ model.py:12 encoder.layer.0; model.py:13"; parts that are not there are empty."""
    ops, _, places = text.partition(" @ ")
    found = [_LINE.match(place) for place in places.split("; ") if place]
    return Origin(
        tuple(op for op in ops.split(", ") if op),
        tuple(Place(m["path"], int(m["line"]), m["module"] or "") for m in found if m),
    )


@dataclass
class Frame:
    """A node of a flame graph. total_ns is at least that of the children."""

    name: str
    note: str = ""  # shown when pointed at
    total_ns: int = 0
    children: dict[str, Frame] = field(default_factory=dict)

    def child(self, name: str, note: str = "") -> Frame:
        return self.children.setdefault(name, Frame(name, note))

    def add(self, path: Iterable[tuple[str, str]], ns: int) -> None:
        """Time of a leaf at `path`, (name, note) from here down."""
        frame = self
        frame.total_ns += ns
        for name, note in path:
            frame = frame.child(name, note)
            frame.total_ns += ns


def flame(snapshot: Snapshot) -> Frame:
    """Kernels of sealift's models by module path; PyTorch's operators by who called whom where bursts saw it, else by self time alone."""
    root = Frame("all")
    for one in snapshot.series:
        if one.source == "sealift":
            model = one.model_id or "sealift"
            root.add([(model, "model"), *((part, "module") for part in _modules(one)), (one.operator, one.origin)], one.total_ns)
    torch = [e for e in snapshot.events if e.source != "sealift"]
    if torch:
        calls = call_tree(torch)
        # Bursts see a share of the time: their tree is stretched to the whole that all samples estimate.
        whole = _outermost_ns(snapshot, calls)
        root.child("PyTorch", "operators by caller, from bursts").total_ns += whole
        root.total_ns += whole
        _graft(root.children["PyTorch"], calls, whole / calls.total_ns if calls.total_ns else 0.0)
    else:
        known = [s for s in snapshot.series if s.source != "sealift" and s.self_ns]
        for one in known:
            root.add([("PyTorch", "operators by self time"), (one.operator, one.shapes)], one.self_ns or 0)
    return root


def call_tree(events: Iterable[Event]) -> Frame:
    """Calls that lie inside another call of the same thread are its children."""
    root = Frame("calls")
    by_thread: dict[tuple[int, int], list[Event]] = {}
    for event in events:
        by_thread.setdefault((event.thread, event.step), []).append(event)
    for calls in by_thread.values():
        open_calls: list[tuple[int, Frame]] = []  # (end, frame)
        for event in sorted(calls, key=lambda e: (e.start_unix_ns, -e.dur_ns)):
            while open_calls and open_calls[-1][0] < event.start_unix_ns + event.dur_ns:
                open_calls.pop()
            parent = open_calls[-1][1] if open_calls else root
            frame = parent.child(event.operator, event.shapes)
            frame.total_ns += event.dur_ns
            if parent is root:
                root.total_ns += event.dur_ns
            open_calls.append((event.start_unix_ns + event.dur_ns, frame))
    return root


def _modules(one: Series) -> list[str]:
    module = parse_origin(one.origin).module
    return module.split(".") if module else []


def _outermost_ns(snapshot: Snapshot, calls: Frame) -> int:
    """The estimate of the time that the outermost operators of the tree took: their mean in the bursts times their estimated calls is
    noisy, so the self times of all operators are added up where they are known."""
    known = [s.self_ns for s in snapshot.series if s.source != "sealift" and s.self_ns is not None]
    return max(sum(known), 1) if known else calls.total_ns


def _graft(onto: Frame, tree: Frame, factor: float) -> None:
    for name, frame in tree.children.items():
        copy = onto.child(name, frame.note)
        copy.total_ns += int(frame.total_ns * factor)
        _graft(copy, frame, factor)


def by_line(snapshot: Snapshot) -> Mapping[tuple[str, int], int]:
    """ns of sealift kernels for each of the user's lines, the longest first; a kernel of several lines counts for each in equal parts."""
    out: dict[tuple[str, int], int] = {}
    for one in snapshot.series:
        lines = list(dict.fromkeys((p.path, p.line) for p in parse_origin(one.origin).places))
        for line in lines:
            out[line] = out.get(line, 0) + one.total_ns // len(lines)
    return dict(sorted(out.items(), key=lambda item: (-item[1], item[0])))
