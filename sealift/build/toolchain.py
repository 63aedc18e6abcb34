"""Sources -> library: the compiler, its flags, units side by side, objects kept by content."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from sealift.build.resources import Resources
from sealift.diag.errors import CompileError, InternalError
from sealift.targets.isa import BASELINE, Isa

_LOG = logging.getLogger(__name__)

# Numerics: no contraction of separate operations (eager has none), no fast-math. math.h may be assumed not to set errno.
_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-math-errno", "-fno-exceptions", "-fno-rtti",
    "-fno-asynchronous-unwind-tables", "-fno-semantic-interposition", "-ffunction-sections", "-fno-ident", "-Wall", "-Wno-psabi",
    "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
)  # fmt: skip
_LINK_FLAGS = (
    "-shared",
    "-static-libgcc",
    "-Wl,--gc-sections",
    "-Wl,--as-needed",
    "-Wl,-z,noexecstack",
    "-Wl,-z,relro",
    "-Wl,--build-id=none",
    "-Wl,--no-undefined",
)


@dataclass(frozen=True)
class Toolchain:
    compiler: str  # path of a g++
    version: str  # "g++ 12.2.0"
    debug_symbols: bool
    jobs: int
    cache: ObjectCache

    @property
    def flags(self) -> tuple[str, ...]:
        return (*_FLAGS, "-g") if self.debug_symbols else _FLAGS


def find_toolchain(jobs: int, debug_symbols: bool, cache_dir: Path | str | None) -> Toolchain:
    """E-TOOL-001 without a C++ compiler, or where CXX names none."""
    compiler = find_compiler(os.environ)
    return Toolchain(compiler, _version(compiler), debug_symbols, jobs or _cores(), ObjectCache(_cache_path(cache_dir)))


_LAUNCHERS = frozenset({"ccache", "sccache", "distcc"})  # sealift keeps compiled units itself


def find_compiler(environ: Mapping[str, str]) -> str:
    """The path of the program that CXX names, without a launcher before it; of g++ where it names none."""
    named = environ.get("CXX", "").strip()
    words = named.split()
    if len(words) == 2 and os.path.basename(words[0]) in _LAUNCHERS:
        words = words[1:]
    compiler = shutil.which(named or "g++") or (shutil.which(words[0]) if len(words) == 1 else None)
    if compiler is None and named:
        raise CompileError(
            f"CXX={named!r} is no program that can be run",
            code="E-TOOL-001",
            help="CXX names one program, without flags; on Debian and Ubuntu: apt-get install g++",
        )
    if compiler is None:
        raise CompileError(
            "no C++ compiler was found: sealift compiles a model with g++",
            code="E-TOOL-001",
            help="on Debian and Ubuntu: apt-get install g++; `sealift doctor` checks the rest",
        )
    return compiler


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@lru_cache(maxsize=8)
def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "-dumpfullversion", "-dumpversion"], capture_output=True, text=True)
    if done.returncode:
        raise CompileError(f"{compiler} does not run: {done.stderr.strip()}", code="E-TOOL-001", help="`sealift doctor` says what to install")
    return f"g++ {done.stdout.strip()}"


def _cache_path(cache_dir: Path | str | None) -> Path | None:
    if cache_dir == "":
        return None
    if cache_dir is not None:
        return Path(cache_dir)
    home = os.environ.get("XDG_CACHE_HOME") or (os.path.join(os.environ["HOME"], ".cache") if os.environ.get("HOME") else None)
    return Path(home) / "sealift" if home else None


_DIGEST_BYTES = 32  # SHA-256, behind an entry's object


@dataclass(frozen=True)
class ObjectCache:
    """Object files by the digest of all that made them, each with its own digest. No directory: nothing is kept. A cache that cannot be
    written is left alone."""

    directory: Path | None

    def get(self, key: str) -> bytes | None:
        """None where there is no entry, and where its bytes are not those that were put there."""
        if self.directory is None:
            return None
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        data, digest = entry[:-_DIGEST_BYTES], entry[-_DIGEST_BYTES:]
        return data if hashlib.sha256(data).digest() == digest else None

    def put(self, key: str, data: bytes) -> None:
        if self.directory is None:
            return
        target = self._path(key)
        temporary: str | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
                temporary = file.name
                file.write(data + hashlib.sha256(data).digest())
            os.replace(temporary, target)
            temporary = None
        except OSError:
            return
        finally:
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / "objects" / key[:2] / f"{key[2:]}.o"


GLUE = ("run.cpp", "model.cpp")  # sources without a loop of their own
LONG_GLUE_CHARS = 20_000


@dataclass(frozen=True)
class Unit:
    """One compilation: a source for one instruction set."""

    source: str  # file name
    text: str
    isa: Isa

    @property
    def optimization(self) -> tuple[str, ...]:
        """Long straight-line code that only fills in arguments (a deep network's run function) gains nothing from -O2 but compile time."""
        return ("-O1",) if self.source in GLUE and len(self.text) > LONG_GLUE_CHARS else ()

    @property
    def object_name(self) -> str:
        return f"{self.isa.name}_{self.source.removesuffix('.cpp')}.o"


class Sources(Protocol):
    """common: file name -> text, compiled once. per_isa: compiled for each instruction set. headers: for both."""

    @property
    def common(self) -> Mapping[str, str]: ...
    @property
    def per_isa(self) -> Mapping[str, str]: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


def build_library(
    source: Sources,
    isas: Sequence[Isa],
    toolchain: Toolchain,
    resources: Resources,
) -> bytes:
    """Compiles every unit and links them with the kernel families: the bytes of a shared library that needs libc and libm only.

    Errors: E-FILE-002 where the temporary directory is full."""
    units = [Unit(name, text, isa) for isa in isas for name, text in source.per_isa.items()]
    units += [Unit(name, text, BASELINE) for name, text in source.common.items()]
    salt = hashlib.sha256("\0".join([toolchain.version, *toolchain.flags, _headers_digest(resources), *source.headers.values()]).encode()).hexdigest()
    with _workspace() as directory:
        for name, text in source.headers.items():
            (directory / name).write_text(text)
        units.sort(key=lambda u: -len(u.text))  # the longest first, so that no core waits for it alone
        with ThreadPoolExecutor(max_workers=toolchain.jobs) as pool:
            objects = list(pool.map(lambda u: _compile_unit(u, directory, toolchain, resources, salt), units))
        return _link(sorted(objects), directory, toolchain, resources)


def keep_sources(source: Sources, isas: Sequence[Isa], directory: Path) -> None:
    """The generated files for a person or a debugger: `set substitute-path model DIRECTORY` finds them from a library with symbols."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in {**source.headers, **source.per_isa, **source.common}.items():
        (directory / name).write_text(text, encoding="utf-8")
    compiled = [(isa.name, name) for isa in isas for name in source.per_isa] + [(BASELINE.name, name) for name in source.common]
    for isa, name in compiled:  # the name that a unit is compiled under
        link = directory / f"{isa}_{name}"
        link.unlink(missing_ok=True)
        link.symlink_to(name)


@contextmanager
def _workspace() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="sealift-build-") as name:
            yield Path(name).resolve()
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _disk_is_full("building the model library") from error


_FULL = {errno.ENOSPC: "No space left", errno.EDQUOT: "Disk quota exceeded", errno.EFBIG: "File too large"}  # as tools word it


def _disk_is_full(what: str) -> CompileError:
    return CompileError(f"{what}: no space left on the device of {tempfile.gettempdir()}", code="E-FILE-002", help="free space there or set TMPDIR")


def _compile_unit(unit: Unit, directory: Path, toolchain: Toolchain, resources: Resources, salt: str) -> str:
    key = hashlib.sha256("\0".join([salt, unit.isa.name, *unit.isa.flags, unit.source, unit.text]).encode()).hexdigest()
    target = directory / unit.object_name
    kept = toolchain.cache.get(key)
    if kept is not None:
        target.write_bytes(kept)
        return unit.object_name
    source = f"{unit.isa.name}_{unit.source}"
    (directory / source).write_text(unit.text)
    includes = [f"-I{d}" for d in (".", *map(str, resources.include_dirs))]
    defines = [f"-DSEALIFT_TARGET_ISA={unit.isa.number}", f"-frandom-seed={unit.source}"]
    command = [
        toolchain.compiler, *toolchain.flags, *unit.optimization, *unit.isa.flags, *defines, *includes,
        *_neutral_paths(toolchain, directory, resources), "-c", source, "-o", unit.object_name,
    ]  # fmt: skip
    _run(command, directory, f"compiling {unit.source} for {unit.isa.name}", if_compiler_crashes="-O1")
    toolchain.cache.put(key, target.read_bytes())
    return unit.object_name


def _neutral_paths(toolchain: Toolchain, directory: Path, resources: Resources) -> list[str]:
    """Debug information names files as if they lay in model/ and sealift/: the same bytes from any directory."""
    named = [(directory, "model"), *((d, "sealift") for d in reversed(resources.include_dirs))]  # the last that fits is taken
    return [f"-fdebug-prefix-map={d}={name}" for d, name in named] if toolchain.debug_symbols else []


def _link(objects: Sequence[str], directory: Path, toolchain: Toolchain, resources: Resources) -> bytes:
    archives = ["-Wl,--whole-archive", str(resources.aoti_archive), "-Wl,--no-whole-archive"] if resources.aoti_archive is not None else []
    exports = [f"-Wl,--version-script={resources.export_map}"] if resources.export_map is not None else []
    strip = [] if toolchain.debug_symbols else ["-s"]
    # -nodefaultlibs: the driver is g++'s, but libstdc++ must not be among the libraries needed.
    libraries = [*archives, str(resources.kernels_archive), "-lm", "-lc", "-lgcc"]
    command = [toolchain.compiler, *_LINK_FLAGS, *exports, *strip, "-nodefaultlibs", *objects, *libraries, "-o", "model.so"]
    _run(command, directory, "linking the model library")
    return (directory / "model.so").read_bytes()


def _run(command: Sequence[str], directory: Path, what: str, if_compiler_crashes: str = "") -> None:
    """`if_compiler_crashes`: the flag to try once more with. Compilers have bugs."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode and if_compiler_crashes and "internal compiler error" in done.stderr:
        _LOG.warning("%s: the compiler crashed, once more with %s; its kernels may run slower", what, if_compiler_crashes)
        done = subprocess.run([*command, if_compiler_crashes], cwd=directory, capture_output=True, text=True)
    if done.returncode == 0:
        return
    if any(text in done.stderr for text in _FULL.values()):
        raise _disk_is_full(what)
    raise InternalError(f"{what} failed (exit {done.returncode}); this is a bug in sealift.\n  command: {' '.join(command)}\n{done.stderr[:4000]}")


@lru_cache(maxsize=4)
def _headers_digest(resources: Resources) -> str:
    digest = hashlib.sha256()
    for directory in resources.include_dirs:
        for sub in ("kernels", "."):
            pattern = "**/*.h" if sub == "kernels" else "*.h"
            for path in sorted((directory / sub).glob(pattern)):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
