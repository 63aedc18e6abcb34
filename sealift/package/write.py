"""Writes a package (contracts/PACKAGE.md): a PT2 archive whose bytes depend on nothing but its arguments and its file name.

The file appears whole or not at all: it is written under a temporary name beside its place, synced, and renamed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealift.package.crc32c import Buffer, crc32c
from sealift.package.errors import DiskFullError, FileError, ModelNameError, PackageError
from sealift.package.span_file import SpanFile

SCHEMA = (1, 0)
SCHEMA_SHARED = (1, 1)  # of packages whose models share a weights file
SHARED_WEIGHTS = "data/constants/sealift.weights.bin"  # PyTorch's loaders extract it beside each model's library
ALIGNMENT_BYTES = 64
_CHUNK_BYTES = 1 << 20
_SPLIT_BYTES = 8 << 20  # of a member, from which two threads work on it
_CHUNKS_AHEAD = 8
_ZIP32_LIMIT = 0xFFFFFFFF
_FIXED_TIME, _FIXED_DATE = 0, 0x0021  # 1980-01-01 00:00, the earliest ZIP has
_PADDING_ID = 0x4246  # "FB", as PyTorch's writer names its padding
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


@dataclass(frozen=True)
class Made:
    """Bytes that are made when they are written."""

    size_bytes: int
    make: Callable[[], Buffer]


Weights = Sequence[tuple[int, Buffer | Made]]


@dataclass(frozen=True)
class PackagedModel:
    """One model's part of a package. `weights` are (offset, bytes) in ascending order, zeros between, or a file with those bytes;
    `weights_bytes` pads the end with zeros to that size. None: its weights are in the file that the package's models share.
    `library`: where it is a function, that is called once the weights are written, so that they are not waited with."""

    name: str
    library: bytes | Path | Callable[[], bytes]
    weights: Weights | Path | None = ()
    manifest: Mapping[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None


def write_package(
    path: str | os.PathLike[str],
    models: Sequence[PackagedModel],
    metadata: Mapping[str, str] | None = None,
    extra_files: Mapping[str, bytes] | None = None,
    manifest: Mapping[str, Any] | None = None,
    shared_weights: Weights = (),
) -> Path:
    """Writes the package and returns its path. `metadata` reaches get_metadata() in PyTorch; `manifest` is merged into the top of
    sealift/manifest.json (toolchain, options). `shared_weights` are those of the models that have None for theirs.

    Errors: E-FILE-001 where the place cannot be written, E-FILE-002 where the disk is full, E-PACKAGE-001 for a name that cannot be a
    member's, E-PACKAGE-004 for two models of one name. Whatever is raised, KeyboardInterrupt too, no temporary file stays behind."""
    target = _regular_target(path)
    _check_names(models, extra_files or {})
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        needed = _needed_bytes(models, extra_files or {}) + _weights_bytes(_shared(shared_weights))
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb", buffering=0) as raw:
            file = SpanFile(raw.fileno())
            _write_members(_Archive(file, Path(path).stem), models, metadata or {}, extra_files or {}, manifest or {}, shared_weights)
            file.sync()
        os.replace(temporary, target)
        _sync_directory(target.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, FileError) or not isinstance(error, OSError):
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFullError(
                f"no room for {target}: the package needs at least {needed:,} bytes{_free_text(target.parent)}; "
                "help: free space there or give a path on another disk; nothing was left behind"
            ) from error
        raise FileError(
            f"cannot write {target}: {error.strerror or error}; help: the directory must exist and be writable; nothing was left behind"
        ) from error
    return Path(path)


def _regular_target(path: str | os.PathLike[str]) -> Path:
    """Where the file will lie: what symbolic links lead to. A device or a pipe is never replaced by a file."""
    name = os.fspath(path)
    if not name or "\0" in name:
        raise FileError(f"cannot write {name!r}: that is no file's name; help: give the path of the package, such as model.pt2")
    target = Path(os.path.realpath(name)) if os.path.islink(name) else Path(name)
    try:
        mode = target.stat().st_mode
    except OSError:
        return target  # there is nothing; or what stands in the way is said when it is written
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise FileError(f"cannot write {target}: it is {what}; help: give the path of a file")
    return target


