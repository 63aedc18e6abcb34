"""Reading packages that break the rules of contracts/PACKAGE.md, one mistake each, through sealift_open."""

from __future__ import annotations

import ctypes
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pack_package import WEIGHTS, Archive, Model, make_archive

OK, PACKAGE, INTEGRITY, VERSION, LIBRARY = 0, 3, 4, 5, 8
WEIGHTS_MEMBER = "data/aotinductor/model/model.weights.bin"


@pytest.fixture(scope="session")
def sealift_open(build: Path) -> Callable[[Path], tuple[int, str]]:
    library = ctypes.CDLL(str(build / "libsealift.so.0"))
    library.sealift_close.argtypes = [ctypes.c_void_p]

    def attempt(path: Path) -> tuple[int, str]:
        model, text = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
        status = library.sealift_open(str(path).encode(), None, ctypes.byref(model), text, len(text))
        library.sealift_close(model)
        message = text.value.decode(errors="replace")
        assert (status == OK) == (model.value is not None)
        assert status == OK or (message.startswith("[E-") and "help: " in message and "\n" not in message), message
        return status, message

    return attempt


@pytest.fixture
def archive(libraries: Path) -> Archive:
    return make_archive({"model": Model((libraries / "linear.so").read_bytes(), WEIGHTS["linear"])}, extra={"note.txt": b"hello"})


def directory(data: bytearray) -> tuple[int, list[int]]:
    """Where the end record lies, and the records of the central directory."""
    end = data.rindex(b"PK\x05\x06")
    count, _, at = struct.unpack_from("<HII", data, end + 10)
    records = []
    for _ in range(count):
        records.append(at)
        at += 46 + sum(struct.unpack_from("<HHH", data, at + 28))
    return end, records


def test_a_good_package_opens(sealift_open, archive: Archive, tmp_path: Path) -> None:
    assert sealift_open(archive.seal().write(tmp_path / "good.pt2")) == (OK, "")


def test_an_unpadded_archive_is_refused(sealift_open, archive: Archive, tmp_path: Path) -> None:
    archive.seal()
    path = tmp_path / "plain.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as plain:
        for name, data in archive.members.items():
            plain.writestr(f"plain/{name}", data)
    status, message = sealift_open(path)
    assert status == PACKAGE and "multiple of 64" in message


MEMBER_MISTAKES: dict[str, tuple[Callable[[dict[str, bytes]], object], int, str]] = {
    "an unsealed member": (lambda m: m.update({"extra/new.txt": b"x"}), PACKAGE, "'extra/new.txt' is not in the seal"),
    "a lost member": (lambda m: m.pop("extra/note.txt"), PACKAGE, "'extra/note.txt', which is missing"),
    "no seal": (lambda m: m.pop("sealift/seal"), PACKAGE, "not a sealift package"),
    "an empty seal": (lambda m: m.update({"sealift/seal": b""}), PACKAGE, "no version line"),
    "a seal without an end": (lambda m: m.update({"sealift/seal": m["sealift/seal"][:-1]}), PACKAGE, "cut off"),
    "a strange digest": (lambda m: m.update({"sealift/seal": m["sealift/seal"].replace(b"sha256:", b"md5:", 1)}), PACKAGE, "no digest"),
    "a digest in capitals": (lambda m: m.update({"sealift/seal": m["sealift/seal"][:13] + m["sealift/seal"][13:].upper()}), PACKAGE, ""),
    "a member sealed twice": (lambda m: m.update({"sealift/seal": m["sealift/seal"] + m["sealift/seal"].splitlines(True)[1]}), PACKAGE, "twice"),
    "a library sealed by CRC": (
        lambda m: m.update(
            {
                "sealift/seal": b"".join(
                    b"crc32c:00000000" + line[71:] if line.endswith(b".so\n") else line for line in m["sealift/seal"].splitlines(True)
                )
            }
        ),
        PACKAGE,
        "must be sealed by SHA-256",
    ),
    "a changed library": (
        lambda m: m.update({"data/aotinductor/model/model.wrapper.so": m["data/aotinductor/model/model.wrapper.so"] + b"x"}),
        INTEGRITY,
        "model.wrapper.so",
    ),
    "changed weights": (lambda m: m.update({WEIGHTS_MEMBER: b"x" + m[WEIGHTS_MEMBER][1:]}), INTEGRITY, "model.weights.bin"),
    "a changed extra file": (lambda m: m.update({"extra/note.txt": b"HELLO"}), INTEGRITY, "extra/note.txt"),
    "a changed manifest": (lambda m: m.update({"sealift/manifest.json": b"{}"}), INTEGRITY, "manifest"),
    "another major version": (lambda m: m.update({"sealift/seal": m["sealift/seal"].replace(b" 1.0", b" 2.0")}), VERSION, "2.0"),
    "a newer minor version": (lambda m: m.update({"sealift/seal": m["sealift/seal"].replace(b" 1.0", b" 1.2")}), VERSION, "1.2"),
    "a version that is none": (lambda m: m.update({"sealift/seal": m["sealift/seal"].replace(b" 1.0", b" 1.-1")}), PACKAGE, "version"),
}


