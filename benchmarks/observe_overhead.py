"""What observing costs, by one command: ns per operator at each sampling probability, and whole models at the default settings.

    python benchmarks/observe_overhead.py --write docs/observe-overhead.md        (about five minutes)

Single operators: median of paired differences, watched and unwatched in turn. Whole models: such pairs on a shared machine are noisier than
what is to be seen, so the page gives both: the pairs with their 95 % interval, and the recorder's own account (events counted, times what each
was measured to cost here)."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import torch  # noqa: E402

import sealift  # noqa: E402
from sealift import observe  # noqa: E402

WHOLE: dict[str, Any] = {"duty_cycle": 1, "budget": 0, "burst_duty_cycle": 0}
PROBABILITIES = (0.001, 0.01, 0.1, 1.0)

RECORD_POINT = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* kernels/loops/loops.h: what a kernel does where nobody listens. */
struct frame { int64_t countdown; };
static int64_t slow(struct frame *f) { f->countdown = INT64_MAX; return 0; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(void) {
  struct frame *f = malloc(sizeof *f); /* not on the stack, where newer cores forward stores for nothing */
  f->countdown = INT64_MAX;
  volatile struct frame *hidden = f;
  enum { N = 20000000 };
  double best_with = 1e9, best_without = 1e9;
  for (int round = 0; round < 7; ++round) {
    double begin = now();
    for (int i = 0; i < N; ++i) { __asm__ volatile("" ::: "memory"); }
    double without = (now() - begin) / N;
    begin = now();
    for (int i = 0; i < N; ++i) { if (__builtin_expect(--hidden->countdown == 0, 0)) slow(f); __asm__ volatile("" ::: "memory"); }
    double with = (now() - begin) / N;
    if (with < best_with) best_with = with;
    if (without < best_without) best_without = without;
  }
  printf("%.3f\n", best_with - best_without);
  return 0;
}
"""


@dataclass(frozen=True)
class Difference:
    """Medians over the pairs, in ns or as shares; `low` and `high` bound the median with 95 % (order statistics)."""

    base: float
    median: float
    low: float
    high: float


def paired(base: Callable[[], float], watched: Callable[[], float], rounds: int, relative: bool = False) -> Difference:
    differences, bases = [], []
    for i in range(rounds):
        first, second = (base, watched) if i % 2 == 0 else (watched, base)
        a, b = first(), second()
        before, after = (a, b) if i % 2 == 0 else (b, a)
        bases.append(before)
        differences.append(after / before - 1 if relative else after - before)
    differences.sort()
    half = int(0.98 * rounds**0.5)
    middle = rounds // 2
    return Difference(statistics.median(bases), differences[middle], differences[max(0, middle - half)], differences[min(rounds - 1, middle + half)])


def recording(options: dict[str, Any], body: Callable[[], float], warm: int = 1) -> Callable[[], float]:
    """warm: how often it runs before it counts. A series' first event takes memory, once in a process that records for months."""

    def run() -> float:
        observe.start(**options)
        try:
            for _ in range(warm):
                body()
            return body()
        finally:
            observe.stop()

    return run


def operators(rounds: int) -> list[tuple[str, Difference]]:
    library = observe.install_torch()

    def adds() -> float:
        return float(library.sealift_torch_bridge_time_adds(20_000))

    adds()
    rows = [("0 (bridge loaded, nobody listens)", paired(adds, adds, rounds))]
    for p in PROBABILITIES:
        rows.append((f"{p}", paired(adds, recording(WHOLE | {"sampling_prob": p}, adds), rounds)))
        rows.append((f"{p}, with shapes", paired(adds, recording(WHOLE | {"sampling_prob": p, "needs_inputs": True}, adds), rounds)))
    return rows


def python_callbacks(rounds: int) -> list[tuple[str, Difference]]:
    library = observe.install_torch()

    def adds() -> float:
        return float(library.sealift_torch_bridge_time_adds(5_000))

    def called(p: float) -> Callable[[], float]:
        def run() -> float:
            with observe.add_global_callback(lambda r: None, sampling_prob=p):
                return adds()

        return run

    return [(f"{p}", paired(adds, called(p), rounds)) for p in (0.001, 0.01)]


