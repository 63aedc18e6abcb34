"""Runs programs under Bochs, an emulator of a whole machine whose CPU models have AVX-512: a Linux kernel, an initramfs
with the programs and their libraries, a CD. tests/emulated/README.md says how to use it.

The packages come from Debian: bochs bochsbios vgabios busybox-static xorriso isolinux syslinux-common; the kernel is taken out of its package, not
installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "emulated"
PACKAGES = "bochs bochsbios vgabios busybox-static xorriso isolinux syslinux-common"
KERNEL_PACKAGE = "linux-image-cloud-amd64"
NEEDED_FLAGS = ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
FILES = {
    "bios": "/usr/share/bochs/BIOS-bochs-latest",
    "vga": "/usr/share/vgabios/vgabios.bin",
    "boot": "/usr/lib/ISOLINUX/isolinux.bin",
    "loader": "/usr/lib/syslinux/modules/bios/ldlinux.c32",
    "busybox": "/bin/busybox",
}

# `action=report` for errors: Bochs calls an unknown MSR or port an error, and Linux probes many.
CONFIG = """\
config_interface: textconfig
display_library: rfb, options="timeout=0"
romimage: file={bios}
vgaromimage: file={vga}
cpu: model={model}, count=1, ips={ips}, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest={megabytes}, host={megabytes}
clock: sync=none, time0=946684800
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={work}/boot.iso, status=inserted
boot: cdrom
port_e9_hack: enabled=1
log: {work}/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
sound: driver=dummy
speaker: enabled=0
mouse: enabled=0
"""

# Bochs writes what a program sends to this port to its standard output. Its serial port at times stops after a while.
PORT_WRITER = """\
#include <sys/io.h>
#include <unistd.h>
int main() {
  char bytes[4096];
  if (ioperm(0xE9, 1, 1)) return 1;
  for (long n; (n = read(0, bytes, sizeof bytes)) > 0;)
    for (long i = 0; i < n; i++) outb(bytes[i], 0xE9);
}
"""

INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t devtmpfs dev /dev
(
echo "@cpu $($B grep -m1 'model name' /proc/cpuinfo)"
echo "@flags $($B grep -m1 '^flags' /proc/cpuinfo | $B tr ' ' '\\n' | $B grep -E 'avx|fma|f16c|bmi' | $B tr '\\n' ' ')"
. /programs
echo "@done"
) 2>&1 | /port
$B poweroff -f
"""


@dataclass(frozen=True)
class Program:
    """An executable, what the guest calls it with, and the files it finds beside itself."""

    path: Path
    arguments: Sequence[str] = ()
    files: Sequence[Path] = ()


@dataclass
class Result:
    name: str
    output: list[str] = field(default_factory=list)
    status: int | None = None  # None: the guest never told
    seconds: float = 0.0


def run_command(command: Sequence[str]) -> None:
    """A compiler; its errors go to the terminal."""
    subprocess.run(command, check=True)


def missing_tools() -> str | None:
    """What to install, or None."""
    absent = [name for name in ("bochs-bin", "xorriso") if not shutil.which(name)] + [path for path in FILES.values() if not os.path.exists(path)]
    return f"{', '.join(absent)} missing; on Debian: apt-get install --no-install-recommends {PACKAGES}" if absent else None


def find_kernel() -> Path:
    """vmlinuz, out of the package that Debian's metapackage depends on."""
    found = sorted((CACHE / "kernel" / "boot").glob("vmlinuz-*"))
    if found:
        return found[-1]
    depends = subprocess.run(["apt-cache", "depends", KERNEL_PACKAGE], check=True, capture_output=True, text=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if not package:
        raise SystemExit(f"apt knows no {KERNEL_PACKAGE}")
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["apt-get", "download", "-qq", package.group(1)], check=True, cwd=name)
        unpacked = Path(name) / "unpacked"
        subprocess.run(["dpkg", "-x", str(next(Path(name).glob("*.deb"))), str(unpacked)], check=True)
        (CACHE / "kernel" / "boot").mkdir(parents=True, exist_ok=True)
        for kernel in unpacked.glob("boot/vmlinuz-*"):
            shutil.copy(kernel, CACHE / "kernel" / "boot")
    return sorted((CACHE / "kernel" / "boot").glob("vmlinuz-*"))[-1]


def archive(entries: Sequence[tuple[str, int, bytes]]) -> bytes:
    """A cpio archive in the form the kernel unpacks: (name, mode, content) each."""
    out = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
        encoded = name.encode() + b"\0"
        fields = [number + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        out += b"070701" + "".join(f"{value:08x}" for value in fields).encode() + encoded
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def libraries_of(path: Path) -> set[Path]:
    """The shared libraries that an executable or a library needs, and the loader."""
    listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True).stdout
    return {Path(found) for found in re.findall(r"(/\S+) \(0x", listed)}


