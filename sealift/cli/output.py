"""What the verbs share: where they print, JSON or text, progress on long work, and how an error ends the process."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True)
class Output:
    as_json: bool = False
    out: TextIO = sys.stdout
    err: TextIO = sys.stderr

    def result(self, value: dict[str, Any], text: str) -> None:
        """The verb's answer: one JSON object, or text for people."""
        print(json.dumps(value, indent=2, default=str) if self.as_json else text, file=self.out, flush=True)

    def note(self, text: str) -> None:
        print(text, file=self.err, flush=True)

    @contextmanager
    def progress(self, text: str) -> Iterator[None]:
        """Shows on a terminal that work goes on and for how long: with rich's spinner where rich is installed."""
        if self.as_json or not self.err.isatty():
            yield
            return
        try:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
        except ImportError:
            with _plain_progress(text, self.err):
                yield
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=Console(file=self.err), transient=True) as progress:
            progress.add_task(text, total=None)
            yield


@contextmanager
def _plain_progress(text: str, stream: TextIO) -> Iterator[None]:
    done, start = threading.Event(), time.monotonic()

    def show() -> None:
        while not done.wait(0.5):
            stream.write(f"\r{text} {time.monotonic() - start:.0f} s ")
            stream.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        stream.write("\r\033[K")
        stream.flush()


def table(rows: Sequence[Sequence[Any]], indent: str = "  ") -> str:
    """Columns aligned on the left; numbers are given as text."""
    texts = [[str(c) for c in row] for row in rows]
    widths = [max(len(row[i]) for row in texts) for i in range(len(texts[0]))] if texts else []
    return "\n".join((indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip() for row in texts)


def size_text(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def duration_text(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
