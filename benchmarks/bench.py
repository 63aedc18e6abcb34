"""`make bench`: sealift beside AOTInductor in one run.

Compilation: each in a fresh process with empty caches, import and export excluded, the two interleaved, medians.
Calls: one process per engine and number of threads, asked in turn for a round; the median over rounds of each round's median.
First answer: from the start of a C or C++ process to its end, page cache warm, interleaved, medians.

    python benchmarks/bench.py [--quick] [--models mlp,minilm,bert] [--write docs/performance.md] [--json out.json]"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

MODELS = {"mlp": "MLP 10-16-1, batch 8", "minilm": "all-MiniLM-L6-v2, 1 x 128", "bert": "BERT-base, 1 x 128"}
ENGINES = ("sealift", "aoti")
THREADS = (1, 2)


# ---- the models -------------------------------------------------------------------------------------------------------------------


def export(name: str) -> Any:
    import torch

    if name == "mlp":
        from mlp import mlp

        return mlp()
    if name == "minilm":
        from minilm import minilm

        return minilm()
    from transformers import BertConfig, BertModel

    class Bert(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig(), add_pooling_layer=False)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    torch.manual_seed(0)
    return torch.export.export(Bert().eval(), (torch.randint(0, 30000, (1, 128)), torch.ones(1, 128, dtype=torch.int64)))


def inputs(name: str) -> list[Any]:
    import numpy as np

    source = np.random.default_rng(0)
    if name == "mlp":
        return [source.standard_normal((8, 10)).astype(np.float32)]
    return [source.integers(1, 30000, (1, 128)), np.ones((1, 128), np.int64)]


# ---- children: `bench.py --child KIND ...` ------------------------------------------------------------------------------------------


def child_compile(engine: str, name: str, target: str) -> None:
    program = export(name)
    if engine == "aoti":
        import torch._inductor
        import torch._inductor.compile_fx
        import torch._inductor.package

        start = time.perf_counter()
        torch._inductor.aoti_compile_and_package(program, package_path=target)
    else:
        import sealift.frontend
        import sealift.pipeline

        start = time.perf_counter()
        sealift.pipeline.compile(program, target)
    print(json.dumps({"seconds": time.perf_counter() - start, "bytes": os.path.getsize(target)}))


def child_serve(engine: str, threads: str, name: str, package: str) -> None:
    """Answers each line on stdin with the median seconds of a round of calls."""
    arrays = inputs(name)
    if engine == "aoti":
        import torch
        import torch._inductor

        torch.set_num_threads(int(threads))
        loaded = torch._inductor.aoti_load_package(package)
        tensors = [torch.from_numpy(a) for a in arrays]

        def call() -> Any:
            return loaded(*tensors)
    else:
        import sealift

        model = sealift.load(package, num_threads=int(threads))

        def call() -> Any:
            return model(*arrays)

    start = time.perf_counter()
    call()
    first = time.perf_counter() - start
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        call()
    print(json.dumps({"first_s": first}), flush=True)
    for line in sys.stdin:
        seconds = float(line)
        start = time.perf_counter()
        call()
        batch = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-7)))
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while len(samples) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(batch):
                call()
            samples.append((time.perf_counter() - start) / batch)
        print(json.dumps({"median_s": statistics.median(samples)}), flush=True)


CHILDREN = {"compile": child_compile, "serve": child_serve}


def child(kind: str, *arguments: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--child", kind, *arguments]


# ---- measuring ----------------------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure_compile(name: str, target: Path, engine: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="bench_cache_") as cache:
        environ = {**os.environ, "XDG_CACHE_HOME": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "TRITON_CACHE_DIR": f"{cache}/triton"}
        done = subprocess.run(child("compile", engine, name, str(target)), env=environ, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{engine}: {name} does not compile:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_calls(name: str, packages: dict[str, Path], rounds: int, seconds: float) -> dict[str, float]:
    result: dict[str, float] = {}
    for threads in THREADS:
        with contextlib.ExitStack() as stack:
            servers = {}
            for engine in ENGINES:
                environ = {**os.environ, "OMP_NUM_THREADS": str(threads)}
                command = child("serve", engine, str(threads), name, str(packages[engine]))
                server = stack.enter_context(subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
                assert server.stdout is not None
                server.stdout.readline()
                servers[engine] = server
            samples: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for i in range(rounds):
                for engine in ENGINES if i % 2 == 0 else reversed(ENGINES):
                    server = servers[engine]
                    assert server.stdin is not None and server.stdout is not None
                    print(seconds, file=server.stdin, flush=True)
                    samples[engine].append(json.loads(server.stdout.readline())["median_s"])
            for engine, server in servers.items():
                assert server.stdin is not None
                server.stdin.close()
                result[f"{engine}_{threads}"] = statistics.median(samples[engine])
            say(f"  {name}, {threads} threads: " + ", ".join(f"{e} {result[f'{e}_{threads}'] * 1e6:.2f} us" for e in ENGINES))
    return result


def wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def measure_c(packages: dict[str, Path], scratch: Path, rounds: int) -> dict[str, float]:
    """First answers of C and C++ processes, and a call from C."""
    import torch

    import sealift

    prefix = sealift.cmake_prefix_path
    program = scratch / "call_bench"
    compile_command = [
        "gcc",
        "-O2",
        str(ROOT / "benchmarks/call_bench.c"),
        f"-I{prefix}/include",
        f"-L{prefix}/lib",
        "-lsealift",
        f"-Wl,-rpath,{prefix}/lib",
    ]
    subprocess.run([*compile_command, "-o", str(program)], check=True)
    build = scratch / "cpp_torch"
    prefix_option = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    subprocess.run(
        ["cmake", "-S", str(ROOT / "examples/cpp_torch"), "-B", str(build), prefix_option, "-DCMAKE_BUILD_TYPE=Release"],
        check=True,
        capture_output=True,
    )
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    first = [str(program), "first", str(packages["sealift"]), "1", "8", "10", "1"]
    theirs = [str(build / "aoti_example"), str(packages["aoti"])]
    floor = ["/bin/true"]
    samples: dict[str, list[float]] = {"sealift": [], "aoti": [], "floor": []}
    for command in (first, theirs, floor):
        wall(command)
    for i in range(rounds):
        samples["sealift"].append(wall(first))
        samples["floor"].append(wall(floor))
        if i % 5 == 0:
            samples["aoti"].append(wall(theirs))
    result = {f"first_{k}": statistics.median(v) for k, v in samples.items()}
    for threads in THREADS:
        command = [str(program), "loop", str(packages["sealift"]), str(threads), "8", "10", "1"]
        runs = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
        result[f"c_call_{threads}"] = statistics.median(runs) / 1e9
    say("  " + ", ".join(f"{k} {v * 1e6:.2f} us" for k, v in result.items()))
    return result


# ---- the report ---------------------------------------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    if seconds < 1e-4:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def rows_of(results: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows = []

    def row(what: str, ours: float, theirs: float) -> None:
        rows.append((what, duration(ours), duration(theirs), f"{theirs / ours:.1f}x"))

    for name, title in MODELS.items():
        if name in results["compile"]:
            r = results["compile"][name]
            row(f"compile, {title.split(',')[0]}", r["sealift"], r["aoti"])
    for name, title in MODELS.items():
        if name in results["calls"]:
            for threads in THREADS:
                r = results["calls"][name]
                row(f"call from Python, {title}, {threads} thread{'s' * (threads > 1)}", r[f"sealift_{threads}"], r[f"aoti_{threads}"])
    if "c" in results:
        row("C or C++ process to the first MLP answer", results["c"]["first_sealift"], results["c"]["first_aoti"])
        for threads in THREADS:
            rows.append((f"call from C, {MODELS['mlp']}, {threads} thread{'s' * (threads > 1)}", duration(results["c"][f"c_call_{threads}"]), "", ""))
    for name, title in MODELS.items():
        if name in results["bytes"]:
            r = results["bytes"][name]
            rows.append((f"package, {title.split(',')[0]}", f"{r['sealift']:,} bytes", f"{r['aoti']:,} bytes", f"{r['aoti'] / r['sealift']:.1f}x"))
    return rows


def table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = ["| | sealift | AOTInductor | |", "|---|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {len(os.sched_getaffinity(0))} cores"


def write(results: dict[str, Any], path: Path, command: str) -> None:
    import torch

    import sealift
    from sealift import _runtime

    isas = [name for i, name in enumerate(("baseline", "AVX2", "AVX-512", "AMX")) if _runtime.machine_isas() >> i & 1]
    versions = f"torch {torch.__version__}, sealift {sealift.__version__}, Python {platform.python_version()}"
    about = f"{machine()} ({', '.join(isas)}), {date.today()}, {versions}"
    rounds = f"{results['compiles']} compilations and {results['rounds']} rounds of calls each"
    text = f"# Performance\n\nWritten by `{command}` on {about}; {rounds}.\n\n{(__doc__ or '').split(chr(10) * 2)[1]}\n\n{table(rows_of(results))}\n"
    path.write_text(text)
    readme = ROOT / "README.md"
    before, rest = readme.read_text().split("<!-- figures: make bench -->\n")
    after = rest.split("<!-- end of figures -->")[1]
    figures = f"{table(rows_of(results))}\n\n{about}; how: [docs/performance.md](docs/performance.md).\n"
    readme.write_text(f"{before}<!-- figures: make bench -->\n{figures}<!-- end of figures -->{after}")


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        CHILDREN[sys.argv[2]](*sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one compilation and three short rounds: to see that it works")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--compiles", type=int, help="compilations of each model with each engine (5)")
    parser.add_argument("--rounds", type=int, help="rounds of calls (9)")
    parser.add_argument("--write", type=Path, help="write the page and README's table")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    compiles, rounds, seconds, firsts = (1, 3, 0.5, 10) if arguments.quick else (5, 9, 2.0, 50)
    compiles, rounds = arguments.compiles or compiles, arguments.rounds or rounds
    names = arguments.models.split(",")
    results: dict[str, Any] = {"compile": {}, "calls": {}, "bytes": {}, "compiles": compiles, "rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="sealift_bench_") as directory:
        scratch = Path(directory)
        packages = {name: {engine: scratch / f"{name}_{engine}.pt2" for engine in ENGINES} for name in names}
        for name in names:
            samples: dict[str, list[float]] = {engine: [] for engine in ENGINES}
            for _ in range(compiles):
                for engine in ENGINES:
                    found = measure_compile(name, packages[name][engine], engine)
                    samples[engine].append(found["seconds"])
                    results["bytes"].setdefault(name, {})[engine] = found["bytes"]
            results["compile"][name] = {engine: statistics.median(samples[engine]) for engine in ENGINES}
            say(f"compile {name}: " + ", ".join(f"{e} {results['compile'][name][e]:.2f} s" for e in ENGINES))
        for name in names:
            results["calls"][name] = measure_calls(name, packages[name], rounds, seconds)
        if "mlp" in names:
            results["c"] = measure_c(packages["mlp"], scratch, firsts)
    print(table(rows_of(results)))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    if arguments.write:
        write(results, arguments.write, "make bench" if not arguments.quick else "python benchmarks/bench.py --quick")
    return 0


if __name__ == "__main__":
    sys.exit(main())