def initramfs(programs: Sequence[Program]) -> bytes:
    directory, executable, plain = 0o040755, 0o100755, 0o100644
    entries: list[tuple[str, int, bytes]] = [(d, directory, b"") for d in ("bin", "proc", "dev", "tmp", "t")]
    entries.append(("bin/busybox", executable, Path(FILES["busybox"]).read_bytes()))
    with tempfile.TemporaryDirectory() as name:
        port = Path(name) / "port"
        subprocess.run(["gcc", "-O1", "-static", "-x", "c", "-", "-o", str(port)], input=PORT_WRITER.encode(), check=True)
        entries.append(("port", executable, port.read_bytes()))
    entries.append(("init", executable, INIT.encode()))
    libraries = sorted(set().union(*(libraries_of(p.path) for p in programs)))
    folders = {f for library in libraries for f in library.parents if f.name}
    entries += [(str(f).lstrip("/"), directory, b"") for f in sorted(folders, key=lambda f: len(f.parts))]
    entries += [(str(library).lstrip("/"), executable, library.read_bytes()) for library in libraries]
    lines = ["cd /t"]
    for index, program in enumerate(programs):
        entries.append((f"t/p{index}", executable, program.path.read_bytes()))
        entries += [(f"t/{f.name}", plain, f.read_bytes()) for f in program.files]
        lines += [f"echo '@begin {index}'", " ".join([f"/t/p{index}", *program.arguments]), f'echo "@end {index} $?"']
    entries.append(("programs", plain, "\n".join(lines).encode() + b"\n"))
    return archive(entries)


def run_guest(
    programs: Sequence[Program],
    model: str = "corei7_skylake_x",
    megabytes: int = 256,
    ips: int = 50_000_000,
    timeout_s: float = 3000,
    echo: bool = True,
) -> tuple[list[Result], bytes]:
    """Boots, runs the programs one after another, and powers off. `ips` is only how fast the guest's clock goes against its instructions.

    Returns the results, and all that was written to the I/O port 0xE9, after a few lines of Bochs's own."""
    problem = missing_tools()
    if problem:
        raise SystemExit(problem)
    kernel = find_kernel()
    results = [Result(program.path.name) for program in programs]
    with tempfile.TemporaryDirectory(prefix="sealift-guest-") as name:
        work = Path(name)
        disc = work / "disc"
        disc.mkdir()
        shutil.copy(FILES["boot"], disc)
        shutil.copy(FILES["loader"], disc)
        shutil.copy(kernel, disc / "vmlinuz")
        (disc / "initrd").write_bytes(initramfs(programs))
        # 321, 323: XSAVEC and XSAVES. Bochs 2.7 gives another size for their compacted area than Linux computes, which would then do without AVX.
        arguments = "quiet loglevel=3 clearcpuid=321,323 mitigations=off nosmp nokaslr audit=0 random.trust_cpu=on tsc=reliable lpj=800000 nowatchdog rcupdate.rcu_expedited=1"
        (disc / "isolinux.cfg").write_text(f"DEFAULT l\nPROMPT 0\nTIMEOUT 0\nLABEL l\n  KERNEL vmlinuz\n  INITRD initrd\n  APPEND {arguments}\n")
        subprocess.run(
            [
                "xorriso", "-as", "mkisofs", "-quiet", "-o", str(work / "boot.iso"), "-b", "isolinux.bin", "-c", "boot.cat",
                "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", str(disc),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        config = work / "bochsrc"
        config.write_text(CONFIG.format(work=work, model=model, megabytes=megabytes, ips=ips, **{k: FILES[k] for k in ("bios", "vga")}))
        (work / "commands").write_text("c\n")  # Debian builds Bochs with its debugger, which waits to be told
        emulator = subprocess.Popen(
            ["nice", "-n", "5", "bochs-bin", "-q", "-f", str(config), "-rc", str(work / "commands")],
            stdin=subprocess.DEVNULL,
            stdout=(work / "stdout").open("w"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(emulator, work / "stdout", results, time.monotonic() + timeout_s, echo)
        finally:
            if emulator.poll() is None:
                os.killpg(emulator.pid, signal.SIGKILL)
            emulator.wait()
        if any(r.status is None for r in results):
            for log in ("bochs.log", "stdout"):
                text = (work / log).read_text(errors="replace") if (work / log).exists() else ""
                print(f"-- the end of {log}\n{text[-3000:]}", file=sys.stderr)
        written = (work / "stdout").read_bytes()
    return results, written


def _watch(emulator: subprocess.Popen[bytes], written: Path, results: list[Result], deadline: float, echo: bool) -> None:
    """Reads what the guest writes until it says that it is done."""
    began, current, rest, began_to_tell = time.monotonic(), -1, "", False
    with written.open(errors="replace") as lines:
        while time.monotonic() < deadline:
            running = emulator.poll() is None
            rest += lines.read()
            *whole, rest = rest.split("\n")
            for line in (one.rstrip("\r") for one in whole):
                line = line[line.rfind("@cpu") :] if "@cpu" in line else line  # after what Bochs's debugger says of its start
                began_to_tell = began_to_tell or line.startswith("@cpu")
                if not began_to_tell or line.startswith("@row"):
                    continue
                if echo:
                    print(f"[{time.monotonic() - began:7.1f}] {line}", flush=True)
                if line.startswith("@flags"):
                    lacking = [flag for flag in NEEDED_FLAGS if flag not in line.split()]
                    if lacking:
                        raise SystemExit(f"the emulated CPU lacks {', '.join(lacking)}")
                elif line.startswith("@begin "):
                    current = int(line.split()[1])
                    results[current].seconds = time.monotonic()
                elif line.startswith("@end "):
                    _, index, status = line.split()
                    results[int(index)].status = int(status)
                    results[int(index)].seconds = time.monotonic() - results[int(index)].seconds
                    current = -1
                elif line == "@done":
                    return
                elif current >= 0:
                    results[current].output.append(line)
            if not running:
                return
            time.sleep(0.2)
