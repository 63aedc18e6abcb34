"""The f32 convolution table: the distinct convolutions of ResNet-50 and MobileNetV2, ours against oneDNN's primitive and torch's frozen convolution.

Batch 1, channels last, weights packed ahead, bias and ReLU fused. Each library runs in a process of its own, so that no thread pool spins while
another works; rounds are interleaved and the median ratio is the figure to read. One thread is measured in CPU time, two by the wall clock.

oneDNN is the PyPI packages onednn-cpu-gomp and onednn-devel-cpu-gomp 2023.2, installed in this Python's prefix or below --onednn; without them its
column is empty.

    python benchmarks/conv_table.py [--rounds 7] [--threads 1,2] [--only 64x56x56] [--json]
"""

import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

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
SECONDS = 0.012  # a measurement's length, at least one call


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("in_c", "in_h", "in_w", "out_c", "out_h", "out_w", "kernel", "stride", "pad", "groups")]


def as_shape(row: tuple[int, ...]) -> Shape:
    in_c, size, out_c, kernel, stride, groups = row
    out = (size + 2 * (kernel // 2) - kernel) // stride + 1
    return Shape(in_c, size, size, out_c, out, out, kernel, stride, kernel // 2, groups)


def best_isa() -> int:
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    return 2 if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags else 1 if {"avx2", "fma"} <= flags else 0


def build_ours(isa: int, library: str) -> None:
    sources = [ROOT / "benchmarks/conv_bench.cpp", *sorted((ROOT / "kernels/conv").glob("*.cpp")), ROOT / "kernels/gemm/gemm_f32.cpp"]
    subprocess.run(
        [
            "g++",
            *FLAGS,
            "-fno-exceptions",
            "-fno-rtti",
            *ISA_FLAGS[isa],
            f"-DSEALIFT_TARGET_ISA={isa}",
            *map(str, sources),
            "-o",
            library,
            "-lpthread",
            "-lm",
        ],
        check=True,
    )


def build_onednn(prefix: str, library: str) -> bool:
    if not pathlib.Path(prefix, "include/dnnl.hpp").exists():
        return False
    source = str(ROOT / "benchmarks/conv_bench.cpp")
    subprocess.run(
        ["g++", *FLAGS, "-DBENCH_ONEDNN", f"-I{prefix}/include", source, "-o", library, f"-L{prefix}/lib", "-ldnnl", f"-Wl,-rpath,{prefix}/lib"],
        check=True,
    )
    return True


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
            repeats = max(1, int(SECONDS / max(min(run(1), run(1)), 1e-6)))
        seconds = run(repeats) / repeats
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


def measure(servers: dict[str, Server], model: str, row: tuple[int, ...], threads: int, rounds: int) -> dict:
    sizes = {name: server.ask(row)[1] for name, server in servers.items()}
    times = [{name: server.ask(None)[0] for name, server in servers.items()} for _ in range(rounds)]
    s = as_shape(row)
    result = {"model": model, "shape": row, "threads": threads}
    for name in servers:
        result[f"{name}_us"] = 1e6 * statistics.median(t[name] for t in times)
        if name != "ours":
            result[f"ratio_{name}"] = statistics.median(t[name] / t["ours"] for t in times)
    result["ours_gflops"] = 2e-3 * s.out_h * s.out_w * s.out_c * s.kernel**2 * s.in_c / s.groups / result["ours_us"]
    result["agree"] = all(abs(size - sizes["ours"]) <= 1e-5 * sizes["ours"] for size in sizes.values())
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="rows whose 'channels x size x out channels x kernel' starts with this")
    parser.add_argument("--isa", type=int, default=best_isa(), help="0 baseline, 1 AVX2, 2 AVX-512")
    parser.add_argument("--onednn", default=sys.prefix, help="prefix below which oneDNN's include and lib lie")
    parser.add_argument("--peers", default="onednn,torch")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, int(args.threads))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        build_ours(args.isa, f"{folder}/ours.so")
        libraries = {"ours": f"{folder}/ours.so"}
        if "onednn" in args.peers and build_onednn(args.onednn, f"{folder}/onednn.so"):
            libraries["onednn"] = f"{folder}/onednn.so"
        if "torch" in args.peers:
            libraries["torch"] = "torch"
        if not args.json:
            print(
                f"{'in, out, kernel, stride':>30} {'T':>2} {'ours us':>9} {'GF/s':>6}"
                + "".join(f" {name + ' us':>10} {'ratio':>6}" for name in libraries if name != "ours")
            )
        for threads in map(int, args.threads.split(",")):
            servers = {name: Server(library, threads) for name, library in libraries.items()}
            for model, shapes in (("ResNet-50", RESNET50), ("MobileNetV2", MOBILENET_V2)):
                for row in shapes:
                    in_c, size, out_c, kernel, stride, groups = row
                    if not f"{in_c}x{size}x{out_c}x{kernel}".startswith(args.only):
                        continue
                    r = measure(servers, model, row, threads, args.rounds)
                    rows.append(r)
                    if not args.json:
                        text = f"{size}^2 x {in_c}, {out_c}, {kernel}x{kernel}, {stride}" + (" dw" if groups > 1 else "")
                        peers = "".join(f" {r[f'{name}_us']:10.1f} {r[f'ratio_{name}']:6.2f}" for name in libraries if name != "ours")
                        print(
                            f"{text:>30} {threads:>2} {r['ours_us']:9.1f} {r['ours_gflops']:6.1f}{peers}{'' if r['agree'] else '  OUTPUTS DIFFER'}",
                            flush=True,
                        )
            for server in servers.values():
                server.close()
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
