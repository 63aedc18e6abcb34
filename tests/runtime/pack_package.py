"""Packs a model library and its weights into a package by contracts/PACKAGE.md: the tests' own writer, on the standard library alone."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path


def crc32c(data: bytes) -> int:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass
class Model:
    library: bytes
    weights: bytes = b""


@dataclass
class Archive:
    """The members in order, before and after the seal; a test may change them in between."""

    top: str
    members: dict[str, bytes] = field(default_factory=dict)

    def seal(self, version: str = "1.0") -> Archive:
        self.members.pop("sealift/seal", None)
        lines = [f"sealift-seal {version}"]
        for name, data in self.members.items():
            digest = f"crc32c:{crc32c(data):08x}" if name.endswith(".weights.bin") else f"sha256:{hashlib.sha256(data).hexdigest()}"
            lines.append(f"{digest}  {name}")
        self.members["sealift/seal"] = ("\n".join(lines) + "\n").encode()
        return self

    def write(self, path: Path | str) -> Path:
        with open(path, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, data in self.members.items():
                info = zipfile.ZipInfo(f"{self.top}/{name}")
                # An extra field "FB" pads the local header so that the data starts at a multiple of 64 bytes.
                start = file.tell() + 30 + len(info.filename.encode()) + 4
                padding = -start % 64
                info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
                archive.writestr(info, data)
        return Path(path)


def make_archive(models: dict[str, Model], top: str = "package", extra: dict[str, bytes] | None = None) -> Archive:
    archive = Archive(top)
    members = archive.members
    members["archive_format"] = b"pt2"
    members["archive_version"] = b"0"
    members["byteorder"] = b"little"
    members[".data/version"] = b"6\n"
    for name, model in models.items():
        stem = f"data/aotinductor/{name}/{name}"
        members[f"{stem}.wrapper.so"] = model.library
        members[f"{stem}.wrapper_metadata.json"] = json.dumps({"AOTI_DEVICE_KEY": "cpu", "author": "tests"}).encode()
        if model.weights:
            members[f"{stem}.weights.bin"] = model.weights
    members["sealift/manifest.json"] = json.dumps({"schema": {"major": 1, "minor": 0}, "models": list(models)}).encode()
    for name, data in (extra or {}).items():
        members[f"extra/{name}"] = data
    return archive


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


# lin.weight [3, 4] and lin.bias [3] of MODEL_LINEAR.
LINEAR_W = [[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 2.0], [-1.0, 1.0, -1.0, 1.0]]
LINEAR_B = [10.0, 20.0, 30.0]


def linear_weights() -> bytes:
    panel = b"".join(floats(*([LINEAR_W[n][k] if n < 3 else 0.0 for n in range(32)])) for k in range(4))
    return panel + floats(*LINEAR_B) + bytes(64 - 12)


WEIGHTS = {
    "linear": linear_weights(),
    "state": floats(1.0, 2.0, 3.0, 4.0) + bytes(48),
    "errors": floats(0.5, 1.5, 2.5, 3.5, 4.5) + bytes(44),
    "shapes": b"",
    "changes": b"",
}


if __name__ == "__main__":
    import sys

    kind, library, path = sys.argv[1:4]
    make_archive({"model": Model(Path(library).read_bytes(), WEIGHTS[kind])}).seal().write(path)
