"""Reads a package without running it: members, manifest, digests. Safe on any bytes; the runtime has its own reader in C++ with the same rules
(contracts/PACKAGE.md), and the tests give both the same damaged files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sealift.package.crc32c import crc32c
from sealift.package.errors import FileError, IntegrityError, ModelNameError, PackageError, VersionError
from sealift.package.write import ALIGNMENT_BYTES, SCHEMA_SHARED, is_safe_member

_CHUNK_BYTES = 1 << 20
_MAX_DIRECTORY_BYTES = 64 << 20  # the central directory of about a million members
_MAX_TEXT_BYTES = 256 << 20  # the manifest and the seal are read whole
_ZIP32_LIMIT = 0xFFFFFFFF
_SEAL_LINE = re.compile(r"(sha256:[0-9a-f]{64}|crc32c:[0-9a-f]{8})  (.+)\Z")


@dataclass(frozen=True)
class Member:
    name: str  # below the top directory
    offset: int  # of its bytes in the file
    size_bytes: int
    digest: str = ""  # "sha256:..." or "crc32c:..."; "" for the seal itself


@dataclass(frozen=True)
class PackageInfo:
    path: Path
    top: str
    members: tuple[Member, ...]  # in file order
    schema: tuple[int, int]
    manifest: dict[str, Any]

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the archive holds, in file order."""
        found = (re.match(r"data/aotinductor/([^/]+)/\1\.wrapper\.so\Z", m.name) for m in self.members)
        return tuple(match[1] for match in found if match)

    def member(self, name: str) -> Member:
        for member in self.members:
            if member.name == name:
                return member
        raise PackageError(f"{self.path} has no member {name!r}")

    def model(self, name: str | None = None) -> dict[str, Any]:
        """The manifest's part on one model: the only one, else the one called "model"."""
        names = self.model_names
        chosen = name or (names[0] if len(names) == 1 else "model")
        if chosen in names:
            for entry in self.manifest.get("models", []):
                if isinstance(entry, dict) and entry.get("name") == chosen:
                    return entry
            raise PackageError(f"{self.path}: the manifest does not describe model {chosen!r}")
        wanted = f"no model {name!r} in {self.path}" if name else f"{self.path} has several models"
        raise ModelNameError(f"{wanted}; help: choose one of {', '.join(names)}")


def read_package(path: str | os.PathLike[str]) -> PackageInfo:
    """Checks the structure (rules 1 to 4) and the manifest's digest. Errors: E-FILE-001, E-PACKAGE-001, -002, -003."""
    with _opened(path) as (file, size):
        top, members = _members(file, size)
        by_name = {m.name: m for m in members}
        schema, digests = _seal(_text(file, by_name, "sealift/seal"))
        if set(digests) != set(by_name) - {"sealift/seal"}:
            odd = sorted(set(digests) ^ (set(by_name) - {"sealift/seal"}))
            raise PackageError(f"the seal and the archive differ in {', '.join(map(repr, odd[:5]))}")
        sealed = tuple(Member(m.name, m.offset, m.size_bytes, digests.get(m.name, "")) for m in members)
        for member in sealed:
            if member.digest.startswith("crc32c:") and not member.name.endswith(".weights.bin"):
                raise PackageError(f"{member.name!r} is sealed by a CRC; only weights may be")
        by_name = {m.name: m for m in sealed}
        text = _text(file, by_name, "sealift/manifest.json")
        _check(file, by_name["sealift/manifest.json"])
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"sealift/manifest.json cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != {"major": schema[0], "minor": schema[1]}:
        raise PackageError("sealift/manifest.json does not repeat the seal's schema")
    return PackageInfo(Path(path), top, sealed, schema, manifest)


def verify_package(path: str | os.PathLike[str], *, weights: bool = True) -> PackageInfo:
    """read_package, and every member's digest; `weights=False` skips those sealed by a CRC. Error: E-PACKAGE-002."""
    info = read_package(path)
    with _opened(path) as (file, _):
        for member in info.members:
            if member.digest and (weights or member.digest.startswith("sha256:")):
                _check(file, member)
    return info


def read_member(path: str | os.PathLike[str], name: str) -> bytes:
    """One member's bytes, its digest checked."""
    info = read_package(path)
    member = info.member(name)
    with _opened(path) as (file, _):
        if member.digest:
            _check(file, member)
        return _at(file, member.offset, member.size_bytes)


# ---- the seal ---------------------------------------------------------------------------------------------------------------------


