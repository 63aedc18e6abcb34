"""The bridge: the native library that hooks an ordinary PyTorch process, one for each version of torch, whose hooks are in no stable ABI.

It is built by `sealift bridge build`, kept in the user's cache (or in the wheel) under the version of torch, the ABI of its strings and a digest
of the sources; nothing is ever compiled because a program runs."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sealift import _runtime
from sealift.diag.errors import SealiftError

HOST_VERSION = 2  # SEALIFT_OBSERVE_VERSION
BUILD_COMMAND = "sealift bridge build"
_BRIDGE, _EARLY = "libsealift_torch_bridge.so", "libsealift_torch_api_usage.so"
# The longest to compile first, so that two cores share the work evenly: 19 s, 9, 7, 1 and 2 of processor time.
_BRIDGE_SOURCES = ("export_hook.cpp", "bridge.cpp", "values.cpp", "debug_info.cpp")
_EARLY_SOURCES = ("api_usage.cpp",)
# NDEBUG: without it torch's headers describe another RecordFunction than its libraries have.
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-DNDEBUG", "-fvisibility=hidden", "-Wall", "-pipe")


class BridgeError(SealiftError, RuntimeError):
    """PyTorch's operators cannot be observed: there is no bridge for this torch."""

    code = "E-BRIDGE-001"


class BridgeBuildError(SealiftError, RuntimeError):
    """The bridge cannot be built."""

    code = "E-BRIDGE-002"


@dataclass(frozen=True)
class Torch:
    """The torch that this Python would import, without importing it."""

    directory: Path
    version: str  # "2.13.0+cpu"
    cxx11_abi: bool

    @property
    def libraries(self) -> Path:
        return self.directory / "lib"


@dataclass(frozen=True)
class Bridge:
    directory: Path

    @property
    def library(self) -> Path:
        return self.directory / _BRIDGE

    @property
    def early_library(self) -> Path:
        """API usage alone, to be loaded before torch."""
        return self.directory / _EARLY

    @property
    def is_there(self) -> bool:
        return self.library.is_file() and self.early_library.is_file()


def find_torch() -> Torch | None:
    """None where torch is not installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    directory = Path(next(iter(spec.submodule_search_locations)))
    try:
        found = re.search(r"^__version__ = ['\"]([^'\"]+)", (directory / "version.py").read_text(), re.M)
        c10 = (directory / "lib" / "libc10.so").read_bytes()
    except OSError:
        return None
    return Torch(directory, found[1], b"NSt7__cxx1112basic_string" in c10) if found else None


def find_bridge(torch: Torch, cache_dir: Path | None = None) -> Bridge:
    """Where the bridge for this torch is, or would be; ask `is_there`."""
    name = _name(torch)
    shipped = Bridge(_package() / "lib" / "torch_bridge" / name)
    return shipped if shipped.is_there else Bridge((cache_dir or _cache()) / "torch_bridge" / name)


def missing(torch: Torch) -> BridgeError:
    return BridgeError(
        f"PyTorch's operators are not observed: there is no bridge for torch {torch.version}; help: run `{BUILD_COMMAND}` once (half a minute)"
    )


@dataclass(frozen=True)
class Built:
    bridge: Bridge
    torch: Torch
    seconds: float
    was_there: bool


def build_bridge(cache_dir: Path | None = None, into: Path | None = None, force: bool = False) -> Built:
    """Compiles the bridge for the installed torch, unless it is there. Visible whole or not at all; several may build at once.

    into: the folder of a wheel's tree, instead of the cache. Error: BridgeBuildError."""
    torch = find_torch()
    if torch is None:
        raise BridgeBuildError("torch is not installed; help: pip install 'sealift[compile]'")
    bridge = Bridge(into / _name(torch)) if into is not None else find_bridge(torch, cache_dir)
    started = time.monotonic()
    if bridge.is_there and not force:
        return Built(bridge, torch, 0.0, True)
    named = os.environ.get("CXX", "g++").split()
    compiler = shutil.which(named[-1]) if len(named) <= 2 and named else None  # "ccache g++", too
    if compiler is None:
        what = f"no C++ compiler was found: {' '.join(named)!r} is no program that can be run"
        raise BridgeBuildError(f"{what}; help: on Debian and Ubuntu: apt-get install g++")
    try:
        bridge.directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=bridge.directory.parent, prefix=".building-") as name:
            made = Path(name) / "bridge"
            made.mkdir()
            _compile(compiler, torch, Path(name), made)
            _install(made, bridge.directory)
    except OSError as error:
        raise BridgeBuildError(f"{bridge.directory.parent} cannot be written: {error}; help: set XDG_CACHE_HOME to a folder that can") from error
    return Built(bridge, torch, time.monotonic() - started, False)