def _write_members(
    archive: _Archive,
    models: Sequence[PackagedModel],
    metadata: Mapping[str, str],
    extra_files: Mapping[str, bytes],
    manifest: Mapping[str, Any],
    shared_weights: Weights,
) -> None:
    archive.add("archive_format", b"pt2")
    archive.add("archive_version", b"0")
    archive.add("byteorder", b"little")
    archive.add(".data/version", b"6\n")
    described: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    if shared_weights:
        everything = _shared(shared_weights)
        total = _weights_bytes(everything)
        shared = {"weights": archive.add_stream(SHARED_WEIGHTS, total, _weight_chunks(everything, total), "crc32c").described()}
    schema = SCHEMA_SHARED if shared else SCHEMA
    weights: list[dict[str, Any]] = []
    for model in models:  # before any library, which may still be built
        weights_bytes = 0 if model.weights is None else _weights_bytes(model)
        member = f"{_base(model)}.weights.bin"
        own = (
            {"weights": archive.add_stream(member, weights_bytes, _weight_chunks(model, weights_bytes), "crc32c").described()}
            if weights_bytes
            else {}
        )
        weights.append(shared if model.weights is None else own)
    if any(callable(model.library) for model in models):  # the disk works while libraries are built
        archive.file.sync()
    for model, stored in zip(models, weights, strict=True):
        library = archive.add(f"{_base(model)}.wrapper.so", model.library() if callable(model.library) else model.library)
        # AOTInductor's reader takes strings only and requires this one key.
        archive.add(f"{_base(model)}.wrapper_metadata.json", _json({**metadata, "AOTI_DEVICE_KEY": "cpu"}))
        described.append({**model.manifest, "name": model.name, "library": library.described(), **stored})
    top = {**manifest, "schema": {"major": schema[0], "minor": schema[1]}, "metadata": dict(metadata), "models": described}
    archive.add("sealift/manifest.json", _json(top))
    for name in sorted(extra_files):
        archive.add(f"extra/{name}", extra_files[name])
    lines = [f"sealift-seal {schema[0]}.{schema[1]}", *(member.seal_line() for member in archive.members)]
    archive.add("sealift/seal", ("\n".join(lines) + "\n").encode())
    archive.finish()


def _base(model: PackagedModel) -> str:
    return f"data/aotinductor/{model.name}/{model.name}"


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


# ---- names and sizes --------------------------------------------------------------------------------------------------------------


def _check_names(models: Sequence[PackagedModel], extra_files: Mapping[str, bytes]) -> None:
    names = [m.name for m in models]
    if not names:
        raise PackageError("a package needs at least one model")
    for name in names:
        if not _MODEL_NAME.match(name) or len(name) > 200:
            raise PackageError(f"{name!r} cannot name a model; help: use letters, digits, '_', '-' and '.', first a letter, digit or '_'")
        if names.count(name) > 1:
            raise ModelNameError(f"two models are called {name!r}; help: give each its own name")
    for name in extra_files:
        if not is_safe_member(name):
            raise PackageError(f"{name!r} cannot name an extra file; help: a relative path without '.', '..' or '\\'")


def is_safe_member(name: str) -> bool:
    """Rule 1 of contracts/PACKAGE.md, for a name below the top directory."""
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) < 1 << 15
        and not any(c in "\\\0\n\r" for c in name)
        and not any("\ud800" <= c <= "\udfff" for c in name)
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )


def _size_of(content: Buffer | Path | Made) -> int:
    if isinstance(content, Made):
        return content.size_bytes
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes


def _weights_bytes(model: PackagedModel) -> int:
    parts: Sequence[tuple[int, Buffer | Path | Made]] = [(0, model.weights)] if isinstance(model.weights, Path) else model.weights or ()
    size = max((offset + _size_of(data) for offset, data in parts), default=0)
    if model.weights_bytes is not None and model.weights_bytes < size:
        raise PackageError(f"model {model.name!r}: weights take {size} bytes, weights_bytes says {model.weights_bytes}")
    return size if model.weights_bytes is None else model.weights_bytes


def _shared(weights: Weights) -> PackagedModel:
    return PackagedModel("of all models", b"", weights)


def _needed_bytes(models: Sequence[PackagedModel], extra_files: Mapping[str, bytes]) -> int:
    members = [(0 if callable(m.library) else _size_of(m.library)) + _weights_bytes(m) for m in models] + [len(data) for data in extra_files.values()]
    return sum(members) + (1 << 16)


def _weight_chunks(model: PackagedModel, total: int) -> Iterator[Buffer]:
    at = 0
    if isinstance(model.weights, Path):
        for chunk in _chunks(model.weights):
            yield chunk
            at += len(chunk)
    else:
        for offset, data in model.weights or ():
            if offset < at or offset % ALIGNMENT_BYTES:
                raise PackageError(f"model {model.name!r}: a weight at {offset} is not aligned or overlaps the one that ends at {at}")
            yield from _zeros(offset - at)
            yield from _chunks(data)
            at = offset + _size_of(data)
    yield from _zeros(total - at)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield bytes(min(count, _CHUNK_BYTES))
        count -= _CHUNK_BYTES