def _seal(text: bytes) -> tuple[tuple[int, int], dict[str, str]]:
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise PackageError("sealift/seal is not UTF-8") from error
    first = re.fullmatch(r"sealift-seal (\d{1,6})\.(\d{1,6})", lines[0])
    if not first or lines[-1] != "":
        raise PackageError("sealift/seal does not start and end as a seal does")
    schema = (int(first[1]), int(first[2]))
    if schema[0] != SCHEMA_SHARED[0] or schema[1] > SCHEMA_SHARED[1]:
        raise VersionError(
            f"the package has schema {schema[0]}.{schema[1]}, this sealift reads {SCHEMA_SHARED[0]}.0 to {SCHEMA_SHARED[0]}.{SCHEMA_SHARED[1]}; "
            "help: update sealift, or compile the model again with this one"
        )
    digests: dict[str, str] = {}
    for line in lines[1:-1]:
        match = _SEAL_LINE.match(line)
        if not match or match[2] in digests:
            raise PackageError(f"sealift/seal: a line that cannot be read or repeats a member: {line[:80]!r}")
        digests[match[2]] = match[1]
    return schema, digests


def _check(file: BinaryIO, member: Member) -> None:
    kind, expected = member.digest.split(":")
    sha, crc = hashlib.sha256(), 0
    file.seek(member.offset)
    left = member.size_bytes
    while left:
        chunk = file.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise PackageError(f"{member.name!r} reaches past the end of the file")
        if kind == "sha256":
            sha.update(chunk)
        else:
            crc = crc32c(chunk, crc)
        left -= len(chunk)
    found = sha.hexdigest() if kind == "sha256" else f"{crc:08x}"
    if found != expected:
        raise IntegrityError(
            f"member {member.name!r} differs from its seal ({kind} {found[:16]}, sealed as {expected[:16]}); "
            "help: the file was damaged or changed: get it again"
        )


# ---- the archive ------------------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[BinaryIO, int]]:
    try:
        with open(path, "rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}; help: check the path and its permissions") from error


def _at(file: BinaryIO, offset: int, count: int) -> bytes:
    file.seek(offset)
    data = file.read(count)
    if len(data) != count:
        raise PackageError("the file ends in the middle of a record: it is truncated")
    return data


def _text(file: BinaryIO, members: dict[str, Member], name: str) -> bytes:
    if name not in members:
        raise PackageError(f"no member {name!r}: not a sealift package, though it is a ZIP archive; help: compile it with `sealift compile`")
    if members[name].size_bytes > _MAX_TEXT_BYTES:
        raise PackageError(f"{name!r} is too large to be one")
    return _at(file, members[name].offset, members[name].size_bytes)


@dataclass(frozen=True)
class _Entry:
    path: str
    flags: int
    crc32: int
    size_bytes: int
    header_offset: int


def _members(file: BinaryIO, size: int) -> tuple[str, list[Member]]:
    """Rules 1 and 2."""
    directory_offset, directory, count = _directory(file, size)
    entries = sorted(_entries(directory, count), key=lambda e: e.header_offset)
    tops = {e.path.split("/", 1)[0] for e in entries}
    if len(tops) != 1:
        raise PackageError(f"{len(tops)} top directories where a package has one")
    top = tops.pop()
    members: list[Member] = []
    seen: set[str] = set()
    free_from = 0
    for entry in entries:
        name = entry.path[len(top) + 1 :]
        if not is_safe_member(entry.path) or not name:
            raise PackageError(f"an entry's name is not allowed: {entry.path[:100]!r}")
        if name in seen:
            raise PackageError(f"two entries are called {entry.path[:100]!r}")
        seen.add(name)
        if entry.header_offset < free_from:
            raise PackageError(f"the entry {entry.path[:100]!r} overlaps the one before it")
        offset = _data_offset(file, entry)
        if name.endswith(".weights.bin") and offset % ALIGNMENT_BYTES:
            raise PackageError(f"the weights {entry.path[:100]!r} are not aligned to {ALIGNMENT_BYTES} bytes; help: pack it by sealift alone")
        free_from = offset + entry.size_bytes
        if free_from > directory_offset:
            raise PackageError(f"the entry {entry.path[:100]!r} reaches into the archive's directory")
        members.append(Member(name, offset, entry.size_bytes))
    return top, members


_NOT_A_ZIP = "not a ZIP archive, or a truncated one: it does not end in an end record; help: a package is the file that `sealift compile` wrote"


