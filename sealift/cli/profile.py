"""Run a program and show which operators it spent its time in: PyTorch's and those of sealift's models, children included.

  sealift profile -- python train.py            a table when it ends
  sealift profile --live -- python train.py     and one that moves meanwhile
  sealift profile --out run/ -- python train.py the data, a trace for ui.perfetto.dev and a flame graph, in a folder
  sealift profile --size batch=8 model.pt2      one package alone, each kernel beside what the machine can do (roofline)
  sealift profile --sink otlp:http://localhost:4318 --sink prometheus:9464 -- torchrun train.py

Nothing in the program changes: the recorder starts with every Python process below the command (SEALIFT_OBSERVE does the same without this
command, for services). Processes are found wherever sealift is installed in the Python that runs them. The program's exit code is kept
(128 + N for signal N), and signals are passed on. Nothing is sent anywhere but to the sinks you name."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sealift.cli.output import Output
from sealift.cli.profile_package import package_of, profile_package, rates_text
from sealift.errors import ArgumentError

if TYPE_CHECKING:
    from sealift.observe.snapshot import Event, Snapshot

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
_POLL_S = 0.1
_FLAME_EVENTS = 200_000  # the flame graph is drawn from; the trace has all
_REPORT_S = 0.5  # how often a process hands over what it recorded: what a SIGKILL can lose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from sealift.cli.arrays import add_input_arguments
    from sealift.observe.autostart_settings import EVERY
    from sealift.observe.sinks.spec import FORMS

    sinks = "; ".join(f"{form}: {text}" for form, text in FORMS.items()).replace("%", "%%")
    parser.usage = "sealift profile [options] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="what to run; FILE.py and -m MODULE are run by this Python")
    parser.add_argument(
        "--every",
        choices=EVERY,
        default="operator",
        help="what is drawn at random: single operators (cheapest; default), bursts of all operators (self time, traces), or whole steps "
        "between sealift.observe.step() calls",
    )
    share: dict[str, Any] = {"type": float, "metavar": "SHARE"}
    parser.add_argument("--sampling", default=1.0, help="probability that a call is recorded (default: 1; in a service: 0.01)", **share)
    parser.add_argument("--duty-cycle", default=1.0, help="share of the time in which the recorder listens (default: 1)", **share)
    parser.add_argument("--budget", default=0.0, help="share of the running time that recording may cost (default: 0, no limit)", **share)
    text = "share of the time in which all operators are recorded besides, for self times and traces (default: 0.1)"
    parser.add_argument("--bursts", default=0.1, help=text, **share)
    parser.add_argument("--shapes", action="store_true", help="tell calls with other input shapes apart")
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY", help="of the debug info: tells series apart besides model_id; may repeat"
    )
    parser.add_argument("--sink", action="append", default=[], metavar="SINK", help=f"where profiles go besides the table, any number. {sinks}")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="write profile.jsonl, summary.json, flame.html and, with bursts, trace.json there")
    parser.add_argument(
        "--live", action="store_true", help="show the table while the program runs (needs rich); its output is printed above, line by line"
    )
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="rows of the table (default: 20)")
    parser.add_argument("--roofline", action="store_true", help="without a program: what this machine computes and moves at best")
    add_input_arguments(parser)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a package alone runs (default: 2)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads that a package alone may use (default: every core)")


def run(arguments: argparse.Namespace, output: Output) -> int:
    from sealift.observe.autostart_settings import Settings
    from sealift.observe.sinks import Exporter, parse_sink
    from sealift.observe.sinks.table import print_table

    program = _words(arguments.program)
    if not program and arguments.roofline:
        return _roofline(output)
    package = package_of(program)
    if package is not None:
        snapshot = profile_package(package, arguments, output)
        if arguments.out is not None:
            _write_files(arguments.out, snapshot, str(package))
        return 0
    program = _program(program)
    if any("," in label or "+" in label or not label for label in arguments.label):
        raise ArgumentError(f"--label {' --label '.join(arguments.label)}; help: one key of debug_info for each, without comma and plus")
    sinks = dict(parse_sink(spec) for spec in (*arguments.sink, *_sinks_of(arguments.out)))
    total: _Total | None = None
    with tempfile.TemporaryDirectory(prefix="sealift-profile-") as folder:
        words = f"every={arguments.every},sampling={arguments.sampling},duty_cycle={arguments.duty_cycle},budget={arguments.budget}"
        words += f",bursts={arguments.bursts},shapes={int(arguments.shapes)},interval={_REPORT_S}"
        settings = replace(Settings.parse(words), labels=tuple(arguments.label), sinks=(f"json:{folder}/{{id}}.jsonl",))
        exporter = Exporter(None, sinks).start()
        spool, total = _Spool(Path(folder)), _Total()
        environ = {**os.environ, "SEALIFT_OBSERVE": str(settings)}
        with _running(program, environ, arguments.live, output) as child, _table_below(child, total, arguments.limit, output):
            while child.process.poll() is None:
                time.sleep(_POLL_S)
                _pass_on(spool, total, exporter)
        _pass_on(spool, total, exporter)
        statuses = exporter.close(10.0)
    code = child.process.returncode
    code = code if code >= 0 else 128 - code
    if total.snapshot is not None and arguments.out is not None:
        try:
            _write_files(arguments.out, replace(total.snapshot, events=tuple(total.events)), " ".join(program))
        except OSError as error:  # the program ran, and its exit code is what counts
            output.note(f"sealift profile: {arguments.out} is not complete: {error}")
    if output.as_json:
        processes = [{**vars(p), "samples": n} for p, n in total.processes.values()]
        summary = total.snapshot.to_dict() if total.snapshot is not None else None
        output.result({"exit_code": code, "processes": processes, "profile": summary, "sinks": [vars(s) for s in statuses]}, "")
        return code
    if total.snapshot is None:
        output.note(
            "sealift profile: no process reported. It ended at once or by os._exit, or no Python below it has sealift installed "
            "(`sealift doctor` there tells); programs in C++ link Sealift::torch_observe"
        )
    else:
        print_table(total.snapshot, output.err, arguments.limit, len(total.processes))
    for status in statuses:
        output.note(str(status))
    return code


def _words(given: Sequence[str]) -> list[str]:
    return [*given[1:]] if given[:1] == ["--"] else [*given]


def _program(words: list[str]) -> list[str]:
    if not words:
        raise ArgumentError("no program; help: sealift profile -- python train.py")
    if package_of(words[:1]) is not None:
        raise ArgumentError(f"{words[1]!r} is behind the package; help: options come before the package: sealift profile {words[1]} ... {words[0]}")
    return [sys.executable, *words] if words[0].endswith(".py") or words[0] in ("-m", "-c") else words


def _roofline(output: Output) -> int:
    from sealift.observe.attribution_rates import measure_peak

    num_threads = len(os.sched_getaffinity(0))
    with output.progress("measuring what the machine can do"):
        peak = measure_peak(num_threads)
    output.result({"threads": num_threads, "peak": vars(peak)}, rates_text([], peak, f"{num_threads} threads"))
    return 0


def _sinks_of(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("profile.jsonl", "trace.json"):  # of an earlier run
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise ArgumentError(f"--out {folder}: {error.strerror or error}; help: a folder that can be written") from error
    return [f"json:{folder}/profile.jsonl", f"chrome:{folder}/trace.json"]


def _write_files(folder: Path, snapshot: Snapshot, title: str) -> None:
    import json

    from sealift.observe.attribution import flame
    from sealift.observe.attribution_flame import flame_html

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(replace(snapshot, events=()).to_dict(), indent=1))
    (folder / "flame.html").write_text(flame_html(flame(snapshot), title))


# ---- what the processes report ---------------------------------------------------------------------------------------------------


class _Spool:
    """The folder in which every process appends what it recorded to a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}  # bytes of each file that are taken

    def new(self) -> Iterator[Snapshot]:
        from sealift.observe.sinks.json_lines import parse_lines

        for path in sorted(self._folder.glob("*.jsonl")):
            at = self._read.get(path, 0)
            with open(path, "rb") as file:
                file.seek(at)
                text = file.read()
            whole = text.rfind(b"\n") + 1
            self._read[path] = at + whole
            yield from parse_lines(text[:whole])


