"""The f32 convolution table: the distinct convolutions of ResNet-50 and MobileNetV2, ours against oneDNN's primitive and torch's frozen convolution.

Batch 1, channels last, weights packed ahead, bias and ReLU fused. Each library runs in a process of its own. A round is the whole table once, so that
what other users of the machine do for some seconds falls into one of a row's rounds, not into all. In it a row is allocated and packed anew, since
where the pages of a buffer lie can cost a tenth; then the libraries take turns, and the median turn counts. The median ratio of the rounds is the
figure to read. With several threads a turn starts after a pause, because the other's idle workers spin for some milliseconds before they sleep. One
thread is measured in CPU time, two by the wall clock, each on a core of its own; a turn in which another program, or a virtual machine's host, took a
core is made again.

oneDNN is the PyPI packages onednn-cpu-gomp and onednn-devel-cpu-gomp 2023.2, installed in this Python's prefix or below --onednn; without them its
column is empty.

Rounds and libraries are kept in --work until the kernels change, so a run can be interrupted, or cut short by --budget, and taken up again.

    python benchmarks/conv_table.py [--rounds 7] [--threads 1,2] [--only 64x56x56] [--budget SECONDS] [--write docs/conv-table.md] [--json]
"""

import argparse
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESNET50 = [  # in channels, in size, out channels, kernel, stride, groups
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 1, 1, 1), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 1), (256, 56, 64, 1, 1, 1),
    (256, 56, 128, 1, 1, 1), (128, 56, 128, 3, 2, 1), (128, 28, 512, 1, 1, 1), (256, 56, 512, 1, 2, 1), (512, 28, 128, 1, 1, 1), (128, 28, 128, 3, 1, 1),
    (512, 28, 256, 1, 1, 1), (256, 28, 256, 3, 2, 1), (256, 14, 1024, 1, 1, 1), (512, 28, 1024, 1, 2, 1), (1024, 14, 256, 1, 1, 1), (256, 14, 256, 3, 1, 1),
    (1024, 14, 512, 1, 1, 1), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 1), (1024, 14, 2048, 1, 2, 1), (2048, 7, 512, 1, 1, 1), (512, 7, 512, 3, 1, 1),
]  # fmt: skip
MOBILENET_V2 = [
    (3, 224, 32, 3, 2, 1), (32, 112, 32, 3, 1, 32), (32, 112, 16, 1, 1, 1),
    (16, 112, 96, 1, 1, 1), (96, 112, 96, 3, 2, 96), (96, 56, 24, 1, 1, 1), (24, 56, 144, 1, 1, 1), (144, 56, 144, 3, 1, 144), (144, 56, 24, 1, 1, 1),
    (144, 56, 144, 3, 2, 144), (144, 28, 32, 1, 1, 1), (32, 28, 192, 1, 1, 1), (192, 28, 192, 3, 1, 192), (192, 28, 32, 1, 1, 1),
    (192, 28, 192, 3, 2, 192), (192, 14, 64, 1, 1, 1), (64, 14, 384, 1, 1, 1), (384, 14, 384, 3, 1, 384), (384, 14, 64, 1, 1, 1),
    (384, 14, 96, 1, 1, 1), (96, 14, 576, 1, 1, 1), (576, 14, 576, 3, 1, 576), (576, 14, 96, 1, 1, 1),
    (576, 14, 576, 3, 2, 576), (576, 7, 160, 1, 1, 1), (160, 7, 960, 1, 1, 1), (960, 7, 960, 3, 1, 960), (960, 7, 160, 1, 1, 1), (960, 7, 320, 1, 1, 1),
    (320, 7, 1280, 1, 1, 1),
]  # fmt: skip
ISA_FLAGS = [["-march=x86-64"], ["-march=x86-64-v3"], ["-march=x86-64-v4", "-mprefer-vector-width=512"]]
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-ffp-contract=off"]
SECONDS = 0.004  # a turn's length, at least one call
TURNS = 9  # of each library in a round
ATTEMPTS = 10
PAUSE_S = 0.02  # before a turn on several threads
GOAL = 0.9  # of oneDNN's speed


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("in_c", "in_h", "in_w", "out_c", "out_h", "out_w", "kernel", "stride", "pad", "groups")]


