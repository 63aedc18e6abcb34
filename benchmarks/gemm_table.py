"""The f32 GEMM table: ours against torch's linear + activation, hot and cold weights, one and two threads; and attention's.

Every row is the median of interleaved rounds, so that other load on the machine meets both sides; the ratio is the figure to read. One thread is
measured in CPU time, two by the wall clock.
Cold rows go through 20 weight matrices in turn: what a model does, and what a hot loop hides.

    python benchmarks/gemm_table.py [--rounds 7] [--threads 1,2] [--only 128,768] [--attention] [--json]
    python benchmarks/gemm_table.py --write docs/gemm-table.md
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
ACTIVATIONS = {"": 0, "relu": 1, "gelu": 2}
SHAPES = [  # M, K, N, activation
    (1, 768, 768, ""),
    (1, 768, 3072, "gelu"),
    (4, 768, 768, ""),
    (8, 10, 16, "relu"),
    (32, 512, 512, "relu"),
    (32, 768, 3072, ""),
    (128, 768, 768, ""),
    (128, 768, 3072, "gelu"),
    (128, 768, 3072, ""),
    (128, 3072, 768, ""),
    (512, 768, 3072, "gelu"),
    (1024, 1024, 1024, "relu"),
    (197, 768, 2304, ""),
    (3136, 64, 256, "relu"),
    (196, 1024, 256, "relu"),
    (128, 384, 384, ""),
    (128, 384, 1536, "gelu"),
]
ATTENTION = [  # batch, heads, queries, keys, dim, kind
    (1, 12, 128, 128, 32, ""),
    (1, 12, 128, 128, 64, ""),
    (1, 12, 128, 128, 64, "mask"),
    (1, 12, 197, 197, 64, ""),
    (1, 12, 512, 512, 32, ""),
    (1, 12, 512, 512, 64, ""),
    (1, 12, 512, 512, 64, "causal"),
    (1, 12, 1024, 1024, 64, ""),
    (1, 12, 128, 128, 128, ""),
    (8, 12, 16, 16, 32, ""),
    (1, 12, 1, 512, 64, ""),
]
ISA_FLAGS = [["-march=x86-64"], ["-march=x86-64-v3"], ["-march=x86-64-v4", "-mprefer-vector-width=512"]]


def best_isa() -> int:
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return 2 if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags else 1 if {"avx2", "fma"} <= flags else 0


def build(isa: int, folder: str) -> ctypes.CDLL:
    library = f"{folder}/kernel_bench_{isa}.so"
    flags = ["-std=c++17", "-O3", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-ffp-contract=off"]
    sources = [ROOT / "benchmarks/kernel_bench.cpp", ROOT / "kernels/gemm/gemm_f32.cpp", ROOT / "kernels/attention/attention_f32.cpp"]
    sources = [str(s) for s in sources if s.exists()]
    subprocess.run(["g++", *flags, *ISA_FLAGS[isa], f"-DSEALIFT_TARGET_ISA={isa}", *sources, "-o", library, "-lpthread", "-lm"], check=True)
    lib = ctypes.CDLL(library)
    lib.bench_host.restype = ctypes.c_void_p
    lib.bench_host.argtypes = [ctypes.c_int32, ctypes.c_int64]
    lib.bench_host_free.argtypes = [ctypes.c_void_p]
    i64, ptr = ctypes.c_int64, ctypes.c_void_p
    lib.bench_pack.argtypes = [ptr, i64, i64, ptr]
    lib.bench_gemm.restype = ctypes.c_double
    lib.bench_gemm.argtypes = [ptr, i64, i64, i64, ptr, ptr, ctypes.c_int32, ctypes.c_int32, ptr, ctypes.c_int32, ptr, ctypes.c_int32]
    lib.bench_attention.restype = ctypes.c_double
    lib.bench_attention.argtypes = [ptr, i64, i64, i64, i64, i64, ptr, ptr, ptr, ctypes.c_int32, ptr, ctypes.c_float, ptr, ctypes.c_int32]
    lib.bench_attention_scratch.restype = i64
    lib.bench_attention_scratch.argtypes = [i64]
    lib.bench_gemm_scratch.restype = i64
    lib.bench_gemm_scratch.argtypes = [i64, i64, i64, ctypes.c_int32]
    return lib


def aligned(count: int) -> torch.Tensor:
    """Floats at a 64-byte boundary, as the weights of a package are."""
    whole = torch.zeros(count + 16)
    skip = (-whole.data_ptr() % 64) // 4
    return whole[skip : skip + count]


def after_a_pause(side: Callable[[], float]) -> float:
    """The other side's idle workers spin for some milliseconds before they sleep: each side starts on a free machine, and warm."""
    time.sleep(0.02)
    side()
    return side()


