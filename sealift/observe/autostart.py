"""Starts the recorder in any Python process whose environment has SEALIFT_OBSERVE, with no change to its code.

site-packages/sealift_observe.pth calls main() while the interpreter starts; without the variable it imports nothing. Whatever goes wrong
here is one line on stderr: the program runs on, unobserved."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sealift.observe.autostart_settings import OFF, Settings
from sealift.observe.sinks.exporter import Exporter

_exporter: Exporter | None = None  # of this process; kept so that it lives as long as the process
_tried = False


def main() -> None:
    """Once: in a virtual environment site reads every .pth file twice."""
    global _tried
    if _tried:
        return
    _tried = True
    try:
        start(os.environ)
    except Exception as error:
        print(f"sealift: this process is not observed: {error}", file=sys.stderr)


def start(environ: Mapping[str, str]) -> Exporter | None:
    """None where the variable is off, and in multiprocessing's own helper process. Errors: SinkSpecError; what the recorder raises."""
    global _exporter
    text = environ.get("SEALIFT_OBSERVE", "")
    if text in OFF or _exporter is not None or any("multiprocessing.resource_tracker" in a for a in getattr(sys, "orig_argv", ())):
        return None
    settings = Settings.parse(text)
    settings = replace(settings, sinks=tuple(_from_here(_of_one_process(spec)) for spec in settings.sinks))
    factories = settings.factories()
    from sealift import observe
    from sealift.observe.recorder import hold

    observe.start(**recorder_options(settings))
    hold()
    _exporter = Exporter(observe.snapshot, factories, settings.interval_s).start()
    return _exporter


def recorder_options(settings: Settings) -> dict[str, Any]:
    """observe.start's arguments."""
    named = {"sampling_prob": settings.sampling, "duty_cycle": settings.duty_cycle, "budget": settings.budget, "burst_duty_cycle": settings.bursts}
    return {"every": settings.every, "needs_inputs": settings.shapes, "labels": settings.labels} | {
        name: value for name, value in named.items() if value is not None
    }


def _from_here(spec: str) -> str:
    """A program may change its folder before a sink writes for the first time: places are those of its start."""
    kind, _, place = spec.partition(":")
    if kind not in ("json", "chrome", "parquet") or os.path.isabs(place):
        return spec
    return f"{kind}:{os.path.abspath(place)}"


def _of_one_process(spec: str) -> str:
    """Children inherit the variable, and a trace belongs to one process: without {pid} or {id} its name gets the process's number."""
    if not spec.startswith("chrome:") or "{pid}" in spec or "{id}" in spec:
        return spec
    root, dot, suffix = spec.rpartition(".")
    return f"{root}.{{pid}}.{suffix}" if dot and "/" not in suffix else f"{spec}.{{pid}}"
