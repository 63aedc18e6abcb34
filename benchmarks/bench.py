"""`make bench`: sealift beside its peers, in one run that can be interrupted and taken up again.

Compilation: in a process of its own with empty caches, from the exported program to what is shipped; import and export are excluded.
Calls: one process per engine and number of threads, all alive at once and asked in turn for a round; the median over rounds of each round's median.
Cold start: from the start of a Python process to its first answer, every core, page cache warm, interleaved, medians. Memory: the peak of a process that serves on one thread.
Error: max|y - y64| over what is allowed, 2 max|eager - y64| + 1e-6 max|y64|, with y64 the model in float64; at most 1 is as good as eager.
An engine that cannot take the model's dynamic sizes, or answers in the example's, gets it with the measured sizes fixed, and a note. One that cannot
make or run it at all stands in the table with its reason; `wrong`: its answer has another shape than eager's.

    python benchmarks/bench.py [--quick] [--models mlp,bert_base] [--engines sealift,aoti] [--rounds N] [--budget MINUTES] [--fresh]
                               [--work build/bench] [--write docs/performance.md]"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from bench_engines import ENGINES  # noqa: E402
from bench_models import measured_cases  # noqa: E402

THREADS = (1, 2)
CHILD = ROOT / "benchmarks/bench_child.py"
PEERS = ROOT / "build/peers"
TIMEOUT_S = 1800  # of one compilation: a peer that takes longer is reported so


@dataclass(frozen=True)
class Effort:
    """How much is measured. Compilations are of sealift and, for README's models, of AOTInductor; other peers, which take up to a hundred times as
    long, compile once."""

    compiles: int
    rounds: int
    round_s: float
    cold_starts: int


FULL, QUICK = Effort(5, 9, 1.0, 5), Effort(1, 3, 0.3, 2)
IN_README = frozenset({"mlp", "minilm", "bert_base"})


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the peers' environment -----------------------------------------------------------------------------------------------------


def make_peers() -> Path:
    """A virtual environment with the peers, which sees the project's packages. Made once, anew when peers.txt changes."""
    python, stamp, wanted = PEERS / "bin/python", PEERS / "installed.txt", (ROOT / "benchmarks/peers.txt").read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"installing the peers into {PEERS}")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
    (site_packages,) = PEERS.glob("lib/python3*/site-packages")
    (here,) = {p for p in sys.path if p.endswith("site-packages") and Path(p).is_relative_to(Path(sys.prefix))}
    (site_packages / "project.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    for line in wanted.splitlines():  # one by one: a peer that does not install is missing, not all of them
        if line and not line.startswith("#"):
            done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", line])
            if done.returncode:
                say(f"{line} does not install; what needs it will be reported")
    stamp.write_text(wanted)
    return python


# ---- children -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bench:
    work: Path
    peers: Path
    effort: Effort
    engines: tuple[str, ...]

    def command(self, kind: str, engine: str, *arguments: Any) -> list[str]:
        python = str(self.peers) if engine and ENGINES[engine].in_peers else sys.executable
        return [python, str(CHILD), kind, *([engine] if engine else []), *map(str, arguments)]

    def directory(self, model: str) -> Path:
        return self.work / model

    def target(self, model: str, engine: str) -> Path:
        return self.directory(model) / f"{engine}{ENGINES[engine].suffix}"


def environ(**more: str) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **quiet, **more}


class Failed(Exception):
    """A child that did not do its work; the text is for the table."""