def measure(lib: ctypes.CDLL, m: int, k: int, n: int, activation: str, threads: int, cold: bool, rounds: int) -> dict:
    torch.manual_seed(0)
    count = 20 if cold else 1
    x, bias, out = torch.randn(m, k), torch.randn(n), torch.empty(m, n)
    weights = [torch.randn(n, k) * k**-0.5 for _ in range(count)]
    packed = [aligned((n + 31) // 32 * 32 * k) for _ in range(count)]
    for w, p in zip(weights, packed):
        lib.bench_pack(w.data_ptr(), n, k, p.data_ptr())
    pointers = (ctypes.c_void_p * count)(*[p.data_ptr() for p in packed])
    host = lib.bench_host(threads, lib.bench_gemm_scratch(m, n, k, 0))
    act = {"": lambda y: y, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
    repeats = max(1, int(0.04 * 40e9 * threads / (2 * m * n * k * count + 4e5 * (m < 5) + 3e5)))
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter  # as kernel_bench.cpp

    def ours() -> float:
        return lib.bench_gemm(host, m, n, k, x.data_ptr(), pointers, count, 0, bias.data_ptr(), ACTIVATIONS[activation], out.data_ptr(), repeats) / (
            repeats * count
        )

    def theirs() -> float:
        t0 = clock()
        for _ in range(repeats):
            for w in weights:
                act(torch.nn.functional.linear(x, w, bias))
        return (clock() - t0) / (repeats * count)

    with torch.inference_mode():
        ours(), theirs()
        want = act(torch.nn.functional.linear(x.double(), weights[-1].double(), bias.double()))
        error = float((out.double() - want).abs().max())
        pairs = [(after_a_pause(ours), after_a_pause(theirs)) for _ in range(rounds)]
    lib.bench_host_free(host)
    a, b = statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)
    return {
        "m": m,
        "k": k,
        "n": n,
        "activation": activation,
        "threads": threads,
        "cold": cold,
        "ours_us": a * 1e6,
        "torch_us": b * 1e6,
        "ours_gflops": 2e-9 * m * n * k / a,
        "ratio": statistics.median(p[1] / p[0] for p in pairs),
        "max_error": error,
    }


def measure_attention(lib: ctypes.CDLL, batch: int, heads: int, queries: int, keys: int, dim: int, kind: str, threads: int, rounds: int) -> dict:
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, n, heads, dim) for n in (queries, keys, keys))
    out = torch.empty(batch, queries, heads, dim)
    mask = torch.randn(batch, 1, 1, keys) if kind == "mask" else None
    host = lib.bench_host(threads, lib.bench_attention_scratch(dim))
    flops = 4 * batch * heads * queries * keys * dim
    repeats = max(1, int(0.03 * 40e9 * threads / (flops + 4e5)))
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter  # as kernel_bench.cpp
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def ours() -> float:
        return (
            lib.bench_attention(
                host,
                batch,
                heads,
                queries,
                keys,
                dim,
                q.data_ptr(),
                k.data_ptr(),
                v.data_ptr(),
                int(kind == "causal"),
                mask.data_ptr() if mask is not None else None,
                dim**-0.5,
                out.data_ptr(),
                repeats,
            )
            / repeats
        )

    def theirs() -> float:
        t0 = clock()
        for _ in range(repeats):
            torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, attn_mask=mask, is_causal=kind == "causal")
        return (clock() - t0) / repeats

    with torch.inference_mode():
        ours(), theirs()
        want = torch.nn.functional.scaled_dot_product_attention(
            qt.double(), kt.double(), vt.double(), attn_mask=mask.double() if mask is not None else None, is_causal=kind == "causal"
        ).transpose(1, 2)
        error = float((out.double() - want).abs().max())
        pairs = [(after_a_pause(ours), after_a_pause(theirs)) for _ in range(rounds)]
    lib.bench_host_free(host)
    a, b = statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)
    return {
        "batch": batch,
        "heads": heads,
        "queries": queries,
        "keys": keys,
        "dim": dim,
        "kind": kind,
        "threads": threads,
        "ours_us": a * 1e6,
        "torch_us": b * 1e6,
        "ours_gflops": flops * 1e-9 / a,
        "ratio": statistics.median(p[1] / p[0] for p in pairs),
        "max_error": error,
    }


