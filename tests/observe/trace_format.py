"""What ui.perfetto.dev and chrome://tracing need of a trace, by the "Trace Event Format" (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def checked_trace(data: bytes) -> list[dict[str, Any]]:
    """The complete events of a trace in the object form; asserts that every event is as the format says and that a thread's events nest."""
    trace = json.loads(data, parse_float=Decimal)
    assert set(trace) <= {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = trace["traceEvents"]
    named, complete = set(), []
    for event in events:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event.get("args", {}), dict)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and isinstance(event["args"]["name"], str)
            named.add((event["name"], event["tid"]))
        else:
            assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0 and isinstance(event["cat"], str)
            complete.append(event)
    assert ("process_name", 0) in named
    for thread in {e["tid"] for e in complete}:
        assert ("thread_name", thread) in named or thread not in {t for _, t in named}
        open_until: list[Decimal] = []
        for event in sorted((e for e in complete if e["tid"] == thread), key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or event["ts"] + event["dur"] <= open_until[-1], event  # inside, or after
            open_until.append(event["ts"] + event["dur"])
    return complete