def run_child(command: Sequence[str], env: dict[str, str], log: Path) -> dict[str, Any]:
    with log.open("wb") as errors:
        try:
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=errors, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {TIMEOUT_S // 60} minutes") from None
    if done.returncode:
        raise Failed(reason_in(log, done.returncode))
    return dict(json.loads(done.stdout.decode().strip().splitlines()[-1]))


def reason_in(log: Path, status: int) -> str:
    """The exception's own line, as Python prints it last."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace"))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    named = [
        line
        for line in lines
        if line.partition(":")[0].replace(".", "").isidentifier() and line.partition(":")[0].endswith(("Error", "Exception", "Unsupported"))
    ]
    text = (named or lines or [f"exit status {status}"])[-1]
    return text[:200] if status > 0 else f"killed by signal {-status}: {text[:160]}"


def prepare(bench: Bench, model: str, engine: str) -> dict[str, Any]:
    """What is shipped, compiled with empty caches; of the program with fixed sizes where dynamic ones fail or are taken for the example's. Error: Failed."""
    if engine == "sealift" or not ENGINES[engine].suffix or not (bench.directory(model) / "fixed.pt2").exists():
        return prepare_from(bench, model, engine, "program.pt2")
    try:
        made = prepare_from(bench, model, engine, "program.pt2")
        with serving(bench, model, engine, 1):
            wrong = error_of(bench.directory(model), engine).get("error_note")
        if not wrong:
            return made
    except Failed as failure:
        wrong = str(failure)
    return {**prepare_from(bench, model, engine, "fixed.pt2"), "fixed_sizes": wrong}


def prepare_from(bench: Bench, model: str, engine: str, program: str) -> dict[str, Any]:
    target = bench.target(model, engine)
    samples: list[float] = []
    is_repeated = engine == "sealift" or (engine == "aoti" and model in IN_README)
    for _ in range(bench.effort.compiles if is_repeated else 1):
        with tempfile.TemporaryDirectory(prefix="bench_cache_") as cache:
            env = environ(XDG_CACHE_HOME=cache, TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor", TRITON_CACHE_DIR=f"{cache}/triton")
            log = bench.directory(model) / f"{engine}.log"
            samples.append(run_child(bench.command("prepare", engine, bench.directory(model), program, target), env, log)["seconds"])
    if not ENGINES[engine].suffix:
        return {}
    parts = [target, target.with_suffix(".bin")] if target.suffix == ".xml" else [target]
    return {"compile_s": samples, "bytes": sum(p.stat().st_size for p in parts)}


@contextlib.contextmanager
def serving(bench: Bench, model: str, engine: str, threads: int) -> Any:
    answers, log = bench.directory(model) / f"{engine}_answers.npz", bench.directory(model) / f"{engine}.log"
    command = bench.command("serve", engine, bench.directory(model), bench.target(model, engine), threads, answers)
    env = environ(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdin is not None and server.stdout is not None
        ready = _json_line(server)
        if ready is None:
            raise Failed(reason_in(log, server.wait() or 1))
        yield server, ready["rss_kb"]
        server.stdin.close()


def _json_line(server: Any) -> dict[str, Any] | None:
    """The next line that is JSON: libraries may print what they like before it."""
    for line in server.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    return None


def measure_calls(bench: Bench, model: str, engines: Sequence[str], results: dict[str, dict[str, Any]]) -> None:
    for threads in THREADS:
        with contextlib.ExitStack() as stack:
            servers: dict[str, Any] = {}
            for engine in engines:
                if "failed" in results[engine]:
                    continue
                try:
                    servers[engine], rss_kb = stack.enter_context(serving(bench, model, engine, threads))
                except Failed as failure:
                    results[engine]["failed"] = str(failure)
                    continue
                if threads == 1:
                    results[engine]["rss_mb"] = rss_kb / 1024
                    results[engine].update(error_of(bench.directory(model), engine))
            rounds: dict[str, list[float]] = {engine: [] for engine in servers}
            for i in range(bench.effort.rounds):
                for engine in list(servers) if i % 2 == 0 else list(servers)[::-1]:
                    print(bench.effort.round_s, file=servers[engine].stdin, flush=True)
                    answer = _json_line(servers[engine])
                    if answer is not None:
                        rounds[engine].append(answer["median_s"])
            for engine, samples in rounds.items():
                if samples:
                    results[engine].setdefault("calls", {})[str(threads)] = samples
        say(f"  {threads} threads: " + ", ".join(f"{e} {statistics.median(s) * 1e3:.3f} ms" for e, s in rounds.items() if s))


def error_of(directory: Path, engine: str) -> dict[str, Any]:
    """The worst output's error, over what is allowed."""
    import numpy as np

    def read(name: str) -> list[Any]:
        with np.load(directory / f"{name}.npz") as stored:
            return [stored[str(i)] for i in range(len(stored.files))]

    got, eager, exact = read(f"{engine}_answers"), read("eager"), read("exact")
    if len(got) < len(exact):
        return {"error_note": f"{len(got)} outputs, eager has {len(exact)}"}
    worst = {"error_ratio": 0.0, "error": 0.0}
    for y, e, x in zip(got, eager, exact):  # a peer may give back its state behind the outputs
        if y.shape != e.shape:
            return {"error_note": f"shape {list(y.shape)}, eager has {list(e.shape)}"}
        if not x.size or not np.issubdtype(x.dtype, np.inexact):
            continue
        bound = 2 * np.abs(e - x).max() + 1e-6 * np.abs(x).max()
        error = float(np.abs(y - x).max())
        ratio = error / bound if bound > 0 else 0.0 if error == 0 else float("inf")
        worst = max(worst, {"error_ratio": ratio, "error": error}, key=lambda w: w["error_ratio"])
    return worst


def measure_cold_starts(bench: Bench, model: str, engines: Sequence[str], results: dict[str, dict[str, Any]]) -> None:
    able = [e for e in engines if "failed" not in results[e]]
    for i in range(bench.effort.cold_starts + 1):
        for engine in able:
            command = bench.command("first", engine, bench.directory(model), bench.target(model, engine))
            start = time.perf_counter()
            with subprocess.Popen(command, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
                assert process.stdout is not None
                answered = any(line.startswith("answered") for line in process.stdout)
                took = time.perf_counter() - start
            if answered and i:  # the first warms the page cache
                results[engine].setdefault("first_s", []).append(took)


def measure_model(bench: Bench, model: str, kept: dict[str, Any]) -> dict[str, Any]:
    """Every engine that is asked for; what `kept` has of others stays."""
    bench.directory(model).mkdir(parents=True, exist_ok=True)
    began = datetime.now().isoformat(timespec="seconds")
    entry: dict[str, Any] = {"engines": dict(kept.get("engines", {})), "date": began[:10]}
    try:
        entry.update(run_child(bench.command("export", "", model, bench.directory(model)), environ(), bench.directory(model) / "export.log"))
    except Failed as failure:
        return {**entry, "failed": str(failure)}
    results: dict[str, dict[str, Any]] = {}
    for engine in bench.engines:
        results[engine] = {}
        try:
            results[engine] = prepare(bench, model, engine)
        except Failed as failure:
            results[engine]["failed"] = str(failure)
        seconds = results[engine].get("compile_s")
        say(f"  {engine}: " + (f"{statistics.median(seconds):.2f} s" if seconds else results[engine].get("failed", "nothing to compile")))
    measure_calls(bench, model, bench.engines, results)
    measure_cold_starts(bench, model, bench.engines, results)
    entry["engines"].update({engine: {**found, "began": began} for engine, found in results.items()})
    return entry


# ---- from C ---------------------------------------------------------------------------------------------------------------------


def wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure_c(package: Path, theirs_package: Path, scratch: Path, rounds: int) -> dict[str, float]:
    """First answers of C and C++ processes, and a call from C, of the MLP."""
    import torch

    import sealift

    prefix = sealift.cmake_prefix_path
    program = scratch / "call_bench"
    paths = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lsealift", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run(["gcc", "-O2", str(ROOT / "benchmarks/call_bench.c"), *paths, "-o", str(program)], check=True)
    commands = {"sealift": [str(program), "first", str(package), "1", "8", "10", "1"], "floor": ["/bin/true"]}
    if theirs_package.exists():
        build = scratch / "cpp_torch"
        options = [f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}", "-DCMAKE_BUILD_TYPE=Release"]
        subprocess.run(["cmake", "-S", str(ROOT / "examples/cpp_torch"), "-B", str(build), *options], check=True, capture_output=True)
        subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
        commands["aoti"] = [str(build / "aoti_example"), str(theirs_package)]
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for i in range(rounds + 1):
        for name, command in commands.items():
            took = wall(command)
            if i:  # the first warms the page cache
                samples[name].append(took)
    result = {f"first_{k}": statistics.median(v) for k, v in samples.items()}
    for threads in THREADS:
        command = [str(program), "loop", str(package), str(threads), "8", "10", "1"]
        runs = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
        result[f"c_call_{threads}"] = statistics.median(runs) / 1e9
    say("  " + ", ".join(f"{k} {v * 1e6:.2f} us" for k, v in result.items()))
    return result


# ---- the run --------------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: to see that it works")
    parser.add_argument("--models", help="names, joined by commas (default: every model but the tests' small variants)")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--rounds", type=int, help="rounds of calls")
    parser.add_argument("--budget", type=float, metavar="MINUTES", help="begin no further model after this time; the same command goes on from there")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument("--keep-packages", action="store_true", help="leave what the engines made; some gigabytes")
    parser.add_argument("--work", type=Path, default=ROOT / "build/bench", help="results.json and what the engines make")
    parser.add_argument("--write", type=Path, help="write the page, its plot and README's table")
    parser.add_argument("--list", action="store_true", help="print the models and end")
    arguments = parser.parse_args()
    from bench_report import README, describe_machine, page, print_summary, write_readme

    cases = measured_cases()
    if arguments.list:
        print("\n".join(cases))
        return 0
    models = arguments.models.split(",") if arguments.models else list(cases)
    engines = tuple(arguments.engines.split(","))
    for name in engines:
        if name not in ENGINES:
            parser.error(f"no engine {name}; known: {', '.join(ENGINES)}")
    effort = QUICK if arguments.quick else FULL
    if arguments.rounds:
        effort = Effort(effort.compiles, arguments.rounds, effort.round_s, effort.cold_starts)
    work: Path = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    store = work / "results.json"
    results: dict[str, Any] = json.loads(store.read_text()) if store.exists() else {"models": {}}
    peers = make_peers()
    bench = Bench(work, peers, effort, engines)
    start = time.monotonic()
    for model in models:
        kept = results["models"].get(model, {})
        missing = [e for e in engines if e not in kept.get("engines", {}) and "failed" not in kept]
        if kept and not missing and not arguments.fresh:
            say(f"{model}: measured on {kept['date']}")
            continue
        if arguments.budget is not None and time.monotonic() - start > 60 * arguments.budget:
            say(f"{model}: left for the next run, {arguments.budget:g} minutes are over")
            continue
        began = time.monotonic()
        say(f"{model}")
        results["models"][model] = measure_model(bench, model, kept)  # all that are asked for: only what ran side by side compares
        say(f"  {results['models'][model].get('failed', 'done')} in {time.monotonic() - began:.0f} s")
        if model == "mlp" and "sealift" in engines and bench.target("mlp", "sealift").exists():
            results["c"] = measure_c(bench.target("mlp", "sealift"), bench.target("mlp", "aoti"), bench.directory("mlp"), 10 * effort.cold_starts)
        results.update(describe_machine(), rounds=effort.rounds)
        store.write_text(json.dumps(results, indent=1))
        if not arguments.keep_packages:
            clean(bench.directory(model))
    print_summary(results)
    if arguments.write:
        restricted = arguments.models or arguments.engines != ",".join(ENGINES) or effort != FULL
        command = "python benchmarks/bench.py " + " ".join(sys.argv[1:]) if restricted else "make bench"
        plot = arguments.write.with_suffix(".svg")
        subprocess.run([str(peers), str(ROOT / "benchmarks/bench_plot.py"), str(store), str(plot)], check=True)
        arguments.write.write_text(page(results, command, (__doc__ or "").split("\n\n")[1], plot.name))
        if "mlp" in results["models"] and arguments.write.resolve() == ROOT / "docs/performance.md":
            write_readme(README, results)
    return 0


def clean(directory: Path) -> None:
    """Packages and answers go, logs stay."""
    for path in directory.iterdir():
        if path.is_file() and path.suffix != ".log":
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