@pytest.mark.parametrize("mistake", MEMBER_MISTAKES)
def test_mistake_among_the_members(sealift_open, archive: Archive, tmp_path: Path, mistake: str) -> None:
    change, expected, part = MEMBER_MISTAKES[mistake]
    archive.seal()
    change(archive.members)
    status, message = sealift_open(archive.write(tmp_path / "mistake.pt2"))
    assert (status, part in message) == (expected, True), message


@pytest.mark.parametrize("missing", ["sealift/manifest.json", "data/aotinductor/model/model.wrapper.so", WEIGHTS_MEMBER])
def test_sealed_without_a_member_it_needs(sealift_open, archive: Archive, tmp_path: Path, missing: str) -> None:
    del archive.members[missing]
    status, message = sealift_open(archive.seal().write(tmp_path / "missing.pt2"))
    assert status == PACKAGE and "help" in message


HOSTILE = [
    "package/../escape-from-here",
    "package/extra/../../escape",
    "package/./extra/dotted-name",
    "package/extra/./dotted-name",
    "package/extra//doubled-slash",
    "/package/extra/absolute-name",
    "package/extra\\with-backslash",
    "package/extra/a-directory/",
    "package/extra/two\nlines-long",
    "package/extra/a\0nul-inside",
    "package/extra/ends-in-dots/..",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name(sealift_open, archive: Archive, tmp_path: Path, name: str) -> None:
    stand_in = "package/extra/".ljust(len(name), "N")
    archive.members[stand_in.removeprefix("package/")] = b"payload"
    path = archive.seal().write(tmp_path / "hostile.pt2")
    data = path.read_bytes()
    assert data.count(stand_in.encode()) == 2  # the member's header and its record
    path.write_bytes(data.replace(stand_in.encode(), name.encode()))
    status, message = sealift_open(path)
    assert status == PACKAGE and ("name" in message), message


def test_outside_the_top_directory(sealift_open, archive: Archive, tmp_path: Path) -> None:
    path = archive.seal().write(tmp_path / "top.pt2")
    path.write_bytes(path.read_bytes().replace(b"package/extra", b"package_extra"))
    status, message = sealift_open(path)
    assert status == PACKAGE and "outside" in message


def test_the_same_name_twice(sealift_open, archive: Archive, tmp_path: Path) -> None:
    archive.members["extra/nota.txt"] = b"other"
    path = archive.seal().write(tmp_path / "twice.pt2")
    path.write_bytes(path.read_bytes().replace(b"extra/nota.txt", b"extra/note.txt"))
    status, message = sealift_open(path)
    assert status == PACKAGE and "twice" in message


def test_compressed(sealift_open, archive: Archive, tmp_path: Path) -> None:
    archive.seal()
    path = tmp_path / "deflated.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as deflated:
        for name, data in archive.members.items():
            deflated.writestr(f"package/{name}", data)
    status, message = sealift_open(path)
    assert status == PACKAGE and "compressed" in message


Patch = Callable[[bytearray, int, list[int]], object]
DIRECTORY_MISTAKES: dict[str, Patch] = {
    "encrypted": lambda d, end, r: d.__setitem__(r[0] + 8, d[r[0] + 8] | 1),
    "deflated in the directory only": lambda d, end, r: struct.pack_into("<H", d, r[0] + 10, 8),
    "larger than the file": lambda d, end, r: struct.pack_into("<II", d, r[0] + 20, 1 << 30, 1 << 30),
    "one byte longer": lambda d, end, r: struct.pack_into("<II", d, r[0] + 20, 4, 4),
    "its header past the end": lambda d, end, r: struct.pack_into("<I", d, r[0] + 42, 0x7FFFFFFF),
    "its header at the directory": lambda d, end, r: struct.pack_into("<I", d, r[0] + 42, r[0]),
    "two records of one member": lambda d, end, r: d.__setitem__(slice(r[1] + 42, r[1] + 46), d[r[0] + 42 : r[0] + 46]),
    "fewer entries than there are": lambda d, end, r: struct.pack_into("<HH", d, end + 8, len(r) - 1, len(r) - 1),
    "more entries than there are": lambda d, end, r: struct.pack_into("<HH", d, end + 8, len(r) + 1, len(r) + 1),
    "65534 entries": lambda d, end, r: struct.pack_into("<HH", d, end + 8, 65534, 65534),
    "a directory of no bytes": lambda d, end, r: struct.pack_into("<I", d, end + 12, 0),
    "a directory past the end": lambda d, end, r: struct.pack_into("<I", d, end + 16, 0x7FFFFFFF),
    "a split archive": lambda d, end, r: struct.pack_into("<HH", d, end + 4, 1, 1),
    "a comment": lambda d, end, r: (struct.pack_into("<H", d, end + 20, 5), d.extend(b"hello")),
    "a name that differs in its header": lambda d, end, r: d.__setitem__(r[0] + 46 + 9, ord("X")),
    "an extra field that is cut off": lambda d, end, r: d.__setitem__(slice(r[0] + 46 + 22, r[0] + 46 + 26), b"\1\0\xff\xff"),
}


@pytest.mark.parametrize("mistake", DIRECTORY_MISTAKES)
def test_mistake_in_the_directory(sealift_open, archive: Archive, tmp_path: Path, mistake: str) -> None:
    path = archive.seal().write(tmp_path / "mistake.pt2")
    data = bytearray(path.read_bytes())
    end, records = directory(data)
    DIRECTORY_MISTAKES[mistake](data, end, records)
    path.write_bytes(data)
    status, message = sealift_open(path)
    assert status == PACKAGE, message


def test_overlapping_members(sealift_open, archive: Archive, tmp_path: Path) -> None:
    """A member whose data is a whole other member, header and all: its record is honest, and still refused."""
    inner = b"inner"
    local = (
        struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0x21, zipfile.crc32(inner), len(inner), len(inner), len("package/extra/inner"), 0)
        + b"package/extra/inner"
        + inner
    )
    archive.members["extra/outer"] = local
    archive.members["extra/inner"] = inner
    path = archive.seal().write(tmp_path / "overlap.pt2")
    data = bytearray(path.read_bytes())
    for record in directory(data)[1]:
        if data[record + 46 : record + 46 + 19] == b"package/extra/inner":
            struct.pack_into("<I", data, record + 42, data.index(local))
    path.write_bytes(data)
    status, message = sealift_open(path)
    assert status == PACKAGE and "overlaps" in message


