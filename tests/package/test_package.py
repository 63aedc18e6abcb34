"""Packages: the bytes that write_package makes, and what the reader refuses."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sealift.package.crc32c import crc32c, crc32c_numpy, crc32c_reference
from sealift.package.errors import DiskFullError, FileError, IntegrityError, ModelNameError, PackageError, VersionError
from sealift.package.read import read_member, read_package, verify_package
from sealift.package.write import PackagedModel, _Archive, write_package

WEIGHTS = [(0, memoryview(np.arange(4, dtype=np.float32))), (64, memoryview(np.full((2, 2), 0.5, np.float32)))]


def written(path: Path, library: bytes = b"\x7fELF code", **options: Any) -> Path:
    model = PackagedModel("model", library, WEIGHTS, {"kernels": ["k0"]}, weights_bytes=128)
    return write_package(path, [model], {"origin": "a test"}, {"labels.txt": b"cat\ndog\n"}, **options)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return written(tmp_path / "m.pt2")


# ---- writing ----------------------------------------------------------------------------------------------------------------------


def test_members_are_stored_aligned_and_described(package: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        assert archive.testzip() is None
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.read("m/archive_version") == b"0"
        assert archive.read("m/data/aotinductor/model/model.weights.bin")[64:80] == np.full(4, 0.5, np.float32).tobytes()
        assert archive.read("m/data/aotinductor/model/model.weights.bin")[80:] == bytes(48)
        assert json.loads(archive.read("m/data/aotinductor/model/model.wrapper_metadata.json")) == {"AOTI_DEVICE_KEY": "cpu", "origin": "a test"}
    info = verify_package(package)
    assert all(m.offset % 64 == 0 for m in info.members)
    assert info.model_names == ("model",) and info.model()["kernels"] == ["k0"] and info.top == "m"
    assert read_member(package, "extra/labels.txt") == b"cat\ndog\n"


def test_bytes_depend_on_nothing_else(tmp_path: Path) -> None:
    first, second = written(tmp_path / "m.pt2").read_bytes(), None
    (tmp_path / "elsewhere").mkdir()
    second = written(tmp_path / "elsewhere" / "m.pt2").read_bytes()
    assert first == second


def test_weights_from_a_file_are_the_same_bytes(tmp_path: Path) -> None:
    packed = tmp_path / "weights.bin"
    packed.write_bytes(read_member(written(tmp_path / "m.pt2"), "data/aotinductor/model/model.weights.bin"))
    library = tmp_path / "code.so"
    library.write_bytes(b"\x7fELF code")
    (tmp_path / "b").mkdir()
    model = PackagedModel("model", library, packed, {"kernels": ["k0"]})
    other = write_package(tmp_path / "b" / "m.pt2", [model], {"origin": "a test"}, {"labels.txt": b"cat\ndog\n"})
    assert other.read_bytes() == (tmp_path / "m.pt2").read_bytes()


def test_permissions_are_those_of_an_ordinary_file(package: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    assert package.stat().st_mode & 0o777 == 0o666 & ~umask


def test_several_models_have_a_default_only_if_one_is_called_model(tmp_path: Path) -> None:
    path = write_package(tmp_path / "two.pt2", [PackagedModel("encoder", b"a"), PackagedModel("decoder", b"b")])
    assert read_package(path).model_names == ("encoder", "decoder")
    with pytest.raises(ModelNameError, match="encoder, decoder"):
        read_package(path).model()
    assert read_package(path).model("decoder")["name"] == "decoder"
    with pytest.raises(ModelNameError, match="E-PACKAGE-004"):
        write_package(tmp_path / "same.pt2", [PackagedModel("a", b"a"), PackagedModel("a", b"b")])


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".", "a b", "a\n"])
def test_model_names_that_cannot_be_members(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="cannot name a model"):
        write_package(tmp_path / "m.pt2", [PackagedModel(name, b"a")])


@pytest.mark.parametrize("name", ["", "/a", "../a", "a/../b", "a\\b", "a\0b", "a//b", "./a"])
def test_extra_files_that_cannot_be_members(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="cannot name an extra file"):
        write_package(tmp_path / "m.pt2", [PackagedModel("m", b"a")], {}, {name: b""})


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), RuntimeError("x")])
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    def fail(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(_Archive, "finish", fail)
    expected = DiskFullError if isinstance(raised, OSError) else type(raised)
    with pytest.raises(expected) as caught:
        written(tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []
    if isinstance(caught.value, DiskFullError):
        assert caught.value.code == "E-FILE-002" and str(tmp_path / "m.pt2") in str(caught.value) and "needs" in str(caught.value)


def test_a_full_disk_in_truth(tmp_path: Path) -> None:
    """A file size limit makes the kernel refuse as a full disk does (EFBIG for ENOSPC), in a process of its own."""
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));"
        "from sealift.package.write import *\n"
        "try: write_package(sys.argv[1], [PackagedModel('m', bytes(8 << 20))])\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(tmp_path / "m.pt2")], capture_output=True, text=True)
    assert "DiskFullError [E-FILE-002]" in result.stdout, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="E-FILE-001"):
        written(tmp_path / "no" / "m.pt2")


def test_zip64_where_an_entry_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit lowered, so that small entries take the ZIP64 form: Python's own reader and ours must agree on it."""
    import sealift.package.read as read_module
    import sealift.package.write as write_module

    monkeypatch.setattr(write_module, "_ZIP32_LIMIT", 64)
    monkeypatch.setattr(read_module, "_ZIP32_LIMIT", 64)
    path = written(tmp_path / "m.pt2", library=bytes(range(256)))
    assert read_member(path, "data/aotinductor/model/model.wrapper.so") == bytes(range(256))