def _chunks(content: Buffer | Path | Made) -> Iterator[Buffer]:
    if isinstance(content, Path):
        with open(content, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
        return
    view = memoryview(content.make() if isinstance(content, Made) else content)
    flat = view.cast("B") if view.nbytes else memoryview(b"")
    for begin in range(0, len(flat), _CHUNK_BYTES):
        yield flat[begin : begin + _CHUNK_BYTES]


# ---- the archive ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenMember:
    name: str  # below the top directory
    header_offset: int
    data_offset: int
    size_bytes: int
    crc32: int
    sha256: str
    crc32c: int | None  # where the seal uses it

    def seal_line(self) -> str:
        digest = f"sha256:{self.sha256}" if self.crc32c is None else f"crc32c:{self.crc32c:08x}"
        return f"{digest}  {self.name}"

    def described(self) -> dict[str, Any]:
        return {"member": self.name, "size_bytes": self.size_bytes, "sha256": self.sha256}


class _Sha256:
    """SHA-256 of chunks, large members' on a thread of its own: it takes as long as everything else that is done to a chunk."""

    def __init__(self, size_bytes: int) -> None:
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(max_workers=1) if size_bytes >= _SPLIT_BYTES else None
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> _Sha256:
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def update(self, chunk: Buffer) -> None:
        """`chunk` must not change any more."""
        if self._thread is None:
            return self._digest.update(chunk)
        self._waiting.append(self._thread.submit(self._digest.update, chunk))
        if len(self._waiting) > _CHUNKS_AHEAD:
            self._waiting.popleft().result()

    def hexdigest(self) -> str:
        while self._waiting:
            self._waiting.popleft().result()
        return self._digest.hexdigest()


class _Archive:
    """A ZIP of stored, aligned entries, with ZIP64 records only where a size or an offset needs them."""

    def __init__(self, file: SpanFile, top: str) -> None:
        self.file = file
        self.top = top
        self.members: list[WrittenMember] = []

    def add(self, name: str, content: Buffer | Path) -> WrittenMember:
        return self.add_stream(name, _size_of(content), _chunks(content), "sha256")

    def add_stream(self, name: str, size: int, chunks: Iterable[Buffer], seal: str) -> WrittenMember:
        header_offset = self.file.tell()
        path = f"{self.top}/{name}".encode()
        header = self._local_header(path, header_offset, size, 0)
        self.file.write(header)
        crc, castagnoli, written = 0, 0, 0
        with _Sha256(size) as sha:
            for chunk in chunks:
                sha.update(chunk)
                self.file.write(chunk)
                crc = zlib.crc32(chunk, crc)
                castagnoli = crc32c(chunk, castagnoli) if seal == "crc32c" else 0
                written += len(chunk)
            digest = sha.hexdigest()
        if written != size:
            raise FileError(f"{name}: {written} bytes where {size} were announced: a source changed while it was read")
        self.file.patch(header_offset, self._local_header(path, header_offset, size, crc))
        member = WrittenMember(name, header_offset, header_offset + len(header), size, crc, digest, castagnoli if seal == "crc32c" else None)
        self.members.append(member)
        return member

    @staticmethod
    def _local_header(path: bytes, header_offset: int, size: int, crc: int) -> bytes:
        big = size >= _ZIP32_LIMIT
        extra = struct.pack("<HHQQ", 1, 16, size, size) if big else b""
        unpadded = header_offset + 30 + len(path) + len(extra) + 4
        padding = -unpadded % ALIGNMENT_BYTES
        extra += struct.pack("<HH", _PADDING_ID, padding) + b"Z" * padding
        size32 = _ZIP32_LIMIT if big else size
        fixed = struct.pack(
            "<4s5H3I2H", b"PK\3\4", 45 if big else 20, _flags(path), 0, _FIXED_TIME, _FIXED_DATE, crc, size32, size32, len(path), len(extra)
        )
        return fixed + path + extra

    def finish(self) -> None:
        start = self.file.tell()
        for member in self.members:
            path = f"{self.top}/{member.name}".encode()
            big, far = member.size_bytes >= _ZIP32_LIMIT, member.header_offset >= _ZIP32_LIMIT
            values = [member.size_bytes] * 2 * big + [member.header_offset] * far
            extra = struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""
            size32 = _ZIP32_LIMIT if big else member.size_bytes
            version = 45 if values else 20
            self.file.write(
                struct.pack(
                    "<4s6H3I5H2I",
                    b"PK\1\2",
                    version,
                    version,
                    _flags(path),
                    0,
                    _FIXED_TIME,
                    _FIXED_DATE,
                    member.crc32,
                    size32,
                    size32,
                    len(path),
                    len(extra),
                    0,
                    0,
                    0,
                    0,
                    _ZIP32_LIMIT if far else member.header_offset,
                )
                + path
                + extra
            )
        end = self.file.tell()
        count, size = len(self.members), end - start
        if start >= _ZIP32_LIMIT or size >= _ZIP32_LIMIT or count >= 0xFFFF:
            self.file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start))
            self.file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        count16 = min(count, 0xFFFF)
        self.file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count16, count16, min(size, _ZIP32_LIMIT), min(start, _ZIP32_LIMIT), 0))


def _flags(path: bytes) -> int:
    return 0 if path.isascii() else 1 << 11  # names are UTF-8


def _sync_directory(directory: Path) -> None:
    """Makes the rename itself durable; a file system that cannot sync a directory has nothing to offer here."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _free_text(directory: Path) -> str:
    try:
        status = os.statvfs(directory)
    except OSError:
        return ""
    return f", {status.f_bavail * status.f_frsize:,} are free"