class Chain(torch.nn.Module):
    """Kernels that do next to nothing, which nothing fuses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.cumsum(x, 0)
        return x


def kernels(rounds: int, folder: Path) -> tuple[int, list[tuple[str, Difference]]]:
    x = torch.randn(2)
    model = sealift.load(sealift.compile(Chain(), folder / "chain.pt2", args=(x,)), num_threads=1)
    count, context, out = len(model.kernels), model.context(), torch.empty(2)

    def run() -> float:
        begin = time.thread_time_ns()
        for _ in range(300):
            context(x, out=out)
        return (time.thread_time_ns() - begin) / 300 / count

    run()
    rows = []
    for p in PROBABILITIES:
        options = WHOLE | {"sampling_prob": p, "scopes": ["kernel"]}
        rows.append((f"{p}", paired(run, recording(options, run, 10 if p < 0.01 else 2), rounds)))
    return count, rows


@dataclass(frozen=True)
class WholeModel:
    name: str
    step_ms: float
    pairs: Difference  # shares
    own_account: float  # share
    samples: int
    worst_errors: tuple[float, float] | None  # of mean and median, among the ten operators that take longest, against the truth


def whole(name: str, step: Callable[[], object], seconds: float, rounds: int, check_truth: bool) -> WholeModel:
    step()

    def once() -> float:
        begin = time.thread_time_ns()
        until, steps = time.monotonic() + 1.0, 0
        while time.monotonic() < until:
            step()
            steps += 1
        return (time.thread_time_ns() - begin) / steps

    base = once()
    pairs = paired(once, recording({}, once), rounds, relative=True)
    observe.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        step()
    snapshot = observe.stop()
    worst = None
    if check_truth:  # right after: the machine's speed changes while others use it
        observe.start(sampling_prob=1, **WHOLE)
        until = time.monotonic() + seconds / 2
        while time.monotonic() < until:
            step()
        truth = [s for s in observe.stop().series if s.count > 10][:10]
        found = {s.key: s for s in snapshot.series}
        seen = [(found[s.key], s) for s in truth if s.key in found and found[s.key].samples]
        if len(seen) == len(truth):
            worst = (
                max(abs(f.mean_ns / t.mean_ns - 1) for f, t in seen),
                max(abs(f.histogram.quantile(0.5) / t.histogram.quantile(0.5) - 1) for f, t in seen),
            )
    return WholeModel(name, base / 1e6, pairs, snapshot.sampling.overhead, sum(s.samples for s in snapshot.series), worst)


def models(seconds: float, rounds: int, folder: Path) -> list[WholeModel]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    from minilm import Embedder, minilm, weights_folder

    embedder = Embedder(weights_folder()).eval()
    ids, mask = torch.randint(0, 30000, (8, 32)), torch.ones(8, 32, dtype=torch.int64)

    def infer() -> object:
        with torch.inference_mode():
            return embedder(ids, mask)

    rows.append(whole("MiniLM inference in PyTorch, batch 8 x 32, one thread", infer, seconds, rounds, True))
    package = sealift.load(sealift.compile(minilm(), folder / "minilm.pt2"), num_threads=1)
    rows.append(whole("MiniLM inference in sealift, the same", lambda: package(ids, mask), seconds, rounds, True))

    net = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(net.parameters())
    inputs, labels = torch.randn(64, 128), torch.randint(0, 10, (64,))

    def train() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    rows.append(whole("training a small network (6 layers, Adam, batch 64), one thread", train, seconds, rounds, False))
    return rows


def record_point_ns(folder: Path) -> float:
    (folder / "point.c").write_text(RECORD_POINT)
    subprocess.run(["gcc", "-O2", str(folder / "point.c"), "-o", str(folder / "point")], check=True)
    return float(subprocess.run([str(folder / "point")], capture_output=True, text=True, check=True).stdout)


def operator_table(rows: list[tuple[str, Difference]]) -> list[str]:
    lines = ["| p | ns per operator | 95 % interval |", "|---|---|---|"]
    return lines + [f"| {name} | {d.median:+.1f} | {d.low:+.1f} to {d.high:+.1f} |" for name, d in rows]


def page(rounds: int, seconds: float, whole_rounds: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        eager, called = operators(rounds), python_callbacks(max(11, rounds // 3))
        point = record_point_ns(folder)
        count, compiled = kernels(rounds, folder)
        rows = models(seconds, whole_rounds, folder)
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), platform.machine()
    )
    lines = [
        "# What observing costs",
        "",
        f"Made by `python benchmarks/observe_overhead.py --write docs/observe-overhead.md`: {cpu}, {os.cpu_count()} cores, torch {torch.__version__},",
        f"load average {os.getloadavg()[0]:.1f} while it ran. Differences are medians over pairs that took turns ({rounds} for operators).",
        "",
        "## An operator of eager PyTorch",
        f"`add_out` of one element from C++ takes {eager[0][1].base:.0f} ns of processor time here. The recorder, always on (no windows), adds:",
        "",
        *operator_table(eager),
        "",
        "A Python callback that does nothing, around the same operator:",
        "",
        *operator_table(called),
        "",
        "## A kernel of sealift",
        f"The record point of a kernel that nobody listens to: {max(point, 0):.2f} ns (a decrement and a branch that is not taken, in a loop of its own).",
        f"{count} kernels of two elements in a row, {compiled[0][1].base:.0f} ns each; the recorder adds:",
        "",
        *operator_table(compiled),
        "",
        "## Whole models at the default settings",
        "`observe.start()`: windows that take a tenth of the time at most, as many of their operators as the budget of 0.3 % allows, bursts for self time.",
        "",
        "| | step | pairs: median (95 % interval) | own account | samples | top ten, worst error: mean | median |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        error = " | " if row.worst_errors is None else f"{row.worst_errors[0]:.1%} | {row.worst_errors[1]:.1%}"
        lines.append(
            f"| {row.name} | {row.step_ms:.2f} ms | {row.pairs.median:+.2%} ({row.pairs.low:+.2%} to {row.pairs.high:+.2%}) | {row.own_account:.3%} | {row.samples} | {error} |"
        )
    lines += [
        "",
        "*Own account*: the events that were counted, times what each was measured to cost on this machine (a loop over the hooks, times 4 for cold",
        "caches), as a share of running time; it is what the budget is kept by. *Samples* and *errors* are of "
        f"{seconds:.0f} s; the truth was recorded whole right after. Times are wall time: on a machine whose",
        "cores are shared, means move with what others do; medians do not.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--rounds", type=int, default=61, help="pairs for each operator row")
    parser.add_argument("--seconds", type=float, default=60, help="of recording each whole model")
    parser.add_argument("--whole-rounds", type=int, default=21, help="pairs of a second for each whole model")
    arguments = parser.parse_args()
    text = page(arguments.rounds, arguments.seconds, arguments.whole_rounds)
    print(text)
    if arguments.write:
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()
