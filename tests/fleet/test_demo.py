"""`make fleet-demo`: a collector and three observed processes, on loopback alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.observe.conftest import bridge

__all__ = ["bridge"]  # the fixture: the demo observes PyTorch's operators

ROOT = Path(__file__).resolve().parents[2]
_LISTENS = "0A"


def tree(root: int) -> set[int]:
    """The process and all that descend from it."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended meanwhile
                continue
    found, more = {root}, True
    while more:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
    return found


def sockets(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass
    return found


def listening(root: int) -> set[str]:
    """Addresses, as the kernel writes them, on which the processes take connections."""
    mine = set().union(*map(sockets, tree(root)))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[1].partition(":")[0] for row in rows if row[3] == _LISTENS and row[9] in mine}


def test_the_demo_shows_three_processes_and_opens_no_port_but_loopback(tmp_path: Path, bridge: Path) -> None:
    output = tmp_path / "output"
    with open(output, "w") as file:
        demo = subprocess.Popen([sys.executable, str(ROOT / "examples/fleet_demo.py"), "--seconds", "4"], stdout=file, stderr=subprocess.STDOUT)
        found = set[str]()
        end = time.monotonic() + 300
        while demo.poll() is None and time.monotonic() < end:
            found |= listening(demo.pid)
            time.sleep(0.1)
        demo.kill()
        demo.wait()
    text = output.read_text()
    assert demo.returncode == 0, text
    assert found == {"0100007F"}, "127.0.0.1 and nothing else"
    operators, _, by_process = text.partition("By process:")
    assert "Top operators of the fleet:" in operators and "aten::" in operators
    assert all(f"demo-{role}" in by_process for role in ("eager", "training", "sealift"))
    assert "dashboard and API: http://127.0.0.1:" in by_process
