"""What `make demo` shows: one MLP and one MiniLM, from torch.export to a sealed package, answering in Python without torch, in C++ without
libtorch, and in PyTorch's own loaders."""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
warnings.filterwarnings("ignore")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np  # noqa: E402

HERE = Path(__file__).resolve().parent

FIRST_ANSWER = """
import sys, time
start = time.perf_counter()
import numpy as np
numpy_s = time.perf_counter() - start
start = time.perf_counter()
import sealift
model = sealift.load(sys.argv[1])
x = np.ones((8, 10), np.float32)
y = model(x)
first_s = time.perf_counter() - start
n, best = 20000, 1.0
for _ in range(5):
    start = time.perf_counter()
    for _ in range(n):
        model(x)
    best = min(best, (time.perf_counter() - start) / n)
assert "torch" not in sys.modules
import json
print(json.dumps({"numpy_ms": numpy_s * 1e3, "first_ms": first_s * 1e3, "call_us": best * 1e6, "y": float(y[0, 0])}))
"""


def say(what: str, result: str) -> None:
    print(f"  {what:44s} {result}", flush=True)


def fresh_process(package: Path) -> None:
    runs = []
    for _ in range(5):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", FIRST_ANSWER, str(package)], capture_output=True, text=True, check=True)
        runs.append({**json.loads(done.stdout), "wall_ms": (time.perf_counter() - start) * 1e3})
    middle = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
    say("Python without torch, to the first answer", f"{middle['first_ms']:.1f} ms after NumPy's import ({middle['numpy_ms']:.0f} ms)")
    say("Python, a call (batch 8)", f"{min(r['call_us'] for r in runs):.2f} us")


def cpp_program(package: Path, scratch: Path) -> None:
    import sealift

    build = scratch / "cpp"
    configure = ["cmake", "-S", str(HERE / "cpp"), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={sealift.cmake_prefix_path}"]
    subprocess.run(configure, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", str(build)], check=True, capture_output=True)
    program = build / "run_mlp"
    walls = []
    for _ in range(20):
        start = time.perf_counter()
        done = subprocess.run([str(program), str(package), "8"], capture_output=True, text=True, check=True)
        walls.append(time.perf_counter() - start)
    libraries = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    assert "torch" not in libraries
    say("C++ without libtorch answers", done.stdout.strip())


def torch_loaders(package: Path, expected: float) -> None:
    import torch
    from torch._inductor import aoti_load_package
    from torch.export.pt2_archive._package import load_pt2

    x = torch.ones(8, 10)
    for name, model in [
        ("torch._inductor.aoti_load_package answers", aoti_load_package(str(package))),
        ("torch.export.pt2_archive.load_pt2 answers", load_pt2(str(package)).aoti_runners["model"]),
    ]:
        answer = float(model(x)[0, 0])
        assert abs(answer - expected) < 1e-5, (name, answer, expected)
        say(name, f"{answer:.7f}")


def mlp_part(scratch: Path) -> None:
    import torch
    from mlp import mlp

    import sealift

    print("The MLP of AOTInductor's documentation (10-16-1, batch 1..1024)")
    program = mlp()
    sealift.compile(program, scratch / "warm.pt2", options=sealift.Options(cache_dir=""))  # imports and checks done
    start = time.perf_counter()
    package = sealift.compile(program, scratch / "mlp.pt2", options=sealift.Options(cache_dir=""))
    say("compiled, no cache, three instruction sets", f"{time.perf_counter() - start:.2f} s, {package.stat().st_size:,} bytes")
    for line in str(sealift.check(package, program)).split("\n"):
        say("against eager", line)
    model, eager = sealift.load(package), program.module()
    with torch.no_grad():
        worst = max(float((model(x) - eager(x)).abs().max()) for x in (torch.randn(b, 10) for b in (1, 2, 8, 1000, 1024)))
        expected = float(eager(torch.ones(8, 10))[0, 0])
    say("batches 1, 2, 8, 1000, 1024", f"largest difference from eager {worst:.1e}")
    for batch in (0, 1025):
        try:
            model(np.zeros((batch, 10), np.float32))
        except sealift.SealiftError as error:
            say(f"batch {batch} is refused", str(error))
    fresh_process(package)
    say("eager answers", f"{expected:.7f}")
    cpp_program(package, scratch)
    torch_loaders(package, expected)


def minilm_part(scratch: Path) -> bool:
    from minilm import minilm

    import sealift

    print("all-MiniLM-L6-v2, real weights, batch 1..64, sequence 1..512")
    program = minilm()
    start = time.perf_counter()
    package = sealift.compile(program, scratch / "minilm.pt2", options=sealift.Options(cache_dir=""))
    say("compiled, no cache, three instruction sets", f"{time.perf_counter() - start:.2f} s, {package.stat().st_size:,} bytes")
    for line in str(sealift.check(package, program)).split("\n"):
        say("against eager", line)
    print("  nearest of 12 sentences, in a process without torch:")
    done = subprocess.run([sys.executable, str(HERE / "minilm_search.py"), str(package)], text=True, capture_output=True)
    print(done.stdout + done.stderr, end="")
    return done.returncode == 0


def main() -> int:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="sealift_demo_") as directory:
        mlp_part(Path(directory))
        return 0 if minilm_part(Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