def test_zip64_is_read(sealift_open, archive: Archive, tmp_path: Path) -> None:
    """As writers make it for files over 4 GiB: sizes and offsets in extra fields, a ZIP64 end record and its locator."""
    archive.seal()
    out, records = bytearray(), bytearray()
    for name, content in archive.members.items():
        path = f"package/{name}".encode()
        offset, crc = len(out), zipfile.crc32(content)
        zip64 = struct.pack("<HHQQ", 1, 16, len(content), len(content))
        padding = -(offset + 30 + len(path) + len(zip64) + 4) % 64
        extra = zip64 + struct.pack("<2sH", b"FB", padding) + bytes(padding)
        out += struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0x21, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(path), len(extra)) + path + extra + content
        wide = struct.pack("<HHQQQ", 1, 24, len(content), len(content), offset)
        records += (
            struct.pack(
                "<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0x21, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(path), len(wide), 0, 0, 0, 0, 0xFFFFFFFF
            )
            + path
            + wide
        )
    start = len(out)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(archive.members), len(archive.members), len(records), start)
    locator = struct.pack("<IIQI", 0x07064B50, 0, start + len(records), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path = tmp_path / "zip64.pt2"
    path.write_bytes(out + records + end64 + locator + end)
    assert sealift_open(path) == (OK, "")
    path.write_bytes(out + records + end64[:-8] + struct.pack("<Q", start + 1) + locator + end)
    assert sealift_open(path)[0] == PACKAGE


def test_every_byte_of_content_counts(sealift_open, archive: Archive, tmp_path: Path) -> None:
    """A flipped byte in a member's data, its name, or the seal is always found; elsewhere it is found or is padding or a time stamp."""
    path = archive.seal().write(tmp_path / "whole.pt2")
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as opened:
        data = [(info.header_offset, info.header_offset + 30 + len(info.filename), info.file_size, info.filename) for info in opened.infolist()]
    damaged = tmp_path / "damaged.pt2"
    for offset, names_end, size, name in data:
        extra = struct.unpack_from("<H", whole, offset + 28)[0]
        begin = names_end + extra
        places = {offset, offset + 8, offset + 22, offset + 26, offset + 30, names_end - 1, begin, begin + size // 2, begin + size - 1}
        places |= set(range(begin, begin + size, max(1, size // 15)))
        for place in sorted(places):
            changed = bytearray(whole)
            changed[place] ^= 0x11
            damaged.write_bytes(changed)
            status, message = sealift_open(damaged)
            assert status in (PACKAGE, INTEGRITY, VERSION), f"offset {place} in {name}: {status} {message}"


def test_mapped_weights_are_shared(build: Path, packages: Path) -> None:
    """The weights' pages are the file's: mapped read-only, not copied."""
    library = ctypes.CDLL(str(build / "libsealift.so.0"))
    model, text = ctypes.c_void_p(), ctypes.create_string_buffer(512)
    path = packages / "linear.pt2"
    assert library.sealift_open(str(path).encode(), None, ctypes.byref(model), text, 512) == OK, text.value
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    assert len(mapped) == 1 and " r--p " in mapped[0]
    library.sealift_close(model)
    assert str(path) not in Path("/proc/self/maps").read_text()
