"""A model's library: what it needs and exports, the same bytes each time, its cache, and what happens when building goes wrong."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sealift import pipeline
from sealift.build import toolchain as tc
from sealift.build.resources import find_resources
from sealift.build.toolchain import ObjectCache, build_library, find_compiler, find_toolchain
from sealift.diag.errors import CompileError, InternalError
from sealift.load import load
from sealift.options import Options
from sealift.targets.isa import AVX2, AVX512, BASELINE
from tests.expect.models import imported, read_graph

ROOT = Path(__file__).resolve().parents[2]
GLIBC_BASELINE = (2, 28)


def compile_model(name: str = "mlp", **options: object) -> pipeline.Compiled:
    return pipeline.compile_graph(imported(read_graph(name)), Options(**{"jobs": 2, **options}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def block(cache: Path) -> pipeline.Compiled:
    return compile_model("block", cache_dir=cache)


@pytest.fixture(scope="module")
def library(block: pipeline.Compiled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "model.so"
    path.write_bytes(block.library)
    return path


def tool(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# ---- what the library needs and exports ----------------------------------------------------------------------------------------------


def test_needs_libc_and_libm_only(library: Path) -> None:
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", tool("readelf", "-dW", str(library)))
    assert set(needed) <= {"libc.so.6", "libm.so.6"}, needed


def test_no_symbol_newer_than_the_glibc_baseline(library: Path) -> None:
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", tool("readelf", "-VW", str(library)))}
    assert versions and max(versions) <= GLIBC_BASELINE, sorted(versions)


def test_looks_up_no_torch_symbol_and_no_libstdcxx(library: Path) -> None:
    """Undefined symbols: libc's and libm's, or weak (aoti_record_function and the like, looked up where PyTorch is)."""
    lines = [line for line in tool("readelf", "-W", "--dyn-syms", str(library)).splitlines() if " UND " in line and "GLOBAL" in line]
    strong = {line.split()[-1] for line in lines if "@" not in line.split()[-1] and "@" not in line}
    assert not strong, strong


def test_exports_its_table_and_the_container_interface_only(library: Path) -> None:
    exported = {line.split()[-1].partition("@")[0] for line in tool("nm", "-D", "--defined-only", str(library)).splitlines()}
    assert "sealift_model_get_api" in exported
    assert all(name.startswith(("sealift_", "AOTInductor")) for name in exported), exported


def test_stack_is_not_executable(library: Path) -> None:
    (line,) = [text for text in tool("readelf", "-lW", str(library)).splitlines() if "GNU_STACK" in text]
    assert "RW " in line and "RWE" not in line


def weak_symbols(path: Path) -> list[str]:
    """Definitions that a linker could merge with another file's: weak, or unique."""
    lines = tool("nm", "--defined-only", str(path)).splitlines()
    return [line for line in lines if re.match(r"[0-9a-f]* ?[VWu] ", line.strip())]


def test_no_weak_symbol_in_an_isa_unit(cache: Path, block: pipeline.Compiled) -> None:
    """A weak symbol compiled for AVX-512 could be the one that the linker keeps for all."""
    objects = list((cache / "objects").rglob("*.o"))
    assert len(objects) >= 3 * len(block.source.per_isa) + 1
    assert not [w for path in objects for w in weak_symbols(path)]


def test_no_weak_symbol_in_the_archives_isa_members(tmp_path: Path) -> None:
    archive = find_resources().kernels_archive
    subprocess.run(["ar", "x", str(archive)], cwd=tmp_path, check=True)
    members = list(tmp_path.glob("*.o"))
    assert members and not [w for path in members for w in weak_symbols(path)]


# ---- the same bytes ------------------------------------------------------------------------------------------------------------------


