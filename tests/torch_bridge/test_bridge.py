"""The bridge's life: absent, built, loaded early, late or never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sealift.diag.errors import SealiftError
from sealift.observe import bridge as bridges

ROOT = Path(__file__).resolve().parents[2]


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120, env={**os.environ, **environment})


def test_without_the_bridge_one_message_names_the_command_and_the_rest_works(tmp_path: Path) -> None:
    done = run(
        """
import sys
from sealift import observe
observe.start(1, 1, budget=0)
observe.log_api_usage_once("mine")
import torch
torch.sin(torch.ones(2))
with observe.add_global_callback(lambda r: print("seen")): torch.sin(torch.ones(2))
assert not observe.torch_is_observed() and list(observe.stop().api_usage) == ["mine"]
try: observe.install_torch()
except observe.BridgeError as error: print(error.code, error)
""",
        XDG_CACHE_HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "seen" not in done.stdout and "E-BRIDGE-001" in done.stdout and "sealift bridge build" in done.stdout
    assert done.stderr.count("sealift bridge build") == 1
    assert not list(tmp_path.rglob("*.so"))  # nothing is compiled unasked


def test_a_process_that_never_imports_torch(tmp_path: Path) -> None:
    done = run(
        """
import sys
from sealift import observe
observe.start(1, 1, budget=0)
observe.set_api_usage_handler(print)
with observe.debug_info(model_id="m"), observe.add_global_callback(print): pass
observe.set_metadata_hook(lambda f: {})
snapshot = observe.stop()
assert snapshot.series == () and "torch" not in sys.modules
maps = open("/proc/self/maps").read()
assert "libc10" not in maps and "torch" not in maps
"""
    )
    assert done.returncode == 0, done.stderr


def test_status_and_doctor_say_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    status = subprocess.run(
        [sys.executable, "-m", "sealift", "bridge", "status", "--json"], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert status.returncode == 1 and json.loads(status.stdout)["is_there"] is False
    doctor = subprocess.run([sys.executable, "-m", "sealift", "doctor", "--json"], capture_output=True, text=True, cwd=ROOT, env=environment)
    found = next(f for f in json.loads(doctor.stdout)["findings"] if f["what"] == "bridge")
    assert doctor.returncode == 0 and not found["ok"] and "sealift bridge build" in found["help"]


def test_building_without_a_compiler_or_into_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(bridges.BridgeBuildError, match="apt-get install"):
        bridges.build_bridge(tmp_path / "cache")
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    with pytest.raises(bridges.BridgeBuildError, match="XDG_CACHE_HOME"):
        bridges.build_bridge(tmp_path / "file")


def test_a_broken_build_shows_the_command_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridges, "_FLAGS", (*bridges._FLAGS, "-fsyntax-only", "-include", "no_such_header.h"))
    with pytest.raises(bridges.BridgeBuildError, match="no_such_header") as caught:
        bridges.build_bridge(tmp_path)
    assert caught.value.code == "E-BRIDGE-002" and "command: " in str(caught.value)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_what_hooks_take_is_counted_once(tmp_path: Path) -> None:
    program = tmp_path / "hook_account_test"
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", str(ROOT / "tests/torch_bridge/hook_account_test.cpp"), "-o", str(program)]
    subprocess.run(command, check=True)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "fine\n"


@pytest.mark.parametrize("code", ["E-BRIDGE-001", "E-BRIDGE-002"])
def test_every_code_has_a_page(code: str) -> None:
    assert (ROOT / "docs" / "errors" / f"{code}.md").read_text().startswith(f"# {code}: ")
    assert issubclass(bridges.BridgeError, SealiftError)