def as_shape(row: tuple[int, ...]) -> Shape:
    in_c, size, out_c, kernel, stride, groups = row
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    return Shape(in_c, size, size, out_c, out, out, kernel, stride, kernel // 2, groups)


def best_isa() -> int:
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return 2 if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags else 1 if {"avx2", "fma"} <= flags else 0


def build_ours(isa: int, library: pathlib.Path) -> None:
    sources = [ROOT / "benchmarks/conv_bench.cpp", *sorted((ROOT / "kernels/conv").glob("*.cpp")), ROOT / "kernels/gemm/gemm_f32.cpp"]
    flags = [*FLAGS, "-fno-exceptions", "-fno-rtti", *ISA_FLAGS[isa], f"-DSEALIFT_TARGET_ISA={isa}"]
    part = library.with_suffix(".part")
    subprocess.run(["g++", *flags, *map(str, sources), "-o", str(part), "-lpthread", "-lm"], check=True)
    part.replace(library)


def build_onednn(prefix: str, library: pathlib.Path) -> bool:
    if not pathlib.Path(prefix, "include/dnnl.hpp").exists():
        return False
    source, part = str(ROOT / "benchmarks/conv_bench.cpp"), library.with_suffix(".part")
    paths = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run(["g++", *FLAGS, "-DBENCH_ONEDNN", *paths, source, "-o", str(part), "-ldnnl"], check=True)
    part.replace(library)
    return True


def pin_threads(cores: Sequence[int]) -> None:
    """The main thread on the first core, the others on the rest in turn: a scheduler that puts two on one core for a while would be measured, too."""
    first, *rest = cores
    others = [int(t) for t in os.listdir("/proc/self/task") if int(t) != os.getpid()]
    os.sched_setaffinity(0, {first})
    for i, thread in enumerate(others):
        os.sched_setaffinity(thread, {rest[i % len(rest)]} if rest else {first})


def interruptions() -> tuple[int, int]:
    """Counts that rise when another program takes a core of ours, and when a virtual machine's host does."""
    cpu = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, int(cpu[8])


def undisturbed(run: Callable[[], float]) -> float:
    """One measurement, made again while somebody takes a core in it; the last of ATTEMPTS counts in any case."""
    seconds = 0.0
    for _ in range(ATTEMPTS):
        before = interruptions()
        seconds = run()
        if interruptions() == before:
            break
    return seconds


def serve(library: str, threads: int) -> None:
    """One library's process: a shape to prepare or null to measure it again, a line each; answers seconds a call, then the mean absolute output."""
    import torch

    torch.set_num_threads(threads)
    lib = None
    if library != "torch":
        lib = ctypes.CDLL(library)
        lib.bench_new.restype, lib.bench_run.restype = ctypes.c_void_p, ctypes.c_double
        lib.bench_new.argtypes = [ctypes.POINTER(Shape), ctypes.c_int32] + [ctypes.c_void_p] * 4
        lib.bench_run.argtypes, lib.bench_free.argtypes = [ctypes.c_void_p, ctypes.c_int32], [ctypes.c_void_p]
    cores = sorted(os.sched_getaffinity(0))
    clock = time.process_time if threads == 1 else time.perf_counter
    bench, run, repeats, keep = None, None, 1, None
    for line in sys.stdin:
        row = json.loads(line)
        if row is not None:
            shape = as_shape(tuple(row))
            torch.manual_seed(0)
            x = torch.randn(1, shape.in_c, shape.in_h, shape.in_w).to(memory_format=torch.channels_last)
            w = torch.randn(shape.out_c, shape.in_c // shape.groups, shape.kernel, shape.kernel)
            bias = torch.randn(shape.out_c)
            out = torch.empty(1, shape.out_c, shape.out_h, shape.out_w).to(memory_format=torch.channels_last)
            keep = (x, w, bias, out)
            if lib is not None:
                if bench:
                    lib.bench_free(bench)
                bench = lib.bench_new(ctypes.byref(shape), threads, x.data_ptr(), w.data_ptr(), bias.data_ptr(), out.data_ptr())

                def run(n: int, lib: ctypes.CDLL = lib, bench: int = bench) -> float:
                    return float(lib.bench_run(bench, n))
            else:
                args = [shape.pad] * 2, [shape.stride] * 2, [1, 1], shape.groups
                packed = torch._C._nn.mkldnn_reorder_conv2d_weight(w.to_mkldnn(), *args, list(x.shape))  # what Inductor's freezing does

                def run(
                    n: int, x: torch.Tensor = x, w: torch.Tensor = packed, bias: torch.Tensor = bias, args: tuple = args, out: torch.Tensor = out
                ) -> float:
                    with torch.inference_mode():
                        start = clock()
                        for _ in range(n):
                            y = torch.ops.mkldnn._convolution_pointwise(x, w, bias, *args, "relu", [], "")
                        elapsed = clock() - start
                        out.copy_(y)
                        return elapsed

            run(1)
            if threads > 1:
                pin_threads(cores)
            repeats = max(1, int(SECONDS / max(min(run(1), run(1)), 1e-6)))
        if threads > 1:
            time.sleep(PAUSE_S)
        run(1)
        measured = functools.partial(run, repeats)
        seconds = (measured() if threads == 1 else undisturbed(measured)) / repeats
        print(json.dumps([seconds, float(keep[3].double().abs().mean())]), flush=True)


class Server:
    def __init__(self, library: str, threads: int) -> None:
        command = [sys.executable, __file__, "--serve", library, "--threads", str(threads)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}
        )

    def ask(self, row: tuple[int, ...] | None) -> tuple[float, float]:
        self.process.stdin.write(json.dumps(row) + "\n")
        self.process.stdin.flush()
        seconds, size = json.loads(self.process.stdout.readline())
        return seconds, size

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


Round = dict[str, list[float]]  # library -> seconds of its median turn, mean absolute output


def measure(servers: dict[str, Server], row: tuple[int, ...]) -> Round:
    sizes = {name: server.ask(row)[1] for name, server in servers.items()}
    turns = [{name: server.ask(None)[0] for name, server in servers.items()} for _ in range(TURNS)]
    return {name: [statistics.median(turn[name] for turn in turns), sizes[name]] for name in servers}


def summary(model: str, row: tuple[int, ...], threads: int, rounds: Sequence[Round]) -> dict[str, Any]:
    s = as_shape(row)
    result: dict[str, Any] = {"model": model, "shape": row, "threads": threads}
    for name in rounds[0]:
        result[f"{name}_us"] = 1e6 * statistics.median(r[name][0] for r in rounds)
        if name != "ours":
            result[f"ratio_{name}"] = statistics.median(r[name][0] / r["ours"][0] for r in rounds)
    result["ours_gflops"] = 2e-3 * s.out_h * s.out_w * s.out_c * s.kernel**2 * s.in_c / s.groups / result["ours_us"]
    result["agree"] = all(abs(size - r["ours"][1]) <= 1e-5 * r["ours"][1] for r in rounds for _, size in r.values())
    return result


# ---- results that are kept -----------------------------------------------------------------------------------------------------------


def digest_of(isa: int) -> str:
    """Of all that a row depends on."""
    parts = [p for folder in ("conv", "gemm", "simd") for p in sorted((ROOT / "kernels" / folder).glob("*.[ch]*"))]
    sources = [*parts, ROOT / "kernels/tests/test_host.h", ROOT / "benchmarks/conv_bench.cpp"]
    return hashlib.sha256(b"".join(s.read_bytes() for s in sources) + json.dumps([isa, ISA_FLAGS, FLAGS]).encode()).hexdigest()


def read_kept(path: pathlib.Path) -> dict[str, list[Round]]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write_kept(path: pathlib.Path, rounds: dict[str, list[Round]]) -> None:
    path.with_suffix(".part").write_text(json.dumps(rounds))
    path.with_suffix(".part").replace(path)


# ---- text ----------------------------------------------------------------------------------------------------------------------------


def title(row: Sequence[int]) -> str:
    in_c, size, out_c, kernel, stride, groups = row
    return f"{size}^2 x {in_c}, {out_c}, {kernel}x{kernel}, {stride}" + (" dw" if groups > 1 else "")


def as_line(r: dict[str, Any], peers: Sequence[str]) -> str:
    columns = "".join(f" {r[f'{name}_us']:10.1f} {r[f'ratio_{name}']:6.2f}" for name in peers)
    return f"{title(r['shape']):>30} {r['threads']:>2} {r['ours_us']:9.1f} {r['ours_gflops']:6.1f}{columns}{'' if r['agree'] else '  OUTPUTS DIFFER'}"


def machine() -> str:
    from machine import cpu_name

    return f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores"


def as_page(rows: Sequence[dict[str, Any]], peers: Sequence[str], threads: str, isa: int, rounds: int) -> str:
    head = f"| in, out channels, kernel, stride | threads | us | GF/s | {' | '.join(f'{p} us | ratio' for p in peers)} |"
    lines = [
        "# Convolutions",
        "",
        f"Written by `python benchmarks/conv_table.py --peers {','.join(peers)} --threads {threads} --write docs/conv-table.md` on {machine()}"
        f" ({('baseline', 'AVX2', 'AVX-512')[isa]}), {date.today()}; median of {rounds} rounds, in each of which the median of {TURNS} turns counts.",
        "",
        "Every distinct convolution of ResNet-50 and MobileNetV2: batch 1, float32, channels last, weights packed ahead, bias and ReLU fused; `dw`:",
        "depthwise. The ratio is the peer's time over ours: more than 1 is in our favour. onednn: the primitive of PyPI's onednn-cpu-gomp 2023.2.",
        "",
    ]
    for peer in peers:
        slow = [r for r in rows if r[f"ratio_{peer}"] < GOAL]
        ratios = [r[f"ratio_{peer}"] for r in rows]
        lines += [
            f"{peer}: the median ratio is {statistics.median(ratios):.2f}, the least {min(ratios):.2f}; {len(slow)} of {len(rows)} are below {GOAL}.",
            "",
        ]
    for model in dict.fromkeys(r["model"] for r in rows):
        lines += [f"## {model}", "", head, "|---" * (4 + 2 * len(peers)) + "|"]
        for r in rows:
            if r["model"] == model:
                columns = " | ".join(f"{r[f'{p}_us']:.1f} | {r[f'ratio_{p}']:.2f}" for p in peers)
                lines.append(f"| {title(r['shape'])} | {r['threads']} | {r['ours_us']:.1f} | {r['ours_gflops']:.1f} | {columns} |")
        lines.append("")
    return "\n".join(lines)


def is_asked_for(row: Sequence[int], only: str) -> bool:
    in_c, size, out_c, kernel, _, _ = row
    return f"{in_c}x{size}x{out_c}x{kernel}".startswith(only)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="rows whose 'channels x size x out channels x kernel' starts with this")
    parser.add_argument("--isa", type=int, default=best_isa(), help="0 baseline, 1 AVX2, 2 AVX-512")
    parser.add_argument("--onednn", default=sys.prefix, help="prefix below which oneDNN's include and lib lie")
    parser.add_argument("--peers", default="onednn,torch")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no other row is measured")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/conv-table", help="where rows and libraries are kept")
    parser.add_argument("--fresh", action="store_true", help="measure the rows again that are kept")
    parser.add_argument("--write", type=pathlib.Path, help="the page, once every row is there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, int(args.threads))
        return 0
    until = time.monotonic() + args.budget
    folder = args.work / digest_of(args.isa)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    libraries = {"ours": folder / "ours.so", "onednn": folder / "onednn.so", "torch": pathlib.Path("torch")}
    if not libraries["ours"].exists():
        build_ours(args.isa, libraries["ours"])
    asked = [peer for peer in ("onednn", "torch") if peer in args.peers.split(",")]
    peers = [p for p in asked if p != "onednn" or libraries[p].exists() or build_onednn(args.onednn, libraries[p])]
    kept = read_kept(folder / "rounds.json")
    chosen = [(m, row) for m, rows in (("ResNet-50", RESNET50), ("MobileNetV2", MOBILENET_V2)) for row in rows if is_asked_for(row, args.only)]
    of_row = {(m, row, t): json.dumps([m, row, t, peers]) for t in map(int, args.threads.split(",")) for m, row in chosen}
    if args.fresh:
        kept = {key: rounds for key, rounds in kept.items() if key not in of_row.values()}
    for threads in map(int, args.threads.split(",")):
        servers = {name: Server(str(libraries[name]), threads) for name in ("ours", *peers)}
        for i in range(args.rounds):
            print(f"{threads} threads, round {i + 1} of {args.rounds}", file=sys.stderr)
            for model, row in chosen:
                rounds = kept.setdefault(of_row[model, row, threads], [])
                if len(rounds) <= i and time.monotonic() < until:
                    rounds.append(measure(servers, row))
                    write_kept(folder / "rounds.json", kept)
        for server in servers.values():
            server.close()
    done = {row: kept[key][: args.rounds] for row, key in of_row.items() if len(kept[key]) >= args.rounds}
    rows, left = [summary(*row, rounds) for row, rounds in done.items()], len(of_row) - len(done)
    if not args.json:
        print(f"{'in, out, kernel, stride':>30} {'T':>2} {'ours us':>9} {'GF/s':>6}" + "".join(f" {p + ' us':>10} {'ratio':>6}" for p in peers))
        print("\n".join(as_line(r, peers) for r in rows))
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
    if left:
        print(f"{left} rows are left: run the same command again", file=sys.stderr)
    elif args.write:
        args.write.write_text(as_page(rows, peers, args.threads, args.isa, args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