class _Total:
    """Everything so far. The live table's thread reads `snapshot`, which is replaced, never changed."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.processes: dict[str, tuple[Any, int]] = {}  # start id -> (process, samples)
        self.events: list[Event] = []  # of bursts, the first ones

    def add(self, delta: Snapshot) -> None:
        samples = sum(s.samples for s in delta.series)
        if samples:
            before = self.processes.get(delta.process.start_id, (None, 0))[1]
            self.processes[delta.process.start_id] = (delta.process, before + samples)
        self.events += delta.events[: max(0, _FLAME_EVENTS - len(self.events))]
        kept = replace(delta, events=())
        self.snapshot = kept if self.snapshot is None else self.snapshot.merge(kept)


def _pass_on(spool: _Spool, total: _Total, exporter: Any) -> None:
    for delta in spool.new():
        total.add(delta)
        exporter.put(delta)


# ---- the program -----------------------------------------------------------------------------------------------------------------


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], terminal: int | None) -> None:
        self.process = process
        self.terminal = terminal  # our end of the terminal that a --live program writes to


@contextmanager
def _running(program: Sequence[str], environ: Mapping[str, str], live: bool, output: Output) -> Iterator[_Child]:
    """Starts it and passes signals on while it runs. With --json its stdout is our stderr: ours is the result's alone."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before there was a program

    def forward(number: int, frame: object) -> None:
        if number == signal.SIGINT and _shares_terminal():
            return  # Ctrl-C reached it, too
        if process is None:
            early.append(number)
        elif process.poll() is None:
            process.send_signal(number)

    ours, theirs = os.openpty() if live and _can_show(output) else (None, None)
    stdout = theirs if theirs is not None else output.err.fileno() if output.as_json else None
    before = {number: signal.signal(number, forward) for number in _FORWARDED} if threading.current_thread() is threading.main_thread() else {}
    try:
        try:
            process = subprocess.Popen(program, env=environ, stdout=stdout, stderr=theirs)
        except OSError as error:
            raise ArgumentError(f"cannot run {program[0]!r}: {error.strerror or error}; help: sealift profile -- python train.py") from error
        finally:
            if theirs is not None:
                os.close(theirs)
        for number in early:
            process.send_signal(number)
        try:
            yield _Child(process, ours)
        finally:
            process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shares_terminal() -> bool:
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