def gemm_rows(lib: ctypes.CDLL, threads: list[int], only: str, rounds: int) -> Iterator[dict]:
    for m, k, n, activation in SHAPES:
        if f"{m},{k},{n}".startswith(only):
            for count in threads:
                for cold in (False, True):
                    if not cold or k * n >= 1 << 16:  # a small matrix is hot anyway
                        yield measure(lib, m, k, n, activation, count, cold, rounds)


def attention_rows(lib: ctypes.CDLL, threads: list[int], rounds: int) -> Iterator[dict]:
    for shape in ATTENTION:
        for count in threads:
            yield measure_attention(lib, *shape, count, rounds)


def name_of(row: dict) -> str:
    if "queries" in row:
        return " ".join([",".join(str(row[key]) for key in ("batch", "heads", "queries", "keys", "dim")), row["kind"]]).strip()
    return " ".join([f"{row['m']},{row['k']},{row['n']}", row["activation"], "cold" if row["cold"] else "hot"]).replace("  ", " ")


def line_of(row: dict) -> str:
    return (
        f"{name_of(row):>26} T={row['threads']} {row['ours_us']:9.2f} us  torch {row['torch_us']:9.2f} us  {row['ours_gflops']:6.1f} GF/s  "
        f"ratio {row['ratio']:5.2f}  max error {row['max_error']:.1e}"
    )


def table_of(rows: list[dict], title: str) -> list[str]:
    lines = [f"| {title} | threads | sealift us | torch us | GF/s | torch / sealift | max error |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = [name_of(row), row["threads"], f"{row['ours_us']:.1f}", f"{row['torch_us']:.1f}", f"{row['ours_gflops']:.1f}", f"{row['ratio']:.2f}"]
        lines.append("| " + " | ".join(map(str, [*cells, f"{row['max_error']:.0e}"])) + " |")
    return lines


def page(gemm: list[dict], attention: list[dict], isa: int, rounds: int) -> str:
    from bench_report import describe_machine

    about = describe_machine()
    by_threads = ", ".join(f"{t} threads {min(r['ratio'] for r in gemm if r['threads'] == t):.2f}" for t in sorted({r["threads"] for r in gemm}))
    return "\n".join(
        [
            "# GEMM and attention",
            "",
            f"Written by `python benchmarks/gemm_table.py {' '.join(sys.argv[1:])}` on {about['machine']}, {date.today()}, {about['versions']}; "
            f"the code of {('baseline', 'AVX2', 'AVX-512')[isa]}.",
            "",
            f"Medians of {rounds} interleaved rounds with a pause between the sides; the last but one column is the median of the rounds' ratios. One thread is",
            "measured in CPU time, two by the wall clock. Cold rows go through 20 weight matrices in turn, as a model does.",
            "",
            f"torch's side is `linear` and the activation (MKL), and `scaled_dot_product_attention`. The smallest ratio of a GEMM: {by_threads}.",
            "",
            *table_of(gemm, "GEMM: M,K,N, activation, weights"),
            "",
            *table_of(attention, "attention: batch, heads, queries, keys, head size"),
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="rows whose 'M,K,N' starts with this")
    parser.add_argument("--isa", type=int, default=best_isa(), help="0 baseline, 1 AVX2, 2 AVX-512")
    parser.add_argument("--attention", action="store_true", help="attention against torch's scaled_dot_product_attention instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, help="a page with both tables")
    args = parser.parse_args()
    threads = [int(t) for t in args.threads.split(",")]
    found: dict[str, list[dict]] = {"gemm": [], "attention": []}
    with tempfile.TemporaryDirectory() as folder:
        lib = build(args.isa, folder)
        wanted = {"gemm": gemm_rows(lib, threads, args.only, args.rounds), "attention": attention_rows(lib, threads, args.rounds)}
        for kind in ["gemm", "attention"] if args.write else ["attention"] if args.attention else ["gemm"]:
            for row in wanted[kind]:
                found[kind].append(row)
                if not args.json:
                    print(line_of(row), flush=True)
    if args.json:
        json.dump(found["gemm"] + found["attention"], sys.stdout, indent=1)
    if args.write:
        args.write.write_text(page(found["gemm"], found["attention"], args.isa, args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