def _compile(compiler: str, torch: Torch, work: Path, target: Path) -> None:
    source, contracts = _source_dir(), _contracts_dir()
    include = torch.directory / "include"
    flags = (
        *_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}", f"-I{source}", f"-I{contracts}", "-isystem", str(include), "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
    )  # fmt: skip
    sources = (*_BRIDGE_SOURCES, *_EARLY_SOURCES)
    with ThreadPoolExecutor(max_workers=min(len(sources), os.cpu_count() or 1)) as pool:
        list(pool.map(lambda name: _run([compiler, *flags, "-c", str(source / name), "-o", str(work / f"{name}.o")], torch), sources))
    link = (compiler, "-shared", "-s", "-Wl,-z,nodelete", f"-L{torch.libraries}")
    _run([*link, *(str(work / f"{n}.o") for n in _BRIDGE_SOURCES), "-ltorch_cpu", "-lc10", "-o", str(target / _BRIDGE)], torch)
    _run([*link, *(str(work / f"{n}.o") for n in _EARLY_SOURCES), "-lc10", "-o", str(target / _EARLY)], torch)


def _install(made: Path, directory: Path) -> None:
    try:
        os.replace(made, directory)
    except OSError:  # it is there: somebody was faster, or it is built anew
        for file in made.iterdir():
            os.replace(file, directory / file.name)


def _run(command: list[str], torch: Torch) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BridgeBuildError(
            f"the bridge does not compile against torch {torch.version}; help: report this with the command and the first error\n"
            f"  command: {' '.join(command)}\n{done.stderr[:3000]}"
        )


def load_early(bridge: Bridge, torch: Torch) -> None:
    """Before `import torch`: sends its API usage to the runtime."""
    ctypes.CDLL(str(torch.libraries / "libc10.so"))
    library = ctypes.CDLL(str(bridge.early_library))
    library.sealift_torch_api_usage_install(ctypes.c_void_p(_runtime.observe_host(HOST_VERSION)))


def load_bridge(bridge: Bridge, torch: Torch) -> ctypes.CDLL:
    """After `import torch`. Error: BridgeError."""
    if not bridge.is_there:
        raise missing(torch)
    try:
        library = ctypes.CDLL(str(bridge.library))
    except OSError as error:
        raise BridgeError(f"the bridge for torch {torch.version} does not load: {error}; help: `{BUILD_COMMAND} --force`") from error
    if not library.sealift_torch_bridge_install(ctypes.c_void_p(_runtime.observe_host(HOST_VERSION))):
        raise BridgeError(f"the bridge {bridge.library} was built for another sealift; help: `{BUILD_COMMAND} --force`")
    library.sealift_torch_bridge_time_adds.restype = ctypes.c_double
    library.sealift_torch_bridge_time_adds.argtypes = [ctypes.c_int64]
    return library


def _name(torch: Torch) -> str:
    version = re.sub(r"[^\w.+-]", "_", torch.version)
    return f"torch-{version}-abi{int(torch.cxx11_abi)}-{_sources_digest()[:12]}"


def _sources_digest() -> str:
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in (*sorted(_source_dir().glob("*.cpp")), *sorted(_source_dir().glob("*.h")), _contracts_dir() / "sealift_observe.h"):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _package() -> Path:
    return Path(__file__).resolve().parent.parent


def _source_dir() -> Path:
    checkout = _package().parent / "torch_bridge"
    return checkout if (checkout / "bridge.cpp").is_file() else _package() / "share" / "torch_bridge"


def _contracts_dir() -> Path:
    checkout = _package().parent / "contracts"
    return checkout if (checkout / "sealift_observe.h").is_file() else _package() / "include"


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or (os.path.join(os.environ["HOME"], ".cache") if os.environ.get("HOME") else None)
    return Path(home) / "sealift" if home else Path(tempfile.gettempdir()) / f"sealift-{os.getuid()}"
