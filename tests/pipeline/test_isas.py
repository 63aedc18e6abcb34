"""Other processors: a package under qemu's Nehalem (no AVX) and Haswell (AVX2), and AVX-512's sixteen lanes run on eight."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sealift
from sealift.passes.lower_to_loops import lower_to_loops
from sealift.targets.isa import AVX2
from tests.expect.models import NAMES, inputs_of, read_graph, weights_of
from tests.passes import random_graphs as rg
from tests.pipeline.conftest import arguments
from tests.support_native import NativeBatch, host_isa, optimize

ROOT = Path(__file__).resolve().parents[2]
QEMU = shutil.which("qemu-x86_64")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed: apt-get install qemu-user")
CPUS = {"Nehalem": "baseline", "Haswell": "avx2"}
CODES = {"f": 2, "i": 0, "b": 6}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/pipeline/run_file.c, linked with the installed runtime."""
    lib = next((p / "lib" for p in map(Path, sealift.__path__) if (p / "lib/libsealift.so").exists()), None)
    if lib is None:
        found = sorted((ROOT / "build").glob("**/libsealift.so"), key=lambda p: p.stat().st_mtime)
        assert found, "no libsealift.so: make dev"
        lib = found[-1].parent
    target = tmp_path_factory.mktemp("runner") / "run_file"
    source = Path(__file__).with_name("run_file.c")
    command = ["gcc", "-std=c11", "-O1", "-Wall", "-Werror", f"-I{ROOT / 'contracts'}", str(source), str(lib / "libsealift.so"), f"-Wl,-rpath,{lib}"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


def write_inputs(path: Path, args: tuple[torch.Tensor, ...]) -> None:
    pieces = [np.int64(len(args)).tobytes()]
    for t in args:
        a = t.numpy()
        pieces += [np.array([CODES[a.dtype.kind], 8 * a.itemsize, a.ndim, *a.shape], np.int64).tobytes(), a.tobytes()]
    path.write_bytes(b"".join(pieces))


@needs_qemu
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("name", "sizes"), [("mlp", (8,)), ("mlp", (1,)), ("block", (2, 33)), ("block", (1, 1))])
def test_package_on_another_processor(
    cpu: str, name: str, sizes: tuple[int, ...], packages: dict[str, Path], exported: dict[str, Any], runner: Path, tmp_path: Path
) -> None:
    args = arguments(name, *sizes)
    write_inputs(tmp_path / "in", args)
    assert QEMU is not None
    command = [QEMU, "-cpu", cpu, str(runner), str(packages[name]), str(tmp_path / "in"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == CPUS[cpu]
    with torch.no_grad():
        wanted = exported[name].module()(*args).numpy()
    np.testing.assert_allclose(np.fromfile(tmp_path / "out", np.float32).reshape(wanted.shape), wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.skipif(host_isa() is not AVX2, reason="this machine has no AVX2")
def test_sixteen_lanes_on_avx2() -> None:
    """The code of AVX-512 with GCC's vectors of 16, which the compiler splits: loops, tails and folds are those of AVX-512."""
    graphs = {name: read_graph(name) for name in NAMES}
    random = {seed: rg.random_graph(seed) for seed in range(200, 206)}
    loops = [optimize(lower_to_loops(g)) for g in (*graphs.values(), *random.values())]
    wide, usual = NativeBatch(loops, AVX2, ("-O1", "-DSEALIFT_LANES=16")), NativeBatch(loops, AVX2)
    for position, graph in enumerate(graphs.values()):
        for n in (1, 2, 33):
            sizes = {s.name: n for s in graph.sizes}
            weights = weights_of(graph)
            values = {**inputs_of(graph, sizes), **{c.value.name: weights[c.fqn] for c in graph.constants}}
            for a, b in zip(wide.run(position, values, sizes), usual.run(position, values, sizes), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    for position, (seed, graph) in enumerate(random.items(), start=len(graphs)):
        for n in (0, 1, 2, 33):
            sizes = {"n": n, "m": 3}
            inputs, weights = rg.random_inputs(graph, sizes, seed)
            wanted = rg.run_eager(graph, inputs, weights, sizes)
            got = wide.run(position, {**inputs, **rg.by_name(graph, weights)}, sizes)
            rg.assert_close(got, wanted, graph, f"seed {seed}, {sizes}: sixteen lanes", 2.0)
