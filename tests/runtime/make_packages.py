"""Makes every package that the test programs open: make_packages.py <folder of the libraries> <output folder>."""

import sys
from pathlib import Path

from pack_package import WEIGHTS, Model, make_archive

libraries, output = Path(sys.argv[1]), Path(sys.argv[2])
output.mkdir(parents=True, exist_ok=True)


def model(kind: str, library: str | None = None) -> Model:
    return Model((libraries / f"{library or kind}.so").read_bytes(), WEIGHTS[kind])


for kind in WEIGHTS:
    make_archive({"model": model(kind)}, extra={"note.txt": b"hello"}).seal().write(output / f"{kind}.pt2")
make_archive({"encoder": model("linear"), "state": model("state")}).seal().write(output / "two.pt2")
shared = make_archive({"again": Model(model("state").library), "once": Model(model("state").library)})
shared.members["data/constants/sealift.weights.bin"] = WEIGHTS["state"]
shared.seal("1.1").write(output / "session.pt2")
make_archive({"model": model("linear", "serial")}).seal().write(output / "serial.pt2")
make_archive({"model": model("linear", "isa")}).seal().write(output / "isa.pt2")
make_archive({"model": model("linear", "abi")}).seal().write(output / "abi.pt2")
make_archive({"model": Model(b"not a library", WEIGHTS["linear"])}).seal().write(output / "nolibrary.pt2")
make_archive({"model": model("linear")}).seal("1.7").write(output / "newer.pt2")
changed = make_archive({"model": model("linear")}).seal()
changed.members["data/aotinductor/model/model.weights.bin"] = bytes(576)
changed.write(output / "changed.pt2")