@pytest.mark.skipif(os.environ.get("SEALIFT_SLOW_TESTS") != "1", reason="writes 4.3 GB")
def test_zip64_in_truth(tmp_path: Path) -> None:
    big = tmp_path / "w.bin"
    with open(big, "wb") as file:
        file.truncate((1 << 32) + 4096)
    path = write_package(tmp_path / "big.pt2", [PackagedModel("m", b"code", big)], {}, {"after": b"x"})
    verify_package(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("big/data/aotinductor/m/m.weights.bin").file_size == (1 << 32) + 4096
        assert archive.read("big/extra/after") == b"x"


# ---- reading --------------------------------------------------------------------------------------------------------------------


def rezip(source: Path, target: Path, change: Any, aligned: bool = True) -> Path:
    """The archive written again by Python's zipfile, after change(list of (name, bytes))."""
    with zipfile.ZipFile(source) as archive:
        members = [(i.filename, archive.read(i)) for i in archive.infolist()]
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in change(members):
            info = zipfile.ZipInfo(name)
            padding = -(archive.fp.tell() + 34 + len(name)) % 64  # type: ignore[union-attr]
            info.extra = struct.pack("<HH", 0x4246, padding) + bytes(padding) if aligned else b""
            archive.writestr(info, data)
    return target


def test_another_writer_of_zip_is_read(package: Path, tmp_path: Path) -> None:
    verify_package(rezip(package, tmp_path / "again.pt2", lambda members: members))
    with pytest.raises(PackageError, match="not aligned"):
        read_package(rezip(package, tmp_path / "again.pt2", lambda members: members, aligned=False))


def test_nothing_may_follow_the_end(package: Path) -> None:
    package.write_bytes(package.read_bytes() + b"x")
    with pytest.raises(PackageError, match="does not end"):
        read_package(package)


@pytest.mark.parametrize("name", ["m/../x", "/m/x", "m/a\\b", "m/./x", "other/x", "m/dir/", "m//x"])
def test_odd_names_are_refused(package: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(PackageError, match="E-PACKAGE-001"):
        read_package(rezip(package, tmp_path / "odd.pt2", lambda members: [*members, (name, b"x")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicates_and_unsealed_members_are_refused(package: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="two entries"):
        read_package(rezip(package, tmp_path / "twice.pt2", lambda members: [*members, members[0]]))
    with pytest.raises(PackageError, match="the seal and the archive differ in 'extra/more'"):
        read_package(rezip(package, tmp_path / "more.pt2", lambda members: [*members, ("m/extra/more", b"x")]))
    with pytest.raises(PackageError, match="the seal and the archive differ"):
        read_package(rezip(package, tmp_path / "less.pt2", lambda members: members[1:]))


def test_compressed_and_foreign_archives_are_refused(package: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pt2"
    with zipfile.ZipFile(package) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in source.infolist():
            archive.writestr(entry.filename, source.read(entry))
    with pytest.raises(PackageError, match="stored"):
        read_package(packed)
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("a/b", b"c")
    with pytest.raises(PackageError, match="not a sealift package"):
        read_package(foreign)
    for junk in (b"", b"PK\5\6", b"hello" * 100, bytes(100_000)):
        foreign.write_bytes(junk)
        with pytest.raises(PackageError):
            read_package(foreign)
    with pytest.raises(FileError, match="E-FILE-001"):
        read_package(tmp_path / "absent.pt2")
    with pytest.raises(FileError, match="E-FILE-001"):
        read_package(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "directory", "no name", "NUL"])
def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path, kind: str) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link.pt2"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    path = {"pipe": pipe, "link to a pipe": link, "directory": tmp_path, "no name": "", "NUL": "a\0b.pt2"}[kind]
    with pytest.raises(FileError, match=r"E-FILE-001.*help: give the path"):
        write_package(path, [PackagedModel("m", b"library")])
    assert pipe.is_fifo() and link.is_symlink() and sorted(p.name for p in tmp_path.iterdir()) == ["link.pt2", "pipe"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "models").mkdir()
    behind, link = tmp_path / "models" / "v7.pt2", tmp_path / "current.pt2"
    if exists:
        behind.write_bytes(b"older")
    link.symlink_to("models/v7.pt2")
    assert write_package(link, [PackagedModel("m", b"library")]) == link
    assert link.is_symlink() and read_package(behind).model_names == ("m",)


def test_a_flipped_byte_of_any_member_is_noticed(package: Path) -> None:
    original = package.read_bytes()
    for member in read_package(package).members:
        if member.name == "sealift/seal" or not member.size_bytes:
            continue
        damaged = bytearray(original)
        damaged[member.offset + member.size_bytes // 2] ^= 0x10
        package.write_bytes(damaged)
        with pytest.raises(IntegrityError, match=r"E-PACKAGE-002.*differs from its seal"):
            verify_package(package)


def test_weights_can_be_left_unverified(package: Path) -> None:
    weights = read_package(package).member("data/aotinductor/model/model.weights.bin")
    damaged = bytearray(package.read_bytes())
    damaged[weights.offset] ^= 1
    package.write_bytes(damaged)
    verify_package(package, weights=False)
    with pytest.raises(IntegrityError):
        verify_package(package)


def test_newer_schemas_are_refused(package: Path, tmp_path: Path) -> None:
    for schema in ("2.0", "1.2", "0.9"):
        newer = rezip(
            package,
            tmp_path / "newer.pt2",
            lambda members, schema=schema: [(n, d.replace(b"seal 1.0", f"seal {schema}".encode())) for n, d in members],
        )
        with pytest.raises(VersionError, match="update sealift"):
            read_package(newer)


def test_random_damage_gives_errors_only(package: Path, tmp_path: Path) -> None:
    original = package.read_bytes()
    source = random.Random(1)
    damaged_path = tmp_path / "damaged.pt2"
    for _ in range(1500):
        damaged = bytearray(original)
        kind = source.randrange(4)
        if kind == 0:
            del damaged[source.randrange(len(damaged)) :]
        elif kind == 1:
            at = source.randrange(len(damaged) - 8)
            damaged[at : at + 4] = struct.pack("<I", source.choice([0, 1, 0x7FFFFFFF, 0xFFFFFFFF, source.getrandbits(32)]))
        else:
            start = original.rfind(b"PK\1\2") if kind == 2 else len(original) - 2500
            for _ in range(source.randrange(1, 4)):
                damaged[source.randrange(max(0, start), len(damaged))] = source.randrange(256)
        damaged_path.write_bytes(damaged)
        with suppress(PackageError):
            verify_package(damaged_path)


# ---- CRC-32C --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [crc32c, crc32c_numpy, crc32c_reference])
def test_crc32c(function: Any) -> None:
    assert function(b"123456789", 0) == 0xE3069283  # RFC 3720's check value
    assert function(b"", 0) == 0
    data = random.Random(2).randbytes(300_001)
    assert function(data, 0) == crc32c_reference(data)
    assert function(data[1000:], function(data[:1000], 0)) == crc32c_reference(data)


# ---- PyTorch's loader -----------------------------------------------------------------------------------------------------------


def test_pytorch_loads_it(stub_library: Path, tmp_path: Path) -> None:
    archive = pytest.importorskip("torch.export.pt2_archive._package")
    path = write_package(
        tmp_path / "m.pt2", [PackagedModel("model", stub_library, WEIGHTS, weights_bytes=128)], {"origin": "a test"}, {"labels.txt": b"cat\n"}
    )
    contents = archive.load_pt2(str(path))
    assert list(contents.aoti_runners) == ["model"] and contents.extra_files == {"labels.txt": "cat\n"}
    assert contents.aoti_runners["model"].get_metadata()["origin"] == "a test"
    assert sorted(contents.aoti_runners["model"].get_constant_fqns()) == ["affine.bias", "affine.scale"]