def _directory(file: BinaryIO, size: int) -> tuple[int, bytes, int]:
    if size < 22:
        raise PackageError(_NOT_A_ZIP)
    end = size - 22
    signature, disk, start_disk, here, count, directory_bytes, offset, comment = struct.unpack("<4s4H2IH", _at(file, end, 22))
    if signature != b"PK\5\6" or comment:
        raise PackageError(_NOT_A_ZIP)
    locator = _at(file, end - 20, 20) if end >= 20 else b""
    if locator.startswith(b"PK\6\7"):
        zip64_disk, record, disks = struct.unpack("<IQI", locator[4:])
        if zip64_disk or disks != 1 or record + 56 > end - 20:
            raise PackageError("the ZIP64 end record is not where its locator says")
        signature, record_bytes, _, _, disk, start_disk, here, count, directory_bytes, offset = struct.unpack("<4sQ2H2I4Q", _at(file, record, 56))
        if signature != b"PK\6\6" or record + 12 + record_bytes != end - 20:
            raise PackageError("the ZIP64 end record cannot be read")
        end = record
    if disk or start_disk or here != count:
        raise PackageError("an archive of several parts")
    if directory_bytes > _MAX_DIRECTORY_BYTES or offset + directory_bytes != end or count * 46 > directory_bytes:
        raise PackageError("the archive's directory is not where its end record says: the file is damaged")
    return offset, _at(file, offset, directory_bytes), count


def _entries(directory: bytes, count: int) -> Iterator[_Entry]:
    at = 0
    for _ in range(count):
        if len(directory) - at < 46:
            raise PackageError("the archive's directory ends early")
        fields = struct.unpack_from("<4s6H3I5H2I", directory, at)
        signature, _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes, comment_bytes, disk, _, _, offset = fields
        if signature != b"PK\1\2" or len(directory) - at < 46 + name_bytes + extra_bytes + comment_bytes:
            raise PackageError("the archive's directory cannot be read")
        path = _decode(directory[at + 46 : at + 46 + name_bytes])
        extra = directory[at + 46 + name_bytes : at + 46 + name_bytes + extra_bytes]
        wide = iter(_zip64(extra))
        try:
            size = next(wide) if size == _ZIP32_LIMIT else size
            packed = next(wide) if packed == _ZIP32_LIMIT else packed
            offset = next(wide) if offset == _ZIP32_LIMIT else offset
        except StopIteration:
            raise PackageError(f"the entry {path[:100]!r} lacks its ZIP64 sizes") from None
        if method or packed != size or flags & ~(1 << 11 | 0b110) or disk:
            raise PackageError(f"the entry {path[:100]!r} is compressed, encrypted or streamed; a package's entries are stored")
        yield _Entry(path, flags, crc, size, offset)
        at += 46 + name_bytes + extra_bytes + comment_bytes
    if at != len(directory):
        raise PackageError("the archive's directory is longer than its entries")


def _data_offset(file: BinaryIO, entry: _Entry) -> int:
    """Where the entry's bytes start; its local header must say what the directory says."""
    header = _at(file, entry.header_offset, 30)
    signature, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = struct.unpack("<4s5H3I2H", header)
    rest = _at(file, entry.header_offset + 30, name_bytes + extra_bytes)
    wide = iter(_zip64(rest[name_bytes:]))
    size = next(wide, -1) if size == _ZIP32_LIMIT else size
    packed = next(wide, -1) if packed == _ZIP32_LIMIT else packed
    same = (size, packed, crc) == (entry.size_bytes, entry.size_bytes, entry.crc32) and _decode(rest[:name_bytes]) == entry.path
    if signature != b"PK\3\4" or method or flags != entry.flags or not same:
        raise PackageError(f"the entry {entry.path[:100]!r} has two headers that differ")
    return entry.header_offset + 30 + int(name_bytes) + int(extra_bytes)


def _zip64(extra: bytes) -> tuple[int, ...]:
    at = 0
    found: tuple[int, ...] = ()
    while at < len(extra):
        kind, size = struct.unpack_from("<HH", extra, at) if len(extra) - at >= 4 else (0, len(extra))
        if at + 4 + size > len(extra) or (kind == 1 and found):
            raise PackageError("an entry's extra fields cannot be read")
        if kind == 1:
            found = struct.unpack_from(f"<{size // 8}Q", extra, at + 4)
        at += 4 + size
    return found


def _decode(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PackageError(f"an entry's name is not UTF-8: {name[:100]!r}") from error