def test_same_bytes_from_another_directory_and_a_cold_cache(block: pipeline.Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "a directory"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    again = compile_model("block", cache_dir="", jobs=1)
    assert again.library == block.library
    assert str(elsewhere).encode() not in again.library and str(ROOT).encode() not in again.library
    assert not list(elsewhere.iterdir()), "the workspace is gone"


def test_same_bytes_with_debug_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        libraries.append(compile_model("mlp", cache_dir="", debug_symbols=True, isas=("baseline",)).library)
    assert libraries[0] == libraries[1]
    assert b".debug_info" in libraries[0]


# ---- the cache -----------------------------------------------------------------------------------------------------------------------


class Calls:
    """Counts what is run, and can stand in its way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commands: list[list[str]] = []
        run = tc._run

        def counted(command: list[str], directory: Path, what: str, **options: str) -> None:
            self.commands.append(list(command))
            run(command, directory, what, **options)

        monkeypatch.setattr(tc, "_run", counted)

    @property
    def compiled(self) -> list[str]:
        return [c[c.index("-c") + 1] for c in self.commands if "-c" in c]


def test_cache_hit_runs_no_compiler(block: pipeline.Compiled, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    assert compile_model("block", cache_dir=cache).library == block.library
    assert calls.compiled == [] and len(calls.commands) == 1, "the linker alone"


def test_what_makes_the_object_makes_the_key(cache: Path, block: pipeline.Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    chain, isas, source = find_toolchain(2, False, cache), [BASELINE, AVX2, AVX512], block.source
    one = {"run.cpp": source.per_isa["run.cpp"] + "\n// changed\n"}
    build_library(replace(source, per_isa={**source.per_isa, **one}), isas, chain, find_resources())
    assert sorted(calls.compiled) == ["avx2_run.cpp", "avx512_run.cpp", "baseline_run.cpp"]
    calls.commands.clear()
    build_library(source, [BASELINE, replace(AVX2, flags=(*AVX2.flags, "-mtune=generic")), AVX512], chain, find_resources())
    assert sorted(calls.compiled) == ["avx2_kernels_0.cpp", "avx2_run.cpp"]
    everything = len(isas) * len(source.per_isa) + len(source.common)
    calls.commands.clear()
    build_library(replace(source, headers={"kernels.h": source.headers["kernels.h"] + "\n"}), isas, chain, find_resources())
    assert len(calls.compiled) == everything, "a header is in all of them"
    calls.commands.clear()
    build_library(source, isas, replace(chain, version="g++ 99"), find_resources())
    assert len(calls.compiled) == everything


def broken_caches(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    file = tmp_path / "file"
    file.write_text("not a directory")
    yield "a file", file
    yield "below a file", file / "cache"
    yield "not to be made", Path("/proc/nowhere")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "objects").write_text("")
    yield "objects is a file", taken


def test_broken_cache_directory_is_survived(tmp_path: Path) -> None:
    wanted = compile_model("mlp", cache_dir="", isas=("baseline",)).library
    for what, path in broken_caches(tmp_path):
        assert compile_model("mlp", cache_dir=path, isas=("baseline",)).library == wanted, what


def test_damaged_object_in_the_cache(tmp_path: Path) -> None:
    """A truncated or foreign entry is no entry: the unit is compiled again and the entry replaced."""
    wanted = compile_model("mlp", cache_dir=tmp_path, isas=("baseline",)).library
    for damage in (lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b"\x7fELF"):
        for path in (tmp_path / "objects").rglob("*.o"):
            path.write_bytes(damage(path.read_bytes()))
        assert compile_model("mlp", cache_dir=tmp_path, isas=("baseline",)).library == wanted
    assert compile_model("mlp", cache_dir=tmp_path, isas=("baseline",)).library == wanted


def test_cache_holds_whole_objects_only(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    assert cache.get("ab" * 32) is None
    cache.put("ab" * 32, b"object")
    assert cache.get("ab" * 32) == b"object"
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [("ab" * 32)[2:] + ".o"]
    ObjectCache(None).put("ab" * 32, b"object")
    assert ObjectCache(None).get("ab" * 32) is None


def test_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert find_toolchain(1, False, None).cache.directory == Path("/somewhere/sealift")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert find_toolchain(1, False, None).cache.directory == Path("/home/me/.cache/sealift")
    monkeypatch.delenv("HOME")
    assert find_toolchain(1, False, None).cache.directory is None
    assert find_toolchain(1, False, "").cache.directory is None


# ---- what goes wrong -----------------------------------------------------------------------------------------------------------------


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "g++")
    with pytest.raises(CompileError) as caught:
        compile_model("mlp")
    assert caught.value.code == "E-TOOL-001" and "apt-get install g++" in str(caught.value)


@pytest.mark.parametrize("named", ["nope", "g++ -m32", "ccache nope"])
def test_cxx_that_names_no_program_is_said_and_not_replaced(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CompileError, match=re.escape(f"CXX={named!r}")) as caught:
        find_compiler({"CXX": named})
    assert caught.value.code == "E-TOOL-001"


def test_cxx_may_have_a_launcher() -> None:
    assert find_compiler({}) == find_compiler({"CXX": ""}) == find_compiler({"CXX": "ccache g++"}) == shutil.which("g++")


def test_compiler_that_crashes_is_asked_once_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fake = tmp_path / "g++"
    real = shutil.which("g++")
    crash = 'echo "internal compiler error: Segmentation fault" >&2; exit 1'
    fake.write_text(f'#!/bin/sh\ncase "$*" in *-O1*) ;; *" -c "*) {crash};; esac\nexec {real} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    assert compile_model("mlp", cache_dir="", isas=("baseline",)).library[:4] == b"\x7fELF"
    assert "the compiler crashed, once more with -O1" in caplog.text
    fake.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) {crash};; esac\nexec {real} "$@"\n')
    with pytest.raises(InternalError, match="internal compiler error"):
        compile_model("mlp", cache_dir="", isas=("baseline",))


def test_a_row_that_is_any_as_a_number_does_not_crash_the_compiler(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """g++ 12.2 did at -O2, on a mask widened as unsigned numbers."""

    class AnyOfRow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.any(-1).long()

    x = torch.tensor([[0] * 8, [0, 0, 3, 0, 0, -1, 0, 0]])
    path = pipeline.compile(torch.export.export(AnyOfRow(), (x,)), tmp_path / "any.pt2", options=Options(cache_dir="", isas=("baseline", "avx2")))
    assert "the compiler crashed" not in caplog.text
    assert load(path)(x).tolist() == [0, 1]


def test_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CXX", str(fake))
    with pytest.raises(CompileError) as caught:
        compile_model("mlp")
    assert caught.value.code == "E-TOOL-001" and "broken" in str(caught.value)


def test_compiler_that_refuses_is_our_bug_with_the_command(block: pipeline.Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    bad = replace(block.source, per_isa={"run.cpp": "int f() { return undeclared; }"})
    with pytest.raises(InternalError, match=r"(?s)compiling run.cpp for baseline failed.*command: .*undeclared"):
        build_library(bad, [BASELINE], find_toolchain(1, False, ""), find_resources())
    assert not list(tmp_path.iterdir())


COMPILE = """
import sys, tempfile
sys.path[:0] = [{root!r}]
from sealift import pipeline
from sealift.options import Options
from tests.expect.models import imported, read_graph
{before}
try:
    pipeline.compile_graph(imported(read_graph("block")), Options(cache_dir={cache!r}, jobs=2))
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(3)
"""


def program(tmp_path: Path, before: str = "", cache: str = "") -> tuple[list[str], dict[str, str]]:
    work = tmp_path / "work"
    work.mkdir()
    text = COMPILE.format(root=str(ROOT), before=before, cache=cache)
    return [sys.executable, "-c", text], {**os.environ, "TMPDIR": str(work)}


def test_full_disk_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    """No file may grow past a few kilobytes: what a full disk does to the compiler."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    command, environment = program(tmp_path, limit, str(tmp_path / "cache"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("CompileError") and "E-FILE-002" in done.stdout and "Traceback" not in done.stderr, done.stdout
    assert not list((tmp_path / "work").iterdir())
    for entry in (p.read_bytes() for p in (tmp_path / "cache").rglob("*") if p.is_file()):  # a small unit may have been done before
        assert hashlib.sha256(entry[:-32]).digest() == entry[-32:], "half an object in the cache"


def test_full_temporary_directory(tmp_path: Path) -> None:
    """A file system of 64 kilobytes, where the test may mount one."""
    disk = tmp_path / "work"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs here; the test with RLIMIT_FSIZE stands for it")
    try:
        text = COMPILE.format(root=str(ROOT), before="", cache="")
        done = subprocess.run([sys.executable, "-c", text], env={**os.environ, "TMPDIR": str(disk)}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 3 and "E-FILE-002" in done.stdout and str(disk) in done.stdout, done.stdout + done.stderr
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("wait_s", [0.0, 0.4])
def test_interrupt_leaves_nothing_behind(tmp_path: Path, wait_s: float) -> None:
    """Ctrl-C reaches the whole group, as in a terminal."""
    command, environment = program(tmp_path)
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    work = tmp_path / "work"
    deadline = time.monotonic() + 60
    while not list(work.glob("sealift-build-*/*.cpp")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(wait_s)
    assert process.poll() is None, process.stderr and process.stderr.read()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT, 1), errors
    assert "KeyboardInterrupt" in errors
    assert not list(work.iterdir())
