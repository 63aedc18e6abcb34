"""Snapshots made by hand."""

from __future__ import annotations

from sealift.observe.snapshot import Event, Histogram, ModelEvent, ModelInfo, Process, Sampling, Series, Snapshot

PROCESS = Process(4711, "host-a", "5e0a7c52-0000-4000-8000-000000000001")
START = 1_790_000_000_000_000_000


def series(operator: str, durations: list[int], weight: int = 1, **more: object) -> Series:
    histogram = Histogram.of(durations, weight)
    return Series(operator, count=weight * len(durations), samples=len(durations), total_ns=weight * sum(durations), histogram=histogram, **more)  # type: ignore[arg-type]


def delta(number: int = 0, process: Process = PROCESS, events: int = 2) -> Snapshot:
    """One interval's: an operator of torch, sampled, and a kernel of a sealift model."""
    start = START + number * 1_000_000_000
    return Snapshot(
        start,
        start + 1_000_000_000,
        (
            series("aten::mm", [900, 1000, 1100, 5000], 100, labels=(("tenant", 'a"b\\c\nd'),), shapes="[8, 8] [8, 8]"),
            series(
                "k7_mm_gelu",
                [0, 4096, 4097],
                source="sealift",
                scope="kernel",
                model_id="ranker:7",
                origin="aten.mm @ model.py:12 enc.0",
                self_ns=8193,
            ),
        ),
        overflow=3,
        dropped=1,
        sampling=Sampling(0.01, 0.5, 0.002),
        process=process,
        api_usage={"torch.save": start + 5} if number == 0 else {},
        models={"ranker:7": ModelInfo("ranker", "7", "sha256:ab")},
        model_events=(ModelEvent("loaded", start + 7, "ranker:7", "sha256:ab", "sid", "m.pt2", "sealift", "ci", True),) if number == 0 else (),
        events=tuple(Event("aten::mm", "torch", "function", start + 1000 * i, 999, 11 + i % 2, number, shapes="[8, 8]") for i in range(events)),
    )