# ---- the live table --------------------------------------------------------------------------------------------------------------


def _can_show(output: Output) -> bool:
    if output.as_json or not output.err.isatty():
        return False
    try:
        import rich.live  # noqa: F401
    except ImportError:
        raise ArgumentError("--live needs rich; help: pip install 'sealift[observe]'") from None
    return True


@contextmanager
def _table_below(child: _Child, total: _Total, limit: int, output: Output) -> Iterator[None]:
    """What the program prints, and below it the table, until the program has closed its terminal."""
    if child.terminal is None:
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from sealift.observe.sinks.table import rich_table, table_rows

    console = Console(file=output.err)

    def table() -> Any:
        now = total.snapshot
        rows = min(limit, max(3, console.height - 8))
        return Text("waiting for the first operators") if now is None else rich_table(table_rows(now, rows, len(total.processes)), console.width)

    terminal = child.terminal
    with Live(get_renderable=table, console=console, refresh_per_second=4, transient=True) as live:

        def copy() -> None:
            rest = b""
            while True:
                try:
                    data = os.read(terminal, 65536)
                except OSError:  # EIO: the last writer is gone
                    data = b""
                *lines, rest = (rest + data).split(b"\n")
                if not data and rest:
                    lines.append(rest)
                for line in lines:
                    live.console.print(Text.from_ansi(line.rstrip(b"\r").decode(errors="replace")), soft_wrap=True)
                if not data:
                    return

        reader = threading.Thread(target=copy, daemon=True)
        reader.start()
        try:
            yield
        finally:
            reader.join(2)  # a grandchild may hold the terminal open
            os.close(terminal)
